//! Arguments are read according to the contract, and the first wrong argument is named.

use super::*;
use proptest::prelude::*;

const ALL: [Name; 7] = [Name::Ex, Name::Px, Name::Id, Name::Owner, Name::Wait, Name::Session, Name::Details];

fn parse<'a>(args: &[&'a [u8]]) -> Result<Options<'a>, Error> {
    Options::parse(&args, 0, "LOCK.ACQUIRE", &ALL)
}

#[test]
fn options_come_in_any_order_and_case() {
    let expected = parse(&[b"EX", b"30", b"ID", b"7", b"OWNER", b"me", b"DETAILS"]).unwrap();
    let again = parse(&[b"details", b"oWner", b"me", b"Id", b"007", b"px", b"30000"]).unwrap();
    assert_eq!(expected, again);
    assert_eq!(expected.request().unwrap().lease, Micros(30_000_000));
}

#[test]
fn the_first_wrong_argument_is_named() {
    let error = |args: &[&'static [u8]]| parse(args).and_then(|options| options.request()).unwrap_err();
    assert_eq!(error(&[]), Error::LeaseMissing);
    assert_eq!(error(&[b"EX", b"1", b"PX", b"x"]), Error::LeaseTwice);
    assert_eq!(error(&[b"ID", b"x", b"EX", b"0"]), Error::Id);
    assert_eq!(error(&[b"EX"]), Error::NoValue("EX"));
    assert_eq!(error(&[b"OWNER", b"a", b"owner", b"b"]), Error::Twice("OWNER"));
    assert_eq!(error(&[b"EX", b"1", b"NX"]), Error::NotAnOption { position: 3, command: "LOCK.ACQUIRE" });
}

#[test]
fn a_lease_is_one_millisecond_to_ten_years() {
    for good in [&[b"PX", &b"1"[..]], &[b"PX", b"315360000000"], &[b"EX", b"315360000"], &[b"EX", b"01"]] {
        assert!(parse(good).is_ok());
    }
    for bad in ["0", "-1", "+1", "1.5", "", " 1", "315360000001", "9223372036854775808", "18446744073709551616"] {
        assert_eq!(parse(&[b"PX", bad.as_bytes()]), Err(Error::Lease), "{bad}");
    }
    assert_eq!(parse(&[b"EX", b"315360001"]), Err(Error::Lease));
}

#[test]
fn a_wait_is_zero_to_ten_years() {
    let waits = |text: &'static [u8]| parse(&[b"WAIT", text]).map(|options| options.wait());
    assert_eq!(waits(b"0"), Ok(Micros(0)));
    assert_eq!(waits(b"315360000000"), Ok(Micros(315_360_000_000_000)));
    for bad in [&b"-1"[..], b"", b"1.5", b"315360000001", b"99999999999999999999999", b"x"] {
        assert_eq!(parse(&[b"WAIT", bad]), Err(Error::Wait));
    }
}

#[test]
fn a_limit_has_bounds_and_shared_has_none() {
    let share = |args: &[&'static [u8]]| parse_all(args).and_then(|options| options.request()).map(|asks| asks.share);
    assert_eq!(share(&[b"EX", b"1"]), Ok(Share::Alone));
    assert_eq!(share(&[b"EX", b"1", b"shared"]), Ok(Share::Shared));
    assert_eq!(share(&[b"LIMIT", b"4096", b"EX", b"1"]), Ok(Share::Limit(4_096)));
    for bad in [&b"0"[..], b"-1", b"4097", b"", b"x", b"99999999999999999999999"] {
        assert_eq!(parse_all(&[b"LIMIT", bad]), Err(Error::Limit));
    }
    assert_eq!(share(&[b"SHARED", b"LIMIT", b"2"]), Err(Error::ShareTwice));
    assert_eq!(share(&[b"LIMIT", b"2", b"SHARED"]), Err(Error::ShareTwice));
    assert_eq!(share(&[b"SHARED", b"SHARED"]), Err(Error::Twice("SHARED")));
    assert_eq!(share(&[b"LIMIT", b"2", b"LIMIT", b"2"]), Err(Error::Twice("LIMIT")));
    assert_eq!(share(&[b"LIMIT"]), Err(Error::NoValue("LIMIT")));
}

fn parse_all<'a>(args: &[&'a [u8]]) -> Result<Options<'a>, Error> {
    Options::parse(&args, 0, "LOCK.ACQUIRE", &[Name::Ex, Name::Shared, Name::Limit])
}

