//! Memory is short for a moment. Under `volatile-lru` locks stay, what other clients hold with a native expiry may
//! go; under `allkeys-lru` anything may.

use crate::history::Effect;
use crate::site::group::Group;
use crate::site::{field, tell};
use crate::world::World;

const JUNK: &str = "for n = 1, 1000 do redis.call('SET', 'junk' .. n, string.rep('x', 300), 'PX', 3000) end";

pub fn run(world: &World, group: &Group, all_keys: bool) -> bool {
    let port = group.master().port();
    let set = |name, value: &str| tell(port, &["CONFIG", "SET", name, value]);
    world.with(&[if all_keys { Effect::Loss } else { Effect::LossOfOthers }], || {
        if all_keys {
            set("maxmemory-policy", "allkeys-lru");
        }
        tell(port, &["EVAL", JUNK, "0"]);
        let used: Option<u64> = field(port, "memory", "used_memory").and_then(|used| used.parse().ok());
        if let Some(used) = used {
            set("maxmemory", &(used - 150_000).to_string());
            world.sleep(super::ms(300));
        }
        set("maxmemory", "0");
        if all_keys {
            set("maxmemory-policy", "noeviction");
        }
    });
    true
}
