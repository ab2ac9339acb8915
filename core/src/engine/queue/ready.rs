//! When locks with waiters become free, and who is next.

use super::{Cause, Leaving, QueueId, Queues, Ticket, Waiter};
use crate::engine::budget::Budget;
use crate::lock::time::{MonotonicMicros, UnixMicros};

/// How many parked waiters are tried when a key becomes free. After that, the waiters behind them are served, and the
/// rest are tried in later iterations.
pub const MOST_TRIED: usize = 128;

/// The waiters of a queue that can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// All of them.
    All,
    /// The blocked clients.
    Blocked,
    /// The head, if it waits for this lock alone.
    Head(Leaving),
}

/// The waiter that is considered next.
#[derive(Debug)]
pub enum Candidate<'a, H> {
    /// It waits for this lock alone.
    Single(Ticket, &'a Waiter<H>),
    /// It waits for other locks too.
    Parked(Ticket),
}

impl<H> Queues<H> {
    /// Sets when a queue's lock becomes free on its own; `None` means unknown.
    pub fn set_due(&mut self, id: QueueId, due: Option<UnixMicros>) {
        let Some(queue) = self.by_id.get_mut(&id) else { return };
        if queue.due == due || queue.is_lost || !queue.is_waited_for() {
            return;
        }
        if let Some(due) = queue.due {
            self.dues.remove(&(due, id));
        }
        if let Some(due) = due {
            self.dues.insert((due, id));
        }
        queue.due = due;
    }

    /// When a queue's lock becomes free on its own, if known.
    #[must_use]
    pub fn due(&self, id: QueueId) -> Option<UnixMicros> {
        self.by_id.get(&id)?.due
    }

    /// Notes that a queue's lock may become free on its own as early as `due`.
    pub fn set_due_by(&mut self, id: QueueId, due: UnixMicros) {
        let known = self.by_id.get(&id).and_then(|queue| queue.due);
        self.set_due(id, Some(known.map_or(due, |known| known.min(due))));
    }

    /// Sets when the last holder of a queue's lock expires; `None` means unknown.
    pub fn set_last_end(&mut self, id: QueueId, end: Option<UnixMicros>) {
        if let Some(queue) = self.by_id.get_mut(&id) {
            queue.last_end = end;
        }
    }

    /// Notes that one of several holders expires at `end`.
    pub fn set_last_end_after(&mut self, id: QueueId, end: UnixMicros) {
        if let Some(queue) = self.by_id.get_mut(&id) {
            queue.last_end = queue.last_end.max(Some(end));
        }
    }

    /// Called when a queue's key was evicted: its lock counts as held until the last holder seen expires.
    pub fn evicted(&mut self, id: QueueId) {
        if let Some(queue) = self.by_id.get_mut(&id) {
            queue.evicted_until = queue.last_end.max(queue.due);
        }
    }

    /// Notes that the server refused to write a queue's key, or has written it.
    pub fn set_refused(&mut self, id: QueueId, is_refused: bool) {
        if let Some(queue) = self.by_id.get_mut(&id) {
            queue.is_refused = is_refused;
        }
    }

    /// Called when a queue's key was seen: an earlier eviction no longer matters.
    pub fn seen(&mut self, id: QueueId) {
        if let Some(queue) = self.by_id.get_mut(&id) {
            queue.evicted_until = None;
        }
    }

    /// The time until which a queue's lock counts as held because its key was evicted.
    #[must_use]
    pub fn evicted_until(&self, id: QueueId) -> Option<UnixMicros> {
        self.by_id.get(&id)?.evicted_until
    }

    /// Called when a queue's lock may have become free: the queue has to be served.
    pub fn set_ready(&mut self, id: QueueId) {
        let Some(head) = self.by_id.get(&id).and_then(|queue| queue.head()) else { return };
        self.set_ready_from(id, Some(head));
        if let Some(queue) = self.by_id.get_mut(&id) {
            queue.cause = Cause::Event;
            queue.tried = 0;
        }
    }

    /// Called when others in a queue may be able to have its lock too. They are served in turn, after earlier tickets
    /// of other queues.
    pub fn go_on(&mut self, id: QueueId) {
        let head = self.by_id.get(&id).filter(|queue| queue.ready.is_none()).and_then(|queue| queue.head());
        if head.is_some() {
            self.set_ready_from(id, head);
        }
    }

    fn set_ready_from(&mut self, id: QueueId, from: Option<Ticket>) {
        let Some(queue) = self.by_id.get_mut(&id).filter(|queue| !queue.is_lost) else { return };
        if let Some(before) = std::mem::replace(&mut queue.ready, from) {
            self.ready.remove(&(before, id));
        }
        if let Some(from) = from {
            self.ready.insert((from, id));
        }
    }

