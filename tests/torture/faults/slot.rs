//! The slot of a key moves to another master, with its keys, while clients work with them. Nothing is lost by that.

use crate::site::cluster::nodes::Move;
use crate::site::cluster::{other_master, Cluster};

/// The keys that all work with in a cluster, of three slots.
pub fn key(number: usize) -> &'static str {
    ["lock:a", "lock:b", "lock:c"][number]
}

pub fn run(cluster: &Cluster, number: usize) -> bool {
    let key = key(number);
    let moving = Move::begin(cluster.master_of(key), other_master(cluster, key), key);
    moving.migrate();
    moving.end();
    cluster.until_well();
    true
}
