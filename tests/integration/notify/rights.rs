//! ACL: the caller needs permission to use the channel when it asks.

use super::{waiting, Queue};
use std::collections::BTreeMap;
use testkit::{Conn, Reply};

fn user(queue: &mut Queue, name: &str, rules: &[&str]) -> Conn {
    queue.locks.conn.ok(&[&["ACL", "SETUSER", name, "on", "nopass", "~*", "+@all"], rules].concat());
    let mut conn = queue.locks.server.conn();
    conn.ok(&["AUTH", name, "any"]);
    conn
}

fn ask<'a>(command: &[&'a str], id: &'a str, option: &'a str, channel: &'a str) -> Vec<&'a str> {
    [command, &["PX", "30000", "WAIT", "30000", "ID", id, option, channel]].concat()
}

#[test]
fn a_user_needs_permission_for_the_channel() {
    let Some(mut queue) = Queue::start() else { return };
    queue.locks.hold();
    let digest = queue.locks.conn.text(&["DEBUG", "DIGEST"]);
    let mut users = BTreeMap::new();
    let rules: [(&str, &[&str]); 3] = [
        ("nobody", &["resetchannels"]),
        ("some", &["resetchannels", "&jobs:*", "&one"]),
        ("all", &["resetchannels", "&*"]),
    ];
    for (name, rules) in rules {
        users.insert(name, user(&mut queue, name, rules));
    }
    for (option, id) in [("NOTIFY", "7"), ("SNOTIFY", "8")] {
        for (user, channel) in
            [("nobody", "c"), ("nobody", "jobs:1"), ("some", "c"), ("some", "jobs"), ("some", "onex")]
        {
            for command in [&["LOCK.ACQUIRE", "k"][..], &["LOCK.ACQUIRE", "free"], &["LOCK.MACQUIRE", "2", "k", "l"]] {
                let reply = users.get_mut(user).unwrap().execute(&ask(command, id, option, channel));
                let expected = "NOPERM this user has no permission to access the channel";
                assert_eq!(reply.error(), expected, "{user} {command:?} {option} {channel}");
            }
        }
        assert_eq!((queue.info("lock_queued"), queue.info("lock_places")), (0, 0));
        assert_eq!(queue.locks.conn.text(&["DEBUG", "DIGEST"]), digest);
    }
    for (option, id) in [("NOTIFY", "7"), ("SNOTIFY", "8")] {
        for (user, channel) in [("some", "jobs:1"), ("some", "one"), ("all", "anything")] {
            let reply = users.get_mut(user).unwrap().execute(&ask(&["LOCK.ACQUIRE", "k"], id, option, channel));
            assert_eq!(reply, waiting(), "{user} {option} {channel}");
        }
    }
    assert_eq!(queue.locks.waiters(), 2);
}

#[test]
fn a_refused_channel_is_in_the_acl_log() {
    let Some(mut queue) = Queue::start() else { return };
    let mut some = user(&mut queue, "some", &["resetchannels", "&jobs:*"]);
    let calls: [&[&str]; 3] = [&["LOCK.ACQUIRE", "k"], &["LOCK.MACQUIRE", "2", "k", "l"], &["EVAL"]];
    for (number, call) in calls.into_iter().enumerate() {
        queue.locks.conn.ok(&["ACL", "LOG", "RESET"]);
        let channel = format!("other:{number}");
        let reply = match call {
            ["EVAL"] => {
                let script = "return redis.pcall(unpack(ARGV))";
                some.execute(
                    &[&["EVAL", script, "1", "k"], &ask(&["LOCK.ACQUIRE", "k"], "7", "NOTIFY", &channel)[..]].concat(),
                )
            }
            call => some.execute(&ask(call, "7", "SNOTIFY", &channel)),
        };
        assert!(reply.error().starts_with("NOPERM "), "{reply:?}");
        let log = queue.locks.conn.execute(&["ACL", "LOG"]);
        let [entry] = log.list() else { panic!("{log:?}") };
        let field = |name: &str| entry.field(name).text();
        assert_eq!(["reason", "object", "username"].map(field), ["channel", &channel, "some"], "{call:?}");
    }
    // Allowed commands leave no entry in the log.
    queue.locks.conn.ok(&["ACL", "LOG", "RESET"]);
    some.int(&ask(&["LOCK.ACQUIRE", "k"], "7", "NOTIFY", "jobs:1"));
    assert_eq!(queue.locks.conn.execute(&["ACL", "LOG"]).list().len(), 0);
}

#[test]
fn the_same_holds_in_transactions_and_scripts() {
    let Some(mut queue) = Queue::start() else { return };
    queue.locks.hold();
    let mut some = user(&mut queue, "some", &["resetchannels", "&jobs:*"]);
    let script = "return redis.pcall(unpack(ARGV))";
    for (channel, may) in [("c", false), ("jobs:1", true)] {
        let command = ask(&["LOCK.ACQUIRE", "k"], "7", "NOTIFY", channel);
        some.ok(&["MULTI"]);
        assert_eq!(some.execute(&command), Reply::Status("QUEUED".into()));
        let replies = [
            some.execute(&["EXEC"]).list()[0].clone(),
            some.execute(&[&["EVAL", script, "1", "k"], &command[..]].concat()),
        ];
        for reply in replies {
            match reply {
                Reply::Error(text) => assert!(!may && text.starts_with("NOPERM "), "{text}"),
                reply => assert!(may && reply == waiting(), "{channel}: {reply:?}"),
            }
        }
    }
}

#[test]
fn a_claim_without_a_channel_needs_no_channel_permission() {
    let Some(mut queue) = Queue::start() else { return };
    let token = queue.locks.hold();
    queue.ask("7");
    let mut nobody = user(&mut queue, "nobody", &["resetchannels"]);
    queue.locks.release(token);
    queue.subscriber.gets("granted 7 k");
    let reply = nobody.execute(&ask(&["LOCK.ACQUIRE", "k"], "7", "NOTIFY", "c"));
    assert!(reply.error().starts_with("NOPERM "), "{reply:?}");
    assert!(nobody.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"]) > 0);
}
