//! The hand-off: a grant ends, and the lock goes to the first waiter or comes free.

use super::notify::Notified;
use crate::engine::budget::Budget;
use crate::engine::counters::Counter;
use crate::engine::grant::{Before, Decision, Granted};
use crate::engine::queue::{Heirs, QueueId, Ticket};
use crate::engine::sessions::LockKey;
use crate::engine::{Clock, Engine, KeyName};
use crate::lock::admit::{self, Acquire, Holds, Turn};
use crate::lock::held::Release;
use crate::lock::request::Terms;
use crate::lock::state::State;
use crate::lock::time::{Micros, UnixMicros};
use crate::lock::token::Token;

/// The rest of a lock after a grant has ended.
#[derive(Clone, Copy, Debug)]
pub enum Left<'a> {
    /// Nothing: it was the only grant.
    Nothing,
    /// Other holders, live or expired.
    Others(State<'a>),
    /// The predecessor of a lost grant: it is restored.
    Predecessor(&'a Before),
}

/// The waiter that gets a lock.
#[derive(Debug)]
pub struct Successor {
    /// Its ticket.
    pub ticket: Ticket,
    /// What to write.
    pub decision: Decision,
    /// What it is told.
    pub granted: Granted,
    /// How it was called, if it waits without a connection.
    pub notified: Option<Notified>,
}

/// The next in line for a lock.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "it lives as long as one hand-off")]
pub enum Heir {
    /// It gets the lock.
    Takes(Successor),
    /// It could have the lock, and has to be called first.
    ToCall(Ticket),
    /// Nobody gets it now.
    Nobody,
}

impl<H> Engine<H> {
    /// Counts the outcome of a LOCK.RELEASE.
    pub fn count_release(&mut self, release: Release) {
        self.count(match release {
            Release::InTime => Counter::Releases,
            Release::Late => Counter::LateReleases,
            Release::Over => Counter::StaleTokens,
        });
    }

    /// Whether the holder of a grant of which only the margin is left has overrun its lease: not if nobody has claimed
    /// the grant, and not if its session had ended.
    #[must_use]
    pub fn counts_as_overrun(&self, key: KeyName<'_>, token: Token) -> bool {
        let has_ended = self.sessions.has_ended(key.db, key.name, token) || self.ended.has(key.db, key.name, token);
        !has_ended && !self.cut_short.has(key.db, key.name, token) && !self.is_unclaimed(key, token)
    }

    /// A grant was cut short because its connection ended.
    pub fn cut_short(&mut self, grant: (LockKey, Token), until: UnixMicros, now: UnixMicros) {
        self.cut_short.add(grant, until, now);
    }

    /// Called in each tick of the server: forgets what is remembered of grants for a while, as far as a piece goes.
    pub fn forget_old(&mut self, clock: impl Clock) {
        let mut budget = Budget::of(Budget::PART);
        self.predecessors.forget_piece(clock.monotonic(), &mut budget);
        let mut budget = Budget::of(Budget::PART);
        self.cut_short.forget_piece(clock.now(), &mut budget);
    }

    /// A grant was extended: it counts as cut short no longer.
    pub fn extended(&mut self, key: KeyName<'_>, token: Token) {
        self.cut_short.extended(key.db, key.name, token);
    }

    /// A grant was given back: later tokens are larger.
    pub fn given_back(&mut self, token: Token, now: UnixMicros) {
        self.tokens.given_back(now, token);
    }

    /// The line of a key, if somebody waits in it.
    #[must_use]
    pub fn awaited_queue(&self, key: KeyName<'_>) -> Option<QueueId> {
        if self.queues.is_empty() {
            return None;
        }
        self.queues.awaited_queue(key.db, key.name)
    }

    /// The successor in a line: the first waiter, if it waits for this lock alone and can have it.
    pub fn successor(
        &mut self,
        heirs: impl Into<Heirs>,
        token: Token,
        left: Left<'_>,
        terms: Terms,
        notified: Option<Notified>,
        now: UnixMicros,
    ) -> Heir {
        let Some((ticket, head)) = self.queues.single_head(heirs.into()) else { return Heir::Nobody };
        let notified = notified.filter(|notified| notified.ticket == ticket);
        let request = head.request(notified.map_or(Micros(0), |notified| notified.lease));
        if notified.is_none() && head.channel().is_some() {
            let could_have_it = match left {
                Left::Others(lock) => admit::could_have(lock, &request, now),
                Left::Nothing | Left::Predecessor(_) => true,
            };
            return if could_have_it { Heir::ToCall(ticket) } else { Heir::Nobody };
        }
        let decision = match left {
            Left::Nothing => admit::pass_on(token, &request, terms, &mut self.tokens, now),
            Left::Others(lock) => admit::acquire(lock, &request, Turn::Now, terms, &mut self.tokens, now),
            Left::Predecessor(before) => {
                // A client of the classic pattern had no token, and none is reported.
                let record = before.record(token);
                let lock = State::Expired(record.timestamp, before.token.map(|_| record));
                admit::acquire(lock, &request, Turn::Now, terms, &mut self.tokens, now)
            }
        };
        // If its ID already holds the lock, the timer tells it so: there is nothing to write for it, so the end of the
        // grant would not be written either.
        let decision = decision.ok().filter(|decision| !matches!(decision, Acquire::Keep(_)));
        match decision.and_then(|decision| Decision::to_grant(&decision)) {
            Some((decision, granted)) => Heir::Takes(Successor { ticket, decision, granted, notified }),
            None => Heir::Nobody,
        }
    }

    /// The lock of a line was released, and nobody holds it.
    pub fn came_free(&mut self, queue: QueueId) {
        self.queues.set_held(queue, None);
    }

    /// The lock of a line may have come free: it is checked soon.
    pub fn set_ready(&mut self, queue: QueueId) {
        self.queues.set_ready(queue);
    }

    /// The same for the line of a key.
    pub fn set_key_ready(&mut self, key: KeyName<'_>) {
        if let Some(queue) = self.awaited_queue(key) {
            self.queues.set_ready(queue);
        }
    }

    /// The decision that ends a grant: its predecessor is restored if the grant counts as if it had never been.
    pub fn to_end(token: Token, before: Option<&Before>, is_among_others: bool) -> Decision {
        let Some(before) = before else { return Decision::to_release(token) };
        let holds = if is_among_others { Holds::AsBefore } else { Holds::Alone };
        Decision::to_restore(&before.record(token), holds).giving_back(token)
    }
}
