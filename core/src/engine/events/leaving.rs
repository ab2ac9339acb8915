//! Waiters that leave a piece at a time, because there can be many: all waiters of a server that became a replica, a
//! queue whose slot moved away, a cancelled channel or an ended connection. Such a connection's locks end a piece at a
//! time too.

use super::end_wait::End;
use crate::engine::budget::Budget;
use crate::engine::counters::Counter;
use crate::engine::queue::{Ended, MostPlaces, Ticket};
use crate::engine::{Clock, Engine, KeyName, Limits};
use crate::lock::error::Error;

impl<H> Engine<H> {
    /// Refills the budget of events.
    pub fn renew_events(&mut self) {
        self.events = Budget::EVENTS;
    }

    /// Removes waiters that are no longer served, and the rest of an earlier reign, until the budget is spent.
    pub fn leave_unserved(&mut self, budget: &mut Budget) {
        budget.part(|part| self.leftovers.drop_piece(part));
        budget.part(|part| while part.has_left() && self.leave_one_unserved(part) {});
    }

    /// Removes one waiter that is no longer served. Returns whether there was one.
    fn leave_one_unserved(&mut self, budget: &mut Budget) -> bool {
        let (gone, error) = if let Some(gone) = self.queues.next_lost() {
            (gone, Error::SlotLost)
        } else if let Some(dissolving) = self.dissolving.last_mut() {
            let Some(gone) = dissolving.next_of_all() else {
                self.dissolving.pop();
                return !self.dissolving.is_empty();
            };
            (gone, Error::Demoted)
        } else {
            return false;
        };
        let (keys, gone) = gone;
        budget.spend_on_waiter(&keys);
        if let Some(gone) = gone {
            self.end(gone, End::Failed(error));
        }
        true
    }

    /// Removes attempts that were cancelled with their channel, or whose connection has ended, until the budget is
    /// spent. Notes such a connection's locks, so that they end soon.
    pub fn leave_ended(&mut self, budget: &mut Budget, limits: Limits, clock: impl Clock) {
        budget.part(|part| {
            while part.has_left() {
                let Some((grant, at)) = self.sessions.next_over() else { break };
                part.spend_names(1, grant.0 .1.len());
                self.ended.add(grant, at);
            }
        });
        budget.part(|part| {
            while part.has_left() {
                if let Some((ticket, how)) = self.queues.next_ended() {
                    if let Some((_, keys)) = self.queues.keys(ticket) {
                        part.spend_on_waiter(&keys);
                    }
                    self.leave_as(ticket, how, limits, clock);
                } else if let Some(ticket) = self.claims.next_over() {
                    self.leave_unclaimed(ticket, part, limits, clock);
                } else {
                    break;
                }
            }
        });
    }

    /// Removes an attempt if it has ended. Returns whether it has.
    pub fn leave_if_ended(&mut self, ticket: Ticket, limits: Limits, clock: impl Clock) -> bool {
        let ended = self.queues.ended(ticket);
        if let Some(how) = ended {
            self.leave_as(ticket, how, limits, clock);
        }
        ended.is_some()
    }

    fn leave_as(&mut self, ticket: Ticket, how: Ended, limits: Limits, clock: impl Clock) {
        let until = limits.reserved_until(clock);
        if how == Ended::Disconnected {
            let gone = self.queues.end_wait(ticket, until, limits.most_places());
            self.not_kept(gone);
            return;
        }
        let key = self.queues.queue_of_ticket(ticket).and_then(|queue| self.queues.key(queue));
        let Some(gone) = self.queues.end_wait(ticket, None, MostPlaces::NONE) else { return };
        if gone.result.is_none() {
            if let (Some((db, name)), Some(id), Some(until)) = (key, gone.waiter.id, until) {
                self.queues.bar(KeyName { db, name: &name }, id, until, limits.most_places());
            }
            self.count(Counter::Cancels);
        }
        self.end(gone, End::Cancelled);
    }

    /// Whether attempts or leftovers are being removed a piece at a time.
    #[must_use]
    pub fn has_leaving(&self) -> bool {
        let is_dissolving = !self.dissolving.is_empty() || !self.leftovers.is_empty();
        is_dissolving || self.queues.has_leaving() || self.claims.has_over() || self.sessions.has_over()
    }
}

#[cfg(test)]
#[path = "leaving_tests.rs"]
mod tests;
