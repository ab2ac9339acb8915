//! One caller computes a value; all that wait for it, in all processes, get the same bytes.

use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

use crate::engine::Engine;
use crate::error::{Error, Kind};
use crate::flights::Place;
use crate::hold::{Got, Hold};
use crate::request::{Form, Request, Sharing};
use crate::sync::Signal;

const USUAL_WAIT: Duration = Duration::from_secs(60);
const LEAST_WAIT: Duration = Duration::from_millis(1);

/// The request of a flight without options.
pub(crate) fn request_of(key: &[u8], lease: Duration) -> Request {
    let mut request = Request::new(vec![key.to_vec()], lease, Form::Flight, Sharing::Alone);
    request.settings.wait = USUAL_WAIT;
    request
}

/// What a caller has to do.
pub(crate) enum Begun<L> {
    /// Another caller has computed the value.
    Value(Vec<u8>),
    /// This caller computes while it has the lock. Its place is dropped last.
    Turn(L, Place),
}

/// Waits for the value, or for this caller's turn to compute it.
///
/// `thread`: the calling thread, unless it is a task that calls.
pub(crate) async fn begin(
    engine: &Arc<Engine>,
    request: &Arc<Request>,
    cancel: Arc<Signal>,
    thread: Option<ThreadId>,
) -> Result<Begun<Arc<Hold>>, Error> {
    engine.admit(request)?;
    let (name, wait, began) = (&request.name, request.wait(), engine.resources.now());
    let Some(place) = engine.flights.join(request.key(), thread) else {
        return Err(Error::new(Kind::Misuse, name, "this caller is computing its value"));
    };
    let waited = || engine.resources.now().saturating_sub(began);
    let timed_out = || Error::new(Kind::Timeout, name, format!("there was no value after {:.1?}", waited()));
    let turn = async { engine.reach().clock.timeout(wait, place.turn()).await.ok_or_else(timed_out) };
    if let Some(outcome) = engine.unless_over(name, &cancel, turn).await? {
        return outcome.map(|value| Begun::Value(Arc::unwrap_or_clone(value)));
    }
    let mut own = request.as_ref().clone();
    own.settings.wait = wait.saturating_sub(waited()).max(LEAST_WAIT);
    match engine.acquire_or_result(Arc::new(own), cancel).await {
        Ok(Got::Lock(hold)) => Ok(Begun::Turn(hold, place)),
        Ok(Got::Result(value)) => {
            let value = Arc::new(value);
            place.land(&Ok(Arc::clone(&value)));
            Ok(Begun::Value(Arc::unwrap_or_clone(value)))
        }
        Err(error) => {
            // The others have waits of their own.
            if !matches!(error.kind(), Kind::Timeout | Kind::Cancelled) {
                place.land(&Err(error.clone()));
            }
            Err(error)
        }
    }
}
