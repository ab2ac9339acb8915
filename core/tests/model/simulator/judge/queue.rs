//! The order of waiters, the ended waits, and the waiters that should have been served by now.

use super::{Asked, Court, Lost, Now, Raw, Reported, Writes};
use crate::fake::OwnedKeyName;

/// Timers fire at whole milliseconds.
pub(super) const GRAIN: u64 = 1_000;
/// A timer that was set while the clock was briefly wrong, or from a drifting clock, may be this late before it is set
/// again.
const LATE: u64 = 250_000;
/// How long after the clock was set a timer may be that late.
const OFF: u64 = 15_000_000;
/// A refused write is retried after this time.
pub(super) const RETRY: u64 = 20_000;

/// An attempt that waits or has a place.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub asked: Asked,
    /// When its wait or place ends.
    pub until: u64,
    /// Its earliest possible position.
    pub earliest: u64,
    /// Its latest possible position.
    pub latest: u64,
    pub waits: bool,
    /// When it was last sent.
    pub sent: u64,
    /// The timestamps of its grant.
    pub written: Vec<u64>,
    /// Whether it was cancelled after it was granted its locks.
    pub is_cancelled: bool,
    /// The result with which it leaves the queue.
    pub result: Option<u64>,
}

/// How a wait ended without the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Nil.
    NotGranted,
    /// A newer command took the place.
    Replaced,
    /// The server is a replica now.
    Demoted,
    SlotLost,
    BeyondGrace,
}

impl Attempt {
    pub fn shares_key_with(&self, places: &[OwnedKeyName]) -> bool {
        self.asked.places.iter().any(|place| places.contains(place))
    }

    fn is_blocked_on(&self, conn: u64) -> bool {
        self.waits && self.asked.notify.is_none() && self.asked.conn == conn
    }

    fn has_same_keys_as(&self, asked: &Asked) -> bool {
        let own = &self.asked.places;
        own.len() == asked.places.len() && self.asked.places.iter().all(|place| asked.places.contains(place))
    }
}

impl Court {
    /// The places of an attempt.
    pub(super) fn own_attempts<'s>(&'s self, asked: &'s Asked) -> impl Iterator<Item = &'s Attempt> {
        let is_own = |attempt: &&Attempt| attempt.asked.id.is_some() && attempt.asked.id == asked.id;
        self.queue.iter().filter(is_own).filter(|attempt| attempt.shares_key_with(&asked.places))
    }

    /// Called when a client was refused: it waits, or has a place if it has an ID. `own`: its place before the command.
    pub fn arrives(&mut self, asked: Asked, own: &[Attempt], waits: bool, now: Now) {
        self.arrivals += 1;
        let arrival = self.arrivals;
        let (id, places) = (asked.id, asked.places.clone());
        self.queue.retain(|attempt| !(id.is_some() && attempt.asked.id == id && attempt.shares_key_with(&places)));
        let earliest = own.iter().map(|attempt| attempt.earliest).min().unwrap_or(arrival);
        let latest = own.iter().map(|attempt| attempt.latest.min(arrival)).min().unwrap_or(arrival);
        let until = now.monotonic + if waits { asked.wait } else { now.place };
        if waits || (id.is_some() && now.place > 0) {
            if let Some(channel) = asked.notify.filter(|_| waits) {
                self.skipped.remove(&channel);
            }
            let (sent, written) = (now.monotonic, Vec::new());
            self.queue.push(Attempt {
                asked,
                until,
                earliest,
                latest,
                waits,
                sent,
                written,
                is_cancelled: false,
                result: None,
            });
        }
    }

    /// Called when an attempt does not wait: it has a place from now on, or was cancelled and has no effect.
    pub fn arrives_unless_barred(&mut self, asked: Asked, now: Now) {
        let is_own = |attempt: &&mut Attempt| attempt.asked.id == asked.id && attempt.shares_key_with(&asked.places);
        let places = self.queue.iter_mut().filter(|attempt| !attempt.waits).filter(is_own);
        places.for_each(|attempt| attempt.latest = u64::MAX);
        let until = now.monotonic + now.place;
        let (sent, written) = (now.monotonic, Vec::new());
        self.queue.push(Attempt {
            asked,
            until,
            earliest: 0,
            latest: u64::MAX,
            waits: false,
            sent,
            written,
            is_cancelled: false,
            result: None,
        });
    }

