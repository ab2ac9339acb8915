//! Sessions: which connection holds which lock, for grants that end with their connection.
//!
//! A grant is bound to at most one connection, a connection may have many grants. A binding is a hint: it counts only
//! while the key still holds its token, which the caller checks.

use crate::lock::time::UnixMicros;
use crate::lock::token::Token;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet, HashMap};
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
    /// When it expires.
    pub until: UnixMicros,
}

/// The bindings of a lock, by grant.
type Bindings = BTreeMap<Token, Binding>;

/// A lock with bound grants.
#[derive(Clone, Debug)]
struct Bound {
    /// Its name, which is its key in the map too: so one look at the map finds both.
    name: Rc<[u8]>,
    grants: Bindings,
}

/// All bindings of a server. Hashing a name is most of the cost of a binding, so each event looks a lock up once, and
/// once more when it gets its first binding or loses its last one.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    locks: FxHashMap<i32, HashMap<Rc<[u8]>, Bound>>,
    clients: FxHashMap<u64, BTreeSet<(LockKey, Token)>>,
    count: usize,
    /// The number of bindings at which expired ones are swept.
    sweep_at: usize,
}

/// Fewer bindings than this are never swept.
const FEW: usize = 1_024;

impl Sessions {
    /// Whether no grant is bound.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many grants are bound.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether any grant is bound to a connection.
    #[must_use]
    pub fn holds(&self, client: u64) -> bool {
        self.clients.contains_key(&client)
    }

    fn bound(&self, db: i32, name: &[u8]) -> Option<&Bound> {
        self.locks.get(&db)?.get(name)
    }

    /// The bindings of a lock; there can be more than one only if it has several holders.
    pub fn bindings(&self, db: i32, name: &[u8]) -> impl Iterator<Item = &Binding> {
        self.bound(db, name).into_iter().flat_map(|bound| bound.grants.values())
    }

    /// The stored name of a lock with bound grants: the same allocation for as long as there are any.
    #[must_use]
    pub fn name(&self, db: i32, name: &[u8]) -> Option<&Rc<[u8]>> {
        self.bound(db, name).map(|bound| &bound.name)
    }

    /// The binding of a grant.
    #[must_use]
    pub fn binding(&self, db: i32, name: &[u8], token: Token) -> Option<&Binding> {
        self.bound(db, name)?.grants.get(&token)
    }

    /// Binds a grant to a connection, and to no other.
    pub fn bind(&mut self, db: i32, name: &[u8], binding: Binding, now: UnixMicros) {
        self.sweep(now);
        let (client, token) = (binding.client, binding.token);
        let names = self.locks.entry(db).or_default();
        let (name, before) = if let Some(bound) = names.get_mut(name) {
            (Rc::clone(&bound.name), bound.grants.insert(token, binding))
        } else {
            let name: Rc<[u8]> = name.into();
            let bound = Bound { name: Rc::clone(&name), grants: Bindings::from([(token, binding)]) };
            names.insert(Rc::clone(&name), bound);
            (name, None)
        };
        match before {
            Some(before) => self.disown(before.client, db, &name, token),
            None => self.count = self.count.saturating_add(1),
        }
        self.clients.entry(client).or_default().insert(((db, name), token));
    }

    /// Unbinds a grant from its connection.
    pub fn unbind(&mut self, db: i32, name: &[u8], token: Token) {
        let bound = self.locks.get_mut(&db).and_then(|names| names.get_mut(name));
        let Some(bound) = bound else { return };
        let Some(binding) = bound.grants.remove(&token) else { return };
        let (name, is_last) = (Rc::clone(&bound.name), bound.grants.is_empty());
        self.unbound(db, &name, &[binding], is_last);
    }

    /// Unbinds all grants of a lock except that one.
    pub fn unbind_others(&mut self, db: i32, name: &[u8], token: Option<Token>) {
        let bound = self.locks.get_mut(&db).and_then(|names| names.get_mut(name));
        let Some(bound) = bound else { return };
        let kept = token.and_then(|token| bound.grants.remove(&token));
        let is_last = kept.is_none();
        let kept = kept.into_iter().map(|binding| (binding.token, binding)).collect();
        let others: Vec<Binding> = std::mem::replace(&mut bound.grants, kept).into_values().collect();
        let name = Rc::clone(&bound.name);
        self.unbound(db, &name, &others, is_last);
    }

    /// Bindings were taken out of a lock; `is_last`: it has no others.
    fn unbound(&mut self, db: i32, name: &Rc<[u8]>, taken: &[Binding], is_last: bool) {
        for binding in taken {
            self.disown(binding.client, db, name, binding.token);
        }
        self.count = self.count.saturating_sub(taken.len());
        if !is_last {
            return;
        }
        if let Some(names) = self.locks.get_mut(&db) {
            names.remove(name);
            if names.is_empty() {
                self.locks.remove(&db);
            }
        }
    }

    /// A connection no longer has a grant.
    fn disown(&mut self, client: u64, db: i32, name: &Rc<[u8]>, token: Token) {
        if let Some(own) = self.clients.get_mut(&client) {
            own.remove(&((db, Rc::clone(name)), token));
            if own.is_empty() {
                self.clients.remove(&client);
            }
        }
    }

    /// A grant was written: its binding ends later. Without others, all other grants of the lock are unbound.
    pub fn written(&mut self, db: i32, name: &[u8], token: Token, until: UnixMicros, has_others: bool) {
        let Some(bound) = self.locks.get_mut(&db).and_then(|names| names.get_mut(name)) else { return };
        let own = bound.grants.get_mut(&token);
        let known = usize::from(own.is_some());
        if let Some(binding) = own {
            binding.until = until;
        }
        if !has_others && bound.grants.len() > known {
            self.unbind_others(db, name, Some(token));
        }
    }

