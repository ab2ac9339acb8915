//! Checks the rules against the contract's tables. `fuzz/properties/value.rs` checks them against a plain model.

use super::*;
use crate::lock::held::{check, end_session, extend, release, Release};
use crate::lock::holders::{Holder, Holders};
use crate::lock::record::Id;
use crate::lock::record::Value;
use crate::lock::retention::Retention;

const NOW: UnixMicros = UnixMicros(1_763_710_000_482_913);
const TERMS: Terms = Terms { margin: Micros(1_000_000) };
const LEASE: Micros = Micros(30_000_000);
const PLAIN: Request<'static> = Request { share: Share::Alone, lease: LEASE, id: None, owner: None };

fn ours(left_us: i64) -> Record<'static> {
    Record {
        timestamp: UnixMicros(NOW.0.saturating_add_signed(left_us)),
        token: Token::new(1_763_709_000_000_000).unwrap(),
        id: Id::parse(b"7"),
        owner: Owner::parse(b"cron@db1"),
    }
}

fn states() -> Vec<State<'static>> {
    [
        None,
        Some(Value::Ours(ours(1))),
        Some(Value::Classic(UnixMicros(NOW.0 + 1))),
        Some(Value::Ours(ours(0))),
        Some(Value::Classic(NOW)),
        Some(Value::Foreign),
    ]
    .map(|value| State::of(value, NOW))
    .to_vec()
}

#[test]
fn the_rules_match_the_table_in_the_contract() {
    let token = ours(0).token;
    let other = Token::new(token.get() + 1).unwrap();
    // state, ACQUIRE grants, RECOVER grants, EXTEND and RELEASE with its token
    let table = [
        ("free", true, false, false, Release::Over),
        ("held", false, false, true, Release::InTime),
        ("held", false, false, false, Release::Over),
        ("expired", true, true, false, Release::Late),
        ("expired", true, true, false, Release::Over),
        ("foreign", false, false, false, Release::Over),
    ];
    for (state, (name, acquires, recovers, extends, released)) in states().into_iter().zip(table) {
        let granted = |decision| matches!(decision, Ok(Acquire::Grant { .. }));
        assert_eq!(state.name(), name);
        assert_eq!(granted(acquire(state, &PLAIN, Turn::Now, TERMS, &mut Tokens::new(), NOW)), acquires, "{state:?}");
        assert_eq!(granted(recover(state, &PLAIN, Turn::Now, TERMS, &mut Tokens::new(), NOW)), recovers, "{state:?}");
        assert_eq!(extend(state, token, LEASE, TERMS, NOW).unwrap().is_some(), extends, "{state:?}");
        assert_eq!(release(state, token), released, "{state:?}");
        assert_eq!(release(state, other), Release::Over, "{state:?}");
        assert_eq!(extend(state, other, LEASE, TERMS, NOW), Ok(None), "{state:?}");
    }
}

#[test]
fn a_timestamp_is_now_plus_lease_plus_margin() {
    let Ok(Acquire::Grant { record, succeeds, holds: Holds::Alone }) =
        acquire(State::Free, &PLAIN, Turn::Now, TERMS, &mut Tokens::new(), NOW)
    else {
        panic!("a free lock is granted")
    };
    assert_eq!(record.encode().as_bytes(), b"1763710031.4829131763710000482913");
    assert_eq!(succeeds, None);
}

#[test]
fn recovering_an_expired_lock_reports_the_predecessor() {
    let state = State::of(Some(Value::Ours(ours(-2_500_000))), NOW);
    let Ok(Acquire::Grant { succeeds: Some(before), record, .. }) =
        recover(state, &PLAIN, Turn::Now, TERMS, &mut Tokens::new(), NOW)
    else {
        panic!("an expired lock is recovered")
    };
    assert_eq!(before.overdue, Micros(2_500_000));
    assert_eq!(before.token, Some(ours(0).token));
    assert_eq!(before.owner, Owner::parse(b"cron@db1"));
    assert!(record.token > ours(0).token);
}

