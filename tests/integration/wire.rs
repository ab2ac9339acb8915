//! The wire format of LOCK.*: every value, state, reply and error text of `wire.toml`, on a real server, in RESP2 and
//! RESP3, byte for byte.

mod arguments;
mod classic;
mod config;
pub mod fixture;
mod grants;
mod holders;
mod notify;
mod places;
mod streams;
mod times;

use fixture::{expires_at_ms, knows_maps, now_us, retained_ms, value, Case, Effect, Fixture, Snapshot};
use holders::Holders;
use std::collections::BTreeMap;
use testkit::{Conn, Reply, Server};

const RETENTION_MS: i64 = 60_000;

/// A connection with the given protocol.
fn connect(server: &Server, resp3: bool) -> Conn {
    let mut conn = server.conn();
    if resp3 {
        let hello = conn.execute(&["HELLO", "3"]);
        assert_eq!(hello.field("proto"), Reply::Int(3));
    }
    conn
}

#[test]
fn a_value_is_read_as_the_fixture_says() {
    let (_server, mut conn) = Server::connected();
    let fixture = Fixture::load();

    for (expiry, case) in [false, true].into_iter().flat_map(|e| fixture.ours.iter().map(move |c| (e, c))) {
        let info = info_of(&mut conn, &case.text, expiry);
        assert_timestamp(&info, &case.text[..17], case.timestamp_us, &mut conn);
        assert_eq!(info.field("token"), Reply::Int(case.token), "{}", case.text);
        assert_eq!(info.field("id"), text_or_nil(case.id.as_deref()), "{}", case.text);
        assert_eq!(info.field("owner"), text_or_nil(case.owner.as_deref()), "{}", case.text);
    }
    for (text, timestamp_us) in &fixture.others {
        let info = info_of(&mut conn, text, false);
        assert_timestamp(&info, text, *timestamp_us, &mut conn);
        for field in ["token", "id", "owner"] {
            assert!(info.field(field).is_nil(), "{field} of {text}");
        }
        let foreign = info_of(&mut conn, text, true);
        assert_eq!(foreign.field("state").text(), "foreign", "{text} with a native expiry");
    }
    for (texts, expiry) in [(&fixture.foreign.always, false), (&fixture.foreign.with_native_expiry, true)] {
        for text in texts {
            let info = info_of(&mut conn, text, expiry);
            assert_eq!(info.field("state").text(), "foreign", "{text:?}");
            assert!(info.field("timestamp").is_nil(), "{text:?}");
        }
    }
}

fn info_of(conn: &mut Conn, text: &str, expiry: bool) -> Reply {
    conn.ok(&["SET", "codec", text]);
    if expiry {
        assert_eq!(conn.int(&["PEXPIRE", "codec", "100000"]), 1);
    }
    conn.execute(&["LOCK.INFO", "codec"])
}

fn text_or_nil(text: Option<&str>) -> Reply {
    text.map_or(Reply::Nil, |text| Reply::Text(text.into()))
}

/// Compares the timestamp as text, and its value through the time that is left or overdue.
fn assert_timestamp(info: &Reply, text: &str, timestamp_us: i64, conn: &mut Conn) {
    assert_eq!(info.field("timestamp"), Reply::Text(text.into()));
    let now = now_us(conn);
    if timestamp_us > now {
        assert_eq!(info.field("state").text(), "held", "{text}");
        let left_ms = info.field("free-in-ms").int();
        assert!((timestamp_us - now..timestamp_us - now + 10_000_000).contains(&(left_ms * 1000)), "{text}: {left_ms}");
    } else {
        assert_eq!(info.field("state").text(), "expired", "{text}");
        let over_ms = info.field("overdue-ms").int();
        assert!(
            (now - timestamp_us - 10_000_000..=now - timestamp_us).contains(&(over_ms * 1000)),
            "{text}: {over_ms}"
        );
    }
}

#[test]
fn every_state_decides_as_the_table_says_in_resp2() {
    run_table(false);
}

#[test]
fn every_state_decides_as_the_table_says_in_resp3() {
    run_table(true);
}

