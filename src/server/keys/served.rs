//! Whether this server serves the slot of a key, and that of all keys of a command.

use crate::driver::WriteRefused;
use crate::lock::error::Error;
use crate::server::api::api;
use crate::server::api::context::{Arg, Context};
use crate::server::server_call::{clear_errno, done};
use crate::server::slot;
use redis_module::raw;

/// Whether this server serves the slot of a key; always true without a cluster.
#[must_use]
pub fn is_served_here(context: &Context, name: Arg<'_>) -> bool {
    are_served_here(context, &[name])
}

/// Checks that this server serves all keys of a command. The server itself has looked only at the first: where it looks
/// at the others, it asks the module in an I/O thread, and crashes.
///
/// # Errors
/// [`Error::CrossSlot`], [`Error::SlotMoving`]
pub fn check_all(context: &Context, names: &[Arg<'_>]) -> Result<(), Error> {
    let Some((first, others)) = names.split_first().filter(|(_, others)| !others.is_empty()) else { return Ok(()) };
    if !context.has_flags(raw::REDISMODULE_CTX_FLAGS_CLUSTER) {
        return Ok(());
    }
    // First: once Valkey 9.1 has refused a module's call for keys in different slots, it refuses the next call too.
    let slot = slot::of(first.as_bytes());
    if others.iter().any(|name| slot::of(name.as_bytes()) != slot) {
        return Err(Error::CrossSlot);
    }
    if are_served_here(context, names) {
        Ok(())
    } else {
        Err(Error::SlotMoving)
    }
}

/// The only way to find out that works on every server is to call a command.
fn are_served_here(context: &Context, names: &[Arg<'_>]) -> bool {
    if !context.has_flags(raw::REDISMODULE_CTX_FLAGS_CLUSTER) {
        return true;
    }
    let names: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
    let (list, length) = (names.as_ptr(), names.len());
    clear_errno();
    // SAFETY: the format takes the array of server strings that follows, and its length.
    let reply = unsafe { (api().call)(context.as_ptr(), c"EXISTS".as_ptr(), c"v".as_ptr(), list, length) };
    done(c"EXISTS", reply) != Err(WriteRefused::NotOurs)
}
