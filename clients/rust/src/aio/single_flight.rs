//! The description of a value that one of many callers computes.

use std::fmt;
use std::sync::Arc;

use super::held::Held;
use super::lock::Attempted;
use crate::error::Error;
use crate::held::Owner;
use crate::options::flight_options;
use crate::request::Request;
use crate::scopes::{again, of_task};
use crate::single_flight::{Begun, begin};
use crate::sync::{First, Signal, first};

/// Describes a value that many callers need at the same moment. It holds nothing, and any number of tasks may use it.
///
/// The tasks that ask the same [`Locks`](super::Locks) for a key share one attempt. The options of the first of them
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
    /// The lock is renewed while `compute` runs. If it is lost, `compute` is dropped where it awaits something. Once
    /// `compute` has returned a value, the caller gets it, whatever becomes of the lock.
    ///
    /// If `compute` fails or panics, or this future is dropped, the lock is released, and the next caller computes. A
    /// value that is longer than the server's `lock.result-max` (64 KiB by default, and without the module) is not
    /// passed on to other processes: each computes its own.
    ///
    /// # Errors
    /// The error of `compute`; [`Lost`](crate::Kind::Lost) if it was dropped; [`Timeout`](crate::Kind::Timeout) if
    /// there is no value within [`wait`](Self::wait); [`Misuse`](crate::Kind::Misuse) within `compute`, for the same
    /// key; and any other kind except `Cancelled`, if `compute` did not run.
    pub async fn run<V: Into<Vec<u8>>, E: From<Error>>(
        &self,
        compute: impl AsyncFnOnce(&Held) -> Result<V, E>,
    ) -> Result<Vec<u8>, E> {
        // `place` is dropped last: the lock is released before the next caller begins.
        let (place, held) = match self.begin().await? {
            Begun::Value(value) => return Ok(value),
            Begun::Turn(held, place) => (place, held),
        };
        let computed = {
            let compute = of_task(&held.hold, compute(&held));
            match first(compute, held.hold.over.wait()).await {
                First::Left(computed) => computed.map(|value| Some(Arc::new(value.into()))),
                First::Right(()) => Ok(None),
            }
        };
        match computed {
            Ok(Some(value)) => {
                place.land(&Ok(Arc::clone(&value)));
                if let Err(error) = held.release_with(Some(Arc::clone(&value))).await {
                    log::debug!("serverlock: the value is there, but {error}");
                }
                Ok(Arc::unwrap_or_clone(value))
            }
            Ok(None) => {
                held.release().await?;
                // The lock was lost, so this is not reached.
                Err(Error::new(crate::Kind::Lost, &self.request.name, "lost").into())
            }
            Err(error) => {
                let _ = held.release().await;
                Err(error)
            }
        }
    }

    async fn begin(&self) -> Result<Begun<Held>, Error> {
        let engine = &self.owner.engine;
        again(engine, &self.request, &Signal::default())?;
        let (owner, request, cancel) = (Arc::clone(&self.owner), Arc::clone(&self.request), Arc::<Signal>::default());
        let given_up = Arc::clone(&cancel);
        let attempt = async move {
            Ok(match begin(&owner.engine, &request, given_up, None).await? {
                Begun::Value(value) => Begun::Value(value),
                Begun::Turn(hold, place) => Begun::Turn(Held::new(hold, owner), place),
            })
        };
        Attempted::new(engine, cancel, attempt).await
    }
}
