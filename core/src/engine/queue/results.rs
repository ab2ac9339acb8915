//! Attempts that get a holder's result instead of its lock. They leave the queue all at once, when the holder releases
//! the lock, and are removed a piece at a time.

use super::delivery::Delivery;
use super::{Queue, Queues, Ticket};
use crate::engine::key_name::KeyName;
use crate::engine::result::LockResult;
use crate::lock::record::Id;
use crate::lock::request::Share;
use std::collections::BTreeSet;
use std::rc::Rc;

impl Queue {
    /// Removes a ticket from the deliveries. Returns the result that its attempt gets.
    pub(super) fn take_delivery(&mut self, ticket: Ticket) -> Option<Rc<LockResult>> {
        let at = self.deliveries.iter_mut().position(|delivery| delivery.remove(ticket))?;
        let delivery = self.deliveries.get(at)?;
        let result = Rc::clone(&delivery.result);
        if delivery.is_empty() {
            self.deliveries.remove(at);
        }
        Some(result)
    }
}

impl<H> Queues<H> {
    /// Whether any of a key's attempts want the result.
    #[must_use]
    pub fn wants_result(&self, key: KeyName<'_>) -> bool {
        let blocked = self.queue_of(key).map_or(0, |queue| queue.single.blocked().wanting());
        blocked > 0 || self.unblocked_for_result(key) > 0
    }

    /// How many of them are not blocked: it has to be kept for them.
    #[must_use]
    pub fn unblocked_for_result(&self, key: KeyName<'_>) -> usize {
        let queue = self.queue_of(key);
        queue.map_or(0, |queue| queue.single.notifiable().wanting().saturating_add(queue.places.wanting()))
    }

    /// Called when a key's holder released it with a result: the attempts that want it leave the queue. Without `all`,
    /// only blocked clients do.
    pub fn share_result(&mut self, key: KeyName<'_>, result: Rc<LockResult>, all: bool) {
        let Some(id) = self.queue(key) else { return };
        let Some(queue) = self.by_id.get_mut(&id) else { return };
        let [blocked, notifiable] = queue.single.both();
        let tickets = if all {
            [blocked.take_wanting(), notifiable.take_wanting(), queue.places.take_wanting()]
        } else {
            [blocked.take_wanting(), BTreeSet::new(), BTreeSet::new()]
        };
        let delivery = Delivery { result, tickets };
        if delivery.is_empty() {
            return;
        }
        queue.deliveries.push_back(delivery);
        self.delivering.insert(id);
        // Those that left may have held up others.
        let next = queue.single.first().copied();
        let has_parked = !queue.parked.is_empty();
        let shares = next.and_then(|next| self.waiter(next)).is_some_and(|next| next.share != Share::Alone);
        if has_parked || shares {
            self.set_ready(id);
        }
        self.relist(id);
        self.tidy(id);
    }

    /// The next attempt that gets a result, to be removed.
    pub fn next_result(&mut self) -> Option<Ticket> {
        while let Some(id) = self.delivering.first().copied() {
            let delivery = self.by_id.get(&id).and_then(|queue| queue.deliveries.front());
            if let Some(ticket) = delivery.and_then(Delivery::first) {
                return Some(ticket);
            }
            self.delivering.remove(&id);
        }
        None
    }

    /// Whether attempts are still to get their results.
    #[must_use]
    pub fn has_results(&self) -> bool {
        !self.delivering.is_empty()
    }

    /// The ticket of an attempt that gets a result, if it is still to be removed.
    #[must_use]
    pub fn ticket_with_result(&self, key: KeyName<'_>, id: Id) -> Option<Ticket> {
        if !self.has_results() {
            return None;
        }
        let ticket = *self.queue_of(key)?.ids.get(&id)?;
        self.gets_result(ticket).then_some(ticket)
    }

    /// Whether a waiter gets a result, and no longer waits for the lock.
    #[must_use]
    pub fn gets_result(&self, ticket: Ticket) -> bool {
        let queue = || self.by_id.get(&self.queue_of_ticket(ticket)?);
        self.has_results()
            && queue().is_some_and(|queue| queue.deliveries.iter().any(|delivery| delivery.contains(ticket)))
    }

    /// Removes a reserved place whose attempt gets a result. Returns its attempt, and the result.
    pub fn take_place_with_result(&mut self, ticket: Ticket) -> Option<(Id, Rc<LockResult>)> {
        let removed = self.remove(ticket)?;
        Some((removed.entry.id()?, removed.result?))
    }
}
