//! The description of a lock, and the attempts to get it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Work;
use super::held::Held;
use crate::engine::Engine;
use crate::error::Error;
use crate::following::Following;
use crate::held::Owner;
use crate::options::lock_options;
use crate::reach::Reach;
use crate::request::Request;
use crate::scopes::{again, of_task};
use crate::sync::{First, Signal, first};

/// A description of a lock: it holds nothing, and any number of tasks may use it. Each acquisition returns its own
/// [`Held`].
#[derive(Clone)]
pub struct Lock {
    pub(super) owner: Arc<Owner>,
    pub(super) request: Arc<Request>,
}

impl fmt::Debug for Lock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Lock").field("request", &self.request).finish_non_exhaustive()
    }
}

impl Lock {
    lock_options!();

    /// Fills [`Held::predecessor`].
    #[must_use]
    pub fn details(self) -> Self {
        self.with(|it| it.details = true)
    }

    /// Gets the lock, within [`wait`](Self::wait). It is released when the [`Held`] is dropped. Dropping this future
    /// gives up the attempt.
    ///
    /// # Errors
    /// [`Refused`](crate::Kind::Refused) if somebody else has it, [`Timeout`](crate::Kind::Timeout) if somebody else
    /// still had it when the wait ended, and any other kind except `Lost`.
    pub async fn acquire(&self) -> Result<Held, Error> {
        Ok(self.acquired().await?.0)
    }

    /// The hold that this caller has, or a new one, and whether it is new.
    async fn acquired(&self) -> Result<(Held, bool), Error> {
        let (engine, owner, cancel) = (&self.owner.engine, Arc::clone(&self.owner), Arc::<Signal>::default());
        if let Some(hold) = again(engine, &self.request, &cancel)? {
            return Ok((Held::new(hold, owner), false));
        }
        let (request, given_up) = (Arc::clone(&self.request), Arc::clone(&cancel));
        let attempt = async move {
            let hold = owner.engine.acquire(request, given_up).await?;
            Ok((Held::new(hold, owner), true))
        };
        Attempted::new(engine, cancel, attempt).await
    }

    /// Runs the work while the lock is held, then releases the lock. If the lock is lost, the work is dropped where it
    /// awaits something.
    ///
    /// # Errors
    /// The work's error; if it has none, or was dropped, [`Lost`](crate::Kind::Lost) if the lock was not held to the
    /// end. Requesting the same lock within the work is [`Misuse`](crate::Kind::Misuse), unless the request is
    /// [`reentrant`](Self::reentrant).
    pub async fn run<T, E: From<Error>>(&self, work: impl AsyncFnOnce(&Held) -> Result<T, E>) -> Result<T, E> {
        let (held, is_new) = self.acquired().await?;
        let held = if is_new { held.outermost() } else { held };
        let done = {
            let work = of_task(&held.hold, work(&held));
            match first(work, held.hold.over.wait()).await {
                First::Left(done) => Some(done),
                First::Right(()) => None,
            }
        };
        let released = held.release().await;
        let Some(done) = done else {
            released?;
            // The lock was lost, so this is not reached.
            return Err(Error::new(crate::Kind::Lost, &self.request.name, "lost").into());
        };
        let value = done?;
        released?;
        Ok(value)
    }
}

/// An attempt. If this is dropped, the attempt continues in the background until it has been withdrawn.
pub(super) struct Attempted<T: Send + 'static> {
    attempt: Option<Work<T>>,
    cancel: Arc<Signal>,
    reach: Reach,
    calling: Following,
    has_begun: bool,
}

impl<T: Send + 'static> Attempted<T> {
    pub(super) fn new(engine: &Engine, cancel: Arc<Signal>, attempt: impl Future<Output = T> + Send + 'static) -> Self {
        let reach = engine.reach().clone();
        Self { attempt: Some(Box::pin(attempt)), cancel, calling: reach.clock.calling(), reach, has_begun: false }
    }
}

impl<T: Send + 'static> Future for Attempted<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.has_begun = true;
        let Some(attempt) = &mut this.attempt else { return Poll::Pending };
        let done = this.calling.poll(attempt.as_mut(), context);
        if done.is_ready() {
            this.attempt = None;
        }
        done
    }
}

impl<T: Send + 'static> Drop for Attempted<T> {
    fn drop(&mut self) {
        if let Some(attempt) = self.attempt.take().filter(|_| self.has_begun) {
            self.cancel.fire();
            self.reach.spawn(attempt); // a grant that still arrives is dropped, which releases the lock
        }
    }
}
