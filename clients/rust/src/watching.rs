//! Reports one attempt and its hold to an application's [`AttemptWatch`]: first the result of the attempt, and after a
//! grant, once, the end of the hold.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crate::error::{Error, Kind};
use crate::request::{Form, Request};
use crate::resources::Resources;
use crate::sync::locked;
use crate::watch::{AttemptWatch, End};

/// One watch. If this is dropped early, the attempt was cancelled, or the hold has expired.
pub(crate) struct Watching {
    resources: Arc<Resources>,
    request: Arc<Request>,
    began: Duration,
    granted: OnceLock<Duration>,
    /// `None` once all has been said.
    watch: Mutex<Option<Box<dyn AttemptWatch>>>,
}

impl Watching {
    /// Call this in the thread or task that asks, before anything is sent. `None`: nobody follows the attempt.
    pub(crate) fn begin(resources: &Arc<Resources>, request: &Arc<Request>) -> Option<Self> {
        let began = resources.hooks.began.as_ref()?;
        let keys: Vec<&[u8]> = request.keys.iter().map(Vec::as_slice).collect();
        let watch = guarded(|| began(&keys)).flatten()?;
        Some(Self {
            resources: Arc::clone(resources),
            request: Arc::clone(request),
            began: resources.now(),
            granted: OnceLock::new(),
            watch: Mutex::new(Some(watch)),
        })
    }

    /// Call this before the hold can end.
    pub(crate) fn granted(&self, is_portable: bool, token: i64, granted: Duration) {
        _ = self.granted.set(granted);
        if let Some(watch) = &*locked(&self.watch) {
            let command = self.command(is_portable);
            guarded(|| watch.granted(command, token, granted.saturating_sub(self.began)));
        }
    }

    pub(crate) fn failed(&self, error: &Error) {
        if let Some(watch) = self.last() {
            guarded(|| watch.failed(self.command(self.resources.is_portable()), self.waited(), error));
        }
    }

    /// The attempt ended with a result.
    pub(crate) fn result(&self) {
        if let Some(watch) = self.last() {
            guarded(|| watch.result(self.command(self.resources.is_portable()), self.waited()));
        }
    }

    /// The hold has ended. Only the first call counts.
    pub(crate) fn ended(&self, end: End, lost: Option<&Error>) {
        if let (Some(granted), Some(watch)) = (self.granted.get(), self.last()) {
            guarded(|| watch.ended(end, self.resources.now().saturating_sub(*granted), lost));
        }
    }

    fn last(&self) -> Option<Box<dyn AttemptWatch>> {
        locked(&self.watch).take()
    }

    fn waited(&self) -> Duration {
        self.resources.now().saturating_sub(self.began)
    }

    fn command(&self, is_portable: bool) -> &'static str {
        match (self.request.form, is_portable) {
            (Form::Recovery, false) => "LOCK.RECOVER",
            (Form::Recovery, true) => "lock_recover",
            (Form::Many, false) => "LOCK.MACQUIRE",
            (Form::Many, true) => "lock_acquire_all",
            (_, false) => "LOCK.ACQUIRE",
            (_, true) => "lock_acquire",
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if self.resources.is_inherited() {
            return; // it belongs to the parent
        }
        if self.granted.get().is_some() {
            self.ended(End::Expired, None);
        } else {
            self.failed(&Error::new(Kind::Cancelled, &self.request.name, "the attempt was dropped"));
        }
    }
}

/// An error in a watch must not lose a lock.
fn guarded<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).inspect_err(|_| log::error!("serverlock: a watch panicked")).ok()
}
