//! A caller that was refused begins to wait, or gets a place reserved.

use crate::engine::counters::Counter;
use crate::engine::queue::{load, Place, Waiter};
use crate::engine::{Clock, Engine, KeyNames, Limits};
use crate::lock::error::Error;
use crate::lock::record::Id;
use crate::lock::request::Share;
use crate::lock::state::State;
use crate::lock::time::{Micros, UnixMicros};

/// The key that a caller cannot have, and for how long.
#[derive(Clone, Copy, Debug, Default)]
pub struct Blocked {
    /// The index of the key.
    pub at: usize,
    /// When its lock becomes free for the caller on its own, if known.
    pub due: Option<UnixMicros>,
    /// When its last holder expires.
    pub last_end: Option<UnixMicros>,
    /// The time since which it has been held, if known.
    pub held_since: Option<UnixMicros>,
}

/// When a refused lock becomes free on its own, judging by its key: when its holders expire or the key expires. Others
/// can make the key expire earlier.
pub fn due(
    lock: State<'_>,
    share: Share,
    expires_in_ms: impl FnOnce() -> Option<u64>,
    now: UnixMicros,
) -> Option<UnixMicros> {
    let ends = match lock {
        State::Foreign => None,
        // It is already free, but others are ahead in the queue.
        lock => Some(lock.free_at(share).unwrap_or(now)),
    };
    ends.into_iter().chain(gone_at(expires_in_ms(), now)).min()
}

/// When a key that expires in `expires_in_ms` is gone.
#[must_use]
pub fn gone_at(expires_in_ms: Option<u64>, now: UnixMicros) -> Option<UnixMicros> {
    // A key expires once the clock is past its expiry: one millisecond later.
    expires_in_ms.map(|ms| now.after(Micros::from_ms(ms.saturating_add(1))))
}

impl<H> Engine<H> {
    /// Whether a caller may begin to wait, blocked or notified on a channel: there is room, or it already waits and so
    /// adds no waiter.
    ///
    /// # Errors
    /// [`Error::BusyLocks`], [`Error::BusyQueue`], [`Error::BusyId`].
    pub fn may_wait(&self, keys: KeyNames<'_>, id: Option<Id>, has_channel: bool, limits: Limits) -> Result<(), Error> {
        let own = load(keys.names.iter().map(|name| name.len()).sum());
        let error = if has_channel && self.queues.queued().saturating_add(keys.names.len()) > limits.queued {
            Error::BusyQueue
        } else if !has_channel && self.queues.load().saturating_add(own) > limits.waiters {
            Error::BusyLocks
        } else if keys.names.len() > 1 && id.is_some_and(|id| !self.queues.takes_id(keys.db, id)) {
            Error::BusyId
        } else {
            return Ok(());
        };
        let waits_already = id.is_some_and(|id| self.queues.is_waiting_for_any(keys, id));
        if waits_already {
            Ok(())
        } else {
            Err(error)
        }
    }

    /// Called when a caller begins to wait.
    pub fn join(&mut self, keys: KeyNames<'_>, blocked: Blocked, waiter: Waiter<H>) {
        let joined = self.queues.join(keys, blocked.at, waiter);
        if let Some(queue) = joined.queue {
            self.queues.set_last_end(queue, blocked.last_end);
            self.queues.set_held(queue, blocked.held_since);
            // Others in the queue may allow more holders, so the lock may become free for them earlier.
            if let Some(due) = blocked.due {
                self.queues.set_due_by(queue, due);
            }
        }
        if joined.resumed {
            self.count(Counter::PlacesResumed);
        }
        self.replaced(joined.earlier);
    }

    /// Reserves a place for a while for an attempt that was refused and does not wait.
    pub fn reserve(&mut self, keys: KeyNames<'_>, id: Id, wants_result: bool, limits: Limits, clock: impl Clock) {
        let earlier = match limits.reserved_until(clock) {
            Some(until) => {
                let place = Place { id, until, since: None, wants_result };
                self.queues.keep_place(keys, place, limits.most_places())
            }
            // The newer command takes over an earlier command's place and gives it up at once.
            None => self.queues.forget_all(keys, id),
        };
        self.replaced(earlier);
    }

    /// Whether late copies of an attempt are refused because it was cancelled recently.
    #[must_use]
    pub fn is_barred(&self, keys: KeyNames<'_>, id: Option<Id>) -> bool {
        let is_cancelled = |key, id| self.claims.is_cancelled(key, id, self.queues.marks());
        id.is_some_and(|id| self.queues.is_barred(keys, id) || keys.iter().any(|key| is_cancelled(key, id)))
    }
}
