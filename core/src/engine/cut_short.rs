//! Grants that were cut short because their connection ended. A holder that releases such a lock within the margin has
//! not overrun its lease, so no overrun is counted.
//!
//! Each is remembered until its timestamp, but at most the last [`MOST`] of them, with [`MOST_BYTES`] of names.

use super::budget::Budget;
use super::key_name::KeyName;
use super::sessions::LockKey;
use crate::lock::time::UnixMicros;
use crate::lock::token::Token;
use std::collections::{BTreeSet, VecDeque};

/// The largest number of grants remembered.
const MOST: usize = 10_000;
/// How many bytes of names they may have.
const MOST_BYTES: usize = 4 << 20;
/// How many expired entries are forgotten for each new one; the tick forgets the rest.
const AT_ONCE: usize = 2;

/// The grants cut short.
#[derive(Clone, Debug, Default)]
pub struct CutShort {
    grants: BTreeSet<(LockKey, Token)>,
    /// These grants and some that were extended since, each with its timestamp, in the order in which they were cut
    /// short.
    order: VecDeque<((LockKey, Token), UnixMicros)>,
    /// The bytes of the names in `order`.
    bytes: usize,
}

impl CutShort {
    /// Notes that a grant was cut short at `now` and ends at `until`.
    pub fn add(&mut self, grant: (LockKey, Token), until: UnixMicros, now: UnixMicros) {
        let size = grant.0 .1.len();
        let is_full = |own: &Self| own.order.len() >= MOST || own.bytes.saturating_add(size) > MOST_BYTES;
        while is_full(self) && self.forget_first() {}
        for _ in 0..AT_ONCE {
            self.forget_if_over(now);
        }
        if self.grants.insert(grant.clone()) {
            self.bytes = self.bytes.saturating_add(size);
            self.order.push_back((grant, until));
        }
    }

    /// Whether a grant was cut short, and not extended since.
    #[must_use]
    pub fn has(&self, key: KeyName<'_>, token: Token) -> bool {
        !self.grants.is_empty() && self.grants.contains(&((key.db, key.name.into()), token))
    }

    /// Called when a grant was extended: it has a full lease again.
    pub fn extended(&mut self, key: KeyName<'_>, token: Token) {
        if !self.grants.is_empty() {
            self.grants.remove(&((key.db, key.name.into()), token));
        }
    }

    /// Forgets the grants whose timestamps have passed by `now`, until the budget is spent.
    pub(super) fn forget_piece(&mut self, now: UnixMicros, budget: &mut Budget) {
        while budget.has_left() && self.forget_if_over(now) {
            budget.spend(1);
        }
        if self.order.is_empty() && self.order.capacity() > 0 {
            *self = Self::default();
        }
    }

    /// Forgets the first if its timestamp has passed by `now`. Returns whether it did.
    fn forget_if_over(&mut self, now: UnixMicros) -> bool {
        self.order.front().is_some_and(|(_, until)| *until <= now) && self.forget_first()
    }

    fn forget_first(&mut self) -> bool {
        let Some((grant, _)) = self.order.pop_front() else { return false };
        self.bytes = self.bytes.saturating_sub(grant.0 .1.len());
        self.grants.remove(&grant);
        true
    }