#[test]
fn the_same_attempt_gets_its_token_again_and_never_a_shorter_lease() {
    let again = |lease, left_us| {
        let request = Request { lease, id: Id::parse(b"07"), ..PLAIN };
        acquire(State::of(Some(Value::Ours(ours(left_us))), NOW), &request, Turn::Now, TERMS, &mut Tokens::new(), NOW)
            .unwrap()
    };
    assert_eq!(again(LEASE, 40_000_000), Acquire::Keep(ours(40_000_000)));
    assert_eq!(again(LEASE, 31_000_000), Acquire::Keep(ours(31_000_000)), "that would be the same");
    assert_eq!(again(LEASE, 1), Acquire::Prolong(ours(31_000_000)));
}

#[test]
fn a_newcomer_never_overtakes_the_queue() {
    for state in states() {
        let tried = acquire(state, &PLAIN, Turn::Behind, TERMS, &mut Tokens::new(), NOW);
        assert_eq!(tried, Ok(Acquire::Refuse), "{state:?}");
        assert_eq!(
            recover(state, &PLAIN, Turn::Behind, TERMS, &mut Tokens::new(), NOW),
            Ok(Acquire::Refuse),
            "{state:?}"
        );
    }
    // The holder is not a newcomer.
    let request = Request { id: Id::parse(b"7"), ..PLAIN };
    let held = State::of(Some(Value::Ours(ours(1))), NOW);
    assert!(matches!(
        acquire(held, &request, Turn::Behind, TERMS, &mut Tokens::new(), NOW),
        Ok(Acquire::Prolong(record)) if record.token == ours(0).token
    ));
}

#[test]
fn a_lock_that_is_passed_on_has_no_predecessor_and_a_larger_token() {
    let ahead = Token::new(NOW.0 + 5).unwrap();
    let passed = pass_on(ahead, &PLAIN, TERMS, &mut Tokens::new(), NOW);
    let Ok(Acquire::Grant { record, succeeds: None, .. }) = passed else { panic!("{passed:?}") };
    assert!(record.token > ahead);
}

#[test]
fn a_session_that_ends_never_makes_its_lock_last_longer() {
    let ends = |left_us| end_session(State::of(Some(Value::Ours(ours(left_us))), NOW), ours(0).token, TERMS, NOW);
    assert_eq!(ends(30_000_000), Some(ours(1_000_000)));
    assert_eq!(ends(1_000_000), None);
    assert_eq!(ends(-1), None);
    let other = Token::new(1).unwrap();
    assert_eq!(end_session(State::of(Some(Value::Ours(ours(9_000_000))), NOW), other, TERMS, NOW), None);
}

#[test]
fn without_an_id_nobody_is_taken_for_the_holder() {
    let mut held = ours(1);
    held.id = None;
    let state = State::of(Some(Value::Ours(held)), NOW);
    assert_eq!(acquire(state, &PLAIN, Turn::Now, TERMS, &mut Tokens::new(), NOW), Ok(Acquire::Refuse));
}

#[test]
fn a_server_without_a_clock_grants_nothing() {
    let now = UnixMicros(100);
    assert_eq!(acquire(State::Free, &PLAIN, Turn::Now, TERMS, &mut Tokens::new(), now), Err(Error::Clock));
    let held = State::of(Some(Value::Ours(ours(1))), now);
    assert_eq!(extend(held, ours(0).token, LEASE, TERMS, now), Err(Error::Clock));
    assert_eq!(release(held, ours(0).token), Release::InTime);
}

#[test]
fn the_margin_does_not_belong_to_the_holder() {
    let left = |left_us| check(State::of(Some(Value::Ours(ours(left_us))), NOW), ours(0).token, TERMS, NOW);
    assert_eq!(left(1_500_000), Micros(500_000));
    assert_eq!(left(900_000), Micros(0));
    assert_eq!(left(-1), Micros(0));
}

