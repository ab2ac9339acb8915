//! What the server tells of: keys that come free, databases that are flushed or swapped, its role,
//! its configuration, and the passing of time.
//!
//! Nothing is written here: a handler can run in the middle of a command, a transaction, a script
//! or an expiry, before that has been replicated. It only notes what to look at, soon.

use super::api::api;
use super::callback::entry;
use super::context::{Arg, Context};
use super::{failover, session, state, tell, tick};
use redis_module::raw;
use std::ffi::CStr;

/// Subscribes to what costs nothing while nobody waits.
///
/// # Errors
/// The event that the server does not have.
pub fn subscribe(context: &Context) -> Result<(), String> {
    for (name, id, on_event) in [
        ("flushdb", raw::REDISMODULE_EVENT_FLUSHDB, on_flush as OnEvent),
        ("swapdb", raw::REDISMODULE_EVENT_SWAPDB, on_swap),
        ("cron loop", raw::REDISMODULE_EVENT_CRON_LOOP, on_cron),
        ("role change", raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, on_role_change),
    ] {
        if !subscribe_to(context, id, on_event) {
            return Err(format!("the server does not tell of the event {name}"));
        }
    }
    let told = subscribe_to(context, raw::REDISMODULE_EVENT_CONFIG, on_config_change);
    state::loaded(context, told);
    Ok(())
}

/// Subscribes to the rest when the first client waits: events of keys cost every command that
/// deletes one, and the subscription cannot be taken back on most servers.
pub fn listen(context: &Context) {
    if state::with(|state| std::mem::replace(&mut state.listens, true)) != Ok(false) {
        return;
    }
    // Where the generic ones do harm, keys that come free are found by looking.
    let generic = if state::can_be_listened_to() { raw::REDISMODULE_NOTIFY_GENERIC } else { 0 };
    let classes = generic | raw::REDISMODULE_NOTIFY_EXPIRED | raw::REDISMODULE_NOTIFY_EVICTED;
    // SAFETY: the context is valid, the callback is static.
    unsafe { (api().subscribe_to_keyspace_events)(context.as_ptr(), classes, Some(on_key)) };
}

/// Subscribes to connections that end, when the first lock is to end with one.
pub fn watch_clients(context: &Context) {
    if state::with(|state| std::mem::replace(&mut state.watches_clients, true)) == Ok(false) {
        subscribe_to(context, raw::REDISMODULE_EVENT_CLIENT_CHANGE, on_client_change);
    }
}

type OnEvent = unsafe extern "C" fn(*mut raw::RedisModuleCtx, raw::RedisModuleEvent, u64, *mut libc::c_void);

/// Asks for an event of the server; whether it has such an event.
fn subscribe_to(context: &Context, id: u64, on_event: OnEvent) -> bool {
    let event = raw::RedisModuleEvent { id, dataver: 1 };
    // SAFETY: the context is valid; a server that does not know the event says so.
    unsafe { (api().subscribe_to_server_event)(context.as_ptr(), event, Some(on_event)) == 0 }
}

/// Makes the C function of an event handler out of `fn(&Context, subevent, data)`.
macro_rules! c_event {
    ($name:ident, $handler:expr) => {
        unsafe extern "C" fn $name(
            ctx: *mut raw::RedisModuleCtx,
            _event: raw::RedisModuleEvent,
            subevent: u64,
            data: *mut libc::c_void,
        ) {
            // SAFETY: the server's own context, good until this returns.
            let context = unsafe { Context::new(ctx) };
            entry(&context, || $handler(&context, subevent, data));
        }
    };
}

c_event!(on_config_change, |context: &Context, _, _| state::configuration_changed(context));
c_event!(on_cron, |context: &Context, _, _| tick::tick(context));
c_event!(on_role_change, |_: &Context, role, _| if role == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA {
    failover::demoted();
} else {
    failover::promoted();
});
c_event!(on_client_change, |_: &Context, subevent, data: *mut libc::c_void| {
    // SAFETY: the server gives this event this structure, or none.
    let client = unsafe { data.cast::<raw::RedisModuleClientInfo>().as_ref() };
    if let (Some(client), raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED) = (client, subevent) {
        session::client_ended(client.id);
    }
});
c_event!(on_flush, |_: &Context, subevent, data: *mut libc::c_void| {
    // SAFETY: the server gives this event this structure, or none.
    let info = unsafe { data.cast::<raw::RedisModuleFlushInfo>().as_ref() };
    if let (Some(info), raw::REDISMODULE_SUBEVENT_FLUSHDB_END) = (info, subevent) {
        let db = Some(info.dbnum).filter(|db| *db >= 0);
        let _ = state::with(|state| {
            state.kept.clear();
            state.queues.set_all_ready(db);
        });
    }
});
c_event!(on_swap, |_: &Context, _, data: *mut libc::c_void| {
    // SAFETY: the server gives this event this structure, or none.
    if let Some(info) = unsafe { data.cast::<raw::RedisModuleSwapDbInfo>().as_ref() } {
        let _ = state::with(|state| {
            state.kept.clear();
            state.queues.set_all_ready(Some(info.dbnum_first));
            state.queues.set_all_ready(Some(info.dbnum_second));
        });
    }
});

unsafe extern "C" fn on_key(
    ctx: *mut raw::RedisModuleCtx,
    _class: libc::c_int,
    event: *const libc::c_char,
    name: *mut raw::RedisModuleString,
) -> libc::c_int {
    // SAFETY: the server's own context, good until this returns.
    let context = unsafe { Context::new(ctx) };
    // Every deletion of any key comes here: with nobody waiting nothing can follow from it.
    if tell::is_writing() || state::with(|state| state.queues.waiters()) == Ok(0) {
        return 0;
    }
    entry(&context, || {
        // SAFETY: name and event are valid during this call.
        let (name, event) = unsafe { (Arg::lent(&context, name), CStr::from_ptr(event)) };
        let db = context.selected_db();
        let _ = state::with(|state| {
            let Some(line) = state.queues.waited_line(db, name.as_bytes()) else { return };
            if event == c"evicted" {
                state.queues.evicted(line);
            } else {
                state.queues.set_ready(line);
            }
        });
    });
    0
}
