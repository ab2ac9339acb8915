//! LOCK.ACQUIRE, LOCK.MACQUIRE and LOCK.RECOVER: a caller asks for a lock.

use super::edge::{Access, Edge, Expected, Key, Permit};
use super::entry::Entry;
use super::write::{Decided, Then};
use crate::engine::grant::{Decision, Granted};
use crate::engine::queue::{Channel, ReplyShape};
use crate::engine::result::LockResult;
use crate::engine::{due, Blocked, Caller, KeyName, KeyNames, Wanted};
use crate::lock::admit::{self, Acquire};
use crate::lock::error::Error;
use crate::lock::record::Id;
use crate::lock::request::Request;
use crate::lock::state::State;
use crate::lock::time::Micros;
use crate::lock::token::Token;
use std::rc::Rc;

/// The arguments of a command that asks for a lock.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    pub request: Request<'a>,
    /// How long to wait; zero means not at all.
    pub wait: Micros,
    pub shape: ReplyShape,
    /// Whether the grant ends with its connection.
    pub session: bool,
    /// Whether the caller, if it waits, takes the holder's result instead of the lock.
    pub wants_result: bool,
    /// The channel for notifying an attempt that waits without a connection.
    pub notify: Option<ChannelName<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelName<'a> {
    pub name: &'a [u8],
    /// Whether it is a sharded channel.
    pub is_sharded: bool,
}

impl ChannelName<'_> {
    /// An owned copy.
    #[must_use]
    pub fn to_owned(self) -> Channel {
        Channel { name: self.name.into(), is_sharded: self.is_sharded }
    }
}

/// The outcome of such a command.
#[derive(Debug)]
pub enum Outcome {
    /// The lock was granted.
    Granted(Granted),
    /// The attempt had left the queue with the holder's result.
    Result(Rc<LockResult>),
    /// The lock was refused.
    NotGranted,
    /// The client waits and will be answered later.
    Waits,
    /// The attempt waits, and is notified on its channel.
    Queued,
}

