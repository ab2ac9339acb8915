//! Judges from the outside what must not happen, based on the keys, the replies and their times.
//!
//! It is written from the contract and shares no code with the code that it judges. It does not judge what the contract
//! leaves open. Where it cannot know which client came first, it accepts either order.

#[path = "judge/claims.rs"]
mod claims;
#[path = "judge/cycle.rs"]
mod cycle;
#[path = "judge/facts.rs"]
mod facts;
#[path = "judge/lost.rs"]
mod lost;
#[path = "judge/queue.rs"]
mod queue;
mod results;
#[path = "judge/spans.rs"]
mod spans;
#[path = "judge/writes.rs"]
mod writes;

use super::raw::Raw;
use super::steps::Share;
use crate::fake::{Changed, OwnedKeyName};
pub use claims::{Ears, News, Unclaimed};
pub use facts::{Asked, Cause, Grant, Now, Predecessor};
use lost::Lost;
pub use queue::{Attempt, Waits};
pub use spans::Spans;
use std::collections::{HashMap, HashSet};

/// One server, as seen by the judge.
#[derive(Debug, Default)]
pub struct Court {
    pub(super) queue: Vec<Attempt>,
    /// Counts arrivals in the queue.
    arrivals: u64,
    /// Attempts that were cancelled, each with its key, the time until which they get nothing there, and whether that
    /// is certain.
    bars: HashMap<(OwnedKeyName, u64), (u64, bool)>,
    last_token: u64,
    /// The last token before the command being judged.
    earlier_token: u64,
    /// Grants that were sent to waiters: each waiter's place, by token and connection.
    on_the_way: HashMap<(u64, u64), Attempt>,
    /// Grants that nobody received or claimed.
    lost: Vec<Lost>,
    /// Grants that nobody has claimed yet.
    pub unclaimed: Vec<Unclaimed>,
    /// Channels that did not claim a grant, and whether that is certain.
    skipped: HashMap<u8, bool>,
    /// Messages that may be published, by channel and ID.
    news: HashMap<(u8, News, u64), u32>,
    /// The results kept for attempts, by key and ID: the value, the time until which it is kept, and whether that is
    /// certain.
    pub(super) kept: HashMap<(OwnedKeyName, u64), (u64, u64, bool)>,
    ended_conns: HashSet<u64>,
    /// Grants by this server since it became the master.
    granted_here: HashSet<u64>,
    /// When it became the master.
    pub master_since: u64,
    /// The time until which attempts without a connection may go without grants for lack of memory, on the monotonic
    /// clock.
    pub no_memory_until: u64,
    /// The connection with which a key's grant ends, and whether it is certain that nobody has changed the key since.
    sessions: HashMap<Grant, (u64, bool)>,
    /// The newest grant of each key that somebody has received, as long as nobody else has changed the key.
    newest: HashMap<OwnedKeyName, u64>,
    /// The grants of callers that asked for exclusive locks.
    alone: HashSet<u64>,
    /// The predecessors of grants, as reported, and when.
    predecessors: HashMap<Grant, (Option<Predecessor>, u64)>,
    /// Grants whose connection has ended, and when.
    ended_sessions: HashMap<Grant, u64>,
    /// The ended sessions that the timer has to handle.
    due_sessions: HashMap<Grant, u64>,
    /// Keys with changes that no event reported, and the time until which the server may not know about them, on its
    /// monotonic clock.
    pub(super) excused: HashMap<OwnedKeyName, u64>,
    /// The latest timestamp that each key had.
    pub(super) latest: HashMap<OwnedKeyName, u64>,
    /// Like `excused`, for all keys and for ends of waits.
    pub(super) all_excused: u64,
    /// Whether its clock drifts.
    pub drifts: bool,
    /// When its clock was last set.
    pub clock_set: Option<u64>,
    /// Whether something was granted since the last event that may forbid it.
    pub(super) gate_is_open: bool,
    /// When it was last allowed to start writing and granting.
    open_since: Option<u64>,
    /// When the current lease limit came into force.
    pub(super) limit_since: u64,
    /// When the server last resumed after a stall.
    pub(super) resumed: u64,
    /// How many iterations set a timer although somebody could have been served.
    put_off: u32,
    pub grants: u64,
    pub hand_offs: u64,
    /// Attempts that had no subscriber when their turn came.
    pub passed_over: u64,
}