    /// An attempt's places; a place that has ended may still be there.
    pub fn attempts_of(&self, asked: &Asked, now: Now) -> Vec<Attempt> {
        let mut own: Vec<Attempt> = self.own_attempts(asked).cloned().collect();
        let is_one = own.len() == 1;
        let is_kept = |attempt: &Attempt| {
            is_one
                && attempt.has_same_keys_as(asked)
                && (attempt.waits || (now.keeps_places && now.monotonic < attempt.until))
        };
        for attempt in own.iter_mut().filter(|attempt| !is_kept(attempt)) {
            attempt.latest = u64::MAX;
        }
        own
    }

    /// The client that waits on a connection.
    pub fn waiter(&self, conn: u64) -> Option<&Attempt> {
        self.queue.iter().find(|attempt| attempt.is_blocked_on(conn))
    }

    pub(super) fn take_waiter(&mut self, conn: u64) -> Attempt {
        let at = self.queue.iter().position(|attempt| attempt.is_blocked_on(conn));
        self.queue.swap_remove(at.unwrap_or_else(|| panic!("{conn} is answered, but did not wait")))
    }

    /// Called when a grant is sent to a waiter.
    pub fn granted_to_waiter(
        &mut self,
        writes: &mut Writes,
        conn: u64,
        reported: &Reported,
        written: Vec<u64>,
        now: Now,
    ) -> Asked {
        let token = reported.token;
        let mut attempt = self.take_waiter(conn);
        attempt.written = written;
        self.hand_offs += 1;
        if self.reported(writes, &attempt.asked, reported, now) {
            self.check_overtaking(&attempt.asked, attempt.earliest, token);
        } else {
            assert!(attempt.asked.id.is_some(), "{attempt:?} is sent {token}, which is not new");
        }
        let asked = attempt.asked.clone();
        self.on_the_way.insert((token, conn), attempt);
        asked
    }

    /// Checks that nobody who certainly came earlier waits for just one of the keys.
    pub(super) fn check_overtaking(&self, asked: &Asked, earliest: u64, token: u64) {
        let ahead = self.queue.iter().find(|attempt| {
            let wants_it_alone = attempt.asked.places.len() == 1 && attempt.shares_key_with(&asked.places);
            let is_own = attempt.asked.id.is_some() && attempt.asked.id == asked.id;
            let can_claim = attempt.asked.notify.is_none() || !self.is_full();
            attempt.waits && wants_it_alone && !is_own && can_claim && attempt.latest < earliest
        });
        if let Some(ahead) = ahead {
            panic!("{asked:?} got {token} before {ahead:?}");
        }
    }

    /// Called when a wait ended without the lock.
    pub fn wait_ended(&mut self, conn: u64, how: Waits, cause: &super::Cause, now: Now) {
        let mut attempt = self.take_waiter(conn);
        assert_eq!(attempt.result, None, "{attempt:?} gets no result, but {how:?}");
        let is_cancelled = cause.cancels.is_some() && cause.cancels == attempt.asked.id;
        match how {
            Waits::NotGranted if !is_cancelled => {
                assert!(now.monotonic >= attempt.until, "the wait of {attempt:?} ended early, at {now:?}");
                self.keep_place(&mut attempt, now);
            }
            Waits::Replaced => {
                assert!(
                    attempt.asked.id.is_some() && cause.asks == attempt.asked.id,
                    "{attempt:?} was replaced by {cause:?}"
                );
            }
            Waits::BeyondGrace => {
                assert!(
                    now.longest_lease.is_some_and(|longest| attempt.asked.lease > longest),
                    "{attempt:?} fits the grace"
                );
            }
            Waits::NotGranted | Waits::Demoted | Waits::SlotLost => {}
        }
    }

    pub(super) fn keep_place(&mut self, attempt: &mut Attempt, now: Now) {
        if attempt.asked.id.is_some() && now.place > 0 {
            attempt.waits = false;
            attempt.until = now.monotonic + now.place;
            self.queue.push(attempt.clone());
        }
    }

    /// Notes that an attempt may or may not have its place.
    pub(super) fn may_keep_place(&mut self, mut attempt: Attempt, now: Now) {
        if attempt.asked.id.is_some() && now.place > 0 {
            (attempt.waits, attempt.until) = (false, 0);
            self.queue.push(attempt);
        }
    }

