//! Clients that the server keeps blocked for the module, and the answers that end it.
//!
//! The server is given no time-out, because one that fires together with an answer loses the reply
//! or ends the server on some versions: deadlines are the module's own. A blocked client is
//! released exactly once, also when it is gone.

use super::api::api;
use super::callback::{entry, guarded};
use super::context::Context;
use super::grant::{Before, Taken};
use super::{state, waiting};
use crate::broken::{self, Mutant};
use crate::engine::queue::{Keys, Ticket, Waiter};
use crate::lock::error::Error;
use crate::lock::record::Id;
use crate::lock::token::Token;
use redis_module::raw;
use std::rc::Rc;

/// A client that the server keeps blocked.
#[derive(Debug)]
pub struct Handle(*mut raw::RedisModuleBlockedClient);

/// A client that waits for a lock.
pub type Waiting = Waiter<Handle>;

/// A grant on its way to a client that waited.
pub struct Grant {
    /// What the client is told.
    pub taken: Taken,
    /// With the predecessor.
    pub details: bool,
    /// Database of the keys.
    pub db: i32,
    /// The keys.
    pub keys: Keys,
    /// The attempt, and the place that it had.
    pub id: Option<Id>,
    /// See `id`.
    pub ticket: Ticket,
}

/// What a blocked client is told in the end.
pub enum Answer {
    /// It got the lock.
    Granted(Grant),
    /// It did not get it; `true`: with a nil array.
    Nil(bool),
    /// Its wait was ended.
    Failed(Error),
}

/// An answer, and whether it was given to a client that was still there.
struct Letter {
    answer: Answer,
    delivered: bool,
}

/// A grant that nobody received.
pub struct Lost {
    /// Database of the key.
    pub db: i32,
    /// Name of the key.
    pub name: Rc<[u8]>,
    /// The grant.
    pub token: Token,
    /// Whom it succeeded, if the lock had expired: the next has to learn of it.
    pub succeeds: Option<Before>,
}

/// The server's number of the client of a call.
#[must_use]
pub fn client(context: &Context) -> u64 {
    // SAFETY: the context is valid.
    unsafe { (api().get_client_id)(context.as_ptr()) }
}

/// Whether the client of a call may be kept waiting: not in a transaction or a script, and not one
/// that denies blocking.
#[must_use]
pub fn may_block(context: &Context) -> bool {
    let never =
        raw::REDISMODULE_CTX_FLAGS_MULTI | raw::REDISMODULE_CTX_FLAGS_LUA | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
    !context.has_flags(never)
}

/// Blocks the client of a call, which gets no reply until [`Handle::answer`].
#[must_use]
pub fn block(context: &Context) -> Option<Handle> {
    let on_unblock: raw::RedisModuleCmdFunc = if state::can_be_unblocked() { Some(time_out) } else { None };
    // SAFETY: the context is that of a command that may block; the callbacks are static.
    let handle = unsafe { (api().block_client)(context.as_ptr(), Some(reply), on_unblock, Some(free), 0) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: the handle is new.
    unsafe { (api().set_disconnect_callback)(handle, Some(disconnect)) };
    Some(Handle(handle))
}

impl Handle {
    /// Ends the wait with an answer, which leaves in this turn of the server's loop.
    pub fn answer(self, answer: Answer) {
        let letter = Box::into_raw(Box::new(Letter { answer, delivered: false }));
        // SAFETY: the handle is released once, because this takes it; `free` takes the letter back.
        unsafe { (api().unblock_client)(self.0, letter.cast()) };
    }

    /// Releases a client that is gone, or that the server has answered itself.
    pub fn release(self) {
        // SAFETY: the handle is released once, because this takes it.
        unsafe { (api().unblock_client)(self.0, std::ptr::null_mut()) };
    }
}

unsafe extern "C" fn reply(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: libc::c_int,
) -> libc::c_int {
    // SAFETY: the server's own context, good until this returns.
    let context = unsafe { Context::new(ctx) };
    // SAFETY: only `answer` gives private data, a letter that `free` has not taken back yet.
    let letter = unsafe { (api().get_blocked_client_private_data)(ctx).cast::<Letter>().as_mut() };
    guarded(|| {
        let Some(letter) = letter else { return };
        letter.delivered = true;
        match &letter.answer {
            Answer::Granted(grant) => grant.taken.reply(&context, grant.details),
            Answer::Nil(details) => context.reply_not_granted(*details),
            Answer::Failed(error) => context.reply_error(*error),
        }
    });
    0
}

/// Called once for every letter. One that was not delivered and grants the lock passes it on: not
/// here, where the server may be in the middle of anything, but soon.
unsafe extern "C" fn free(ctx: *mut raw::RedisModuleCtx, letter: *mut libc::c_void) {
    // SAFETY: the server's own context, good until this returns.
    let context = unsafe { Context::new(ctx) };
    // SAFETY: the letter came from `Box::into_raw` in `answer`, and the server gives it back once.
    let letter = unsafe { Box::from_raw(letter.cast::<Letter>()) };
    if broken::is(Mutant::Leak) {
        std::mem::forget(letter);
        return;
    }
    let freed: *const bool = &raw const letter.delivered;
    entry(&context, || match *letter {
        Letter { answer: Answer::Granted(grant), delivered: true } => waiting::delivered(grant.taken.token),
        Letter { answer: Answer::Granted(grant), delivered: false } => waiting::undelivered(&context, grant),
        Letter { .. } => {}
    });
    if broken::is(Mutant::ReadFreed) {
        // SAFETY: none, that is the fault.
        std::hint::black_box(unsafe { freed.read_volatile() });
    }
}

/// The client is gone, or the server ended its wait with an error of its own.
unsafe extern "C" fn disconnect(ctx: *mut raw::RedisModuleCtx, _handle: *mut raw::RedisModuleBlockedClient) {
    // SAFETY: the server's own context, good until this returns.
    let context = unsafe { Context::new(ctx) };
    entry(&context, || waiting::gone(client(&context)));
}

/// CLIENT UNBLOCK ... TIMEOUT, the only way to get here: the server was given no time-out.
unsafe extern "C" fn time_out(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: libc::c_int,
) -> libc::c_int {
    // SAFETY: the server's own context, good until this returns.
    let context = unsafe { Context::new(ctx) };
    entry(&context, || context.reply_not_granted(waiting::gone(client(&context)) == Some(true)));
    0
}