/// A grant found in the keys.
#[derive(Debug)]
struct Found {
    token: u64,
    place: OwnedKeyName,
    /// The key before it, without the grants that it ended.
    before: Raw,
    after: Raw,
    /// Whether the lock was passed on from a grant that nobody received: that grant's predecessor is also this grant's.
    passed_on: bool,
    /// That predecessor, if known.
    succeeds: Option<Raw>,
}

/// The reply to a holder about its grant.
#[derive(Clone, Debug)]
pub struct Reported {
    pub token: u64,
    /// The predecessor in each of its locks, if any.
    pub before: Vec<Option<Predecessor>>,
}

/// The writes of an entry from the server that are not explained yet.
#[derive(Debug, Default)]
pub struct Writes {
    found: Vec<Found>,
    pub(super) extended: Vec<(u64, OwnedKeyName, u64, u64)>,
    /// Restored predecessors without a token, with the token of the grant that succeeded them.
    restored: Vec<Grant>,
}

impl Writes {
    pub fn is_empty(&self) -> bool {
        self.found.is_empty() && self.extended.is_empty()
    }
}

impl Court {
    /// The court of a server with this clock drift.
    pub fn of(drift: i64) -> Self {
        Self { drifts: drift != 0, master_since: 1_000_000, ..Self::default() }
    }

    /// Called when a caller gets a grant at once. `own`: its place before.
    pub fn granted(&mut self, writes: &mut Writes, asked: &Asked, own: &[Attempt], reported: &Reported, now: Now) {
        let earliest = own.iter().map(|attempt| attempt.earliest).min().unwrap_or(u64::MAX);
        if self.reported(writes, asked, reported, now) {
            self.check_overtaking(asked, earliest, reported.token);
            self.record_newest(asked, reported.token);
        }
        let (id, places) = (asked.id, &asked.places);
        self.queue.retain(|attempt| !(id.is_some() && attempt.asked.id == id && attempt.shares_key_with(places)));
        self.may_not_be_skipped(asked.notify);
    }

    /// Called when a grant is reported: a new grant, which the keys show, or one that its ID already has. Returns
    /// whether it is new.
    fn reported(&mut self, writes: &mut Writes, asked: &Asked, reported: &Reported, now: Now) -> bool {
        let token = reported.token;
        let is_new = writes.found.iter().any(|found| found.token == token);
        self.bind(asked, token);
        if !is_new {
            let is_in_grace = now.grace > 0 && now.monotonic < self.master_since + now.grace;
            assert!(
                !is_in_grace || self.granted_here.contains(&token),
                "{asked:?} gets {token} in the grace, which an earlier master granted"
            );
            self.lost.retain(|lost| lost.token != token || !asked.places.contains(&lost.place));
            self.on_the_way.retain(|(own, _), attempt| *own != token || !attempt.shares_key_with(&asked.places));
            // A lock that was copied or renamed is reported under another name: its attempt may or may not get its
            // place back.
            self.on_the_way
                .iter_mut()
                .filter(|((own, _), _)| *own == token)
                .for_each(|(_, attempt)| attempt.latest = u64::MAX);
            for (place, before) in asked.places.iter().zip(&reported.before) {
                let known = self.predecessors.get(&(token, place.clone()));
                if let Some((known, _)) = known.filter(|(_, since)| now.monotonic < since + 60_000_000) {
                    assert_eq!(before, known, "{asked:?} gets {token} again, but another predecessor");
                }
            }
            return false;
        }
        for (place, predecessor) in asked.places.iter().zip(&reported.before) {
            let at = writes.found.iter().position(|found| found.token == token && found.place == *place);
            let Some(at) = at else { panic!("{asked:?} gets {token}, which is not in {place:?}") };
            let Found { before, after, passed_on, succeeds, .. } = writes.found.swap_remove(at);
            match succeeds.filter(|_| self.clock_set.is_none()) {
                Some(succeeds) => succeeds.check_predecessor(asked, *predecessor, now.wall),
                None if passed_on => {}
                None => before.check_predecessor(asked, *predecessor, now.wall),
            }
            self.predecessors.insert((token, place.clone()), (*predecessor, now.monotonic));
            assert!(
                before.admits(asked.share.most(), now.wall),
                "two hold {place:?}: {asked:?} got {token} at {now:?} beside {before:?}"
            );
            assert!(
                !before.is_held_by(asked.id, now.wall),
                "{asked:?} got {token} at {now:?} beside its own: {before:?}"
            );
            let is_alone = asked.share == Share::Alone;
            assert_eq!(matches!(after, Raw::One(_)), is_alone, "{asked:?} made {after:?}");
            let own = after.holder(token).unwrap();
            assert_eq!(own.timestamp, now.wall + asked.lease + now.margin, "the timestamp of {asked:?} at {now:?}");
            assert_eq!(own.id, asked.id, "the ID of {asked:?}");
            let known = before.holders().iter().map(|holder| holder.token).max().unwrap_or(0);
            assert!(token > known, "the tokens of {place:?} do not grow: {known}, {token}");
        }
        let beyond = now.longest_lease.filter(|longest| asked.lease > *longest);
        assert_eq!(beyond, None, "a lease beyond the grace is granted: {asked:?}");
        self.check_next_token(token, now);
        self.granted_here.insert(token);
        self.grants += 1;
        true
    }

