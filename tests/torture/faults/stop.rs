//! SIGSTOP and SIGCONT of a master: it stands still, and runs on as if nothing had been. Every second time its machine
//! was suspended, for all that it can tell.

use crate::history::Effect;
use crate::plan::is_suspend;
use crate::site::group::Group;
use crate::world::World;

pub fn run(world: &World, group: &Group, for_ms: u64) -> bool {
    world.with(&[Effect::Stall], || {
        group.master().stop_while(is_suspend(for_ms), || world.sleep(super::ms(for_ms)));
        // Until it has read what came meanwhile.
        world.sleep(super::ms(50));
    });
    true
}
