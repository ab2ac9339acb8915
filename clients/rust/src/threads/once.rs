//! The description of a body that runs once per period.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::held::Held;
use super::runtime::block_on;
use crate::error::Error;
use crate::held::{Cancel, Owner};
use crate::once::{Outcome, Run, Schedule, begin, finish, held_once_methods};
use crate::options::once_options;
use crate::request::Request;
use crate::scopes::{OfThread, again};

/// Describes a body that runs once per period, in one of the processes that ask. It holds nothing, and any number of
/// threads may use it.
#[derive(Clone)]
pub struct Once {
    pub(super) owner: Arc<Owner>,
    pub(super) request: Arc<Request>,
    pub(super) period: Duration,
    pub(super) reruns: bool,
}

impl fmt::Debug for Once {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Once")
            .field("request", &self.request)
            .field("period", &self.period)
            .finish_non_exhaustive()
    }
}

impl Once {
    once_options!();

    /// Runs the work, unless another process is running this tick, or has run it. Rust cannot stop a thread from
    /// outside: longer work should call [`Held::check`] before each step.
    ///
    /// If the work succeeds, nobody else runs this tick: its lock is kept until halfway to the next tick. This takes at
    /// most a few times as long as one call's time-out; after that, it continues in the background. If the work fails
    /// or panics, another process may run the tick.
    ///
    /// # Errors
    /// The work's error; if it has none, [`Lost`](crate::Kind::Lost) if the lock was not held to the end of the work;
    /// and any other kind except `Refused` and `Timeout`. Requesting the same lock within the work is
    /// [`Misuse`](crate::Kind::Misuse).
    pub fn run<T, E: From<Error>>(&self, work: impl FnOnce(&HeldOnce) -> Result<T, E>) -> Result<Outcome<T>, E> {
        self.run_unless(&Cancel::new(), work)
    }

    /// Like [`run`](Self::run), but the attempt can be cancelled from outside. Cancelling does not affect work that has
    /// begun.
    ///
    /// # Errors
    /// The same as for [`run`](Self::run), and [`Cancelled`](crate::Kind::Cancelled).
    pub fn run_unless<T, E: From<Error>>(
        &self,
        cancel: &Cancel,
        work: impl FnOnce(&HeldOnce) -> Result<T, E>,
    ) -> Result<Outcome<T>, E> {
        let Some(held) = self.begin(cancel)? else { return Ok(Outcome::Elsewhere) };
        let scope = OfThread::enter(&held.held.hold);
        let done = work(&held);
        drop(scope);
        let value = done?; // an error drops the hold, which releases the lock
        let outcome = held.outcome();
        held.finish()?;
        Ok(outcome(value))
    }

    fn begin(&self, cancel: &Cancel) -> Result<Option<HeldOnce>, Error> {
        let engine = &self.owner.engine;
        again(engine, &self.request, &cancel.0)?;
        let schedule = Schedule { request: Arc::clone(&self.request), period: self.period, reruns: self.reruns };
        let begun = block_on(engine.reach(), begin(engine, schedule, Arc::clone(&cancel.0)))?;
        Ok(begun.map(|(hold, run)| HeldOnce { held: Held::new(hold, Arc::clone(&self.owner)), run }))
    }
}

/// The held lock of one tick.
#[derive(Debug)]
pub struct HeldOnce {
    held: Held,
    run: Run,
}

impl Deref for HeldOnce {
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.held
    }
}

impl HeldOnce {
    held_once_methods!();

    fn finish(self) -> Result<(), Error> {
        let engine = &self.held.owner.engine;
        block_on(engine.reach(), finish(engine, &self.held.hold, self.run.clone()))
    }
}
