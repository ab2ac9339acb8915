//! Hand-written histories, good and broken: each check finds its own kind of violation, and nothing in the good ones.

use super::linear::Verdict;
use super::{linear, pass, Kind};
use crate::history::{Action, Company, Effect, Event, KeyHistory, Op, Outcome, Share, Terms};
use crate::moment::{Clock, Moment, Step, Watch};

pub(super) const MARGIN: i64 = 200_000;
pub(super) const LEASE: i64 = 1_000_000;

pub(super) fn clock() -> Clock {
    // The wall clock began a long time ago, so that a moment below is a time above.
    Clock { watch: Watch::start(), steps: Vec::new() }
}

pub(super) fn terms(events: &[(Effect, Moment, Moment)]) -> Terms {
    let events = events.iter().map(|(effect, from, until)| Event { effect: *effect, from: *from, until: *until });
    Terms {
        margin: (MARGIN, MARGIN),
        retention: Some(60_000_000),
        has_grace: false,
        is_script: false,
        longest_stall: 1_000_000,
        overtime: 1_000_000,
        events: events.collect(),
    }
}

/// Milliseconds of the run: from, until; complete operations take one.
pub(super) struct Script {
    pub(super) clock: Clock,
    pub(super) ops: Vec<Op>,
}

impl Script {
    pub(super) fn new() -> Self {
        Self { clock: clock(), ops: Vec::new() }
    }

    /// The token of a grant at that millisecond.
    pub(super) fn token(&self, ms: i64) -> i64 {
        self.clock.watch.unix(ms * 1_000)
    }

    pub(super) fn op(mut self, client: u32, (from, until): (i64, i64), action: Action, outcome: Outcome) -> Self {
        let (from, until) = (from * 1_000, until * 1_000);
        self.ops.push(Op { client, action, of: 1, id: 0, outcome, lost: 0, from, sent: from, until });
        self
    }

    /// A grant at that millisecond of the machine's wall clock.
    pub(super) fn granted(self, client: u32, span: (i64, i64), action: Action, ms: i64) -> Self {
        let token = self.token(ms);
        self.op(client, span, action, Outcome::Granted(token))
    }

    /// A grant in the middle of an ACQUIRE of two milliseconds.
    pub(super) fn grant(self, client: u32, ms: i64) -> Self {
        self.granted(client, (ms - 1, ms + 1), acquire(0), ms)
    }

    pub(super) fn answer(self, client: u32, ms: i64, action: Action, answer: i64) -> Self {
        self.op(client, (ms - 1, ms + 1), action, Outcome::Answer(answer))
    }

    pub(super) fn release(self, client: u32, ms: i64, granted_ms: i64, answer: i64) -> Self {
        let token = self.token(granted_ms);
        self.answer(client, ms, Action::Release { token }, answer)
    }

    /// LOCK.CHECK, with this many milliseconds of lease left.
    pub(super) fn check(self, client: u32, ms: i64, granted_ms: i64, left: i64) -> Self {
        let token = self.token(granted_ms);
        self.answer(client, ms, Action::Check { token }, left)
    }

    /// The wall clock is set at that millisecond, this far ahead of the machine's.
    pub(super) fn step(mut self, ms: i64, offset: i64) -> Self {
        self.clock.steps.push(Step { from: ms * 1_000, until: (ms + 1) * 1_000, offset });
        self
    }

    pub(super) fn extend(self, client: u32, ms: i64, granted_ms: i64, answer: i64) -> Self {
        let token = self.token(granted_ms);
        self.answer(client, ms, Action::Extend { token, lease: LEASE }, answer)
    }

    pub(super) fn history(&self, company: Company) -> KeyHistory {
        KeyHistory { key: "k".into(), company, ops: self.ops.clone(), inspections: Vec::new() }
    }

    pub(super) fn pass(&self, company: Company, events: &[(Effect, Moment, Moment)]) -> Vec<Kind> {
        let found = pass::check(&self.history(company), &terms(events), &self.clock);
        found.violations.iter().map(|violation| violation.kind).collect()
    }

    fn has_order(&self) -> bool {
        match linear::check(&self.history(Company::Small), &terms(&[]), &self.clock) {
            Verdict::Holds => true,
            Verdict::Broken(_) => false,
            Verdict::Undecided => panic!("undecided"),
        }
    }

