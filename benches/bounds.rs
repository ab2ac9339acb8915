//! Prints the results: a line for each bound, from the newest raw runs on the server that `REDIS_SERVER` names.
//!
//! `--write` instead fills the tables in README.md and benches/README.md, between `<!-- table: NAME -->` and
//! `<!-- end of table -->`, from the newest raw runs on all servers, so that no figure is typed. Nothing is measured.

pub mod list;
mod tables;

use crate::measure::runs::{cpu_us, number, Row, Run};
use crate::measure::{median, print_table, root, Call, Ratio};
use crate::support::server_binary;
use list::{
    judged, verdict, Bound, Of, BARE_RELEASE, BOUNDS, EXTEND, LIMIT, LIMIT_REFUSED, MANY_KEYS, OURS, PAIR, REFUSED,
    SHARED,
};
use std::process::Command;

/// The measured ratio of a bound.
struct Outcome {
    ratio: Ratio,
    /// The same in instructions, where they were counted.
    instructions: Option<f64>,
}

impl Outcome {
    /// From the newest runs on a server that have what is compared.
    fn of(bound: &Bound, server: &str) -> Option<Self> {
        let (ours, theirs, instructions) = match bound.of {
            Of::Rounds(bench) => {
                let run = Run::newest(bench, server, |row| {
                    row["operation"] == bound.operation && row["contender"] == bound.against
                })?;
                let of = |name: &str| {
                    run.rounds(|row| row["operation"] == bound.operation && row["contender"] == name, cpu_us)
                };
                (of(OURS), of(bound.against), instructions_of_pair(bound, server))
            }
            Of::Crowd => {
                let run = Run::newest("handoff", server, |row| row["part"] == "crowd" && row["clients"] == "10000")?;
                let of = |clients: &str| run.rounds(is_of_crowd("crowd", clients), cpu_us);
                (of("10000"), of("10"), instructions_of_hand_off(server))
            }
            Of::Memory => {
                let run = Run::newest_of("memory", server)?;
                let of =
                    |name: &str| run.rounds(|row| row["contender"] == name, |row| number(row, "used_memory_bytes"));
                (of(OURS), of(bound.against), None)
            }
        };
        Some(Self { ratio: Ratio::of(&ours, &theirs)?, instructions })
    }

    fn is_missed(&self, bound: &Bound, server: &str) -> bool {
        bound.is_for(server) && verdict(self.ratio.median, Some(bound.at_most)) == "missed"
    }
}

fn is_of_crowd(part: &'static str, clients: &str) -> impl Fn(&Row) -> bool {
    let clients = clients.to_string();
    move |row| row["part"] == part && row["clients"] == clients && row["contender"] == OURS
}

/// The commands that make up an operation.
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
    let run = Run::newest_of("instructions", server)?;
    let of = |contender: &str| {
        let each = commands(bound.operation, contender).iter().map(|command| {
            let of = run.rounds(|row| row["command"] == *command, |row| number(row, "instructions"));
            (!of.is_empty()).then(|| median(of))
        });
        each.sum::<Option<f64>>()
    };
    Some(of(OURS)? / of(bound.against)?)
}

fn instructions_of_hand_off(server: &str) -> Option<f64> {
    let run = Run::newest("handoff", server, |row| row["part"] == "instructions" && row["clients"] == "10000")?;
    let of = |clients: &str| {
        let found = run.rounds(is_of_crowd("instructions", clients), |row| number(row, "instructions"));
        found.first().copied()
    };
    Some(of("10000")? / of("10")?)
}

/// The name of the server that would be measured, as in the names of raw files.
fn server() -> String {
    let output = Command::new(server_binary()).arg("--version").output().expect("the server can be run");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.split_whitespace().find_map(|word| word.strip_prefix("v=")).expect("it tells its version");
    let name = if text.starts_with("Valkey") { "valkey" } else { "redis" };
    format!("{name}-{version}")
}

/// A line for each bound that is for that server.
fn print_summary(server: &str) {
    let mut rows = Vec::new();
    for bound in BOUNDS.iter().filter(|bound| bound.is_for(server)) {
        let Some(outcome) = Outcome::of(bound, server) else {
            // Not every server has every peer; the rest has been measured.
            continue;
        };
        let Ratio { median, low, high, rounds } = outcome.ratio;
        let mut row = vec![
            bound.operation.into(),
            bound.against.into(),
            format!("{median:.3}"),
            format!("{low:.2} to {high:.2}"),
            rounds.to_string(),
            outcome.instructions.map_or("-".into(), |ratio| format!("{ratio:.3}")),
        ];
        row.extend(judged(median, Some(bound.at_most)));
        rows.push(row);
    }
    println!("\nLOCK.* on {server}, in times of the other: server CPU, or bytes of used_memory");
    let header = ["LOCK.*", "against", "median", "in the rounds", "rounds", "instructions", "at most", "verdict"];
    print_table(2, &header, &rows);
}

pub fn show(call: &Call) {
    if call.has("--write") && !call.smoke {
        for name in ["README.md", "benches/README.md"] {
            tables::fill(&root().join(name));
        }
    } else {
        print_summary(&server());
    }
}
