//! Grants that are not finished: those whose answer has not reached its client, those whose answer never will, and
//! those whose connection has ended.

use super::grant::{Before, Written};
use super::sessions::LockKey;
use crate::lock::time::UnixMicros;
use crate::lock::token::Token;
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::rc::Rc;

/// A grant that nobody received.
#[derive(Clone, Debug)]
pub struct Lost {
    /// Database of the key.
    pub db: i32,
    /// Name of the key.
    pub name: Rc<[u8]>,
    /// The grant.
    pub token: Token,
    /// The rest of its value: it passes on only while all of it stands.
    pub written: Written,
    /// The predecessor, if the lock had expired: the next holder has to learn of it.
    pub succeeds: Option<Before>,
    /// It was never claimed: nobody holds the lock by it.
    pub is_unclaimed: bool,
}

/// Grants on their way, and lost ones.
#[derive(Clone, Debug, Default)]
pub struct Outstanding {
    /// Grants whose answer has not left yet. They pass on if it does not arrive, unless the attempt learned of its
    /// grant in another way.
    on_their_way: FxHashSet<Token>,
    /// Grants that nobody received: they pass on.
    lost: VecDeque<Lost>,
}

impl Outstanding {
    /// A grant is on its way to a client that waited.
    pub fn sent(&mut self, token: Token) {
        self.on_their_way.insert(token);
    }

    /// A grant reached its client, or is no longer meant for it. Returns whether it was on its way.
    pub fn arrived(&mut self, token: Token) -> bool {
        self.on_their_way.remove(&token)
    }

    /// The attempt of a grant was told its token again: it is neither on its way nor lost.
    pub fn told_again(&mut self, token: Token, name: &[u8]) {
        self.on_their_way.remove(&token);
        self.lost.retain(|lost| lost.token != token || *lost.name != *name);
    }

    /// Notes grants that nobody received: they pass on.
    pub fn lose(&mut self, lost: impl IntoIterator<Item = Lost>) {
        self.lost.extend(lost);
    }

    /// Removes the grant that was lost first.
    pub fn take_lost(&mut self) -> Option<Lost> {
        self.lost.pop_front()
    }

    /// The lost grant of a key with that token.
    #[must_use]
    #[inline]
    pub fn lost_of(&self, db: i32, name: &[u8], token: Token) -> Option<&Lost> {
        self.lost.iter().find(|lost| lost.token == token && lost.db == db && *lost.name == *name)
    }

    /// How many lost grants have not passed on yet.
    #[must_use]
    pub fn lost(&self) -> usize {
        self.lost.len()
    }

    /// Forgets lost grants: they stay as they are, bounded by their leases.
    pub fn forget_lost(&mut self) {
        self.lost.clear();
    }
}

/// A lock and a grant of it.
type GrantForm = (i32, Box<[u8]>, Token);

/// The canonical form of [`Outstanding`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OutstandingForm {
    on_their_way: Vec<Token>,
    lost: Vec<(GrantForm, Written, Option<Before>, bool)>,
}

impl Outstanding {
    /// Whether the answer of a grant has not left yet.
    #[must_use]
    pub fn is_on_its_way(&self, token: Token) -> bool {
        self.on_their_way.contains(&token)
    }

    /// The canonical form.
    #[must_use]
    pub fn canonical(&self) -> OutstandingForm {
        let mut on_their_way: Vec<Token> = self.on_their_way.iter().copied().collect();
        on_their_way.sort_unstable();
        let form = |lost: &Lost| {
            (
                (lost.db, lost.name.as_ref().into(), lost.token),
                lost.written.clone(),
                lost.succeeds.clone(),
                lost.is_unclaimed,
            )
        };
        OutstandingForm { on_their_way, lost: self.lost.iter().map(form).collect() }
    }
}

/// The canonical form of [`EndedSessions`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EndedForm {
    grants: Vec<(GrantForm, UnixMicros)>,
    last: Option<GrantForm>,
}

impl EndedSessions {
    /// The canonical form.
    #[must_use]
    pub fn canonical(&self) -> EndedForm {
        let form = |((db, name), token): &(LockKey, Token)| (*db, name.as_ref().into(), *token);
        let grants = self.grants.iter().map(|(grant, at)| (form(grant), *at)).collect();
        EndedForm { grants, last: self.last.as_ref().map(form) }
    }
}

/// Grants whose connection has ended, each with when that was, until it is written to their keys.
#[derive(Clone, Debug, Default)]
pub struct EndedSessions {
    grants: BTreeMap<(LockKey, Token), UnixMicros>,
    /// The one that was taken last.
    last: Option<(LockKey, Token)>,
}

impl EndedSessions {
    /// A connection ended at `at`, and this grant with it.
    pub fn add(&mut self, grant: (LockKey, Token), at: UnixMicros) {
        self.grants.insert(grant, at);
    }

    /// Takes one, each in turn: one that is put back comes up again after the others.
    pub fn take(&mut self) -> Option<((LockKey, Token), UnixMicros)> {
        let behind = self.last.take().map(|last| (Bound::Excluded(last), Bound::Unbounded));
        let next = behind.and_then(|behind| self.grants.range(behind).next());
        let next = next.or_else(|| self.grants.first_key_value()).map(|(grant, _)| grant.clone());
        self.last.clone_from(&next);
        self.grants.remove_entry(&next?)
    }

    /// Whether the connection of a grant has ended, and that is not written yet.
    #[must_use]
    pub fn has(&self, db: i32, name: &[u8], token: Token) -> bool {
        !self.grants.is_empty() && self.grants.contains_key(&((db, name.into()), token))
    }

    /// A grant was extended after its connection had ended: that end no longer counts.
    pub fn renewed(&mut self, db: i32, name: &[u8], token: Token) {
        if !self.grants.is_empty() {
            self.grants.remove(&((db, name.into()), token));
        }
    }

    /// The number of grants.
    #[must_use]
    pub fn len(&self) -> usize {
        self.grants.len()
    }

    /// Whether there are no grants.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }

    /// Drops all of them.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_that_is_told_again_is_lost_for_none_of_the_keys_of_which_that_was_told() {
        let [told, other] = [5, 6].map(|number| Token::new(number).unwrap());
        let lost = |name: &[u8], token| Lost {
            db: 0,
            name: name.into(),
            token,
            written: Written::default(),
            succeeds: None,
            is_unclaimed: false,
        };
        let mut outstanding = Outstanding::default();
        outstanding.lose([lost(b"a", told), lost(b"b", told), lost(b"a", other)]);
        outstanding.sent(told);
        outstanding.told_again(told, b"a");
        assert!(!outstanding.arrived(told));
        let left: Vec<_> =
            std::iter::from_fn(|| outstanding.take_lost()).map(|lost| (lost.name[0], lost.token)).collect();
        assert_eq!(left, [(b'b', told), (b'a', other)]);
    }
}
