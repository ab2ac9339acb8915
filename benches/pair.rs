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
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "pair/work.rs"]
mod work;

use common::bounds::{at_most, verdict};
use common::runs::Ratio;
use common::{median, print_table, Cost, Origin, Settings};
use support::Server;
use work::{workloads, Stand, Workload};

/// Connections that take turns.
const LANES: usize = 8;
/// Keys of a lane, each of its own.
const KEYS: usize = work::AT_ONCE;

const ROUNDS: usize = 9;
const OPERATIONS: usize = 400_000;

/// What every line of the raw file has.
const COLUMNS: &str = "operation,contender,round,place,operations,cpu_ns,wall_ns";

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

    let mut rows = Vec::new();
    for round in 0..=settings.rounds {
        for workload in &mut workloads {
            rows.extend(stand.round(round, workload));
        }
        eprintln!("round {round} of {}", settings.rounds);
    }
    print_costs(&workloads, stand.operations);
    print_ratios(&workloads, origin.server());
    if !settings.smoke {
        println!("raw rounds: {}", origin.write_raw(COLUMNS, &rows).display());
    }
}

/// What one operation costs, in the median of the rounds.
fn print_costs(workloads: &[Workload], operations: usize) {
    let mut rows = Vec::new();
    for workload in workloads {
        for contender in &workload.contenders {
            let middle = |of: fn(&Cost) -> f64| median(contender.costs.iter().map(of));
            let micros = |seconds: f64| format!("{:.3}", seconds * 1e6 / operations as f64);
            rows.push(vec![
                workload.name.into(),
                contender.name.into(),
                micros(middle(|cost| cost.cpu.as_secs_f64())),
                micros(middle(|cost| cost.wall.as_secs_f64())),
                format!("{:.0} %", 100.0 * middle(Cost::busy)),
            ]);
        }
    }
    let header = ["operation", "done with", "server CPU, µs", "wall, µs", "server busy"];
    print_table(2, &header, &rows);
}

/// Ours against each peer, as the median of the rounds' ratios. Rounds are compared with themselves, so that what slows
/// down a whole round (other work on the machine, a lower clock of the CPU) slows down both sides.
fn print_ratios(workloads: &[Workload], server: &str) {
    let mut rows = Vec::new();
    for Workload { name, contenders } in workloads {
        let (ours, peers) = contenders.split_first().expect("ours is the first");
        for peer in peers {
            let ratio = |of: fn(&Cost) -> f64| {
                let (ours, theirs): (Vec<f64>, Vec<f64>) =
                    ours.costs.iter().zip(&peer.costs).map(|(our, their)| (of(our), of(their))).unzip();
                Ratio::of(&ours, &theirs).expect("as many rounds of each")
            };
            let cpu = ratio(|cost| cost.cpu.as_secs_f64());
            let bound = at_most(name, peer.name, server);
            rows.push(vec![
                (*name).into(),
                peer.name.into(),
                format!("{:.2}", cpu.median),
                format!("{:.2} to {:.2}", cpu.low, cpu.high),
                format!("{:.2}", ratio(|cost| cost.wall.as_secs_f64()).median),
                bound.map_or("-".into(), |bound| format!("{bound:.2}")),
                verdict(cpu.median, bound).into(),
            ]);
        }
    }
    let header = ["LOCK.*", "against", "server CPU", "in the rounds", "wall", "expected at most", "verdict"];
    print_table(2, &header, &rows);
}
