//! Compares LOCK.* with what people use instead: `cargo bench --bench lock -- NAME` runs one of [`BENCHES`], or all of
//! them without a name.
//!
//! `cargo test --bench lock` only tries them out: one short round of each, and nothing is written. README.md in this
//! folder describes what each measures.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::cast_precision_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod bounds;
mod handoff;
mod instructions;
mod measure;
mod memory;
mod overhead;
mod pair;
mod plots;
mod portable;
mod queued;
mod several;
use measure::Call;
use std::process::{Command, ExitCode};
use std::time::Duration;

struct Bench {
    name: &'static str,
    arguments: &'static [&'static str],
    run: fn(&Call),
}

const BENCHES: [Bench; 10] = [
    Bench { name: "pair", arguments: &["--extra"], run: pair::measure },
    Bench { name: "several", arguments: &[several::BOUNDED], run: several::measure },
    Bench { name: "portable", arguments: &[], run: portable::measure },
    Bench { name: "memory", arguments: &[], run: memory::measure },
    Bench { name: "instructions", arguments: &[], run: instructions::measure },
    Bench { name: "handoff", arguments: &handoff::PARTS, run: handoff::measure },
    Bench { name: "queued", arguments: &[], run: queued::measure },
    Bench { name: "overhead", arguments: &[], run: overhead::measure },
    Bench { name: "plots", arguments: &[], run: plots::draw },
    Bench { name: "bounds", arguments: &["--measure", "--write"], run: bounds::show },
];

/// The benches that run if none is named.
const ALL: &str =
    "pair, pair --extra, several, portable, memory, instructions, handoff, queued, overhead, plots, bounds";

/// The benches that the bounds need.
const BOUNDED: &str = "pair, several --bounds, memory, instructions, handoff hot instructions pause, bounds";

const A_DAY: Duration = Duration::from_secs(86_400);

/// `cargo bench` passes it; `cargo test` does not.
const MARK: &str = "--bench";

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(worker) = handoff::worker_arguments(&words) {
        handoff::work(worker);
        return ExitCode::SUCCESS;
    }
    let smoke = !words.iter().any(|word| word == MARK);
    words.retain(|word| word != MARK);
    let Some((name, arguments)) = words.split_first() else { return run_all(ALL, smoke) };
    if name == "bounds" && arguments.iter().any(|word| word == "--measure") && !smoke {
        return run_all(BOUNDED, smoke);
    }
    let bench = BENCHES.iter().find(|bench| bench.name == name);
    let Some(bench) = bench.filter(|bench| arguments.iter().all(|word| bench.arguments.contains(&&**word))) else {
        return usage();
    };
    if !smoke {
        // Cargo builds benches as tests, so the watch over tests runs here too. It ends servers after a few minutes.
        testkit::watch::allow(A_DAY);
    }
    (bench.run)(&Call { arguments: arguments.to_vec(), smoke });
    ExitCode::SUCCESS
}

/// Runs each bench in its own process, so that none runs in memory that another left behind.
fn run_all(benches: &str, smoke: bool) -> ExitCode {
    for words in benches.split(", ") {
        println!("\n{words}\n");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        let status = command.args((!smoke).then_some(MARK)).args(words.split(' ')).status();
        if !status.expect("this program runs again").success() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("cargo bench --bench lock -- one of");
    for Bench { name, arguments, .. } in &BENCHES {
        let arguments: Vec<String> = arguments.iter().map(|argument| format!(" [{argument}]")).collect();
        eprintln!("  {name}{}", arguments.concat());
    }
    ExitCode::from(2)
}
