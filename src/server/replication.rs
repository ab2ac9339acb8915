//! What the server knows of its replicas, and whether it lets a module write.

use super::api::api;
use super::context::{Context, ServerInfo};
use super::module::module;
use crate::broken::{self, Mutant};
use crate::driver::Replication;
use crate::lock::grace::Answer;
use redis_module::raw;
use std::ffi::CString;

/// More replicas are not looked at.
const MOST_REPLICAS: u32 = 64;

/// Whether the server lets a module write now, outside of a command: never as a replica, while loading, while paused or
/// failing over, or short of good replicas.
pub fn may_write(context: &Context) -> bool {
    let never = raw::REDISMODULE_CTX_FLAGS_SLAVE
        | raw::REDISMODULE_CTX_FLAGS_READONLY
        | raw::REDISMODULE_CTX_FLAGS_LOADING
        | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING;
    // SAFETY: takes nothing, tells whether clients are paused.
    let is_paused = unsafe { (api().avoid_replica_traffic)() } != 0 && !broken::is(Mutant::GrantInPause);
    !is_paused && !context.has_flags(never) && has_good_replicas(context)
}

/// Whether there are as many good replicas as `min-replicas-to-write` asks for.
fn has_good_replicas(context: &Context) -> bool {
    let wanted = module().min_replicas(context);
    if wanted == 0 || broken::is(Mutant::NoMinReplicas) {
        return true;
    }
    // The field is there only while the server obeys the setting.
    match context.server_info(c"replication", c"min_slaves_good_slaves") {
        Some(good) => good.trim().parse::<u64>().is_ok_and(|good| good >= wanted),
        None => true,
    }
}

/// Whether a waiter can be told that its slot is not served here: in a cluster, on a master that is not loading.
pub fn may_lose_slots(context: &Context) -> bool {
    let not_here = raw::REDISMODULE_CTX_FLAGS_SLAVE
        | raw::REDISMODULE_CTX_FLAGS_LOADING
        | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING;
    context.has_flags(raw::REDISMODULE_CTX_FLAGS_CLUSTER) && !context.has_flags(not_here)
}

/// How many replicas are connected.
pub fn replicas(context: &Context) -> u64 {
    let connected = context.server_info(c"replication", c"connected_slaves");
    connected.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// What the replicas have answered; nothing where the server does not tell its offset.
pub fn answers(context: &Context) -> Option<Replication> {
    let info = context.server_section(c"replication")?;
    let offset = info.field(c"master_repl_offset")?.trim().parse().ok()?;
    Some(Replication { offset, answers: read(&info) })
}

fn read(info: &ServerInfo<'_>) -> Vec<Answer> {
    let number = |number: u32| CString::new(format!("slave{number}")).ok();
    let replica = |field: CString| info.field(&field);
    let answer = |text: String| {
        let value = |name| text.split(',').find_map(|part| part.strip_prefix(name))?.trim().parse::<i64>().ok();
        let offset = u64::try_from(value("offset=")?).ok()?;
        text.contains("state=online").then_some(Answer { offset, lag_s: value("lag=")? })
    };
    (0..MOST_REPLICAS).map_while(|at| number(at).and_then(replica)).filter_map(answer).collect()
}

/// Whether this server is a replica, as it told last.
#[must_use]
pub fn is_replica() -> bool {
    module().is_replica.get() && !broken::is(Mutant::ReplicaGrants)
}
