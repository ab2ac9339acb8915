//! The state of the server's replicas, and whether the server is a replica itself.

use crate::driver::Replication;
use crate::lock::grace::Answer;
use crate::server::api::context::{Context, ServerInfo};
use crate::server::state::module;
use std::ffi::CString;

/// The most replicas that are read.
const MOST_REPLICAS: u32 = 64;

/// How many replicas are connected.
pub fn connected(context: &Context) -> u64 {
    let connected = context.server_info(c"replication", c"connected_slaves");
    connected.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// The replicas' last answers; `None` if the server does not report its offset.
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

/// Whether this server is a replica, as last reported.
#[must_use]
pub fn is_replica() -> bool {
    module().is_replica.get()
}
