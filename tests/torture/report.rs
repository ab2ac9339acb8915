//! A table of a run's operations and findings; for a violation, the part of the history that shows it.

use super::check::linear::Verdict;
use super::check::{groups, linear, order, pass, Violation};
use super::history::{Company, KeyHistory, Outcome, Terms};
use super::moment::Clock;
use super::plan::Plan;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

#[derive(Default)]
pub struct Report {
    pub setup: String,
    pub seed: u64,
    pub operations: usize,
    pub grants: usize,
    /// Grants to attempts that waited without a connection.
    pub claims: usize,
    pub refused: usize,
    pub errors: BTreeMap<&'static str, usize>,
    pub unknown: usize,
    pub faults: BTreeMap<&'static str, usize>,
    pub holds: usize,
    pub waived: usize,
    pub pairs: usize,
    pub tokens_waived: usize,
    pub longest_overtime_ms: i64,
    /// Queues seen in LOCK.INFO, pairs in them whose order was judged, and neighbours that share.
    pub inspections: usize,
    pub in_queue: usize,
    pub neighbours: usize,
    /// Replies about several keys that were judged.
    pub answers: usize,
    /// Small histories: with an order, not judged because of a permitted loss, too large to search.
    pub ordered: usize,
    pub voided: usize,
    pub undecided: usize,
    /// Each with its part of the history.
    pub violations: Vec<(Violation, String)>,
}

/// Judges all histories of a run.
pub fn judge(plan: &Plan, histories: &[KeyHistory], terms: &Terms, clock: &Clock) -> Report {
    let mut report = Report { setup: plan.setup.name(), seed: plan.seed, ..Report::default() };
    for history in histories {
        report.count(history);
        let found = pass::check(history, terms, clock);
        report.holds += found.holds;
        report.waived += found.waived;
        report.pairs += found.pairs;
        report.tokens_waived += found.tokens_waived;
        report.longest_overtime_ms = report.longest_overtime_ms.max(found.longest_overtime / 1_000);
        report.violations.extend(found.violations.into_iter().map(|violation| with_piece(violation, history)));
        let found = order::check(history, terms, clock);
        report.inspections += history.inspections.len();
        report.in_queue += found.pairs;
        report.neighbours += found.neighbours;
        report.violations.extend(found.violations.into_iter().map(|violation| with_piece(violation, history)));
        if history.company == Company::Small {
            report.search(history, terms, clock);
        }
    }
    let found = groups::check(histories, terms, clock);
    report.answers = found.answers;
    for violation in found.violations {
        let history = histories.iter().find(|history| history.key == violation.key);
        report.violations.extend(history.map(|history| with_piece(violation, history)));
    }
    report
}

fn with_piece(violation: Violation, history: &KeyHistory) -> (Violation, String) {
    let piece = history.piece(violation.from - 100_000, violation.until + 100_000);
    (violation, piece)
}

impl Report {
    fn count(&mut self, history: &KeyHistory) {
        self.operations += history.ops.len();
        for op in &history.ops {
            match op.outcome {
                Outcome::Granted(_) => self.grants += 1,
                Outcome::Refused => self.refused += 1,
                Outcome::Error(code) => *self.errors.entry(code).or_default() += 1,
                Outcome::Unknown => self.unknown += 1,
                Outcome::Answer(_) | Outcome::Part(_) => {}
            }
        }
    }

    fn search(&mut self, history: &KeyHistory, terms: &Terms, clock: &Clock) {
        if !linear::applies(history, terms, clock) {
            self.voided += 1;
            return;
        }
        match linear::check(history, terms, clock) {
            Verdict::Holds => self.ordered += 1,
            Verdict::Undecided => self.undecided += 1,
            Verdict::Broken(violation) => self.violations.push(with_piece(*violation, history)),
        }
    }
}

/// A table of all reports, and their violations.
pub fn text(reports: &[Report]) -> String {
    let mut out = String::new();
    let mut row = |name: &str, value: &dyn Fn(&Report) -> String| {
        let _ = write!(out, "{name:<38}");
        for report in reports {
            let _ = write!(out, "{:>12}", value(report));
        }
        out.push('\n');
    };
    row("setup", &|report| report.setup.clone());
    row("seed", &|report| report.seed.to_string());
    row("operations", &|report| report.operations.to_string());
    row("grants", &|report| report.grants.to_string());
    row("  of notified attempts", &|report| report.claims.to_string());
    row("refused", &|report| report.refused.to_string());
    row("errors", &|report| report.errors.values().sum::<usize>().to_string());
    let codes: BTreeSet<&str> = reports.iter().flat_map(|report| report.errors.keys().copied()).collect();
    for code in codes {
        row(&format!("  {code}"), &|report| report.errors.get(code).map_or("-".into(), ToString::to_string));
    }
    row("unknown", &|report| report.unknown.to_string());
    row("faults", &|report| report.faults.values().sum::<usize>().to_string());
    let kinds: BTreeSet<&str> = reports.iter().flat_map(|report| report.faults.keys().copied()).collect();
    for kind in kinds {
        row(&format!("  {kind}"), &|report| report.faults.get(kind).map_or("-".into(), ToString::to_string));
    }
    row("holds", &|report| report.holds.to_string());
    row("  cut short by a permitted loss", &|report| report.waived.to_string());
    row("  pairs whose order was judged", &|report| report.pairs.to_string());
    row("tokens that went back, permitted", &|report| report.tokens_waived.to_string());
    row("longest overtime of a wait, ms", &|report| report.longest_overtime_ms.to_string());
    row("inspected queues", &|report| report.inspections.to_string());
    row("  pairs whose order was judged", &|report| report.in_queue.to_string());
    row("  neighbours who share", &|report| report.neighbours.to_string());
    row("answers for several keys", &|report| report.answers.to_string());
    row("small histories with an order", &|report| report.ordered.to_string());
    row("  not judged, permitted loss or clock", &|report| report.voided.to_string());
    row("  too much to try", &|report| report.undecided.to_string());
    row("violations", &|report| report.violations.len().to_string());
    for report in reports {
        for (violation, piece) in report.violations.iter().take(10) {
            let _ = write!(out, "\n{}, seed {}: {violation}\n{piece}\n", report.setup, report.seed);
        }
    }
    out
}
