//! The wall clock of the server is set, ahead or back, and set right after a while.

use crate::site::group::Group;
use crate::world::World;

pub fn run(world: &World, group: &Group, by_ms: i64, for_ms: u64) -> bool {
    let set = |ahead| {
        let mut done = false;
        world.set_clock(ahead, || {
            done = group.set_clock(ahead);
            // Until every clock that is read now and then only has been read.
            std::thread::sleep(super::ms(20));
        });
        done
    };
    if !set(by_ms * 1_000) {
        eprintln!("skipped: there is no C compiler to build what sets the clock");
        return false;
    }
    world.sleep(super::ms(for_ms));
    set(0)
}
