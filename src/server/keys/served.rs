//! Whether this server serves the slot of a key.

use crate::driver::WriteRefused;
use crate::server::api::api;
use crate::server::api::context::{Arg, Context};
use crate::server::server_call::{clear_errno, done};
use redis_module::raw;

/// Whether this server serves the slot of a key; always true without a cluster. The only way to find out that works on
/// every server is to call a command.
#[must_use]
pub fn is_served_here(context: &Context, name: Arg<'_>) -> bool {
    if !context.has_flags(raw::REDISMODULE_CTX_FLAGS_CLUSTER) {
        return true;
    }
    clear_errno();
    // SAFETY: the format takes the one server string that follows.
    let reply = unsafe { (api().call)(context.as_ptr(), c"EXISTS".as_ptr(), c"s".as_ptr(), name.as_ptr()) };
    done(c"EXISTS", reply) != Err(WriteRefused::NotOurs)
}
