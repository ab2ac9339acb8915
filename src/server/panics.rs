//! No panic escapes the module: a panic would crash the server and lose its data.

use crate::server::log;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Runs a server callback; `None` if it panicked, which is logged.
pub fn guarded<R>(body: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => Some(value),
        Err(cause) => {
            let text = cause
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| cause.downcast_ref::<String>().map(String::as_str))
                .unwrap_or("no message");
            log::warning(&format!("internal error, please report it: {text}"));
            None
        }
    }
}
