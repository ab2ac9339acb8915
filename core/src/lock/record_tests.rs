//! Values, there and back.

use super::*;
use proptest::prelude::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct Fixture {
    ours: Vec<Ours>,
    others: Vec<Others>,
    foreign: Vec<Foreign>,
}

#[derive(Deserialize)]
struct Ours {
    text: String,
    timestamp_us: u64,
    token: u64,
    id: Option<String>,
    owner: Option<String>,
}

#[derive(Deserialize)]
struct Others {
    text: String,
    timestamp_us: u64,
}

#[derive(Deserialize)]
struct Foreign {
    text: String,
    #[serde(default)]
    native_expiry: bool,
}

fn fixture() -> Fixture {
    toml::from_str(include_str!("../../../tests/fixtures/wire.toml")).expect("the fixture can be read")
}

#[test]
fn values_of_the_fixture_that_are_ours_are_read_and_written_the_same() {
    for case in fixture().ours {
        let record = Record {
            timestamp: UnixMicros(case.timestamp_us),
            token: Token::new(case.token).unwrap(),
            id: case.id.as_deref().map(|id| Id::parse(id.as_bytes()).unwrap()),
            owner: case.owner.as_deref().map(|name| Owner::parse(name.as_bytes()).unwrap()),
        };
        for expiry in [false, true] {
            assert_eq!(Value::read(case.text.as_bytes(), || expiry), Value::Ours(record), "{}", case.text);
        }
        assert_eq!(record.encode().as_bytes(), case.text.as_bytes());
    }
}

#[test]
fn timestamps_of_others_count_only_without_a_native_expiry() {
    for case in fixture().others {
        let expected = Value::Classic(UnixMicros(case.timestamp_us));
        assert_eq!(Value::read(case.text.as_bytes(), || false), expected, "{}", case.text);
        assert_eq!(Value::read(case.text.as_bytes(), || true), Value::Foreign, "{}", case.text);
    }
}

#[test]
fn the_longest_value_just_fits() {
    let name = [b'x'; Owner::MAX];
    let record = Record {
        timestamp: UnixMicros(9_999_999_999_999_999),
        token: Token::new(Token::MAX - 1).unwrap(),
        id: Id::parse(&[b'9'; ID]),
        owner: Owner::parse(&name),
    };
    let encoded = record.encode();
    assert_eq!(encoded.as_bytes().len(), Encoded::MAX);
    assert_eq!(Value::read(encoded.as_bytes(), || false), Value::Ours(record));
}

#[test]
fn the_timestamp_is_told_as_it_stands_in_the_value() {
    let Fixture { ours, others, foreign } = fixture();
    let told = |text: &str| timestamp_text(Value::read(text.as_bytes(), || false), text.as_bytes()).map(<[u8]>::to_vec);
    for case in ours {
        assert_eq!(told(&case.text), Some(case.text.as_bytes()[..17].to_vec()), "{}", case.text);
    }
    for case in others {
        assert_eq!(told(&case.text), Some(case.text.as_bytes().to_vec()), "{}", case.text);
    }
    for case in foreign.iter().filter(|case| !case.native_expiry) {
        assert_eq!(told(&case.text), None, "{}", case.text);
    }
}

#[test]
fn everything_else_is_foreign() {
    for case in fixture().foreign {
        assert_eq!(Value::read(case.text.as_bytes(), || case.native_expiry), Value::Foreign, "{}", case.text);
    }
}

prop_compose! {
    fn any_record()(
        seconds in 0..10_000_000_000_u64,
        micros in 0..1_000_000_u64,
        token in 0..Token::MAX,
        id in prop::option::of(0..10_000_000_000_000_000_000_u64),
        owner in prop::option::of("[!-~]{1,128}"),
    ) -> (u64, u64, Option<u64>, Option<String>) {
        (seconds * PER_SECOND + micros, token, id, owner)
    }
}

