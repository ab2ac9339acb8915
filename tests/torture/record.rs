//! Writes the small histories of a run for a judge that this project did not write (`tests/porcupine`), as JSON lines:
//! the first is about the run, each other one is an operation. `TORTURE_HISTORIES` names the folder.

use super::check::linear;
use super::history::{Action, Company, KeyHistory, Op, Outcome, Terms};
use super::moment::{Clock, Moment};
use super::plan::Plan;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;

#[derive(Serialize)]
struct Run {
    setup: String,
    seed: u64,
    margin: i64,
    grace: bool,
}

/// An operation; all times and durations are in microseconds.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Line<'a> {
    key: &'a str,
    client: u32,
    op: &'static str,
    /// Names the attempt of an ACQUIRE with an ID, and the one that CANCEL ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait: Option<i64>,
    call: Moment,
    /// Missing if the reply was lost.
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    until: Option<Moment>,
    /// Missing for nil.
    #[serde(skip_serializing_if = "Option::is_none")]
    reply: Option<i64>,
}

/// Writes the histories that the search judges too.
pub fn write(folder: &Path, plan: &Plan, histories: &[KeyHistory], terms: &Terms, clock: &Clock) {
    fs::create_dir_all(folder).unwrap();
    let path = folder.join(format!("{}-{}.jsonl", plan.setup.name(), plan.seed));
    let mut out = BufWriter::new(File::create(path).unwrap());
    let margin = terms.margin.1;
    let run = Run { setup: plan.setup.name(), seed: plan.seed, margin, grace: terms.has_grace };
    writeln!(out, "{}", serde_json::to_string(&run).unwrap()).unwrap();
    let is_small = |history: &&KeyHistory| history.company == Company::Small;
    for history in histories.iter().filter(is_small).filter(|history| linear::applies(history, terms, clock)) {
        let mut ops: Vec<&Op> = history.ops.iter().collect();
        ops.sort_by_key(|op| op.from);
        for line in ops.into_iter().flat_map(|op| lines(&history.key, op)) {
            writeln!(out, "{}", serde_json::to_string(&line).unwrap()).unwrap();
        }
    }
    out.flush().unwrap();
}

/// The lines of an operation: one for each time that it was sent, unless that changed nothing and shows nothing.
fn lines<'a>(key: &'a str, op: &Op) -> Vec<Line<'a>> {
    let attempt = |from: Moment| Some(format!("{}@{from}", op.client));
    let line = || {
        let line = Line { key, client: op.client, call: op.from, ..Line::default() };
        match op.action {
            Action::Acquire { lease, wait, .. } => {
                let attempt = attempt(op.from).filter(|_| op.id != 0);
                let wait = Some(wait).filter(|wait| *wait > 0);
                Line { op: "ACQUIRE", attempt, lease: Some(lease), wait, ..line }
            }
            Action::Recover { lease } => Line { op: "RECOVER", lease: Some(lease), ..line },
            Action::Extend { token, lease } => Line { op: "EXTEND", token: Some(token), lease: Some(lease), ..line },
            Action::Release { token } => Line { op: "RELEASE", token: Some(token), ..line },
            Action::Check { token } => Line { op: "CHECK", token: Some(token), ..line },
            Action::Cancel { attempt: from } => Line { op: "CANCEL", attempt: attempt(from), ..line },
            _ => panic!("a small history has LOCK.* only: {op}"),
        }
    };
    let mut lines: Vec<Line<'_>> = (0..op.lost).map(|_| line()).collect();
    match op.outcome {
        Outcome::Error(_) => {}
        Outcome::Unknown if matches!(op.action, Action::Check { .. }) => {}
        Outcome::Unknown => lines.push(Line { call: op.sent, ..line() }),
        Outcome::Refused => lines.push(Line { call: op.sent, until: Some(op.until), ..line() }),
        Outcome::Granted(reply) | Outcome::Answer(reply) | Outcome::Part(reply) => {
            lines.push(Line { call: op.sent, until: Some(op.until), reply: Some(reply), ..line() });
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Share;

    fn op(action: Action, outcome: Outcome) -> Op {
        Op { client: 4, action, of: 1, id: 9, outcome, lost: 0, from: 10, sent: 10, until: 30 }
    }

    fn text(op: &Op) -> Vec<String> {
        lines("small:0:1", op).iter().map(|line| serde_json::to_string(line).unwrap()).collect()
    }

    #[test]
    fn an_operation_without_a_reply_stays_open() {
        let release = Action::Release { token: 7 };
        let head = r#"{"key":"small:0:1","client":4,"op":"RELEASE","token":7,"call":10"#;
        assert_eq!(text(&op(release, Outcome::Answer(-1))), [format!(r#"{head},"return":30,"reply":-1}}"#)]);
        assert_eq!(text(&op(release, Outcome::Unknown)), [format!("{head}}}")]);
        assert!(text(&op(release, Outcome::Error("OOM"))).is_empty());
    }

    #[test]
    fn a_command_that_was_sent_again_has_a_line_each_time() {
        let action = Action::Acquire { share: Share::Alone, lease: 500, wait: 0, session: false, sent_again: true };
        let sent = |outcome| text(&Op { lost: 1, sent: 20, ..op(action, outcome) });
        let line = |rest: &str| {
            format!(r#"{{"key":"small:0:1","client":4,"op":"ACQUIRE","attempt":"4@10","lease":500,{rest}}}"#)
        };
        assert_eq!(sent(Outcome::Granted(7)), [line(r#""call":10"#), line(r#""call":20,"return":30,"reply":7"#)]);
        assert_eq!(sent(Outcome::Refused), [line(r#""call":10"#), line(r#""call":20,"return":30"#)]);
        let cancel = text(&op(Action::Cancel { attempt: 10 }, Outcome::Answer(1)));
        assert!(cancel[0].contains(r#""op":"CANCEL","attempt":"4@10""#), "{cancel:?}");
    }
}
