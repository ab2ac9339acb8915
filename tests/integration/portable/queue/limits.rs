//! The queue's limits, invalid calls, and the permissions that the queue needs.

use super::super::{load, Way};
use super::{in_each_way, with_a_clock, QUEUE};
use crate::wire::fixture::Fixture;
use testkit::{project_file, until, Reply, Server};

#[test]
fn a_wrong_queue_is_refused_and_changes_nothing() {
    in_each_way(|place| {
        for (keys, error) in [
            (&["k", "k:queue"][..], "ERR queue is not the key followed by :queue:{key}"),
            (&["k{x}", "k{x}:queue:{k{x}}"], "ERR queue is not the key"),
            (&["k{x", "k{x:queue"], "ERR key has a brace but no hash tag, so it has no queue"),
            (&["k{}x{y}", "k{}x{y}:queue"], "ERR key has a brace but no hash tag"),
            (&["k}", "k}:queue:{k}}"], "ERR key has a brace but no hash tag"),
            (&["k", QUEUE, "k"], "ERR this function takes a lock and its queue"),
        ] {
            for (name, rest) in [
                ("lock_acquire", &["PX", "1000"][..]),
                ("lock_recover", &["PX", "1000"]),
                ("lock_extend", &["7", "PX", "1000"]),
                ("lock_release", &["7"]),
                ("lock_check", &["7"]),
                ("lock_cancel", &["ID", "7", "NOTIFY", "c"]),
                ("lock_info", &[]),
            ] {
                let reply = place.conn.execute(&place.way.raw(name, keys, rest));
                assert!(reply.error().starts_with(error), "{name} {keys:?}: {reply:?}");
            }
        }
        assert_eq!(place.conn.int(&["DBSIZE"]), 0);
        assert!(place.execute("LOCK.ACQUIRE a{x}b PX 1000").int() > 0, "the queue of a key with a hash tag");
        place.conn.int(&["RPUSH", QUEUE, "x"]);
        for command in ["LOCK.ACQUIRE k PX 1000", "LOCK.ACQUIRE k PX 1000 ID 7 WAIT 9 NOTIFY c", "LOCK.RELEASE k 7"] {
            assert!(place.execute(command).error().starts_with("WRONGTYPE "), "{command}");
        }
        assert_eq!(place.conn.int(&["EXISTS", "k"]), 0);
    });
}

#[test]
fn its_names_and_members_match_the_fixture() {
    let format = Fixture::load().queue;
    in_each_way(|place| {
        for (lock, queue) in &format.name {
            let keys = [lock.as_str(), if queue.is_empty() { "k" } else { queue }];
            let reply = place.conn.execute(&place.way.raw("lock_acquire", &keys, &["PX", "1000"]));
            if queue.is_empty() {
                assert!(reply.error().starts_with("ERR key has a brace but no hash tag"), "{lock}: {reply:?}");
            } else {
                assert!(reply.int() > 0, "{lock}");
            }
        }
        for (options, member) in &format.member {
            place.conn.ok(&["SET", "k", "secret"]);
            let reply = place.execute(&format!("LOCK.ACQUIRE k PX 1000 WAIT 9000 {options}"));
            if options.contains("SNOTIFY") && place.conn.is_before_7() {
                assert!(reply.error().starts_with("ERR SNOTIFY needs Redis 7.0"), "{reply:?}");
                continue;
            }
            let members = place.conn.execute(&["ZRANGE", QUEUE, "0", "-1"]);
            assert_eq!(members, Reply::List(vec![Reply::Text(member.clone().into_bytes())]), "{options}: {reply:?}");
            place.conn.int(&["DEL", QUEUE]);
        }
    });
}

#[test]
fn bad_options_are_named() {
    in_each_way(|place| {
        let channel = "c".repeat(257);
        for (command, error) in [
            ("LOCK.ACQUIRE k PX 1000 NOTIFY c WAIT 5", "ERR syntax error: NOTIFY needs ID"),
            ("LOCK.ACQUIRE k PX 1000 SNOTIFY c ID 5", "ERR syntax error: SNOTIFY needs WAIT"),
            ("LOCK.ACQUIRE k PX 1000 NOTIFY c SNOTIFY c", "ERR syntax error: NOTIFY and SNOTIFY exclude each other"),
            ("LOCK.ACQUIRE k PX 1000 NOTIFY c NOTIFY c", "ERR syntax error: NOTIFY is given twice"),
            ("LOCK.ACQUIRE k PX 1000 NOTIFY", "ERR syntax error: NOTIFY has no value"),
            (&*format!("LOCK.ACQUIRE k PX 1000 NOTIFY {channel}"), "ERR channel is not 1 to 256 bytes long"),
            ("LOCK.ACQUIRE k PX 1000 NOTIFY c ID 1 WAIT 3600001", "ERR wait is longer than 1 hour"),
            ("LOCK.ACQUIRE k PX 1000 SHARED LIMIT 3", "ERR syntax error: SHARED and LIMIT exclude each other"),
            ("LOCK.ACQUIRE k PX 1000 LIMIT 0", "ERR limit is not a whole number between 1 and 4096"),
            ("LOCK.ACQUIRE k PX 1000 LIMIT 4097", "ERR limit is not"),
            ("LOCK.ACQUIRE k PX 1000 SESSION", "ERR SESSION needs the lock module"),
            ("LOCK.RECOVER k PX 1000 SHARED", "ERR syntax error: argument 4 is not an option of LOCK.RECOVER"),
            ("LOCK.CANCEL k ID 7 WAIT 5", "ERR syntax error: argument 4 is not an option of LOCK.CANCEL"),
            ("LOCK.CANCEL k ID 7 OWNER bob", "ERR syntax error"),
            ("LOCK.CANCEL k NOTIFY c", "ERR syntax error: NOTIFY needs ID"),
        ] {
            let reply = place.execute(command);
            assert!(reply.error().starts_with(error), "{command}: {reply:?}");
        }
        assert_eq!(place.conn.int(&["DBSIZE"]), 0);
        // Without the queue only the module has these options.
        for name in ["SHARED", "LIMIT 3", "NOTIFY c"] {
            let reply = place.way.execute(&mut place.conn, &format!("LOCK.ACQUIRE k PX 1000 {name}"));
            assert!(reply.error().contains("needs the lock module, or the queue as a second key"), "{reply:?}");
        }
    });
}

