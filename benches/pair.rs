//! The server's cost for a lock: LOCK.* against what people use instead, on one server in one run.
//!
//! Measures the server's CPU time per operation, with enough commands in flight that the server is the limit. ACQUIRE
//! replies with the token that RELEASE needs, so one step's commands are sent for many keys at once and their replies
//! are read before the next step; the peers are measured in the same way. Several connections take turns: while one is
//! read, the server works for the others.

pub mod connection;
mod extra;
pub mod tables;
pub mod work;

use crate::measure::{Call, Origin, ServerCpu};
use connection::{side_by_side, COLUMNS};
use testkit::Server;
use work::workloads;

/// Connections that take turns.
pub const CONNECTIONS: usize = 8;
/// Each connection's own keys.
pub const KEYS: usize = connection::AT_ONCE;

const ROUNDS: usize = 9;
const OPERATIONS: usize = 400_000;

pub fn measure(call: &Call) {
    if call.has("--extra") {
        return extra::measure(call);
    }
    let settings = call.settings(ROUNDS, OPERATIONS);
    let server = Server::start();
    let origin = Origin::of("pair", &server, &settings)
        .with("cpu time", ServerCpu::of(&server).source())
        .with("rounds", settings.rounds)
        .with("operations", format!("{} of each contender in each round", settings.operations))
        .with("on their way", format!("{CONNECTIONS} connections with {KEYS} commands each"))
        .printed();
    drop(server);
    let (rows, measured) = side_by_side(settings.rounds, (CONNECTIONS, KEYS, settings.operations), workloads);
    for (state, operations, workloads) in measured {
        tables::print(&workloads, operations, state, origin.server());
    }
    origin.keep(COLUMNS, &rows);
}
