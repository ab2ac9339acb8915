//! Hand-written histories of several holders and several keys, good and broken.

use super::tests::{terms, Script, LEASE};
use super::{groups, order, Kind};
use crate::history::{Action, Company, Effect, Inspection, KeyHistory, Op, Outcome, Share};
use crate::moment::Moment;

const SHARED: Share = Share::Shared;

fn limit(most: usize) -> Share {
    Share::Limit(most)
}

fn action(share: Share, wait_ms: i64) -> Action {
    Action::Acquire { share, lease: LEASE, wait: wait_ms * 1_000, session: false, sent_again: false }
}

/// Turns a script into one that grants the lock to clients that share it.
trait Several {
    fn share(self, client: u32, ms: i64, share: Share) -> Self;
    /// A client that waits from one moment and is granted the lock at another; its ID is the client's number.
    fn wait(self, client: u32, from_ms: i64, granted_ms: i64, share: Share) -> Self;
    /// Makes the last operation one for this many keys at once.
    fn of(self, count: usize) -> Self;
    fn sent_again(self) -> Self;
}

impl Several for Script {
    fn share(self, client: u32, ms: i64, share: Share) -> Self {
        self.granted(client, (ms - 1, ms + 1), action(share, 0), ms)
    }

    fn wait(self, client: u32, from_ms: i64, granted_ms: i64, share: Share) -> Self {
        let mut script = self.granted(client, (from_ms, granted_ms + 1), action(share, 3_000), granted_ms);
        script.ops.last_mut().unwrap().id = i64::from(client);
        script
    }

    fn of(mut self, count: usize) -> Self {
        self.ops.last_mut().unwrap().of = count;
        self
    }

    fn sent_again(mut self) -> Self {
        if let Action::Acquire { sent_again, .. } = &mut self.ops.last_mut().unwrap().action {
            *sent_again = true;
        }
        self
    }
}

fn kinds(script: &Script) -> Vec<Kind> {
    script.pass(Company::Alone, &[])
}

#[test]
fn a_plain_holder_together_with_any_other_is_found() {
    let shared = |share| Script::new().share(1, 10, share);
    assert_eq!(kinds(&shared(SHARED).share(2, 20, SHARED).share(3, 30, limit(3))), []);
    assert_eq!(kinds(&shared(SHARED).grant(2, 500)), [Kind::TwoHolders]);
    assert_eq!(kinds(&shared(limit(4)).grant(2, 500)), [Kind::TwoHolders]);
    assert_eq!(kinds(&shared(SHARED).release(1, 400, 10, 1).grant(2, 500)), []);
    assert_eq!(kinds(&shared(SHARED).share(2, 20, SHARED).release(1, 400, 10, 1).grant(3, 500)), [Kind::TwoHolders]);
    assert_eq!(kinds(&Script::new().grant(1, 10).share(2, 500, SHARED)), [Kind::TwoHolders]);
    assert_eq!(kinds(&Script::new().grant(1, 10).share(2, 500, limit(9))), [Kind::TwoHolders]);
    assert_eq!(kinds(&Script::new().grant(1, 10).share(2, 1_215, SHARED)), []);
    // An overdue grant that a plain holder overwrote is gone.
    let over = |answer| Script::new().share(1, 10, SHARED).grant(2, 1_215).release(1, 1_300, 10, answer);
    assert_eq!(kinds(&over(0)), []);
    assert_eq!(kinds(&over(-1)), [Kind::TwoHolders]);
}

#[test]
fn more_holders_than_a_caller_allows_are_found() {
    let two = || Script::new().share(1, 10, SHARED).share(2, 20, limit(2));
    assert_eq!(kinds(&two().share(3, 30, limit(3))), []);
    assert_eq!(kinds(&two().share(3, 30, limit(2))), [Kind::TooManyHolders]);
    assert_eq!(kinds(&two().share(3, 30, limit(1))), [Kind::TooManyHolders]);
    // A client that allows more holders joins one that allows few.
    assert_eq!(kinds(&two().share(3, 30, SHARED)), []);
    // A slot becomes free when its holder releases it, or when a timestamp passes.
    assert_eq!(kinds(&two().release(1, 25, 10, 1).share(3, 30, limit(2))), []);
    assert_eq!(kinds(&two().share(3, 1_200, limit(2))), [Kind::TooManyHolders]);
    assert_eq!(kinds(&two().share(3, 1_215, limit(2))), []);
    assert_eq!(
        kinds(&two().extend(1, 900, 10, 1).extend(2, 900, 20, 1).share(3, 1_215, limit(2))),
        [Kind::TooManyHolders]
    );
    // An overdue holder stays beside the others, but does not count.
    assert_eq!(kinds(&two().share(3, 1_240, limit(2)).release(2, 1_300, 20, -1)), []);
    // A permitted loss.
    let lost = [(Effect::Loss, 24_000, 26_000)];
    assert_eq!(two().share(3, 30, limit(2)).pass(Company::Alone, &lost), []);
    // The time of the grant is not certain: it may have happened before one of the others.
    assert_eq!(kinds(&two().step(12, 5_000_000).granted(3, (11, 40), action(limit(2), 0), 15)), []);
}

