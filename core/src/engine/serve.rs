//! What is done outside of commands: which lost grants, ended sessions and lines are seen to in an event-loop iteration,
//! who in a line gets a lock that came free, and when the next iteration is needed.

use super::counters::Counter;
use super::grant::{Decision, Granted};
use super::hand_off::Successor;
use super::join::{due, Blocked};
use super::outstanding::Lost;
use super::parts::{Clock, Engine, KeyName};
use super::queue::{Cause, Keys, LineId, Next, Ticket, Vacancy};
use super::sessions::LockKey;
use crate::lock::error::Error;
use crate::lock::grace;
use crate::lock::rules::{self, Share, State, Terms, Turn};
use crate::lock::time::{Micros, MonotonicMicros, UnixMicros};
use crate::lock::token::Token;

/// When to try again what the server does not allow now.
const RETRY: Micros = Micros(20_000);

/// When the module has to run next, on both clocks; nothing in neither: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wake {
    /// The end of a wait or of a reserved place, or work that is waiting: at once for [`Wake::AT_ONCE`].
    pub end: Option<MonotonicMicros>,
    /// A lock that is waited for comes free by itself.
    pub due: Option<UnixMicros>,
}

impl Wake {
    /// The end of everything that is to be done now.
    pub const AT_ONCE: MonotonicMicros = MonotonicMicros(0);

    /// Whether there is nothing to wake up for.
    #[must_use]
    pub fn is_never(self) -> bool {
        self == Self::default()
    }

    /// Whether a timer that was set for this fires in time for `other`, whatever the clocks say.
    #[must_use]
    pub fn is_in_time_for(self, other: Self) -> bool {
        let end = other.end.is_none_or(|end| self.end.is_some_and(|own| own <= end));
        let due = other.due.is_none_or(|due| self.due.is_some_and(|own| own <= due));
        self.end == Some(Self::AT_ONCE) || (end && due)
    }
}

/// How many grants were lost and how many sessions had ended when an iteration began: each is tried once in it, so that
/// one that the server refuses to write holds up no other.
#[derive(Debug)]
pub struct Iteration {
    lost: usize,
    ended: usize,
    /// Some of them stay to be done.
    is_refused: bool,
}

/// Something to see to.
#[derive(Debug)]
pub enum Task {
    /// A grant that nobody received.
    PassOn(Lost),
    /// A grant whose connection has ended, and when that was.
    EndSession((LockKey, Token), UnixMicros),
    /// A line whose lock may have come free.
    Look(LineId, Why),
}

/// Why a line is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Something has happened.
    Known,
    /// Nothing is known to have happened: a grant now means that a wake-up was missed.
    Scan,
}

/// What a look at the lock of a line comes to.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "it lives as long as one look")]
pub enum Found {
    /// The next who waits gets it.
    Grant(Successor),
    /// The next who waits wants others besides, and this one could be had.
    Try(Ticket),
    /// The next who waits may not have a lease that long.
    End(u64, Error),
    /// Nobody else can have it now.
    Nobody,
}

impl<H> Engine<H> {
    /// A new event-loop iteration; nothing if there is nothing to see to, or not yet.
    pub fn begin_iteration(&mut self, clock: impl Clock) -> Option<Iteration> {
        // Before anything else: what is due would fire the timer again and again.
        self.queues.set_due_ready(clock.now());
        if self.postponed.is_some_and(|at| at > clock.monotonic()) {
            return None;
        }
        self.postponed = None;
        self.queues.begin_iteration();
        let (lost, ended) = if self.rest_postponed.is_some_and(|at| at > clock.monotonic()) {
            (0, 0)
        } else {
            self.rest_postponed = None;
            (self.outstanding.lost(), self.ended.len())
        };
        let has_work = self.queues.has_ready() || self.outstanding.lost() > 0 || !self.ended.is_empty();
        has_work.then_some(Iteration { lost, ended, is_refused: false })
    }

    /// The next thing to see to in an iteration; nothing when all is done.
    pub fn next_task(&mut self, iteration: &mut Iteration, clock: impl Clock) -> Option<Task> {
        if let Some(left) = iteration.lost.checked_sub(1) {
            iteration.lost = left;
            if let Some(lost) = self.outstanding.take_lost() {
                return Some(Task::PassOn(lost));
            }
            iteration.lost = 0;
        }
        if let Some(left) = iteration.ended.checked_sub(1) {
            iteration.ended = left;
            if let Some((grant, at)) = self.ended.take() {
                return Some(Task::EndSession(grant, at));
            }
            iteration.ended = 0;
        }
        let (line, cause) = self.queues.take_ready()?;
        // One that is due now was not forgotten: the timer comes in this moment.
        let is_due = || self.queues.due(line).is_some_and(|due| due <= clock.now());
        let why = if cause == Cause::Scan && !is_due() { Why::Scan } else { Why::Known };
        Some(Task::Look(line, why))
    }

