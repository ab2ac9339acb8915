//! The plain pass over a history of any length: no client is granted a lock that another certainly holds, no lock is
//! lost, tokens grow, and no wait is too long or too short. A client that shares a lock never has more holders beside
//! it than it allows.

use super::holds::{self, Hold};
use super::{Kind, Violation};
use crate::history::{Action, Company, Effect, KeyHistory, Op, Outcome, Share, Terms};
use crate::moment::{Clock, Moment, SLACK};

/// By how much a wait may be too short: timers have a resolution of a millisecond.
const SHORTER: i64 = 5_000;

/// The findings, and how much was checked.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub violations: Vec<Violation>,
    /// The holds that were checked, and how many of them a permitted loss may have ended.
    pub holds: usize,
    pub waived: usize,
    /// Neighbours, and pairs that overlap, whose order was checked.
    pub pairs: usize,
    /// The most by which a wait exceeded its time, apart from stalls.
    pub longest_overtime: i64,
    /// Tokens that went backwards, as they may if a new server's clock is behind.
    pub tokens_waived: usize,
}

pub fn check(history: &KeyHistory, terms: &Terms, clock: &Clock) -> Found {
    let holds = holds::of(history, terms, clock);
    let mut found = Found { holds: holds.len(), ..Found::default() };
    found.waived = holds.iter().filter(|hold| hold.is_waived).count();
    let mut report = |kind, (from, until), text| {
        found.violations.push(Violation { kind, key: history.key.clone(), from, until, text });
    };
    found.pairs = exclusion(history, &holds, terms, &mut report);
    losses(history, &holds, terms, &mut report);
    found.tokens_waived = tokens(history, terms, clock, &mut report);
    found.longest_overtime = waits(history, terms, &mut report);
    found
}

type Report<'a> = dyn FnMut(Kind, (Moment, Moment), String) + 'a;

/// The end of a hold, as seen by one that begins later, if the first does not become overdue.
fn end_in_time(hold: &Hold, later: Moment, history: &KeyHistory, terms: &Terms) -> Moment {
    // The margin allows for clocks and for holders that notice the end of a lease late. A lost classic takeover, or a
    // failover, may use up the margin, but not the lease.
    let is_short = history.company == Company::Mixed || terms.is_in(Effect::Change, hold.asked, later);
    if is_short {
        hold.lease_end
    } else {
        hold.end
    }
}

/// Whether two holds exclude each other.
fn excludes(one: &Hold, other: &Hold) -> bool {
    one.share == Share::Alone || other.share == Share::Alone
}

fn exclusion(history: &KeyHistory, holds: &[Hold], terms: &Terms, report: &mut Report<'_>) -> usize {
    let mut open: Vec<&Hold> = Vec::new();
    let mut pairs = 0;
    for hold in holds {
        open.retain(|earlier| earlier.end.max(earlier.proof) > hold.start);
        // If a hold is not certain at any moment, all that is known is that it was granted after its request.
        let is_real = |earlier: &&&Hold| hold.end.max(hold.proof) > hold.start || hold.asked >= earlier.start;
        for earlier in open.iter().filter(is_real).filter(|earlier| excludes(earlier, hold)) {
            pairs += 1;
            // An overdue hold lasts until another takes its place.
            let end = end_in_time(earlier, hold.start, history, terms).max(earlier.proof);
            if hold.start + SLACK < end {
                let early = end - hold.start;
                let text = format!("granted {early} us before the end of another hold\n  {earlier:?}\n  {hold:?}");
                report(Kind::TwoHolders, (earlier.asked, hold.start.max(end)), text);
            }
        }
        if hold.share != Share::Alone {
            pairs += beside(hold, &open, history, terms, report);
        }
        open.push(hold);
    }
    pairs + holds.len().saturating_sub(1)
}