    /// Notes that a grant ends with a newer connection, or with no connection.
    fn bind(&mut self, asked: &Asked, token: u64) {
        for place in &asked.places {
            let grant = (token, place.clone());
            self.ended_sessions.remove(&grant);
            self.due_sessions.remove(&grant);
            if asked.session {
                self.sessions.insert(grant, (asked.conn, true));
            } else {
                self.sessions.remove(&grant);
            }
        }
    }

    /// Called when somebody has got a lock through this grant.
    pub(super) fn record_newest(&mut self, asked: &Asked, token: u64) {
        self.alone.extend((asked.share == Share::Alone).then_some(token));
        for place in &asked.places {
            let newest = self.newest.entry(place.clone()).or_default();
            *newest = token.max(*newest);
        }
    }

    /// Called when an overdue lock is released: checks that nobody has had it since then.
    pub fn released_late(&self, token: u64, place: &OwnedKeyName) {
        let newest = self.newest.get(place).copied().unwrap_or(0);
        assert!(
            newest <= token || !self.alone.contains(&token),
            "{token} releases {place:?}, which {newest} has had since"
        );
    }

    /// Checks the token of a new grant.
    fn check_next_token(&mut self, token: u64, now: Now) {
        assert!(token > self.earlier_token, "tokens do not grow: {}, {token}", self.earlier_token);
        assert!(token >= now.wall, "the token {token} is older than its grant at {now:?}");
        self.last_token = token.max(self.last_token);
        // The grace may be new. If so, the gate was last checked long ago, and the next turn finds that out.
        self.gate_is_open = now.monotonic > self.limit_since + 300_000;
        self.put_off = 0;
    }

    /// Checks that a command was rightly refused; `keys` is their state before it. A lock that has just become free
    /// belongs to the waiters in its queue, including those for several locks, until a timer that fires at once has
    /// tried them. Where nothing could be granted until now, it belongs to them until they are tried again.
    pub fn refused(
        &self,
        asked: &Asked,
        own: &[Attempt],
        keys: &[Raw],
        queue: Option<&[Attempt]>,
        timer: Option<u64>,
        now: Now,
    ) {
        let latest = own.iter().map(|attempt| attempt.latest).min().unwrap_or(u64::MAX);
        let most = asked.share.most();
        let was_barred = self.open_since.is_none_or(|since| now.monotonic <= since + queue::RETRY + queue::GRAIN);
        let is_tried_soon = timer.is_some_and(|timer| timer == 0 || was_barred || now.monotonic < self.all_excused);
        let is_ahead = |place: &OwnedKeyName| {
            queue.unwrap_or(&self.queue).iter().any(|attempt| {
                let is_own = asked.id.is_some() && attempt.asked.id == asked.id;
                let is_first = attempt.asked.places == [place.clone()] || is_tried_soon;
                attempt.waits
                    && !is_own
                    && is_first
                    && attempt.asked.places.contains(place)
                    && attempt.earliest < latest
            })
        };
        let could_have = asked
            .places
            .iter()
            .zip(keys)
            .all(|(place, key)| key.admits(most, now.wall) && !is_ahead(place) && !self.awaits_claim(place, key));
        assert!(!could_have, "{asked:?} is refused locks that nobody holds or waits for: {keys:?} at {now:?}");
    }

