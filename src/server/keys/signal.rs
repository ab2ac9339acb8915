//! Signals changes to WATCH, client tracking and subscribers of keyspace events.

use crate::engine::grant::Event;
use crate::server::api::api;
use crate::server::api::context::{Arg, Context};
use crate::server::state::module;
use redis_module::raw;
use std::ffi::CStr;

/// The name of one of the module's own events.
const fn name_of(event: Event) -> &'static CStr {
    match event {
        Event::Acquire => c"lock.acquire",
        Event::Recover => c"lock.recover",
        Event::Extend => c"lock.extend",
        Event::Release => c"lock.release",
        Event::Lapse => c"lock.lapse",
    }
}

/// Whether this module is writing the key, so that its events can be ignored.
#[must_use]
pub fn is_written(name: Arg<'_>) -> bool {
    module().written.get().is_some_and(|written| {
        // SAFETY: `Writing` borrows the name as long as it exists.
        let written = unsafe { Arg::lent(written) };
        written.as_bytes() == name.as_bytes()
    })
}

/// While this guard lives, changes to its key count as our own. Guards can be nested, and a panic ends them.
pub struct Writing<'n> {
    before: Option<*mut raw::RedisModuleString>,
    name: std::marker::PhantomData<Arg<'n>>,
}

impl<'n> Writing<'n> {
    /// Makes changes to this key count as our own from now on.
    #[must_use]
    pub fn of(name: Arg<'n>) -> Self {
        let before = module().written.replace(Some(name.as_ptr()));
        Self { before, name: std::marker::PhantomData }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        module().written.set(self.before);
    }
}

/// Signals a change to WATCH, client tracking and subscribers of keyspace events.
pub fn changed(context: &Context, name: Arg<'_>, class: i32, event: &CStr) {
    // SAFETY: context and name belong to the running entry.
    unsafe { (api().signal_modified_key)(context.as_ptr(), name.as_ptr()) };
    self::event(context, name, class, event);
}

/// Publishes several events of our own.
pub fn own_events(context: &Context, name: Arg<'_>, events: &[Event]) {
    for event in events {
        self::event(context, name, raw::REDISMODULE_NOTIFY_MODULE, name_of(*event));
    }
}

pub fn event(context: &Context, name: Arg<'_>, class: i32, event: &CStr) {
    // SAFETY: context and name belong to the running entry, the event is a C string.
    unsafe { (api().notify_keyspace_event)(context.as_ptr(), class, event.as_ptr(), name.as_ptr()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    #[test]
    fn a_nested_write_is_marked_until_it_ends_or_panics() {
        let (mut outer, mut inner) = (0_u8, 0_u8);
        let name = |byte: &mut u8| -> *mut raw::RedisModuleString { std::ptr::from_mut(byte).cast() };
        let (outer, inner) = (name(&mut outer), name(&mut inner));
        // SAFETY: the names are only compared as pointers.
        let writing = |name| Writing::of(unsafe { Arg::lent(name) });
        let written = || module().written.get();
        assert_eq!(written(), None);
        let first = writing(outer);
        assert_eq!(written(), Some(outer));
        drop(writing(inner));
        assert_eq!(written(), Some(outer), "the inner one does not end the outer one");
        let names = std::panic::AssertUnwindSafe(inner);
        let caught = catch_unwind(move || {
            let name = names;
            // SAFETY: as above.
            let _writing = Writing::of(unsafe { Arg::lent(name.0) });
            panic!("caught by the guard of every callback");
        });
        assert!(caught.is_err());
        assert_eq!(written(), Some(outer), "nor does one that panics");
        drop(first);
        assert_eq!(written(), None);
    }
}
