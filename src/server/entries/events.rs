//! The server's events: keys that become free, databases that are flushed or swapped, changes to its role and
//! configuration, and the passing of time.

mod slots;

use crate::driver::Writer;
use crate::engine::{KeyChange, KeyName};
use crate::server::api::api;
use crate::server::api::context::{Arg, Context};
use crate::server::api::handle::Callbacks;
use crate::server::entries::blocked;
use crate::server::entries::{enter, enter_timer, Entry};
use crate::server::facts::version::Version;
use crate::server::facts::Changes;
use crate::server::keys::signal;
use crate::server::state::histograms::Spans;
use crate::server::state::module;
use redis_module::raw;
use std::ffi::CStr;

/// Subscribes to the events that cost nothing without waiters. `edge/keys.rs` subscribes to the keys' events.
///
/// # Errors
/// The event that the server lacks.
pub fn begin(context: &Context) -> Result<(), String> {
    let callbacks = Callbacks {
        reply: Some(blocked::on_reply),
        free: blocked::on_free,
        disconnect: Some(blocked::on_disconnect),
        unblock: Some(blocked::on_unblock),
        timer: Some(on_timer),
        key: Some(on_key),
        client: Some(on_client_change),
    };
    module().callbacks.set(Some(callbacks));
    module().spans.replace(Spans::new().map(Box::new));
    for (name, id, on_event) in [
        ("flushdb", raw::REDISMODULE_EVENT_FLUSHDB, on_flush as OnEvent),
        ("swapdb", raw::REDISMODULE_EVENT_SWAPDB, on_swap),
        ("cron loop", raw::REDISMODULE_EVENT_CRON_LOOP, on_cron),
        ("loading", raw::REDISMODULE_EVENT_LOADING, on_loading),
        ("role change", raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, on_role_change),
    ] {
        if !subscribe_to(context, id, on_event) {
            return Err(format!("the server has no event {name}"));
        }
    }
    if subscribe_to(context, raw::REDISMODULE_EVENT_FORK_CHILD, on_fork) {
        module().sinks.begin(Version::of(context));
    }
    slots::subscribe(context);
    let is_reported = subscribe_to(context, raw::REDISMODULE_EVENT_CONFIG, on_config_change);
    let changes = if is_reported { Changes::Reported } else { Changes::Unreported };
    module().is_replica.set(context.is_replica());
    enter(context, Writer::Timer, |entry| {
        entry.engine().make_room();
        entry.promoted();
        module().facts.read(context, &module().settings, changes);
        entry.check_settings();
    });
    Ok(())
}

type OnEvent = unsafe extern "C" fn(*mut raw::RedisModuleCtx, raw::RedisModuleEvent, u64, *mut libc::c_void);

/// Subscribes to a server event. Returns whether the server has it.
fn subscribe_to(context: &Context, id: u64, on_event: OnEvent) -> bool {
    let event = raw::RedisModuleEvent { id, dataver: 1 };
    // SAFETY: the context is valid; a server that does not know the event reports an error.
    unsafe { (api().subscribe_to_server_event)(context.as_ptr(), event, Some(on_event)) == 0 }
}

/// Builds the C function of an event handler from `fn(&Context, &mut Entry, subevent, data)`.
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
            enter(&context, Writer::Timer, |entry| $handler(&context, entry, subevent, data));
        }
    };
}

