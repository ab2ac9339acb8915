//! The work outside commands: which lost grants, ended sessions and queues an event-loop iteration handles.

use crate::engine::budget::Budget;
use crate::engine::counters::Counter;
use crate::engine::outstanding::Lost;
use crate::engine::queue::{Cause, QueueId};
use crate::engine::sessions::LockKey;
use crate::engine::{Clock, Engine, KeyName};
use crate::lock::time::{Micros, MonotonicMicros, UnixMicros};
use crate::lock::token::Token;

/// How soon to retry a write that the server does not allow now.
const RETRY: Micros = Micros(20_000);

/// How many lost grants and ended sessions there were when an iteration began. Each is tried once per iteration, so a
/// refused write does not delay the others.
#[derive(Debug)]
pub struct Iteration {
    lost: usize,
    ended: usize,
    /// Whether the server refused to write one.
    is_refused: bool,
}

/// A piece of work.
#[derive(Debug)]
pub enum Task {
    /// Pass on a grant that nobody received.
    PassOn(Lost),
    /// End a grant whose connection ended at this time.
    EndSession((LockKey, Token), UnixMicros),
    /// Check a queue whose lock may have become free.
    Serve(QueueId, Why),
}

/// Why a queue is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// An event happened, or its lock was due.
    Known,
    /// No event is known. The lock was expected to become free at this time, if known.
    Scan(Option<UnixMicros>),
}

impl Why {
    /// Whether a grant shows that a wake-up was missed, given the time after it. Otherwise the lock became due before
    /// its grant, and its timer was about to fire.
    #[must_use]
    pub fn is_missed(self, now: UnixMicros) -> bool {
        matches!(self, Self::Scan(due) if due.is_none_or(|due| due > now))
    }
}

impl<H> Engine<H> {
    /// Begins an event-loop iteration; `None` if there is nothing to do, or not yet.
    pub fn begin_iteration(&mut self, budget: &mut Budget, clock: impl Clock) -> Option<Iteration> {
        // This comes first: locks that stay due would keep firing the timer.
        budget.part(|part| self.queues.set_due_ready(clock.now(), part));
        if self.postponed.is_some_and(|at| at > clock.monotonic()) {
            return None;
        }
        self.postponed = None;
        self.queues.begin_iteration(budget);
        let (lost, ended) = if self.rest_postponed.is_some_and(|at| at > clock.monotonic()) {
            (0, 0)
        } else {
            self.rest_postponed = None;
            (self.outstanding.lost(), self.ended.len())
        };
        let has_work = self.queues.has_ready() || self.outstanding.lost() > 0 || !self.ended.is_empty();
        has_work.then_some(Iteration { lost, ended, is_refused: false })
    }

    /// The next task of an iteration; `None` when everything is done or the budget is spent.
    pub fn next_task(&mut self, iteration: &mut Iteration, budget: &mut Budget) -> Option<Task> {
        if let Some(left) = iteration.lost.checked_sub(1) {
            iteration.lost = left;
            if let Some(lost) = self.outstanding.take_lost() {
                budget.spend_names(1, lost.name().len());
                return Some(Task::PassOn(lost));
            }
            iteration.lost = 0;
        }
        while let Some(left) = iteration.ended.checked_sub(1) {
            if !budget.has_left() {
                return None;
            }
            budget.spend(1);
            iteration.ended = left;
            match self.ended.take() {
                // The grant's reply will fail. Then the grant is passed on, but only if its value is unchanged.
                Some((grant, at)) if self.outstanding.is_on_its_way(grant.1) => self.ended.add(grant, at),
                Some((grant, at)) => return Some(Task::EndSession(grant, at)),
                None => iteration.ended = 0,
            }
        }
        let (queue, cause) = self.queues.take_ready()?;
        budget.spend(1);
        let why = if cause == Cause::Scan { Why::Scan(self.queues.due(queue)) } else { Why::Known };
        Some(Task::Serve(queue, why))
    }

