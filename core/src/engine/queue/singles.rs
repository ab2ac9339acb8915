//! A queue's waiters for its lock alone, blocked or notified on a channel, in one order.

use super::tickets::{earlier, Tickets};
use super::Ticket;

/// Kept apart, so that queries for blocked clients need not skip others.
#[derive(Clone, Debug, Default)]
pub(super) struct Singles {
    blocked: Tickets,
    notifiable: Tickets,
}

impl Singles {
    pub(super) fn first(&self) -> Option<&Ticket> {
        earlier(self.blocked.first(), self.notifiable.first())
    }

    /// The first that stays when those that want the result leave: blocked clients only, or all of them.
    pub(super) fn first_without_result(&self, all: bool) -> Option<&Ticket> {
        let notifiable = if all { self.notifiable.first_plain() } else { self.notifiable.first() };
        earlier(self.blocked.first_plain(), notifiable)
    }

    pub(super) fn insert(&mut self, ticket: Ticket, has_channel: bool, wants_result: bool) {
        let tickets = if has_channel { &mut self.notifiable } else { &mut self.blocked };
        tickets.insert(ticket, wants_result);
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> bool {
        self.blocked.remove(ticket) || self.notifiable.remove(ticket)
    }

    pub(super) fn contains(&self, ticket: Ticket) -> bool {
        self.blocked.contains(ticket) || self.notifiable.contains(ticket)
    }

    pub(super) fn len(&self) -> usize {
        self.blocked.len().saturating_add(self.notifiable.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocked.is_empty() && self.notifiable.is_empty()
    }

    pub(super) const fn blocked(&self) -> &Tickets {
        &self.blocked
    }

    /// The waiters that are notified on a channel.
    pub(super) const fn notifiable(&self) -> &Tickets {
        &self.notifiable
    }

    pub(super) const fn both(&mut self) -> [&mut Tickets; 2] {
        [&mut self.blocked, &mut self.notifiable]
    }
}
