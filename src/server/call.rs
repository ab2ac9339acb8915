//! A call from the server: no panic leaves it, and it ends with [`crate::driver::Entry::finish`], so that no change can be
//! forgotten by the timer. And no command that writes passes on a replica, whether the server lets clients write there or
//! not: the locks are those of its master.

use super::args::Args;
use super::command_docs::{Doc, Keys};
use super::context::Context;
use super::edge::ServerEdge;
use super::module::module;
use super::panics::guarded;
use super::replica_acks;
use crate::driver::{self, Writer};
use crate::lock::error::Error;
use redis_module::raw;

/// One call from the server: lends the engine, or the server.
pub type Entry<'c> = driver::Entry<'static, ServerEdge<'c>>;

/// The C function of a command.
pub type Run =
    unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, libc::c_int) -> libc::c_int;

/// A command of the module.
pub trait Command {
    /// What the server is told of it.
    const DOC: &'static Doc;

    /// Runs it: reads the arguments behind its name, asks the driver, and replies through the context.
    ///
    /// # Errors
    /// What the caller is told; nothing has changed then.
    fn run(context: &Context, entry: &mut Entry<'_>, args: Args<'_>) -> Result<(), Error>;
}

/// Runs what the server called; `None` if it panicked.
pub fn enter<R>(context: &Context, writer: Writer, body: impl FnOnce(&mut Entry<'_>) -> R) -> Option<R> {
    let mut entry = driver::Entry::new(&module().driver, ServerEdge::of(context, writer));
    let result = guarded(|| body(&mut entry));
    guarded(|| entry.finish());
    result
}

/// The C function of a command: runs it and answers with its error, if it has one.
///
/// # Safety
/// Called by the server, with what it calls a command with.
pub unsafe extern "C" fn run<C: Command>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: libc::c_int,
) -> libc::c_int {
    // SAFETY: the server's own context, good until this returns.
    let context = unsafe { Context::new(ctx) };
    // SAFETY: argv and argc are the server's own.
    let args = unsafe { Args::new(&context, argv, argc) };
    if C::DOC.flags.writes() && replica_acks::is_replica() && is_refused(&context, C::DOC) {
        context.reply_error(Error::ReadOnly);
        return 0;
    }
    match enter(&context, Writer::Command, |entry| C::run(&context, entry, args)) {
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
