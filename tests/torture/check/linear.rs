//! Searches for an order of all operations on a key in which each comes between its request and its reply and has the
//! outcome that a mutex with leases would give; after Wing and Gong, with memoization.
//!
//! The mutex is free, or held by a token until a timestamp. A grant happens at its token's time. The times of the other
//! operations stay open, and so do the timestamps that depend on them: a state has its earliest possible time and the
//! span in which the timestamp lies, and each outcome narrows that span. An operation without a reply may have happened
//! at any time, or not at all.

use super::{Kind, Violation};
use crate::history::{Action, Effect, KeyHistory, Op, Outcome, Terms};
use crate::moment::{Clock, Moment, SLACK};
use std::collections::HashSet;

/// A longer history is not searched.
pub const MOST: usize = 256;
/// The search gives up after this many steps: undecided.
const MOST_STEPS: usize = 2_000_000;

#[derive(Clone, Debug)]
pub enum Verdict {
    /// There is an order.
    Holds,
    /// There is no order.
    Broken(Box<Violation>),
    /// Too many possibilities to try.
    Undecided,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Holder {
    token: i64,
    /// The timestamp lies between these.
    stamp: (Moment, Moment),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    now: Moment,
    holder: Option<Holder>,
}

/// An operation in the search.
struct Step<'a> {
    op: &'a Op,
    from: Moment,
    until: Moment,
    /// Whether it has a reply, and so has happened.
    is_certain: bool,
    /// Whether others wait: then a newcomer gets nil even if the lock is free.
    others_wait: bool,
    /// The known span of the grant.
    granted: (Moment, Moment),
}

type Done = [u64; MOST / 64];

struct Search<'a> {
    steps: Vec<Step<'a>>,
    margin: (i64, i64),
    retention: Option<i64>,
    seen: HashSet<(Done, State)>,
    tried: usize,
    /// The longest sequence of operations that could be put in order, and its final state.
    best: (usize, State),
}

/// Whether the search can judge a history: its lock may not be lost, and the server's clock runs evenly.
pub fn applies(history: &KeyHistory, terms: &Terms, clock: &Clock) -> bool {
    let from = history.ops.iter().map(|op| op.from).min().unwrap_or(0);
    let until = history.ops.iter().map(|op| op.until).max().unwrap_or(from);
    let is_lost = [Effect::Loss, Effect::Change].iter().any(|effect| terms.is_in(*effect, from, until));
    !is_lost && !clock.was_stepped(from, until)
}

pub fn check(history: &KeyHistory, terms: &Terms, clock: &Clock) -> Verdict {
    let steps = steps(&history.ops, terms, clock);
    if steps.len() > MOST {
        return Verdict::Undecided;
    }
    let begin = State { now: Moment::MIN / 4, holder: None };
    let (margin, retention) = (terms.margin, terms.retention);
    let mut search = Search { steps, margin, retention, seen: HashSet::new(), tried: 0, best: (0, begin) };
    if search.go(&mut [0; MOST / 64], begin, 0) {
        return Verdict::Holds;
    }
    if search.tried >= MOST_STEPS {
        return Verdict::Undecided;
    }
    let (count, state) = search.best;
    let text = format!("no order of the {} operations; {count} of them lead to {state:?}", search.steps.len());
    let (from, until) = (state.now - 1_500_000, state.now + 300_000);
    Verdict::Broken(Box::new(Violation { kind: Kind::NoOrder, key: history.key.clone(), from, until, text }))
}

