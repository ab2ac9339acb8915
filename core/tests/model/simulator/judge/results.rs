//! Results: a holder releases its lock with one, and all attempts in the queue that want it leave with it.

use super::{Asked, Attempt, Court, Now};
use crate::fake::OwnedKeyName;

impl Attempt {
    /// Whether it leaves the queue when this key is released with a result.
    pub fn leaves_with_result(&self, place: &OwnedKeyName, is_full: bool) -> bool {
        let is_blocked = self.waits && self.asked.notify.is_none();
        self.asked.wants_result && self.asked.places[..] == [place.clone()] && (is_blocked || !is_full)
    }
}

impl Court {
    /// Called when a holder has released a key with a result. While memory is short, only blocked clients get it.
    pub fn shared(&mut self, place: &OwnedKeyName, value: u64, is_full: bool, now: Now) {
        for attempt in self.queue.iter_mut().filter(|attempt| attempt.leaves_with_result(place, is_full)) {
            if attempt.waits {
                attempt.result = Some(value);
            } else if let Some(id) = attempt.asked.id {
                // Its place may have ended.
                self.kept.insert((place.clone(), id), (value, now.monotonic + now.claim, false));
                (attempt.latest, attempt.until) = (u64::MAX, 0);
            }
        }
    }

    /// Called when a blocked client is sent a result.
    pub fn got_result(&mut self, conn: u64, value: u64) {
        let attempt = self.take_waiter(conn);
        assert_eq!(attempt.result, Some(value), "{attempt:?} is sent a result");
    }

    /// Called when an attempt without a connection has left with a result, which is kept for it.
    pub(super) fn keep_result(&mut self, asked: &Asked, value: u64, now: Now) {
        if let (Some(id), [place]) = (asked.id, &asked.places[..]) {
            self.kept.insert((place.clone(), id), (value, now.monotonic + now.claim, true));
        }
    }

    /// The result that is kept for an attempt, and whether that is certain.
    pub fn kept_result(&self, asked: &Asked, now: Now) -> Option<(u64, bool)> {
        let (Some(id), [place], true) = (asked.id, &asked.places[..], asked.wants_result) else { return None };
        self.kept_for(place, id, now)
    }

    pub(super) fn kept_for(&self, place: &OwnedKeyName, id: u64, now: Now) -> Option<(u64, bool)> {
        let (value, until, is_sure) = *self.kept.get(&(place.clone(), id))?;
        (now.monotonic < until).then_some((value, is_sure))
    }
}
