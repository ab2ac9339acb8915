//! Every cell of the wire fixture's table for one key with one holder, in RESP2 and RESP3.

use super::{load, set_up};
use crate::wire::fixture::{now_us, Case, Effect, Fixture, Outcome, Snapshot, State};
use crate::wire::{assert_extended, assert_granted, before_value};
use testkit::{Conn, Reply, Server};

/// The table's commands that the portable lock supports.
pub const COMMANDS: [&str; 9] = [
    "acquire",
    "acquire_details",
    "recover",
    "extend",
    "release",
    "check",
    "stranger_extend",
    "stranger_release",
    "stranger_check",
];

/// A cell's expected result: as for the module, except that only the module has sets of holders, and a script has a
/// single kind of nil.
fn outcome(fixture: &Fixture, state: &State, name: &str, is_string: bool) -> Outcome {
    let Outcome { reply, key } = if is_string { fixture.outcome(state, name) } else { &fixture.outcome["wrongtype"] };
    Outcome { reply: reply.replace("{nil_array}", "{nil}"), key: *key }
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
    let (_server, mut conn) = Server::with().without_module().connected();
    if resp3 {
        conn.execute(&["HELLO", "3"]).field("proto");
    }
    let (fixture, mut cells) = (Fixture::load(), 0);
    let ways = load(&mut conn);
    for (index, (state, setup)) in fixture.states().into_iter().enumerate() {
        for (name, (which, way)) in COMMANDS.iter().flat_map(|name| ways.iter().enumerate().map(move |way| (name, way)))
        {
            let key = format!("table:{index}:{name}:{which}");
            let what = format!("{}, {name}, {way:?}", state.name);
            let case = Case::start(&mut conn, &key, &state.token, resp3);
            set_up(&mut conn, &case, &setup);
            let before = Snapshot::take(&mut conn, &key);
            let old = (before_value(&mut conn, &key), now_us(&mut conn));
            let is_string = matches!(&*conn.text(&["TYPE", &key]), "string" | "none");
            let expected = outcome(&fixture, state, name, is_string);

            let args = case.args(&fixture.commands[*name]);
            let reply = conn.raw(&way.args(&args, &state.margin_ms.to_string(), "60000"));

            cells += 1;
            let new = case.assert_reply(&expected.reply, &reply, &what);
            match expected.key {
                Effect::Same => assert_eq!(Snapshot::take(&mut conn, &key), before, "{what}"),
                Effect::Gone => assert_eq!(conn.int(&["EXISTS", &key]), 0, "{what}"),
                Effect::New => assert_granted(&mut conn, &key, new.unwrap(), 30_000 + state.margin_ms, &what),
                Effect::Later => assert_extended(&mut conn, &key, &old, 60_000 + state.margin_ms, &what),
                other => panic!("{what}: no command of one holder does {other:?}"),
            }
        }
    }
    assert_eq!(cells, fixture.states().len() * COMMANDS.len() * ways.len(), "the table is complete");
}

#[test]
fn a_value_is_read_as_the_fixture_says() {
    let (_server, mut conn, ways) = super::start();
    let fixture = Fixture::load();
    for way in &ways {
        for case in &fixture.ours {
            for expiry in [false, true] {
                set(&mut conn, &case.text, expiry);
                let is_over = case.timestamp_us <= now_us(&mut conn);
                let reply = way.execute(&mut conn, "LOCK.ACQUIRE k PX 1000 DETAILS");
                let Some(details) = details(&reply, is_over, &case.text) else { continue };
                assert_eq!(details[2], Reply::Int(case.token), "{}", case.text);
                let owner = case.owner.as_ref().map_or(Reply::Nil, |owner| Reply::Text(owner.clone().into()));
                assert_eq!(details[3], owner, "{}", case.text);
                let is_largest = case.token == 9_007_199_254_740_990;
                assert_eq!(details[0].int() > case.token, !is_largest, "{}", case.text);
            }
        }
        for (text, timestamp_us) in &fixture.others {
            set(&mut conn, text, false);
            let now = now_us(&mut conn);
            let reply = way.execute(&mut conn, "LOCK.RECOVER k PX 1000");
            if let Some(details) = details(&reply, *timestamp_us <= now, text) {
                let overdue_us = details[1].int() * 1000;
                assert!((now - timestamp_us - 1000..now - timestamp_us + 10_000_000).contains(&overdue_us), "{text}");
                assert_eq!(details[2..], [Reply::Nil, Reply::Nil], "{text}");
            }
            set(&mut conn, text, true);
            assert!(way.execute(&mut conn, "LOCK.ACQUIRE k PX 1000").is_nil(), "{text} with a native expiry");
        }
        for (texts, expiry) in [(&fixture.foreign.always, false), (&fixture.foreign.with_native_expiry, true)] {
            for text in texts {
                set(&mut conn, text, expiry);
                for command in ["LOCK.ACQUIRE k PX 1000", "LOCK.ACQUIRE k PX 1000 ID 0", "LOCK.RECOVER k PX 1000"] {
                    assert!(way.execute(&mut conn, command).is_nil(), "{command}: {text:?}");
                }
                assert_eq!(conn.execute(&["GET", "k"]), Reply::Text(text.clone().into()), "nobody changes it");
            }
        }
    }
}

fn set(conn: &mut Conn, text: &str, expiry: bool) {
    conn.ok(&["SET", "k", text]);
    if expiry {
        assert_eq!(conn.int(&["PEXPIRE", "k", "100000"]), 1);
    }
}

/// The details of an expired lock; `None` for one that is held.
fn details<'a>(reply: &'a Reply, is_over: bool, what: &str) -> Option<&'a [Reply]> {
    assert_eq!(is_over, !reply.is_nil(), "{what}: {reply:?}");
    is_over.then(|| reply.list())
}