fn steps<'a>(ops: &'a [Op], terms: &Terms, clock: &Clock) -> Vec<Step<'a>> {
    let may_come_late =
        |op: &Op| matches!(op.action, Action::Acquire { sent_again: true, .. }) || op.outcome == Outcome::Unknown;
    let end = |op: &Op| if may_come_late(op) { op.until + terms.longest_stall } else { op.until };
    let waits = |op: &&Op| matches!(op.action, Action::Acquire { wait: 1.., .. });
    let mut waiting: Vec<(&Op, Moment)> = ops.iter().filter(waits).map(|op| (op, end(op))).collect();
    waiting.sort_by_key(|(op, _)| op.from);
    let mut steps = Vec::new();
    for op in ops {
        let is_certain = op.outcome != Outcome::Unknown;
        let changes = !matches!(op.action, Action::Check { .. });
        if matches!(op.outcome, Outcome::Error(_)) || !(is_certain || changes) {
            continue;
        }
        let overlaps = |(other, until): &&(&Op, Moment)| other.from <= op.until && *until >= op.from;
        // During a grace no free lock is granted; a command without WAIT gets an error.
        let is_muted = terms.has_grace && matches!(op.action, Action::Acquire { wait: 1.., .. });
        let others_wait = is_muted || waiting.iter().filter(overlaps).any(|(other, _)| !std::ptr::eq(*other, op));
        let granted = match op.outcome {
            Outcome::Granted(token) => clock.moment_of(token, op.from, op.until).map(|at| (at - SLACK, at + SLACK)),
            _ => None,
        };
        let granted = granted.unwrap_or((op.from, end(op)));
        let until = if is_certain { op.until } else { end(op) };
        steps.push(Step { op, from: op.from, until, is_certain, others_wait, granted });
        // Earlier commands without a reply may have been granted too, and lost.
        if matches!(op.action, Action::Acquire { sent_again: true, .. }) {
            let granted = (op.from, end(op));
            steps.push(Step { op, from: op.from, until: end(op), is_certain: false, others_wait, granted });
        }
    }
    steps.sort_by_key(|step| step.until);
    steps
}

