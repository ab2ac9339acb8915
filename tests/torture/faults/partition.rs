//! The network between clients and the server falls silent, and comes back with all connections broken.

use crate::history::Effect;
use crate::site::group::Group;
use crate::world::World;

pub fn run(world: &World, group: &Group, for_ms: u64) -> bool {
    world.with(&[Effect::Stall], || {
        group.master().clients.cut();
        world.sleep(super::ms(for_ms));
        group.master().clients.heal();
    });
    true
}