#[test]
fn tokens_grow_for_every_kind_of_holder() {
    let earlier = Script::new().share(1, 10, SHARED).granted(2, (30, 32), action(SHARED, 0), 9);
    assert_eq!(kinds(&earlier), [Kind::TokenNotLarger]);
    // A token for several keys is larger than every key's earlier tokens.
    let script = Script::new().grant(1, 10).release(1, 20, 10, 1);
    let all = script.granted(2, (30, 32), action(Share::Alone, 0), 9).of(3);
    assert_eq!(kinds(&all), [Kind::TokenNotLarger]);
}

#[test]
fn a_lost_holder_among_several_is_found() {
    let script = || Script::new().share(1, 10, SHARED).share(2, 20, SHARED);
    assert_eq!(kinds(&script().release(1, 500, 10, 0)), [Kind::LostLock]);
    assert_eq!(kinds(&script().release(1, 500, 10, 1).extend(1, 550, 10, 1)), [Kind::RevivedLock]);
    // LOCK.MEXTEND of several keys to a shorter lease: if it replies that not all are held, this one is unchanged.
    let extended = |script: Script, outcome| {
        let token = script.token(10);
        let action = Action::Extend { token, lease: LEASE / 1_000 };
        kinds(&script.op(1, (500, 502), action, outcome).of(2).grant(3, 1_190))
    };
    let alone = || Script::new().grant(1, 10);
    assert_eq!(extended(alone(), Outcome::Refused), [Kind::TwoHolders]);
    assert_eq!(extended(alone(), Outcome::Answer(1)), []);
    assert_eq!(extended(Script::new().share(1, 10, SHARED), Outcome::Refused), [Kind::TwoHolders]);
}

#[test]
fn a_lease_ends_with_its_connection_and_the_lock_later() {
    let bound = |session| {
        let script = Script::new();
        let token = script.token(10);
        let action = Action::Acquire { share: SHARED, lease: LEASE, wait: 0, session, sent_again: false };
        let script = script.op(1, (9, 11), action, Outcome::Granted(token));
        script.op(1, (20, 21), Action::Extend { token, lease: LEASE }, Outcome::Unknown)
    };
    let checked = |session| kinds(&bound(session).check(1, 30, 10, 0).release(1, 40, 10, 1));
    assert_eq!(checked(true), []);
    assert_eq!(checked(false), [Kind::LostLock]);
    assert_eq!(kinds(&bound(true).release(1, 100, 10, 0)), [Kind::LostLock]);
    assert_eq!(kinds(&bound(true).release(1, 240, 10, 0)), []);
    assert_eq!(kinds(&bound(false).release(1, 240, 10, 0)), [Kind::LostLock]);
}

#[test]
fn an_extension_of_keys_not_held_is_found() {
    let left = |outcome, left| {
        let script = Script::new().grant(1, 10);
        let token = script.token(10);
        let script = script.op(1, (500, 502), Action::Extend { token, lease: LEASE }, outcome).of(2);
        kinds(&script.check(1, 600, 10, left))
    };
    assert_eq!(left(Outcome::Refused, 410), []);
    assert_eq!(left(Outcome::Refused, 900), [Kind::LeaseTooLong]);
    assert_eq!(left(Outcome::Answer(1), 900), []);
    assert_eq!(left(Outcome::Unknown, 900), []);
}

/// One client's keys with the same grant, and the combined reply about them.
fn answered(scripts: &[Script], (action, outcome): (Action, Outcome), events: &[(Effect, Moment, Moment)]) -> bool {
    answered_beside(scripts, (action, outcome), events, Company::Alone)
}

