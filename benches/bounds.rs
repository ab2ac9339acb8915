//! Prints the results: a line for each bound, from the newest raw runs on the server that `REDIS_SERVER` names. If
//! instructions were counted, they decide: other work on the machine distorts times.
//!
//! `--measure` first measures what the bounds need, and nothing else. Only the comparison with other systems is not
//! measured then: `make bench-peers` does that. `--write` instead fills the tables in README.md and benches/README.md,
//! between `<!-- table: NAME -->` and `<!-- end of table -->`, from the newest raw runs on all servers, so that no
//! figure is typed by hand. It measures nothing.

pub mod list;
mod peers;
mod tables;

use crate::measure::runs::{cpu_us, number, Row, Run};
use crate::measure::{median, print_table, root, Call, Ratio};
use list::{
    judged, verdict, Bound, Of, BARE_RELEASE, BOUNDS, CEILING, EXTEND, LIMIT, LIMIT_REFUSED, LONGEST_PAUSE_US,
    MANY_KEYS, OURS, PAIR, REFUSED, SHARED,
};
use std::process::Command;
use testkit::server_binary;

/// A bound's measured ratio.
struct Outcome {
    ratio: Ratio,
    /// The ratio in instructions, if they were counted.
    instructions: Option<f64>,
}

impl Outcome {
    /// From a server's newest runs that contain both sides.
    fn of(bound: &Bound, server: &str) -> Option<Self> {
        let state = bound.state;
        let (ours, theirs, instructions) = match bound.of {
            Of::Rounds(bench) => {
                let is_of = |row: &Row, name: &str| {
                    row["operation"] == bound.operation && row["contender"] == name && state.is_of(row)
                };
                let run = Run::newest(bench, server, |row| is_of(row, bound.against))?;
                let of = |name: &str| run.rounds(|row| is_of(row, name), cpu_us);
                (of(OURS), of(bound.against), instructions_of_pair(bound, server))
            }
            Of::HandOff => {
                let is_of = |row: &Row, clients: &str| {
                    let is_ours = row["contender"] == OURS && row["clients"] == clients;
                    is_ours && row["part"] == "instructions" && state.is_of(row)
                };
                let has_all = |row: &Row| is_of(row, "1");
                let run = Run::newest("handoff", server, has_all)?;
                let of = |clients: &str| {
                    run.rounds(
                        |row| is_of(row, clients),
                        |row| Some(number(row, "instructions")? / number(row, "hand_offs")?),
                    )
                };
                let (crowd, single) = (of("10000"), of("1"));
                let counted = crowd.first().zip(single.first()).map(|(crowd, single)| crowd / single);
                (crowd, single, counted)
            }
            Of::HotTime | Of::HotCpu => {
                let is_of = |row: &Row, name: &str| {
                    let is_hot = row["part"] == "hot lock" && row["clients"] == "64";
                    is_hot && row["contender"] == name && state.is_of(row)
                };
                let run = Run::newest("handoff", server, |row| is_of(row, CEILING))?;
                let time = |row: &Row| Some(number(row, "wall_ns")? / number(row, "hand_offs")?);
                let of = |name: &str| match bound.of {
                    Of::HotTime => run.rounds(|row| is_of(row, name), time),
                    _ => run.rounds(|row| is_of(row, name), cpu_us),
                };
                (of(OURS), of(bound.against), None)
            }
            Of::Pause(part) => {
                let is_of = |row: &Row| row["part"] == part && row["contender"] == OURS && state.is_of(row);
                let run = Run::newest("handoff", server, is_of)?;
                let pauses = run.rounds(is_of, |row| number(row, "max_us"));
                let most = vec![LONGEST_PAUSE_US; pauses.len()];
                (pauses, most, None)
            }
            Of::Memory => {
                let run = Run::newest_of("memory", server)?;
                let of =
                    |name: &str| run.rounds(|row| row["contender"] == name, |row| number(row, "used_memory_bytes"));
                (of(OURS), of(bound.against), None)
            }
            Of::FastestPeer(_) | Of::CheapestQueue(_) | Of::SameClient(..) | Of::KilledHolder(_) => {
                let (ours, theirs) = peers::rounds(bound.of, server)?;
                (ours, theirs, None)
            }
        };
        Some(Self { ratio: Ratio::of(&ours, &theirs)?, instructions })
    }

    /// The ratio that decides.
    fn decisive(&self) -> f64 {
        self.instructions.unwrap_or(self.ratio.median)
    }