    /// A connection ended: unbinds its grants and returns them.
    pub fn end(&mut self, client: u64) -> Vec<(LockKey, Token)> {
        let locks: Vec<_> = self.clients.get(&client).into_iter().flatten().cloned().collect();
        for ((db, name), token) in &locks {
            self.unbind(*db, name, *token);
        }
        locks
    }

    /// The canonical form. It leaves out when a sweep is due: an expired binding counts for nothing.
    #[must_use]
    pub fn canonical(&self) -> Vec<(i32, Box<[u8]>, Binding)> {
        let locks = self.locks.iter().flat_map(|(db, names)| names.values().map(move |bound| (*db, bound)));
        let mut all: Vec<(i32, Box<[u8]>, Binding)> = locks
            .flat_map(|(db, bound)| bound.grants.values().map(move |own| (db, bound.name.as_ref().into(), own.clone())))
            .collect();
        all.sort_unstable_by(|one, other| (one.0, &one.1, one.2.token).cmp(&(other.0, &other.1, other.2.token)));
        all
    }

    /// Drops all bindings.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Drops expired bindings when there are many: a connection that lives long and never releases must not fill the
    /// memory. The cost is constant for each binding ever made.
    fn sweep(&mut self, now: UnixMicros) {
        if self.count < self.sweep_at.max(FEW) {
            return;
        }
        let over: Vec<(LockKey, Token)> = self
            .locks
            .iter()
            .flat_map(|(db, names)| names.values().map(move |bound| (*db, bound)))
            .flat_map(|(db, bound)| bound.grants.values().map(move |binding| (db, &bound.name, binding)))
            .filter(|(_, _, binding)| binding.until <= now)
            .map(|(db, name, binding)| ((db, Rc::clone(name)), binding.token))
            .collect();
        for ((db, name), token) in over {
            self.unbind(db, &name, token);
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
        assert_eq!(sessions.len(), 1);
        assert_eq!(sessions.end(1), []);
        assert_eq!(sessions.end(2), [((0, b"k"[..].into()), token(5))]);
        assert!(sessions.is_empty() && sessions.clients.is_empty());
    }

    #[test]
    fn bindings_are_over_when_another_grant_is_the_only_one() {
        let mut sessions = Sessions::default();
        for number in 5..8 {
            sessions.bind(0, b"k", binding(1, number, 100), UnixMicros(0));
        }
        sessions.written(0, b"k", token(5), UnixMicros(200), true);
        assert_eq!(sessions.binding(0, b"k", token(5)).unwrap().until, UnixMicros(200));
        sessions.unbind_others(0, b"k", Some(token(5)));
        assert_eq!(sessions.len(), 1);
        sessions.written(0, b"k", token(6), UnixMicros(200), false);
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

    #[test]
    fn a_few_that_ended_by_themselves_are_left_until_they_are_many() {
        let mut sessions = Sessions::default();
        for number in 0..FEW {
            sessions.bind(0, &number.to_be_bytes(), binding(1, number as u64, 10), UnixMicros(10));
            assert_eq!(sessions.len(), number + 1);
        }
        assert!(sessions.holds(1) && !sessions.holds(2));
        sessions.bind(0, b"k", binding(2, 9, 11), UnixMicros(10));
        assert_eq!(sessions.len(), 1);
        assert!(sessions.holds(2) && !sessions.holds(1));
        sessions.clear();
        assert!(sessions.is_empty() && !sessions.holds(2));
    }

    proptest! {
        #[test]
        fn sessions_do_what_a_plain_list_does(
            steps in prop::collection::vec((0..6_u8, 0..3_i32, 0..4_u8, 0..4_u64, 0..3_u64), 1..100),
        ) {
            let mut sessions = Sessions::default();
            let mut plain: Vec<(i32, u8, u64, u64)> = Vec::new();
            for (step, db, key, client, number) in steps {
                let name = [key];
                match step {
                    0 => {
                        sessions.bind(db, &name, binding(client, number, 9), UnixMicros(0));
                        plain.retain(|entry| (entry.0, entry.1, entry.3) != (db, key, number));
                        plain.push((db, key, client, number));
                    }
                    1 => {
                        sessions.unbind(db, &name, token(number));
                        plain.retain(|entry| (entry.0, entry.1, entry.3) != (db, key, number));
                    }
                    2 => {
                        sessions.unbind_others(db, &name, Some(token(number)));
                        plain.retain(|entry| (entry.0, entry.1) != (db, key) || entry.3 == number);
                    }
                    3 => sessions.written(db, &name, token(number), UnixMicros(10), true),
                    4 => {
                        sessions.written(db, &name, token(number), UnixMicros(10), false);
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
                prop_assert_eq!(sessions.locks.values().flat_map(HashMap::values).filter(|bound| bound.grants.is_empty()).count(), 0);
                prop_assert!(sessions.locks.values().all(|names| !names.is_empty()));
                prop_assert_eq!(sessions.clients.values().map(BTreeSet::len).sum::<usize>(), plain.len());
                for db in 0..3 {
                    for key in 0..4_u8 {
                        let found: Vec<_> =
                            sessions.bindings(db, &[key]).map(|binding| (binding.token.get(), binding.client)).collect();
                        let mut expected: Vec<_> = plain.iter().filter(|entry| (entry.0, entry.1) == (db, key))
                            .map(|entry| (entry.3, entry.2)).collect();
                        expected.sort_unstable();
                        prop_assert_eq!(found, expected);
                    }
                }
            }
        }
    }
}
