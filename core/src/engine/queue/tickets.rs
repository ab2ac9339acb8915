//! Tickets in order of arrival. Those whose attempts want the result of the lock's holder can leave all at once.

use super::Ticket;
use std::collections::BTreeSet;

/// Two sets, so that taking out everyone who wants the result costs the same whatever their number.
#[derive(Clone, Debug, Default)]
pub(super) struct Tickets {
    plain: BTreeSet<Ticket>,
    /// Those whose attempts want the result.
    wanting: BTreeSet<Ticket>,
}

impl Tickets {
    pub(super) fn first(&self) -> Option<&Ticket> {
        earlier(self.plain.first(), self.wanting.first())
    }

    /// The first that does not want the result.
    pub(super) fn first_plain(&self) -> Option<&Ticket> {
        self.plain.first()
    }

    pub(super) fn insert(&mut self, ticket: Ticket, wants_result: bool) {
        if wants_result {
            self.wanting.insert(ticket);
        } else {
            self.plain.insert(ticket);
        }
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> bool {
        self.plain.remove(&ticket) || self.wanting.remove(&ticket)
    }

    pub(super) fn contains(&self, ticket: Ticket) -> bool {
        self.plain.contains(&ticket) || self.wanting.contains(&ticket)
    }

    pub(super) fn len(&self) -> usize {
        self.plain.len().saturating_add(self.wanting.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.wanting.is_empty()
    }

    /// How many want the result.
    pub(super) fn wanting(&self) -> usize {
        self.wanting.len()
    }

    /// Removes those that want the result.
    pub(super) fn take_wanting(&mut self) -> BTreeSet<Ticket> {
        std::mem::take(&mut self.wanting)
    }

    /// All of them, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Ticket> {
        in_order([&self.plain, &self.wanting])
    }

    /// The sets, for [`in_order`].
    pub(super) const fn sets(&self) -> [&BTreeSet<Ticket>; 2] {
        [&self.plain, &self.wanting]
    }
}

pub(super) fn earlier<'t>(one: Option<&'t Ticket>, other: Option<&'t Ticket>) -> Option<&'t Ticket> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The tickets of several sets, in order.
pub(super) fn in_order<const N: usize>(sets: [&BTreeSet<Ticket>; N]) -> impl Iterator<Item = &Ticket> {
    let mut sets = sets.map(|set| set.iter().peekable());
    std::iter::from_fn(move || {
        let heads = sets.iter_mut().enumerate().filter_map(|(at, set)| Some((set.peek().copied()?, at)));
        let (_, first) = heads.min()?;
        sets.get_mut(first)?.next()
    })
}
