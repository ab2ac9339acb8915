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
mod redis_migration {
    pub const EVENT: u64 = 18;
    /// The moves away that ended. One that failed may have lost its slots to a third server.
    pub const ENDED: [u64; 2] = [4, 5];
}

/// Redis 8.10: any change to the cluster, reported once for each event-loop iteration.
mod redis_topology {
    pub const EVENT: u64 = 20;
    /// The flag of a change to the owners of slots.
    pub const SLOTS: u64 = 1;

    /// The data of the event.
    #[repr(C)]
    pub struct Change {
        pub _version: u64,
        pub flags: u64,
    }
}

/// Valkey 9: a move of slots by the server itself.
mod valkey_migration {
    pub const EVENT: u64 = 19;
    /// The moves away that were aborted or completed.
    pub const ENDED: [u64; 2] = [3, 5];
}

/// Subscribes to the events that the server has. The same numbers mean other events on Redis and on Valkey.
pub fn subscribe(context: &Context) {
    let events: &[(u64, OnEvent)] = if Version::of(context).is_valkey() {
        &[(valkey_migration::EVENT, on_valkey_migration)]
    } else {
        &[(redis_migration::EVENT, on_redis_migration), (redis_topology::EVENT, on_redis_topology)]
    };
    for (id, on_event) in events {
        subscribe_to(context, *id, *on_event);
    }
}

fn slots_left(ctx: *mut raw::RedisModuleCtx) {
    // SAFETY: the server's own context, good until the handler returns.
    let context = unsafe { Context::new(ctx) };
    enter(&context, Writer::Timer, |entry| entry.slots_left());
}

unsafe extern "C" fn on_redis_migration(
    ctx: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    subevent: u64,
    _: *mut libc::c_void,
) {
    if redis_migration::ENDED.contains(&subevent) {
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
    let change = unsafe { data.cast::<redis_topology::Change>().as_ref() };
    if change.is_some_and(|change| change.flags & redis_topology::SLOTS != 0) {
        slots_left(ctx);
    }
}

unsafe extern "C" fn on_valkey_migration(
    ctx: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    subevent: u64,
    _: *mut libc::c_void,
) {
    if valkey_migration::ENDED.contains(&subevent) {
        slots_left(ctx);
    }
}
