//! A caller asks for a lock: LOCK.ACQUIRE, LOCK.MACQUIRE and LOCK.RECOVER.

use crate::engine::counters::Counter;
use crate::engine::{Engine, KeyName, KeyNames};
use crate::lock::admit::{self, Acquire, Turn};
use crate::lock::error::Error;
use crate::lock::request::Request;
use crate::lock::state::State;
use crate::lock::terms::Terms;
use crate::lock::time::UnixMicros;

/// A caller's request, and the settings that apply to it.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub request: &'a Request<'a>,
    /// The settings.
    pub terms: Terms,
    /// Whether locks may be granted now.
    pub may_grant: Result<(), Error>,
    /// The time of the command.
    pub now: UnixMicros,
}

impl<H> Engine<H> {
    /// Whether it is the caller's turn or others are ahead of it in the queue.
    fn turn(&self, key: KeyName<'_>, lock: State<'_>, wanted: &Wanted<'_>) -> Turn {
        if wanted.may_grant.is_err() {
            return Turn::Barred;
        }
        let others_ahead = !self.queues.is_empty() && self.queues.has_ahead(key, wanted.request.id);
        if others_ahead || self.awaits_claim(key, lock) {
            Turn::Behind
        } else {
            Turn::Now
        }
    }

    /// LOCK.ACQUIRE.
    ///
    /// # Errors
    /// The errors of [`admit::acquire`].
    pub fn acquire<'a>(
        &mut self,
        key: KeyName<'_>,
        lock: State<'a>,
        wanted: &Wanted<'a>,
    ) -> Result<Acquire<'a>, Error> {
        let turn = self.turn(key, lock, wanted);
        admit::acquire(lock, wanted.request, turn, wanted.terms, &mut self.tokens, wanted.now)
    }

    /// LOCK.RECOVER.
    ///
    /// # Errors
    /// The errors of [`admit::recover`].
    pub fn recover<'a>(
        &mut self,
        key: KeyName<'_>,
        lock: State<'a>,
        wanted: &Wanted<'a>,
    ) -> Result<Acquire<'a>, Error> {
        let turn = self.turn(key, lock, wanted);
        admit::recover(lock, wanted.request, turn, wanted.terms, &mut self.tokens, wanted.now)
    }

    /// LOCK.MACQUIRE: the decisions for all of the keys; otherwise the index of the first key for which somebody is
    /// ahead of the caller, if any.
    ///
    /// # Errors
    /// The errors of [`admit::acquire_all`].
    pub fn acquire_all<'a>(
        &mut self,
        keys: KeyNames<'_>,
        locks: &[State<'a>],
        wanted: &Wanted<'a>,
    ) -> Result<Result<Vec<Acquire<'a>>, Option<usize>>, Error> {
        let behind = if self.queues.is_empty() { None } else { self.queues.first_ahead(keys, wanted.request.id) };
        let awaits_claim = |(key, lock): (KeyName<'_>, &State<'_>)| self.awaits_claim(key, *lock);
        let behind = behind.or_else(|| keys.iter().zip(locks).position(awaits_claim));
        let turn = match (wanted.may_grant, behind) {
            (Err(_), _) => Turn::Barred,
            (_, Some(_)) => Turn::Behind,
            _ => Turn::Now,
        };
        let decisions = admit::acquire_all(locks, wanted.request, turn, wanted.terms, &mut self.tokens, wanted.now)?;
        Ok(decisions.ok_or(behind))
    }

    /// Counts a caller that did not get the lock.
    pub fn refused(&mut self, lock: State<'_>) {
        self.count(Counter::Refusals);
        if lock == State::Foreign {
            self.count(Counter::ForeignMet);
        }
    }
}
