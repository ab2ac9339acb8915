//! Transactions, scripts, functions and pipelines: nothing blocks, and a message comes after, never inside.

use super::{waiting, Line, CHANNEL};
use testkit::{encoded, Reply};

const ASK: [&str; 10] = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000", "ID", "7", "NOTIFY", CHANNEL];
const SCRIPT: &str = "return redis.call(unpack(ARGV))";
const LIBRARY: &str =
    "#!lua name=probe\nredis.register_function('probe', function(keys, args) return redis.call(unpack(args)) end)";

/// Ways to run a command within something else.
fn wrapped(line: &mut Line, command: &[&str]) -> Vec<Reply> {
    let transaction = {
        let replies = line.locks.in_one_turn(&[&["MULTI"], command, &["EXEC"]]);
        replies[2].list()[0].clone()
    };
    vec![transaction]
}

#[test]
fn asking_in_a_transaction_a_script_a_function_and_a_pipeline_stands_in_line() {
    let Some(mut line) = Line::start() else { return };
    let token = line.locks.hold();
    assert_eq!(wrapped(&mut line, &ASK), [waiting()]);
    assert_eq!(line.call(&[&["EVAL", SCRIPT, "1", "k"], &ASK[..]].concat()), waiting());
    assert_eq!(line.call(&["FUNCTION", "LOAD", LIBRARY]).text(), "probe");
    assert_eq!(line.call(&[&["FCALL", "probe", "1", "k"], &ASK[..]].concat()), waiting());
    let piped = line.locks.in_one_turn(&[&ASK, &["PING"], &ASK]);
    assert_eq!(piped, [waiting(), Reply::Status("PONG".into()), waiting()]);
    assert_eq!(line.locks.waiters(), 1);
    line.locks.release(token);
    line.takes_its_turn("7");
}

#[test]
fn a_grant_made_within_is_announced_after_it() {
    let Some(mut line) = Line::start() else { return };
    assert_eq!(line.call(&["FUNCTION", "LOAD", LIBRARY]).text(), "probe");
    for resp3 in [false, true] {
        for way in ["MULTI", "EVAL", "FCALL", "plain"] {
            let what = format!("{way}, RESP3: {resp3}");
            let mut conn = line.locks.server.conn();
            if resp3 {
                conn.call(&["HELLO", "3"]);
                conn.call(&["SUBSCRIBE", CHANNEL]);
            }
            let token = line.locks.hold();
            assert_eq!(line.call(&ASK), waiting());
            let release = ["LOCK.RELEASE", "k", &token];
            let (command, expected) = match way {
                "MULTI" => {
                    let probe = ["LOCK.INFO", "k"];
                    let all = [&["MULTI"][..], &release, &probe, &release, &["EXEC"]];
                    (all.iter().flat_map(|command| encoded(command)).collect::<Vec<u8>>(), None)
                }
                "EVAL" => (encoded(&[&["EVAL", SCRIPT, "1", "k"], &release[..]].concat()), Some(":1\r\n")),
                "FCALL" => (encoded(&[&["FCALL", "probe", "1", "k"], &release[..]].concat()), Some(":1\r\n")),
                _ => (encoded(&release), None),
            };
            conn.send_bytes(&command);
            if way == "MULTI" {
                for queued in ["OK", "QUEUED", "QUEUED", "QUEUED"] {
                    assert_eq!(conn.read(), Reply::Status(queued.into()), "{what}");
                }
                let exec = conn.read();
                let [released, info, again] = exec.list() else { panic!("{what}: {exec:?}") };
                assert_eq!((released, again), (&Reply::Int(1), &Reply::Int(0)), "{what}");
                assert_eq!(info.field("state").text(), "held", "{what}");
            } else if let Some(expected) = expected {
                assert_eq!(conn.raw_reply(), expected.as_bytes(), "{what}");
            } else {
                // Of two that come from one command the order is the server's.
                let first = conn.read();
                assert!(first == Reply::Int(1) || resp3, "{what}: {first:?}");
                if first != Reply::Int(1) {
                    assert_eq!(conn.read(), Reply::Int(1), "{what}");
                }
            }
            if resp3 && way != "plain" {
                let message = conn.read();
                assert_eq!(message.list()[2], Reply::Text(b"granted 7 k".into()), "{what}");
            }
            line.takes_its_turn("7");
        }
    }
}

#[test]
fn several_that_are_granted_in_one_transaction_are_all_told_after_it() {
    let Some(mut line) = Line::start() else { return };
    let mut commands: Vec<Vec<String>> = vec![vec!["MULTI".into()]];
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    for n in 0..20 {
        let key = format!("k{n}");
        let token = line.locks.conn.int(&["LOCK.ACQUIRE", &key, "PX", "30000"]).to_string();
        line.ask_with(&["LOCK.ACQUIRE", &key], &n.to_string(), &[]);
        commands.push(words(&["LOCK.RELEASE", &key, &token]));
    }
    commands.push(words(&["PUBLISH", CHANNEL, "inside"]));
    commands.push(words(&["EXEC"]));
    let commands: Vec<Vec<&str>> = commands.iter().map(|words| words.iter().map(String::as_str).collect()).collect();
    let commands: Vec<&[&str]> = commands.iter().map(Vec::as_slice).collect();
    line.locks.in_one_turn(&commands);
    line.told.hears("inside");
    for n in 0..20 {
        line.told.hears(&format!("granted {n} k{n}"));
        let key = format!("k{n}");
        assert!(line.call(&["LOCK.ACQUIRE", &key, "PX", "30000", "ID", &n.to_string()]).int() > 0);
    }
}

#[test]
fn one_that_is_granted_within_and_heard_by_nobody_passes_on() {
    let Some(mut line) = Line::with(&["claim-ms", "50"]) else { return };
    let token = line.locks.hold();
    line.ask_with(&["LOCK.ACQUIRE", "k"], "7", &["NOTIFY", "nobody"]);
    super::pass(&mut line.locks.conn, 60);
    line.ask("8");
    line.locks.in_one_turn(&[&["MULTI"], &["LOCK.RELEASE", "k", &token], &["EXEC"]]);
    line.takes_its_turn("8");
    assert_eq!((line.info("lock_unheard"), line.info("lock_unclaimed")), (1, 0));
}
