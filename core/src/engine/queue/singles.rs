//! The waiters of a line for its lock alone, blocked or told on a channel, in one order.

use super::Ticket;
use std::collections::BTreeSet;

/// Two sets, so that a question about blocked clients passes over no others.
#[derive(Clone, Debug, Default)]
pub(super) struct Singles {
    blocked: BTreeSet<Ticket>,
    told: BTreeSet<Ticket>,
}

impl Singles {
    pub(super) fn first(&self) -> Option<&Ticket> {
        match (self.blocked.first(), self.told.first()) {
            (Some(blocked), Some(told)) => Some(blocked.min(told)),
            (blocked, told) => blocked.or(told),
        }
    }

    pub(super) fn insert(&mut self, ticket: Ticket, is_told: bool) {
        if is_told {
            self.told.insert(ticket);
        } else {
            self.blocked.insert(ticket);
        }
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> bool {
        self.blocked.remove(&ticket) || self.told.remove(&ticket)
    }

    pub(super) fn contains(&self, ticket: Ticket) -> bool {
        self.blocked.contains(&ticket) || self.told.contains(&ticket)
    }

    pub(super) fn len(&self) -> usize {
        self.blocked.len().saturating_add(self.told.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocked.is_empty() && self.told.is_empty()
    }

    /// The blocked ones.
    pub(super) const fn blocked(&self) -> &BTreeSet<Ticket> {
        &self.blocked
    }

    /// Those that are told on a channel.
    pub(super) const fn told(&self) -> &BTreeSet<Ticket> {
        &self.told
    }
}
