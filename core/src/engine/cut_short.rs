//! Grants that were cut short because their connection ended. A holder that gives such a lock back within the margin has
//! not overrun its lease: it is not counted as an overrun.
//!
//! Each is remembered until its timestamp, the last [`MOST`] of them at most.

use super::sessions::LockKey;
use crate::lock::time::UnixMicros;
use crate::lock::token::Token;
use std::collections::{BTreeSet, VecDeque};

/// How many are remembered.
const MOST: usize = 10_000;

/// The grants that were cut short.
#[derive(Clone, Debug, Default)]
pub struct CutShort {
    grants: BTreeSet<(LockKey, Token)>,
    /// The same and some that were extended since, each with its timestamp, in the order in which they were cut short.
    order: VecDeque<((LockKey, Token), UnixMicros)>,
}

impl CutShort {
    /// A grant was cut short at `now` and ends at `until`.
    pub fn add(&mut self, grant: (LockKey, Token), until: UnixMicros, now: UnixMicros) {
        while self.order.len() >= MOST || self.order.front().is_some_and(|(_, until)| *until <= now) {
            let Some((grant, _)) = self.order.pop_front() else { break };
            self.grants.remove(&grant);
        }
        if self.grants.insert(grant.clone()) {
            self.order.push_back((grant, until));
        }
    }

    /// Whether a grant was cut short, and not extended since.
    #[must_use]
    pub fn has(&self, db: i32, name: &[u8], token: Token) -> bool {
        !self.grants.is_empty() && self.grants.contains(&((db, name.into()), token))
    }

    /// A grant was extended: it has a lease again.
    pub fn extended(&mut self, db: i32, name: &[u8], token: Token) {
        if !self.grants.is_empty() {
            self.grants.remove(&((db, name.into()), token));
        }
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(number: u64) -> (LockKey, Token) {
        ((0, b"k"[..].into()), Token::new(number).unwrap())
    }

    fn has(cut_short: &CutShort, number: u64) -> bool {
        cut_short.has(0, b"k", Token::new(number).unwrap())
    }

    #[test]
    fn a_grant_is_remembered_until_its_timestamp_or_until_it_is_extended() {
        let mut cut_short = CutShort::default();
        cut_short.add(grant(1), UnixMicros(10), UnixMicros(5));
        cut_short.add(grant(2), UnixMicros(11), UnixMicros(6));
        assert!(has(&cut_short, 1) && has(&cut_short, 2) && !has(&cut_short, 3));
        assert!(!cut_short.has(1, b"k", Token::new(1).unwrap()), "another key");
        cut_short.extended(0, b"k", Token::new(2).unwrap());
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
}