fn run_table(resp3: bool) {
    let fixture = Fixture::load();
    // A server for each margin: servers without module settings (6.2) cannot change it.
    let mut servers = BTreeMap::new();
    let mut cells = 0;
    for (index, (state, setup)) in fixture.states().into_iter().enumerate() {
        assert!(state.row.keys().all(|name| fixture.commands.contains_key(name)), "{}: {:?}", state.name, state.row);
        let start = || Server::with().module_args(&["margin-ms", &state.margin_ms.to_string()]).start();
        let mut conn = connect(servers.entry(state.margin_ms).or_insert_with(start), resp3);
        for (name, words) in &fixture.commands {
            let key = format!("table:{index}:{name}");
            let what = format!("{}, {name}", state.name);
            let case = Case::start(&mut conn, &key, &state.token, resp3);
            case.set_up(&mut conn, &setup);
            let before = Snapshot::take(&mut conn, &key);
            let old = (before_value(&mut conn, &key), now_us(&mut conn));
            let others = Holders::of(&mut conn, &key);

            let reply = conn.raw(&case.args(words));

            cells += 1;
            if name == "info" {
                case.assert_reply(&fixture.info_reply(state), &reply, &what);
                assert_eq!(Snapshot::take(&mut conn, &key), before, "{what}");
                continue;
            }
            let outcome = fixture.outcome(state, name);
            let new = case.assert_reply(&outcome.reply, &reply, &what);
            match outcome.key {
                Effect::Same => assert_eq!(Snapshot::take(&mut conn, &key), before, "{what}"),
                Effect::Gone => assert_eq!(conn.int(&["EXISTS", &key]), 0, "{what}"),
                Effect::New => assert_granted(&mut conn, &key, new.unwrap(), 30_000 + state.margin_ms, &what),
                Effect::Later => assert_extended(&mut conn, &key, &old, 60_000 + state.margin_ms, &what),
                Effect::Joined => others.and(new.unwrap(), 30_000 + state.margin_ms).assert_in(&mut conn, &key, &what),
                Effect::Instead => {
                    let rest = others.without(&case.token);
                    rest.and(new.unwrap(), 30_000 + state.margin_ms).assert_in(&mut conn, &key, &what);
                }
                Effect::Raised => {
                    let from = Holders::of(&mut conn, &key).end_of(&case.token) - (60_000 + state.margin_ms) * 1000;
                    assert!((old.1..=now_us(&mut conn)).contains(&from), "{what}: {from}");
                    let raised = others.with_end(&case.token, from + (60_000 + state.margin_ms) * 1000);
                    raised.assert_in(&mut conn, &key, &what);
                }
                Effect::Taken => others.without(&case.token).assert_in(&mut conn, &key, &what),
            }
        }
    }
    assert_eq!(cells, fixture.states().len() * fixture.commands.len(), "the table is complete");
    assert_eq!(fixture.commands.len(), 19);
}

/// The key's previous value, from the token on.
pub fn before_value(conn: &mut Conn, key: &str) -> String {
    match conn.execute(&["GET", key]) {
        Reply::Text(text) => String::from_utf8(text).unwrap().get(17..).unwrap_or_default().into(),
        _ => String::new(),
    }
}

/// Asserts a new grant: no ID, no owner, `ms` after the token, followed by the retention.
pub fn assert_granted(conn: &mut Conn, key: &str, token: i64, ms: i64, what: &str) {
    let value = value(conn, key);
    assert_eq!(value.token, token, "{what}");
    assert_eq!(value.rest, "", "{what}");
    assert_eq!(value.timestamp_us - token, ms * 1000, "{what}");
    assert_eq!(expires_at_ms(conn, key), retained_ms(value.timestamp_us, RETENTION_MS), "{what}");
}

/// Asserts the same grant, `ms` after a moment between `old` and now.
pub fn assert_extended(conn: &mut Conn, key: &str, old: &(String, i64), ms: i64, what: &str) {
    assert_eq!(before_value(conn, key), old.0, "{what}: token, ID and owner stay");
    let value = value(conn, key);
    let from = value.timestamp_us - ms * 1000;
    assert!((old.1..=now_us(conn)).contains(&from), "{what}: {from}");
    assert_eq!(expires_at_ms(conn, key), retained_ms(value.timestamp_us, RETENTION_MS), "{what}");
}

#[test]
fn every_error_has_its_text_and_changes_nothing_in_resp2() {
    run_errors(false);
}

#[test]
fn every_error_has_its_text_and_changes_nothing_in_resp3() {
    run_errors(true);
}

fn run_errors(resp3: bool) {
    // Otherwise the master's own PING to its replicas would move the offset.
    let server =
        Server::with().args(&["--repl-ping-replica-period", "86400", "--repl-diskless-sync-delay", "0"]).start();
    let _stream = server.replication_stream();
    let mut conn = connect(&server, resp3);
    let is_new = knows_maps(&mut conn);
    let offset = |conn: &mut Conn| conn.info("replication", "master_repl_offset").unwrap();
    let fixture = Fixture::load();
    // Before 7.0 an arity error names the command as it was typed.
    let names = |name: &str| if is_new { name.to_ascii_lowercase() } else { name.into() };
    for (index, (state, setup)) in fixture.states().into_iter().enumerate() {
        let key = format!("error:{index}");
        let mut case = Case::start(&mut conn, &key, &state.token, resp3);
        case.set_up(&mut conn, &setup);
        let before = (Snapshot::take(&mut conn, &key), offset(&mut conn));
        assert!(index == 0 || before.1 != "0", "the commands that make a state are replicated");
        for (expected, commands) in &fixture.error {
            for words in commands {
                let args = case.args(words);
                case.command = names(&args[0]);
                let what = format!("{args:?} on a key that is {}", state.name);
                let reply = conn.raw(&args);
                case.assert_reply(expected, &reply, &what);
                assert_eq!((Snapshot::take(&mut conn, &key), offset(&mut conn)), before, "{what}");
            }
        }
    }
}

#[test]
fn help_is_an_array_of_status_lines() {
    let server = Server::start();
    for resp3 in [false, true] {
        let mut conn = connect(&server, resp3);
        let reply = conn.raw(&["LOCK.HELP"]);
        assert!(reply.starts_with(b"*"), "an array");
        let reply = conn.execute(&["LOCK.HELP"]);
        assert!(reply.list().iter().all(|line| matches!(line, Reply::Status(_))), "{reply:?}");
    }
}
