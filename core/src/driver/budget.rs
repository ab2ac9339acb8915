//! How much an event-loop iteration or a command does for waiters before the server gets its turn.

use crate::engine::Clock;
use crate::lock::time::{Micros, MonotonicMicros};

/// What may still be done before the server gets its turn. It is checked before each try and each message, so one try
/// may exceed it by the 1,024 keys of a command, and one message by the time that it takes.
#[derive(Debug)]
pub(super) struct Budget {
    /// How many keys may be read or written.
    keys: usize,
    /// For how long, from the first check on.
    time: Micros,
    until: Option<MonotonicMicros>,
}

impl Budget {
    /// The budget of one event-loop iteration, beside other work: about a millisecond, unless messages take longer. The
    /// server compares the channel of each message with all patterns that somebody listens to.
    pub(super) const ITERATION: Self = Self { keys: 2_048, time: Micros(2_000), until: None };
    /// The budget of a command for passing on what it released, beside its own work.
    pub(super) const COMMAND: Self = Self { keys: 256, time: Micros(1_000), until: None };

    pub(super) fn is_left(&mut self, clock: impl Clock) -> bool {
        let now = clock.monotonic();
        self.keys > 0 && now < *self.until.get_or_insert(now.after(self.time))
    }

    pub(super) fn spend(&mut self, keys: usize) {
        self.keys = self.keys.saturating_sub(keys);
    }
}
