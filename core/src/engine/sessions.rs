//! Sessions: which connection holds which lock, for grants that end with their connections.
//!
//! A grant is bound to at most one connection; a connection may have many grants. A binding is a hint: it counts only
//! while the key still holds its token, which the caller checks.
//!
//! A connection can end with a million grants. They end at once, but their bindings are removed a piece at a time:
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
    /// The server's number for the client.
    pub client: u64,
    /// The grant.
    pub token: Token,
    /// When it expires.
    pub until: UnixMicros,
}

/// The bindings of a lock, by grant.
type Bindings = BTreeMap<Token, Binding>;

/// All of a server's bindings. Hashing a name is most of a binding's cost, so each event looks a lock up once, and once
/// more when the lock gets its first binding or loses its last.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    marks: Marks,
    locks: ByName<Bindings>,
    clients: BTreeMap<u64, BTreeSet<(LockKey, Token)>>,
    /// Connections that have ended, each with the time. Their bindings no longer count.
    over: BTreeMap<u64, UnixMicros>,
    count: usize,
    /// The number of bindings at which the next sweep begins.
    sweep_at: usize,
    /// The last binding that the current sweep inspected.
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

    /// The stored name of a lock with bound grants: the same allocation as long as there are any.
    #[must_use]
    pub fn name(&self, key: KeyName<'_>) -> Option<&Rc<[u8]>> {
        self.of_lock(key).map(|(name, _)| name)
    }

    /// The binding of a grant.
    #[must_use]
    pub fn binding(&self, key: KeyName<'_>, token: Token) -> Option<&Binding> {
        self.of_lock(key)?.1.get(&token).filter(|binding| self.lasts(binding))
    }

    /// Whether a grant's connection has ended, and its binding is not removed yet.
    #[must_use]
    pub fn has_ended(&self, key: KeyName<'_>, token: Token) -> bool {
        if self.over.is_empty() {
            return false;
        }
        let binding = self.of_lock(key).and_then(|(_, bindings)| bindings.get(&token));
        binding.is_some_and(|binding| !self.lasts(binding))
    }

    /// Binds a grant to one connection only.
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

    /// Unbinds all grants of a lock except `token`.
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

    /// Called when bindings were taken out of a lock; `is_last`: the lock has no others.
    fn unbound(&mut self, db: i32, (name, mark): (&Rc<[u8]>, Mark), taken: &[Binding], is_last: bool) {
        for binding in taken {
            self.disown(binding.client, db, name, binding.token);
        }
        self.count = self.count.saturating_sub(taken.len());
        if is_last {
            self.locks.remove_if(KeyName { db, name }, mark, |_| true);
        }
    }

    /// Called when a grant no longer belongs to a connection.
    fn disown(&mut self, client: u64, db: i32, name: &Rc<[u8]>, token: Token) {
        if let Some(own) = self.clients.get_mut(&client) {
            own.remove(&((db, Rc::clone(name)), token));
            if own.is_empty() {
                self.clients.remove(&client);
                self.over.remove(&client);
            }
        }
    }

    /// Called when a grant was written: its binding ends later, and an earlier end of its connection no longer counts.
    /// Unless `has_others`, all other grants of the lock are unbound.
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

    /// Called when a connection ended at `at`: its grants end, and [`Self::next_over`] returns them.
    pub fn end(&mut self, client: u64, at: UnixMicros) {
        if self.holds(client) {
            self.over.insert(client, at);
        }
    }

    /// Unbinds the next grant whose connection has ended. Returns it and the time of that end.
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

    /// Drops bindings until the budget is spent, without keeping the rest in order. Returns whether none is left.
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

    /// Drops expired bindings when there are many: a long-lived connection that never releases must not fill up memory.
    /// A sweep begins when the number of bindings has doubled, and inspects two for each new one.
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
#[path = "sessions_tests.rs"]
mod tests;