impl<E: Edge> Entry<'_, E> {
    /// LOCK.ACQUIRE.
    ///
    /// # Errors
    /// The error for the caller; nothing has changed.
    pub fn acquire(&mut self, name: E::Name<'_>, ask: &Ask<'_>) -> Result<Outcome, Error> {
        let wanted = self.wanted(ask)?;
        let request = wanted.request;
        if ask.wants_result {
            if let Some(result) = self.kept_result(name, request.id) {
                return Ok(Outcome::Result(result));
            }
            self.may_take_result(name, &wanted)?;
        }
        if request.id.is_some() {
            if let Some(outcome) = self.known_attempt(&[name], ask, &wanted)? {
                return Ok(outcome);
            }
        }
        let key = self.edge.open(name, Access::Caller, Expected::Attempt(request.id), wanted.now)?;
        let key_name = self.edge.key_name(name);
        // Read once: reading is a large part of a refusal's cost.
        let lock = key.lock();
        let decision = self.engine().acquire(key_name, lock, &wanted)?;
        if let Acquire::Prolong(held) | Acquire::Keep(held) = decision {
            self.may_report_again(held.token, &wanted)?;
        }
        let Some((decision, mut granted)) = Decision::to_grant(&decision) else {
            self.engine().refused(lock);
            let too_early = wanted.may_grant.err().filter(|_| admit::could_have(lock, request, wanted.now));
            let blocked = blocked(0, lock, &key, request, self.would_wait(ask));
            drop(key);
            return self.wait_or_not(key_name.alone(), blocked, ask, too_early);
        };
        let caller = self.caller(ask);
        self.carry_out(Permit::COMMAND, key_name, key, decision, Then::Caller(caller, &mut granted))?;
        Ok(Outcome::Granted(granted))
    }

    /// LOCK.RECOVER. `None` if there is no expired lock to take over.
    ///
    /// # Errors
    /// The error for the caller; nothing has changed.
    pub fn recover(&mut self, name: E::Name<'_>, ask: &Ask<'_>) -> Result<Option<Granted>, Error> {
        let wanted = self.wanted(ask)?;
        let key = self.edge.open(name, Access::Caller, Expected::Nothing, wanted.now)?;
        let key_name = self.edge.key_name(name);
        if self.engine().is_barred(key_name.alone(), ask.request.id) {
            return Ok(None);
        }
        let lock = key.lock();
        let decision = self.engine().recover(key_name, lock, &wanted)?;
        let Some((decision, mut granted)) = Decision::to_grant(&decision) else {
            self.engine().refused(lock);
            return match wanted.may_grant {
                Err(error) if lock.is_expired() => Err(self.refused_by_gate(error)),
                _ => Ok(None),
            };
        };
        let (caller, decision) = (self.caller(ask), decision.as_recovery());
        self.carry_out(Permit::COMMAND, key_name, key, decision, Then::Caller(caller, &mut granted))?;
        Ok(Some(granted))
    }

    /// LOCK.MACQUIRE.
    ///
    /// # Errors
    /// The error for the caller; nothing has changed.
    pub fn acquire_all<'n>(&mut self, names: &[E::Name<'n>], ask: &Ask<'_>) -> Result<Outcome, Error> {
        let wanted = self.wanted(ask)?;
        let request = wanted.request;
        if request.id.is_some() {
            if let Some(outcome) = self.known_attempt(names, ask, &wanted)? {
                return Ok(outcome);
            }
        }
        let expected = Expected::Attempt(request.id);
        let open = |name: &E::Name<'n>| self.edge.open(*name, Access::Caller, expected, wanted.now);
        let keys: Vec<E::Key<'n>> = names.iter().map(open).collect::<Result<_, _>>()?;
        let db = names.first().map_or(0, |name| self.edge.key_name(*name).db);
        let bytes: Vec<&[u8]> = names.iter().map(|name| self.edge.key_name(*name).name).collect();
        let key_names = KeyNames { db, names: &bytes };
        let locks: Vec<State<'_>> = keys.iter().map(Key::lock).collect();
        let decisions = self.engine().acquire_all(key_names, &locks, &wanted)?;
        let decisions = match decisions {
            Ok(decisions) => decisions,
            Err(behind) => {
                let met = locks.iter().position(|lock| !lock.is_nobodys());
                let lock = |at: usize| locks.get(at).copied().unwrap_or(State::Free);
                // The caller waits in the queue of a key that it cannot have.
                let at = met.or(behind).unwrap_or(0);
                let Some(key) = keys.get(at) else { return Err(Error::NumKeys) };
                let blocked = blocked(at, lock(at), key, request, self.would_wait(ask));
                self.engine().refused(met.map_or(State::Free, lock));
                let too_early = wanted.may_grant.err().filter(|_| met.is_none());
                drop(keys);
                return self.wait_or_not(key_names, blocked, ask, too_early);
            }
        };
        if let Some(Acquire::Prolong(held) | Acquire::Keep(held)) = decisions.first() {
            self.may_report_again(held.token, &wanted)?;
        }
        let Some((decisions, mut granted)) = Decision::to_grants(&decisions) else { return Err(Error::Internal) };
        let caller = self.caller(ask);
        let names = bytes.iter().map(|name| KeyName { db, name });
        let decided = names.zip(keys).zip(decisions);
        let decided = decided.map(|((name, key), decision)| Decided { name, key, decision }).collect();
        self.carry_all_out(Permit::COMMAND, decided, Then::Caller(caller, &mut granted))
            .map_err(|partly| partly.refused)?;
        Ok(Outcome::Granted(granted))
    }

    /// The result that is kept for an attempt.
    fn kept_result(&mut self, name: E::Name<'_>, id: Option<Id>) -> Option<Rc<LockResult>> {
        let id = id?;
        self.deliver_result_to(name, id);
        let (key_name, clock) = (self.edge.key_name(name), self.edge.clock());
        self.engine().kept_result(key_name, id, clock)
    }

    /// Sends an attempt its result, if it has left with one: a command of the attempt is about to be carried out.
    pub(super) fn deliver_result_to(&mut self, name: E::Name<'_>, id: Id) {
        let key_name = self.edge.key_name(name);
        self.engine().deliver_result_to(key_name, id);
    }

    /// Checks that a caller that wants a result does not ask for a lock with several holders. This comes first: the
    /// command itself may pass the lock on to several.
    fn may_take_result(&mut self, name: E::Name<'_>, wanted: &Wanted<'_>) -> Result<(), Error> {
        let key = self.edge.open(name, Access::Caller, Expected::Attempt(wanted.request.id), wanted.now)?;
        match key.lock() {
            State::Several(_) => Err(Error::ResultOfSeveral),
            _ => Ok(()),
        }
    }

    /// An attempt with an ID claims the grant that is waiting for it. A cancelled attempt gets nothing.
    fn known_attempt(
        &mut self,
        names: &[E::Name<'_>],
        ask: &Ask<'_>,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Outcome>, Error> {
        let id = ask.request.id;
        if let Some(id) = id {
            for name in names {
                self.deliver_result_to(*name, id);
            }
        }
        let is_barred = names.iter().any(|name| {
            let key_name = self.edge.key_name(*name);
            self.engine().is_barred(key_name.alone(), id)
        });
        if is_barred {
            return Ok(Some(Outcome::NotGranted));
        }
        Ok(self.claim(names, ask, wanted)?.map(Outcome::Granted))
    }

    /// Whether an attempt that holds the lock may get its grant again, with a longer lease. During a grace, it may do
    /// so only if this server made the grant, because otherwise the grant may have ended on the previous master.
    fn may_report_again(&mut self, token: Token, wanted: &Wanted<'_>) -> Result<(), Error> {
        match wanted.may_grant {
            Err(error @ Error::Grace(_)) if !self.engine().gate().granted_here(token) => {
                Err(self.refused_by_gate(error))
            }
            _ => self.may_extend(),
        }
    }

    /// Collects what a command that asks for a lock needs, before a key is opened.
    fn wanted<'a>(&mut self, ask: &'a Ask<'a>) -> Result<Wanted<'a>, Error> {
        if ask.session && !self.edge.is_connection() {
            return Err(Error::Session);
        }
        let may_grant = self.gate(ask.request.lease)?;
        let (terms, now) = (self.edge.terms(), self.edge.command_time());
        Ok(Wanted { request: &ask.request, terms, may_grant, now })
    }

    pub(super) fn caller(&self, ask: &Ask<'_>) -> Caller {
        let client = self.edge.client();
        Caller { id: ask.request.id, client, session: ask.session.then_some(client) }
    }
}

/// The key with this index, which the request cannot have. The time at which it becomes free matters only if the
/// request waits.
fn blocked(at: usize, lock: State<'_>, key: &impl Key, request: &Request<'_>, waits: bool) -> Blocked {
    let due = if waits { due(lock, request.share, || key.expires_in_ms(), key.now()) } else { None };
    Blocked { at, due, last_end: lock.last_end(), held_since: lock.held_since() }
}
