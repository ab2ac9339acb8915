//! The operator's limits on waiting.

use super::clock::Clock;
use super::queue::MostPlaces;
use crate::lock::time::{Micros, MonotonicMicros};

/// The operator's settings for the queue.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many blocked clients may wait.
    pub waiters: usize,
    /// The number of keys for which attempts may wait without a connection.
    pub queued: usize,
    /// How long such an attempt has to claim a grant.
    pub claim: Micros,
    /// The longest result of a release, in bytes.
    pub result: usize,
    /// How long a place is reserved for a waiter that left.
    pub place: Micros,
    /// The longest time that the server sleeps between two ticks.
    pub tick: Micros,
}

impl Limits {
    /// The time until which a place reserved now is kept; `None` if the setting is 0.
    pub(super) fn reserved_until(self, clock: impl Clock) -> Option<MonotonicMicros> {
        (self.place > Micros(0)).then(|| clock.monotonic().after(self.place))
    }

    /// The limits on all reserved places together.
    pub(super) const fn most_places(self) -> MostPlaces {
        /// Bytes of their names.
        const BYTES: usize = 64 << 20;
        MostPlaces { keys: self.waiters.saturating_add(self.queued), bytes: BYTES }
    }
}