c_event!(on_config_change, |context: &Context, entry: &mut Entry<'_>, _, _| {
    module().sinks.may_come();
    module().facts.read(context, &module().settings, Changes::Reported);
    entry.check_settings();
});
c_event!(on_cron, |context: &Context, entry: &mut Entry<'_>, _, data: *mut libc::c_void| {
    module().is_replica.set(context.is_replica());
    // SAFETY: the server gives this event this structure, or none.
    if let Some(info) = unsafe { data.cast::<raw::RedisModuleCronLoopInfo>().as_ref() } {
        module().settings.set_hz(u32::try_from(info.hz).unwrap_or(0));
    }
    entry.tick();
    if module().resets.noticed(context) {
        entry.engine().waits_mut().reset();
        if let Some(spans) = module().spans.borrow_mut().as_mut() {
            spans.reset();
        }
    }
    module().sets.borrow_mut().tick();
    module().sinks.tick(context);
});
c_event!(on_role_change, |_: &Context, entry: &mut Entry<'_>, role, _| {
    let is_replica = role == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA;
    module().is_replica.set(is_replica);
    module().sinks.may_come();
    module().sets.borrow_mut().clear();
    if is_replica {
        entry.demoted();
    } else {
        entry.promoted();
    }
});
c_event!(on_client_change, |_: &Context, entry: &mut Entry<'_>, subevent, data: *mut libc::c_void| {
    // SAFETY: the server gives this event this structure, or none.
    let client = unsafe { data.cast::<raw::RedisModuleClientInfo>().as_ref() };
    if let (Some(client), raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED) = (client, subevent) {
        entry.connection_ended(client.id);
    }
});
c_event!(on_flush, |_: &Context, entry: &mut Entry<'_>, subevent, data: *mut libc::c_void| {
    // SAFETY: the server gives this event this structure, or none.
    let info = unsafe { data.cast::<raw::RedisModuleFlushInfo>().as_ref() };
    if let (Some(info), raw::REDISMODULE_SUBEVENT_FLUSHDB_END) = (info, subevent) {
        module().sets.borrow_mut().clear();
        entry.database_changed(Some(info.dbnum).filter(|db| *db >= 0));
    }
});
c_event!(on_swap, |_: &Context, entry: &mut Entry<'_>, _, data: *mut libc::c_void| {
    // SAFETY: the server gives this event this structure, or none.
    if let Some(info) = unsafe { data.cast::<raw::RedisModuleSwapDbInfo>().as_ref() } {
        module().sets.borrow_mut().clear();
        entry.database_changed(Some(info.dbnum_first));
        entry.database_changed(Some(info.dbnum_second));
    }
});

/// Called when the server forked. That can happen in the middle of anything, so this only changes a flag. The child may
/// write a snapshot for a replica or an AOF, which then needs every later change.
unsafe extern "C" fn on_fork(_: *mut raw::RedisModuleCtx, _: raw::RedisModuleEvent, _: u64, _: *mut libc::c_void) {
    module().sinks.may_come();
}

/// Called when the server begins or finishes loading its data.
unsafe extern "C" fn on_loading(
    _: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    subevent: u64,
    _: *mut libc::c_void,
) {
    let has_ended = [raw::REDISMODULE_SUBEVENT_LOADING_ENDED, raw::REDISMODULE_SUBEVENT_LOADING_FAILED];
    module().is_loading.set(!has_ended.contains(&subevent));
}

unsafe extern "C" fn on_timer(ctx: *mut raw::RedisModuleCtx, _data: *mut libc::c_void) {
    // SAFETY: the server's own context, good until this returns.
    let context = unsafe { Context::new(ctx) };
    enter_timer(&context);
}

unsafe extern "C" fn on_key(
    ctx: *mut raw::RedisModuleCtx,
    _class: libc::c_int,
    event: *const libc::c_char,
    name: *mut raw::RedisModuleString,
) -> libc::c_int {
    // The server calls this for every deletion of any key; without waiters there is nothing to do.
    let is_awaited = module().driver.try_borrow().is_ok_and(|driver| driver.engine().queues().waiters() > 0);
    if !is_awaited {
        return 0;
    }
    // SAFETY: the server's own context, good until this returns; name and event are valid as long as it is.
    let (context, name, event) = unsafe { (Context::new(ctx), Arg::lent(name), CStr::from_ptr(event)) };
    if signal::is_written(name) {
        return 0;
    }
    enter(&context, Writer::Timer, |entry| {
        let key = KeyName { db: context.selected_db(), name: name.as_bytes() };
        let how = if event == c"evicted" { KeyChange::Evicted } else { KeyChange::Gone };
        entry.key_changed(key, how);
    });
    0
}
