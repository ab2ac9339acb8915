//! Tells an attempt that waits without a connection that its turn has come, and publishes what such attempts are told.

use super::edge::Edge;
use super::entry::Entry;
use crate::engine::budget::Budget;
use crate::engine::queue::Ticket;
use crate::engine::{Clock, Heir, Heirs, Left, Notified, Successor};
use crate::lock::request::Terms;
use crate::lock::time::{Micros, UnixMicros};
use crate::lock::token::Token;

/// What came of calling an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reached {
    /// It gets the lock, and can claim it.
    Heard(Notified),
    /// It is not there: it has left the queue.
    Unheard,
    /// Nothing is granted to it now: a claim would be refused.
    NotNow,
}

/// How many attempts that are not there a command passes over; the timer goes on.
const MOST_PASSED_OVER: usize = 16;
/// What calling an attempt costs of the budget of keys.
const CALL: usize = 4;
/// How long publishing may take at the end of a call from the server; the rest follows in the next iteration.
const LONGEST: Micros = Micros(1_000);

impl<E: Edge> Entry<'_, E> {
    /// Calls an attempt whose turn has come. One that nobody seems to listen for leaves the queue.
    pub(super) fn call(&mut self, ticket: Ticket, budget: &mut Budget) -> Reached {
        budget.spend(CALL);
        if self.edge.is_out_of_memory() {
            return Reached::NotNow;
        }
        let (limits, clock) = (self.edge.limits(), self.edge.clock());
        let has_ended = self.engine().leave_if_ended(ticket, limits, clock);
        if has_ended {
            return Reached::Unheard;
        }
        let longest = self.edge.grace().and_then(|grace| grace.longest_lease());
        let lease = longest.map_or(limits.claim, |longest| longest.min(limits.claim));
        let call = self.engine().call(ticket, limits, clock);
        // What the server has refused to write is announced once it is written.
        let is_sent = self.edge.may_publish() && !self.engine().queues().is_refused(ticket);
        let has_subscriber = match call {
            // Told after the write, the transaction or the script: then it turns out whether anybody listens.
            Some(_) if !is_sent => true,
            Some(call) => self.edge.publish(&call.notice.channel, &call.notice.message()) || call.is_recent,
            None => false,
        };
        if has_subscriber {
            return Reached::Heard(Notified { ticket, lease, is_sent });
        }
        self.engine().pass_over(ticket, limits, clock);
        Reached::Unheard
    }

    /// The successor in a line: the first waiter that can have the lock and is there, once waits for leases beyond the
    /// grace have ended. `None` also when the budget is spent on others: the timer goes on.
    pub(super) fn successor(
        &mut self,
        heirs: impl Into<Heirs>,
        (token, left): (Token, Left<'_>),
        terms: Terms,
        now: UnixMicros,
        budget: &mut Budget,
    ) -> Option<Successor> {
        let (heirs, mut notified): (Heirs, _) = (heirs.into(), None);
        for _ in 0..MOST_PASSED_OVER {
            // Each time: behind one that is not there, the next may want such a lease.
            if !self.end_leases_beyond_grace(heirs.queue, budget) {
                return None;
            }
            let heir = self.engine().successor(heirs, token, left, terms, notified, now);
            match heir {
                Heir::Takes(successor) => return Some(successor),
                Heir::Nobody => return None,
                Heir::ToCall(_) if !budget.is_left(self.edge.clock()) => return None,
                Heir::ToCall(ticket) => match self.call(ticket, budget) {
                    Reached::Heard(reached) => notified = Some(reached),
                    Reached::Unheard => {}
                    Reached::NotNow => return None,
                },
            }
        }
        None
    }

    /// Publishes messages, unless a transaction or a script is running. It does so for a bounded time.
    #[inline]
    pub(super) fn publish_notices(&mut self) {
        let has_notices = self.engine().outbox().has_notices();
        if has_notices && self.edge.may_publish() {
            self.publish_all();
        }
    }

    fn publish_all(&mut self) {
        let (limits, clock) = (self.edge.limits(), self.edge.clock());
        let begun = clock.monotonic();
        loop {
            let notice = self.engine().outbox().take_notice();
            let Some(notice) = notice else { return };
            let has_subscriber = self.edge.publish(&notice.channel, &notice.message());
            if let Some(claim) = notice.claim.filter(|_| !has_subscriber) {
                self.engine().announcement_lost(claim, limits, clock);
            }
            if self.edge.clock().monotonic().since(begun) >= LONGEST {
                return;
            }
        }
    }
}
