//! Telling WATCH, client tracking and listeners of keyspace events of a change.

use super::api::api;
use super::context::{Arg, Context};
use redis_module::raw;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

/// A lock was granted.
pub const ACQUIRE: &CStr = c"lock.acquire";
/// A lock was granted to LOCK.RECOVER.
pub const RECOVER: &CStr = c"lock.recover";
/// A lease was set anew.
pub const EXTEND: &CStr = c"lock.extend";
/// A lock was given back.
pub const RELEASE: &CStr = c"lock.release";
/// A lock was found expired by its successor.
pub const LAPSE: &CStr = c"lock.lapse";

/// Whether the keys are being written by this module, so that what it hears of them is no news.
static WRITING: AtomicBool = AtomicBool::new(false);

/// Whether a change of a key that the server tells of is our own.
#[must_use]
pub fn is_writing() -> bool {
    WRITING.load(Ordering::Relaxed)
}

/// Changes of keys in `body` are our own; also when it calls this itself, and no longer when it panics.
pub fn writing<R>(body: impl FnOnce() -> R) -> R {
    let _before = Before(WRITING.swap(true, Ordering::Relaxed));
    body()
}

/// Whether the keys were being written before: so it is again when this is dropped.
struct Before(bool);

impl Drop for Before {
    fn drop(&mut self) {
        WRITING.store(self.0, Ordering::Relaxed);
    }
}

/// Tells WATCH, client tracking and listeners of keyspace events of a change.
pub fn changed(context: &Context, name: Arg<'_>, class: i32, event: &CStr) {
    // SAFETY: context and name are those of the running call.
    unsafe { (api().signal_modified_key)(context.as_ptr(), name.as_ptr()) };
    self::event(context, name, class, event);
}

/// Tells of several events of our own.
pub fn own_events(context: &Context, name: Arg<'_>, events: &[&CStr]) {
    for event in events {
        self::event(context, name, raw::REDISMODULE_NOTIFY_MODULE, event);
    }
}

/// Tells listeners of one event.
pub fn event(context: &Context, name: Arg<'_>, class: i32, event: &CStr) {
    // SAFETY: context and name are those of the running call, the event is a C string.
    unsafe { (api().notify_keyspace_event)(context.as_ptr(), class, event.as_ptr(), name.as_ptr()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    /// One test for all, since the flag is one.
    #[test]
    fn writing_lasts_as_long_as_its_body_also_within_another_and_when_that_panics() {
        assert!(!is_writing());
        writing(|| {
            assert!(is_writing());
            writing(|| assert!(is_writing()));
            assert!(is_writing(), "the inner one does not end the outer one");
            let caught = catch_unwind(|| writing(|| panic!("caught by the guard of every callback")));
            assert!(caught.is_err() && is_writing(), "nor does one that panics");
        });
        assert!(!is_writing());
        assert!(catch_unwind(|| writing(|| panic!("as above"))).is_err());
        assert!(!is_writing(), "a panic ends it");
    }
}
