//! Masters of a cluster change: asked to in three ways, or because one dies or stands still.

use super::slot::key;
use crate::history::Effect;
use crate::site::cluster::{replica_of, Cluster};
use crate::support::until;
use crate::world::World;
use std::time::{Duration, Instant};

/// The ways of CLUSTER FAILOVER; the first is by agreement and loses nothing.
const WAYS: [&[&str]; 3] = [&[], &["FORCE"], &["TAKEOVER"]];

/// After so long an attempt has failed.
const ASK_AGAIN: Duration = Duration::from_secs(6);

pub fn fail_over(world: &World, cluster: &Cluster, number: usize, way: usize) -> bool {
    let mode = if way == 0 {
        &[Effect::Stall, Effect::Restart][..]
    } else {
        &[Effect::Stall, Effect::Restart, Effect::Change]
    };
    world.with(mode, || {
        let old = cluster.master_of(key(number));
        let new = replica_of(cluster, old);
        let mut asked: Option<Instant> = None;
        until("the replica is master, the master a replica", || {
            // The other masters vote for a replica of the same master only once in a while: then it is asked again.
            if asked.is_none_or(|asked| asked.elapsed() > ASK_AGAIN) && !new.is_master() {
                asked = Some(Instant::now());
                new.conn().call(&[&["CLUSTER", "FAILOVER"], WAYS[way]].concat());
            }
            (new.is_master() && !old.is_master()).then_some(())
        });
        cluster.until_well();
    });
    true
}

pub fn kill(world: &World, cluster: &Cluster, number: usize) -> bool {
    world.with(&[Effect::Stall, Effect::Restart, Effect::Change], || {
        let old = cluster.master_of(key(number));
        let new = replica_of(cluster, old);
        old.signal("KILL");
        until("the replica takes over", || new.is_master().then_some(()));
        old.start_again();
        cluster.until_well();
    });
    true
}

pub fn stop(world: &World, cluster: &Cluster, number: usize, for_ms: u64) -> bool {
    world.with(&[Effect::Stall, Effect::Restart, Effect::Change], || {
        let node = cluster.master_of(key(number));
        node.signal("STOP");
        world.sleep(super::ms(for_ms));
        node.signal("CONT");
        world.sleep(super::ms(500));
        cluster.until_well();
    });
    true
}
