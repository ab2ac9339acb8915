//! What it takes to hand a lock on: LOCK.ACQUIRE with WAIT against what people wait with instead.
//!
//! Three parts: one hot lock that 4, 16 and 64 client processes want again and again; one hand-off with 10 to 10,000
//! waiters behind it, in CPU time and in instructions; the memory of a waiter. `-- hot`, `-- crowd`, `-- instructions`,
//! `-- memory` choose among them. README.md in this folder tells the rest.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::cast_precision_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod common;
#[path = "handoff/crowd.rs"]
mod crowd;
#[path = "handoff/hot.rs"]
mod hot;
#[path = "../tests/clients/install.rs"]
mod install;
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "handoff/worker.rs"]
mod worker;

use common::{Origin, ServerCpu, Settings};
use std::os::unix::process::CommandExt;
use std::process::Command;
use support::Server;

const ROUNDS: usize = 7;
/// Hand-offs of each contender for each number of waiters in a round.
const OPERATIONS: usize = 20_000;

/// One line of the raw file; what was not measured in its part stays empty.
#[derive(Default)]
struct Row {
    part: &'static str,
    clients: usize,
    contender: String,
    round: usize,
    place: usize,
    values: Vec<(&'static str, f64)>,
}

const VALUES: [&str; 13] = [
    "hand_offs",
    "cpu_ns",
    "wall_ns",
    "commands",
    "p50_us",
    "p99_us",
    "max_us",
    "most",
    "least",
    "instructions",
    "idle_bytes",
    "waiting_bytes",
    "settled_bytes",
];

impl Row {
    fn line(&self) -> String {
        let value = |name: &str| {
            let found = self.values.iter().find(|(other, _)| *other == name);
            found.map_or(String::new(), |(_, value)| format!("{value:.0}"))
        };
        let values: Vec<String> = VALUES.iter().map(|name| value(name)).collect();
        let Row { part, clients, contender, round, place, .. } = self;
        format!("\"{part}\",{clients},\"{contender}\",{round},{place},{}", values.join(","))
    }
}

/// Starts this program again with as many open files as the system allows: every waiter is one.
fn raise_open_files() {
    const RAISED: &str = "HANDOFF_OPEN_FILES_RAISED";
    if std::env::var_os(RAISED).is_none() {
        let script = "ulimit -n \"$(ulimit -Hn)\" 2>/dev/null; exec \"$0\" \"$@\"";
        let this = std::env::current_exe().unwrap();
        let mut command = Command::new("sh");
        let error = command.args(["-c", script]).arg(this).args(std::env::args_os().skip(1)).env(RAISED, "1").exec();
        eprintln!("open files stay as they are: {error}");
    }
}

/// Whether a part is to be measured: all, unless some are named.
fn wanted(part: &str) -> bool {
    let mut named = std::env::args().skip(1).filter(|arg| arg != "--bench").peekable();
    named.peek().is_none() || named.any(|arg| arg == part)
}

fn main() {
    if worker::is_worker() {
        return worker::run();
    }
    raise_open_files();
    let settings = Settings::read(ROUNDS, OPERATIONS);
    let server = Server::with().args(&["--maxclients", "20000"]).module_args(&["max-waiters", "20000"]).start();
    let mut origin = Origin::of("handoff", &server);
    origin.add("cpu time", ServerCpu::of(&server).source());
    origin.add("rounds", settings.rounds);
    origin.add("a round on the hot lock", format!("{:?}", hot::duration(&settings)));
    origin.add("hand-offs with a crowd", format!("{} of each contender in each round", settings.operations));
    origin.print();

    let mut rows = Vec::new();
    if wanted("hot") {
        rows.extend(hot::measure(&server, &settings));
    }
    if wanted("crowd") {
        rows.extend(crowd::measure(&server, &settings));
    }
    drop(server);
    if wanted("instructions") {
        rows.extend(crowd::measure_instructions(&settings));
    }
    if wanted("memory") {
        rows.extend(crowd::measure_memory(&settings));
    }
    if !settings.smoke {
        let header = format!("part,clients,contender,round,place,{}", VALUES.join(","));
        let lines: Vec<String> = rows.iter().map(Row::line).collect();
        println!("raw rounds: {}", origin.write_raw(&header, &lines).display());
    }
}
