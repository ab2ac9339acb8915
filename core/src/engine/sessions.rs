//! Sessions: which connection holds which lock, for grants that end with their connection.
//!
//! A grant is bound to at most one connection; a connection may have many grants. A binding is a hint: it counts only
//! while the key still holds its token, which the caller checks.
//!
//! A connection can end with a million grants. They end with it at once, and their bindings are removed in pieces:
//! removing all at once would block the server for a second.

#[cfg(feature = "model")]
mod canonical;

use super::budget::Budget;
use super::by_name::ByName;
use super::key_name::KeyName;
use super::queue::{Mark, Marks};
use crate::lock::time::UnixMicros;
use crate::lock::token::Token;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::rc::Rc;

#[cfg(feature = "model")]
pub use canonical::SessionsForm;

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

/// All bindings of a server. Hashing a name is most of the cost of a binding, so each event looks a lock up once, and
/// once more when it gets its first binding or loses its last one.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    marks: Marks,
    locks: ByName<Bindings>,
    clients: BTreeMap<u64, BTreeSet<(LockKey, Token)>>,
    /// Connections that have ended, each with the time of its end. Their bindings no longer count.
    over: BTreeMap<u64, UnixMicros>,
    count: usize,
    /// The number of bindings at which the next sweep begins.
    sweep_at: usize,
    /// The binding that the current sweep inspected last.
    swept: Option<(u64, (LockKey, Token))>,
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

    /// The bindings of a lock, by the stored name of its key.
    fn of_lock(&self, key: KeyName<'_>) -> Option<(&Rc<[u8]>, &Bindings)> {
        if self.locks.is_empty() {
            return None;
        }
        self.locks.get(key, self.marks.of(key.name))
    }

    fn lasts(&self, binding: &Binding) -> bool {
        self.over.is_empty() || !self.over.contains_key(&binding.client)
    }

    /// The bindings of a lock; there can be more than one only if it has several holders.
    pub fn bindings(&self, key: KeyName<'_>) -> impl Iterator<Item = &Binding> {
        let bindings = self.of_lock(key).into_iter().flat_map(|(_, bindings)| bindings.values());
        bindings.filter(|binding| self.lasts(binding))
    }

    /// The bindings of a lock to one connection.
    #[must_use]
    pub fn of_client(&self, key: KeyName<'_>, client: u64) -> Vec<Binding> {
        let Some(own) = self.clients.get(&client).filter(|_| !self.over.contains_key(&client)) else {
            return Vec::new();
        };
        let Some((name, bindings)) = self.of_lock(key) else { return Vec::new() };
        let place = |token| ((key.db, Rc::clone(name)), token);
        let grants = own.range(place(Token::FIRST)..=place(Token::LAST));
        grants.filter_map(|(_, token)| bindings.get(token).cloned()).collect()
    }

    /// The stored name of a lock with bound grants: the same allocation for as long as there are any.
    #[must_use]
    pub fn name(&self, key: KeyName<'_>) -> Option<&Rc<[u8]>> {
        self.of_lock(key).map(|(name, _)| name)
    }

    /// The binding of a grant.
    #[must_use]
    pub fn binding(&self, key: KeyName<'_>, token: Token) -> Option<&Binding> {
        self.of_lock(key)?.1.get(&token).filter(|binding| self.lasts(binding))
    }

    /// Whether the connection of a grant has ended, and its binding is not removed yet.
    #[must_use]
    pub fn has_ended(&self, key: KeyName<'_>, token: Token) -> bool {
        if self.over.is_empty() {
            return false;
        }
        let binding = self.of_lock(key).and_then(|(_, bindings)| bindings.get(&token));
        binding.is_some_and(|binding| !self.lasts(binding))
    }

    /// Binds a grant to a connection, and to no other.
    pub fn bind(&mut self, key: KeyName<'_>, binding: Binding, now: UnixMicros) {
        self.sweep(now);
        let (client, token, mark) = (binding.client, binding.token, self.marks.of(key.name));
        let (name, before) = if let Some((name, bindings)) = self.locks.get_mut(key, mark) {
            (Rc::clone(name), bindings.insert(token, binding))
        } else {
            let name: Rc<[u8]> = key.name.into();
            self.locks.insert(key.db, Rc::clone(&name), mark, Bindings::from([(token, binding)]));
            (name, None)
        };
        match before {
            Some(before) => self.disown(before.client, key.db, &name, token),
            None => self.count = self.count.saturating_add(1),
        }
        self.clients.entry(client).or_default().insert(((key.db, name), token));
    }

    /// Unbinds a grant from its connection.
    pub fn unbind(&mut self, key: KeyName<'_>, token: Token) {
        if self.locks.is_empty() {
            return;
        }
        let mark = self.marks.of(key.name);
        let Some((name, bindings)) = self.locks.get_mut(key, mark) else { return };
        let Some(binding) = bindings.remove(&token) else { return };
        let (name, is_last) = (Rc::clone(name), bindings.is_empty());
        self.unbound(key.db, (&name, mark), &[binding], is_last);
    }

    /// Unbinds all grants of a lock except that one.
    pub fn unbind_others(&mut self, key: KeyName<'_>, token: Option<Token>) {
        if self.locks.is_empty() {
            return;
        }
        let mark = self.marks.of(key.name);
        let Some((name, bindings)) = self.locks.get_mut(key, mark) else { return };
        let kept = token.and_then(|token| bindings.remove(&token));
        let is_last = kept.is_none();
        let kept = kept.into_iter().map(|binding| (binding.token, binding)).collect();
        let others: Vec<Binding> = std::mem::replace(bindings, kept).into_values().collect();
        let name = Rc::clone(name);
        self.unbound(key.db, (&name, mark), &others, is_last);
    }

    /// Bindings were taken out of a lock; `is_last`: it has no others.
    fn unbound(&mut self, db: i32, (name, mark): (&Rc<[u8]>, Mark), taken: &[Binding], is_last: bool) {
        for binding in taken {
            self.disown(binding.client, db, name, binding.token);
        }
        self.count = self.count.saturating_sub(taken.len());
        if is_last {
            self.locks.remove_if(KeyName { db, name }, mark, |_| true);
        }
    }

    /// A connection no longer has a grant.
    fn disown(&mut self, client: u64, db: i32, name: &Rc<[u8]>, token: Token) {
        if let Some(own) = self.clients.get_mut(&client) {
            own.remove(&((db, Rc::clone(name)), token));
            if own.is_empty() {
                self.clients.remove(&client);
                self.over.remove(&client);
            }
        }
    }

    /// A grant was written: its binding ends later, and if its connection had ended, that no longer counts. Without
    /// others, all other grants of the lock are unbound.
    pub fn written(&mut self, key: KeyName<'_>, token: Token, until: UnixMicros, has_others: bool) {
        if self.has_ended(key, token) {
            self.unbind(key, token);
        }
        if self.locks.is_empty() {
            return;
        }
        let Some((_, bindings)) = self.locks.get_mut(key, self.marks.of(key.name)) else { return };
        let own = bindings.get_mut(&token);
        let known = usize::from(own.is_some());
        if let Some(binding) = own {
            binding.until = until;
        }
        if !has_others && bindings.len() > known {
            self.unbind_others(key, Some(token));
        }
    }

    /// A connection ended at `at`: its grants end, and [`Self::next_over`] returns them.
    pub fn end(&mut self, client: u64, at: UnixMicros) {
        if self.holds(client) {
            self.over.insert(client, at);
        }
    }

    /// Unbinds the next grant whose connection has ended, and returns when that was.
    pub fn next_over(&mut self) -> Option<((LockKey, Token), UnixMicros)> {
        let (client, at) = self.over.first_key_value().map(|(client, at)| (*client, *at))?;
        let grant = self.clients.get(&client)?.first()?.clone();
        let ((db, name), token) = &grant;
        self.unbind(KeyName { db: *db, name }, *token);
        Some((grant, at))
    }

    /// Whether grants are bound to connections that have ended.
    #[must_use]
    pub fn has_over(&self) -> bool {
        !self.over.is_empty()
    }

    /// Drops bindings as far as the budget goes, without keeping the others in order. Returns whether none is left.
    pub(super) fn drop_piece(&mut self, budget: &mut Budget) -> bool {
        while budget.has_left() {
            let Some(mut own) = self.clients.first_entry() else { break };
            own.get_mut().pop_first();
            if own.get().is_empty() {
                own.remove();
            }
            budget.spend(1);
        }
        self.clients.is_empty() && self.locks.drop_piece(budget, Bindings::len)
    }

    /// The entries of connections and of locks.
    #[cfg(test)]
    pub(super) fn parts(&self) -> usize {
        self.clients.values().map(BTreeSet::len).sum::<usize>().saturating_add(self.locks.iter().count())
    }

    /// Drops expired bindings when there are many: a connection that lives long and never releases must not fill the
    /// memory. A sweep begins when their number has doubled, and inspects two for each new one.
    fn sweep(&mut self, now: UnixMicros) {
        if self.swept.is_none() && self.count < self.sweep_at.max(FEW) {
            return;
        }
        for _ in 0..2 {
            let next = match self.swept.take() {
                Some(swept) => self.after(&swept),
                None => self.clients.first_key_value().and_then(|(client, own)| Some((*client, own.first()?.clone()))),
            };
            let Some((client, ((db, name), token))) = next else {
                self.sweep_at = self.count.saturating_mul(2);
                return;
            };
            let binding = self.of_lock(KeyName { db, name: &name }).and_then(|(_, bindings)| bindings.get(&token));
            let is_over = binding.is_some_and(|binding| binding.until <= now && self.lasts(binding));
            if is_over {
                self.unbind(KeyName { db, name: &name }, token);
            }
            self.swept = Some((client, ((db, name), token)));
        }
    }

    /// The binding after this one in the order of the sweep.
    fn after(&self, (client, grant): &(u64, (LockKey, Token))) -> Option<(u64, (LockKey, Token))> {
        let own = self.clients.get(client).and_then(|own| own.range((Excluded(grant), Unbounded)).next());
        if let Some(next) = own {
            return Some((*client, next.clone()));
        }
        let (client, own) = self.clients.range((Excluded(client), Unbounded)).next()?;
        Some((*client, own.first()?.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token(number: u64) -> Token {
        Token::new(number).unwrap()
    }

    /// Everything that ended with a connection.
    fn end(sessions: &mut Sessions, client: u64) -> Vec<(LockKey, Token)> {
        sessions.end(client, UnixMicros(1));
        std::iter::from_fn(|| sessions.next_over()).map(|(grant, _)| grant).collect()
    }

    fn binding(client: u64, number: u64, until: u64) -> Binding {
        Binding { client, token: token(number), until: UnixMicros(until) }
    }

    #[test]
    fn a_lock_that_is_bound_again_belongs_to_the_newer_connection() {
        let mut sessions = Sessions::default();
        sessions.bind(KeyName::new(0, b"k"), binding(1, 5, 100), UnixMicros(0));
        sessions.bind(KeyName::new(0, b"k"), binding(2, 5, 100), UnixMicros(0));
        assert_eq!(sessions.len(), 1);
        assert_eq!(end(&mut sessions, 1), []);
        assert_eq!(end(&mut sessions, 2), [((0, b"k"[..].into()), token(5))]);
        assert!(sessions.is_empty() && sessions.clients.is_empty());
    }

    #[test]
    fn bindings_are_over_when_another_grant_is_the_only_one() {
        let mut sessions = Sessions::default();
        for number in 5..8 {
            sessions.bind(KeyName::new(0, b"k"), binding(1, number, 100), UnixMicros(0));
        }
        sessions.written(KeyName::new(0, b"k"), token(5), UnixMicros(200), true);
        assert_eq!(sessions.binding(KeyName::new(0, b"k"), token(5)).unwrap().until, UnixMicros(200));
        sessions.unbind_others(KeyName::new(0, b"k"), Some(token(5)));
        assert_eq!(sessions.len(), 1);
        sessions.written(KeyName::new(0, b"k"), token(6), UnixMicros(200), false);
        assert!(sessions.is_empty());
    }

    #[test]
    fn sessions_that_expired_do_not_pile_up() {
        let mut sessions = Sessions::default();
        for number in 0..100_000_u64 {
            sessions.bind(KeyName::new(0, &number.to_be_bytes()), binding(1, number, number + 10), UnixMicros(number));
        }
        assert!(sessions.len() <= 2 * FEW, "{}", sessions.len());
    }

    #[test]
    fn a_few_expired_sessions_are_left_until_they_are_many() {
        let mut sessions = Sessions::default();
        for number in 0..FEW {
            sessions.bind(KeyName::new(0, &number.to_be_bytes()), binding(1, number as u64, 10), UnixMicros(10));
            assert_eq!(sessions.len(), number + 1);
        }
        assert!(sessions.holds(1) && !sessions.holds(2));
        for left in [FEW - 2, FEW - 4] {
            sessions.bind(KeyName::new(0, b"k"), binding(2, 9, 11), UnixMicros(10));
            sessions.unbind(KeyName::new(0, b"k"), token(9));
            assert_eq!(sessions.len(), left, "two go for each new one");
        }
        sessions = Sessions::default();
        assert!(sessions.is_empty() && !sessions.holds(1));
    }

    #[test]
    fn a_sweep_comes_round_to_all_connections_and_spares_what_lasts() {
        let mut sessions = Sessions::default();
        let many = u64::try_from(FEW).unwrap();
        for number in 0..many {
            let until = if number % 2 == 0 { 10 } else { 1_000 };
            sessions.bind(KeyName::new(0, &number.to_be_bytes()), binding(number % 5, number, until), UnixMicros(0));
        }
        for number in many..many + many / 2 {
            sessions.bind(KeyName::new(0, &number.to_be_bytes()), binding(7, number, 1_000), UnixMicros(10));
        }
        let bindings = sessions.locks.iter().flat_map(|(_, _, bindings)| bindings.values());
        assert_eq!(bindings.filter(|binding| binding.until <= UnixMicros(10)).count(), 0);
        assert_eq!(sessions.len(), FEW);
    }

    #[test]
    fn grants_of_an_ended_connection_are_over_at_once_and_leave_one_by_one() {
        let mut sessions = Sessions::default();
        for number in 0..4 {
            sessions.bind(KeyName::new(0, &[number]), binding(1, u64::from(number), 100), UnixMicros(0));
        }
        sessions.bind(KeyName::new(0, &[9]), binding(2, 9, 100), UnixMicros(0));
        sessions.end(1, UnixMicros(50));
        sessions.end(3, UnixMicros(50));
        for number in 0..4 {
            assert!(sessions.has_ended(KeyName::new(0, &[number]), token(number.into())));
            assert_eq!(sessions.binding(KeyName::new(0, &[number]), token(number.into())), None);
            assert_eq!(sessions.bindings(KeyName::new(0, &[number])).count(), 0);
        }
        assert!(
            !sessions.has_ended(KeyName::new(0, &[9]), token(9))
                && sessions.binding(KeyName::new(0, &[9]), token(9)).is_some()
        );
        // A newer connection, an extension and a release: their ends no longer count.
        sessions.bind(KeyName::new(0, &[0]), binding(2, 0, 100), UnixMicros(0));
        sessions.written(KeyName::new(0, &[1]), token(1), UnixMicros(200), false);
        sessions.unbind(KeyName::new(0, &[2]), token(2));
        assert!(sessions.has_over());
        assert_eq!(sessions.next_over(), Some((((0, [3][..].into()), token(3)), UnixMicros(50))));
        assert_eq!(sessions.next_over(), None);
        assert!(!sessions.has_over() && sessions.binding(KeyName::new(0, &[0]), token(0)).is_some());
        assert_eq!(sessions.len(), 2);
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
                        sessions.bind(KeyName::new(db, &name), binding(client, number, 9), UnixMicros(0));
                        plain.retain(|entry| (entry.0, entry.1, entry.3) != (db, key, number));
                        plain.push((db, key, client, number));
                    }
                    1 => {
                        sessions.unbind(KeyName::new(db, &name), token(number));
                        plain.retain(|entry| (entry.0, entry.1, entry.3) != (db, key, number));
                    }
                    2 => {
                        sessions.unbind_others(KeyName::new(db, &name), Some(token(number)));
                        plain.retain(|entry| (entry.0, entry.1) != (db, key) || entry.3 == number);
                    }
                    3 => sessions.written(KeyName::new(db, &name), token(number), UnixMicros(10), true),
                    4 => {
                        sessions.written(KeyName::new(db, &name), token(number), UnixMicros(10), false);
                        plain.retain(|entry| (entry.0, entry.1) != (db, key) || entry.3 == number);
                    }
                    _ => {
                        let mut ended: Vec<_> = end(&mut sessions, client).into_iter()
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
                prop_assert!(sessions.locks.iter().all(|(_, _, bindings)| !bindings.is_empty()));
                prop_assert_eq!(sessions.clients.values().map(BTreeSet::len).sum::<usize>(), plain.len());
                for db in 0..3 {
                    for key in 0..4_u8 {
                        let found: Vec<_> =
                            sessions.bindings(KeyName::new(db, &[key])).map(|binding| (binding.token.get(), binding.client)).collect();
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
