//! Every call from the server: no panic leaves it, and it ends with [`crate::driver::Entry::finish`], so that the timer
//! forgets no change. On a replica every command that writes is refused, whether the server lets clients write there or
//! not: the locks belong to its master.

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

/// One call from the server. It lends the engine or the server.
pub type Entry<'c> = driver::Entry<'static, ServerEdge<'c>>;

/// The C function of a command.
pub type Run =
    unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, libc::c_int) -> libc::c_int;

/// A command of the module.
pub trait Command {
    /// The description for the server.
    const DOC: &'static Doc;

    /// Runs it: parses the arguments after its name, calls the driver, and replies through the context.
    ///
    /// # Errors
    /// The error for the caller; nothing has changed then.
    fn run(context: &Context, entry: &mut Entry<'_>, args: Args<'_>) -> Result<(), Error>;
}

/// Runs a callback of the server; `None` if it panicked.
pub fn enter<R>(context: &Context, writer: Writer, body: impl FnOnce(&mut Entry<'_>) -> R) -> Option<R> {
    let mut entry = driver::Entry::new(&module().driver, ServerEdge::of(context, writer));
    let result = guarded(|| body(&mut entry));
    guarded(|| entry.finish());
    result
}

/// The C function of a command: runs it and replies with its error, if there is one.
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

/// Whether a writing command has to be refused on a replica. It is not if the master sends it (which it never does:
/// only effects are replicated), or if the call only asks for the positions of the keys.
fn is_refused(context: &Context, doc: &Doc) -> bool {
    let asks_for_keys = matches!(doc.keys, Keys::Counted(_)) && context.is_asked_for_keys();
    !asks_for_keys && !context.has_flags(raw::REDISMODULE_CTX_FLAGS_REPLICATED)
}
