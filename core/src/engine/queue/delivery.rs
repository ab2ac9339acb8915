//! Attempts that leave a queue together, with the result of the lock's holder.

use super::Ticket;
use crate::engine::result::LockResult;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Attempts that have left their queue with a result, and are still to be removed.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) result: Rc<LockResult>,
    /// Blocked clients, attempts that are notified on a channel, and reserved places.
    pub(super) tickets: [BTreeSet<Ticket>; 3],
}

impl Delivery {
    /// Those that are notified on a channel.
    pub(super) const fn notifiable(&self) -> &BTreeSet<Ticket> {
        let [_, notifiable, _] = &self.tickets;
        notifiable
    }

    pub(super) fn contains(&self, ticket: Ticket) -> bool {
        self.tickets.iter().any(|tickets| tickets.contains(&ticket))
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> bool {
        self.tickets.iter_mut().any(|tickets| tickets.remove(&ticket))
    }

    pub(super) fn first(&self) -> Option<Ticket> {
        self.tickets.iter().find_map(|tickets| tickets.first().copied())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tickets.iter().all(BTreeSet::is_empty)
    }
}
