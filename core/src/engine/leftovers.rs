//! What a server remembered about its locks before it became a replica. None of it matters any longer. It is dropped a
//! piece at a time, because dropping a million sessions at once would block the server for a fifth of a second.

use super::budget::Budget;
use super::cut_short::CutShort;
use super::outstanding::{EndedSessions, LostGrants};
use super::sessions::Sessions;
use super::unclaimed::Claims;

/// What one reign left behind.
#[derive(Clone, Debug, Default)]
pub(super) struct Reign {
    pub(super) sessions: Sessions,
    pub(super) claims: Claims,
    pub(super) lost: LostGrants,
    pub(super) ended: EndedSessions,
    pub(super) cut_short: CutShort,
}

impl Reign {
    fn is_empty(&self) -> bool {
        self.sessions.is_empty()
            && self.claims.is_empty()
            && self.lost.is_empty()
            && self.ended.is_empty()
            && self.cut_short.is_empty()
    }

    /// Drops a piece of it. Returns whether nothing is left.
    fn drop_piece(&mut self, budget: &mut Budget) -> bool {
        self.sessions.drop_piece(budget)
            && self.claims.drop_piece(budget)
            && self.lost.drop_piece(budget)
            && self.ended.drop_piece(budget)
            && self.cut_short.drop_piece(budget)
    }
}

/// What all reigns left behind.
#[derive(Clone, Debug, Default)]
pub(super) struct Leftovers(Vec<Reign>);

impl Leftovers {
    /// Adds a reign's leftovers, to be dropped.
    pub(super) fn add(&mut self, reign: Reign) {
        self.0.extend(Some(reign).filter(|reign| !reign.is_empty()));
    }

    /// Whether nothing is left to drop.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops as much as the budget allows.
    pub(super) fn drop_piece(&mut self, budget: &mut Budget) {
        while let Some(reign) = self.0.last_mut() {
            if !reign.drop_piece(budget) {
                return;
            }
            self.0.pop();
        }
    }
}

#[cfg(test)]
impl Leftovers {
    /// The number of keys with unclaimed grants.
    pub(super) fn unclaimed_keys(&self) -> usize {
        self.0.iter().map(|reign| reign.claims.keys()).sum()
    }

    pub(super) fn lost_keys(&self) -> usize {
        self.0.iter().map(|reign| reign.lost.len()).sum()
    }

    /// The number of remaining parts of bindings, of connections and of locks, plus grants that have ended.
    pub(super) fn bindings(&self) -> usize {
        self.0.iter().map(|reign| reign.sessions.parts().saturating_add(reign.ended.len())).sum()
    }
}
