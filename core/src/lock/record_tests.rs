//! Encoding and decoding values.

/// Proptest runs the fuzzer's property.
#[path = "../../../fuzz/properties/value.rs"]
mod property;

use super::*;
use proptest::prelude::*;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Fixture {
    ours: Vec<Ours>,
    others: BTreeMap<String, u64>,
    foreign: Foreign,
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
struct Foreign {
    always: Vec<String>,
    with_native_expiry: Vec<String>,
}

fn fixture() -> Fixture {
    toml::from_str(include_str!("../../../tests/fixtures/wire.toml")).expect("the fixture can be read")
}

/// Asserts how a value is read without and with a native expiry, and the timestamp it shows.
fn assert_read(text: &str, without: Value<'_>, with: Value<'_>, timestamp: Option<&str>) {
    assert_eq!(Value::read(text.as_bytes(), || false), without, "{text}");
    assert_eq!(Value::read(text.as_bytes(), || true), with, "{text}");
    assert_eq!(timestamp_text(without, text.as_bytes()), timestamp.map(str::as_bytes), "{text}");
}

#[test]
fn our_values_in_the_fixture_are_read_and_written_the_same() {
    for case in fixture().ours {
        let record = Record {
            timestamp: UnixMicros(case.timestamp_us),
            token: Token::new(case.token).unwrap(),
            id: case.id.as_deref().map(|id| Id::parse(id.as_bytes()).unwrap()),
            owner: case.owner.as_deref().map(|name| Owner::parse(name.as_bytes()).unwrap()),
        };
        assert_read(&case.text, Value::Ours(record), Value::Ours(record), Some(&case.text[..17]));
        assert_eq!(record.encode().as_bytes(), case.text.as_bytes());
    }
}

#[test]
fn a_value_that_is_too_long_for_a_number_is_foreign_however_it_begins() {
    let of = |length: usize| format!("1763710031.{:0<1$}", 5, length - 11);
    assert!(matches!(Value::read(of(128).as_bytes(), || false), Value::Classic(_)));
    for length in [129, 10_000] {
        assert_eq!(Value::read(of(length).as_bytes(), || false), Value::Foreign);
    }
}

#[test]
fn timestamps_of_others_count_only_without_a_native_expiry() {
    for (text, timestamp_us) in fixture().others {
        assert_read(&text, Value::Classic(UnixMicros(timestamp_us)), Value::Foreign, Some(&text));
    }
}

#[test]
fn everything_else_is_foreign() {
    let Foreign { always, with_native_expiry } = fixture().foreign;
    for text in always {
        assert_read(&text, Value::Foreign, Value::Foreign, None);
    }
    for text in with_native_expiry {
        assert_eq!(Value::read(text.as_bytes(), || true), Value::Foreign, "{text}");
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
fn pairs_and_fours_of_digits_are_written_as_the_standard_library_writes_them() {
    for number in 0..10_000 {
        for number in [number, number * 10_000, number * 10_001] {
            assert_eq!(eight_bytes(number).as_slice(), format!("{number:08}").as_bytes());
        }
    }
}

/// Values of all kinds and near misses, and sets of them, one per line.
fn any_value() -> impl Strategy<Value = Vec<u8>> {
    // The timestamps are close to each other, so that some of several holders have expired. The requests use ID 7.
    let ours = "17637100[0-9]{2}\\.[0-9]{6}17637100004829[0-9]{2}(0000000000000000007|[0-9]{19})?( [!-~]{1,128})?";
    let any_of_ours = "[0-9]{10}\\.[0-9]{22}([0-9]{19})?( [!-~]{1,128})?";
    prop_oneof![
        prop::collection::vec(ours, 1..5).prop_map(|values| values.join("\n").into_bytes()),
        any_of_ours.prop_map(String::into_bytes),
        "[0-9]{9,11}[.,][0-9]{20,44}( [ -~]{0,4})?".prop_map(String::into_bytes),
        "[1-9][0-9]{8,20}(\\.[0-9]{1,30})?".prop_map(String::into_bytes),
        any::<f64>().prop_map(|score| [&score.to_le_bytes()[..], b"1763710000482913"].concat()),
        prop::collection::vec(any::<u8>(), 0..200),
    ]
}

proptest! {
    #[test]
    fn numbers_are_read_as_the_standard_library_reads_them(text in "[0-9]{1,21}|[0-9]{0,9}[ -~][0-9]{0,9}|[^0-9]{8}") {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && text.len() <= 20;
        prop_assert_eq!(number(text.as_bytes()), if digits { text.parse().ok() } else { None });
    }

    #[test]
    fn numbers_are_written_as_the_standard_library_writes_them(number in 0..10_u64.pow(19), last in 0..10_u64.pow(16)) {
        let token = Token::new(last % Token::MAX).unwrap();
        let record = Record { timestamp: UnixMicros(last), token, id: Id::parse(number.to_string().as_bytes()), owner: None };
        let (seconds, micros) = (last / 1_000_000, last % 1_000_000);
        let expected = format!("{seconds:010}.{micros:06}{:016}{number:019}", token.get());
        let encoded = record.encode();
        prop_assert_eq!(encoded.as_bytes(), expected.as_bytes());
        prop_assert_eq!(encoded.record(), Some(record));
    }

    #[test]
    fn eight_bytes_are_a_number_only_if_all_are_digits(bytes: [u8; 8]) {
        let expected = std::str::from_utf8(&bytes).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        prop_assert_eq!(number(&bytes), expected.and_then(|text| text.parse().ok()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8 * ProptestConfig::default().cases))]
    #[test]
    fn values_are_read_and_decided_on_as_the_contract_says(value in any_value()) {
        property::check(&value);
    }
}
