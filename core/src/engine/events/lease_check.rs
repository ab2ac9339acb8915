//! Ends waits for leases that the grace does not cover, after the grace was set or shortened while clients waited.

use crate::engine::budget::Budget;
use crate::engine::gate::Sweep;
use crate::engine::queue::{QueueId, Ticket};
use crate::engine::Engine;
use crate::lock::error::Error;
use crate::lock::grace;

impl<H> Engine<H> {
    /// Ends waits at the head of a queue for leases that the grace does not cover, because the grace was set after they
    /// began. Returns whether the budget was enough for all of them: if not, the head must not get the lock.
    pub fn end_leases_beyond_grace(&mut self, queue: QueueId, grace: &grace::Settings, budget: &mut Budget) -> bool {
        while let Some(Err(error)) = self.queues.head(queue).map(|head| grace.check(head.lease)) {
            if !budget.has_left() {
                return false;
            }
            let Some((ticket, keys)) = self.queues.head_keys(queue) else { return true };
            budget.spend_on_waiter(&keys);
            self.end_wait(ticket, error);
        }
        true
    }

    /// Ends the wait for a lease that the grace does not cover, if the budget allows it. Returns whether it did.
    pub fn end_too_long(&mut self, ticket: Ticket, error: Error, budget: &mut Budget) -> bool {
        if !budget.has_left() {
            return false;
        }
        if let Some((_, keys)) = self.queues.keys(ticket) {
            budget.spend_on_waiter(&keys);
        }
        self.end_wait(ticket, error);
        true
    }

    /// Continues a check of all waiters for leases that the grace does not cover.
    pub fn sweep_leases(&mut self, grace: &grace::Settings, budget: &mut Budget) {
        let from = match self.gate.sweep {
            Sweep::Done => return,
            Sweep::Begins => None,
            Sweep::GoesOn(deadline) => Some(deadline),
        };
        let (found, next) = budget.part(|part| self.queues.walk(from, part, |waiter| grace.check(waiter.lease).err()));
        self.gate.sweep = next.map_or(Sweep::Done, Sweep::GoesOn);
        for (ticket, error) in found {
            self.end_wait(ticket, error);
        }
    }
}
