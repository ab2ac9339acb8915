//! Which client certainly held a lock, from when to when: never more than was really held, possibly less.
//!
//! A hold begins at the latest possible moment of the grant. It ends at the earliest possible moment: when its
//! timestamp passed on the server's clock, or when its holder sent the command that releases it. Two overlapping holds
//! are therefore a violation, whatever happened in between. Where a permitted loss may have ended a lock, the hold
//! ends.

use crate::history::{Action, Company, Effect, KeyHistory, Op, Outcome, Share, Terms};
use crate::moment::{Clock, Moment, SLACK};
use std::collections::HashMap;

/// The state of a hold when its holder asked for several keys at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Held throughout the command.
    Stood,
    /// It had been released.
    Gone,
    /// Unknown.
    Open,
}

#[derive(Clone, Debug, Default)]
pub struct Hold {
    pub client: u32,
    pub share: Share,
    /// 0 for other locks.
    pub token: i64,
    /// When the grant was requested.
    pub asked: Moment,
    /// The earliest time of the grant.
    pub earliest: Moment,
    /// The latest time of the grant.
    pub start: Moment,
    /// The timestamp did not pass before this; others had to wait until then.
    pub end: Moment,
    /// The same for the lease, by the server's clock and by the holder's own clock.
    pub lease_end: Moment,
    /// The latest possible end of the lease, and when a reply claimed more.
    pub most: Moment,
    pub too_long: Option<(Moment, Moment)>,
    /// It was held at this moment, according to a later reply.
    pub proof: Moment,
    /// A reply, received at the first moment, reported the hold as over; it had to last until the second.
    pub denied: Option<(Moment, Moment)>,
    /// The server confirmed its release, but later reported it as held.
    pub given_back: Option<Moment>,
    pub revived: Option<Moment>,
    /// Whether it ends with its connection.
    pub is_session: bool,
    /// A permitted loss may have ended it.
    pub is_waived: bool,
    /// Its states during commands for it and other keys, by the moments at which these were sent.
    pub fates: Vec<(Moment, Fate)>,
}

impl Hold {
    fn deny(&mut self, at: Moment, end: Moment) {
        if at + SLACK < end {
            self.denied.get_or_insert((at, end));
        }
    }

    /// A permitted loss may have ended it at that moment.
    fn end_by(&mut self, at: Moment) {
        self.end = self.end.min(at);
        self.lease_end = self.lease_end.min(at);
        self.is_waived = true;
    }

    fn fate(&self, op: &Op, terms: &Terms) -> Fate {
        let loses = [Effect::Loss, Effect::LossOfOthers, Effect::Change];
        let is_lost = |from| loses.iter().any(|effect| terms.is_in(*effect, from, op.until));
        match self.given_back {
            Some(given_back) if given_back < op.from && !is_lost(self.asked) => Fate::Gone,
            None if op.until + SLACK < self.end && !is_lost(self.asked) => Fate::Stood,
            _ => Fate::Open,
        }
    }
}

/// All holds of a key, by their start.
pub fn of(history: &KeyHistory, terms: &Terms, clock: &Clock) -> Vec<Hold> {
    let mut ops: Vec<&Op> = history.ops.iter().collect();
    ops.sort_by_key(|op| op.from);
    let mut holds: Vec<Hold> = Vec::new();
    // A token can occur twice, on a new server that lost its data and whose clock is behind.
    let mut by_token: HashMap<(u32, i64), usize> = HashMap::new();
    for op in ops {
        if let Some(hold) = granted(op, terms, clock) {
            by_token.insert((op.client, hold.token), holds.len());
            holds.push(hold);
            continue;
        }
        let token = match op.action {
            Action::Extend { token, .. } | Action::Release { token } | Action::Check { token } => token,
            Action::ClassicDrop { .. } | Action::PlainDrop => 0,
            _ => continue,
        };
        let Some(at) = by_token.get(&(op.client, token)).copied() else { continue };
        let is_twin = |other: &Hold| token > 0 && other.token == token && other.asked < op.until;
        if holds.iter().enumerate().any(|(other, hold)| other != at && is_twin(hold)) {
            // It is not known which hold is meant, or which client was right about it.
            holds.iter_mut().filter(|hold| is_twin(hold)).for_each(|hold| hold.end_by(op.from));
        } else {
            learn(&mut holds[at], op, terms, clock);
        }
    }
    holds.sort_by_key(|hold| hold.start);
    waive(&mut holds, history, terms);
    holds
}

