//! The description of a body that runs once per period.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::held::{Held, to_the_end};
use super::lock::Attempted;
use crate::error::Error;
use crate::held::Owner;
use crate::once::{Outcome, Run, Schedule, begin, finish, held_once_methods};
use crate::options::once_options;
use crate::request::Request;
use crate::scopes::{again, of_task};
use crate::sync::{First, Signal, first};

/// Describes a body that runs once per period, in one of the processes that ask. It holds nothing, and any number of
/// tasks may use it.
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

    /// Runs the work, unless another process is running this tick, or has run it. If the lock is lost, the work is
    /// dropped where it awaits something.
    ///
    /// If the work succeeds, nobody else runs this tick: its lock is kept until halfway to the next tick. This takes at
    /// most a few times as long as one call's time-out; after that, or if this future is dropped, it continues in the
    /// background. If the work fails, or this future is dropped before the work has ended, another process may run the
    /// tick.
    ///
    /// # Errors
    /// The work's error; if it has none, or was dropped, [`Lost`](crate::Kind::Lost) if the lock was not held to the
    /// end of the work; and any other kind except `Refused`, `Timeout` and `Cancelled`. Requesting the same lock within
    /// the work is [`Misuse`](crate::Kind::Misuse).
    pub async fn run<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&HeldOnce) -> Result<T, E>,
    ) -> Result<Outcome<T>, E> {
        let Some(held) = self.begin().await? else { return Ok(Outcome::Elsewhere) };
        let done = {
            let work = of_task(&held.held.hold, work(&held));
            match first(work, held.held.hold.over.wait()).await {
                First::Left(done) => Some(done),
                First::Right(()) => None,
            }
        };
        let outcome = held.outcome();
        match done {
            Some(Ok(value)) => {
                held.finish().await?;
                Ok(outcome(value))
            }
            Some(Err(error)) => {
                let _ = held.held.release().await;
                Err(error)
            }
            None => {
                held.held.release().await?;
                // The lock was lost, so this is not reached.
                Err(Error::new(crate::Kind::Lost, &self.request.name, "lost").into())
            }
        }
    }

    async fn begin(&self) -> Result<Option<HeldOnce>, Error> {
        let engine = &self.owner.engine;
        again(engine, &self.request, &Signal::default())?;
        let schedule = Schedule { request: Arc::clone(&self.request), period: self.period, reruns: self.reruns };
        let (owner, cancel) = (Arc::clone(&self.owner), Arc::<Signal>::default());
        let given_up = Arc::clone(&cancel);
        let attempt = async move {
            let begun = begin(&owner.engine, schedule, given_up).await?;
            Ok(begun.map(|(hold, run)| HeldOnce { held: Held::new(hold, owner), run }))
        };
        Attempted::new(engine, cancel, attempt).await
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

    async fn finish(self) -> Result<(), Error> {
        let reach = self.held.owner.engine.reach().clone();
        // The work owns the hold: dropped any earlier, it would release the lock.
        let work = async move { finish(&self.held.owner.engine, &self.held.hold, self.run.clone()).await };
        to_the_end(reach, Box::pin(work)).await
    }
}
