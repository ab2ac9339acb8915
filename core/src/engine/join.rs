//! Somebody who was refused begins to wait, or has a place reserved.

use super::counters::Counter;
use super::parts::{Clock, Engine, Limits};
use super::queue::{MostPlaces, Waiter};
use crate::lock::error::Error;
use crate::lock::record::Id;
use crate::lock::rules::{Share, State};
use crate::lock::time::{Micros, MonotonicMicros, UnixMicros};

/// Which of its keys a caller cannot have, and for how long.
#[derive(Clone, Copy, Debug, Default)]
pub struct Blocked {
    /// Which one.
    pub at: usize,
    /// When its lock comes free for the caller by itself, as far as is known.
    pub due: Option<UnixMicros>,
    /// When its last holder ends.
    pub last_end: Option<UnixMicros>,
}

/// When a lock that was refused comes free by itself, as far as its key tells; that of a foreign one when it expires.
pub fn due(
    lock: State<'_>,
    share: Share,
    expires_in_ms: impl FnOnce() -> Option<u64>,
    now: UnixMicros,
) -> Option<UnixMicros> {
    match lock {
        // A key is expired when the clock is past its expiry: one millisecond later.
        State::Foreign => expires_in_ms().map(|ms| now.after(Micros::from_ms(ms.saturating_add(1)))),
        // It is free already, but others come first.
        lock => Some(lock.free_at(share).unwrap_or(now)),
    }
}

impl<H> Engine<H> {
    /// Whether a caller may begin to wait: there is room for it, or it waits already and does not add to the waiters.
    ///
    /// # Errors
    /// [`Error::BusyLocks`], [`Error::BusyId`].
    pub fn may_wait(&self, db: i32, names: &[&[u8]], id: Option<Id>, limits: Limits) -> Result<(), Error> {
        let error = if self.queues.waiters() >= limits.waiters {
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
            // Others in the line may allow more holders: it may come free for them earlier.
            if let Some(due) = blocked.due {
                self.queues.set_due_by(line, due);
            }
        }
        if joined.resumed {
            self.count(Counter::PlacesResumed);
        }
        self.replaced(joined.earlier);
    }

    /// An attempt that was refused and does not wait has a place in line for a while.
    pub fn reserve(&mut self, db: i32, names: &[&[u8]], id: Id, limits: Limits, clock: impl Clock) {
        let earlier = match limits.reserved_until(clock) {
            Some(until) => self.queues.keep_place(db, names, id, until, limits.most_places()),
            // The newer call takes the place of an earlier one, and gives it up at once.
            None => self.queues.forget_all(db, names, id),
        };
        self.replaced(earlier);
    }
}

impl Limits {
    /// Until when a place is reserved from now on; not at all if the setting is 0.
    pub(super) fn reserved_until(self, clock: impl Clock) -> Option<MonotonicMicros> {
        (self.place > Micros(0)).then(|| clock.monotonic().after(self.place))
    }

    /// What reserved places may take in all.
    pub(super) const fn most_places(self) -> MostPlaces {
        /// Of names of several keys.
        const BYTES: usize = 64 << 20;
        MostPlaces { keys: self.waiters, bytes: BYTES }
    }
}