    /// Checks that all grants of a command were reported to somebody.
    pub fn assert_everything_was_reported(writes: &Writes) {
        assert!(writes.found.is_empty(), "nobody got {:?}", writes.found);
    }

    /// Checks for locks that should have ended with their connections by now. The timer ends them, if it may write.
    fn check_ended_sessions(&mut self, now: Now, timer: Option<u64>, key: &impl Fn(&OwnedKeyName, u64) -> Option<Raw>) {
        for ((token, place), at) in self.due_sessions.clone() {
            let Some(raw) = key(&place, now.wall) else { continue };
            let is_over = raw.holder(token).is_none_or(|holder| holder.timestamp <= at + now.margin);
            if is_over {
                self.due_sessions.remove(&(token, place));
            } else {
                assert!(timer == Some(0), "{token} holds {place:?} at {now:?}, after its connection ended: {raw:?}");
            }
        }
    }

    /// Reads the module's changes, in order.
    pub fn read(&mut self, journal: &[Changed], cause: &Cause, now: Now) -> Writes {
        let mut writes = Writes::default();
        self.earlier_token = self.last_token;
        for changed in journal {
            let end = Raw::of(changed.after.as_ref(), 0).last_end();
            let latest = self.latest.entry(changed.place.clone()).or_default();
            *latest = end.max(*latest);
            if !changed.by_module {
                // A rename of the key, or a change by others, ends sessions and clears the predecessor.
                self.due_sessions.retain(|(_, place), _| *place != changed.place);
                self.predecessors.retain(|(_, place), _| *place != changed.place);
                self.newest.remove(&changed.place);
                // The grant may have been elsewhere when it should have been passed on.
                let lost = self.lost.iter_mut().filter(|lost| lost.place == changed.place);
                lost.for_each(|lost| {
                    lost.stays();
                    lost.before = None;
                });
                self.unclaimed.iter_mut().for_each(|own| own.forget_before(&changed.place));
                let own = self.sessions.iter_mut().filter(|((_, place), _)| *place == changed.place);
                own.for_each(|(_, (_, is_sure))| *is_sure = false);
            }
        }
        for changed in journal.iter().filter(|changed| changed.by_module) {
            self.judge_write(&mut writes, changed, cause, now);
        }
        writes
    }

    /// The tokens of grants that no reply has reported yet.
    pub fn unreported(writes: &Writes) -> Vec<u64> {
        writes.found.iter().map(|found| found.token).collect()
    }

    pub fn connection_ended(&mut self, conn: u64, now: Now) {
        self.ended_conns.insert(conn);
        let ended = self.sessions.extract_if(|_, (own, _)| *own == conn);
        for (grant, (_, is_sure)) in ended {
            if is_sure {
                self.due_sessions.insert(grant.clone(), now.wall);
            }
            self.ended_sessions.insert(grant, now.wall);
        }
    }

    /// Called when a grant is extended: an earlier end of its connection no longer counts.
    pub fn extended(&mut self, token: u64, places: &[OwnedKeyName]) {
        self.due_sessions.retain(|(own, place), _| *own != token || !places.contains(place));
    }

    /// Whether a grant ends with its connection.
    pub fn has_session(&self, conn: u64) -> bool {
        self.sessions.values().any(|(own, _)| *own == conn)
    }

    /// Called when the server restarts or becomes a replica: it remembers nothing.
    pub fn forget(&mut self, tokens_too: bool) {
        let last_token = if tokens_too { 0 } else { self.last_token };
        let (grants, hand_offs, arrivals) = (self.grants, self.hand_offs, self.arrivals);
        let (latest, clock_set) = (std::mem::take(&mut self.latest), self.clock_set);
        let (drifts, passed_over, no_memory_until) = (self.drifts, self.passed_over, self.no_memory_until);
        *self = Self {
            arrivals,
            last_token,
            no_memory_until,
            latest,
            drifts,
            clock_set,
            grants,
            hand_offs,
            passed_over,
            ..Self::default()
        };
    }
}
