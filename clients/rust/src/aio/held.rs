//! A held lock.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use redis::{Cmd, FromRedisValue};

use super::Work;
use crate::error::Error;
use crate::held::{Owner, held_methods};
use crate::hold::{Ended, Hold, Part};
use crate::reach::Reach;
use crate::results::Bytes;

/// A held lock, until it is released, dropped or lost. A grant has a second `Held` only if it was acquired again, with
/// [`reentrant`](super::Lock::reentrant). Dropping it releases the lock in the background; if the runtime ends first,
/// the lock ends with its lease.
#[must_use = "the lock is released when this is dropped"]
pub struct Held {
    pub(super) hold: Arc<Hold>,
    pub(super) owner: Arc<Owner>,
    part: Option<Part>,
}

impl fmt::Debug for Held {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Held").field("key", &self.key()).field("token", &self.token()).finish_non_exhaustive()
    }
}

impl Held {
    held_methods!();

    /// Waits until the lock is lost, and returns the error that [`Held::check`] returns from then on.
    pub async fn lost(&self) -> Error {
        self.watch().over().await
    }

    /// Releases the lock. Dropping this future does not stop the release.
    ///
    /// This takes at most one call's time-out. After that, the lock is released in the background; if that fails, it
    /// ends with its lease.
    ///
    /// With [`reentrant`](super::Lock::reentrant), the lock stays held until the last of its `Held`s is released.
    ///
    /// # Errors
    /// [`Lost`](crate::Kind::Lost) unless the lock was held to the end, [`Misuse`](crate::Kind::Misuse) if its
    /// outermost [`run`](super::Lock::run) has released it.
    pub async fn release(self) -> Result<(), Error> {
        self.release_with(None).await
    }

    /// The same, and passes a result on to all that wait for it.
    pub(super) async fn release_with(mut self, result: Option<Bytes>) -> Result<(), Error> {
        let Some(ended) = self.end()? else { return Ok(()) };
        let (hold, owner) = (Arc::clone(&self.hold), Arc::clone(&self.owner));
        let reach = self.owner.engine.reach().clone();
        to_the_end(reach, Box::pin(async move { owner.engine.release_with(&hold, ended, result).await })).await
    }

    /// Sets a new lease, counted from now. Renewals do this automatically, with the lock's own lease.
    ///
    /// # Errors
    /// [`Lost`](crate::Kind::Lost), [`Argument`](crate::Kind::Argument), or an error if the server did not reply.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.owner.engine.extend(&self.hold, lease).await
    }

    /// Asks the server whether the lock is held, and returns the remaining time.
    ///
    /// # Errors
    /// [`Lost`](crate::Kind::Lost), or an error if the server did not reply.
    pub async fn verify(&self) -> Result<Duration, Error> {
        self.owner.engine.verify(&self.hold).await
    }

    /// Runs one command on the lock's server, but only if the lock is held there at that moment. The command's
    /// first argument is its key, which in a cluster must be in the lock's slot.
    ///
    /// # Errors
    /// [`Lost`](crate::Kind::Lost), the command's error as [`Argument`](crate::Kind::Argument), or an error if the
    /// server did not reply.
    pub async fn fenced<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        let value = self.owner.engine.fenced(&self.hold, command).await?;
        self.hold.converted(value)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Ok(Some(ended)) = self.end() else { return };
        let (hold, owner) = (Arc::clone(&self.hold), Arc::clone(&self.owner));
        self.owner.engine.resources.reach.spawn(async move { owner.engine.release(&hold, ended).await });
    }
}

/// Ends a hold. This continues in the background if its future is dropped.
pub(super) async fn to_the_end(reach: Reach, work: Work<Result<(), Error>>) -> Result<(), Error> {
    let mut ending = Ending { work: Some(work), reach };
    std::future::poll_fn(move |context| ending.poll(context)).await
}

struct Ending {
    work: Option<Work<Result<(), Error>>>,
    reach: Reach,
}

impl Ending {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let done = work.as_mut().poll(context);
        if done.is_ready() {
            self.work = None;
        }
        done
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.reach.spawn(work);
        }
    }
}
