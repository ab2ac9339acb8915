//! LOCK.RELEASE, LOCK.MRELEASE and LOCK.CANCEL: a grant ends, and the lock passes on.

use super::edge::{Access, Edge, Expected, Key, Permit, Span};
use super::entry::Entry;
use super::write::Then;
use crate::engine::counters::Counter;
use crate::engine::grant::Decision;
use crate::engine::queue::LineId;
use crate::engine::{KeyName, Left, Shape, Successor};
use crate::lock::error::Error;
use crate::lock::record::Id;
use crate::lock::rules::{self, Release};
use crate::lock::time::UnixMicros;
use crate::lock::token::Token;

/// When a released lock is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandOff {
    /// At once: the same change of the key grants it to the first waiter.
    AtOnce,
    /// Later: the grant is only removed from the key, and the waiters are served when all of the locks are released.
    Later,
}

impl<E: Edge> Entry<'_, E> {
    /// LOCK.RELEASE.
    ///
    /// # Errors
    /// The error for the caller; nothing has changed then.
    pub fn release(&mut self, name: E::Name<'_>, token: Token) -> Result<Release, Error> {
        let now = self.edge.command_time();
        let key = self.edge.open(name, Access::Caller, Expected::Grant(token), now)?;
        let release = rules::release(key.lock(), token);
        if release != Release::Over {
            let key_name = self.known_name(name);
            let line = self.pass_on(key_name, key, token, HandOff::AtOnce)?;
            self.pass_on_parked(line.as_slice());
        }
        self.engine().count_release(release);
        Ok(release)
    }

    /// LOCK.MRELEASE. Returns how many locks were released.
    ///
    /// # Errors
    /// The error for the caller; nothing has changed then.
    pub fn release_all<'n>(&mut self, names: &[E::Name<'n>], token: Token) -> Result<usize, Error> {
        let now = self.edge.command_time();
        // All keys are opened first: a key of another type is found before anything has changed.
        let open = |name: &E::Name<'n>| self.edge.open(*name, Access::Caller, Expected::Grant(token), now);
        let keys: Vec<E::Key<'n>> = names.iter().map(open).collect::<Result<_, _>>()?;
        // The keys that are only deleted (usually all), the indexes of the others, and those with waiters or several
        // holders.
        let (mut gone, mut others, mut awaited) = (Vec::with_capacity(keys.len()), Vec::new(), Vec::new());
        for (at, (name, key)) in names.iter().zip(&keys).enumerate() {
            let release = rules::release(key.lock(), token);
            let key_name = self.known_name(*name);
            let mut engine = self.engine();
            engine.count_release(release);
            if release == Release::Over {
                others.push(at);
            } else if key.shape() == Shape::Several || engine.waited_line(key_name).is_some() {
                others.push(at);
                awaited.push(*name);
            } else {
                engine.given_back(token, now);
                drop(engine);
                self.edge.record(Span::Hold, held(token, now));
                gone.push(key_name);
            }
        }
        let released = names.len().saturating_sub(others.len()).saturating_add(awaited.len());
        let gone_keys = if others.is_empty() {
            keys
        } else {
            let keys = keys.into_iter().enumerate();
            keys.filter(|(at, _)| others.binary_search(at).is_err()).map(|(_, key)| key).collect()
        };
        if !gone_keys.is_empty() && !self.delete_all(token, &gone, gone_keys) {
            return Err(Error::Internal);
        }
        // The waiters are served in the order of arrival, whatever line they are in, when all is released.
        let has_parked = awaited.iter().any(|name| {
            let key = self.edge.key_name(*name);
            self.engine().queues().has_parked(key.db, key.name)
        });
        let hand_off = if has_parked { HandOff::Later } else { HandOff::AtOnce };
        // A listener to one key may change others: each of the rest is opened again.
        let mut lines = Vec::new();
        for name in awaited {
            let key = self.edge.open(name, Access::Caller, Expected::Grant(token), now)?;
            if rules::release(key.lock(), token) != Release::Over {
                let key_name = self.edge.key_name(name);
                lines.extend(self.pass_on(key_name, key, token, hand_off)?);
            }
        }
        self.pass_on_parked(&lines);
        Ok(released)
    }

    /// LOCK.CANCEL. Returns whether the attempt waited, had a place or held the lock.
    ///
    /// # Errors
    /// The error for the caller; nothing has changed then.
    pub fn cancel(&mut self, name: E::Name<'_>, id: Id) -> Result<bool, Error> {
        let now = self.edge.command_time();
        let key = self.edge.open(name, Access::Caller, Expected::Attempt(Some(id)), now)?;
        let key_name = self.edge.key_name(name);
        let mut was_there = self.engine().cancel(key_name, id);
        if let Some(token) = rules::held_by(key.lock(), id) {
            was_there = true;
            // If the grant is still on its way and gets lost, the attempt does not get its place back.
            self.engine().delivered(token);
            let line = self.pass_on(key_name, key, token, HandOff::AtOnce)?;
            self.pass_on_parked(line.as_slice());
        }
        if was_there {
            self.engine().count(Counter::Cancels);
        }
        Ok(was_there)
    }

    /// The holder of `token` gave the lock back: hands it to the first waiter, in one change of the key, or removes the
    /// grant from the key if the first waiter may not have it. Returns the line if its lock may have come free for
    /// waiters that want other locks too: for [`Entry::pass_on_parked`], once the caller has released all.
    fn pass_on<'n>(
        &mut self,
        key_name: KeyName<'n>,
        mut key: E::Key<'n>,
        token: Token,
        hand_off: HandOff,
    ) -> Result<Option<LineId>, Error> {
        let (now, terms) = (key.now(), self.edge.terms());
        let may_grant = self.gate_of_line(key_name).is_ok();
        let was_among = end(&mut key, token);
        let (line, successor) = {
            let mut engine = self.engine();
            engine.given_back(token, now);
            let line = engine.waited_line(key_name);
            let left = if was_among { Left::Others(key.lock()) } else { Left::Nothing };
            let first = line.filter(|_| may_grant && hand_off == HandOff::AtOnce);
            (line, first.and_then(|line| engine.successor(line, token, left, terms, now)))
        };
        self.edge.record(Span::Hold, held(token, now));
        if let Some(Successor { ticket, decision, granted }) = successor {
            let decision = decision.as_hand_off();
            self.carry_out(Permit::COMMAND, key_name, key, decision, Then::Waiter(ticket, granted))?;
            return Ok(None);
        }
        let is_free = !was_among || key.lock().is_nobodys();
        let decision = Decision::to_release(token);
        self.carry_out(Permit::COMMAND, key_name, key, decision, Then::Nobody)?;
        if let Some(line) = line.filter(|_| !(may_grant && is_free)) {
            self.engine().set_ready(line);
            return Ok(None);
        }
        Ok(line)
    }
}

/// Ends one of several grants in the open key, before that is written. Returns whether it was one.
pub(super) fn end(key: &mut impl Key, token: Token) -> bool {
    key.members().is_some_and(|members| members.end(token))
}

/// How long a lock was held: a token is the time of its grant.
fn held(token: Token, now: UnixMicros) -> crate::lock::time::Micros {
    now.since(UnixMicros(token.get()))
}