impl Search<'_> {
    fn go(&mut self, done: &mut Done, state: State, count: usize) -> bool {
        let is_done = |done: &Done, at: usize| done[at / 64] & (1 << (at % 64)) != 0;
        // All remaining certain operations come later, and the first of them has to happen by then.
        let Some(limit) = (0..self.steps.len()).find(|at| self.steps[*at].is_certain && !is_done(done, *at)) else {
            return true;
        };
        let limit = self.steps[limit].until;
        if count > self.best.0 {
            self.best = (count, state);
        }
        if self.tried >= MOST_STEPS || !self.seen.insert((*done, state)) {
            return false;
        }
        self.tried += 1;
        for at in 0..self.steps.len() {
            if is_done(done, at) || self.steps[at].from > limit {
                continue;
            }
            let Some(next) = self.apply(&self.steps[at], state, limit) else { continue };
            done[at / 64] |= 1 << (at % 64);
            if self.go(done, next, count + usize::from(self.steps[at].is_certain)) {
                return true;
            }
            done[at / 64] &= !(1 << (at % 64));
        }
        false
    }

    /// The state after an operation; `None` if the operation cannot come next with its outcome.
    fn apply(&self, step: &Step<'_>, state: State, limit: Moment) -> Option<State> {
        let limit = limit.min(step.until);
        let now = state.now.max(step.from);
        if now > limit {
            return None;
        }
        let state = State { now, ..state };
        match (step.op.action, if step.is_certain { step.op.outcome } else { Outcome::Unknown }) {
            (Action::Acquire { lease, .. } | Action::Recover { lease }, Outcome::Granted(token)) => {
                self.grant(step, state, limit, token, lease)
            }
            // Its token is unknown.
            (Action::Acquire { lease, .. } | Action::Recover { lease }, Outcome::Unknown) => {
                self.grant(step, state, limit, -step.op.from, lease)
            }
            (Action::Acquire { .. }, Outcome::Refused) => match state.holder {
                _ if step.others_wait => Some(state),
                Some(holder) => holder.may_hold_at(now).map(|holder| State { now, holder: Some(holder) }),
                None => None,
            },
            // Held, free, or free again after its retention, or others waited.
            (Action::Recover { .. }, Outcome::Refused) => match state.holder {
                Some(holder) if !step.others_wait => holder
                    .may_hold_at(now)
                    .map(|holder| State { now, holder: Some(holder) })
                    .or_else(|| self.gone(holder, now, limit)),
                _ => Some(state),
            },
            (Action::Extend { token, lease }, outcome) => self.extend(state, limit, token, lease, outcome),
            (Action::Release { token }, outcome) => self.release(state, limit, token, outcome),
            (Action::Check { token }, Outcome::Answer(left)) => self.check(state, limit, token, left),
            (Action::Cancel { attempt }, outcome) => self.cancel(state, limit, -attempt, outcome),
            _ => None,
        }
    }

    fn grant(&self, step: &Step<'_>, state: State, limit: Moment, token: i64, lease: i64) -> Option<State> {
        let mut now = state.now.max(step.granted.0);
        let latest = limit.min(step.granted.1);
        match state.holder {
            Some(before) => now = now.max(before.stamp.0),
            None if matches!(step.op.action, Action::Recover { .. }) => return None,
            None => {}
        }
        if now > latest {
            return None;
        }
        // An attempt that was sent again after its grant was extended.
        let prolonged = matches!(step.op.action, Action::Acquire { sent_again: true, .. });
        let counted_from = if prolonged { step.until } else { latest };
        let stamp = (now + lease + self.margin.0, counted_from + lease + self.margin.1);
        Some(State { now, holder: Some(Holder { token, stamp }) })
    }

    fn extend(&self, state: State, limit: Moment, token: i64, lease: i64, outcome: Outcome) -> Option<State> {
        let mine = state.holder.filter(|holder| holder.token == token);
        let now = state.now;
        let renewed = (now + lease + self.margin.0, limit + lease + self.margin.1);
        match outcome {
            Outcome::Answer(0) => Self::refuse(state, limit, token),
            Outcome::Answer(_) => {
                mine?.may_hold_at(now)?;
                Some(State { now, holder: Some(Holder { token, stamp: renewed }) })
            }
            _ => {
                let before = mine?.may_hold_at(now)?;
                let stamp = (before.stamp.0.min(renewed.0), before.stamp.1.max(renewed.1));
                Some(State { now, holder: Some(Holder { token, stamp }) })
            }
        }
    }

    fn release(&self, state: State, limit: Moment, token: i64, outcome: Outcome) -> Option<State> {
        let mine = state.holder.filter(|holder| holder.token == token);
        match outcome {
            Outcome::Answer(1) => mine?.may_hold_at(state.now).map(|_| State { now: state.now, holder: None }),
            Outcome::Answer(-1) => {
                let now = state.now.max(mine?.stamp.0);
                (now <= limit).then_some(State { now, holder: None })
            }
            Outcome::Answer(0) => match mine {
                Some(holder) => self.gone(holder, state.now, limit),
                None => Some(state),
            },
            Outcome::Unknown => mine.map(|_| State { now: state.now, holder: None }),
            _ => None,
        }
    }

    /// A lost reply may have been a grant, which is now over. A queued attempt is not known here.
    fn cancel(&self, state: State, limit: Moment, token: i64, outcome: Outcome) -> Option<State> {
        let Some(mine) = state.holder.filter(|holder| holder.token == token) else {
            return matches!(outcome, Outcome::Answer(_)).then_some(state);
        };
        if outcome == Outcome::Answer(0) {
            return self.gone(mine, state.now, limit).or_else(|| Self::refuse(state, limit, token));
        }
        Some(State { now: state.now, holder: None })
    }

    fn check(&self, state: State, limit: Moment, token: i64, left: i64) -> Option<State> {
        let Some(mine) = state.holder.filter(|holder| holder.token == token) else {
            return (left == 0).then_some(state);
        };
        if left == 0 {
            // Within the margin it is still held, and less than a millisecond of its lease is left.
            let now = state.now.max(mine.stamp.0 - self.margin.1 - 1_000);
            return (now <= limit).then_some(State { now, ..state });
        }
        // The reply is in whole milliseconds, rounded down.
        let least = state.now + left * 1_000 + self.margin.0;
        let most = limit + (left + 1) * 1_000 + self.margin.1;
        let stamp = (mine.stamp.0.max(least), mine.stamp.1.min(most));
        (stamp.0 <= stamp.1).then_some(State { now: state.now, holder: Some(Holder { token, stamp }) })
    }

    /// EXTEND replied 0: the lock is free or held by another client, or its timestamp has passed.
    fn refuse(state: State, limit: Moment, token: i64) -> Option<State> {
        let Some(mine) = state.holder.filter(|holder| holder.token == token) else { return Some(state) };
        let now = state.now.max(mine.stamp.0);
        let stamp = (mine.stamp.0, mine.stamp.1.min(limit));
        (now <= limit).then_some(State { now, holder: Some(Holder { token, stamp }) })
    }

    /// The key is gone because its retention has ended.
    fn gone(&self, holder: Holder, now: Moment, limit: Moment) -> Option<State> {
        let now = now.max(holder.stamp.0 + self.retention.unwrap_or(0));
        (now <= limit).then_some(State { now, holder: None })
    }
}

impl Holder {
    /// The timestamp had not passed at that time, which may show that it is later than previously known.
    fn may_hold_at(self, now: Moment) -> Option<Self> {
        let stamp = (self.stamp.0.max(now), self.stamp.1);
        (now < self.stamp.1).then_some(Self { stamp, ..self })
    }
}