fn answered_beside(
    scripts: &[Script],
    (action, outcome): (Action, Outcome),
    events: &[(Effect, Moment, Moment)],
    company: Company,
) -> bool {
    let of = scripts.len();
    let op = |script: &Script| {
        let op = Op { client: 1, action, of, id: 0, outcome, lost: 0, from: 500_000, sent: 500_000, until: 501_000 };
        KeyHistory { ops: [&script.ops[..], &[op]].concat(), ..script.history(company) }
    };
    let histories: Vec<KeyHistory> = scripts.iter().map(op).collect();
    let found = groups::check(&histories, &terms(events), &scripts[0].clock);
    assert_eq!(found.answers, 1);
    let is_wrong = |violation: &super::Violation| violation.kind == Kind::WrongAnswer;
    assert!(found.violations.iter().all(is_wrong) && found.violations.len() < 2);
    found.violations.is_empty()
}

#[test]
fn impossible_answers_for_several_keys_are_found() {
    let held = || Script::new().grant(1, 10);
    let token = held().token(10);
    // All scripts share a clock, so the token is valid for each.
    let clock = held().clock;
    let on_clock = |mut script: Script| {
        for op in &mut script.ops {
            if let Outcome::Granted(_) = op.outcome {
                op.outcome = Outcome::Granted(token);
            }
            if let Action::Release { .. } = op.action {
                op.action = Action::Release { token };
            }
        }
        Script { clock: clock.clone(), ..script }
    };
    let held = || on_clock(Script::new().grant(1, 10));
    let gone = || on_clock(Script::new().grant(1, 10).release(1, 20, 10, 1));
    let never = || on_clock(Script::new());
    let over = || Script { clock: clock.clone(), ops: held().ops };
    let released = |outcome| (Action::Release { token }, outcome);
    let extended = |outcome| (Action::Extend { token, lease: LEASE }, outcome);
    // LOCK.MEXTEND: all are held, or at least one is not.
    assert!(answered(&[held(), held()], extended(Outcome::Answer(1)), &[]));
    assert!(!answered(&[held(), held()], extended(Outcome::Refused), &[]));
    assert!(answered(&[held(), gone()], extended(Outcome::Refused), &[]));
    assert!(!answered(&[held(), gone()], extended(Outcome::Answer(1)), &[]));
    assert!(!answered(&[held(), never()], extended(Outcome::Answer(1)), &[]));
    // LOCK.MRELEASE: how many.
    assert!(answered(&[held(), held(), gone()], released(Outcome::Part(2)), &[]));
    assert!(!answered(&[held(), held(), gone()], released(Outcome::Part(1)), &[]));
    assert!(!answered(&[held(), held(), gone()], released(Outcome::Answer(1)), &[]));
    assert!(!answered(&[held(), gone(), never()], released(Outcome::Part(2)), &[]));
    assert!(answered(&[held(), gone(), never()], released(Outcome::Part(1)), &[]));
    assert!(!answered(&[held(), gone()], released(Outcome::Answer(0)), &[]));
    assert!(answered(&[gone(), never()], released(Outcome::Answer(0)), &[]));
    // A key that may have been lost or overwritten can be in either state.
    let lost = [(Effect::Loss, 100_000, 110_000)];
    assert!(answered(&[held(), over()], extended(Outcome::Refused), &lost));
    assert!(answered_beside(&[held(), held()], extended(Outcome::Refused), &[], Company::Mixed));
}

/// The violations found when the queue is read between two moments.
fn in_queue(script: &Script, (from_ms, until_ms): (i64, i64), queue: &[i64], holders: &[i64]) -> Vec<Kind> {
    in_queue_beside(script, (from_ms, until_ms), queue, holders, &[])
}

fn in_queue_beside(
    script: &Script,
    (from_ms, until_ms): (i64, i64),
    queue: &[i64],
    holders: &[i64],
    events: &[(Effect, Moment, Moment)],
) -> Vec<Kind> {
    let (from, until) = (from_ms * 1_000, until_ms * 1_000);
    let inspection = Inspection { from, until, holders: holders.to_vec(), queue: queue.to_vec() };
    let history = KeyHistory { inspections: vec![inspection], ..script.history(Company::Alone) };
    let found = order::check(&history, &terms(events), &script.clock);
    found.violations.iter().map(|violation| violation.kind).collect()
}

