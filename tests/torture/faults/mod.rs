//! The faults of a run: each does its damage, repairs it, and records which promises do not hold in the meantime.

mod commands;
mod failover;
mod node;
mod server;

use crate::plan::{Fault, Plan, Track};
use crate::site::Site;
use crate::world::World;
use std::time::Duration;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Carries out a track of the plan, in order.
pub fn carry_out(world: &World, site: &Site, plan: &Plan, track: Track) {
    for planned in plan.faults.iter().filter(|planned| planned.track == track) {
        let at = i64::try_from(planned.at_ms * 1_000).unwrap();
        world.sleep(Duration::from_micros(u64::try_from(at - world.now()).unwrap_or(0)));
        if world.is_over() {
            return;
        }
        if run(world, site, planned.fault) {
            world.count_fault(planned.fault.kind());
        }
    }
}

/// Whether it could be done.
fn run(world: &World, site: &Site, fault: Fault) -> bool {
    match (fault, site) {
        (Fault::Clock { by_ms, for_ms }, Site::Group(group)) => return server::set_clock(world, group, by_ms, for_ms),
        (Fault::Pause { for_ms, all }, _) => commands::pause(world, site, for_ms, all),
        (Fault::KillClients, _) => commands::kill_clients(site),
        (Fault::Config { which }, _) => commands::configure(world, site, which),
        (Fault::Kill { down_ms }, Site::Group(group)) => server::kill(world, group, down_ms),
        (Fault::Stop { for_ms }, Site::Group(group)) => server::stop(world, group, for_ms),
        (Fault::Partition { for_ms }, Site::Group(group)) => server::cut_off(world, group, for_ms),
        (Fault::Evict { all_keys }, Site::Group(group)) => server::evict(world, group, all_keys),
        (Fault::Failover, Site::Group(group)) => failover::by_agreement(world, group),
        (Fault::CutAndPromote { for_ms }, Site::Group(group)) => failover::while_cut_off(world, group, for_ms),
        (Fault::StopAndPromote { for_ms }, Site::Group(group)) => failover::while_stopped(world, group, for_ms),
        (Fault::KillAndPromote, Site::Group(group)) => failover::after_death(world, group),
        (Fault::NodeFailover { key, way }, Site::Cluster(cluster)) => node::fail_over(world, cluster, key, way),
        (Fault::KillNode { key }, Site::Cluster(cluster)) => node::kill(world, cluster, key),
        (Fault::StopNode { key, for_ms }, Site::Cluster(cluster)) => node::stop(world, cluster, key, for_ms),
        (Fault::MoveSlot { key }, Site::Cluster(cluster)) => node::move_slot(world, cluster, key),
        (fault, _) => panic!("this setup cannot have this fault: {fault:?}"),
    }
    true
}
