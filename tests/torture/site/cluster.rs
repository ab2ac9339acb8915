//! A cluster with a failover grace.

use super::group::GRACE_MS;
use crate::support::until;

#[allow(dead_code)]
#[path = "../../support/cluster.rs"]
mod servers;

pub use servers::{nodes, Cluster, WAYS};

const SETTINGS: &str = "appendonly no\nmin-replicas-to-write 1\nmin-replicas-max-lag 1\nrepl-ping-replica-period 1";

pub fn start() -> Cluster {
    let module_args = format!("margin-ms 1000 retention-ms 400 failover-grace-ms {GRACE_MS}");
    let cluster = Cluster::start(SETTINGS, &module_args);
    cluster.until_well();
    cluster
}

/// A master that does not serve the key, as soon as there is one.
pub fn other_master<'a>(cluster: &'a Cluster, key: &str) -> &'a nodes::Node {
    until("there is another master", || cluster.find_other_master(key))
}

/// The replica of a master, as soon as it has one.
pub fn replica_of<'a>(cluster: &'a Cluster, master: &nodes::Node) -> &'a nodes::Node {
    until("it has a replica", || cluster.find_replica_of(master))
}