#[test]
fn keys_are_counted_and_have_to_fit() {
    let found = |args: &[&'static [u8]]| keys(&args, 1);
    assert_eq!(found(&[b"1", b"a", b"t"]), Ok(1..2));
    assert_eq!(found(&[b"2", b"a", b"b", b"t"]), Ok(1..3));
    for bad in
        [&b"0"[..], b"02", b"+2", b"-1", b"3", b"1.0", b"", b"x", b"18446744073709551615", b"99999999999999999999999"]
    {
        assert_eq!(found(&[bad, b"a", b"b", b"t"]), Err(Error::NumKeys));
    }
    assert_eq!(found(&[]), Err(Error::NumKeys));
    assert_eq!(found(&[b"1"]), Err(Error::NumKeys));
    let many: Vec<&[u8]> = std::iter::once(&b"1025"[..]).chain(std::iter::repeat_n(&b"a"[..], 2_000)).collect();
    assert_eq!(keys(&many.as_slice(), 0), Err(Error::NumKeys));
}

#[test]
fn a_long_key_is_named_after_earlier_errors() {
    let (longest, longer) = (vec![b'k'; 4_096], vec![b'k'; 4_097]);
    assert_eq!(key_to_take(&longest), Ok(()));
    assert_eq!(key_to_take(&longer), Err(Error::KeyLength));
    let take = |names: &[&[u8]]| {
        let args: Vec<&[u8]> = [&b"n"[..]].iter().chain(names).copied().collect();
        keys_to_take(&args.as_slice(), 1..args.len())
    };
    assert_eq!(take(&[b"a", &longest]), Ok(()));
    assert_eq!(take(&[b"a", &longer]), Err(Error::KeyLengthOf(2)));
    assert_eq!(take(&[&longer, b"a", b"a"]), Err(Error::KeyLengthOf(1)));
    assert_eq!(take(&[b"a", b"a", &longer]), Err(Error::SameKey { key: 2, earlier: 1 }));
    assert_eq!(take(&[&longer, &longer]), Err(Error::KeyLengthOf(1)));
}

#[test]
fn keys_whose_names_are_too_long_together_are_named() {
    let names: Vec<Vec<u8>> = (0..64_u16).map(|number| number.to_be_bytes().repeat(2_048)).collect();
    let take = |more: &[&[u8]]| {
        let all = names.iter().map(Vec::as_slice).chain(more.iter().copied());
        let args: Vec<&[u8]> = std::iter::once(&b"n"[..]).chain(all).collect();
        keys_to_take(&args.as_slice(), 1..args.len())
    };
    assert_eq!(take(&[]), Ok(()));
    assert_eq!(take(&[b""]), Ok(()));
    assert_eq!(take(&[b"a", b"b"]), Err(Error::KeysLength(65)));
    assert_eq!(take(&[&names[0]]), Err(Error::KeysLength(65)));
    assert_eq!(take(&[b"", b"", b"a"]), Err(Error::SameKey { key: 66, earlier: 65 }));
}

#[test]
fn a_key_that_is_given_twice_is_named() {
    let args: &[&[u8]] = &[b"3", b"a", b"b", b"a"];
    assert_eq!(different_keys(&args, 1..4), Err(Error::SameKey { key: 3, earlier: 1 }));
    assert_eq!(different_keys(&args, 1..3), Ok(()));
}

proptest! {
    #[test]
    fn a_lease_alone_is_read_as_among_other_options(
        name in prop_oneof!["[EePpxX]{2}", "[ -~]{0,3}"],
        value in prop_oneof!["[0-9]{0,21}", "[ -~]{0,4}"],
        more in prop::option::of(prop_oneof![Just("DETAILS"), Just("EX"), Just("x")]),
    ) {
        let args: Vec<&[u8]> = [b"key", name.as_bytes(), value.as_bytes()].into_iter()
            .chain(more.map(str::as_bytes)).collect();
        let args = args.as_slice();
        let asked = ask(&args, 1, "LOCK.ACQUIRE", &ALL);
        let expected = Options::parse(&args, 1, "LOCK.ACQUIRE", &ALL).and_then(|options| options.ask());
        prop_assert_eq!(format!("{asked:?}"), format!("{expected:?}"));
        let known = [Name::Ex, Name::Px];
        let expected = Options::parse(&args, 1, "LOCK.EXTEND", &known).and_then(|options| options.lease());
        prop_assert_eq!(lease_alone(&args, 1, "LOCK.EXTEND"), expected);
    }

    #[test]
    fn arbitrary_arguments_are_read_without_harm(
        args in prop::collection::vec(
            prop_oneof![
                prop::sample::select(vec!["EX", "px", "ID", "OWNER", "DETAILS", "WAIT", "SESSION", "1", "0", "x y"])
                    .prop_map(|text| text.as_bytes().to_vec()),
                prop::collection::vec(any::<u8>(), 0..30),
            ],
            0..12,
        ),
    ) {
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        let _ = parse(&args);
    }
}
