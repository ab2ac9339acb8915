//! The slot of a key moves to another master, with its keys, while clients work with them. Nothing is lost by that.

use crate::history::Effect;
use crate::site::cluster::nodes::Move;
use crate::site::cluster::{other_master, Cluster};
use crate::world::World;

/// The keys that all work with in a cluster, of four slots.
pub fn key(number: usize) -> &'static str {
    ["lock:a", "lock:b", "lock:c", "lock:{several}:a"][number]
}

pub fn run(world: &World, cluster: &Cluster, number: usize) -> bool {
    let key = key(number);
    world.with(&[Effect::Move], || {
        let moving = Move::begin(cluster.master_of(key), other_master(cluster, key), key);
        moving.migrate();
        moving.end();
        cluster.until_well();
    });
    true
}
