//! The description of a value that one of many callers computes.

use std::fmt;
use std::sync::Arc;
use std::thread;

use super::held::Held;
use super::runtime::block_on;
use crate::error::Error;
use crate::held::{Cancel, Owner};
use crate::options::flight_options;
use crate::request::Request;
use crate::scopes::{OfThread, again};
use crate::single_flight::{Begun, begin};

/// Describes a value that many callers need at the same moment. It holds nothing, and any number of threads may use it.
///
/// The threads that ask the same [`Locks`](crate::Locks) for a key share one attempt. The options of the first of them
/// apply, but each has its own [`wait`](Self::wait).
#[derive(Clone)]
pub struct SingleFlight {
    pub(super) owner: Arc<Owner>,
    pub(super) request: Arc<Request>,
}

impl fmt::Debug for SingleFlight {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SingleFlight").field("request", &self.request).finish_non_exhaustive()
    }
}

impl SingleFlight {
    flight_options!();

    /// Returns the value, as bytes: what another caller computes while this one waits, or what `compute` returns here.
    /// A caller that comes after `compute` has returned computes again.
    ///
    /// The lock is renewed while `compute` runs. Rust cannot stop a thread from outside: longer work should call
    /// [`Held::check`] before each step. Once `compute` has returned a value, the caller gets it, whatever becomes of
    /// the lock.
    ///
    /// If `compute` fails or panics, the lock is released, and the next caller computes. A value that is longer than
    /// the server's `lock.result-max` (64 KiB by default, and without the module) is not passed on to other processes:
    /// each computes its own.
    ///
    /// # Errors
    /// The error of `compute`; [`Timeout`](crate::Kind::Timeout) if there is no value within [`wait`](Self::wait);
    /// [`Misuse`](crate::Kind::Misuse) within `compute`, for the same key; and any other kind, if `compute` did not
    /// run.
    pub fn run<V: Into<Vec<u8>>, E: From<Error>>(
        &self,
        compute: impl FnOnce(&Held) -> Result<V, E>,
    ) -> Result<Vec<u8>, E> {
        self.run_unless(&Cancel::new(), compute)
    }

    /// Like [`run`](Self::run), but the wait can be cancelled from outside. Cancelling affects neither a `compute` that
    /// has begun nor other callers.
    ///
    /// # Errors
    /// The same as for [`run`](Self::run), and [`Cancelled`](crate::Kind::Cancelled).
    pub fn run_unless<V: Into<Vec<u8>>, E: From<Error>>(
        &self,
        cancel: &Cancel,
        compute: impl FnOnce(&Held) -> Result<V, E>,
    ) -> Result<Vec<u8>, E> {
        let engine = &self.owner.engine;
        again(engine, &self.request, &cancel.0)?;
        let begun = begin(engine, &self.request, Arc::clone(&cancel.0), Some(thread::current().id()));
        // `place` is dropped last: the lock is released before the next caller begins.
        let (place, hold) = match block_on(engine.reach(), begun)? {
            Begun::Value(value) => return Ok(value),
            Begun::Turn(hold, place) => (place, hold),
        };
        let held = Held::new(hold, Arc::clone(&self.owner));
        let scope = OfThread::enter(&held.hold);
        let computed = compute(&held);
        drop(scope);
        let value = Arc::new(computed?.into());
        place.land(&Ok(Arc::clone(&value)));
        if let Err(error) = held.release_with(Arc::clone(&value)) {
            log::debug!("serverlock: the value is there, but {error}");
        }
        Ok(Arc::unwrap_or_clone(value))
    }
}