    /// The server refused to write for a task: it is tried again, behind the others.
    pub fn refused_for_now(&mut self, task: Task, iteration: &mut Iteration, clock: impl Clock) {
        match task {
            Task::PassOn(lost) => self.outstanding.lose([lost]),
            Task::EndSession(grant, at) => self.ended.put_back(grant, at),
            Task::Look(line, _) => {
                // Not at once: in the order of the line it would come first again.
                self.queues.set_due(line, Some(clock.now().after(RETRY)));
                return;
            }
        }
        iteration.is_refused = true;
    }

    /// An iteration is over: what the server refused to write is tried again in a moment.
    pub fn end_iteration(&mut self, iteration: &Iteration, clock: impl Clock) {
        if iteration.is_refused {
            self.postpone_rest(clock);
        }
    }

    /// Lost grants and ended sessions are seen to in a moment.
    pub(super) fn postpone_rest(&mut self, clock: impl Clock) {
        self.rest_postponed = Some(self.postponed_until(clock));
    }

    /// Nothing may be written now: it is tried again in a moment. At once, the server would do nothing else.
    pub fn postpone(&mut self, clock: impl Clock) {
        self.postponed = Some(self.postponed_until(clock));
    }

    fn postponed_until(&mut self, clock: impl Clock) -> MonotonicMicros {
        self.count(Counter::Postponed);
        clock.monotonic().after(RETRY)
    }

    /// Whether nobody waits or has a place, no lock ends with its connection, and nothing is left to be done.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.queues.is_empty()
            && self.sessions.is_empty()
            && self.outbox.is_empty()
            && self.ended.is_empty()
            && self.outstanding.lost() == 0
            && !self.gate.is_sweeping()
    }

    /// When the module has to run next.
    #[must_use]
    pub fn wake(&self) -> Wake {
        let ready = self.queues.has_ready().then_some(self.postponed);
        let has_rest = self.outstanding.lost() > 0 || !self.ended.is_empty();
        let rest = has_rest.then(|| self.postponed.max(self.rest_postponed));
        let now = (self.gate.is_sweeping() || !self.outbox.is_empty()).then_some(None);
        let work = [ready, rest, now].into_iter().flatten().map(|postponed| postponed.unwrap_or(Wake::AT_ONCE));
        let end = self.queues.next_end().into_iter().chain(work).min();
        Wake { end, due: self.queues.next_due() }
    }

    /// Who in a line gets its lock, if somebody can have it.
    pub fn look(
        &mut self,
        line: LineId,
        lock: State<'_>,
        expires_in_ms: impl Fn() -> Option<u64>,
        terms: Terms,
        grace: Option<&grace::Settings>,
        now: UnixMicros,
    ) -> Found {
        let Self { queues, tokens, .. } = self;
        let evicted_until = queues.evicted_until(line).filter(|until| *until > now);
        if lock == State::Free && evicted_until.is_some() {
            queues.set_due(line, evicted_until);
            return Found::Nobody;
        }
        queues.set_last_end(line, lock.last_end());
        let vacancy = if lock.is_nobodys() {
            Vacancy::Whole
        } else {
            queues.seen(line);
            Vacancy::Part
        };
        let due = match queues.next(line, vacancy) {
            Next::Parked(ticket) => return Found::Try(ticket),
            Next::Single(ticket, waiter) => {
                if let Some(Err(error)) = grace.map(|grace| grace.check(waiter.lease)) {
                    return Found::End(waiter.client, error);
                }
                let request = waiter.request();
                // An ID that holds the lock already is told so when it asks, not while it waits.
                let may_have_it = vacancy == Vacancy::Whole || matches!(lock, State::Several(_));
                let turn = if may_have_it { Turn::Now } else { Turn::Behind };
                let decision = rules::acquire(lock, &request, turn, terms, tokens, now);
                let grant = decision.ok().filter(|_| may_have_it).and_then(|decision| Decision::to_grant(&decision));
                if let Some((decision, granted)) = grant {
                    return Found::Grant(Successor { ticket, decision, granted });
                }
                (vacancy == Vacancy::Part).then(|| due(lock, request.share, expires_in_ms, now)).flatten()
            }
            Next::Later | Next::Nobody => {
                (vacancy == Vacancy::Part).then(|| due(lock, Share::Alone, expires_in_ms, now)).flatten()
            }
        };
        queues.set_due(line, due);
        Found::Nobody
    }

    /// A waiter for several locks: its client, its lease, and its keys. Nothing if it waits no longer.
    #[must_use]
    pub fn parked(&self, ticket: Ticket) -> Option<(u64, Micros, i32, Keys)> {
        let waiter = self.queues.waiter(ticket)?;
        let (db, keys) = self.queues.keys(ticket)?;
        Some((waiter.client, waiter.lease, db, keys))
    }

    /// A waiter for several locks cannot have this one: it is parked there. Whether it was before.
    pub fn park(&mut self, ticket: Ticket, blocked: Blocked) -> bool {
        let before = self.queues.line_of_ticket(ticket);
        let Some(line) = self.queues.park(ticket, blocked.at) else { return false };
        if let Some(due) = blocked.due {
            self.queues.set_due_by(line, due);
        }
        if blocked.last_end.is_some() {
            self.queues.set_last_end(line, blocked.last_end);
        }
        before == Some(line)
    }

    /// A waiter for several locks gets all of them, if nobody has one.
    pub fn grant_all(
        &mut self,
        ticket: Ticket,
        locks: &[State<'_>],
        terms: Terms,
        now: UnixMicros,
    ) -> Option<(Vec<Decision>, Granted)> {
        let waiter = self.queues.waiter(ticket)?;
        let decisions = rules::acquire_all(locks, &waiter.request(), Turn::Now, terms, &mut self.tokens, now);
        Decision::to_grants(&decisions.ok()??)
    }

    /// Others in a line may have its lock too: they come after those of other lines who came before them.
    pub fn go_on(&mut self, line: LineId) {
        self.queues.go_on(line);
    }

    /// Takes lines out that are to be looked at, at most so many.
    pub fn take_ready(&mut self, most: usize) -> Vec<LineId> {
        (0..most).map_while(|_| self.queues.take_ready()).map(|(line, _)| line).collect()
    }

    /// Looks after what no timer and no event tells: makes every line ready, now and then; with few waiters each time,
    /// where the server does not tell of keys that come free.
    pub fn scan(&mut self, now: MonotonicMicros, is_told_of_keys: bool) {
        const FEW_WAITERS: usize = 1_000;
        let always = !is_told_of_keys && self.queues.waiters() <= FEW_WAITERS;
        if always || self.has_to_scan(now) {
            self.scanned = now;
            self.queues.look_again();
        }
    }

    /// Whether it is time to look at every line again: who changed a lock may have told nobody.
    pub(super) fn has_to_scan(&self, now: MonotonicMicros) -> bool {
        const EVERY: Micros = Micros(900_000);
        now.since(self.scanned) >= EVERY
    }

    /// Keys were flushed or swapped: all locks of a database, or of all, may have come free.
    pub fn all_changed(&mut self, db: Option<i32>) {
        self.queues.set_all_ready(db);
    }

    /// A key came free, as the server tells.
    pub fn key_changed(&mut self, key: KeyName<'_>, how: KeyChange) {
        let Some(line) = self.queues.waited_line(key.db, key.name) else { return };
        match how {
            KeyChange::Evicted => self.queues.evicted(line),
            KeyChange::Gone => self.queues.set_ready(line),
        }
    }
}