    fn is_missed(&self, bound: &Bound, server: &str) -> bool {
        bound.is_for(server) && verdict(self.decisive(), Some(bound.at_most)) == "missed"
    }
}

/// The commands that an operation consists of.
fn commands(operation: &str, contender: &str) -> &'static [&'static str] {
    match (operation, contender) {
        (PAIR, OURS) => &["LOCK.ACQUIRE", "LOCK.RELEASE"],
        (PAIR, "SET NX PX + EVALSHA") => &["SET NX PX", "EVALSHA (del)"],
        (PAIR, "SET NX PX + DEL") => &["SET NX PX", "DEL"],
        (PAIR, "SET NX PX + DELEX IFEQ") => &["SET NX PX", "DELEX IFEQ"],
        (PAIR, "SET NX PX + DELIFEQ") => &["SET NX PX", "DELIFEQ"],
        (REFUSED, OURS) => &["LOCK.ACQUIRE refused"],
        (REFUSED, _) => &["SET NX PX refused"],
        (SHARED | LIMIT, OURS) => &["LOCK.ACQUIRE SHARED, 10 others", "LOCK.RELEASE, 10 others"],
        (SHARED | LIMIT, BARE_RELEASE) => &["EVALSHA (semaphore), 10 others", "ZREM, 10 others"],
        (SHARED | LIMIT, _) => &["EVALSHA (semaphore), 10 others", "EVALSHA (semaphore, release), 10 others"],
        (LIMIT_REFUSED, OURS) => &["LOCK.ACQUIRE LIMIT refused"],
        (LIMIT_REFUSED, _) => &["EVALSHA (semaphore) refused"],
        (MANY_KEYS, OURS) => &["LOCK.MACQUIRE, 10 keys", "LOCK.MRELEASE, 10 keys"],
        (MANY_KEYS, "EVALSHA + EVALSHA") => &["EVALSHA (10 keys)", "EVALSHA (10 keys, del)"],
        (EXTEND, OURS) => &["LOCK.EXTEND"],
        (EXTEND, _) => &["EVALSHA (pexpire)"],
        _ => &[],
    }
}

fn instructions_of_pair(bound: &Bound, server: &str) -> Option<f64> {
    let is_of = |row: &Row| bound.state.is_of(row);
    let run = Run::newest("instructions", server, is_of)?;
    let of = |contender: &str| {
        let each = commands(bound.operation, contender).iter().map(|command| {
            let of = run.rounds(|row| row["command"] == *command && is_of(row), |row| number(row, "instructions"));
            (!of.is_empty()).then(|| median(of))
        });
        each.sum::<Option<f64>>()
    };
    Some(of(OURS)? / of(bound.against)?)
}

/// The name of the server that would be measured, as in raw file names.
fn server() -> String {
    let output = Command::new(server_binary()).arg("--version").output().expect("the server can be run");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.split_whitespace().find_map(|word| word.strip_prefix("v=")).expect("it reports its version");
    let name = if text.starts_with("Valkey") { "valkey" } else { "redis" };
    format!("{name}-{version}")
}

/// A line for each bound that applies to that server.
fn print_summary(server: &str) {
    let mut rows = Vec::new();
    for bound in BOUNDS.iter().filter(|bound| bound.is_for(server)) {
        let mut row = vec![bound.operation.into(), bound.against.into(), bound.state.name().into()];
        if let Some(outcome) = Outcome::of(bound, server) {
            let Ratio { median, low, high, rounds } = outcome.ratio;
            row.extend([format!("{median:.3}"), format!("{low:.2} to {high:.2}"), rounds.to_string()]);
            row.push(outcome.instructions.map_or("-".into(), |ratio| format!("{ratio:.3}")));
            row.extend(judged(outcome.decisive(), Some(bound.at_most)));
        } else {
            row.extend(["-", "-", "-", "-"].map(String::from));
            row.extend([format!("{:.2}", bound.at_most), "not measured".into()]);
        }
        rows.push(row);
    }
    println!("\nLOCK.* on {server}, as a multiple of the other: server CPU, time, or bytes of used_memory");
    println!("Where there are instructions, they decide.");
    let header =
        ["LOCK.*", "against", "state", "median", "in the rounds", "rounds", "instructions", "at most", "verdict"];
    print_table(3, &header, &rows);
}

pub fn show(call: &Call) {
    if call.has("--write") && !call.smoke {
        for name in ["README.md", "benches/README.md", "docs/OPERATING.md"] {
            tables::fill(&root().join(name));
        }
    } else {
        print_summary(&server());
    }
}