    #[track_caller]
    fn assert_good(&self) {
        assert_eq!(self.pass(Company::Alone, &[]), []);
        assert!(self.has_order());
    }

    #[track_caller]
    fn assert_broken(&self, kind: Kind) {
        assert!(self.pass(Company::Alone, &[]).contains(&kind), "{:?}", self.pass(Company::Alone, &[]));
        assert!(!self.has_order());
    }
}

fn acquire(wait_ms: i64) -> Action {
    Action::Acquire { share: Share::Alone, lease: LEASE, wait: wait_ms * 1_000, session: false, sent_again: false }
}

#[test]
fn release_expiry_and_hand_off_are_accepted() {
    Script::new().grant(1, 10).release(1, 20, 10, 1).grant(2, 30).assert_good();
    // Lease plus margin is 1.2 s: refused until then, granted to others afterwards, and too late for the first.
    Script::new()
        .grant(1, 10)
        .op(2, (1_190, 1_205), acquire(0), Outcome::Refused)
        .grant(2, 1_215)
        .release(1, 1_300, 10, 0)
        .extend(2, 2_000, 1_215, 1)
        .op(3, (3_100, 3_101), acquire(0), Outcome::Refused)
        .release(2, 3_300, 1_215, -1)
        .grant(3, 3_400)
        .assert_good();
    // A hand-off inside RELEASE: both happen at once.
    Script::new().grant(1, 10).granted(2, (20, 53), acquire(500), 51).release(1, 51, 10, 1).assert_good();
}

#[test]
fn two_holders_are_found() {
    Script::new().grant(1, 10).grant(2, 500).assert_broken(Kind::TwoHolders);
    // The same holds within the margin.
    Script::new().grant(1, 10).grant(2, 1_100).assert_broken(Kind::TwoHolders);
    Script::new().grant(1, 10).extend(1, 1_000, 10, 1).grant(2, 1_500).assert_broken(Kind::TwoHolders);
    // The first got a reply that it held the lock while the second had it.
    Script::new().grant(1, 10).grant(2, 1_250).release(1, 1_300, 10, 1).assert_broken(Kind::TwoHolders);
    // The second's reply arrived late; its token shows the time of the grant.
    Script::new().grant(1, 10).granted(2, (890, 2_000), acquire(0), 900).assert_broken(Kind::TwoHolders);
}

#[test]
fn a_lost_lock_is_found() {
    Script::new().grant(1, 10).release(1, 500, 10, 0).assert_broken(Kind::LostLock);
    Script::new().grant(1, 10).extend(1, 500, 10, 0).assert_broken(Kind::LostLock);
    Script::new().grant(1, 10).check(1, 500, 10, 0).assert_broken(Kind::LostLock);
    // Less than a millisecond of lease counts as zero.
    Script::new().grant(1, 10).check(1, 1_009, 10, 0).extend(1, 1_020, 10, 1).assert_good();
    // In the margin there is no lease left, but the lock can still be extended.
    Script::new().grant(1, 10).check(1, 1_100, 10, 0).extend(1, 1_150, 10, 1).assert_good();
}

#[test]
fn a_released_lock_that_reappears_is_found() {
    let script = || Script::new().grant(1, 10).release(1, 20, 10, 1);
    script().extend(1, 50, 10, 1).assert_broken(Kind::RevivedLock);
    script().release(1, 50, 10, 1).assert_broken(Kind::RevivedLock);
    script().extend(1, 50, 10, 0).assert_good();
    let lost = [(Effect::Loss, 30_000, 40_000)];
    assert_eq!(script().extend(1, 50, 10, 1).pass(Company::Alone, &lost), []);
}

#[test]
fn a_token_that_goes_back_is_found() {
    let script = Script::new().grant(1, 10).release(1, 20, 10, 1).granted(2, (30, 32), acquire(0), 9);
    assert_eq!(script.pass(Company::Alone, &[]), [Kind::TokenNotLarger]);
    // On a new server whose clock is behind, tokens may go back, but this one's clock is not behind.
    let restart = [(Effect::Restart, 21_000, 29_000)];
    assert_eq!(script.pass(Company::Alone, &restart), [Kind::TokenNotLarger]);
}