    /// The next waiter of a queue to consider: any if nobody holds the lock, otherwise only one that may share it. A
    /// parked waiter counts as tried; if too many have been tried, the rest follow in the next iteration.
    pub fn candidate(&mut self, id: QueueId, is_nobodys: bool, of: Of) -> Option<Candidate<'_, H>> {
        let queue = self.by_id.get_mut(&id)?;
        let (single, parked) = match of {
            Of::All => (queue.single.first(), queue.parked.first()),
            Of::Blocked => {
                let is_blocked = |ticket: &&Ticket| {
                    let waiter = self.entries.get(ticket).and_then(|entry| entry.waiter());
                    waiter.is_some_and(|waiter| waiter.client().is_some())
                };
                (queue.single.blocked().first(), queue.parked.iter().take(MOST_TRIED).find(is_blocked))
            }
            Of::Head(leaving) => {
                let head = queue.head_but(leaving).filter(|head| queue.single.contains(*head))?;
                return Some(Candidate::Single(head, self.entries.get(&head)?.waiter()?));
            }
        };
        // An earlier waiter for this lock alone holds it up, whether or not that waiter can be served.
        let held_up_from = queue.single.first();
        let parked = parked.filter(|parked| is_nobodys && held_up_from.is_none_or(|first| *parked < first));
        let (single, parked) = (single.copied(), parked.copied());
        match (parked, single) {
            (Some(parked), _) if queue.tried < MOST_TRIED => {
                queue.tried = queue.tried.saturating_add(1);
                Some(Candidate::Parked(parked))
            }
            (Some(_), None) => {
                self.later.insert(id);
                None
            }
            (_, Some(single)) => Some(Candidate::Single(single, self.entries.get(&single)?.waiter()?)),
            (None, None) => None,
        }
    }

    /// Begins an event-loop iteration: continues with the queues that had too many waiters to try in the last one.
    pub fn begin_iteration(&mut self, budget: &mut Budget) {
        budget.part(|part| self.flush_on(part));
        for id in std::mem::take(&mut self.later) {
            budget.spend(1);
            if let Some(queue) = self.by_id.get_mut(&id).filter(|queue| queue.ready.is_none()) {
                queue.cause = Cause::Continue;
                queue.tried = 0;
                let head = queue.head();
                self.set_ready_from(id, head);
            }
        }
    }

    /// Called when all locks of one or all databases may have become free. If there are many queues, they become ready
    /// a piece at a time.
    pub fn set_all_ready(&mut self, db: Option<i32>) {
        self.flushed.insert(db, QueueId(0));
        let mut budget = Budget::COMMAND;
        self.flush_on(&mut budget);
    }

    fn flush_on(&mut self, budget: &mut Budget) {
        let Some((db, mut from)) = self.flushed.pop_first() else { return };
        while budget.has_left() {
            let Some((QueueId(number), own)) = self.by_id.range(from..).next().map(|(id, queue)| (*id, queue.db))
            else {
                return;
            };
            from = QueueId(number.saturating_add(1));
            budget.spend(1);
            if db.is_none_or(|db| db == own) {
                self.set_ready(QueueId(number));
            }
        }
        self.flushed.insert(db, from);
    }

    /// Begins a check of all queues with waiters, because a change to a key may have gone unreported.
    pub fn begin_scan(&mut self) {
        self.scan = Some((MonotonicMicros(0), QueueId(0)));
    }

    /// Continues the check with at most `most` queues. It passes over queues that have only places: there can be a
    /// hundred thousand of them.
    pub fn scan_on(&mut self, most: usize) {
        let Some(from) = self.scan.take() else { return };
        let mut rest = self.waiting_since.range(from..).copied();
        let piece: Vec<QueueId> = rest.by_ref().take(most).map(|(_, id)| id).collect();
        self.scan = rest.next();
        for id in piece {
            let Some(queue) = self.by_id.get_mut(&id).filter(|queue| queue.ready.is_none()) else { continue };
            let Some(head) = queue.head() else { continue };
            queue.cause = Cause::Scan;
            queue.tried = 0;
            self.set_ready_from(id, Some(head));
        }
    }

    /// Whether a check of all queues is under way.
    #[must_use]
    pub const fn is_scanning(&self) -> bool {
        self.scan.is_some()
    }

    /// Makes ready the queues whose locks are due at `now`, until the budget is spent. The rest stay due for the next
    /// iteration.
    pub fn set_due_ready(&mut self, now: UnixMicros, budget: &mut Budget) {
        while budget.has_left() {
            let Some((_, queue)) = self.dues.first().copied().filter(|(due, _)| *due <= now) else { return };
            budget.spend(1);
            self.set_due(queue, None);
            self.set_ready(queue);
        }
    }

    /// Takes the ready queue with the earliest ticket, and why it has to be served.
    pub fn take_ready(&mut self) -> Option<(QueueId, Cause)> {
        loop {
            let (from, id) = *self.ready.first()?;
            let queue = self.by_id.get(&id)?;
            let (head, cause) = (queue.head(), queue.cause);
            if head.is_none_or(|head| head <= from) {
                self.set_ready_from(id, None);
                return Some((id, cause));
            }
            // Its first waiter has left since then, so waiters of other queues may come before the next one.
            self.set_ready_from(id, head);
        }
    }

    /// Whether a queue has to be served.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.later.is_empty() || !self.flushed.is_empty()
    }

    /// When the next wait or place ends.
    #[must_use]
    pub fn next_end(&self) -> Option<MonotonicMicros> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// When the next lock with waiters becomes free on its own.
    #[must_use]
    pub fn next_due(&self) -> Option<UnixMicros> {
        self.dues.first().map(|(due, _)| *due)
    }
}
