//! A cluster's masters change, on request in three ways, or because one dies or stalls; slots move.

use super::ms;
use crate::history::Effect;
use crate::site::cluster::nodes::Move;
use crate::site::cluster::{Cluster, WAYS};
use crate::world::World;
use testkit::until;

/// The keys that all clients of a cluster use, in four slots.
fn key(number: usize) -> &'static str {
    ["lock:a", "lock:b", "lock:c", "lock:{several}:a"][number]
}

/// The first way is by agreement and loses nothing.
pub fn fail_over(world: &World, cluster: &Cluster, number: usize, way: usize) {
    let effects = [Effect::Stall, Effect::Restart, Effect::Change];
    world.with(if way == 0 { &effects[..2] } else { &effects }, || {
        cluster.fail_over(key(number), WAYS[way]);
        cluster.wait_until_healthy();
    });
}

pub fn kill(world: &World, cluster: &Cluster, number: usize) {
    world.with(&[Effect::Stall, Effect::Restart, Effect::Change], || {
        let old = cluster.master_of(key(number));
        let new = cluster.replica_of(old);
        old.signal("KILL");
        until("the replica takes over", || new.is_master().then_some(()));
        old.start_again();
        cluster.wait_until_healthy();
    });
}

pub fn stop(world: &World, cluster: &Cluster, number: usize, for_ms: u64) {
    world.with(&[Effect::Stall, Effect::Restart, Effect::Change], || {
        let node = cluster.master_of(key(number));
        node.signal("STOP");
        world.sleep(ms(for_ms));
        node.signal("CONT");
        world.sleep(ms(500));
        cluster.wait_until_healthy();
    });
}

/// A key's slot moves to another master, with its keys, while clients work with them. This loses nothing.
pub fn move_slot(world: &World, cluster: &Cluster, number: usize) {
    let key = key(number);
    world.with(&[Effect::Move], || {
        Move::all(cluster.master_of(key), cluster.other_master(key), key);
        cluster.wait_until_healthy();
    });
}
