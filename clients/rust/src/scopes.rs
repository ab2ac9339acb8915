//! Tracks the scopes that a caller is in, so a caller that requests its own lock again gets an error, not a hang.

use std::cell::RefCell;
use std::sync::Arc;

use crate::error::{Error, Kind};
use crate::hold::Hold;
use crate::request::Request;
use crate::resources::Resources;

thread_local! {
    static OF_THREAD: RefCell<Vec<Arc<Hold>>> = const { RefCell::new(Vec::new()) };
}

tokio::task_local! {
    static OF_TASK: Vec<Arc<Hold>>;
}

/// The scope of a thread, until this is dropped.
#[cfg(feature = "blocking")]
pub(crate) struct OfThread(());

#[cfg(feature = "blocking")]
impl OfThread {
    pub(crate) fn enter(hold: &Arc<Hold>) -> Self {
        OF_THREAD.with_borrow_mut(|holds| holds.push(Arc::clone(hold)));
        Self(())
    }
}

#[cfg(feature = "blocking")]
impl Drop for OfThread {
    fn drop(&mut self) {
        OF_THREAD.with_borrow_mut(Vec::pop);
    }
}

/// Runs the work in the scope of a task.
#[cfg(feature = "tokio")]
pub(crate) async fn of_task<F: Future>(hold: &Arc<Hold>, work: F) -> F::Output {
    let mut holds = OF_TASK.try_with(Clone::clone).unwrap_or_default();
    holds.push(Arc::clone(hold));
    OF_TASK.scope(holds, work).await
}

/// A caller that requests a lock within its own scope would wait for itself.
pub(crate) fn refuse_again(resources: &Arc<Resources>, request: &Request) -> Result<(), Error> {
    let is_own = |hold: &Arc<Hold>| {
        Arc::ptr_eq(&hold.resources, resources)
            && (hold.request.is_exclusive() || request.is_exclusive())
            && hold.request.keys.iter().any(|key| request.keys.contains(key))
            && hold.check().is_ok()
    };
    let in_thread = OF_THREAD.with_borrow(|holds| holds.iter().any(is_own));
    if in_thread || OF_TASK.try_with(|holds| holds.iter().any(is_own)).unwrap_or(false) {
        return Err(Error::new(
            Kind::Misuse,
            &request.name,
            "this caller already holds it, in a scope around this call",
        ));
    }
    Ok(())
}
