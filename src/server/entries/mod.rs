//! Every entry from the server: no panic escapes it, and it ends with [`crate::driver::Entry::finish`], so that the
//! timer misses no change. On a replica every write command is refused, whether or not the server lets clients write
//! there: the locks belong to its master. A write command that a master sends or an AOF contains is refused too.

mod blocked;
mod events;
mod info_fields;
pub mod on_load;
mod register;

use crate::driver::{self, Writer};
use crate::lock::error::Error;
use crate::server::api::args::Args;
use crate::server::api::command_docs::{Doc, Keys};
use crate::server::api::context::Context;
use crate::server::edge::ServerEdge;
use crate::server::log;
use crate::server::panics::guarded;
use crate::server::replication::replicas;
use crate::server::state::module;
use redis_module::raw;
use std::ops::Range;

/// One entry from the server. It gives access to the engine or to the server.
pub type Entry<'c> = driver::Entry<'static, ServerEdge<'c>>;

/// The C function of a command.
pub type Run =
    unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, libc::c_int) -> libc::c_int;

/// A module command.
pub trait Command {
    /// The description for the server.
    const DOC: &'static Doc;

    /// Where its keys are among the arguments, for a command that counts them. Servers before 7.0 ask this.
    ///
    /// # Errors
    /// The keys cannot be found.
    fn keys(_args: &Args<'_>) -> Result<Range<usize>, Error> {
        Ok(0..0)
    }

    /// Runs it: parses the arguments after its name, calls the driver, and replies through the context.
    ///
    /// # Errors
    /// The error for the caller; nothing has changed.
    fn run(context: &Context, entry: &mut Entry<'_>, args: Args<'_>) -> Result<(), Error>;
}

/// Runs a server callback; `None` if it panicked.
pub fn enter<R>(context: &Context, writer: Writer, body: impl FnOnce(&mut Entry<'_>) -> R) -> Option<R> {
    enter_with(ServerEdge::of(context, writer), body)
}

/// Runs the timer.
pub fn enter_timer(context: &Context) {
    #[allow(clippy::redundant_closure_for_method_calls, reason = "the method alone is not general enough")]
    enter_with(ServerEdge::of_timer(context), |entry| entry.timer_fired());
}

fn enter_with<'c, R>(edge: ServerEdge<'c>, body: impl FnOnce(&mut Entry<'c>) -> R) -> Option<R> {
    let mut entry = driver::Entry::new(&module().driver, edge);
    let result = guarded(|| body(&mut entry));
    guarded(|| entry.finish());
    result
}

/// The C function of a command: runs it and replies with its error, if any.
///
/// # Safety
/// Called by the server, with a command's arguments.
pub unsafe extern "C" fn run<C: Command>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: libc::c_int,
) -> libc::c_int {
    // SAFETY: the server's own context, good until this returns.
    let context = unsafe { Context::new(ctx) };
    // SAFETY: argv and argc are the server's own.
    let args = unsafe { Args::new(&context, argv, argc) };
    if matches!(C::DOC.keys, Keys::Counted(_)) && context.is_asked_for_keys() {
        guarded(|| context.report_keys(C::keys(&args), &C::DOC.keys));
        return 0;
    }
    if C::DOC.flags.writes() && (replicas::is_replica() || module().is_loading.get()) {
        if let Err(error) = may_run(&context, C::DOC) {
            context.reply_error(error);
            return 0;
        }
    }
    match enter(&context, Writer::Command, |entry| C::run(&context, entry, args)) {
        Some(Ok(())) => {}
        Some(Err(error)) => context.reply_error(error),
        None => context.reply_error(Error::Internal),
    }
    0
}

/// Whether a write command may run on a replica, or while the server is loading. Neither a master nor an AOF sends
/// LOCK.* commands, only effects. A command that arrives from one of them anyway was granted at a different time, under
/// different settings, and would be granted again.
fn may_run(context: &Context, doc: &Doc) -> Result<(), Error> {
    let refused = |source| {
        if let Some(count) = module().sinks.refused() {
            log::warning(&format!(
                "refused {} from {source}, {count} refused so far: only SET, DEL and the like are replicated. Locks may \
                 differ from the master's, or from those before the restart. Please report this",
                doc.name.to_string_lossy()
            ));
        }
        Err(Error::Internal)
    };
    if context.has_flags(raw::REDISMODULE_CTX_FLAGS_REPLICATED) {
        refused("the master")
    } else if context.has_flags(raw::REDISMODULE_CTX_FLAGS_LOADING) {
        refused("the AOF")
    } else if replicas::is_replica() {
        Err(Error::ReadOnly)
    } else {
        Ok(())
    }
}
