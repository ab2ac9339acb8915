//! The value of a key: it is ours only in the exact format, a value that is read is written back unchanged, and no
//! value makes a decision fail or give a lock to two holders. The fuzzer runs it, and so does proptest in
//! `core/src/lock/record_tests.rs`.

use redis_lock::lock::admit::{self, Acquire, Holds, Turn};
use redis_lock::lock::error::Error;
use redis_lock::lock::held::{self, Release};
use redis_lock::lock::holders::{Holder, Holders};
use redis_lock::lock::record::{timestamp_text, Id, Owner, Record, Value};
use redis_lock::lock::request::{Request, Share};
use redis_lock::lock::state::State;
use redis_lock::lock::terms::Terms;
use redis_lock::lock::time::{Micros, UnixMicros};
use redis_lock::lock::token::{Token, Tokens};

/// Tokens grow, and begin again after the largest that a grant can have.
fn follows(token: Token, before: Token) -> bool {
    token.is_valid() && (token > before || before.get() == Token::MAX - 1)
}

/// The input is the value.
pub fn check(bytes: &[u8]) {
    let expected = expected(bytes);
    let with_expiry = if matches!(expected, Value::Ours(_)) { expected } else { Value::Foreign };
    assert_eq!(Value::read(bytes, || false), expected);
    assert_eq!(Value::read(bytes, || true), with_expiry);
    if let Value::Ours(record) = expected {
        assert_eq!(record.encode().as_bytes(), bytes);
        assert_eq!((record.encode().timestamp(), record.encode().token()), (record.timestamp, record.token));
    }
    let timestamp = match expected {
        Value::Ours(record) => record.timestamp,
        Value::Classic(timestamp) => timestamp,
        Value::Foreign => UnixMicros(1_763_710_031_482_913),
    };
    let text = timestamp_text(expected, bytes);
    assert_eq!(text.is_some(), expected != Value::Foreign);
    assert!(text.is_none_or(|text| bytes.starts_with(text)));
    for now in [timestamp.0.saturating_sub(1), timestamp.0, timestamp.0.saturating_add(1)] {
        decide(expected, UnixMicros(now));
    }
    check_set(bytes);
}

/// The value according to the contract, read without the crate's code.
fn expected(bytes: &[u8]) -> Value<'_> {
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if text.len() >= 33 && text.is_ascii() && digits(&text[..10]) && &text[10..11] == "." && digits(&text[11..33]) {
        let mut rest = &text[33..];
        let mut id = None;
        if rest.len() >= 19 && digits(&rest[..19]) {
            id = Id::parse(&rest.as_bytes()[..19]);
            rest = &rest[19..];
        }
        let length = rest.len();
        let visible =
            |name: &str| (1..=128).contains(&name.len()) && name.bytes().all(|byte| (33..=126).contains(&byte));
        let micros = format!("{}{}", &text[..10], &text[11..17]).parse().unwrap();
        let token: u64 = text[17..33].parse().unwrap();
        let owner = rest.strip_prefix(' ').filter(|name| visible(name)).map(|_| &bytes[bytes.len() - length + 1..]);
        if rest.is_empty() || owner.is_some() {
            if token >= Token::MAX {
                return Value::Foreign;
            }
            let (timestamp, token) = (UnixMicros(micros), Token::new(token).unwrap());
            return Value::Ours(Record { timestamp, token, id, owner: owner.and_then(Owner::parse) });
        }
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, "0"));
    if text.len() > 128 || !digits(whole) || !digits(fraction) || whole.starts_with('0') || whole.len() > 20 {
        return Value::Foreign;
    }
    let number: u128 = whole.parse().unwrap();
    let in_seconds = (1_000_000_000..100_000_000_000).contains(&number);
    let micros = match whole.len() {
        _ if in_seconds => {
            let padded = format!("{fraction:0<6}");
            let rounds_up = padded[6..].bytes().any(|digit| digit != b'0');
            number * 1_000_000 + padded[..6].parse::<u128>().unwrap() + u128::from(rounds_up)
        }
        _ if text.contains('.') => return Value::Foreign,
        13 | 14 => number * 1_000,
        16 | 17 => number,
        19 if number < 9_200_000_000_000_000_000 => number.div_ceil(1_000),
        _ => return Value::Foreign,
    };
    Value::Classic(UnixMicros(micros.try_into().unwrap()))
}

