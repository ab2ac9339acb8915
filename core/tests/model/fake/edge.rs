//! What the driver needs from a server, provided by the fake server: one file per subject.

mod channels;
mod clients;
mod keys;
mod operator;
mod replicas;
mod time;

use super::{Mutant, Node, Settings};
use redis_lock_core::driver::Writer;
use redis_lock_core::engine::Clock;
use redis_lock_core::lock::time::{MonotonicMicros, UnixMicros};

/// The current clocks.
#[derive(Clone, Copy)]
pub struct FakeClock(pub(super) UnixMicros, pub(super) MonotonicMicros);

impl Clock for FakeClock {
    fn now(self) -> UnixMicros {
        self.0
    }

    fn monotonic(self) -> MonotonicMicros {
        self.1
    }
}

/// The server, for one entry.
pub struct FakeEdge<'w> {
    pub(super) node: &'w Node,
    pub(super) writer: Writer,
    pub(super) client: u64,
    pub(super) db: i32,
    /// Whether it is the timer, not another event.
    pub(super) is_timer: bool,
}

impl FakeEdge<'_> {
    fn settings(&self) -> Settings {
        self.node.world.borrow().settings
    }

    fn has(&self, mutant: Mutant) -> bool {
        self.settings().mutant == mutant
    }
}
