//! What a lock costs the server: LOCK.* against what people use instead, on one server in one run.
//!
//! Measured is the CPU time of the server per operation, with enough commands on their way that the server is what
//! limits. ACQUIRE replies the token that RELEASE needs, so the commands of one step go out for many keys at once,
//! their replies are read, then those of the next step; the peers are measured in the same way. Several lanes do so
//! in turn: while one is read, the server works for the others. README.md in this folder tells the rest.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::cast_precision_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod common;
#[path = "pair/extra.rs"]
mod extra;
#[path = "pair/lane.rs"]
mod lane;
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "pair/tables.rs"]
mod tables;
#[path = "pair/work.rs"]
mod work;

use common::{Origin, Settings};
use lane::{Stand, COLUMNS};
use support::Server;
use tables::{print_costs, print_ratios};
use work::workloads;

/// Connections that take turns.
const LANES: usize = 8;
/// Keys of a lane, each of its own.
const KEYS: usize = lane::AT_ONCE;

const ROUNDS: usize = 9;
const OPERATIONS: usize = 400_000;

fn main() {
    if std::env::args().any(|arg| arg == "--extra") {
        return extra::measure(&Settings::read(extra::ROUNDS, extra::OPERATIONS));
    }
    let settings = Settings::read(ROUNDS, OPERATIONS);
    let mut stand = Stand::new(Server::start(), LANES, KEYS, settings.operations);
    let mut workloads = workloads(&mut stand.server.conn());
    let mut origin = Origin::of("pair", &stand.server);
    origin.add("cpu time", stand.cpu.source());
    origin.add("rounds", settings.rounds);
    origin.add("operations", format!("{} of each contender in each round", stand.operations));
    origin.add("on their way", format!("{LANES} connections with {KEYS} commands each"));
    origin.print();

    let rows = stand.rounds(settings.rounds, &mut workloads);
    print_costs(&workloads, stand.operations);
    print_ratios(&workloads, origin.server());
    if !settings.smoke {
        println!("raw rounds: {}", origin.write_raw(COLUMNS, &rows).display());
    }
}
