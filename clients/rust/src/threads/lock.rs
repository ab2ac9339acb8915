//! The description of a lock.

use std::fmt;
use std::sync::Arc;

use super::held::Held;
use super::runtime::block_on;
use crate::error::Error;
use crate::held::{Cancel, Owner};
use crate::options::lock_options;
use crate::request::Request;
use crate::scopes::{OfThread, again, remember};

/// A description of a lock: it holds nothing, and any number of threads may use it. Each acquisition returns its own
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

    /// Gets the lock, within [`wait`](Self::wait). It is released when the [`Held`] is dropped.
    ///
    /// # Errors
    /// [`Refused`](crate::Kind::Refused) if somebody else has it, [`Timeout`](crate::Kind::Timeout) if somebody else
    /// still had it when the wait ended, and any other kind except `Lost`.
    pub fn acquire(&self) -> Result<Held, Error> {
        self.acquire_unless(&Cancel::new())
    }

    /// Like [`acquire`](Self::acquire), but can be cancelled. It then returns at once if it is waiting; in the middle
    /// of a call, it returns after the reply or the call's time-out.
    ///
    /// # Errors
    /// [`Cancelled`](crate::Kind::Cancelled), and those of `acquire`.
    pub fn acquire_unless(&self, cancel: &Cancel) -> Result<Held, Error> {
        let (held, is_new) = self.acquired(cancel)?;
        if is_new && self.request.settings.reentrant {
            remember(&held.hold);
        }
        Ok(held)
    }

    /// The hold that this caller has, or a new one, and whether it is new.
    fn acquired(&self, cancel: &Cancel) -> Result<(Held, bool), Error> {
        let (engine, owner) = (&self.owner.engine, Arc::clone(&self.owner));
        if let Some(hold) = again(engine, &self.request, &cancel.0)? {
            return Ok((Held::new(hold, owner), false));
        }
        let attempt = engine.acquire(Arc::clone(&self.request), Arc::clone(&cancel.0));
        Ok((Held::new(block_on(engine.reach(), attempt)?, owner), true))
    }

    /// Runs the work while the lock is held, then releases the lock. Rust cannot stop a thread from outside: longer
    /// work should call [`Held::check`] before each step.
    ///
    /// # Errors
    /// The work's error; if it has none, [`Lost`](crate::Kind::Lost) if the lock was not held to the end. Requesting
    /// the same lock within the work is [`Misuse`](crate::Kind::Misuse), unless the request is
    /// [`reentrant`](Self::reentrant).
    pub fn run<T, E: From<Error>>(&self, work: impl FnOnce(&Held) -> Result<T, E>) -> Result<T, E> {
        self.run_unless(&Cancel::new(), work)
    }

    /// Like [`run`](Self::run), but the attempt can be cancelled from outside. Cancelling does not affect a held lock.
    ///
    /// # Errors
    /// The same as for [`run`](Self::run), and [`Cancelled`](crate::Kind::Cancelled).
    pub fn run_unless<T, E: From<Error>>(
        &self,
        cancel: &Cancel,
        work: impl FnOnce(&Held) -> Result<T, E>,
    ) -> Result<T, E> {
        let (held, is_new) = self.acquired(cancel)?;
        let held = if is_new { held.outermost() } else { held };
        let scope = OfThread::enter(&held.hold);
        let done = work(&held);
        drop(scope);
        let released = held.release();
        let value = done?;
        released?;
        Ok(value)
    }
}
