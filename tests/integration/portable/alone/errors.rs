//! Bad input: the commands' error texts, error code first, and no change. Options that need the module say so.

use super::{set_up, start};
use crate::wire::fixture::{Case, Fixture, Kind, Snapshot, Words};
use testkit::Reply;

/// The portable lock's commands.
const OWN: [&str; 5] = ["LOCK.ACQUIRE", "LOCK.RECOVER", "LOCK.EXTEND", "LOCK.RELEASE", "LOCK.CHECK"];
/// Options that only the module has.
const OTHERS: [&str; 7] = ["WAIT", "SESSION", "SHARED", "LIMIT", "NOTIFY", "SNOTIFY", "RESULT"];

/// Whether the portable lock has this command. Its release has no option, so it counts the arguments.
fn is_own(words: &Words) -> bool {
    let words = words.words();
    OWN.contains(&words[0]) && (words[0] != "LOCK.RELEASE" || words.len() <= 3)
}

#[test]
fn every_error_has_its_text_and_changes_nothing() {
    let (_server, mut conn, ways) = start();
    let fixture = Fixture::load();
    let (mut tried, mut needed) = (0, 0);
    for (index, (state, setup)) in fixture.states().into_iter().enumerate() {
        let key = format!("error:{index}");
        let mut case = Case::start(&mut conn, &key, &state.token, false);
        set_up(&mut conn, &case, &setup);
        let before = Snapshot::take(&mut conn, &key);
        for (expected, words) in fixture.error.iter().flat_map(|(text, all)| all.iter().map(move |words| (text, words)))
        {
            if !is_own(words) {
                continue;
            }
            let args = case.args(words);
            case.command = args[0].to_ascii_lowercase();
            let others = args.iter().map(|arg| arg.to_uppercase()).filter(|arg| OTHERS.contains(&&**arg));
            let needs: Vec<String> = others.map(|other| format!("-ERR {other} needs the lock module")).collect();
            for way in &ways {
                let what = format!("{args:?} on a key that is {}, {way:?}", state.name);
                let reply = conn.raw(&way.usual(&args));
                if needs.iter().any(|needs| reply.starts_with(needs.as_bytes())) {
                    needed += 1;
                } else {
                    case.assert_reply(expected, &reply, &what);
                }
                tried += 1;
            }
        }
        assert_eq!(Snapshot::take(&mut conn, &key), before, "a key that is {}", state.name);
    }
    assert!(tried > 1_000 && needed > 100 && needed < tried / 3, "{needed} of {tried} need the module");
}

#[test]
fn numbers_are_accepted_exactly_within_bounds() {
    let (_server, mut conn, ways) = start();
    let fixture = Fixture::load();
    let own = fixture.number.iter().filter(|number| !matches!(number.kind, Kind::Count | Kind::Limit | Kind::NumKeys));
    for (number, way) in own.flat_map(|number| ways.iter().map(move |way| (number, way))) {
        for words in number.commands.iter().filter(|words| is_own(words)) {
            for (n, is_refused) in
                number.refused.iter().map(|n| (n, true)).chain(number.accepted.iter().map(|n| (n, false)))
            {
                let mut case = Case::start(&mut conn, "number", "{us-5000000}", false);
                conn.ok(&["SET", "number", &format!("9999999999.000000{}", case.token)]);
                let before = Snapshot::take(&mut conn, "number");
                case.n.clone_from(n);
                let what = format!("{:?} with {n:?}, {way:?}", words.words());
                let reply = conn.raw(&way.usual(&case.args(words)));
                if is_refused {
                    case.assert_reply(&number.reply, &reply, &what);
                } else if number.kind == Kind::Wait && n.bytes().any(|digit| digit != b'0') {
                    case.assert_reply("-ERR WAIT needs the lock module\r\n", &reply, &what);
                } else {
                    assert!(!reply.starts_with(b"-"), "{what}: {}", testkit::show(&reply));
                    continue;
                }
                assert_eq!(Snapshot::take(&mut conn, "number"), before, "{what}");
            }
        }
    }
}

