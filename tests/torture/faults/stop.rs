//! SIGSTOP and SIGCONT of a master: it stands still, and runs on as if nothing had been.

use crate::history::Effect;
use crate::site::group::Group;
use crate::world::World;

pub fn run(world: &World, group: &Group, for_ms: u64) -> bool {
    world.with(&[Effect::Stall], || {
        group.master().signal("STOP");
        world.sleep(super::ms(for_ms));
        group.master().signal("CONT");
        // Until it has read what came meanwhile.
        world.sleep(super::ms(50));
    });
    true
}
