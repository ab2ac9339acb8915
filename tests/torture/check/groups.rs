//! Replies about several keys at once: each must be possible given the state of every key.

use super::holds::{self, Fate};
use super::{Kind, Violation};
use crate::history::{Action, Company, KeyHistory, Op, Outcome, Terms};
use crate::moment::{Clock, Moment};
use std::collections::{HashMap, HashSet};

/// The client that asked for several keys, and when it did.
type Asked = (u32, Moment);

#[derive(Clone, Debug, Default)]
pub struct Found {
    pub violations: Vec<Violation>,
    /// Replies about several keys that were checked.
    pub answers: usize,
}

/// The known state of a command's keys.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// How many were certainly held throughout.
    stood: usize,
    /// How many were certainly not held, because they were released or never granted.
    gone: usize,
}

pub fn check(histories: &[KeyHistory], terms: &Terms, clock: &Clock) -> Found {
    let mut calls: HashMap<Asked, (&KeyHistory, &Op, Known)> = HashMap::new();
    for history in histories.iter().filter(|history| history.ops.iter().any(|op| op.of > 1)) {
        let holds = holds::of(history, terms, clock);
        let granted: HashSet<(u32, i64)> = holds.iter().map(|hold| (hold.client, hold.token)).collect();
        let mut fates: HashMap<Asked, Fate> = HashMap::new();
        for hold in &holds {
            for (from, fate) in &hold.fates {
                // A classic client may have overwritten the lock, and a loss may have ended it.
                let is_certain = history.company != Company::Mixed && !hold.is_waived;
                fates.insert((hold.client, *from), if is_certain { *fate } else { Fate::Open });
            }
        }
        for op in history.ops.iter().filter(|op| op.of > 1) {
            let (Action::Extend { token, .. } | Action::Release { token }) = op.action else { continue };
            let asked = (op.client, op.from);
            let (_, _, known) = calls.entry(asked).or_insert((history, op, Known::default()));
            match fates.get(&asked) {
                _ if !granted.contains(&(op.client, token)) => known.gone += 1,
                Some(Fate::Stood) => known.stood += 1,
                Some(Fate::Gone) => known.gone += 1,
                _ => {}
            }
        }
    }
    let mut found = Found::default();
    for (history, op, known) in calls.into_values() {
        let Some(is_possible) = is_possible(op, known) else { continue };
        found.answers += 1;
        if !is_possible {
            let text = format!("{known:?} of its keys\n  {op}");
            let key = history.key.clone();
            found.violations.push(Violation { kind: Kind::WrongAnswer, key, from: op.from, until: op.until, text });
        }
    }
    found
}

/// `None` if the reply shows nothing.
fn is_possible(op: &Op, known: Known) -> Option<bool> {
    match (op.action, op.outcome) {
        // At least one key is not held, or all are.
        (Action::Extend { .. }, Outcome::Refused) => Some(known.stood < op.of),
        (Action::Release { .. }, Outcome::Answer(0)) => Some(known.stood == 0),
        (Action::Extend { .. } | Action::Release { .. }, Outcome::Answer(_)) => Some(known.gone == 0),
        (Action::Release { .. }, Outcome::Part(count)) => {
            let count = usize::try_from(count).unwrap_or(0);
            Some(known.stood <= count && count + known.gone <= op.of)
        }
        _ => None,
    }
}