#[test]
fn overtaking_is_found() {
    let at = (100, 101);
    for share in [Share::Alone, SHARED, limit(2)] {
        let script = |first, second| Script::new().wait(1, 10, first, share).wait(2, 20, second, share);
        assert_eq!(in_queue(&script(200, 201), at, &[1, 2], &[]), []);
        assert_eq!(in_queue(&script(201, 200), at, &[1, 2], &[]), [Kind::Overtaken]);
        // Others may be between them, and a client without an ID is unknown.
        assert_eq!(in_queue(&script(201, 200), at, &[1, 0, 2], &[]), [Kind::Overtaken]);
        assert_eq!(in_queue(&script(201, 200), at, &[0, 2], &[]), []);
        // A newcomer.
        let newcomer = |ms| script(200, 300).share(3, ms, share);
        assert_eq!(in_queue(&newcomer(150), at, &[1], &[]), [Kind::Overtaken]);
        assert_eq!(in_queue(&newcomer(250), at, &[1], &[]), []);
        // This one arrived before the queue was read.
        assert_eq!(in_queue(&newcomer(100), at, &[1], &[]), []);
    }
    let script = || Script::new().wait(1, 10, 201, SHARED);
    // A client that wants several keys is overtaken while it cannot have all; it overtakes nobody itself.
    assert_eq!(in_queue(&script().of(2).wait(2, 20, 200, SHARED), at, &[1, 2], &[]), []);
    assert_eq!(in_queue(&script().wait(2, 20, 200, Share::Alone).of(2), at, &[1, 2], &[]), [Kind::Overtaken]);
    // A client whose connection broke is skipped in the meantime.
    assert_eq!(in_queue(&script().sent_again().wait(2, 20, 200, SHARED), at, &[1, 2], &[]), []);
    // Another server does not know the queue.
    for effect in [Effect::Restart, Effect::Change, Effect::Move] {
        let events = [(effect, 150_000, 160_000)];
        let script = script().wait(2, 20, 200, SHARED);
        assert_eq!(in_queue_beside(&script, at, &[1, 2], &[], &events), []);
    }
}

#[test]
fn a_sharing_neighbour_left_behind_is_found() {
    let at = (100, 101);
    let script = |share, second| Script::new().wait(1, 10, 200, SHARED).wait(2, 20, second, share);
    assert_eq!(in_queue(&script(SHARED, 200), at, &[1, 2], &[]), []);
    assert_eq!(in_queue(&script(SHARED, 900), at, &[1, 2], &[]), [Kind::LeftBehind]);
    // The neighbour waits for others to release.
    assert_eq!(in_queue(&script(Share::Alone, 1_900), at, &[1, 2], &[]), []);
    assert_eq!(in_queue(&script(limit(1), 1_900), at, &[1, 2], &[]), []);
    // Another client is in between.
    assert_eq!(in_queue(&script(SHARED, 900), at, &[1, 0, 2], &[]), []);
    // The server stalled.
    let stall = [(Effect::Stall, 300_000, 310_000)];
    assert_eq!(in_queue_beside(&script(SHARED, 900), at, &[1, 2], &[], &stall), []);
    // Its time ended long after the other got the lock.
    let refused = |wait_ms| {
        let script = Script::new().wait(1, 10, 200, SHARED);
        let mut script = script.op(2, (20, 21 + wait_ms), action(SHARED, wait_ms), Outcome::Refused);
        script.ops.last_mut().unwrap().id = 2;
        in_queue(&script, at, &[1, 2], &[])
    };
    assert_eq!(refused(300), []);
    assert_eq!(refused(1_000), [Kind::LeftBehind]);
}

#[test]
fn a_partial_grant_is_found() {
    let refused = || {
        let mut script = Script::new().op(7, (10, 12), action(Share::Alone, 0), Outcome::Refused).of(3);
        script.ops[0].id = 7;
        script
    };
    assert_eq!(in_queue(&refused(), (20, 21), &[], &[7]), [Kind::HeldByRefused]);
    assert_eq!(in_queue(&refused(), (20, 21), &[7], &[9]), []);
    // Before that reply it may have been in any state.
    assert_eq!(in_queue(&refused(), (5, 11), &[], &[7]), []);
    // An earlier command without a reply may have been granted.
    assert_eq!(in_queue(&refused().sent_again(), (20, 21), &[], &[7]), []);
    assert_eq!(in_queue(&Script::new().wait(7, 10, 12, Share::Alone), (20, 21), &[], &[7]), []);
}
