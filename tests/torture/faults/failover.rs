//! A pair's replica becomes the master: by agreement, which loses nothing; or by promotion while its master is cut off,
//! stalled or dead, which loses what was not replicated. The new master then has no replica and needs none to write,
//! so its grace alone keeps it from granting. The old master follows it, perhaps after the grace.

use super::ms;
use crate::history::Effect;
use crate::plan::is_suspend;
use crate::site::group::Group;
use crate::site::{execute, field};
use crate::world::World;
use std::sync::atomic::Ordering;
use testkit::until;

/// The indexes of the old master and the new master in the group.
fn old_and_new(group: &Group) -> (usize, usize) {
    let old = group.master.load(Ordering::SeqCst);
    (old, 1 - old)
}

pub fn by_agreement(world: &World, group: &Group) {
    let (old, new) = old_and_new(group);
    world.with(&[Effect::Stall, Effect::Restart], || {
        let (from, to) = (group.members[old].port(), group.members[new].port());
        until("the replica has become master by agreement", || {
            execute(from, &["FAILOVER", "TO", "127.0.0.1", &to.to_string(), "TIMEOUT", "3000"]);
            (0..200).find_map(|_| {
                world.sleep(ms(10));
                field(to, "replication", "role").filter(|role| role == "master")
            })
        });
        settle(world, group, old, new);
    });
}

pub fn while_cut_off(world: &World, group: &Group, for_ms: u64) {
    let (old, new) = old_and_new(group);
    world.with(&[Effect::Change, Effect::Restart], || {
        group.members[old].replica.cut();
        promote(world, group, new);
        world.sleep(ms(for_ms));
        settle(world, group, old, new);
    });
}

pub fn while_stopped(world: &World, group: &Group, for_ms: u64) {
    let (old, new) = old_and_new(group);
    world.with(&[Effect::Change, Effect::Restart], || {
        world.with(&[Effect::Stall], || {
            group.members[old].stop_while(is_suspend(for_ms), || {
                // Nothing informs it of its demotion.
                group.members[old].replica.cut();
                promote(world, group, new);
                world.sleep(ms(for_ms));
            });
            world.sleep(ms(50));
        });
        world.sleep(ms(1_500));
        settle(world, group, old, new);
    });
}

pub fn after_death(world: &World, group: &Group) {
    let (old, new) = old_and_new(group);
    world.with(&[Effect::Change, Effect::Restart], || {
        world.with(&[Effect::Stall], || {
            group.members[old].kill();
            promote(world, group, new);
        });
        group.members[old].start_again();
        settle(world, group, old, new);
    });
}

fn promote(world: &World, group: &Group, new: usize) {
    let port = group.members[new].port();
    until("the replica is promoted", || {
        execute(port, &["CONFIG", "SET", "min-replicas-to-write", "0"])?;
        execute(port, &["REPLICAOF", "NO", "ONE"])?;
        field(port, "replication", "role").filter(|role| role == "master")
    });
    world.announce(vec![group.members[new].clients.port(), group.members[1 - new].clients.port()]);
}

/// Makes the old master follow the new one, and waits until the group is healthy again.
fn settle(world: &World, group: &Group, old: usize, new: usize) {
    group.follow(old, new);
    group.members[old].replica.heal();
    world.announce(group.client_ports());
    group.wait_until_healthy();
    let port = group.members[new].port();
    until("the new master requires its replica again", || {
        execute(port, &["CONFIG", "SET", "min-replicas-to-write", "1"])
    });
}
