//! Faults of a single server: the only one, or the master of a pair.

use super::ms;
use crate::history::Effect;
use crate::plan::{is_suspend, Setup};
use crate::site::group::Group;
use crate::site::{execute, field};
use crate::world::World;
use testkit::skipped;

/// kill -9 of the only server, and a restart with what is on disk. What is promised across it depends on that.
pub fn kill(world: &World, group: &Group, down_ms: u64) {
    let effects: &[Effect] = match group.setup() {
        // Everything that got a reply is on disk.
        Setup::Always | Setup::Script => &[Effect::Stall, Effect::Restart],
        // The last second may not be on disk.
        Setup::Everysec => &[Effect::Stall, Effect::Restart, Effect::Loss],
        // Nothing is on disk, but the grace keeps the server from granting before the earlier leases have ended.
        _ => &[Effect::Stall, Effect::Restart, Effect::Change, Effect::LossOfOthers],
    };
    world.with(effects, || {
        group.master().kill();
        world.sleep(ms(down_ms));
        group.master().start_again();
    });
}

/// SIGSTOP and SIGCONT: the server stalls, then continues as if nothing had happened. Every other time, its clocks show
/// a suspended machine.
pub fn stop(world: &World, group: &Group, for_ms: u64) {
    world.with(&[Effect::Stall], || {
        group.master().stop_while(is_suspend(for_ms), || world.sleep(ms(for_ms)));
        // Until it has read its backlog of input.
        world.sleep(ms(50));
    });
}

/// The network between clients and the server goes silent, and returns with all connections broken.
pub fn cut_off(world: &World, group: &Group, for_ms: u64) {
    world.with(&[Effect::Stall], || {
        group.master().clients.cut();
        world.sleep(ms(for_ms));
        group.master().clients.heal();
    });
}

const JUNK: &str = "for n = 1, 1000 do redis.call('SET', 'junk' .. n, string.rep('x', 300), 'PX', 3000) end";

/// Memory is short for a moment. Under `volatile-lru` locks stay, but what other clients hold with a native expiry may
/// be evicted; under `allkeys-lru` anything may.
pub fn evict(world: &World, group: &Group, all_keys: bool) {
    let port = group.master().port();
    let set = |name, value: &str| execute(port, &["CONFIG", "SET", name, value]);
    world.with(&[if all_keys { Effect::Loss } else { Effect::LossOfOthers }], || {
        if all_keys {
            set("maxmemory-policy", "allkeys-lru");
        }
        execute(port, &["EVAL", JUNK, "0"]);
        let used: Option<u64> = field(port, "memory", "used_memory").and_then(|used| used.parse().ok());
        if let Some(used) = used {
            set("maxmemory", &(used - 150_000).to_string());
            world.sleep(ms(300));
        }
        set("maxmemory", "0");
        if all_keys {
            set("maxmemory-policy", "noeviction");
        }
    });
}

/// Sets the server's wall clock ahead or back, and corrects it after a while. Returns whether that is possible.
pub fn set_clock(world: &World, group: &Group, by_ms: i64, for_ms: u64) -> bool {
    let set = |ahead| {
        let mut done = false;
        world.set_clock(ahead, || {
            done = group.set_clock(ahead);
            // Until even the clocks that are read only now and then have been read.
            std::thread::sleep(ms(20));
        });
        done
    };
    if !set(by_ms * 1_000) {
        skipped("clock steps", "there is no C compiler to build the library that sets the clock");
        return false;
    }
    world.sleep(ms(for_ms));
    set(0)
}