    /// Called when the server refused a task's write: the task is retried after the others.
    pub fn refused_for_now(&mut self, task: Task, iteration: &mut Iteration, clock: impl Clock) {
        match task {
            Task::PassOn(lost) => {
                if let Some(queue) = self.queues.awaited_queue(lost.key()) {
                    self.queues.set_refused(queue, true);
                }
                self.outstanding.lose([lost]);
            }
            Task::EndSession(grant, at) => self.ended.add(grant, at),
            Task::Serve(queue, _) => {
                self.queues.set_refused(queue, true);
                // The queue is not tried again at once, because the ticket at its head would put it first again.
                self.queues.set_due(queue, Some(clock.now().after(RETRY)));
                return;
            }
        }
        iteration.is_refused = true;
    }

    /// Ends an iteration: refused writes are retried soon.
    pub fn end_iteration(&mut self, iteration: &Iteration, clock: impl Clock) {
        if iteration.is_refused {
            self.postpone_rest(clock);
        }
    }

    /// Postpones lost grants and ended sessions for a moment.
    pub(super) fn postpone_rest(&mut self, clock: impl Clock) {
        self.rest_postponed = Some(self.postponed_until(clock));
    }

    /// Postpones writes for a moment, because nothing may be written now. Retrying at once would block the server.
    pub fn postpone(&mut self, clock: impl Clock) {
        self.postponed = Some(self.postponed_until(clock));
    }

    fn postponed_until(&mut self, clock: impl Clock) -> MonotonicMicros {
        self.count(Counter::Postponed);
        clock.monotonic().after(RETRY)
    }

    /// Whether nobody waits or has a place, no lock ends with its connection, and no work is left.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.queues.is_empty()
            && self.claims.is_empty()
            && self.kept.is_empty()
            && self.sessions.is_empty()
            && self.outbox.is_empty()
            && !self.has_leaving()
            && self.ended.is_empty()
            && self.outstanding.lost() == 0
            && !self.gate.is_sweeping()
            && self.waits.are_settled()
    }

    /// Takes up to `most` queues that have to be checked.
    pub fn take_ready(&mut self, most: usize) -> Vec<QueueId> {
        (0..most).map_while(|_| self.queues.take_ready()).map(|(queue, _)| queue).collect()
    }

    /// Finds changes that no timer or event reports: makes every queue ready now and then, some on each tick. If the
    /// server does not report freed keys, all queues become ready on every tick while there are few waiters. Returns
    /// whether a check of all queues has begun.
    pub fn scan(&mut self, now: MonotonicMicros, are_keys_reported: bool) -> bool {
        const FEW_WAITERS: usize = 1_000;
        /// At ten ticks a second, up to 3,000 queues are checked within a second; more queues take longer, because idle
        /// queues must not keep the server busy.
        const MOST_QUEUES: usize = 300;
        let always = !are_keys_reported && self.queues.waiters() <= FEW_WAITERS;
        let begins = always || (self.has_to_scan(now) && !self.queues.is_scanning());
        if begins {
            self.scanned = now;
            self.queues.begin_scan();
        }
        self.queues.scan_on(if always { usize::MAX } else { MOST_QUEUES });
        begins
    }

    /// Whether it is time to check every queue: a change to a lock may have gone unreported.
    pub(in crate::engine) fn has_to_scan(&self, now: MonotonicMicros) -> bool {
        const EVERY: Micros = Micros(900_000);
        now.since(self.scanned) >= EVERY
    }

    /// Called when keys were flushed or swapped: all locks in one or all databases may have become free.
    pub fn all_changed(&mut self, db: Option<i32>) {
        self.queues.set_all_ready(db);
    }

    /// How many changes the server has reported for keys that somebody waits for.
    #[must_use]
    pub const fn reported(&self) -> u64 {
        self.reported
    }

    /// Called when the server reported a change to a key.
    pub fn key_changed(&mut self, key: KeyName<'_>, how: KeyChange) {
        let Some(queue) = self.queues.awaited_queue(key) else { return };
        self.reported = self.reported.wrapping_add(1);
        match how {
            KeyChange::Evicted => self.queues.evicted(queue),
            KeyChange::Gone => {
                // The new holder, if any, is found when the queue is served.
                self.queues.set_held(queue, None);
                self.queues.set_ready(queue);
            }
        }
    }
}

/// A change to a key that the server reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// It was evicted: its lock counts as held until its last holder expires.
    Evicted,
    /// It was deleted, expired or otherwise written.
    Gone,
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
