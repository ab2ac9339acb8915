//! The callers that hold locks, as far as that is known: in scopes, and threads with `reentrant`. A caller that
//! requests its own lock again gets the same hold or an error, not a hang.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use crate::engine::Engine;
use crate::error::{Error, Kind};
use crate::failures::Failure;
use crate::hold::Hold;
use crate::request::{Form, Request};
use crate::sync::Signal;

thread_local! {
    static OF_THREAD: RefCell<Vec<Weak<Hold>>> = const { RefCell::new(Vec::new()) };
}

tokio::task_local! {
    static OF_TASK: Vec<Weak<Hold>>;
}

/// The scope of a thread, until this is dropped.
#[cfg(feature = "blocking")]
pub(crate) struct OfThread(Weak<Hold>);

#[cfg(feature = "blocking")]
impl OfThread {
    pub(crate) fn enter(hold: &Arc<Hold>) -> Self {
        remember(hold);
        Self(Arc::downgrade(hold))
    }
}

#[cfg(feature = "blocking")]
impl Drop for OfThread {
    fn drop(&mut self) {
        OF_THREAD.with_borrow_mut(|holds| {
            if let Some(at) = holds.iter().rposition(|hold| hold.ptr_eq(&self.0)) {
                holds.remove(at);
            }
        });
    }
}

/// This thread has the hold, until the hold ends.
#[cfg(feature = "blocking")]
pub(crate) fn remember(hold: &Arc<Hold>) {
    let mut holds = of_thread();
    holds.retain(|hold| !hold.is_over());
    holds.push(Arc::clone(hold));
    OF_THREAD.set(holds.iter().map(Arc::downgrade).collect());
}

/// Runs the work in the scope of a task.
#[cfg(feature = "tokio")]
pub(crate) async fn of_task<F: Future>(hold: &Arc<Hold>, work: F) -> F::Output {
    let mut holds = OF_TASK.try_with(Clone::clone).unwrap_or_default();
    holds.push(Arc::downgrade(hold));
    OF_TASK.scope(holds, work).await
}

/// Copied, because dropping a hold may run the application's code.
fn of_thread() -> Vec<Arc<Hold>> {
    OF_THREAD.with_borrow(|holds| holds.iter().filter_map(Weak::upgrade).collect())
}

/// The hold that this caller has and gets again. Fails if the caller has the lock but must not get it again: it would
/// wait for itself.
pub(crate) fn again(engine: &Engine, request: &Request, cancel: &Signal) -> Result<Option<Arc<Hold>>, Error> {
    let mut holds = of_thread();
    let _ = OF_TASK.try_with(|of_task| holds.extend(of_task.iter().filter_map(Weak::upgrade)));
    for hold in holds {
        let is_own = Arc::ptr_eq(&hold.resources, &engine.resources)
            && hold.request.keys.iter().any(|key| request.keys.contains(key))
            && hold.check().is_ok();
        if !is_own {
            continue;
        }
        let is_plain = !matches!(hold.request.form, Form::Tick | Form::Flight);
        if request.settings.reentrant && is_plain && request.is_same_lock(&hold.request) {
            engine.admit(request)?;
            if cancel.is_fired() {
                return Err(Failure::GivenUp.typed(&request.name));
            }
            if hold.acquire_again() {
                return Ok(Some(hold));
            }
        } else if hold.request.is_exclusive() || request.is_exclusive() {
            return Err(Error::new(
                Kind::Misuse,
                &request.name,
                "this caller already holds it, in a scope around this call",
            ));
        }
    }
    Ok(None)
}