#[test]
fn late_and_early_wait_ends_are_found() {
    let script = |until| Script::new().grant(1, 10).op(2, (20, until), acquire(300), Outcome::Refused);
    assert_eq!(script(320).pass(Company::Alone, &[]), []);
    assert_eq!(script(1_310).pass(Company::Alone, &[]), []);
    assert_eq!(script(1_330).pass(Company::Alone, &[]), [Kind::WaitTooLong]);
    assert_eq!(script(1_330).pass(Company::Alone, &[(Effect::Stall, 100_000, 150_000)]), []);
    assert_eq!(script(200).pass(Company::Alone, &[]), [Kind::WaitTooShort]);
}

#[test]
fn a_lock_ends_by_its_servers_clock() {
    let set = |offset| Script::new().step(300, offset).grant(1, 10);
    // A token is the time on a clock that is ahead from then on.
    let granted_ahead = |ahead_ms: i64| {
        set(ahead_ms * 1_000).granted(2, (399, 401), acquire(0), 400 + ahead_ms).pass(Company::Alone, &[])
    };
    assert_eq!(granted_ahead(5_000), []);
    assert_eq!(granted_ahead(0), [Kind::TwoHolders]);
    // If the clock is set back, the lock is held for longer, and the next token is ahead of the clock.
    let back = |ms: i64| {
        let script = set(-500_000);
        let token = script.token(10) + 1;
        script.op(2, (ms - 1, ms + 1), acquire(0), Outcome::Granted(token)).pass(Company::Alone, &[])
    };
    assert_eq!(back(1_600), [Kind::TwoHolders]);
    assert_eq!(back(1_720), []);
}

#[test]
fn tokens_fall_only_on_a_new_server_whose_clock_is_behind() {
    let grant_behind = |events: &[_]| {
        let script = Script::new().grant(1, 10).release(1, 20, 10, 1).step(300, -5_000_000);
        script.granted(2, (399, 401), acquire(0), 400 - 5_000).pass(Company::Alone, events)
    };
    assert_eq!(grant_behind(&[]), [Kind::TokenNotLarger]);
    assert_eq!(grant_behind(&[(Effect::Restart, 310_000, 320_000)]), []);
}

#[test]
fn a_token_granted_twice_is_two_grants() {
    // The server lost its data, and its clock is behind: another client had the lock between the two grants.
    let script = Script::new().grant(1, 10).release(1, 20, 10, 1).grant(2, 30).release(2, 40, 30, 1);
    let script = script.step(300, -5_000_000).granted(1, (399, 401), acquire(0), 10).release(1, 460, 10, 1);
    let lost = [(Effect::Loss, 310_000, 320_000), (Effect::Restart, 310_000, 320_000)];
    assert_eq!(script.pass(Company::Alone, &lost), []);
    assert_eq!(script.pass(Company::Alone, &[]), [Kind::TokenNotLarger]);
    assert_eq!(script.grant(3, 450).pass(Company::Alone, &lost), [Kind::TwoHolders]);
}

#[test]
fn a_duplicate_token_may_answer_for_either_grant() {
    // The server restarted, and its clock is behind. The first client mistakes the second's grant for its own.
    let script = |client| {
        let script = Script::new().grant(1, 10).release(1, 20, 10, 1).step(300, -5_000_000);
        let script = script.granted(2, (399, 401), acquire(0), 10);
        script.extend(client, 420, 10, 1).release(client, 440, 10, 1).grant(3, 5_450)
    };
    let restart = [(Effect::Restart, 310_000, 320_000)];
    assert_eq!(script(1).pass(Company::Alone, &restart), []);
    assert_eq!(script(1).pass(Company::Alone, &[]), [Kind::TokenNotLarger]);
    // The second did not get the reply with its grant.
    let mut script = script(1);
    script.ops.retain(|op| op.client != 2);
    assert_eq!(script.pass(Company::Alone, &restart), []);
    assert_eq!(script.pass(Company::Alone, &[]), [Kind::RevivedLock]);
    script.clock.steps.clear();
    assert_eq!(script.pass(Company::Alone, &restart), [Kind::RevivedLock]);
}