#[test]
fn a_native_expiry_is_rounded_up() {
    assert_eq!(Retention::Ms(0).expire_at_ms(UnixMicros(1_001)), Some(2));
    assert_eq!(Retention::Ms(60_000).expire_at_ms(UnixMicros(1_000)), Some(60_001));
    assert_eq!(Retention::Forever.expire_at_ms(UnixMicros(1_000)), None);
}

/// A lock with one holder and a lock with several; attempt 7 holds both with grant `token`.
fn holders_of_7(token: u64) -> (Record<'static>, Holders) {
    let record = Record { token: Token::new(token).unwrap(), ..ours(9) };
    let mut holders: Holders = [Holder::of(&record)].into_iter().collect();
    holders.advance(NOW);
    (record, holders)
}

#[test]
fn an_attempt_that_asks_in_another_way_gets_an_error() {
    let (record, holders) = holders_of_7(5);
    let attempt = |share| Request { share, id: record.id, ..PLAIN };
    let (one, several) = (State::of(Some(Value::Ours(record)), NOW), State::Several(&holders));
    for (state, share, error) in [
        (one, Share::Shared, Error::HeldAlone),
        (one, Share::Limit(2), Error::HeldAlone),
        (several, Share::Alone, Error::HeldAmongSeveral),
    ] {
        let mut tokens = Tokens::new();
        assert_eq!(acquire(state, &attempt(share), Turn::Now, TERMS, &mut tokens, NOW), Err(error), "{share:?}");
        let all = acquire_all(&[State::Free, state], &attempt(share), Turn::Now, TERMS, &mut tokens, NOW);
        assert_eq!(all, Err(error), "{share:?}");
    }
}

#[test]
fn several_locks_are_granted_under_one_token_or_not_at_all() {
    let held = |token| State::of(Some(Value::Ours(holders_of_7(token).0)), NOW);
    let expired = |token| State::of(Some(Value::Ours(Record { timestamp: NOW, ..holders_of_7(token).0 })), NOW);
    let attempt = Request { id: ours(0).id, ..PLAIN };
    let decide = |states: &[State<'static>], tokens: &mut Tokens| {
        let decisions = acquire_all(states, &attempt, Turn::Now, TERMS, tokens, NOW).unwrap()?;
        Some(
            decisions
                .into_iter()
                .map(|decision| match decision {
                    Acquire::Grant { record, succeeds, .. } => ("grant", record.token.get(), succeeds.is_some()),
                    Acquire::Prolong(record) => ("prolong", record.token.get(), false),
                    Acquire::Keep(record) => ("keep", record.token.get(), false),
                    Acquire::Refuse => ("refuse", 0, false),
                })
                .collect::<Vec<_>>(),
        )
    };
    let ahead = NOW.0 + 5;
    let granted = vec![("grant", ahead + 1, false), ("grant", ahead + 1, true)];
    assert_eq!(
        decide(&[State::Free, expired(ahead)], &mut Tokens::new()),
        Some(granted),
        "larger than all tokens in the keys"
    );
    let mut tokens = Tokens::new();
    assert_eq!(decide(&[held(5), held(5)], &mut tokens), Some(vec![("prolong", 5, false); 2]));
    assert_eq!(tokens, Tokens::new(), "an attempt that holds them takes no token");
    for refused in [
        [held(5), held(6)],
        [held(5), State::Free],
        [expired(5), held(5)],
        [State::Free, State::Foreign],
        [State::Foreign, held(5)],
    ] {
        assert_eq!(decide(&refused, &mut Tokens::new()), None, "{refused:?}");
    }
}

#[test]
fn a_grant_keeps_its_form_unless_it_specifies_another() {
    let token = Token::new(5);
    for (holds, beside_one, beside_several, replaces) in [
        (Holds::AsBefore, false, true, None),
        (Holds::Alone, false, false, None),
        (Holds::Among { replaces: None }, true, true, None),
        (Holds::Among { replaces: token }, true, true, token),
    ] {
        let found = (holds.is_among(false), holds.is_among(true), holds.replaces());
        assert_eq!(found, (beside_one, beside_several, replaces), "{holds:?}");
    }
}
