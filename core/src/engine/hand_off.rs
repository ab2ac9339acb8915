//! The hand-off: a grant ends, and the lock goes to the first waiter or comes free.

use super::counters::Counter;
use super::grant::{Before, Decision, Granted};
use super::parts::{Engine, KeyName};
use super::queue::{LineId, Ticket};
use crate::lock::record::Record;
use crate::lock::rules::{self, Acquire, Holds, Release, State, Terms};
use crate::lock::time::UnixMicros;
use crate::lock::token::Token;

/// The rest of a lock after a grant has ended.
#[derive(Clone, Copy, Debug)]
pub enum Left<'a> {
    /// Nothing: it was the only grant.
    Nothing,
    /// Other holders, live or expired.
    Others(State<'a>),
    /// The predecessor of a lost grant: it is restored.
    Predecessor(Record<'a>),
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

    /// A grant was given back: later tokens are larger.
    pub fn given_back(&mut self, token: Token, now: UnixMicros) {
        self.tokens.given_back(now, token);
    }

    /// The line of a key, if somebody waits in it.
    #[must_use]
    pub fn waited_line(&self, key: KeyName<'_>) -> Option<LineId> {
        if self.queues.is_empty() {
            return None;
        }
        self.queues.waited_line(key.db, key.name)
    }

    /// The successor in a line: the first waiter, if it waits for this lock alone and can have it.
    pub fn successor(
        &mut self,
        line: LineId,
        token: Token,
        left: Left<'_>,
        terms: Terms,
        now: UnixMicros,
    ) -> Option<Successor> {
        let (ticket, head) = self.queues.single_head(line)?;
        let request = head.request();
        let decision = match left {
            Left::Nothing => rules::pass_on(token, &request, terms, &mut self.tokens, now),
            Left::Others(lock) => rules::acquire(lock, &request, rules::Turn::Now, terms, &mut self.tokens, now),
            Left::Predecessor(record) => {
                let lock = State::Expired(record.timestamp, Some(record));
                rules::acquire(lock, &request, rules::Turn::Now, terms, &mut self.tokens, now)
            }
        };
        // If its ID already holds the lock, the timer tells it so: there is nothing to write for it, so the end of the
        // grant would not be written either.
        let decision = decision.ok().filter(|decision| !matches!(decision, Acquire::Keep(_)))?;
        let (decision, granted) = Decision::to_grant(&decision)?;
        Some(Successor { ticket, decision, granted })
    }

    /// The lock of a line may have come free: it is checked soon.
    pub fn set_ready(&mut self, line: LineId) {
        self.queues.set_ready(line);
    }

    /// The same for the line of a key.
    pub fn set_key_ready(&mut self, key: KeyName<'_>) {
        if let Some(line) = self.waited_line(key) {
            self.queues.set_ready(line);
        }
    }

    /// The decision that restores the predecessor of a lost grant.
    pub fn to_restore(before: &Before, token: Token, lock: State<'_>) -> Decision {
        let holds = match lock {
            State::Several(holders) if !holders.is_empty() => Holds::AsBefore,
            _ => Holds::Alone,
        };
        Decision::to_restore(&before.record(token), holds)
    }
}
