//! Checks which commands each write turns into.

use super::*;
use crate::lock::record::Record;

const NOW: UnixMicros = UnixMicros(1_763_710_000_000_000);
const NOW_MS: u64 = NOW.0 / 1_000;
/// Expired locks and holders stay for a minute.
const MINUTE: Retentions = Retentions { key: Retention::Ms(60_000), holder: Retention::Ms(60_000) };
const FOREVER: Retentions = Retentions { key: Retention::Forever, holder: Retention::Forever };

/// A grant with this number that ends `left_s` from now.
fn record(number: u64, left_s: i64) -> Record<'static> {
    let timestamp = UnixMicros(NOW.0.saturating_add_signed(left_s * 1_000_000));
    Record { timestamp, token: Token::new(number).unwrap(), id: None, owner: None }
}

fn members(records: &[Record<'_>]) -> Members {
    let mut holders: Holders = records.iter().map(Holder::of).collect();
    holders.advance(NOW);
    Members { holders, ended: Vec::new() }
}

/// The commands of a change; times in seconds from now.
fn commands(change: &Change<'_>) -> Vec<String> {
    let in_s = |ms: u64| i64::try_from(ms).unwrap().wrapping_sub(i64::try_from(NOW_MS).unwrap()) / 1_000;
    let mut all = Vec::new();
    let done: Result<(), ()> = change.try_each(|primitive| {
        all.push(match primitive {
            Primitive::Set { value, expire_at_ms } => {
                format!("SET {} {:?}", value.token().get(), expire_at_ms.map(in_s))
            }
            Primitive::Del => "DEL".into(),
            Primitive::Zadd(value) => format!("ZADD {}", value.token().get()),
            Primitive::Zrem(holder) => format!("ZREM {}", holder.token.get()),
            Primitive::PexpireAt(ms) => format!("PEXPIREAT {}", in_s(ms)),
            Primitive::Persist => "PERSIST".into(),
        });
        Ok(())
    });
    assert_eq!(done, Ok(()));
    all
}

/// Writes grant 3, which ends in five seconds, into a set.
fn put(holds: Holds, in_set: &[Record<'_>], has_expiry: bool, retentions: &Retentions) -> (Vec<String>, Members) {
    let (value, mut members) = (record(3, 5).encode(), members(in_set));
    let contents = Contents::Members { members: &mut members, has_expiry };
    let written = commands(&Change::of(Write::Value(&value, holds), contents, || *retentions, NOW));
    (written, members)
}

const AMONG: Holds = Holds::Among { replaces: None };

#[test]
fn one_holder_is_a_string_whatever_was_there() {
    let value = record(3, 5).encode();
    for holds in [Holds::Alone, Holds::AsBefore] {
        for contents in [Contents::Nothing, Contents::String, Contents::One] {
            assert_eq!(
                commands(&Change::of(Write::Value(&value, holds), contents, || MINUTE, NOW)),
                ["SET 3 Some(65)"]
            );
        }
    }
    assert_eq!(
        commands(&Change::of(Write::Value(&value, Holds::Alone), Contents::One, || FOREVER, NOW)),
        ["SET 3 None"]
    );
    assert_eq!(put(Holds::Alone, &[record(1, -1)], true, &MINUTE).0, ["SET 3 Some(65)"]);
    for contents in [Contents::Nothing, Contents::String, Contents::One] {
        assert_eq!(commands(&Change::of(Write::Release, contents, || MINUTE, NOW)), ["DEL"]);
    }
}

#[test]
fn the_first_of_several_makes_a_set_and_a_string_makes_room_for_it() {
    let value = record(3, 5).encode();
    let write = Write::Value(&value, AMONG);
    for (contents, expected) in
        [(Contents::Nothing, &["ZADD 3", "PEXPIREAT 65"][..]), (Contents::String, &["DEL", "ZADD 3", "PEXPIREAT 65"])]
    {
        let change = Change::of(write, contents, || MINUTE, NOW);
        assert_eq!(commands(&change), expected);
        let Change::Several(Several { made: Some(made), .. }) = change else { panic!("no set is created") };
        assert_eq!(made.holders.tokens().map(Token::get).collect::<Vec<_>>(), [3]);
    }
    assert_eq!(commands(&Change::of(write, Contents::Nothing, || FOREVER, NOW)), ["ZADD 3"]);
    assert!(write.needs_room());
    assert!(!Write::Release.needs_room());
    assert!(![Holds::Alone, Holds::AsBefore].iter().any(|holds| Write::Value(&value, *holds).needs_room()));
}

#[test]
fn a_set_expires_natively_with_its_last_holder() {
    let several = [record(1, 1), record(2, 9)];
    for holds in [AMONG, Holds::AsBefore] {
        assert_eq!(put(holds, &several, true, &MINUTE).0, ["ZADD 3"], "it ends before the last");
        assert_eq!(put(holds, &several[..1], true, &MINUTE).0, ["ZADD 3", "PEXPIREAT 65"]);
        assert_eq!(put(holds, &several, false, &MINUTE).0, ["ZADD 3", "PEXPIREAT 69"], "it had no expiry");
        assert_eq!(put(holds, &several, true, &FOREVER).0, ["ZADD 3", "PERSIST"]);
        assert_eq!(put(holds, &several, false, &FOREVER).0, ["ZADD 3"]);
    }
    // A renewed lease that was the last to end.
    assert_eq!(put(Holds::AsBefore, &[record(1, 1), record(3, 9)], true, &MINUTE).0, ["ZADD 3", "PEXPIREAT 65"]);
}

#[test]
fn a_holder_is_added_before_the_ones_it_replaces_are_removed() {
    let replaces = Holds::Among { replaces: Token::new(1) };
    let (written, left) = put(replaces, &[record(1, -1), record(2, 9)], true, &MINUTE);
    assert_eq!(written, ["ZADD 3", "ZREM 1"]);
    assert_eq!(left.holders.tokens().map(Token::get).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(left.holders.live(), 2);
    // A holder is forgotten a minute after its end, not before.
    let old = [record(1, -60), record(2, -59)];
    assert_eq!(put(AMONG, &old, true, &MINUTE).0, ["ZADD 3", "ZREM 1", "PEXPIREAT 65"]);
    assert_eq!(put(AMONG, &old, false, &FOREVER).0, ["ZADD 3", "ZREM 1"], "even where keys stay forever");
    // One write removes `MOST_FORGOTTEN` of them, a later one the rest.
    let many: Vec<_> = (10..30).map(|number| record(number, -99)).collect();
    let (written, left) = put(AMONG, &many, true, &MINUTE);
    assert_eq!((written.len(), left.holders.len()), (1 + MOST_FORGOTTEN + 1, 20 - MOST_FORGOTTEN + 1));
}

#[test]
fn a_grant_that_ends_among_several_is_taken_out() {
    for (ends, expected) in [(1, &["ZREM 1"][..]), (2, &["ZREM 2", "PEXPIREAT 65"]), (3, &["ZREM 3"])] {
        let mut members = members(&[record(1, 1), record(2, 9), record(3, 5)]);
        assert!(members.end(Token::new(ends).unwrap()));
        assert!(!members.end(Token::new(ends).unwrap()), "it has ended");
        let contents = Contents::Members { members: &mut members, has_expiry: true };
        assert_eq!(commands(&Change::of(Write::Release, contents, || MINUTE, NOW)), expected);
        assert!(members.ended.is_empty());
    }
    // Removing the last holder removes the key and its expiry.
    for (has_expiry, retentions) in [(true, &MINUTE), (false, &MINUTE), (true, &FOREVER), (false, &FOREVER)] {
        let mut members = members(&[record(1, 1)]);
        members.end(Token::new(1).unwrap());
        let contents = Contents::Members { members: &mut members, has_expiry };
        assert_eq!(commands(&Change::of(Write::Release, contents, || *retentions, NOW)), ["ZREM 1"]);
    }
}

#[test]
fn nothing_is_done_after_a_command_that_failed() {
    let value = record(3, 5).encode();
    let change = Change::of(Write::Value(&value, AMONG), Contents::String, || MINUTE, NOW);
    for fails in 1..=3 {
        let mut done = 0;
        let result = change.try_each(|_| {
            done += 1;
            if done == fails {
                Err(done)
            } else {
                Ok(())
            }
        });
        assert_eq!((result, done), (Err(fails), fails));
    }
}
