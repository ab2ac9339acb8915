//! Transactions, scripts, functions and pipelines: nothing blocks, and messages follow afterwards, never in the middle.

use super::{waiting, Queue, CHANNEL};
use testkit::{encoded, Reply};

const ASK: [&str; 10] = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000", "ID", "7", "NOTIFY", CHANNEL];
const SCRIPT: &str = "return redis.call(unpack(ARGV))";
const LIBRARY: &str =
    "#!lua name=probe\nredis.register_function('probe', function(keys, args) return redis.call(unpack(args)) end)";

/// Ways to run a command inside something else.
fn wrapped(queue: &mut Queue, command: &[&str]) -> Vec<Reply> {
    let transaction = {
        let replies = queue.locks.in_one_turn(&[&["MULTI"], command, &["EXEC"]]);
        replies[2].list()[0].clone()
    };
    vec![transaction]
}

#[test]
fn notify_queues_in_transactions_scripts_functions_and_pipelines() {
    let Some(mut queue) = Queue::start() else { return };
    let token = queue.locks.hold();
    assert_eq!(wrapped(&mut queue, &ASK), [waiting()]);
    assert_eq!(queue.execute(&[&["EVAL", SCRIPT, "1", "k"], &ASK[..]].concat()), waiting());
    assert_eq!(queue.execute(&["FUNCTION", "LOAD", LIBRARY]).text(), "probe");
    assert_eq!(queue.execute(&[&["FCALL", "probe", "1", "k"], &ASK[..]].concat()), waiting());
    let piped = queue.locks.in_one_turn(&[&ASK, &["PING"], &ASK]);
    assert_eq!(piped, [waiting(), Reply::Status("PONG".into()), waiting()]);
    assert_eq!(queue.locks.waiters(), 1);
    queue.locks.release(token);
    queue.takes_its_turn("7");
}

#[test]
fn a_grant_made_inside_is_announced_afterwards() {
    let Some(mut queue) = Queue::start() else { return };
    assert_eq!(queue.execute(&["FUNCTION", "LOAD", LIBRARY]).text(), "probe");
    for resp3 in [false, true] {
        for way in ["MULTI", "EVAL", "FCALL", "plain"] {
            let what = format!("{way}, RESP3: {resp3}");
            let mut conn = queue.locks.server.conn();
            if resp3 {
                conn.execute(&["HELLO", "3"]);
                conn.execute(&["SUBSCRIBE", CHANNEL]);
            }
            let token = queue.locks.hold();
            assert_eq!(queue.execute(&ASK), waiting());
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
                // The server chooses the order of two messages from one command.
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
            queue.takes_its_turn("7");
        }
    }
}

#[test]
fn grants_of_one_transaction_are_notified_after_it() {
    let Some(mut queue) = Queue::start() else { return };
    let mut commands: Vec<Vec<String>> = vec![vec!["MULTI".into()]];
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    for n in 0..20 {
        let key = format!("k{n}");
        let token = queue.locks.conn.int(&["LOCK.ACQUIRE", &key, "PX", "30000"]).to_string();
        queue.ask_with(&["LOCK.ACQUIRE", &key], &n.to_string(), &[]);
        commands.push(words(&["LOCK.RELEASE", &key, &token]));
    }
    commands.push(words(&["PUBLISH", CHANNEL, "inside"]));
    commands.push(words(&["EXEC"]));
    let commands: Vec<Vec<&str>> = commands.iter().map(|words| words.iter().map(String::as_str).collect()).collect();
    let commands: Vec<&[&str]> = commands.iter().map(Vec::as_slice).collect();
    queue.locks.in_one_turn(&commands);
    queue.subscriber.gets("inside");
    for n in 0..20 {
        queue.subscriber.gets(&format!("granted {n} k{n}"));
        let key = format!("k{n}");
        assert!(queue.execute(&["LOCK.ACQUIRE", &key, "PX", "30000", "ID", &n.to_string()]).int() > 0);
    }
}

#[test]
fn a_transactional_grant_without_subscriber_is_passed_on() {
    let Some(mut queue) = Queue::with(&["claim-ms", "50"]) else { return };
    let token = queue.locks.hold();
    queue.ask_with(&["LOCK.ACQUIRE", "k"], "7", &["NOTIFY", "nobody"]);
    super::pass(&mut queue.locks.conn, 60);
    queue.ask("8");
    queue.locks.in_one_turn(&[&["MULTI"], &["LOCK.RELEASE", "k", &token], &["EXEC"]]);
    queue.takes_its_turn("8");
    assert_eq!((queue.info("lock_unheard"), queue.info("lock_unclaimed")), (1, 0));
}
