//! Attempts that wait without a connection: when they are granted a lock, when they are passed over, what they claim,
//! and what is published.

use super::queue::{Attempt, GRAIN};
use super::{Asked, Cause, Court, Found, Lost, Now, Raw, Reported, Writes};
use crate::fake::OwnedKeyName;

/// An unclaimed grant.
#[derive(Clone, Debug)]
pub struct Unclaimed {
    pub token: u64,
    pub attempt: Attempt,
    /// The timestamp in its value.
    pub timestamp: u64,
    /// The deadline for claiming it.
    pub deadline: u64,
    /// What each key held before the grant, if known.
    pub(super) before: Vec<(OwnedKeyName, Option<Raw>)>,
    /// When it was granted.
    pub(super) wall: u64,
    /// Whether its message was published.
    is_announced: bool,
    /// Whether a command that claims it got an error, which shows that its process is there.
    was_refused: bool,
    /// Whether its slot was lost, so that it ends at its timestamp.
    is_moved: bool,
}

/// Whether an attempt can be notified right now.
#[derive(Clone, Copy, Debug)]
pub struct Ears {
    /// Whether its channel has a subscriber.
    pub is_subscribed: bool,
    /// Whether it is notified later, because a transaction is running.
    pub later: bool,
    pub is_out_of_memory: bool,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum News {
    Granted,
    TimedOut,
    Cancelled,
    Unblocked,
    Result,
}

fn is_same(one: &[OwnedKeyName], other: &[OwnedKeyName]) -> bool {
    one.len() == other.len() && one.iter().all(|place| other.contains(place))
}

impl Unclaimed {
    fn is_of(&self, asked: &Asked) -> bool {
        self.attempt.asked.id == asked.id && self.attempt.shares_key_with(&asked.places)
    }

    /// Called when others changed a key.
    pub(super) fn forget_before(&mut self, place: &OwnedKeyName) {
        self.before.iter_mut().filter(|(of, _)| of == place).for_each(|(_, before)| *before = None);
    }

    pub(super) fn is_still_in(&self, key: &Raw) -> bool {
        key.holder(self.token).is_some_and(|holder| (holder.timestamp, holder.id) == (self.timestamp, None))
    }
}

impl Court {
    /// Whether nobody holds a key with this token yet.
    pub fn is_unclaimed(&self, token: u64, place: &OwnedKeyName) -> bool {
        self.unclaimed
            .iter()
            .any(|unclaimed| unclaimed.token == token && unclaimed.attempt.asked.places.contains(place))
    }

    /// Whether the lock's expired grant can still be claimed, so that nobody else gets the lock before the attempt has
    /// had time to claim it.
    pub fn awaits_claim(&self, place: &OwnedKeyName, key: &Raw) -> bool {
        matches!(key, Raw::One(holder) if self.is_unclaimed(holder.token, place))
    }

    /// The unclaimed grant of exactly the keys that a command of its attempt names, and whether the command has to
    /// claim it.
    pub fn claim_of(&self, asked: &Asked, keys: &[Raw], now: Now) -> Option<(Unclaimed, bool)> {
        let own =
            self.unclaimed.iter().find(|own| own.is_of(asked) && is_same(&own.attempt.asked.places, &asked.places));
        let own = own?.clone();
        let is_there = keys.iter().all(|key| own.is_still_in(key));
        let is_in_time = now.monotonic < own.deadline;
        Some((own, is_there && is_in_time))
    }

    /// The unclaimed grants of a command's attempt that are not for exactly its keys.
    pub fn claims_of_other_keys(&self, asked: &Asked) -> Vec<u64> {
        let own = self.unclaimed.iter().filter(|own| own.is_of(asked));
        own.filter(|own| !is_same(&own.attempt.asked.places, &asked.places)).map(|own| own.token).collect()
    }

    /// Called when a command that would claim a grant got an error.
    pub fn claim_is_refused(&mut self, token: u64) {
        let own = self.unclaimed.iter_mut().filter(|own| own.token == token);
        own.for_each(|own| own.was_refused = true);
    }

    /// The places that an attempt gets back if its newer command does not claim its grants.
    pub fn places_of_claims(&self, asked: &Asked, now: Now) -> Vec<Attempt> {
        let own = self.unclaimed.iter().filter(|own| own.is_of(asked)).map(|own| {
            let is_sure = is_same(&own.attempt.asked.places, &asked.places) && now.place > 0 && now.keeps_places;
            let latest = if is_sure { own.attempt.latest } else { u64::MAX };
            Attempt { latest, ..own.attempt.clone() }
        });
        own.collect()
    }

