//! Unfinished grants: their reply is on its way or will never arrive, or their connection has ended.

#[cfg(feature = "model")]
mod canonical;

use super::budget::Budget;
use super::grant::{Before, Written};
use super::key_name::KeyName;
use super::queue::{Keys, Mark, Marks};
use super::sessions::LockKey;
use crate::lock::time::UnixMicros;
use crate::lock::token::Token;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

#[cfg(feature = "model")]
pub use canonical::{EndedForm, OutstandingForm};

/// A grant that nobody received.
#[derive(Clone, Debug)]
pub struct Lost {
    /// The keys' database.
    pub db: i32,
    /// The attempt's keys.
    pub keys: Keys,
    /// The index of this key among them.
    pub at: usize,
    /// The grant.
    pub token: Token,
    /// The rest of its value: the grant is passed on only if the key still holds exactly this value.
    pub written: Written,
    /// The predecessor, if the lock had expired: it has to be reported to the next holder.
    pub succeeds: Option<Before>,
    /// Whether it was never claimed, so that nobody holds the lock through it.
    pub is_unclaimed: bool,
}

impl Lost {
    /// The name of the key.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.keys.get(self.at).unwrap_or_default()
    }

    #[must_use]
    pub fn key(&self) -> KeyName<'_> {
        KeyName { db: self.db, name: self.name() }
    }

    fn mark(&self) -> Option<Mark> {
        self.keys.marks().get(self.at).copied()
    }
}

/// Grants on their way, and lost grants.
#[derive(Clone, Debug, Default)]
pub struct Outstanding {
    /// Grants whose reply has not left the server yet, with their database and keys. They are passed on if the reply
    /// does not arrive, unless the attempt found out about its grant in another way.
    on_their_way: FxHashMap<Token, (i32, Keys)>,
    /// Grants that nobody received: they are passed on.
    lost: LostGrants,
}

/// Lost grants, in the order of loss.
#[derive(Clone, Debug, Default)]
pub(super) struct LostGrants {
    all: BTreeMap<u64, Lost>,
    /// The same grants, sorted by tokens and key marks.
    grants: BTreeSet<(Token, Mark, u64)>,
    last: u64,
}

impl LostGrants {
    fn add(&mut self, lost: Lost) {
        let Some(mark) = lost.mark() else { return };
        self.last = self.last.saturating_add(1);
        self.grants.insert((lost.token, mark, self.last));
        self.all.insert(self.last, lost);
    }

    fn take_first(&mut self) -> Option<Lost> {
        let (number, lost) = self.all.pop_first()?;
        if let Some(mark) = lost.mark() {
            self.grants.remove(&(lost.token, mark, number));
        }
        Some(lost)
    }

    /// Most tokens belong to other grants, so the name's mark is computed only for a lost grant's token.
    fn find(&self, key: KeyName<'_>, token: Token, marks: &Marks) -> Option<(u64, Mark)> {
        let (first, ..) = self.grants.range((token, Mark::FIRST, 0)..).next()?;
        if *first != token {
            return None;
        }
        let mark = marks.of(key.name);
        let same = self.grants.range((token, mark, 0)..=(token, mark, u64::MAX)).map(|(.., number)| *number);
        let is_it = |lost: &Lost| lost.key() == key;
        let mut found = same.filter(|number| self.all.get(number).is_some_and(is_it));
        found.next().map(|number| (number, mark))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Drops grants until the budget is spent. Returns whether none is left.
    pub(super) fn drop_piece(&mut self, budget: &mut Budget) -> bool {
        while budget.has_left() && self.take_first().is_some() {
            budget.spend(1);
        }
        self.all.is_empty()
    }
}

impl Outstanding {
    /// Notes that a grant is on its way to a client that waited.
    pub fn sent(&mut self, token: Token, db: i32, keys: Keys) {
        self.on_their_way.insert(token, (db, keys));
    }

    /// Called when a grant reached its client, or is no longer meant for it. Returns whether it was on its way.
    pub fn arrived(&mut self, token: Token) -> bool {
        self.on_their_way.remove(&token).is_some()
    }

    /// Called when a grant's attempt got its token again for this key: the grant is neither on its way nor lost. A copy
    /// of the key, which has the token too, says nothing about the original's grant.
    pub fn reported_again(&mut self, key: KeyName<'_>, token: Token, marks: &Marks) {
        if self.on_their_way.get(&token).is_some_and(|(db, keys)| *db == key.db && keys.contains(key.name, marks)) {
            self.on_their_way.remove(&token);
        }
        while let Some((number, mark)) = self.lost.find(key, token, marks) {
            self.lost.all.remove(&number);
            self.lost.grants.remove(&(token, mark, number));
        }
    }

    /// Records grants that nobody received: they are passed on.
    pub fn lose(&mut self, lost: impl IntoIterator<Item = Lost>) {
        lost.into_iter().for_each(|lost| self.lost.add(lost));
    }

    /// Removes the grant that was lost first.
    pub fn take_lost(&mut self) -> Option<Lost> {
        self.lost.take_first()
    }

