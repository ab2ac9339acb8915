//! CLIENT PAUSE, of writes or of everything: waits that begin or are handed the lock meanwhile come later.

use crate::history::Effect;
use crate::site::{tell, Site};
use crate::world::World;

pub fn run(world: &World, site: &Site, for_ms: u64, all: bool) -> bool {
    world.with(&[Effect::Stall], || {
        site.tell_all(&["CLIENT", "PAUSE", &for_ms.to_string(), if all { "ALL" } else { "WRITE" }]);
        world.sleep(super::ms(for_ms));
        // One that stood still may have begun later; one that is dead has none.
        for port in site.ports() {
            let _ = (0..3).find(|_| tell(port, &["CLIENT", "UNPAUSE"]).is_some());
        }
    });
    true
}
