//! The arguments of a command, or of the module at load.

use crate::server::api::context::{Arg, Context};
use redis_module::raw;

/// The arguments of an entry, without the command name.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    strings: &'a [*mut raw::RedisModuleString],
}

impl<'a> Args<'a> {
    /// # Safety
    /// `argv` and `argc` are the arguments with which the server called the command of `context`.
    pub(in crate::server) unsafe fn new(
        context: &'a Context,
        argv: *mut *mut raw::RedisModuleString,
        argc: libc::c_int,
    ) -> Self {
        // SAFETY: the caller's promise, passed on.
        let all = unsafe { Self::of_load(context, argv, argc) };
        Self { strings: all.strings.get(1..).unwrap_or_default() }
    }

    /// The module arguments, which have no name in front.
    ///
    /// # Safety
    /// `argv` and `argc` are the arguments with which the server loads the module of `_context`.
    pub(in crate::server) unsafe fn of_load(
        _context: &'a Context,
        argv: *mut *mut raw::RedisModuleString,
        argc: libc::c_int,
    ) -> Self {
        match usize::try_from(argc) {
            Ok(count) if count > 0 && !argv.is_null() => {
                // SAFETY: the caller's promise: `argc` strings from `argv` on, valid during the call.
                Self { strings: unsafe { std::slice::from_raw_parts(argv, count) } }
            }
            _ => Self { strings: &[] },
        }
    }

    /// An argument as a server string, counted from 0.
    #[must_use]
    pub fn string(&self, at: usize) -> Option<Arg<'a>> {
        self.strings.get(at).map(|string| {
            // SAFETY: the strings belong to the running entry.
            unsafe { Arg::lent(*string) }
        })
    }

    /// The number of arguments.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.strings.len()
    }

    /// An argument, counted from 0.
    #[must_use]
    pub fn at(&self, at: usize) -> Option<&'a [u8]> {
        self.string(at).map(Arg::as_bytes)
    }
}
