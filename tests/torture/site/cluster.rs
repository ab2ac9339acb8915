//! A cluster with a failover grace.

use super::group::GRACE_MS;

pub use testkit::cluster::{nodes, Cluster, WAYS};

const SETTINGS: &str = "appendonly no\nmin-replicas-to-write 1\nmin-replicas-max-lag 1\nrepl-ping-replica-period 1";

pub fn start() -> Cluster {
    let module_args = format!("margin-ms 1000 retention-ms 400 claim-ms 300 failover-grace-ms {GRACE_MS}");
    let cluster = Cluster::start(SETTINGS, &module_args);
    cluster.wait_until_healthy();
    cluster
}
