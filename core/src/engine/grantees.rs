//! Records which connection was granted which lock, only for display: no decision depends on it.
//!
//! It remembers the last [`MOST`] grants that do not end with their connections; those that do are in
//! [`super::sessions`]. A grant is an entry in a ring, without its key's name and without an allocation: it must not
//! make an ACQUIRE and RELEASE more than one percent slower. Tokens grow, so the ring is sorted.

use crate::lock::token::Token;
use std::collections::VecDeque;

/// How many grants are remembered.
pub const MOST: usize = 10_000;

/// Nobody yet: the grant is unclaimed.
const NOBODY: u64 = 0;

/// The connections of the last grants.
#[derive(Clone, Debug, Default)]
pub struct Grantees {
    /// In token order.
    grants: VecDeque<(Token, u64)>,
}

impl Grantees {
    /// Allocates room for all grants, so that no grant pays for it.
    pub fn reserve(&mut self) {
        self.grants.reserve_exact(MOST);
    }

    /// Notes that a connection was granted a lock, for the first time or again.
    #[inline]
    pub fn note(&mut self, token: Token, client: u64) {
        while let Some((last, _)) = self.grants.back() {
            if *last < token {
                break;
            }
            if token.is_plausible_before(*last) {
                self.change(token, client);
                return;
            }
            // A forged value in a key can push the token of one grant far ahead of all others.
            self.grants.pop_back();
        }
        if self.grants.len() >= MOST {
            self.grants.pop_front();
        }
        self.grants.push_back((token, client));
    }

    /// Notes that a waiter was granted a lock, and has to claim it.
    pub fn note_unclaimed(&mut self, token: Token) {
        self.note(token, NOBODY);
    }

    /// The connection that was last granted a lock under this token.
    #[must_use]
    pub fn client(&self, token: Token) -> Option<u64> {
        let (_, client) = self.grants.get(self.find(token)?)?;
        Some(*client).filter(|client| *client != NOBODY)
    }

    /// Forgets all of them, because this server is a replica.
    pub fn clear(&mut self) {
        self.grants.clear();
    }

    /// Notes that an older grant passed to another connection, or was claimed.
    #[cold]
    fn change(&mut self, token: Token, client: u64) {
        let grant = self.find(token).and_then(|at| self.grants.get_mut(at));
        if let Some((_, own)) = grant {
            *own = client;
        }
    }

    fn find(&self, token: Token) -> Option<usize> {
        self.grants.binary_search_by_key(&token, |(token, _)| *token).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> Token {
        Token::new(number).unwrap()
    }

    #[test]
    fn the_last_grants_are_remembered_and_no_more() {
        let mut grantees = Grantees::default();
        grantees.reserve();
        let room = grantees.grants.capacity();
        for number in 0..=MOST as u64 {
            grantees.note(token(2 * number), number + 1);
        }
        assert_eq!((grantees.client(token(0)), grantees.client(token(2))), (None, Some(2)));
        assert_eq!(grantees.client(token(2 * MOST as u64)), Some(MOST as u64 + 1));
        assert_eq!(grantees.client(token(3)), None);
        assert_eq!((grantees.grants.len(), grantees.grants.capacity()), (MOST, room));
        grantees.clear();
        assert_eq!(grantees.client(token(2)), None);
    }

    #[test]
    fn a_grant_belongs_to_the_connection_that_got_or_claimed_it_last() {
        let mut grantees = Grantees::default();
        grantees.note(token(5), 1);
        grantees.note_unclaimed(token(6));
        grantees.note(token(7), 3);
        assert_eq!(grantees.client(token(6)), None);
        grantees.note(token(6), 4);
        grantees.note(token(7), 5);
        // This grant is too old, or was granted elsewhere.
        grantees.note(token(4), 9);
        let found: Vec<_> = (4..8).map(|number| grantees.client(token(number))).collect();
        assert_eq!(found, [None, Some(1), Some(4), Some(5)]);
    }

    #[test]
    fn a_token_far_ahead_of_the_others_does_not_keep_them_out() {
        let mut grantees = Grantees::default();
        grantees.note(token(5), 1);
        grantees.note(token(Token::MAX), 2);
        assert_eq!(grantees.client(token(Token::MAX)), Some(2));
        grantees.note(token(6), 3);
        assert_eq!((grantees.client(token(5)), grantees.client(token(6))), (Some(1), Some(3)));
    }
}
