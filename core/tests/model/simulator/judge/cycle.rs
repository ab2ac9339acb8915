//! Whether a client that begins to wait would wait for itself. Every client that can go on does so until none can.

use super::{Asked, Attempt, Court, Now, Raw};
use crate::fake::OwnedKeyName;

/// A client that waits on its connection, or would wait, with its earliest and latest possible position.
struct Wait<'a> {
    asked: &'a Asked,
    earliest: u64,
    latest: u64,
}

/// Assumptions for what the judge does not know: that a grant ends with its connection, and that others came earlier.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Assume {
    Neither,
    Both,
}

/// Whether an attempt waits on its connection. By contract, attempts that are notified on a channel are not considered.
fn waits_on_connection(attempt: &Attempt) -> bool {
    attempt.waits && attempt.asked.notify.is_none()
}

impl Court {
    /// Whether a client would be waiting for itself if it waited; `None` if uncertain. `own`: its earlier places.
    pub fn closes_cycle(
        &self,
        asked: &Asked,
        own: &[Attempt],
        now: Now,
        key: impl Fn(&OwnedKeyName) -> Raw,
    ) -> Option<bool> {
        if !self.has_session(asked.conn) {
            return Some(false);
        }
        let mut waits: Vec<Wait<'_>> = (self.queue.iter().filter(|attempt| waits_on_connection(attempt)))
            .map(|attempt| Wait { asked: &attempt.asked, earliest: attempt.earliest, latest: attempt.latest })
            .collect();
        waits.push(Wait {
            asked,
            earliest: own.iter().map(|attempt| attempt.earliest).min().unwrap_or(u64::MAX),
            latest: own.iter().map(|attempt| attempt.latest).min().unwrap_or(u64::MAX),
        });
        let is_stuck = |gone: Option<u64>, assume| self.never_goes_on(&waits, gone, assume, now, &key);
        // The cycle is the caller's own only if the caller could go on once all of its locks are released.
        let (caller, nobody) = (Some(asked.conn), None);
        let may_close = is_stuck(nobody, Assume::Both) && !is_stuck(caller, Assume::Neither);
        let closes = is_stuck(nobody, Assume::Neither) && !is_stuck(caller, Assume::Both);
        (may_close == closes).then_some(closes)
    }

    /// Whether the last of these clients never goes on, although the others release and every lease without a session
    /// ends; `gone` holds nothing.
    fn never_goes_on(
        &self,
        waits: &[Wait<'_>],
        gone: Option<u64>,
        assume: Assume,
        now: Now,
        key: &impl Fn(&OwnedKeyName) -> Raw,
    ) -> bool {
        let Some(caller) = waits.last().map(|wait| wait.asked.conn) else { return false };
        let mut still: Vec<&Wait<'_>> = waits.iter().collect();
        while still.iter().any(|wait| wait.asked.conn == caller) {
            let stays = |conn: u64| Some(conn) != gone && still.iter().any(|wait| wait.asked.conn == conn);
            let can_have = |wait: &Wait<'_>, place: &OwnedKeyName| {
                let raw = key(place);
                let live = raw.holders().iter().filter(|holder| holder.timestamp > now.wall);
                let stay = live.filter(|holder| {
                    let session = self.sessions.get(&(holder.token, place.clone()));
                    session.is_some_and(|(conn, is_sure)| (*is_sure || assume == Assume::Both) && stays(*conn))
                });
                // An exclusive holder has to end, however many holders the caller allows.
                let is_one = matches!(raw, Raw::One(_));
                stay.count() < if is_one { 1 } else { self.fewest(wait, place, assume) }
            };
            let goes_on = |wait: &&Wait<'_>| wait.asked.places.iter().all(|place| can_have(wait, place));
            let Some(at) = still.iter().position(goes_on) else { return true };
            still.swap_remove(at);
        }
        false
    }

    /// How many holders a waiter and the waiters ahead of it allow, itself included.
    fn fewest(&self, wait: &Wait<'_>, place: &OwnedKeyName, assume: Assume) -> usize {
        let is_ahead = |attempt: &&Attempt| {
            let came_earlier = match assume {
                Assume::Neither => attempt.latest < wait.earliest,
                Assume::Both => attempt.earliest < wait.latest,
            };
            waits_on_connection(attempt) && came_earlier && attempt.asked.places == [place.clone()]
        };
        let ahead = self.queue.iter().filter(is_ahead).map(|attempt| attempt.asked.share.most());
        ahead.chain([wait.asked.share.most()]).min().unwrap_or(1)
    }
}