#[test]
fn margin_and_retention_have_bounds_too() {
    let (_server, mut conn, ways) = start();
    let margin = "ERR margin is not a whole number between 0 ms and 1 hour";
    let retention = "ERR retention is not -1 or a whole number between 0 ms and 10 years";
    let bad = ["", "-2", "+1", "1.5", "0x10", " 1", "1e3", "1\u{0}", "many", "000000000000000000001"];
    for way in &ways {
        for (text, most, error) in [("margin", 3_600_000_u64, margin), ("retention", 315_360_000_000, retention)] {
            let beyond = (most + 1).to_string();
            for n in bad.iter().copied().chain([&*beyond]) {
                let terms = if text == "margin" { [n, "60000"] } else { ["1000", n] };
                for command in ["LOCK.ACQUIRE k PX 1000", "LOCK.RECOVER k PX 1000", "LOCK.EXTEND k 7 PX 1000"] {
                    let words: Vec<&str> = command.split(' ').collect();
                    let reply = conn.execute(&way.args(&words, terms[0], terms[1]));
                    assert_eq!(reply, Reply::Error(error.into()), "{command}, {text} {n:?}");
                }
                if text == "margin" {
                    let reply = conn.execute(&way.args(&["LOCK.CHECK", "k", "7"], n, "60000"));
                    assert_eq!(reply, Reply::Error(error.into()), "LOCK.CHECK, margin {n:?}");
                }
            }
            for n in ["0".to_string(), "00060000".into(), most.to_string()] {
                let n = if text == "margin" && n == "00060000" { "0001000".into() } else { n };
                let terms = if text == "margin" { [&*n, "60000"] } else { ["1000", &*n] };
                conn.execute(&["DEL", "k"]);
                let token = conn.int(&way.args(&["LOCK.ACQUIRE", "k", "PX", "1000"], terms[0], terms[1]));
                assert_eq!(conn.int(&way.usual(&["LOCK.RELEASE", "k", &token.to_string()])), 1, "{text} {n}");
            }
        }
        assert_eq!(conn.int(&["DBSIZE"]), 0);
    }
}

#[test]
fn a_lock_with_a_long_key_can_be_released() {
    let (_server, mut conn, ways) = start();
    let longer = "k".repeat(4_097);
    for way in &ways {
        conn.ok(&["SET", &longer, "9763710031.0000001763710000482913"]);
        for (command, expected) in [("EXTEND", 1), ("RELEASE", 1)] {
            let name = format!("LOCK.{command}");
            let mut args = vec![&*name, &*longer, "1763710000482913"];
            assert!(conn.int(&way.usual(&["LOCK.CHECK", &longer, "1763710000482913"])) > 1_000);
            args.extend(if command == "EXTEND" { &["PX", "60000"][..] } else { &[] });
            assert_eq!(conn.int(&way.usual(&args)), expected, "{command}");
        }
    }
}

#[test]
fn module_features_need_the_module_and_wait_0_does_not_wait() {
    let (_server, mut conn, ways) = start();
    for way in &ways {
        for (name, command) in [
            ("WAIT", "LOCK.ACQUIRE k PX 1000 WAIT 1"),
            ("SESSION", "LOCK.ACQUIRE k PX 1000 SESSION"),
            ("SESSION", "LOCK.RECOVER k session PX 1000"),
            ("SHARED", "LOCK.ACQUIRE k PX 1000 Shared"),
            ("LIMIT", "LOCK.ACQUIRE k LIMIT 3 PX 1000"),
        ] {
            let reply = way.execute(&mut conn, command);
            assert!(reply.error().starts_with(&format!("ERR {name} needs the lock module")), "{command}: {reply:?}");
        }
        let reply = conn.execute(&way.raw("lock_release", &["k", "k:queue:{k}", "other"], &["7"]));
        assert!(reply.error().starts_with("ERR this function takes a lock and its queue"), "{reply:?}");
        assert_eq!(conn.int(&["DBSIZE"]), 0);
        let token = way.execute(&mut conn, "LOCK.ACQUIRE k PX 1000 WAIT 0").int();
        assert!(way.execute(&mut conn, "LOCK.ACQUIRE k wait 0 PX 1000").is_nil());
        assert_eq!(way.execute(&mut conn, &format!("LOCK.RELEASE k {token}")), Reply::Int(1));
    }
    let client::Way::Script(sha) = &ways[0] else { panic!("the script is always there") };
    for args in [&[][..], &["lock_steal"], &["LOCK.RELEASE", "1000", "60000", "7"], &["lock_"]] {
        let reply = conn.execute(&[&["EVALSHA", sha, "1", "k"], args].concat());
        assert!(reply.error().starts_with("ERR function is not lock_acquire"), "{args:?}: {reply:?}");
    }
}

use super::client;