    /// Called when a grant was written without a reply: it belongs to an attempt without a connection, which is
    /// notified.
    pub fn notified(&mut self, writes: &mut Writes, token: u64, id: u64, ears: impl Fn(u8) -> Ears, now: Now) -> Asked {
        let found: Vec<Found> = writes.found.extract_if(.., |found| found.token == token).collect();
        let places: Vec<OwnedKeyName> = found.iter().map(|found| found.place.clone()).collect();
        let is_it = |attempt: &Attempt| {
            attempt.waits
                && attempt.asked.notify.is_some()
                && attempt.asked.id == Some(id)
                && is_same(&attempt.asked.places, &places)
        };
        let at = self.queue.iter().position(is_it);
        let attempt =
            self.queue.swap_remove(at.unwrap_or_else(|| panic!("nobody waits for {token} of {id} in {places:?}")));
        let channel = attempt.asked.notify.unwrap();
        let Ears { is_subscribed, later, is_out_of_memory } = ears(channel);
        assert!(!is_out_of_memory, "{attempt:?} is granted {token} while out of memory");
        let is_recent = now.monotonic - attempt.sent < now.claim;
        assert!(
            is_subscribed || is_recent || later,
            "{attempt:?} is granted {token} at {now:?}, but its channel has no subscriber"
        );
        assert_ne!(
            self.skipped.get(&channel),
            Some(&true),
            "{attempt:?} is granted {token}, but its channel is skipped"
        );
        let beyond = now.longest_lease.filter(|longest| attempt.asked.lease > *longest);
        assert_eq!(beyond, None, "a lease beyond the grace is granted: {attempt:?}");
        let lease = now.longest_lease.unwrap_or(u64::MAX).min(now.claim);
        let timestamp = now.wall + lease + now.margin;
        let mut before = Vec::new();
        for Found { place, before: old, after, passed_on, succeeds, .. } in found {
            assert!(
                old.admits(attempt.asked.share.most(), now.wall),
                "two hold {place:?}: {attempt:?} got {token} at {now:?} beside {old:?}"
            );
            assert_eq!(
                matches!(after, Raw::One(_)),
                attempt.asked.share == super::Share::Alone,
                "{attempt:?} made {after:?}"
            );
            let own = after.holder(token).unwrap();
            assert_eq!(own.timestamp, timestamp, "the timestamp of the unclaimed grant of {attempt:?} at {now:?}");
            assert_eq!(own.id, None, "the ID of {attempt:?} is written before its claim");
            let known = old.holders().iter().map(|holder| holder.token).max().unwrap_or(0);
            assert!(token > known, "the tokens of {place:?} do not grow: {known}, {token}");
            before.push((place, if passed_on { succeeds } else { Some(old) }));
        }
        self.check_overtaking(&attempt.asked, attempt.earliest, token);
        self.check_next_token(token, now);
        self.hand_offs += 1;
        let (asked, deadline) = (attempt.asked.clone(), now.monotonic + lease);
        self.unclaimed.push(Unclaimed {
            token,
            attempt,
            timestamp,
            deadline,
            before,
            wall: now.wall,
            is_announced: false,
            was_refused: false,
            is_moved: false,
        });
        asked
    }

    /// Called when an attempt gets its grant through a command that claims it.
    pub fn claimed(&mut self, token: u64, asked: &Asked, reported: &Reported, keys: &[Raw], now: Now) -> bool {
        let Some(at) = self.unclaimed.iter().position(|own| own.token == token && own.is_of(asked)) else {
            return false;
        };
        let own = self.unclaimed.swap_remove(at);
        assert!(is_same(&own.attempt.asked.places, &asked.places), "{asked:?} claims part of {own:?}");
        let late = self.all_excused.max(own.deadline + self.grain(now));
        assert!(now.monotonic <= late, "{asked:?} claims {own:?} late, at {now:?}");
        assert!(keys.iter().all(|key| own.is_still_in(key)), "{asked:?} claims {own:?} in {keys:?}");
        let beyond = now.longest_lease.filter(|longest| asked.lease > *longest);
        assert_eq!(beyond, None, "a lease beyond the grace is granted: {asked:?}");
        for (place, predecessor) in asked.places.iter().zip(&reported.before) {
            let before = own.known_before(place);
            // Several keys are reported in the order of the first request.
            if asked.places != own.attempt.asked.places {
                continue;
            }
            if let Some(before) = before.filter(|_| self.clock_set.is_none()) {
                before.check_predecessor(&own.attempt.asked, *predecessor, own.wall);
            }
            self.predecessors.insert((token, place.clone()), (*predecessor, now.monotonic));
        }
        self.record_newest(asked, token);
        self.granted_here.insert(token);
        self.bind(asked, token);
        self.queue.retain(|attempt| !(attempt.asked.id == asked.id && attempt.shares_key_with(&asked.places)));
        // The channel's process is alive. So is that of the channel that the command names; whether that is enough is
        // left open.
        if let Some(channel) = own.attempt.asked.notify {
            self.skipped.remove(&channel);
        }
        self.may_not_be_skipped(asked.notify);
        self.grants += 1;
        true
    }

