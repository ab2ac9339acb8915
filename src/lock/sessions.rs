//! Which connection holds which lock, for grants with SESSION: they end with it.
//!
//! A lock is bound to one connection at most, a connection may have many. A binding is a hint: it
//! counts only while its key still holds its token, which the caller looks up.

use super::time::UnixMicros;
use super::token::Token;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// A lock by the database and the name of its key.
pub type LockKey = (i32, Rc<[u8]>);

/// A grant that ends with a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Binding {
    /// The server's number of the client.
    pub client: u64,
    /// The grant.
    pub token: Token,
    /// When it ends by itself.
    pub until: UnixMicros,
}

/// All bindings of a server.
#[derive(Debug, Default)]
pub struct Sessions {
    locks: FxHashMap<i32, HashMap<Rc<[u8]>, Binding>>,
    clients: FxHashMap<u64, BTreeMap<LockKey, Token>>,
    count: usize,
    /// How many there may be before those that ended by themselves are swept out.
    sweep_at: usize,
}

/// Fewer bindings than this are never swept.
const FEW: usize = 1_024;

impl Sessions {
    /// Whether no lock is bound.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many locks are bound.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// The binding of a lock.
    #[must_use]
    pub fn binding(&self, db: i32, name: &[u8]) -> Option<&Binding> {
        self.locks.get(&db)?.get(name)
    }

    /// Binds a grant to a connection, and to no other.
    pub fn bind(&mut self, db: i32, name: &[u8], binding: Binding, now: UnixMicros) {
        self.unbind(db, name);
        self.sweep(now);
        let name: Rc<[u8]> = name.into();
        self.clients.entry(binding.client).or_default().insert((db, Rc::clone(&name)), binding.token);
        self.locks.entry(db).or_default().insert(name, binding);
        self.count = self.count.saturating_add(1);
    }

    /// Binds a lock to no connection.
    pub fn unbind(&mut self, db: i32, name: &[u8]) {
        let Some(names) = self.locks.get_mut(&db) else { return };
        let Some((name, binding)) = names.remove_entry(name) else { return };
        if names.is_empty() {
            self.locks.remove(&db);
        }
        if let Some(own) = self.clients.get_mut(&binding.client) {
            own.remove(&(db, name));
            if own.is_empty() {
                self.clients.remove(&binding.client);
            }
        }
        self.count = self.count.saturating_sub(1);
    }

    /// A value was written: the binding of its lock ends later, or is over if the grant is another.
    pub fn written(&mut self, db: i32, name: &[u8], token: Token, until: UnixMicros) {
        match self.locks.get_mut(&db).and_then(|names| names.get_mut(name)) {
            Some(binding) if binding.token == token => binding.until = until,
            Some(_) => self.unbind(db, name),
            None => {}
        }
    }

    /// A connection has ended: the locks that were bound to it, no longer bound.
    pub fn end(&mut self, client: u64) -> Vec<(LockKey, Token)> {
        let locks: Vec<_> =
            self.clients.get(&client).into_iter().flatten().map(|(key, token)| (key.clone(), *token)).collect();
        for ((db, name), _) in &locks {
            self.unbind(*db, name);
        }
        locks
    }

    /// Gives up all bindings.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Gives up what ended by itself, when there is much: a connection that lives long and never
    /// releases must not fill the memory. Costs a constant for each binding ever made.
    fn sweep(&mut self, now: UnixMicros) {
        if self.count < self.sweep_at.max(FEW) {
            return;
        }
        let over: Vec<LockKey> = self
            .locks
            .iter()
            .flat_map(|(db, names)| names.iter().map(move |(name, binding)| (*db, name, binding)))
            .filter(|(_, _, binding)| binding.until <= now)
            .map(|(db, name, _)| (db, Rc::clone(name)))
            .collect();
        for (db, name) in over {
            self.unbind(db, &name);
        }
        self.sweep_at = self.count.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token(number: u64) -> Token {
        Token::new(number).unwrap()
    }

    fn binding(client: u64, number: u64, until: u64) -> Binding {
        Binding { client, token: token(number), until: UnixMicros(until) }
    }

    #[test]
    fn a_lock_that_is_bound_again_belongs_to_the_newer_connection() {
        let mut sessions = Sessions::default();
        sessions.bind(0, b"k", binding(1, 5, 100), UnixMicros(0));
        sessions.bind(0, b"k", binding(2, 5, 100), UnixMicros(0));
        assert_eq!(sessions.end(1), []);
        assert_eq!(sessions.end(2), [((0, b"k"[..].into()), token(5))]);
        assert!(sessions.is_empty() && sessions.clients.is_empty());
    }

    #[test]
    fn a_binding_is_over_when_another_grant_is_written() {
        let mut sessions = Sessions::default();
        sessions.bind(0, b"k", binding(1, 5, 100), UnixMicros(0));
        sessions.written(0, b"k", token(5), UnixMicros(200));
        assert_eq!(sessions.binding(0, b"k").unwrap().until, UnixMicros(200));
        sessions.written(0, b"k", token(6), UnixMicros(300));
        assert!(sessions.is_empty());
    }

    #[test]
    fn what_ended_by_itself_does_not_pile_up() {
        let mut sessions = Sessions::default();
        for number in 0..100_000_u64 {
            sessions.bind(0, &number.to_be_bytes(), binding(1, number, number + 10), UnixMicros(number));
        }
        assert!(sessions.len() <= 2 * FEW, "{}", sessions.len());
    }

    proptest! {
        #[test]
        fn sessions_do_what_a_plain_list_does(
            steps in prop::collection::vec((0..4_u8, 0..3_i32, 0..4_u8, 0..4_u64, 0..3_u64), 1..100),
        ) {
            let mut sessions = Sessions::default();
            let mut plain: Vec<(i32, u8, u64, u64)> = Vec::new();
            for (step, db, key, client, number) in steps {
                let name = [key];
                match step {
                    0 => {
                        sessions.bind(db, &name, binding(client, number, 9), UnixMicros(0));
                        plain.retain(|entry| (entry.0, entry.1) != (db, key));
                        plain.push((db, key, client, number));
                    }
                    1 => {
                        sessions.unbind(db, &name);
                        plain.retain(|entry| (entry.0, entry.1) != (db, key));
                    }
                    2 => {
                        sessions.written(db, &name, token(number), UnixMicros(9));
                        plain.retain(|entry| (entry.0, entry.1) != (db, key) || entry.3 == number);
                    }
                    _ => {
                        let mut ended: Vec<_> = sessions.end(client).into_iter()
                            .map(|((db, name), token)| (db, name[0], token.get())).collect();
                        let mut expected: Vec<_> = plain.iter().filter(|entry| entry.2 == client)
                            .map(|entry| (entry.0, entry.1, entry.3)).collect();
                        ended.sort_unstable();
                        expected.sort_unstable();
                        prop_assert_eq!(ended, expected);
                        plain.retain(|entry| entry.2 != client);
                    }
                }
                prop_assert_eq!(sessions.len(), plain.len());
                prop_assert_eq!(sessions.clients.values().map(BTreeMap::len).sum::<usize>(), plain.len());
                for db in 0..3 {
                    for key in 0..4_u8 {
                        let found = sessions.binding(db, &[key]).map(|binding| (binding.client, binding.token.get()));
                        let entry = plain.iter().find(|entry| (entry.0, entry.1) == (db, key));
                        prop_assert_eq!(found, entry.map(|entry| (entry.2, entry.3)));
                    }
                }
            }
        }
    }
}
