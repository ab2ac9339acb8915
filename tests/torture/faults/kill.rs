//! kill -9 of the only server, and a new start with what it has on disk. What is promised across it depends on that.

use crate::history::Effect;
use crate::plan::Setup;
use crate::site::group::Group;
use crate::world::World;

pub fn run(world: &World, group: &Group, down_ms: u64) -> bool {
    let effects: &[Effect] = match group.setup() {
        // What was replied to is on the disk.
        Setup::Always => &[Effect::Stall, Effect::Restart],
        // The last second may not be.
        Setup::Everysec => &[Effect::Stall, Effect::Restart, Effect::Loss],
        // Nothing is, but the grace lets no lease be granted before those of before are over.
        _ => &[Effect::Stall, Effect::Restart, Effect::Change, Effect::LossOfOthers],
    };
    world.with(effects, || {
        group.master().kill();
        world.sleep(super::ms(down_ms));
        group.master().start_again();
    });
    true
}
