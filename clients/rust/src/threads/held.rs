//! A held lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue};

use super::runtime::block_on;
use crate::error::Error;
use crate::held::{Owner, held_methods};
use crate::hold::{Ended, Hold, Part};
use crate::results::Bytes;

/// A held lock, until it is released, dropped or lost. A grant has a second `Held` only if it was acquired again, with
/// [`reentrant`](super::Lock::reentrant). Dropping it releases the lock, as [`Held::release`] does, but does not report
/// whether it was held to the end.
///
/// It cannot be copied, or used after it is released:
///
/// ```compile_fail,E0599
/// fn copy(held: &serverlock::Held) -> serverlock::Held {
///     held.clone()
/// }
/// ```
///
/// ```compile_fail,E0382
/// fn twice(held: serverlock::Held) {
///     let _ = held.release();
///     let _ = held.release();
/// }
/// ```
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

    /// Releases the lock.
    ///
    /// This takes at most one call's time-out. After that, the lock is released in the background; if that fails, it
    /// ends with its lease.
    ///
    /// With [`reentrant`](super::Lock::reentrant), the lock stays held until the last of its `Held`s is released.
    ///
    /// # Errors
    /// [`Lost`](crate::Kind::Lost) unless the lock was held to the end, [`Misuse`](crate::Kind::Misuse) if its
    /// outermost [`run`](super::Lock::run) has released it.
    pub fn release(mut self) -> Result<(), Error> {
        self.end()?.map_or(Ok(()), |ended| self.release_now(ended, None))
    }

    /// Releases the lock, and passes a result on to all that wait for it.
    pub(super) fn release_with(mut self, result: Bytes) -> Result<(), Error> {
        self.end()?.map_or(Ok(()), |ended| self.release_now(ended, Some(result)))
    }

    fn release_now(&self, ended: Ended, result: Option<Bytes>) -> Result<(), Error> {
        block_on(self.owner.engine.reach(), self.owner.engine.release_with(&self.hold, ended, result))
    }

    /// Sets a new lease, counted from now. Renewals do this automatically, with the lock's own lease.
    ///
    /// # Errors
    /// [`Lost`](crate::Kind::Lost), [`Argument`](crate::Kind::Argument), or an error if the server did not reply.
    pub fn extend(&self, lease: Duration) -> Result<(), Error> {
        block_on(self.owner.engine.reach(), self.owner.engine.extend(&self.hold, lease))
    }

    /// Asks the server whether the lock is held, and returns the remaining time.
    ///
    /// # Errors
    /// [`Lost`](crate::Kind::Lost), or an error if the server did not reply.
    pub fn verify(&self) -> Result<Duration, Error> {
        block_on(self.owner.engine.reach(), self.owner.engine.verify(&self.hold))
    }

    /// Runs one command on the lock's server, but only if the lock is held there at that moment. The command's
    /// first argument is its key, which in a cluster must be in the lock's slot.
    ///
    /// # Errors
    /// [`Lost`](crate::Kind::Lost), the command's error as [`Argument`](crate::Kind::Argument), or an error if the
    /// server did not reply.
    pub fn fenced<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        let value = block_on(self.owner.engine.reach(), self.owner.engine.fenced(&self.hold, command))?;
        self.hold.converted(value)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Ok(Some(ended)) = self.end()
            && let Err(error) = self.release_now(ended, None)
        {
            log::debug!("serverlock: {error}");
        }
    }
}
