//! The predecessors of recent grants, so that a resent attempt gets the same predecessor.
//!
//! A grant is identified by its token and its key: MACQUIRE has one token for several keys, each with its own
//! predecessor or none.

#[cfg(feature = "model")]
mod canonical;

use super::budget::Budget;
use super::grant::Before;
use crate::lock::time::{Micros, MonotonicMicros};
use crate::lock::token::Token;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// How long a predecessor is remembered. Clients resend their attempts within this time.
const AGE: Micros = Micros(60_000_000);
/// How many predecessors are remembered.
const MOST: usize = 1_000;

/// The predecessors of recent grants.
#[derive(Clone, Debug, Default)]
pub struct Predecessors {
    grants: FxHashMap<Token, BTreeMap<Rc<[u8]>, Before>>,
    /// The same predecessors, oldest first, each with the time until which it is remembered.
    order: VecDeque<(MonotonicMicros, Token, Rc<[u8]>)>,
}

impl Predecessors {
    /// Remembers the predecessor of a grant of a key.
    pub fn remember(&mut self, name: &[u8], token: Token, before: Before, now: MonotonicMicros) {
        let name: Rc<[u8]> = name.into();
        if self.grants.entry(token).or_default().insert(Rc::clone(&name), before).is_none() {
            self.order.push_back((now.after(AGE), token, name));
        }
        self.forget(now);
    }

    /// The predecessor of a grant of a key, if it is still remembered.
    pub fn recall(&mut self, name: &[u8], token: Token, now: MonotonicMicros) -> Option<&Before> {
        self.forget(now);
        self.grants.get(&token)?.get(name)
    }

    /// Forgets expired entries, until the budget is spent.
    pub(super) fn forget_piece(&mut self, now: MonotonicMicros, budget: &mut Budget) {
        while budget.has_left() {
            let Some((_, _, name)) = self.order.front().filter(|(until, ..)| *until <= now) else { break };
            budget.spend_names(1, name.len());
            self.forget_first();
        }
        if self.order.is_empty() && self.order.capacity() > 0 {
            *self = Self::default();
        }
    }

    fn forget(&mut self, now: MonotonicMicros) {
        while self.order.len() > MOST || self.order.front().is_some_and(|(until, ..)| *until <= now) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        let Some((_, token, name)) = self.order.pop_front() else { return };
        if let Some(keys) = self.grants.get_mut(&token) {
            keys.remove(&name);
            if keys.is_empty() {
                self.grants.remove(&token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::admit::Predecessor;
    use crate::lock::time::UnixMicros;

    const NOW: MonotonicMicros = MonotonicMicros(1);

    fn token(number: u64) -> Token {
        Token::new(number).unwrap()
    }

    fn before(number: u64) -> Before {
        Before::of(Predecessor { ended: UnixMicros(9), overdue: Micros(1), token: Some(token(number)), owner: None })
    }

    fn recall(predecessors: &mut Predecessors, name: &[u8], number: u64, now: MonotonicMicros) -> Option<u64> {
        predecessors.recall(name, token(number), now).map(|before| before.record(token(0)).token.get())
    }

    #[test]
    fn a_predecessor_belongs_to_its_key_and_its_grant() {
        let mut predecessors = Predecessors::default();
        predecessors.remember(b"a", token(20), before(1), NOW);
        predecessors.remember(b"c", token(20), before(3), NOW);
        // Tokens are out of order if a key's earlier tokens were ahead of the clock.
        predecessors.remember(b"a", token(10), before(5), NOW);
        for (name, grant, expected) in
            [(b"a", 20, Some(1)), (b"b", 20, None), (b"c", 20, Some(3)), (b"a", 10, Some(5)), (b"c", 10, None)]
        {
            assert_eq!(recall(&mut predecessors, name, grant, NOW), expected, "{name:?} {grant}");
        }
    }

    #[test]
    fn they_are_forgotten_in_pieces_when_their_time_is_up() {
        let mut predecessors = Predecessors::default();
        for grant in 0..MOST as u64 {
            predecessors.remember(b"k", token(grant), before(grant), NOW);
        }
        let forget = |predecessors: &mut Predecessors, now| {
            predecessors.forget_piece(now, &mut Budget::of(Budget::PART));
            predecessors.order.len()
        };
        assert_eq!(forget(&mut predecessors, NOW.after(Micros(AGE.0 - 1))), MOST);
        let mut left = MOST;
        while left > 0 {
            let before = left;
            left = forget(&mut predecessors, NOW.after(AGE));
            assert_eq!(left, before.saturating_sub(Budget::PART));
        }
        assert_eq!((predecessors.grants.capacity(), predecessors.order.capacity()), (0, 0));
    }

    #[test]
    fn a_thousand_are_remembered_for_a_minute() {
        let mut predecessors = Predecessors::default();
        for grant in 0..=MOST as u64 {
            predecessors.remember(b"k", token(grant), before(grant), NOW);
        }
        assert_eq!(recall(&mut predecessors, b"k", 0, NOW), None);
        assert_eq!(recall(&mut predecessors, b"k", 1, NOW.after(Micros(AGE.0 - 1))), Some(1));
        assert_eq!(recall(&mut predecessors, b"k", 1, NOW.after(AGE)), None);
        assert!(predecessors.grants.is_empty() && predecessors.order.is_empty());
    }
}
