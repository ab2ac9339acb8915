//! The events of slots that leave this server. Servers without them, older ones, are asked about the slots of waiters
//! now and then.
//!
//! Their data is not trusted to say which slots left: the server is asked about each queue, as it is without an event.
//! A handler enters the module only for a change of owner. Redis calls one of the others in a forked child.

use super::{subscribe_to, OnEvent};
use crate::driver::Writer;
use crate::server::api::context::Context;
use crate::server::entries::enter;
use crate::server::facts::version::Version;
use redis_module::raw;

/// Redis 8.4: a move of slots by the server itself.
const REDIS_MIGRATION: u64 = 18;
/// The moves away that ended. One that failed may have lost its slots to a third server.
const REDIS_MIGRATION_ENDED: [u64; 2] = [4, 5];

/// Redis 8.10: any change to the cluster, reported once for each event-loop iteration.
const REDIS_TOPOLOGY: u64 = 20;
/// The flag of a change to the owners of slots.
const REDIS_TOPOLOGY_SLOTS: u64 = 1;

/// The data of [`REDIS_TOPOLOGY`].
#[repr(C)]
struct RedisTopologyChange {
    _version: u64,
    flags: u64,
}

/// Valkey 9: a move of slots by the server itself.
const VALKEY_MIGRATION: u64 = 19;
/// The moves away that were aborted or completed.
const VALKEY_MIGRATION_ENDED: [u64; 2] = [3, 5];

/// Subscribes to the events that the server has. The same numbers mean other events on Redis and on Valkey.
pub fn subscribe(context: &Context) {
    let events: &[(u64, OnEvent)] = if Version::of(context).is_valkey() {
        &[(VALKEY_MIGRATION, on_valkey_migration)]
    } else {
        &[(REDIS_MIGRATION, on_redis_migration), (REDIS_TOPOLOGY, on_redis_topology)]
    };
    for (id, on_event) in events {
        subscribe_to(context, *id, *on_event);
    }
}

fn slots_left(ctx: *mut raw::RedisModuleCtx) {
    // SAFETY: the server's own context, good until the handler returns.
    let context = unsafe { Context::new(ctx) };
    #[allow(clippy::redundant_closure_for_method_calls, reason = "the method alone is not general enough")]
    enter(&context, Writer::Timer, |entry| entry.slots_left());
}

unsafe extern "C" fn on_redis_migration(
    ctx: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    subevent: u64,
    _: *mut libc::c_void,
) {
    if REDIS_MIGRATION_ENDED.contains(&subevent) {
        slots_left(ctx);
    }
}

unsafe extern "C" fn on_redis_topology(
    ctx: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    _: u64,
    data: *mut libc::c_void,
) {
    // SAFETY: the server gives this event this structure, or none.
    let change = unsafe { data.cast::<RedisTopologyChange>().as_ref() };
    if change.is_some_and(|change| change.flags & REDIS_TOPOLOGY_SLOTS != 0) {
        slots_left(ctx);
    }
}

unsafe extern "C" fn on_valkey_migration(
    ctx: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    subevent: u64,
    _: *mut libc::c_void,
) {
    if VALKEY_MIGRATION_ENDED.contains(&subevent) {
        slots_left(ctx);
    }
}
