//! A queue's waiters for its lock alone, blocked or notified on a channel, in one order.

use super::Ticket;
use std::collections::BTreeSet;

/// Two sets, so that queries for blocked clients need not skip others.
#[derive(Clone, Debug, Default)]
pub(super) struct Singles {
    blocked: BTreeSet<Ticket>,
    notifiable: BTreeSet<Ticket>,
}

impl Singles {
    pub(super) fn first(&self) -> Option<&Ticket> {
        match (self.blocked.first(), self.notifiable.first()) {
            (Some(blocked), Some(notifiable)) => Some(blocked.min(notifiable)),
            (blocked, notifiable) => blocked.or(notifiable),
        }
    }

    pub(super) fn insert(&mut self, ticket: Ticket, has_channel: bool) {
        if has_channel {
            self.notifiable.insert(ticket);
        } else {
            self.blocked.insert(ticket);
        }
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> bool {
        self.blocked.remove(&ticket) || self.notifiable.remove(&ticket)
    }

    pub(super) fn contains(&self, ticket: Ticket) -> bool {
        self.blocked.contains(&ticket) || self.notifiable.contains(&ticket)
    }

    pub(super) fn len(&self) -> usize {
        self.blocked.len().saturating_add(self.notifiable.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocked.is_empty() && self.notifiable.is_empty()
    }

    pub(super) const fn blocked(&self) -> &BTreeSet<Ticket> {
        &self.blocked
    }

    /// The waiters that are notified on a channel.
    pub(super) const fn notifiable(&self) -> &BTreeSet<Ticket> {
        &self.notifiable
    }
}
