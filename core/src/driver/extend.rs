//! LOCK.EXTEND, LOCK.MEXTEND and LOCK.CHECK: a holder extends or checks its own grant.

use super::edge::{Access, Edge, Expected, Key, Permit};
use super::entry::Entry;
use super::write::{Decided, Then};
use crate::engine::counters::Counter;
use crate::engine::grant::Decision;
use crate::lock::error::Error;
use crate::lock::held;
use crate::lock::state::State;
use crate::lock::time::Micros;
use crate::lock::token::Token;

impl<E: Edge> Entry<'_, E> {
    /// LOCK.EXTEND. Returns whether the grant still held the lock.
    ///
    /// # Errors
    /// The error for the caller; nothing has changed.
    pub fn extend(&mut self, name: E::Name<'_>, token: Token, lease: Micros) -> Result<bool, Error> {
        self.check_lease(lease)?;
        let (terms, now) = (self.edge.terms(), self.edge.command_time());
        let key = self.edge.open(name, Access::Caller, Expected::Grant(token), now)?;
        let extended = held::extend_from(key.lock(), token, lease, terms, now)?;
        let Some(extended) = extended.filter(|_| !self.is_unclaimed(name, token)) else {
            self.engine().count(Counter::StaleTokens);
            return Ok(false);
        };
        self.may_extend()?;
        let decision = Decision::to_extend(&extended.record);
        let key_name = self.known_name(name);
        // Checked before the new lease is set.
        let within_margin = extended.is_overrun;
        let is_overrun = within_margin && self.counts_as_overrun(name, token);
        self.carry_out(Permit::COMMAND, key_name, key, decision, Then::Nobody)?;
        if within_margin {
            self.extended_within_margin(&[name], token, usize::from(is_overrun));
        }
        Ok(true)
    }

    /// LOCK.MEXTEND. Returns whether the grant still held all of the locks.
    ///
    /// # Errors
    /// The error for the caller; nothing has changed.
    pub fn extend_all<'n>(&mut self, names: &[E::Name<'n>], token: Token, lease: Micros) -> Result<bool, Error> {
        self.check_lease(lease)?;
        let (terms, now) = (self.edge.terms(), self.edge.command_time());
        let open = |name: &E::Name<'n>| self.edge.open(*name, Access::Caller, Expected::Grant(token), now);
        let keys: Vec<E::Key<'n>> = names.iter().map(open).collect::<Result<_, _>>()?;
        let locks: Vec<State<'_>> = keys.iter().map(Key::lock).collect();
        let extended = held::extend_all(&locks, token, lease, terms, now)?;
        let is_unclaimed = names.iter().any(|name| self.is_unclaimed(*name, token));
        let Some(extended) = extended.filter(|_| !is_unclaimed) else {
            self.engine().count(Counter::StaleTokens);
            return Ok(false);
        };
        self.may_extend()?;
        let late = names.iter().zip(&extended).filter(|(_, extended)| extended.is_overrun);
        let late: Vec<E::Name<'n>> = late.map(|(name, _)| *name).collect();
        let overruns = late.iter().filter(|name| self.counts_as_overrun(**name, token)).count();
        let decisions: Vec<Decision> = extended.iter().map(|extended| Decision::to_extend(&extended.record)).collect();
        let names = names.iter().map(|name| self.known_name(*name));
        let decided = names.zip(keys).zip(decisions);
        let decided = decided.map(|((name, key), decision)| Decided { name, key, decision }).collect();
        self.carry_all_out(Permit::COMMAND, decided, Then::Nobody).map_err(|partly| partly.refused)?;
        self.extended_within_margin(&late, token, overruns);
        Ok(true)
    }

    /// LOCK.CHECK: the time left on the lease of a grant's holder.
    ///
    /// # Errors
    /// The error for the caller.
    pub fn check(&mut self, name: E::Name<'_>, token: Token) -> Result<Micros, Error> {
        let (terms, now) = (self.edge.terms(), self.edge.command_time());
        let key = self.edge.open(name, Access::ReadOnly, Expected::Grant(token), now)?;
        let left = held::check(key.lock(), token, terms, now);
        Ok(if self.is_unclaimed(name, token) { Micros(0) } else { left })
    }

    /// Called when a holder extended these locks with only the margin left. A grant that was cut short when its session
    /// ended has a full lease again.
    fn extended_within_margin(&mut self, names: &[E::Name<'_>], token: Token, overruns: usize) {
        self.count_overruns(overruns);
        for name in names {
            let key_name = self.edge.key_name(*name);
            self.engine().extended(key_name, token);
        }
    }

    /// Whether a holder with only the margin left has overrun its lease.
    pub(super) fn counts_as_overrun(&mut self, name: E::Name<'_>, token: Token) -> bool {
        let key_name = self.edge.key_name(name);
        self.engine().counts_as_overrun(key_name, token)
    }

    pub(super) fn count_overruns(&mut self, overruns: usize) {
        for _ in 0..overruns {
            self.engine().count(Counter::Overruns);
        }
    }

    /// Whether a grant is still unclaimed: nobody holds the lock through it yet.
    fn is_unclaimed(&mut self, name: E::Name<'_>, token: Token) -> bool {
        if !self.engine().has_unclaimed() {
            return false;
        }
        let key_name = self.edge.key_name(name);
        self.engine().is_unclaimed(key_name, token)
    }
}