    /// Whether no grant is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Forgets grants until the budget is spent. Returns whether none is left.
    pub(super) fn drop_piece(&mut self, budget: &mut Budget) -> bool {
        while budget.has_left() && self.forget_first() {
            budget.spend(1);
        }
        self.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(number: u64) -> (LockKey, Token) {
        ((0, b"k"[..].into()), Token::new(number).unwrap())
    }

    fn has(cut_short: &CutShort, number: u64) -> bool {
        cut_short.has(KeyName::new(0, b"k"), Token::new(number).unwrap())
    }

    #[test]
    fn a_grant_is_remembered_until_its_timestamp_or_until_it_is_extended() {
        let mut cut_short = CutShort::default();
        cut_short.add(grant(1), UnixMicros(10), UnixMicros(5));
        cut_short.add(grant(2), UnixMicros(11), UnixMicros(6));
        assert!(has(&cut_short, 1) && has(&cut_short, 2) && !has(&cut_short, 3));
        assert!(!cut_short.has(KeyName::new(1, b"k"), Token::new(1).unwrap()), "another key");
        cut_short.extended(KeyName::new(0, b"k"), Token::new(2).unwrap());
        assert!(!has(&cut_short, 2));
        cut_short.add(grant(3), UnixMicros(20), UnixMicros(10));
        assert!(!has(&cut_short, 1) && has(&cut_short, 3));
    }

    #[test]
    fn no_more_are_remembered_than_the_bound() {
        let mut cut_short = CutShort::default();
        for number in 0..=MOST {
            cut_short.add(grant(number as u64), UnixMicros(u64::MAX), UnixMicros(0));
        }
        assert!(!has(&cut_short, 0) && has(&cut_short, 1) && has(&cut_short, MOST as u64));
        assert_eq!((cut_short.grants.len(), cut_short.order.len()), (MOST, MOST));
    }

    #[test]
    fn no_more_bytes_of_names_are_remembered_than_the_bound() {
        let long = |number: u64| {
            let name = [&number.to_be_bytes()[..], &[b'x'; 4_088]].concat();
            ((0, name.into()), Token::new(number).unwrap())
        };
        let fit = MOST_BYTES as u64 / 4_096;
        let mut cut_short = CutShort::default();
        for number in 0..=fit {
            cut_short.add(long(number), UnixMicros(u64::MAX), UnixMicros(0));
        }
        let has = |number| cut_short.grants.contains(&long(number));
        assert!(!has(0) && has(1) && has(fit));
        assert_eq!((cut_short.grants.len() as u64, cut_short.bytes), (fit, MOST_BYTES));
    }

    #[test]
    fn they_are_forgotten_in_pieces_when_their_time_is_up() {
        let mut cut_short = CutShort::default();
        for number in 0..MOST {
            cut_short.add(grant(number as u64), UnixMicros(10), UnixMicros(0));
        }
        let forget = |cut_short: &mut CutShort, now| {
            cut_short.forget_piece(UnixMicros(now), &mut Budget::of(Budget::PART));
            cut_short.order.len()
        };
        assert_eq!(forget(&mut cut_short, 9), MOST);
        let mut left = MOST;
        while left > 0 {
            let before = left;
            left = forget(&mut cut_short, 10);
            assert_eq!(left, before.saturating_sub(Budget::PART));
        }
        assert_eq!((cut_short.grants.len(), cut_short.order.capacity(), cut_short.bytes), (0, 0, 0));
    }

    #[test]
    fn a_new_grant_forgets_only_a_few_of_many_that_are_over() {
        let mut cut_short = CutShort::default();
        for number in 0..MOST {
            cut_short.add(grant(number as u64), UnixMicros(10), UnixMicros(0));
        }
        cut_short.add(grant(MOST as u64), UnixMicros(20), UnixMicros(10));
        // One was dropped to make room, and a few had expired.
        assert_eq!((cut_short.order.len(), cut_short.grants.len()), (MOST - AT_ONCE, MOST - AT_ONCE));
    }

    #[test]
    fn they_are_forgotten_in_pieces() {
        let mut cut_short = CutShort::default();
        for number in 0..MOST {
            cut_short.add(grant(number as u64), UnixMicros(u64::MAX), UnixMicros(0));
        }
        let mut pieces = 1;
        while !cut_short.drop_piece(&mut Budget::of(Budget::PART)) {
            pieces += 1;
            assert_eq!(cut_short.order.len(), MOST - (pieces - 1) * Budget::PART);
        }
        assert_eq!((pieces, cut_short.grants.len(), cut_short.bytes), (MOST.div_ceil(Budget::PART), 0, 0));
    }
}