    /// Called when a grant can no longer be claimed: there has to be a reason.
    pub fn given_up(&mut self, token: u64, cause: &Cause, ears: impl Fn(u8) -> Ears, now: Now) {
        let at = self.unclaimed.iter().position(|own| own.token == token).unwrap();
        let own = self.unclaimed.swap_remove(at);
        let Unclaimed { attempt, timestamp, deadline, is_announced, was_refused, is_moved, .. } = own.clone();
        let Asked { id, places, notify, session, conn, .. } = attempt.asked.clone();
        let channel = notify.unwrap();
        let is_over = now.monotonic >= deadline;
        let is_released = cause.ended.iter().any(|(own, _)| *own == token);
        let is_at = cause.at.as_ref().is_some_and(|place| places.contains(place));
        let is_cancelled = is_at && (cause.cancels == id || cause.cancels_channel == Some(channel));
        let is_recent = now.monotonic - attempt.sent < now.claim;
        let has_no_subscriber = is_announced || !(ears(channel).is_subscribed || is_recent);
        let has_left = session && self.ended_conns.contains(&conn);
        assert!(
            is_over || is_released || is_cancelled || has_left || cause.asks == id || has_no_subscriber,
            "{attempt:?} can no longer claim {token} at {now:?}: {cause:?}"
        );
        self.lost.extend(places.iter().map(|place| Lost {
            token,
            place: place.clone(),
            timestamp,
            deadline,
            id: None,
            before: own.known_before(place),
            has_company: own.has_company(),
            is_unclaimed: !is_moved,
            passes_on: !is_moved,
            was_unclaimed: true,
        }));
        if is_cancelled || is_released {
            self.expect_news(channel, News::Cancelled, id);
        } else {
            if is_over && self.queue.iter().any(|other| other.waits && other.asked.notify == Some(channel)) {
                // Its process may be alive if it was never notified, or could not claim the grant.
                let could_claim = is_announced && !was_refused && now.monotonic >= self.no_memory_until;
                // It may also be alive if its claim may have waited for a stalled server.
                let was_read = deadline > self.resumed;
                let is_sure = could_claim && was_read && !has_left && !cause.is_a_command();
                let known = self.skipped.entry(channel).or_default();
                *known |= is_sure;
            }
            let mut attempt = attempt;
            if self.own_attempts(&attempt.asked).next().is_some() {
                attempt.latest = u64::MAX;
            }
            self.keep_place(&mut attempt, now);
        }
    }

    /// Called when an attempt without a connection no longer waits, and was granted nothing: there has to be a reason.
    pub fn attempt_left(&mut self, at: usize, cause: &Cause, ears: impl Fn(u8) -> Ears, is_slot_lost: bool, now: Now) {
        let mut attempt = self.queue.swap_remove(at);
        let Asked { id, places, notify, session, conn, lease, .. } = attempt.asked.clone();
        let channel = notify.unwrap();
        if let Some(value) = attempt.result {
            self.expect_news(channel, News::Result, id);
            self.keep_result(&attempt.asked, value, now);
            return;
        }
        let is_at = cause.at.as_ref().is_some_and(|place| places.contains(place));
        if is_at && (cause.cancels == id || cause.cancels_channel == Some(channel)) {
            self.expect_news(channel, News::Cancelled, id);
        } else if cause.asks == id {
            self.expect_news(channel, News::Unblocked, id);
        } else if is_slot_lost || now.longest_lease.is_some_and(|longest| lease > longest) {
            self.expect_news(channel, News::Unblocked, id);
            let is_over = now.monotonic >= attempt.until;
            if is_over {
                self.expect_news(channel, News::TimedOut, id);
            }
            if is_over || (session && self.ended_conns.contains(&conn)) {
                // It is not known which of the two came first, so it may have its place.
                self.may_keep_place(attempt, now);
            }
        } else if session && self.ended_conns.contains(&conn) {
            self.keep_place(&mut attempt, now);
        } else if now.monotonic >= attempt.until {
            self.expect_news(channel, News::TimedOut, id);
            self.keep_place(&mut attempt, now);
        } else {
            let is_recent = now.monotonic - attempt.sent < now.claim;
            let is_skipped = self.skipped.contains_key(&channel);
            let can_be_notified = (ears(channel).is_subscribed || is_recent) && !is_skipped;
            assert!(!can_be_notified, "{attempt:?} was passed over at {now:?}, but can be notified");
            self.passed_over += 1;
            self.keep_place(&mut attempt, now);
        }
    }