/// The hold that an operation began.
fn granted(op: &Op, terms: &Terms, clock: &Clock) -> Option<Hold> {
    let Outcome::Granted(token) = op.outcome else { return None };
    let hold = |start, end, lease_end| Hold {
        client: op.client,
        token,
        asked: op.from,
        earliest: op.from,
        start,
        end,
        lease_end,
        most: lease_end,
        proof: start,
        ..Hold::default()
    };
    Some(match op.action {
        Action::Acquire { share, lease, session, .. } => {
            let mut hold = leased(op, token, lease, terms, clock, hold);
            hold.is_session = session;
            hold.share = share;
            if session {
                bind(&mut hold, op, terms);
            }
            hold
        }
        Action::Recover { lease } => leased(op, token, lease, terms, clock, hold),
        // The classic client counts from the moment when it read the clock.
        Action::ClassicTake { lease, read_at, .. } => {
            let end = clock.first_at(clock.least(read_at, read_at + 1) + lease, op.until).min(read_at + lease);
            hold(op.until, end, end)
        }
        Action::PlainTake { lease } => {
            let end = clock.first_at(clock.least(op.from, op.until) + lease, op.until).min(op.from + lease);
            hold(op.until, end, end)
        }
        _ => return None,
    })
}

/// The connection may break at any time from here on; the server can notice this before the client does.
fn bind(hold: &mut Hold, op: &Op, terms: &Terms) {
    hold.end = hold.end.min(op.sent.max(hold.start) + terms.margin.0);
    hold.lease_end = hold.lease_end.min(hold.end);
}

/// A hold known from a token and a lease.
fn leased(
    op: &Op,
    token: i64,
    lease: i64,
    terms: &Terms,
    clock: &Clock,
    hold: impl FnOnce(Moment, Moment, Moment) -> Hold,
) -> Hold {
    let known = clock.moment_of(token, op.from, op.until);
    let (earliest, latest) = known.map_or((op.from, op.until), |at| (at, at));
    let granted_at = clock.least(earliest, latest.max(earliest + 1));
    let end = clock.first_at(granted_at + lease + terms.margin.0, latest);
    let lease_end = clock.first_at(granted_at + lease, latest).min(earliest + lease);
    // An attempt that was sent again was extended.
    Hold { earliest, most: op.until + lease, ..hold(latest, end, lease_end) }
}