/// What the server tells of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// It was evicted: its lock stays taken until its last holder ends.
    Evicted,
    /// It was deleted, expired or written in another way.
    Gone,
}

#[cfg(test)]
mod tests {
    use super::super::queue::{ReplyShape, Waiter};
    use super::*;

    /// The wall clock.
    #[derive(Clone, Copy)]
    struct At(u64);

    impl Clock for At {
        fn now(self) -> UnixMicros {
            UnixMicros(self.0)
        }

        fn monotonic(self) -> MonotonicMicros {
            MonotonicMicros(self.0)
        }
    }

    /// One who waits for a lock that comes free at 100, when all lines are looked at.
    fn scanned() -> Engine<u64> {
        let waiter = Waiter {
            handle: 1,
            client: 1,
            share: Share::Alone,
            lease: Micros(1),
            id: None,
            owner: None,
            shape: ReplyShape::Token,
            session: false,
            since: MonotonicMicros(0),
            until: MonotonicMicros(1_000),
        };
        let mut engine = Engine::default();
        engine.join(0, &[b"k"], Blocked { due: Some(UnixMicros(100)), ..Blocked::default() }, waiter);
        engine.scan(MonotonicMicros(900_000), true);
        engine
    }

    #[test]
    fn a_lock_that_comes_free_while_lines_are_looked_at_was_not_forgotten() {
        for (looked_at, expected) in [(99, Why::Scan), (100, Why::Known)] {
            let mut engine = scanned();
            let mut iteration = engine.begin_iteration(At(99)).unwrap();
            let task = engine.next_task(&mut iteration, At(looked_at));
            assert!(matches!(task, Some(Task::Look(_, why)) if why == expected), "{task:?}");
        }
    }

    #[test]
    fn nothing_is_quiet_while_anybody_waits_or_anything_is_left_to_be_done() {
        assert!(Engine::<u64>::default().is_quiet());
        assert!(!scanned().is_quiet());
        let mut engine = Engine::<u64>::default();
        engine.gate().set_longest_lease(Some(Micros(1)));
        assert!(!engine.is_quiet());
        let mut engine = Engine::<u64>::default();
        engine.outstanding.lose([Lost { db: 0, name: b"k"[..].into(), token: Token::LAST, succeeds: None }]);
        assert!(!engine.is_quiet());
    }
}
