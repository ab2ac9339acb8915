//! Compares the order in which a key's waiters are served with the queue that LOCK.INFO showed.
//!
//! One server's tokens are in the order of its grants. A client that was seen waiting for this key alone, and kept
//! waiting until its grant, has a smaller token than all clients behind it and all that arrived later, so nothing has
//! to be measured. If another server may have taken over, nothing is concluded.

use super::{Kind, Violation};
use crate::history::{Action, Effect, Inspection, KeyHistory, Op, Outcome, Share, Terms};
use crate::moment::{Clock, Moment};
use std::collections::{HashMap, HashSet};

/// Neighbours in the queue get the lock in the same iteration, which takes far less than this unless something stalls.
const TOGETHER: i64 = 400_000;

#[derive(Clone, Debug, Default)]
pub struct Found {
    pub violations: Vec<Violation>,
    /// Pairs whose order was checked, and neighbours that share.
    pub pairs: usize,
    pub neighbours: usize,
}

pub fn check(history: &KeyHistory, terms: &Terms, clock: &Clock) -> Found {
    let mut found = Found::default();
    let ids = history.ops.iter().filter(|op| op.id != 0 && matches!(op.action, Action::Acquire { .. }));
    let attempts: HashMap<i64, &Op> = ids.map(|op| (op.id, op)).collect();
    let mut grants: Vec<(&Op, i64)> = history.ops.iter().filter_map(|op| Some((op, token(op)?))).collect();
    grants.sort_by_key(|(op, _)| op.from);
    let mut reported: HashSet<(i64, Moment)> = HashSet::new();
    let mut report = |kind, from, until, text| {
        found.violations.push(Violation { kind, key: history.key.clone(), from, until, text });
    };
    for inspection in &history.inspections {
        held_by_refused(inspection, &attempts, &mut |op| {
            if reported.insert((op.id, op.from)) {
                let text = format!("it was refused, but holds the lock\n  {op}\n  {inspection:?}");
                report(Kind::HeldByRefused, op.from, inspection.until, text);
            }
        });
        let queue: Vec<Option<&Op>> = inspection.queue.iter().map(|id| attempts.get(id).copied()).collect();
        for (at, first) in queue.iter().enumerate() {
            let Some(first) = first.filter(|op| waits_for_this_alone(op)) else { continue };
            let Some(own) = token(first) else { continue };
            if !is_calm(terms, inspection.from, first.until) {
                continue;
            }
            // With the script, neighbours that share are notified together, but claim in any order.
            let may_be_later = |later: &Op| terms.is_script && shares(first) && shares(later);
            let behind = queue[at + 1..].iter().flatten().copied().filter_map(|op| Some((op, token(op)?)));
            let begin = grants.partition_point(|(op, _)| op.from <= inspection.until);
            let newcomers = grants[begin..].iter().copied().take_while(|(op, _)| op.from < first.until);
            for (later, other) in behind.chain(newcomers) {
                if may_be_later(later) {
                    continue;
                }
                found.pairs += 1;
                if other < own && is_calm(terms, inspection.from, later.until) && reported.insert((own, later.from)) {
                    let text = format!("overtaken, by the queue of {inspection:?}\n  {first}\n  {later}");
                    report(Kind::Overtaken, inspection.from, first.until, text);
                }
            }
        }
        for pair in queue.windows(2) {
            let [Some(first), Some(second)] = pair else { continue };
            let Some(delay) = delay(history, inspection, first, second, terms, clock) else { continue };
            found.neighbours += 1;
            if delay > TOGETHER && reported.insert((first.id, second.from)) {
                let text =
                    format!("{delay} us after its neighbour, by the queue of {inspection:?}\n  {first}\n  {second}");
                report(Kind::LeftBehind, inspection.from, second.until, text);
            }
        }
    }
    found
}

fn token(op: &Op) -> Option<i64> {
    match op.outcome {
        Outcome::Granted(token) if token > 0 => Some(token),
        _ => None,
    }
}

/// It was in the queue throughout, and attempts that also want other locks do not delay it.
fn waits_for_this_alone(op: &Op) -> bool {
    op.of == 1 && matches!(op.action, Action::Acquire { sent_again: false, wait: 1.., .. })
}

fn shares(op: &Op) -> bool {
    matches!(op.action, Action::Acquire { share: Share::Shared | Share::Limit(_), .. })
}

fn is_calm(terms: &Terms, from: Moment, until: Moment) -> bool {
    let unrest = [Effect::Restart, Effect::Change, Effect::Loss, Effect::Move];
    // With the script, a notified attempt that does not ask within two seconds leaves, and the queue can be evicted.
    let by_script = [Effect::Stall, Effect::LossOfOthers].into_iter().filter(|_| terms.is_script);
    !unrest.into_iter().chain(by_script).any(|effect| terms.is_in(effect, from, until))
}

/// An attempt that got nil, and was not sent twice, was never granted the lock.
fn held_by_refused<'a>(inspection: &Inspection, attempts: &HashMap<i64, &'a Op>, report: &mut dyn FnMut(&'a Op)) {
    for id in &inspection.holders {
        let Some(op) = attempts.get(id) else { continue };
        let is_final = !matches!(op.action, Action::Acquire { sent_again: true, .. }) && op.until < inspection.from;
        if is_final && matches!(op.outcome, Outcome::Refused | Outcome::Error(_)) {
            report(op);
        }
    }
}

/// The least time that a sharing client waited after the sharing client directly ahead of it got the lock; `None` if
/// another client may be between them, or the server stalled.
fn delay(
    history: &KeyHistory,
    inspection: &Inspection,
    first: &Op,
    second: &Op,
    terms: &Terms,
    clock: &Clock,
) -> Option<i64> {
    let (Action::Acquire { share: ahead, .. }, Action::Acquire { share: behind, wait, .. }) =
        (first.action, second.action)
    else {
        return None;
    };
    let both_share = ahead != Share::Alone && behind == Share::Shared;
    if !both_share || !waits_for_this_alone(first) || !waits_for_this_alone(second) {
        return None;
    }
    let begin = clock.moment_of(token(first)?, first.from, first.until)?;
    let end = match second.outcome {
        Outcome::Granted(token) => clock.moment_of(token, second.from, second.until)?,
        // Its wait ended when its time had passed, or later.
        Outcome::Refused => second.sent + wait,
        _ => return None,
    };
    let until = first.until.max(second.until);
    // A client with a reserved place may have returned to it.
    let comes_back = |op: &Op| {
        matches!(op.action, Action::Acquire { sent_again: true, .. }) && op.from < until && op.until > inspection.from
    };
    // With the script, the second has to claim the lock.
    let is_still = terms.is_script
        || terms.stalled(inspection.from, until) > 0
        || terms.has_grace
        || history.ops.iter().any(comes_back);
    (!is_still && is_calm(terms, inspection.from, until)).then_some(end - begin)
}
