//! Notifies attempts that wait without a connection when they are granted their locks, and publishes all messages to
//! them.

use super::edge::Edge;
use super::entry::Entry;
use crate::engine::budget::Budget;
use crate::engine::queue::Ticket;
use crate::engine::{Clock, Notification, Notified};
use crate::lock::time::Micros;

/// What a notification costs, counted in keys of the budget.
const COST: usize = 4;
/// How long publishing may take at the end of an entry from the server; the rest follows in the next iteration.
const LONGEST: Micros = Micros(1_000);

impl<E: Edge> Entry<'_, E> {
    /// Notifies an attempt that could have the lock. If it has no subscriber, it leaves the queue and the result is
    /// `None`. Must not be called when memory is short: the claim would be refused.
    pub(super) fn notify(&mut self, ticket: Ticket, budget: &mut Budget) -> Option<Notified> {
        budget.spend(COST);
        let (limits, clock) = (self.edge.limits(), self.edge.clock());
        let has_ended = self.engine().leave_if_ended(ticket, limits, clock);
        if has_ended {
            return None;
        }
        let longest = self.edge.grace().and_then(|grace| grace.longest_lease());
        let lease = longest.map_or(limits.claim, |longest| longest.min(limits.claim));
        let notification = self.engine().notification(ticket, limits, clock);
        // A grant whose key the server has refused to write is announced once the key is written.
        let is_sent = self.edge.may_publish() && !self.engine().queues().is_refused(ticket);
        let has_subscriber = match notification {
            // Sent after the write, the transaction or the script; only then is it known whether the channel has a
            // subscriber.
            Some(_) if !is_sent => true,
            Some(Notification { notice, is_recent }) => {
                self.edge.publish(&notice.channel, &notice.message()) || is_recent
            }
            None => false,
        };
        if !has_subscriber {
            self.engine().pass_over(ticket, limits, clock);
        }
        has_subscriber.then_some(Notified { ticket, lease, is_sent })
    }

    /// Publishes messages for a bounded time, unless a transaction or a script is running.
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