/// The decisions on all callers' commands when the key has this value.
fn decide(value: Value<'_>, now: UnixMicros) {
    let terms = Terms { margin: Micros(1_000_000) };
    let request =
        Request { share: Share::Alone, lease: Micros(30_000_000), id: Id::parse(b"7"), owner: Owner::parse(b"fuzz") };
    let state = State::of(Some(value), now);
    let mut tokens = Tokens::new();
    let acquired = admit::acquire(state, &request, Turn::Now, terms, &mut tokens, now);
    let recovered = admit::recover(state, &request, Turn::Now, terms, &mut tokens, now);
    let ours = if let Value::Ours(record) = value { Some(record) } else { None };
    let is_taken = match value {
        Value::Foreign => true,
        Value::Classic(timestamp) => timestamp > now,
        Value::Ours(record) => record.timestamp > now,
    };
    assert_eq!(state.is_nobodys(), !is_taken);
    match (state, acquired) {
        (State::Expired(..), Ok(Acquire::Grant { record, succeeds, holds })) => {
            assert_eq!(holds, Holds::Alone);
            assert_eq!(record.timestamp.0, now.0 + 31_000_000);
            assert!(ours.is_none_or(|before| follows(record.token, before.token)), "a key's tokens grow");
            assert_eq!(succeeds.unwrap().token, ours.map(|before| before.token));
            assert_eq!(Value::read(record.encode().as_bytes(), || true), Value::Ours(record));
            assert!(matches!(recovered, Ok(Acquire::Grant { .. })));
        }
        (State::Expired(..), Err(_)) => assert!(!now.is_plausible()),
        (State::Held(_, Some(held)), Ok(Acquire::Prolong(record) | Acquire::Keep(record))) => {
            assert_eq!((held.id, held.token, held.owner), (request.id, record.token, record.owner));
            assert!(record.timestamp >= held.timestamp, "its lease is never made shorter");
        }
        (State::Held(_, held), Ok(Acquire::Refuse)) => assert!(held.is_none_or(|held| held.id != request.id)),
        (State::Held(_, Some(held)), Err(_)) => assert!(held.id == request.id && !now.is_plausible()),
        (State::Foreign, Ok(Acquire::Refuse)) => {}
        other => panic!("{other:?}"),
    }
    let refused = admit::acquire(state, &request, Turn::Behind, terms, &mut tokens, now);
    assert!(!matches!(refused, Ok(Acquire::Grant { .. })), "granted ahead of the waiters");
    if let Some(record) = ours {
        let is_held = record.timestamp > now;
        assert_eq!(held::release(state, record.token), if is_held { Release::InTime } else { Release::Late });
        let other = Token::new(record.token.get() ^ 1).unwrap();
        assert_eq!(held::release(state, other), Release::Over);
        assert_eq!(held::extend(state, other, request.lease, terms, now), Ok(None));
        assert_eq!(held::check(state, other, terms, now), Micros(0));
        if let Ok(Some(extended)) = held::extend(state, record.token, request.lease, terms, now) {
            assert!(is_held && extended.timestamp > now && extended.token == record.token);
        }
    } else {
        assert_eq!(held::release(state, Token::new(0).unwrap()), Release::Over);
    }
}

/// The input is a sorted set. Each line is a member: eight bytes of its score, then the member itself.
fn check_set(bytes: &[u8]) {
    let mut holders = Holders::new();
    let mut plain: Vec<Record<'_>> = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        // Without a score, the member gets the score that it would have in a value of ours.
        let as_value = line.get(10) == Some(&b'.') && line.len() > 17;
        let (score, member) = match line.split_first_chunk() {
            _ if as_value => (String::from_utf8_lossy(&line[..17]).parse().unwrap_or(-1.0), &line[17..]),
            Some((score, member)) => (f64::from_le_bytes(*score), member),
            None => (1_763_710_031.482_913, line),
        };
        let read = Record::read_member(score, member);
        assert_eq!(read, expected_member(score, member));
        let Some(record) = read else { continue };
        assert_eq!(record.encode().member(), member, "a member is written back unchanged");
        assert_eq!(record.encode().record(), Some(record));
        // The score is as precise as the timestamp until 2106, when the seconds need 33 bits.
        if record.timestamp.0 < 4_294_967_296_000_000 {
            let written = std::str::from_utf8(record.encode().score()).unwrap().parse().unwrap();
            assert_eq!(Record::read_member(written, member), Some(record));
        }
        if plain.iter().all(|known| known.token != record.token) {
            plain.push(record);
            holders.put(Holder::of(&record));
        }
    }
    let Some(first) = plain.iter().map(|record| record.timestamp.0).min() else { return };
    let last = plain.iter().map(|record| record.timestamp.0).max().unwrap();
    for now in [first.saturating_sub(1), first, last.saturating_sub(1), last, 1_763_710_031_482_913] {
        holders.advance(UnixMicros(now));
        decide_among(&holders, &plain, UnixMicros(now));
    }
}