    /// Called when a command names a channel and is not in the queue: whether its process counts as alive is left open.
    pub fn may_not_be_skipped(&mut self, channel: Option<u8>) {
        if let Some(is_sure) = channel.and_then(|channel| self.skipped.get_mut(&channel)) {
            *is_sure = false;
        }
    }

    /// Called when a key's slot was lost: its grants end at their timestamps.
    pub(super) fn claims_are_moved(&mut self, place: &OwnedKeyName) {
        let own = self.unclaimed.iter_mut().filter(|own| own.attempt.asked.places.contains(place));
        own.for_each(|own| own.is_moved = true);
        self.lost.iter_mut().filter(|lost| lost.place == *place).for_each(Lost::stays);
    }

    fn expect_news(&mut self, channel: u8, news: News, id: Option<u64>) {
        *self.news.entry((channel, news, id.unwrap())).or_default() += 1;
    }

    /// Called when a newer command may take the place of an attempt without a connection.
    pub fn may_be_replaced(&mut self, attempt: &Attempt) {
        if let Some(channel) = attempt.asked.notify.filter(|_| attempt.waits) {
            self.expect_news(channel, News::Unblocked, attempt.asked.id);
        }
    }

    /// Called when a message is published.
    pub fn published(&mut self, channel: u8, news: News, id: u64, place: &OwnedKeyName) {
        if news == News::Granted {
            let own = self.unclaimed.iter_mut().filter(|own| own.attempt.asked.id == Some(id));
            own.filter(|own| own.attempt.asked.places.first() == Some(place)).for_each(|own| own.is_announced = true);
            return;
        }
        let left = self.news.get_mut(&(channel, news, id)).filter(|left| **left > 0);
        let left = left.unwrap_or_else(|| panic!("{id} gets {news:?} of {place:?}, which did not happen"));
        *left -= 1;
    }

    /// Checks that unclaimed grants are announced, end in time, and are passed on.
    pub(super) fn check_unclaimed(
        &mut self,
        now: Now,
        timer: Option<u64>,
        key: &impl Fn(&OwnedKeyName, u64) -> Option<Raw>,
    ) {
        let is_soon = timer.is_some_and(|timer| timer <= 1);
        for own in &self.unclaimed {
            assert!(own.is_announced || is_soon, "nobody is notified of {own:?} at {now:?}");
            let late = own.deadline + self.grain(now) + GRAIN;
            assert!(now.monotonic <= late || is_soon, "{own:?} does not end, at {now:?}");
        }
        for lost in self.lost.iter_mut().filter(|lost| lost.passes_on) {
            // A grant that expired because the clock was set is a predecessor like any other, and may be restored as
            // one.
            let is_predecessor = self.clock_set.is_some_and(|at| at + now.claim >= lost.deadline);
            let is_there = key(&lost.place, now.wall).is_some_and(|key| lost.is_still_in(&key));
            assert!(
                !is_there || is_predecessor || is_soon,
                "{lost:?} reached nobody, but is not passed on at {now:?}: timer in {timer:?} ms"
            );
            // Its value has changed: the server has forgotten it, even if an EXTEND brings the same value back.
            lost.passes_on = is_there || is_soon;
        }
        for attempt in self.queue.iter().filter(|attempt| attempt.waits && attempt.asked.notify.is_some()) {
            let has_left = attempt.asked.session && self.ended_conns.contains(&attempt.asked.conn);
            assert!(!has_left, "{attempt:?} keeps waiting, but its connection has ended");
        }
        for own in &self.unclaimed {
            let has_left = own.attempt.asked.session && self.ended_conns.contains(&own.attempt.asked.conn);
            assert!(!has_left, "{own:?} can be claimed, but its connection has ended");
        }
    }
}