/// Applies the holder's later operation to its hold.
fn learn(hold: &mut Hold, op: &Op, terms: &Terms, clock: &Clock) {
    let shorten = |hold: &mut Hold, to: Moment| {
        hold.end = hold.end.min(to);
        hold.lease_end = hold.lease_end.min(to);
    };
    // A loss can bring back an ended grant. Its holder then sees it as held, which proves nothing about others.
    let loses = [Effect::Loss, Effect::LossOfOthers, Effect::Change];
    if op.from > hold.end && loses.iter().any(|effect| terms.is_in(*effect, hold.end, op.until)) {
        return;
    }
    // A new server whose clock is behind can have granted that token again, to a client that did not get the reply.
    let new = [Effect::Restart, Effect::Change, Effect::Loss];
    let is_new = |from| new.iter().any(|effect| terms.is_in(*effect, from, op.until));
    if hold.given_back.is_some_and(|at| at < op.from && is_new(hold.asked) && clock.least(at, op.until) < hold.token) {
        return;
    }
    if op.of > 1 {
        let fate = hold.fate(op, terms);
        hold.fates.push((op.from, fate));
    }
    let succeeded = matches!(op.outcome, Outcome::Answer(answer) if answer != 0);
    if succeeded && hold.given_back.is_some_and(|given_back| given_back < op.from) {
        hold.revived = hold.revived.or(Some(op.until));
    }
    match (op.action, op.outcome) {
        (_, Outcome::Error(_)) | (Action::Extend { .. }, Outcome::Refused) => {}
        (Action::Check { .. }, Outcome::Answer(left @ 1..)) => {
            hold.proof = hold.proof.max(op.from);
            let least = op.from + left * 1_000;
            if least > hold.most + SLACK && !clock.was_stepped(hold.asked, op.until) {
                hold.too_long.get_or_insert((op.until, least));
            }
        }
        // When its connection ends, the lease ends at once and the margin remains; the server can notice the end first.
        (Action::Check { .. }, Outcome::Answer(0)) if hold.is_session => {}
        (Action::Check { .. }, Outcome::Answer(0)) => hold.deny(op.until, hold.lease_end),
        (Action::Extend { .. } | Action::Release { .. }, Outcome::Answer(0)) => hold.deny(op.until, hold.end),
        (Action::Extend { lease, .. }, outcome) => {
            let done_by = if outcome == Outcome::Unknown { op.until + terms.longest_stall } else { op.until };
            hold.most = hold.most.max(done_by + lease);
            let sent_at = clock.least(op.sent, op.until);
            let end = clock.first_at(sent_at + lease + terms.margin.0, op.sent);
            let lease_end = clock.first_at(sent_at + lease, op.sent).min(op.sent + lease);
            if outcome == Outcome::Answer(1) {
                (hold.end, hold.lease_end) = (end, lease_end);
                hold.proof = hold.proof.max(op.from);
                if hold.is_session {
                    bind(hold, op, terms);
                }
            } else {
                (hold.end, hold.lease_end) = (hold.end.min(end), hold.lease_end.min(lease_end));
            }
        }
        (Action::Release { .. }, outcome) => {
            shorten(hold, op.from);
            if matches!(outcome, Outcome::Answer(_)) {
                hold.proof = hold.proof.max(op.from);
            }
            if matches!(outcome, Outcome::Answer(_) | Outcome::Part(_)) {
                hold.given_back = hold.given_back.or(Some(op.until));
            }
        }
        (Action::ClassicDrop { .. } | Action::PlainDrop, _) => shorten(hold, op.from),
        _ => {}
    }
}

/// Ends holds that a permitted loss may have ended.
fn waive(holds: &mut [Hold], history: &KeyHistory, terms: &Terms) {
    let cut = |hold: &mut Hold, from: Moment, until: Moment| {
        if hold.start < until && hold.end.max(hold.proof) > from {
            hold.end_by(from);
        }
    };
    let loses = |effect| match effect {
        Effect::Loss => true,
        Effect::LossOfOthers => history.company == Company::Mixed,
        Effect::Stall | Effect::Restart | Effect::Move | Effect::Change => false,
    };
    for event in terms.events.iter().filter(|event| loses(event.effect)) {
        for hold in holds.iter_mut() {
            cut(hold, event.from, event.until);
        }
    }
    // A classic client that writes late, because it or its server stalled, or that deletes a lock without knowing that
    // it has lost that lock, harms the current holder, which can then harm the next.
    let mut writes: Vec<&Op> = history.ops.iter().filter(|op| op.action.is_blind()).collect();
    writes.sort_by_key(|op| op.from);
    let mut latest: HashMap<u32, usize> = HashMap::new();
    let mut begun = 0;
    for op in writes {
        while holds.get(begun).is_some_and(|hold| hold.start <= op.from) {
            latest.insert(holds[begun].client, begun);
            begun += 1;
        }
        let own = latest.get(&op.client).copied();
        let until = if op.outcome == Outcome::Unknown { op.until + terms.longest_stall } else { op.until };
        let (promised, has_lost) = match op.action {
            // Even a client whose lock was ended by a step of the server's clock.
            Action::ClassicDrop { end } => {
                (end, own.is_some_and(|own| holds[own].is_waived || holds[own].end < op.from))
            }
            Action::ClassicTake { read_at, .. } => (read_at + terms.margin.0 / 2, false),
            _ => continue,
        };
        if until > promised || has_lost {
            for hold in holds.iter_mut().filter(|hold| hold.asked != op.from) {
                cut(hold, op.from, until);
            }
        }
    }
}
