//! A holder releases its lock with a result: every attempt in the queue that wants it leaves with it, and the next of
//! the others gets the lock.

use crate::engine::budget::Budget;
use crate::engine::counters::Counter;
use crate::engine::outbox::{Answer, News, Notice};
use crate::engine::queue::{Gone, Handle, Keys, Leaving, MostPlaces, Ticket, Waiter};
use crate::engine::result::LockResult;
use crate::engine::{Clock, Engine, KeyName, Limits};
use crate::lock::record::Id;
use crate::lock::time::MonotonicMicros;
use std::rc::Rc;

impl<H> Engine<H> {
    /// A result for the attempts of a key that want it, and which of them will leave with it; `None` if there are none.
    /// While memory is short, nothing can be kept for attempts that are not blocked: they stay.
    pub fn result_for(
        &mut self,
        key: KeyName<'_>,
        bytes: &[u8],
        is_out_of_memory: bool,
        limits: Limits,
        clock: impl Clock,
    ) -> Option<(Rc<LockResult>, Leaving)> {
        if !self.queues.wants_result(key) {
            return None;
        }
        let until = clock.monotonic().after(limits.claim);
        let result = self.kept.result(key, bytes, until);
        let unblocked = self.queues.unblocked_for_result(key);
        let all = unblocked == 0 || !is_out_of_memory && self.kept.has_room(&result, unblocked);
        Some((result, Leaving::Wanting { all }))
    }

    /// Called when the holder has released its lock with a result: the attempts in `leaving` leave the queue.
    pub fn share_result(&mut self, key: KeyName<'_>, result: Rc<LockResult>, leaving: Leaving) {
        self.queues.share_result(key, result, leaving == Leaving::Wanting { all: true });
        let mut budget = Budget::COMMAND;
        self.deliver_results(&mut budget);
    }

    /// Removes attempts that have left with a result, and sends it to them, until the budget is spent.
    pub fn deliver_results(&mut self, budget: &mut Budget) {
        while budget.has_left() {
            let Some(ticket) = self.queues.next_result() else { return };
            budget.spend(1);
            self.deliver_result(ticket);
        }
    }

    /// Sends an attempt its result now, if it has left with one: a command of the attempt is about to be carried out.
    pub fn deliver_result_to(&mut self, key: KeyName<'_>, id: Id) {
        if let Some(ticket) = self.queues.ticket_with_result(key, id) {
            self.deliver_result(ticket);
        }
    }

    fn deliver_result(&mut self, ticket: Ticket) {
        let gone = self.queues.end_wait(ticket, None, MostPlaces::NONE);
        if let Some(Gone { waiter, keys, result: Some(result), .. }) = gone {
            self.ended_with(result, waiter, keys);
        } else if let Some((id, result)) = self.queues.take_place_with_result(ticket) {
            self.kept.keep(id, result);
        }
    }

    /// Answers a waiter that left the queue with a result.
    pub(super) fn ended_with(&mut self, result: Rc<LockResult>, waiter: Waiter<H>, keys: Option<Keys>) {
        self.count(Counter::Results);
        self.waits.has_ended_well(waiter.since);
        match waiter.handle {
            Handle::Blocked { handle, .. } => self.outbox.put(handle, Answer::Result(result)),
            Handle::Channel { channel, .. } => {
                if let (Some(id), Some(keys)) = (waiter.id, keys) {
                    self.kept.keep(id, result);
                    self.outbox.announce(Notice { channel, news: News::Result, id, keys, claim: None });
                }
            }
        }
    }

    /// Called when a blocked client disconnected that had left with a result: its attempt can ask for it again.
    pub(super) fn keep_result_of(&mut self, id: Option<Id>, result: Option<&Rc<LockResult>>) {
        if let Some((id, result)) = id.zip(result) {
            if self.kept.has_room(result, 1) {
                self.kept.keep(id, Rc::clone(result));
            }
        }
    }

    /// The result that is kept for an attempt.
    #[must_use]
    pub fn kept_result(&self, key: KeyName<'_>, id: Id, clock: impl Clock) -> Option<Rc<LockResult>> {
        if self.kept.is_empty() {
            return None;
        }
        self.kept.get(key, id, clock.monotonic())
    }

    /// Forgets results whose time is over, until the budget is spent.
    pub fn forget_results(&mut self, now: MonotonicMicros, budget: &mut Budget) {
        while budget.has_left() && self.kept.forget_due(now) {
            budget.spend(1);
        }
    }
}
