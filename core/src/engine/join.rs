//! A caller that was refused begins to wait, or gets a place reserved.

use super::counters::Counter;
use super::parts::{Clock, Engine, Limits};
use super::queue::{MostPlaces, Waiter};
use crate::lock::error::Error;
use crate::lock::record::Id;
use crate::lock::rules::{Share, State};
use crate::lock::time::{Micros, MonotonicMicros, UnixMicros};

/// The key that a caller cannot have, and for how long.
#[derive(Clone, Copy, Debug, Default)]
pub struct Blocked {
    /// The index of the key.
    pub at: usize,
    /// When its lock comes free for the caller by itself, as far as is known.
    pub due: Option<UnixMicros>,
    /// When its last holder expires.
    pub last_end: Option<UnixMicros>,
    /// Since when it is held, if that is known.
    pub held_since: Option<UnixMicros>,
}

/// When a refused lock comes free by itself, as far as its key shows; a foreign value: when its key expires.
pub fn due(
    lock: State<'_>,
    share: Share,
    expires_in_ms: impl FnOnce() -> Option<u64>,
    now: UnixMicros,
) -> Option<UnixMicros> {
    match lock {
        // A key expires once the clock is past its expiry: one millisecond later.
        State::Foreign => expires_in_ms().map(|ms| now.after(Micros::from_ms(ms.saturating_add(1)))),
        // It is already free, but others wait ahead.
        lock => Some(lock.free_at(share).unwrap_or(now)),
    }
}

impl<H> Engine<H> {
    /// Whether a caller may begin to wait, blocked or told on a channel: there is room, or it already waits and adds no
    /// waiter.
    ///
    /// # Errors
    /// [`Error::BusyLocks`], [`Error::BusyQueue`], [`Error::BusyId`].
    pub fn may_wait(
        &self,
        db: i32,
        names: &[&[u8]],
        id: Option<Id>,
        is_told: bool,
        limits: Limits,
    ) -> Result<(), Error> {
        let error = if is_told && self.queues.queued().saturating_add(names.len()) > limits.queued {
            Error::BusyQueue
        } else if !is_told && self.queues.blocked() >= limits.waiters {
            Error::BusyLocks
        } else if names.len() > 1 && id.is_some_and(|id| !self.queues.takes_id(db, id)) {
            Error::BusyId
        } else {
            return Ok(());
        };
        let waits_already = id.is_some_and(|id| self.queues.is_waiting_for_any(db, names, id));
        if waits_already {
            Ok(())
        } else {
            Err(error)
        }
    }

    /// A caller begins to wait.
    pub fn join(&mut self, db: i32, names: &[&[u8]], blocked: Blocked, waiter: Waiter<H>) {
        let joined = self.queues.join(db, names, blocked.at, waiter);
        if let Some(line) = joined.line {
            self.queues.set_last_end(line, blocked.last_end);
            self.queues.set_held(line, blocked.held_since);
            // Others in the line may allow more holders, so it may come free for them earlier.
            if let Some(due) = blocked.due {
                self.queues.set_due_by(line, due);
            }
        }
        if joined.resumed {
            self.count(Counter::PlacesResumed);
        }
        self.replaced(joined.earlier);
    }

    /// Reserves a place for a while, for an attempt that was refused and does not wait.
    pub fn reserve(&mut self, db: i32, names: &[&[u8]], id: Id, limits: Limits, clock: impl Clock) {
        let earlier = match limits.reserved_until(clock) {
            Some(until) => self.queues.keep_place(db, names, id, until, limits.most_places()),
            // The newer call takes over the place of an earlier one and gives it up at once.
            None => self.queues.forget_all(db, names, id),
        };
        self.replaced(earlier);
    }

    /// Whether late copies of an attempt get nothing: it was cancelled a moment ago.
    #[must_use]
    pub fn is_barred(&self, db: i32, names: &[&[u8]], id: Option<Id>) -> bool {
        id.is_some_and(|id| self.queues.is_barred(db, names, id))
    }
}

impl Limits {
    /// Until when a place that is reserved now is kept; `None` if the setting is 0.
    pub(super) fn reserved_until(self, clock: impl Clock) -> Option<MonotonicMicros> {
        (self.place > Micros(0)).then(|| clock.monotonic().after(self.place))
    }

    /// The limits of all reserved places together.
    pub(super) const fn most_places(self) -> MostPlaces {
        /// Bytes of names in places for several keys.
        const BYTES: usize = 64 << 20;
        MostPlaces { keys: self.waiters.saturating_add(self.queued), bytes: BYTES }
    }
}