    /// Called when a key's slot was lost: places in its queue may be gone, and so may sessions.
    pub fn slot_lost(&mut self, place: &OwnedKeyName) {
        self.due_sessions.retain(|(_, own), _| own != place);
        for attempt in self.queue.iter_mut().filter(|attempt| !attempt.waits && attempt.asked.places.contains(place)) {
            attempt.until = 0;
        }
        self.claims_are_moved(place);
        let sessions = self.sessions.iter_mut().filter(|((_, own), _)| own == place);
        sessions.for_each(|(_, (_, is_sure))| *is_sure = false);
        // Bars may be gone too.
        self.bars.iter_mut().filter(|((own, _), _)| own == place).for_each(|(_, (_, is_sure))| *is_sure = false);
    }

    /// Called when a waiting client has disconnected.
    pub fn left(&mut self, conn: u64, now: Now) {
        if self.waiter(conn).is_some() {
            let mut attempt = self.take_waiter(conn);
            self.keep_place(&mut attempt, now);
        }
    }

    /// Called when a grant reached its client.
    pub fn delivered(&mut self, token: u64, conn: u64) {
        let Some(attempt) = self.on_the_way.remove(&(token, conn)) else { return };
        self.record_newest(&attempt.asked, token);
    }

    /// Called when a grant did not reach its client. Returns whether the lock is passed on.
    pub fn undelivered(&mut self, token: u64, conn: u64, now: Now) -> bool {
        let Some(mut attempt) = self.on_the_way.remove(&(token, conn)) else { return false };
        let id = attempt.asked.id;
        self.lost.extend(attempt.asked.places.iter().zip(&attempt.written).map(|(place, timestamp)| Lost {
            token,
            place: place.clone(),
            timestamp: *timestamp,
            deadline: 0,
            id,
            before: None,
            has_company: false,
            is_unclaimed: false,
            passes_on: true,
            was_unclaimed: false,
        }));
        if attempt.is_cancelled {
            attempt.asked.id = None;
        }
        if !attempt.asked.places.is_empty() {
            // If its attempt has asked again in another form, the new place is the one that it has.
            let has_asked_again = attempt.latest == u64::MAX || self.own_attempts(&attempt.asked).next().is_some();
            self.arrivals += 1;
            attempt.latest = if has_asked_again { u64::MAX } else { self.arrivals };
            self.keep_place(&mut attempt, now);
        }
        true
    }

    /// Called when an ID is cancelled: it has no place, and will not get one.
    pub fn cancelled(&mut self, place: &OwnedKeyName, id: u64, ended: &[(u64, OwnedKeyName)], now: Now) {
        let is_it = |attempt: &Attempt| attempt.asked.id == Some(id) && attempt.asked.places.contains(place);
        self.queue.retain(|attempt| attempt.waits || !is_it(attempt));
        for ((token, _), attempt) in self.on_the_way.iter_mut().filter(|(_, attempt)| is_it(attempt)) {
            if ended.iter().any(|(own, _)| own == token) {
                attempt.is_cancelled = true;
            }
            // If its grant is lost, it may or may not get its place back.
            attempt.latest = u64::MAX;
        }
        // An attempt that has left with a result can still ask for it.
        if now.place > 0 && self.kept_for(place, id, now).is_none() {
            // When out of memory, only a known attempt is barred.
            self.bars.insert((place.clone(), id), (now.monotonic + now.place, !self.is_full()));
        }
    }

    /// Whether an attempt was cancelled so recently that its commands get nothing; `None` if uncertain.
    pub fn is_barred(&self, asked: &Asked, now: Now) -> Option<bool> {
        let bars = asked.places.iter().filter_map(|place| self.bars.get(&(place.clone(), asked.id?)));
        // A bar ends when the timer fires.
        let bars = bars.filter(|(until, _)| now.monotonic <= self.all_excused.max(until + LATE));
        let is_sure = |(until, is_sure): &(u64, bool)| *is_sure && now.keeps_places && now.monotonic < *until;
        match bars.map(is_sure).max() {
            Some(false) => None,
            Some(true) => Some(true),
            None => Some(false),
        }
    }

    /// Whether an ID has a place in the queue of a key.
    pub fn attempt(&self, place: &OwnedKeyName, id: u64) -> Option<&Attempt> {
        self.queue.iter().find(|attempt| attempt.asked.id == Some(id) && attempt.asked.places.contains(place))
    }

