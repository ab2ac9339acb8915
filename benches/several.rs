//! What several holders and several keys cost the server: LOCK.* against scripts that do the same, on one server in one
//! run, measured as in the bench pair. Then how the cost grows with the number of holders. README.md in this folder
//! tells the rest.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::cast_precision_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod common;
#[path = "pair/lane.rs"]
mod lane;
#[path = "several/work.rs"]
mod several;
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "pair/tables.rs"]
mod tables;
#[path = "pair/work.rs"]
mod work;

use common::{Origin, Settings};
use lane::{Stand, COLUMNS};
use several::{crowds, of_several};
use support::Server;
use tables::{print_costs, print_ratios};

/// Connections that take turns.
const LANES: usize = 8;
/// Keys of a lane, each of its own; fewer where many hold each.
const KEYS: usize = 100;
const FEW_KEYS: usize = 8;

const ROUNDS: usize = 9;
const OPERATIONS: usize = 100_000;

fn main() {
    let settings = Settings::read(ROUNDS, OPERATIONS);
    let mut origin = Origin::of("several", &Server::start());
    origin.add("rounds", settings.rounds);
    origin.add("operations", format!("{} of each contender in each round", settings.operations));
    origin.add("on their way", format!("{LANES} connections with {KEYS} commands each, {FEW_KEYS} of crowds"));
    origin.print();
    let mut rows = Vec::new();
    for (keys, part) in [(KEYS, of_several as fn(&mut _) -> _), (FEW_KEYS, crowds)] {
        let mut stand = Stand::new(Server::start(), LANES, keys, settings.operations);
        let mut workloads = part(&mut stand.server.conn());
        rows.extend(stand.rounds(settings.rounds, &mut workloads));
        print_costs(&workloads, stand.operations);
        print_ratios(&workloads, origin.server());
    }
    if !settings.smoke {
        println!("raw rounds: {}", origin.write_raw(COLUMNS, &rows).display());
    }
}