#[test]
fn a_queue_has_at_most_100000_attempts_and_64_skipped_channels() {
    in_each_way(|place| {
        place.is_granted(1, "c", "");
        for from in (0..100_000_u64).step_by(1_000) {
            let mut add = vec!["ZADD".to_string(), QUEUE.into()];
            for id in from..from + 1_000 {
                add.extend([format!("{}", 1_000_000_000_000_000 + id), format!("{:019} n c", id + 100)]);
            }
            place.conn.int(&add);
        }
        let reply = place.ask(2, "c", "");
        assert_eq!(reply.error(), "BUSYLOCKS 100000 attempts are already waiting in the queue of this lock");
        place.waits(100, "c", "");
        assert_eq!(place.execute("LOCK.CANCEL k ID 100 NOTIFY c"), Reply::Int(1));
        place.waits(2, "c", "");
        for channel in 0..70 {
            place.conn.int(&["ZADD", QUEUE, "-inf", &format!(" skipped-{channel}")]);
        }
        assert_eq!(place.execute("LOCK.CANCEL k ID 101 NOTIFY c"), Reply::Int(1));
        assert_eq!(place.skipped().len(), 64);
    });
}

#[test]
fn the_queue_lives_as_long_as_its_longest_wait() {
    with_a_clock(|clocked| {
        clocked.place.is_granted(1, "c", "");
        let ttl = |clocked: &mut super::Clocked| clocked.place.conn.int(&["PTTL", QUEUE]);
        clocked.place.execute("LOCK.ACQUIRE k PX 1000 WAIT 30000 ID 2 NOTIFY c");
        assert_eq!(ttl(clocked), 30_000);
        clocked.place.execute("LOCK.ACQUIRE k PX 1000 WAIT 3600000 ID 3 NOTIFY c");
        clocked.place.execute("LOCK.ACQUIRE k PX 1000 WAIT 5 ID 4 NOTIFY c");
        assert_eq!(ttl(clocked), 3_600_000);
        clocked.pass(4_000_000_000);
        // On a busy machine, a command on Valkey 9.1.2 once still took the earlier time.
        until("the queue is gone", || (clocked.place.conn.int(&["EXISTS", QUEUE]) == 0).then_some(()));
        // Losing the queue costs attempts their places, never a lock: they ask again.
        clocked.place.is_granted(3, "c", "");
        clocked.place.waits(2, "c", "");
    });
}

#[test]
fn the_documented_rights_are_minimal() {
    let (server, mut conn) = Server::with().without_module().connected();
    if conn.is_before_7() {
        return;
    }
    let page = project_file("docs/PORTABLE.md");
    for way in load(&mut conn) {
        let opening = if matches!(way, Way::Function) { "ACL SETUSER queued" } else { "ACL SETUSER polled" };
        let line = page.lines().find(|line| line.starts_with(opening)).expect("the rule is on the page");
        let rule: Vec<&str> = line.split(' ').collect();
        let needed: Vec<&str> = rule.iter().filter(|word| word.starts_with('+')).copied().collect();
        assert!(needed.len() > 12, "{line}");
        let errors = |taken: Option<&str>, conn: &mut testkit::Conn| {
            conn.ok(&["FLUSHALL"]);
            conn.execute(&["ACL", "DELUSER", rule[2]]);
            conn.ok(&rule);
            if let Some(right) = taken {
                conn.ok(&["ACL", "SETUSER", rule[2], &right.replace('+', "-")]);
            }
            let mut user = server.conn();
            user.ok(&["AUTH", rule[2], "secret"]);
            everything(&way, conn, &mut user)
        };
        let refused = errors(None, &mut conn);
        assert!(refused.is_empty(), "{refused:?}");
        for right in needed {
            let refused = errors(Some(right), &mut conn);
            // Without PUBLISH nobody is notified, and without CLUSTER COUNTKEYSINSLOT no attempt counts as gone.
            if !right.contains("publish") && !right.contains("cluster") {
                assert!(!refused.is_empty(), "{way:?} works without {right}");
            }
            assert!(refused.iter().all(|text| text.starts_with("NOPERM ")), "{way:?} without {right}: {refused:?}");
        }
    }
}

