//! Carries out decisions. Only this file writes keys, and it always commits the outcome.

use super::edge::{Edge, Key, Permit, Span, WriteRefused};
use super::entry::Entry;
use crate::engine::grant::{Decision, Event, Granted};
use crate::engine::queue::Ticket;
use crate::engine::{Caller, KeyName, KeyNames, Notified, Shape};
use crate::lock::change::{Change, Contents, Retentions, Write};
use crate::lock::token::Token;

/// The new holder, once everything is written.
pub(super) enum Then<'g> {
    Nobody,
    /// The caller; the engine may add to its reply.
    Caller(Caller, &'g mut Granted),
    /// A waiter, and how it was notified if it waits without a connection.
    Waiter(Ticket, Granted, Option<Notified>),
}

impl Then<'_> {
    /// Whether the grant has to be claimed.
    const fn is_unclaimed(&self) -> bool {
        matches!(self, Self::Waiter(_, _, Some(_)))
    }
}

/// An open key, and the decision about its lock.
pub(super) struct Decided<'n, E: Edge> {
    pub(super) name: KeyName<'n>,
    pub(super) key: E::Key<'n>,
    pub(super) decision: Decision,
}

/// A failure partway through several keys: how many were written before the server refused one.
pub(super) struct Partly {
    pub(super) written: usize,
    pub(super) refused: WriteRefused,
}

impl<E: Edge> Entry<'_, E> {
    /// Carries out a decision about one key.
    ///
    /// # Errors
    /// Why it was not written; nothing has changed.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a decision is as large as a value: each copy costs time")]
    pub(super) fn carry_out<'n>(
        &mut self,
        permit: Permit,
        name: KeyName<'n>,
        key: E::Key<'n>,
        mut decision: Decision,
        then: Then<'_>,
    ) -> Result<(), WriteRefused> {
        let written = self.write(permit, name, key, &mut decision, then.is_unclaimed())?;
        if !matches!(then, Then::Nobody) {
            self.commit_grant(name.alone(), then);
        }
        self.signal(written, decision.events());
        Ok(())
    }

    /// Carries out decisions about several keys in one database. All are written before any change is signalled.
    ///
    /// # Errors
    /// How many were written, and why the next was not.
    pub(super) fn carry_all_out(
        &mut self,
        permit: Permit,
        all: Vec<Decided<'_, E>>,
        then: Then<'_>,
    ) -> Result<(), Partly> {
        let mut names: Vec<&[u8]> = Vec::with_capacity(all.len());
        let mut signals = Vec::with_capacity(all.len());
        let mut db = 0;
        let mut result = Ok(());
        for Decided { name, key, mut decision } in all {
            if result.is_err() {
                decision.not_written();
                continue;
            }
            match self.write(permit, name, key, &mut decision, then.is_unclaimed()) {
                Ok(written) => {
                    signals.push((written, decision.events()));
                    names.push(name.name);
                    db = name.db;
                }
                Err(refused) => result = Err(Partly { written: names.len(), refused }),
            }
        }
        if result.is_ok() {
            self.commit_grant(KeyNames { db, names: &names }, then);
        }
        // Signals every change, even if a later key was refused.
        for (written, events) in signals {
            self.signal(written, events);
        }
        result
    }

    /// Writes a key and commits it to the engine.
    fn write<'n>(
        &mut self,
        permit: Permit,
        name: KeyName<'n>,
        mut key: E::Key<'n>,
        decision: &mut Decision,
        is_unclaimed: bool,
    ) -> Result<Option<E::Written<'n>>, WriteRefused> {
        let before = key.shape();
        let written = match decision.write() {
            None => {
                drop(key);
                None
            }
            Some(write) => {
                let now = key.now();
                let contents = contents(&mut key, before, write);
                let retentions = || {
                    let set = self.edge.retentions();
                    Retentions { key: if is_unclaimed { set.key.unclaimed() } else { set.key }, ..set }
                };
                let change = Change::of(write, contents, retentions, now);
                match self.edge.write(permit, key, change) {
                    Ok(written) => Some(written),
                    Err(refused) => {
                        decision.not_written();
                        return Err(refused);
                    }
                }
            }
        };
        self.engine().commit(decision, name, before);
        Ok(written)
    }

    #[inline]
    fn commit_grant(&mut self, keys: KeyNames<'_>, then: Then<'_>) {
        match then {
            Then::Nobody => {}
            Then::Caller(caller, granted) => {
                let clock = self.edge.clock();
                self.engine().granted_to_caller(keys, caller, granted, clock);
            }
            Then::Waiter(ticket, granted, notified) => {
                let clock = self.edge.clock();
                let waited = self.engine().granted_to_waiter(ticket, granted, notified, clock);
                if let Some(waited) = waited {
                    self.edge.record(Span::Wait, waited);
                }
            }
        }
    }

    #[inline]
    fn signal(&mut self, written: Option<E::Written<'_>>, events: &[Event]) {
        if let Some(written) = written {
            self.edge.signal(written, events);
        }
    }

    /// Deletes keys whose only grants have ended and for which nobody waits. Returns how many were deleted, counted
    /// from the first.
    pub(super) fn delete_all<'n>(&mut self, token: Token, names: &[KeyName<'n>], keys: Vec<E::Key<'n>>) -> usize {
        let written = self.edge.delete_all(keys);
        let deleted = written.len();
        let mut decision = Decision::to_release(token);
        decision.not_written();
        let mut engine = self.engine();
        for (name, _) in names.iter().zip(&written) {
            engine.commit(&mut decision, *name, Shape::One);
        }
        drop(engine);
        for written in written {
            self.edge.signal(written, decision.events());
        }
        deleted
    }
}

/// The key contents that a write depends on; nothing else is requested from the server.
#[inline]
fn contents<'k>(key: &'k mut impl Key, shape: Shape, write: Write<'_>) -> Contents<'k> {
    if shape == Shape::One {
        return match write.needs_room() {
            false => Contents::One,
            true if key.is_string() => Contents::String,
            true => Contents::Nothing,
        };
    }
    let has_expiry = key.has_expiry();
    key.members().map_or(Contents::Nothing, |members| Contents::Members { members, has_expiry })
}