#[test]
fn permitted_losses_and_failovers_excuse_only_what_they_explain() {
    let two = Script::new().grant(1, 10).grant(2, 500);
    let at = |effect, from_ms: i64, until_ms: i64| [(effect, from_ms * 1_000, until_ms * 1_000)];
    assert_eq!(two.pass(Company::Alone, &at(Effect::Loss, 200, 300)), []);
    assert_eq!(two.pass(Company::Alone, &at(Effect::Loss, 600, 700)), [Kind::TwoHolders]);
    assert_eq!(two.pass(Company::Alone, &at(Effect::LossOfOthers, 200, 300)), [Kind::TwoHolders]);
    assert_eq!(two.pass(Company::Alone, &at(Effect::Change, 200, 300)), [Kind::TwoHolders]);
    assert_eq!(two.pass(Company::Alone, &at(Effect::Restart, 200, 300)), [Kind::TwoHolders]);
    // A lost release: the reply to its holder's next command says that it holds the lock.
    let back = Script::new().grant(1, 10).release(1, 100, 10, 1).grant(2, 200).extend(1, 500, 10, 1);
    assert_eq!(back.pass(Company::Alone, &at(Effect::Loss, 300, 400)), []);
    let kinds = back.pass(Company::Alone, &at(Effect::Stall, 300, 400));
    assert_eq!(kinds, [Kind::TwoHolders, Kind::RevivedLock]);
    let in_the_margin = Script::new().grant(1, 10).grant(2, 1_100);
    assert_eq!(in_the_margin.pass(Company::Alone, &at(Effect::Change, 200, 300)), []);
    assert_eq!(in_the_margin.pass(Company::Alone, &at(Effect::Stall, 200, 300)), [Kind::TwoHolders]);
}

#[test]
fn classic_clients_hold_by_their_own_clock() {
    let take = |read_ms: i64, is_getset| Action::ClassicTake { lease: LEASE, read_at: read_ms * 1_000, is_getset };
    let held = || Script::new().op(1, (10, 11), take(10, false), Outcome::Granted(0));
    assert_eq!(held().grant(2, 900).pass(Company::Mixed, &[]), [Kind::TwoHolders]);
    assert_eq!(held().grant(2, 1_011).pass(Company::Mixed, &[]), []);
    // A client deletes in time, but its DEL arrives late because the server stalled.
    let late = |until_ms| {
        let drop = Action::ClassicDrop { end: 1_010_000 };
        held()
            .op(1, (900, until_ms), drop, Outcome::Answer(1))
            .grant(2, 1_300)
            .grant(3, 1_700)
            .pass(Company::Mixed, &[])
    };
    assert_eq!(late(901), [Kind::TwoHolders]);
    assert_eq!(late(1_600), []);
}

#[test]
fn a_classic_client_that_deletes_a_lost_lock_is_excused() {
    let take = |client, ms: i64, script: Script| {
        let action = Action::ClassicTake { lease: LEASE, read_at: ms * 1_000, is_getset: false };
        script.op(client, (ms, ms + 1), action, Outcome::Granted(0))
    };
    let drop = |client, ms: i64, script: Script| {
        script.op(client, (ms, ms + 1), Action::ClassicDrop { end: 900_000 }, Outcome::Answer(1))
    };
    // The lock is lost, taken by 2, deleted by 1, taken by 3, deleted by 2, taken by 4.
    let script = take(2, 100, take(1, 10, Script::new()));
    let script = take(3, 300, drop(1, 200, script));
    let script = take(4, 500, drop(2, 400, script));
    assert_eq!(script.pass(Company::Mixed, &[(Effect::Loss, 50_000, 60_000)]), []);
    assert!(!script.pass(Company::Mixed, &[]).is_empty());
    // A client that was not harmed still holds the lock.
    let script = take(5, 600, script);
    assert_eq!(script.pass(Company::Mixed, &[(Effect::Loss, 50_000, 60_000)]), [Kind::TwoHolders]);
    // The same holds if the server's clock was set ahead, which ends the first lock without its client's knowledge.
    let script = |is_set: bool| {
        let script = take(1, 10, Script::new());
        let script = if is_set { script.step(50, 5_000_000) } else { script };
        take(3, 300, drop(1, 200, take(2, 100, script)))
    };
    assert_eq!(script(true).pass(Company::Mixed, &[]), []);
    assert!(!script(false).pass(Company::Mixed, &[]).is_empty());
}