    /// Called when the event-loop iteration has ended: unless a timer fires at once, no client may be waiting that
    /// could have been served or whose wait has ended. `timer`: the milliseconds until it fires.
    pub fn end_of_iteration(
        &mut self,
        is_open: bool,
        now: Now,
        timer: Option<u64>,
        key: impl Fn(&OwnedKeyName, u64) -> Option<Raw>,
    ) {
        let is_open = is_open && (now.longest_lease.is_none() || self.gate_is_open);
        self.open_since = if is_open { self.open_since.or(Some(now.monotonic)) } else { None };
        self.queue.retain(|attempt| attempt.waits || attempt.until == 0 || now.monotonic < attempt.until + 1_000_000);
        let grain = self.grain(now);
        let is_late = |attempt: &&Attempt| attempt.waits && now.monotonic > attempt.until + grain + 100;
        if timer != Some(0) && now.monotonic >= self.all_excused {
            if let Some(attempt) = self.queue.iter().find(is_late) {
                panic!("{attempt:?} waits longer than it wants to, at {now:?}: the timer fires in {timer:?} ms");
            }
        }
        if let Some(longest) = now.longest_lease.filter(|_| now.monotonic > self.limit_since + 300_000) {
            if let Some(attempt) = self.queue.iter().find(|attempt| attempt.waits && attempt.asked.lease > longest) {
                panic!("{attempt:?} waits for a lease that the grace does not cover, at {now:?}");
            }
        }
        let is_ready = self.open_since.is_some_and(|since| now.monotonic > since + RETRY + GRAIN);
        if !is_ready || now.monotonic < self.all_excused {
            self.put_off = 0;
            return;
        }
        self.check_ended_sessions(now, timer, &key);
        self.check_unclaimed(now, timer, &key);
        match self.servable(now, &key).map(|(attempt, by_time)| (attempt.clone(), by_time)) {
            None => self.put_off = 0,
            Some((attempt, by_time)) => {
                // A client that takes a lock in the millisecond of its expiry may leave room for others.
                let most = if by_time { grain / 1_000 } else { 1 };
                let is_put_off = timer.is_some_and(|timer| timer <= most);
                assert!(is_put_off, "{attempt:?} could be served at {now:?}, but the timer fires in {timer:?} ms");
                self.put_off += 1;
                assert!(self.put_off < 100, "{attempt:?} could be served at {now:?}, but is postponed again and again");
            }
        }
    }

    /// The server is out of memory.
    fn is_full(&self) -> bool {
        self.no_memory_until == u64::MAX
    }

    /// By how much the timer may be late.
    pub(super) fn grain(&self, now: Now) -> u64 {
        let was_set = self.clock_set.is_some_and(|at| now.monotonic < at + OFF);
        if was_set || self.drifts {
            LATE
        } else {
            GRAIN
        }
    }

    /// A waiter that can be served now, and whether that only just became possible.
    fn servable(&self, now: Now, key: &impl Fn(&OwnedKeyName, u64) -> Option<Raw>) -> Option<(&Attempt, bool)> {
        let waiting = || self.queue.iter().filter(|attempt| attempt.waits);
        // Attempts wait until there is memory again, and a moment longer.
        let waits_for_memory =
            |attempt: &Attempt| attempt.asked.notify.is_some() && now.monotonic < self.no_memory_until;
        waiting().filter(|attempt| !waits_for_memory(attempt)).find_map(|attempt| {
            let most = attempt.asked.share.most();
            let mut by_time = false;
            for place in &attempt.asked.places {
                if self.excused.get(place).is_some_and(|until| now.monotonic < *until) {
                    return None;
                }
                let raw = key(place, now.wall)?;
                if self.awaits_claim(place, &raw) {
                    return None;
                }
                // Waiters for this key alone come first, in order.
                let is_ahead = |other: &&Attempt| {
                    let wants_it_alone = other.asked.places.len() == 1 && other.asked.places[0] == *place;
                    // Others that wait for this lock alone are served before an attempt that could have it if there
                    // were memory.
                    let fits = attempt.asked.places.len() == 1 && raw.admits(other.asked.share.most(), now.wall);
                    let is_passed = self.is_full() && waits_for_memory(other) && fits;
                    !std::ptr::eq(*other, attempt) && wants_it_alone && !is_passed && other.earliest < attempt.latest
                };
                if waiting().any(|other| is_ahead(&other)) {
                    return None;
                }
                if !raw.admits(most, now.wall) || raw.is_held_by(attempt.asked.id, now.wall) {
                    return None;
                }
                let then = now.wall - self.grain(now);
                by_time |= !key(place, then)?.admits(most, then);
            }
            Some((attempt, by_time))
        })
    }
}
