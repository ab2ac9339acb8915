//! The cost of a hand-off: LOCK.ACQUIRE with WAIT against other ways to wait.
//!
//! Its parts: one hot lock that 4, 16 and 64 client processes want again and again (`hot`); one hand-off with 1 to
//! 10,000 waiters behind it, in CPU time (`crowd`) and in instructions; how long a server does nothing else while many
//! clients come or go (`pause`); the memory of a waiter (`memory`).

mod crowd;
mod hot;
mod notified;
mod pause;
mod worker;

pub use worker::{arguments as worker_arguments, run as work};

use crate::measure::state::{State, COLUMN};
use crate::measure::{Call, Origin, ServerCpu};
use std::os::unix::process::CommandExt;
use std::process::Command;
use testkit::Server;

const ROUNDS: usize = 7;
/// Hand-offs per contender and number of waiters in a round.
const OPERATIONS: usize = 20_000;

/// One line of the raw file; a column that its part does not measure stays empty.
struct Row {
    part: &'static str,
    state: State,
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
        let Row { part, state, clients, contender, round, place, .. } = self;
        format!("\"{part}\",{clients},\"{contender}\",{round},{place},{},{}", values.join(","), state.in_raw_files())
    }
}

/// Restarts this program with as many open files as the system allows, because every waiter needs one.
fn raise_open_files() {
    const RAISED: &str = "HANDOFF_OPEN_FILES_RAISED";
    if std::env::var_os(RAISED).is_none() {
        let script = "ulimit -n \"$(ulimit -Hn)\" 2>/dev/null; exec \"$0\" \"$@\"";
        let this = std::env::current_exe().unwrap();
        let mut command = Command::new("sh");
        let error = command.args(["-c", script]).arg(this).args(std::env::args_os().skip(1)).env(RAISED, "1").exec();
        eprintln!("the limit on open files stays as it is: {error}");
    }
}

/// The parts that can be chosen.
pub const PARTS: [&str; 5] = ["hot", "crowd", "instructions", "pause", "memory"];

pub fn measure(call: &Call) {
    if !call.smoke {
        raise_open_files();
    }
    let settings = call.settings(ROUNDS, OPERATIONS);
    let server = Server::with().args(&["--maxclients", "20000"]).module_args(&["max-waiters", "20000"]).start();
    let origin = Origin::of("handoff", &server, &settings)
        .with("cpu time", ServerCpu::of(&server).source())
        .with("rounds", settings.rounds)
        .with("a round on the hot lock", format!("{:?}", hot::duration(&settings)))
        .with("hand-offs with a crowd", format!("{} of each contender in each round", settings.operations))
        .printed();
    let is_wanted = |part: &str| call.arguments.is_empty() || call.has(part);
    let mut rows = Vec::new();
    if is_wanted("hot") {
        rows.extend(hot::measure(&server, State::NoSink, &settings));
        let heard = State::AofAndReplica;
        let (server, _replica) = heard.start();
        rows.extend(hot::measure(&server, heard, &settings));
    }
    if is_wanted("crowd") {
        rows.extend(crowd::measure(&server, &settings));
    }
    drop(server);
    if is_wanted("instructions") {
        for state in State::ALL {
            rows.extend(crowd::measure_instructions(state, &settings));
        }
    }
    if is_wanted("pause") {
        rows.extend(pause::measure(&settings));
    }
    if is_wanted("memory") {
        rows.extend(crowd::measure_memory(&settings));
    }
    let lines: Vec<String> = rows.iter().map(Row::line).collect();
    origin.keep(&format!("part,clients,contender,round,place,{},{COLUMN}", VALUES.join(",")), &lines);
}