    /// The lost grant of a key with this token.
    #[must_use]
    #[inline]
    pub fn lost_of(&self, key: KeyName<'_>, token: Token, marks: &Marks) -> Option<&Lost> {
        self.lost.find(key, token, marks).and_then(|(number, _)| self.lost.all.get(&number))
    }

    /// How many lost grants have not been passed on yet.
    #[must_use]
    pub fn lost(&self) -> usize {
        self.lost.len()
    }

    /// Takes out the lost grants so that they can be dropped. Their keys stay unchanged until the leases end.
    pub(super) fn forget_lost(&mut self) -> LostGrants {
        std::mem::take(&mut self.lost)
    }
}

impl Outstanding {
    /// Whether the reply of a grant has not left the server yet.
    #[must_use]
    pub fn is_on_its_way(&self, token: Token) -> bool {
        self.on_their_way.contains_key(&token)
    }
}

/// Grants whose connection has ended, each with the time of disconnection, until the end is written to their keys.
#[derive(Clone, Debug, Default)]
pub struct EndedSessions {
    grants: BTreeMap<(LockKey, Token), UnixMicros>,
    /// The last grant taken.
    last: Option<(LockKey, Token)>,
}

impl EndedSessions {
    /// Notes that a connection ended at `at`, and this grant with it.
    pub fn add(&mut self, grant: (LockKey, Token), at: UnixMicros) {
        self.grants.insert(grant, at);
    }

    /// Takes the grants in rotation: a grant that is put back comes up again after the others.
    pub fn take(&mut self) -> Option<((LockKey, Token), UnixMicros)> {
        let behind = self.last.take().map(|last| (Bound::Excluded(last), Bound::Unbounded));
        let next = behind.and_then(|behind| self.grants.range(behind).next());
        let next = next.or_else(|| self.grants.first_key_value()).map(|(grant, _)| grant.clone());
        self.last.clone_from(&next);
        self.grants.remove_entry(&next?)
    }

    /// Whether a grant's connection has ended, and its end is not written to the key yet.
    #[must_use]
    pub fn has(&self, key: KeyName<'_>, token: Token) -> bool {
        !self.grants.is_empty() && self.grants.contains_key(&((key.db, key.name.into()), token))
    }

    /// Called when a grant was extended after its connection ended: the disconnection no longer counts.
    pub fn renewed(&mut self, key: KeyName<'_>, token: Token) {
        if !self.grants.is_empty() {
            self.grants.remove(&((key.db, key.name.into()), token));
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

    /// Drops grants until the budget is spent. Returns whether none is left.
    pub(super) fn drop_piece(&mut self, budget: &mut Budget) -> bool {
        while budget.has_left() {
            let Some((((_, name), _), _)) = self.grants.pop_first() else { break };
            budget.spend_names(1, name.len());
        }
        self.grants.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::names::Names;
    use std::rc::Rc;

    #[test]
    fn reporting_a_grant_again_clears_its_lost_entries() {
        let [reported, other] = [5, 6].map(|number| Token::new(number).unwrap());
        let marks = Marks::default();
        let lost = |name: &[u8], token| Lost {
            db: 0,
            keys: Keys::One(name.into(), marks.of(name)),
            at: 0,
            token,
            written: Written::default(),
            succeeds: None,
            is_unclaimed: false,
        };
        let mut outstanding = Outstanding::default();
        outstanding.lose([lost(b"a", reported), lost(b"b", reported), lost(b"a", other)]);
        outstanding.sent(reported, 0, Keys::One(b"a"[..].into(), marks.of(b"a")));
        assert!(outstanding.lost_of(KeyName::new(0, b"a"), reported, &marks).is_some());
        assert!(outstanding.lost_of(KeyName::new(1, b"a"), reported, &marks).is_none(), "another database");
        outstanding.reported_again(KeyName::new(0, b"a"), reported, &marks);
        assert!(outstanding.lost_of(KeyName::new(0, b"a"), reported, &marks).is_none());
        assert_eq!(outstanding.lost.all.len(), outstanding.lost.grants.len());
        assert!(!outstanding.arrived(reported));
        let left: Vec<_> =
            std::iter::from_fn(|| outstanding.take_lost()).map(|lost| (lost.name()[0], lost.token)).collect();
        assert_eq!(left, [(b'b', reported), (b'a', other)]);
        assert!(outstanding.lost.grants.is_empty());
    }

    #[test]
    fn reporting_a_copy_of_a_key_leaves_the_grant_of_the_original_on_its_way() {
        let token = Token::new(5).unwrap();
        let marks = Marks::default();
        let keys = Keys::Several(Rc::new(Names::of(&[b"a", b"b"], &marks)));
        for (key, is_on_its_way) in [((0, "copy"), true), ((1, "a"), true), ((0, "a"), false), ((0, "b"), false)] {
            let mut outstanding = Outstanding::default();
            outstanding.sent(token, 0, keys.clone());
            outstanding.reported_again(KeyName::new(key.0, key.1.as_bytes()), token, &marks);
            assert_eq!(outstanding.is_on_its_way(token), is_on_its_way, "{key:?}");
        }
    }
}