/// Checks the holds that certainly overlapped the grant of a shared hold. Returns how many there were.
fn beside(hold: &Hold, open: &[&Hold], history: &KeyHistory, terms: &Terms, report: &mut Report<'_>) -> usize {
    let lives = |other: &&&Hold| {
        other.start + SLACK < hold.earliest && end_in_time(other, hold.start, history, terms) > hold.start + SLACK
    };
    let others: Vec<&&Hold> = open.iter().filter(lives).collect();
    if others.len() >= hold.share.most() {
        let text = format!("granted beside {} others\n  {hold:?}\n  {others:?}", others.len());
        let from = others.iter().map(|other| other.asked).min().unwrap_or(hold.asked);
        report(Kind::TooManyHolders, (from, hold.start), text);
    }
    others.len()
}

fn losses(history: &KeyHistory, holds: &[Hold], terms: &Terms, report: &mut Report<'_>) {
    if history.company == Company::Mixed {
        return;
    }
    for hold in holds {
        if let Some((said, end)) = hold.too_long {
            let text = format!("the reply shows {} us more of the lease than were left\n {hold:?}", end - hold.most);
            report(Kind::LeaseTooLong, (hold.asked, said), text);
        }
        if let Some(revived) = hold.revived {
            report(Kind::RevivedLock, (hold.asked, revived), format!("released, but not gone\n  {hold:?}"));
        }
    }
    for hold in holds.iter().filter(|hold| !hold.is_waived) {
        let Some((denied, end)) = hold.denied else { continue };
        if !terms.is_in(Effect::Change, hold.asked, denied) {
            let text = format!("reported as ended {} us before its end\n {hold:?}", end - denied);
            report(Kind::LostLock, (hold.asked, end), text);
        }
    }
}

/// A grant that was requested after the reply to another has a larger token.
fn tokens(history: &KeyHistory, terms: &Terms, clock: &Clock, report: &mut Report<'_>) -> usize {
    let token = |op: &&Op| matches!(op.outcome, Outcome::Granted(token) if token > 0);
    let mut asked: Vec<&Op> = history.ops.iter().filter(token).collect();
    let mut replied = asked.clone();
    asked.sort_by_key(|op| op.from);
    replied.sort_by_key(|op| op.until);
    let mut replied = replied.into_iter().peekable();
    let mut largest: Option<(&Op, i64)> = None;
    let mut waived = 0;
    for op in asked {
        while let Some(earlier) = replied.next_if(|earlier| earlier.until < op.from) {
            let Outcome::Granted(token) = earlier.outcome else { continue };
            if largest.is_none_or(|(_, most)| token > most) {
                largest = Some((earlier, token));
            }
        }
        let (Outcome::Granted(token), Some((earlier, most))) = (op.outcome, largest) else { continue };
        if token > most {
            continue;
        }
        // A new server that lacks the key, and whose clock is behind, cannot know the largest token.
        let new = [Effect::Restart, Effect::Change, Effect::Loss];
        let is_new = new.iter().any(|effect| terms.is_in(*effect, earlier.from, op.until));
        if is_new && clock.least(op.from, op.until) < most {
            waived += 1;
            continue;
        }
        let text = format!("token {token} after {most}\n  {earlier}\n  {op}");
        report(Kind::TokenNotLarger, (earlier.from, op.until), text);
    }
    waived
}

fn waits(history: &KeyHistory, terms: &Terms, report: &mut Report<'_>) -> i64 {
    let mut longest = 0;
    for op in &history.ops {
        let Action::Acquire { wait, .. } = op.action else { continue };
        if op.outcome == Outcome::Unknown || wait == 0 {
            continue;
        }
        let took = op.until - op.sent;
        let beyond = took - terms.stalled(op.sent, op.until) - wait;
        longest = longest.max(beyond);
        if beyond > terms.overtime {
            report(Kind::WaitTooLong, (op.sent, op.until), format!("{beyond} us longer than its time\n  {op}"));
        }
        if op.outcome == Outcome::Refused && took + SHORTER < wait {
            report(Kind::WaitTooShort, (op.sent, op.until), format!("it waited for only {took} us\n {op}"));
        }
    }
    longest
}