proptest! {
    #[test]
    fn numbers_are_read_as_the_standard_library_reads_them(text in "[0-9]{1,21}|[0-9]{0,9}[ -~][0-9]{0,9}|[^0-9]{8}") {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && text.len() <= 20;
        prop_assert_eq!(number(text.as_bytes()), if digits { text.parse().ok() } else { None });
    }

    #[test]
    fn eight_bytes_are_a_number_only_if_all_are_digits(bytes: [u8; 8]) {
        let expected = std::str::from_utf8(&bytes).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        prop_assert_eq!(number(&bytes), expected.and_then(|text| text.parse().ok()));
    }

    #[test]
    fn what_is_written_is_read_back((timestamp, token, id, owner) in any_record()) {
        let record = Record {
            timestamp: UnixMicros(timestamp),
            token: Token::new(token).unwrap(),
            id: id.map(Id),
            owner: owner.as_deref().and_then(|name| Owner::parse(name.as_bytes())),
        };
        let encoded = record.encode();
        prop_assert_eq!(Value::read(encoded.as_bytes(), || true), Value::Ours(record));
        // To a reader of floats it is the timestamp, to within a float's grain.
        let number = String::from_utf8_lossy(encoded.as_bytes());
        let float: f64 = number.split(' ').next().unwrap().parse().unwrap();
        #[allow(clippy::cast_precision_loss)]
        let seconds = timestamp as f64 / 1e6;
        prop_assert!((float - seconds).abs() < 0.000_01);
    }

    #[test]
    fn a_member_with_its_score_says_what_the_value_says(
        (timestamp, token, id, owner) in any_record(),
    ) {
        // Until 2106, when the seconds need 33 bits; from then on to within a microsecond.
        let record = Record {
            timestamp: UnixMicros(timestamp % 4_294_967_296_000_000),
            token: Token::new(token).unwrap(),
            id: id.map(Id),
            owner: owner.as_deref().and_then(|name| Owner::parse(name.as_bytes())),
        };
        let encoded = record.encode();
        let score: f64 = std::str::from_utf8(encoded.score()).unwrap().parse().unwrap();
        prop_assert_eq!(Record::read_member(score, encoded.member()), Some(record));
        prop_assert_eq!(encoded.record(), Some(record));
    }

    #[test]
    fn a_score_that_is_no_timestamp_is_not_ours(score: f64) {
        let read = Record::read_member(score, b"1763710000482913");
        prop_assert_eq!(read.is_some(), (0.0..1e10).contains(&score));
    }

    #[test]
    fn arbitrary_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200), expiry: bool) {
        if let Value::Ours(record) = Value::read(&bytes, || expiry) {
            prop_assert!(record.encode().as_bytes() == bytes);
        }
    }

    #[test]
    fn near_misses_of_ours_are_written_back_or_foreign(
        text in "[0-9]{9,11}[.,][0-9]{20,44}( [ -~]{0,4})?",
    ) {
        match Value::read(text.as_bytes(), || true) {
            Value::Ours(record) => prop_assert!(record.encode().as_bytes() == text.as_bytes()),
            other => prop_assert_eq!(other, Value::Foreign),
        }
    }

    #[test]
    fn whole_seconds_with_any_fraction_round_up(seconds in 1_000_000_000..100_000_000_000_u64, fraction in "[0-9]{1,30}") {
        let text = format!("{seconds}.{fraction}");
        let padded = format!("{fraction:0<6}");
        let (head, tail) = padded.split_at(6);
        let micros = head.parse::<u64>().unwrap() + u64::from(tail.bytes().any(|digit| digit != b'0'));
        let read = Value::read(text.as_bytes(), || false);
        // Ten digits, six and sixteen are the shape of ours.
        let is_of_our_shape = seconds < 10_000_000_000 && fraction.len() == 22;
        if !is_of_our_shape {
            prop_assert_eq!(read, Value::Classic(UnixMicros(seconds * PER_SECOND + micros)));
        }
    }
}
