//! What every call from the server has in common: no panic leaves it, which would end the server and everybody's
//! data with it, and the timer is set when it ends. And no command that writes passes on a replica, whether the server
//! lets clients write there or not: the locks are those of its master.

use super::context::Context;
use super::{failover, timer};
use crate::commands::doc::{Doc, Keys};
use crate::lock::error::Error;
use redis_module::raw;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// A command of the module: arguments behind the command name, replies through the context.
pub type Handler = fn(&Context, super::context::Args<'_>) -> Result<(), Error>;

/// Runs what the server called; `None` if it panicked, which is logged.
pub fn guarded<R>(body: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => Some(value),
        Err(cause) => {
            let text = cause
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| cause.downcast_ref::<String>().map(String::as_str))
                .unwrap_or("no message");
            super::context::log_warning(&format!("internal error, please report it: {text}"));
            None
        }
    }
}

/// Runs what the server called, and sets the timer to what is due next: nobody else sets it, so that no change can
/// forget to.
pub fn entry<R>(context: &Context, body: impl FnOnce() -> R) -> Option<R> {
    let result = guarded(body);
    guarded(|| timer::finish(context));
    result
}

/// Runs a command and answers with its error, if it has one.
///
/// # Safety
/// `ctx`, `argv` and `argc` are what the server called the command with.
pub unsafe fn command(
    doc: &Doc,
    handler: Handler,
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: libc::c_int,
) -> libc::c_int {
    // SAFETY: the caller's promise.
    let context = unsafe { Context::new(ctx) };
    // SAFETY: the caller's promise.
    let args = unsafe { super::context::Args::new(&context, argv, argc) };
    if doc.flags.writes() && failover::is_replica() && is_refused(&context, doc) {
        context.reply_error(Error::ReadOnly);
        return 0;
    }
    match entry(&context, || handler(&context, args)) {
        Some(Ok(())) => {}
        Some(Err(error)) => context.reply_error(error),
        None => context.reply_error(Error::Internal),
    }
    0
}

/// Whether a command that writes is refused on a replica. The server never refuses what its master sends (nothing of
/// ours: effects alone are replicated), and it only asks where the keys are.
fn is_refused(context: &Context, doc: &Doc) -> bool {
    let asks_for_keys = matches!(doc.keys, Keys::Counted(_)) && context.is_asked_for_keys();
    !asks_for_keys && !context.has_flags(raw::REDISMODULE_CTX_FLAGS_REPLICATED)
}

/// Makes the C function of a command out of its module in `crate::commands`.
macro_rules! c_command {
    ($command:ident) => {{
        unsafe extern "C" fn run(
            ctx: *mut raw::RedisModuleCtx,
            argv: *mut *mut raw::RedisModuleString,
            argc: libc::c_int,
        ) -> libc::c_int {
            // SAFETY: these are the server's own arguments.
            unsafe { $crate::server::callback::command(&$command::DOC, $command::run, ctx, argv, argc) }
        }
        run
    }};
}
pub(super) use c_command;
