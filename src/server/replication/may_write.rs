//! Whether the server lets a module write now, outside a command. It does not while clients are paused, for example.

use crate::server::api::api;
use crate::server::api::context::Context;
use crate::server::state::module;
use redis_module::raw;

/// Whether the server lets a module write now, outside a command. It does not on a replica, while the server is
/// loading, paused or failing over, or with too few good replicas. While the server cannot write its AOF or its
/// snapshots, it refuses the writes of clients, so nobody could claim, extend or release what the module granted.
pub fn may_write(context: &Context) -> bool {
    let never = raw::REDISMODULE_CTX_FLAGS_SLAVE
        | raw::REDISMODULE_CTX_FLAGS_READONLY
        | raw::REDISMODULE_CTX_FLAGS_LOADING
        | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING;
    // SAFETY: takes nothing, returns whether clients are paused.
    let is_paused = unsafe { (api().avoid_replica_traffic)() } != 0;
    !is_paused && !context.has_flags(never) && has_good_replicas(context) && !is_disk_failing(context)
}

/// Whether the server refuses writes with MISCONF. Only a server with an AOF or save points does.
fn is_disk_failing(context: &Context) -> bool {
    let (appends, saves) =
        (context.has_flags(raw::REDISMODULE_CTX_FLAGS_AOF), context.has_flags(raw::REDISMODULE_CTX_FLAGS_RDB));
    if !appends && !saves {
        return false;
    }
    let Some(info) = context.server_section(c"persistence") else { return false };
    let failed = |field| info.field(field).is_some_and(|status| status.trim() == "err");
    let stops = || context.config(c"stop-writes-on-bgsave-error").is_some_and(|setting| setting == "yes");
    appends && failed(c"aof_last_write_status") || saves && failed(c"rdb_last_bgsave_status") && stops()
}

/// Whether there are as many good replicas as `min-replicas-to-write` requires.
fn has_good_replicas(context: &Context) -> bool {
    let wanted = module().facts.min_replicas(context, &module().settings);
    if wanted == 0 {
        return true;
    }
    // The field exists only while the setting is in force.
    match context.server_info(c"replication", c"min_slaves_good_slaves") {
        Some(good) => good.trim().parse::<u64>().is_ok_and(|good| good >= wanted),
        None => true,
    }
}

/// Whether waiters can lose their slot: only in a cluster, on a master that is not loading.
pub fn may_lose_slots(context: &Context) -> bool {
    let not_here = raw::REDISMODULE_CTX_FLAGS_SLAVE
        | raw::REDISMODULE_CTX_FLAGS_LOADING
        | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING;
    context.has_flags(raw::REDISMODULE_CTX_FLAGS_CLUSTER) && !context.has_flags(not_here)
}