/// Calls all functions with all of their writes. Returns the errors. `conn` has all permissions.
fn everything(way: &Way, conn: &mut testkit::Conn, user: &mut testkit::Conn) -> Vec<String> {
    let mut errors = Vec::new();
    let mut send = |args: Vec<String>| {
        let reply = user.execute(&args);
        if let Reply::Error(text) = &reply {
            errors.push(text.clone());
        }
        reply
    };
    let token = |reply: &Reply| if let Reply::Int(token) = reply { *token } else { 7 };
    for how in ["", " SHARED"] {
        let acquire = |id: u32| format!("LOCK.ACQUIRE lock:k PX 60000 WAIT 60000 ID {id} NOTIFY serverlock:c{how}");
        conn.execute(&["SET", "lock:k", "1763710031"]);
        let first = token(&send(way.queued(&acquire(1))));
        send(way.queued(&format!("LOCK.EXTEND lock:k {first} PX 30000")));
        conn.execute(&["PERSIST", "lock:k"]);
        let mut forever = way.queued(&format!("LOCK.EXTEND lock:k {first} PX 30000"));
        let at = forever.iter().position(|word| word == "60000").unwrap();
        forever[at] = "-1".into();
        conn.execute(&["PEXPIRE", "lock:k", "100000"]);
        send(forever);
        send(way.queued(&format!("LOCK.CHECK lock:k {first}")));
        send(way.queued("LOCK.ACQUIRE lock:k PX 60000 WAIT 60000 ID 2 NOTIFY serverlock:c"));
        send(way.queued("LOCK.ACQUIRE lock:k PX 60000 WAIT 60000 ID 3 NOTIFY serverlock:d"));
        send(way.queued("LOCK.INFO lock:k"));
        for channel in 0..70 {
            conn.execute(&["ZADD", "lock:k:queue:{lock:k}", "-inf", &format!(" {channel}")]);
        }
        send(way.queued("LOCK.CANCEL lock:k ID 2 NOTIFY serverlock:c"));
        send(way.queued(&format!("LOCK.RELEASE lock:k {first}")));
        send(way.queued("LOCK.CANCEL lock:k ID 3 NOTIFY serverlock:d"));
        conn.execute(&["DEL", "lock:k"]);
    }
    errors
}

#[test]
fn a_function_uses_the_loaded_modules_commands_and_not_its_own_queue() {
    let (server, mut conn) = Server::with().without_module().connected();
    let Some(way) = load(&mut conn).into_iter().find(|way| matches!(way, Way::Function)) else { return };
    let acquire = |id: u32| format!("LOCK.ACQUIRE k PX 60000 WAIT 60000 ID {id} NOTIFY c");
    let mut subscriber = server.conn();
    subscriber.execute(&["SUBSCRIBE", "c"]);
    let first = conn.int(&way.queued(&acquire(1)));
    conn.execute(&way.queued(&acquire(2)));
    let queue = conn.execute(&["ZRANGE", QUEUE, "0", "-1", "WITHSCORES"]);
    conn.ok(&["MODULE", "LOAD", testkit::module().to_str().unwrap()]);
    // The attempt that waited in the key moves to the module's queue when it is sent again.
    until("the functions find the module", || {
        (conn.execute(&way.queued(&acquire(2))) == Reply::Status("WAITING".into())).then_some(())
    });
    assert_eq!(conn.execute(&["ZRANGE", QUEUE, "0", "-1", "WITHSCORES"]), queue);
    assert_eq!(conn.execute(&way.queued("LOCK.INFO k")).field("waiters"), Reply::Int(1));
    assert_eq!(conn.execute(&way.queued(&format!("LOCK.RELEASE k {first}"))), Reply::Int(1));
    assert_eq!(subscriber.read().list()[2].text(), "granted 2 k");
    let second = conn.int(&way.queued(&acquire(2)));
    assert_eq!(conn.execute(&way.queued("LOCK.CANCEL k ID 2 NOTIFY c")), Reply::Int(1));
    assert_eq!(conn.execute(&way.queued(&format!("LOCK.CHECK k {second}"))), Reply::Int(0));
    let token = conn.int(&way.all("ACQUIRE", &["{x}a", "{x}b"], "PX 60000"));
    assert_eq!(conn.execute(&way.all("EXTEND", &["{x}a", "{x}b"], &format!("{token} PX 60000"))), Reply::Int(1));
    assert_eq!(conn.execute(&way.all("RELEASE", &["{x}a", "{x}b"], &token.to_string())), Reply::Int(2));
    for (command, calls) in [("cancel", 1), ("info", 1), ("macquire", 1), ("mextend", 1), ("mrelease", 1)] {
        assert_eq!(conn.calls(&format!("lock.{command}")), calls, "LOCK.{command}");
    }
}
