//! Whether the server has a replication sink: an AOF, a replica or the backlog.
//!
//! The answer "none" is never wrong about a change that a sink needs. At each write, server flags show exactly whether
//! there is an AOF, a child, a cluster or a replica. Each tick checks for replicas and a backlog. A sink that appears
//! between two ticks needs a snapshot first. The server forks for it, and announces the fork before any later command,
//! so the snapshot contains every earlier write. DESIGN.md has the full proof.

use crate::server::api::api;
use crate::server::api::context::Context;
use crate::server::facts::version::Version;
use redis_module::raw;
use std::cell::Cell;

/// Any of these flags means that there is or may be a sink. A child may be writing a snapshot, and a cluster can move
/// slots. A transaction, a script or another module replicates its writes when it ends, and a fork can happen in
/// between.
const MAY_HAVE_SINK: u32 = raw::REDISMODULE_CTX_FLAGS_AOF
    | raw::REDISMODULE_CTX_FLAGS_ACTIVE_CHILD
    | raw::REDISMODULE_CTX_FLAGS_CLUSTER
    | raw::REDISMODULE_CTX_FLAGS_SLAVE
    | raw::REDISMODULE_CTX_FLAGS_REPLICATED
    | raw::REDISMODULE_CTX_FLAGS_LOADING
    | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING
    | raw::REDISMODULE_CTX_FLAGS_MULTI
    | raw::REDISMODULE_CTX_FLAGS_LUA
    | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;

/// How many refused commands are logged one by one.
const LOGGED: u64 = 10;

/// What is known about sinks, from one tick to the next.
#[derive(Default)]
pub struct Sinks {
    /// Whether the server announces forks and its replication is known.
    can_know: Cell<bool>,
    /// Whether there was no sink at the last tick, and nothing has happened since that could have added one.
    are_none: Cell<bool>,
    /// Whether a command has written since the last tick.
    has_written: Cell<bool>,
    /// Writes that were not replicated.
    unreplicated: Cell<u64>,
    /// LOCK.* commands that came from a master or an AOF.
    refused: Cell<u64>,
}

impl Sinks {
    /// Called if the server announces its forks: from the next tick on, it is known whether there is a sink.
    pub fn begin(&self, version: Version) {
        self.can_know.set(version.has_known_sinks());
    }

    /// Notes that there may be a sink from now on.
    pub fn may_come(&self) {
        self.are_none.set(false);
    }

    /// Asks the server again, if a command has written since the last tick: an idle server is not asked.
    pub fn tick(&self, context: &Context) {
        let is_asked = self.has_written.take() && self.can_know.get();
        self.are_none.set(is_asked && !context.has_flags(MAY_HAVE_SINK) && has_none(context));
    }

    /// Counts a write without a sink, and returns whether nothing more is needed. The save points count it as if it had
    /// been replicated.
    pub fn only_count(&self, context: &Context) -> bool {
        self.has_written.set(true);
        if !self.are_none.get() || context.has_flags(MAY_HAVE_SINK) {
            return false;
        }
        // SAFETY: the context belongs to a command. Without a sink the server drops the command and counts a change.
        unsafe { (api().replicate_verbatim)(context.as_ptr()) };
        self.unreplicated.set(self.unreplicated.get().wrapping_add(1));
        true
    }

    /// Counts a LOCK.* command that came from a master or an AOF and was refused. Returns the count if it should be
    /// logged: the more there are, the fewer are logged.
    pub fn refused(&self) -> Option<u64> {
        let count = self.refused.get().wrapping_add(1);
        self.refused.set(count);
        (count <= LOGGED || count.is_power_of_two()).then_some(count)
    }

    /// Writes that were not replicated, and LOCK.* commands that were refused; for INFO.
    pub fn counts(&self) -> (u64, u64) {
        (self.unreplicated.get(), self.refused.get())
    }
}

/// Whether INFO shows a master without replicas and backlog.
fn has_none(context: &Context) -> bool {
    let Some(info) = context.server_section(c"replication") else { return false };
    let is = |field, value| info.field(field).is_some_and(|text| text.trim() == value);
    is(c"role", "master") && is(c"connected_slaves", "0") && is(c"repl_backlog_active", "0")
}