#[test]
fn an_unanswered_operation_may_have_happened() {
    let script = |outcome| {
        let script = Script::new().grant(1, 10);
        let token = script.token(10);
        script.op(1, (20, 30), Action::Release { token }, outcome)
    };
    script(Outcome::Unknown).grant(2, 500).assert_good();
    script(Outcome::Unknown).op(2, (499, 501), acquire(0), Outcome::Refused).assert_good();
    // The reply shows that the operation was carried out.
    assert!(!script(Outcome::Answer(1)).op(2, (499, 501), acquire(0), Outcome::Refused).has_order());
    // Nobody else can have got the lock, except a client whose reply was lost.
    let somebody = Script::new().op(1, (10, 20), acquire(0), Outcome::Unknown);
    somebody.op(2, (499, 501), acquire(0), Outcome::Refused).assert_good();
    assert!(!Script::new().op(2, (499, 501), acquire(0), Outcome::Refused).has_order());
    // But the lease ends at some point.
    let somebody = Script::new().op(1, (10, 20), acquire(0), Outcome::Unknown);
    assert!(!somebody.op(2, (2_499, 2_501), acquire(0), Outcome::Refused).has_order());
}

#[test]
fn a_lost_grant_is_over_when_its_attempt_was_cancelled() {
    let refused = |script: Script, ms| script.op(2, (ms, ms + 1), acquire(0), Outcome::Refused);
    let lost = || refused(Script::new().op(1, (10, 20), acquire(0), Outcome::Unknown), 50);
    let cancelled = |answer| lost().answer(1, 100, Action::Cancel { attempt: 10_000 }, answer);
    assert!(refused(lost(), 150).has_order());
    assert!(!refused(cancelled(1), 150).has_order());
    assert!(cancelled(1).grant(2, 150).has_order());
    // The attempt held the lock, so there was a grant to cancel.
    assert!(!cancelled(0).has_order());
}

#[test]
fn a_repeated_command_prolongs_its_grant() {
    let script = |sent_again| {
        let action = Action::Acquire { share: Share::Alone, lease: LEASE, wait: 0, session: false, sent_again };
        Script::new().granted(1, (9, 900), action, 10).op(2, (1_500, 1_501), acquire(0), Outcome::Refused)
    };
    assert!(script(true).has_order());
    assert!(!script(false).has_order());
}

#[test]
fn a_grant_with_a_known_span_can_precede_another() {
    // The clock was set during the request, so its token does not show the time of the grant.
    let take = |read_at| Action::ClassicTake { lease: LEASE, read_at, is_getset: false };
    let script = Script::new().step(100, 5_000_000).granted(1, (50, 110), acquire(0), 10);
    let script = script.op(2, (99, 111), take(99_000), Outcome::Granted(0)).release(1, 150, 10, 1);
    assert_eq!(script.pass(Company::Mixed, &[]), []);
    let script = script.op(3, (120, 121), take(120_000), Outcome::Granted(0));
    assert_eq!(script.pass(Company::Mixed, &[]), [Kind::TwoHolders]);
}

#[test]
fn impossible_histories_have_no_order() {
    // Refused although the lock is free, or expired, and nobody waits.
    let refused = |script: Script, ms| script.op(9, (ms, ms + 1), acquire(0), Outcome::Refused);
    assert!(!refused(Script::new().grant(1, 10).release(1, 20, 10, 1), 50).has_order());
    assert!(!refused(Script::new().grant(1, 10), 1_300).has_order());
    assert!(refused(Script::new().grant(1, 10), 1_100).has_order());
    // Released twice; released in time but reported as late, and the reverse.
    assert!(!Script::new().grant(1, 10).release(1, 20, 10, 1).release(1, 30, 10, 1).has_order());
    assert!(!Script::new().grant(1, 10).release(1, 1_300, 10, 1).has_order());
    assert!(!Script::new().grant(1, 10).release(1, 500, 10, -1).has_order());
    // Extended after it had ended.
    assert!(!Script::new().grant(1, 10).extend(1, 1_300, 10, 1).has_order());
    // Recovered although the lock is free, or held.
    let recovered =
        |script: Script, ms: i64| script.granted(2, (ms - 1, ms + 1), Action::Recover { lease: LEASE }, ms).has_order();
    assert!(!recovered(Script::new(), 500));
    assert!(!recovered(Script::new().grant(1, 10), 500));
    assert!(recovered(Script::new().grant(1, 10), 1_300));
    // The reply shows more lease left than there was.
    let left = |left| Script::new().grant(1, 10).check(1, 500, 10, left).has_order();
    assert!(left(510));
    assert!(!left(600));
    assert!(!left(400));
}
