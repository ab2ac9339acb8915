//! Callbacks for a blocked client: to reply to it, to free its answer, and for its disconnection.
//!
//! A blocked client is released exactly once, even if it has disconnected.

use crate::driver::Writer;
use crate::engine::outbox::{Answer, Letter};
use crate::server::api::api;
use crate::server::api::context::Context;
use crate::server::clients::client;
use crate::server::clients::reply;
use crate::server::entries::enter;
use crate::server::panics::guarded;
use redis_module::raw;

/// Replies to a client that is being unblocked.
///
/// # Safety
/// Called by the server for a client that the module blocked.
pub unsafe extern "C" fn on_reply(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: libc::c_int,
) -> libc::c_int {
    // SAFETY: the server's own context, good until this returns.
    let context = unsafe { Context::new(ctx) };
    // SAFETY: only an answer has private data, a letter that `on_free` has not taken back yet.
    let letter = unsafe { (api().get_blocked_client_private_data)(ctx).cast::<Letter>().as_mut() };
    guarded(|| {
        let Some(letter) = letter else { return };
        letter.is_delivered = true;
        match &letter.answer {
            Answer::Granted(grant) => reply::granted(&context, &grant.granted, grant.shape),
            Answer::Result(result) => reply::result(&context, result),
            Answer::NotGranted(shape) => reply::not_granted(&context, *shape),
            Answer::Failed(error) => context.reply_error(*error),
        }
    });
    0
}

/// Frees a letter; called once for each. An undelivered grant is passed on soon, but not here, where the server may be
/// in the middle of anything.
///
/// # Safety
/// Called by the server with a letter that the module created.
pub unsafe extern "C" fn on_free(ctx: *mut raw::RedisModuleCtx, letter: *mut libc::c_void) {
    // SAFETY: the server's own context, good until this returns.
    let context = unsafe { Context::new(ctx) };
    // SAFETY: the letter came from `Box::into_raw` in the edge, and the server passes it back once.
    let letter = unsafe { Box::from_raw(letter.cast::<Letter>()) };
    enter(&context, Writer::Timer, |entry| match *letter {
        Letter { answer: Answer::Granted(grant), is_delivered: true } => entry.delivered(grant.granted.token),
        Letter { answer: Answer::Granted(grant), is_delivered: false } => entry.undelivered(grant),
        Letter { .. } => {}
    });
}

/// Called when the client has disconnected, or the server ended its wait with its own error.
///
/// # Safety
/// Called by the server for a client that the module blocked.
pub unsafe extern "C" fn on_disconnect(ctx: *mut raw::RedisModuleCtx, _handle: *mut raw::RedisModuleBlockedClient) {
    // SAFETY: the server's own context, good until this returns.
    let context = unsafe { Context::new(ctx) };
    enter(&context, Writer::Timer, |entry| entry.client_left(client::caller(&context)));
}

/// Called for CLIENT UNBLOCK ... TIMEOUT. The server has no other reason to call this, since it was given no time-out.
///
/// # Safety
/// Called by the server for a client that the module blocked.
pub unsafe extern "C" fn on_unblock(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: libc::c_int,
) -> libc::c_int {
    // SAFETY: the server's own context, good until this returns.
    let context = unsafe { Context::new(ctx) };
    enter(&context, Writer::Timer, |entry| {
        let shape = entry.client_left(client::caller(&context));
        reply::not_granted(&context, shape.unwrap_or_default());
    });
    0
}
