//! Arguments: every order and case of the options means the same, numbers are accepted up to their bounds and refused
//! beyond them, and a refusal changes nothing.

use super::connect;
use super::fixture::{now_us, value, Case, Fixture, Kind, Number, Snapshot, Value, Words};
use testkit::{show, Conn, Reply, Server};

/// All permutations of some options.
fn orders<'a>(options: &[&'a [&'a str]]) -> Vec<Vec<&'a str>> {
    if options.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for first in 0..options.len() {
        let mut others = options.to_vec();
        let chosen = others.remove(first);
        all.extend(orders(&others).into_iter().map(|rest| [chosen, &rest].concat()));
    }
    all
}

const PX: &[&str] = &["PX", "5000"];
const EX: &[&str] = &["EX", "5"];
const ID: &[&str] = &["ID", "42"];
const OWNER: &[&str] = &["OWNER", "alice"];
const DETAILS: &[&str] = &["DETAILS"];
const SESSION: &[&str] = &["SESSION"];
const WAIT: &[&str] = &["WAIT", "5000"];

/// Asserts what every order has to leave in the key.
fn assert_alice(conn: &mut Conn, key: &str, token: i64, what: &[&str]) {
    let Value { timestamp_us, token: written, rest } = value(conn, key);
    assert_eq!(written, token, "{what:?}");
    assert_eq!(timestamp_us - token, 6_000_000, "{what:?}");
    assert_eq!(rest, "0000000000000000042 alice", "{what:?}");
}

#[test]
fn options_come_in_any_order() {
    let (_server, mut conn) = Server::connected();
    let own = conn.execute(&["CLIENT", "ID"]);
    for (command, options) in [
        ("LOCK.ACQUIRE", &[PX, ID, OWNER][..]),
        ("LOCK.ACQUIRE", &[EX, ID, OWNER]),
        ("LOCK.ACQUIRE", &[PX, ID, OWNER, DETAILS]),
        ("LOCK.ACQUIRE", &[EX, ID, OWNER, DETAILS]),
        ("LOCK.ACQUIRE", &[PX, ID, OWNER, WAIT, SESSION]),
        ("LOCK.RECOVER", &[PX, ID, OWNER]),
        ("LOCK.RECOVER", &[EX, ID, OWNER]),
        ("LOCK.RECOVER", &[EX, ID, OWNER, SESSION]),
    ] {
        let has = |option| options.contains(&option);
        for order in orders(options) {
            conn.execute(&["DEL", "k"]);
            if command == "LOCK.RECOVER" {
                conn.ok(&["SET", "k", "1763710031"]);
            }
            let reply = conn.execute(&[&[command, "k"], &order[..]].concat());
            let token = if command == "LOCK.RECOVER" || has(DETAILS) { reply.list()[0].int() } else { reply.int() };
            if has(DETAILS) {
                assert_eq!(reply.list()[1..], [Reply::Nil, Reply::Nil, Reply::Nil], "{order:?}");
            }
            assert_alice(&mut conn, "k", token, &order);
            let session = if has(SESSION) { own.clone() } else { Reply::Nil };
            assert_eq!(conn.lock("k", "session"), session, "{order:?}");
        }
    }
}

#[test]
fn wait_session_full_and_count_are_read_in_any_case() {
    let server = Server::start();
    let (mut conn, mut waiter) = (server.conn(), server.conn());
    let own = conn.execute(&["CLIENT", "ID"]);
    for (wait, (session, (full, count))) in
        cases("wait").into_iter().zip(cases("session").into_iter().zip(cases("full").into_iter().zip(cases("count"))))
    {
        conn.execute(&["DEL", "k"]);
        conn.int(&["LOCK.ACQUIRE", "k", &session, &wait, "5000", "PX", "5000"]);
        let info = conn.execute(&["LOCK.INFO", "k", &full]);
        assert_eq!(info.field("session"), own, "{session}");
        assert_eq!(info.field("queue"), Reply::List(Vec::new()), "{full}");
        assert_eq!(conn.execute(&["LOCK.TOP", &count, "1"]), Reply::List(Vec::new()), "{count}");
        // The command waits for the full time.
        assert!(waiter.execute(&["LOCK.ACQUIRE", "k", "PX", "5000", &wait, "20"]).is_nil());
    }
}

/// The word in lower case, upper case, and mixed case.
fn cases(word: &str) -> [String; 4] {
    let mixed = |odd: usize| {
        word.char_indices()
            .map(|(at, c)| if at % 2 == odd { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() })
            .collect()
    };
    [word.to_ascii_lowercase(), word.to_ascii_uppercase(), mixed(0), mixed(1)]
}

#[test]
fn option_names_ignore_case_and_values_do_not() {
    let (_server, mut conn) = Server::connected();
    for (px, (id, (owner, details))) in
        cases("px").into_iter().zip(cases("id").into_iter().zip(cases("owner").into_iter().zip(cases("details"))))
    {
        let options = [&px, "5000", &id, "42", &owner, "Alice", &details];
        conn.execute(&["DEL", "k"]);
        conn.execute(&[&["LOCK.ACQUIRE", "k"], &options[..]].concat()).list();
        assert_eq!(value(&mut conn, "k").rest, "0000000000000000042 Alice", "{options:?}");
        conn.ok(&["SET", "k", "1763710031"]);
        conn.execute(&[&["LOCK.RECOVER", "k"], &options[..6]].concat()).list();
        assert_eq!(value(&mut conn, "k").rest, "0000000000000000042 Alice", "{options:?}");
    }
    for (ex, name) in cases("ex").into_iter().zip(cases("lock.extend")) {
        let token = value(&mut conn, "k").token.to_string();
        let from = now_us(&mut conn);
        assert_eq!(conn.int(&[name.as_str(), "k", &token, &ex, "100"]), 1);
        assert!(value(&mut conn, "k").timestamp_us >= from + 101_000_000);
    }
}

#[test]
fn numbers_are_refused_beyond_their_bounds_and_nothing_changes() {
    let server = Server::start();
    for resp3 in [false, true] {
        let mut conn = connect(&server, resp3);
        let fixture = Fixture::load();
        let held = fixture.state("held");
        let setup: Vec<&Words> = held.setup.iter().collect();
        let mut case = Case::start(&mut conn, "k", &held.token, resp3);
        case.set_up(&mut conn, &setup);
        let before = Snapshot::take(&mut conn, "k");
        for number in &fixture.number {
            for words in &number.commands {
                for refused in &number.refused {
                    case.n.clone_from(refused);
                    let args = case.args(words);
                    let reply = conn.raw(&args);
                    case.assert_reply(&number.reply, &reply, &format!("{args:?}"));
                    assert_eq!(Snapshot::take(&mut conn, "k"), before, "{args:?}");
                }
            }
        }
    }
}

#[test]
fn numbers_are_accepted_up_to_their_bounds() {
    let (_server, mut conn) = Server::connected();
    let fixture = Fixture::load();
    for number in &fixture.number {
        for words in &number.commands {
            for accepted in &number.accepted {
                accept(&mut conn, number, words, accepted);
            }
        }
    }
}

/// Runs a command with a number within its bounds, and checks the effect.
fn accept(conn: &mut Conn, number: &Number, words: &Words, accepted: &str) {
    // Uses a key on which the command has an effect: RECOVER needs an expired lock, the others need a held one.
    let mut case = Case::start(conn, "k", "{us-5000000}", false);
    let name = words.words()[0];
    let setup = match name {
        "LOCK.ACQUIRE" | "LOCK.MACQUIRE" => "DEL {key}",
        "LOCK.RECOVER" => "SET {key} {s-100}",
        _ => "SET {key} {s+100}.000000{token} PXAT {ms+160000}",
    };
    case.set_up(conn, &[&Words::Line(setup.into())]);
    case.n = accepted.into();
    let args = case.args(words);
    let before = now_us(conn);
    let raw = conn.raw(&args);
    let after = now_us(conn);
    let what = format!("{args:?}: {}", show(&raw));
    assert!(!raw.starts_with(b"-"), "{what}");

    match number.kind {
        Kind::Wait => assert_eq!(raw, format!(":{}\r\n", value(conn, "k").token).into_bytes(), "{what}"),
        Kind::Count | Kind::Cursor | Kind::Client if name == "LOCK.SCAN" => {
            assert!(raw.starts_with(b"*2\r\n$"), "{what}");
        }
        Kind::Count | Kind::Cursor | Kind::Client => assert_eq!(raw, b"*0\r\n", "{what}"),
        // The key is a set, and this grant is its only member.
        Kind::Limit => {
            let members = conn.execute(&["ZRANGE", "k", "0", "-1"]);
            assert_eq!(raw, format!(":{}\r\n", members.list()[0].text()).into_bytes(), "{what}");
            assert_eq!(members.list().len(), 1, "{what}");
        }
        Kind::NumKeys if name == "LOCK.MACQUIRE" => {
            assert_eq!(raw, format!(":{}\r\n", value(conn, "k").token).into_bytes(), "{what}");
        }
        Kind::NumKeys => assert_eq!(raw, b":1\r\n", "{what}"),
        Kind::Token => assert_eq!(raw, b":0\r\n", "nobody has that token: {what}"),
        Kind::Id => {
            let padded = format!("{:0>19}", accepted.trim_start_matches('0'));
            assert_eq!(value(conn, "k").rest, padded, "{what}");
        }
        Kind::Owner => assert_eq!(value(conn, "k").rest, format!(" {accepted}"), "{what}"),
        Kind::Lease => {
            let lease_ms = accepted.parse::<i64>().unwrap() * number.unit_ms;
            let from = value(conn, "k").timestamp_us - (lease_ms + 1000) * 1000;
            assert!((before..=after).contains(&from), "{what}");
        }
    }
}