/// A member with its score means the same as a value that begins with the score.
fn expected_member(score: f64, member: &[u8]) -> Option<Record<'_>> {
    if !(0.0..1e10).contains(&score) {
        return None;
    }
    // Doubles are at most 2 microseconds apart there, and the number is at most 10^16.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let micros = (score * 1e6).round() as u64;
    let value = [b"0000000000.000000", member].concat();
    let Value::Ours(record) = expected(&value) else { return None };
    let owner = record.owner.and_then(|owner| Owner::parse(&member[member.len() - owner.as_bytes().len()..]));
    Some(Record { timestamp: UnixMicros(micros), token: record.token, id: record.id, owner })
}

/// The decisions on all callers' commands when the key has these holders.
fn decide_among(holders: &Holders, plain: &[Record<'_>], now: UnixMicros) {
    let terms = Terms { margin: Micros(1_000_000) };
    let state = State::Several(holders);
    let live: Vec<&Record<'_>> = plain.iter().filter(|record| record.timestamp > now).collect();
    let overdue =
        plain.iter().filter(|record| record.timestamp <= now).min_by_key(|known| (known.timestamp, known.token));
    let own = live.iter().any(|record| record.id == Id::parse(b"7"));
    assert_eq!((state.is_nobodys(), state.is_expired()), (live.is_empty(), live.is_empty()));
    for share in [Share::Alone, Share::Shared, Share::Limit(1), Share::Limit(2), Share::Limit(plain.len() as u64)] {
        let owner = Owner::parse(b"fuzz");
        let request = Request { share, lease: Micros(30_000_000), id: Id::parse(b"7"), owner };
        let mut tokens = Tokens::new();
        let is_admitted = (live.len() as u64) < share.most();
        match admit::acquire(state, &request, Turn::Now, terms, &mut tokens, now) {
            Ok(Acquire::Grant { record, succeeds, holds }) => {
                assert!(is_admitted && record.timestamp > now);
                let last = plain.iter().map(|before| before.token).max();
                assert!(last.is_none_or(|last| follows(record.token, last)), "a key's tokens grow");
                // A caller that needs a slot takes that of the longest-overdue holder.
                let before = overdue.filter(|_| plain.len() as u64 >= share.most());
                assert_eq!(succeeds.map(|before| before.token), before.map(|before| Some(before.token)));
                let replaces = before.map(|before| before.token);
                let among = if share == Share::Alone { Holds::Alone } else { Holds::Among { replaces } };
                assert_eq!(holds, among);
            }
            // An attempt that already holds the lock; a fuzzed set may have it twice.
            Ok(Acquire::Prolong(record) | Acquire::Keep(record)) => {
                assert!(own && record.id == request.id && record.timestamp > now && share != Share::Alone);
            }
            // The attempt may belong to an expired holder and to a live one.
            Ok(Acquire::Refuse) => assert!(!is_admitted),
            Err(Error::HeldAmongSeveral) => assert!(own && share == Share::Alone),
            Err(_) => assert!(!now.is_plausible()),
        }
        assert!(!matches!(
            admit::acquire(state, &request, Turn::Behind, terms, &mut tokens, now),
            Ok(Acquire::Grant { .. })
        ));
        let recovered = admit::recover(state, &request, Turn::Now, terms, &mut tokens, now);
        assert!(live.is_empty() || recovered == Ok(Acquire::Refuse));
        // When fewer holders are live than it allows, not before.
        let ends = state.free_at(share);
        assert_eq!(ends.is_none(), is_admitted);
        let left = |at: UnixMicros| live.iter().filter(|record| record.timestamp > at).count() as u64;
        assert!(ends.is_none_or(|at| left(at) < share.most() && left(UnixMicros(at.0 - 1)) >= share.most()));
    }
    for record in plain {
        let is_live = record.timestamp > now;
        assert_eq!(held::release(state, record.token), if is_live { Release::InTime } else { Release::Late });
        match held::extend(state, record.token, Micros(5_000_000), terms, now) {
            Ok(extended) => assert_eq!(extended.map(|extended| extended.token), is_live.then_some(record.token)),
            Err(_) => assert!(is_live && !now.is_plausible()),
        }
        assert!(is_live || held::check(state, record.token, terms, now) == Micros(0));
    }
    let stranger = plain.iter().map(|record| record.token.get()).max().unwrap() + 1;
    assert_eq!(held::release(state, Token::new(stranger).unwrap()), Release::Over);
}
