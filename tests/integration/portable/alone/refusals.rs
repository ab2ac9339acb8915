//! What the server refuses: the reply begins with the server's error code on every version, and nothing changes.

use super::{started, Way};
use crate::wire::fixture::Snapshot;
use testkit::{Conn, Reply};

/// Commands that write: on the key `held` with this token, the expired key `over` and the free key `free`.
fn writes(token: i64) -> [String; 5] {
    [
        "LOCK.ACQUIRE free PX 1000".into(),
        "LOCK.ACQUIRE over PX 1000 DETAILS".into(),
        "LOCK.RECOVER over PX 1000".into(),
        format!("LOCK.EXTEND held {token} PX 1000"),
        format!("LOCK.RELEASE held {token}"),
    ]
}

/// Two locks, one of them expired. Returns the other's token.
fn two_locks(conn: &mut Conn, way: &Way) -> i64 {
    conn.execute(&["DEL", "held", "over", "free"]);
    conn.ok(&["SET", "over", "1763710031.4829131763710000482913 alice"]);
    way.execute(conn, "LOCK.ACQUIRE held PX 60000").int()
}

fn begins_with(reply: &Reply, word: &str) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with(&format!("{word} ")))
}

#[test]
fn a_replica_refuses_to_write_and_checks() {
    let (_server, mut conn, ways) = started(&[]);
    for way in ways {
        let token = two_locks(&mut conn, &way);
        conn.ok(&["REPLICAOF", "127.0.0.1", "1"]);
        let before = Snapshot::take(&mut conn, "held");
        for command in writes(token) {
            let reply = way.execute(&mut conn, &command);
            assert!(begins_with(&reply, "READONLY"), "{command}, {way:?}: {reply:?}");
        }
        assert_eq!(Snapshot::take(&mut conn, "held"), before);
        let left = way.execute(&mut conn, &format!("LOCK.CHECK held {token}")).int();
        assert!((50_000..=60_000).contains(&left), "{left}");
        conn.ok(&["REPLICAOF", "NO", "ONE"]);
    }
}

#[test]
fn when_memory_runs_out_locks_can_be_released_but_not_taken() {
    let (_server, mut conn, ways) = started(&[]);
    for way in ways {
        let token = two_locks(&mut conn, &way);
        conn.ok(&["CONFIG", "SET", "maxmemory", "1"]);
        let before = Snapshot::take(&mut conn, "over");
        let [free, over, recover, extend, release] = writes(token);
        for command in [free, over, recover] {
            let reply = way.execute(&mut conn, &command);
            assert!(begins_with(&reply, "OOM"), "{command}, {way:?}: {reply:?}");
        }
        assert_eq!(Snapshot::take(&mut conn, "over"), before);
        let extended = way.execute(&mut conn, &extend);
        match way {
            Way::Function => assert_eq!(extended, Reply::Int(1)),
            // Unlike a function, the script has no flag that allows writes when memory runs out.
            Way::Script(_) => assert!(begins_with(&extended, "OOM"), "{extended:?}"),
        }
        assert!(way.execute(&mut conn, &format!("LOCK.CHECK held {token}")).int() > 0);
        assert_eq!(way.execute(&mut conn, &release), Reply::Int(1));
        conn.ok(&["CONFIG", "SET", "maxmemory", "0"]);
    }
}

#[test]
fn a_master_with_too_few_replicas_refuses_all_writes() {
    let (_server, mut conn, ways) = started(&[]);
    if conn.version() < (false, 6, 2) {
        testkit::skipped("NOREPLICAS in scripts", "before 6.2, scripts write anyway");
        return;
    }
    for way in ways {
        let token = two_locks(&mut conn, &way);
        conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
        let before = Snapshot::take(&mut conn, "held");
        for command in writes(token) {
            let reply = way.execute(&mut conn, &command);
            assert!(begins_with(&reply, "NOREPLICAS"), "{command}, {way:?}: {reply:?}");
        }
        assert_eq!(Snapshot::take(&mut conn, "held"), before);
        assert!(way.execute(&mut conn, &format!("LOCK.CHECK held {token}")).int() > 0);
        conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    }
}

/// A script has no flags, so it is refused only when it writes.
#[test]
fn a_held_lock_is_refused_as_usual_where_the_server_takes_no_writes() {
    let (_server, mut conn, ways) = started(&[]);
    for way in ways.into_iter().filter(|way| matches!(way, Way::Script(_))) {
        for (setting, value) in [("maxmemory", "1"), ("min-replicas-to-write", "1")] {
            two_locks(&mut conn, &way);
            conn.ok(&["CONFIG", "SET", setting, value]);
            for command in ["LOCK.ACQUIRE held PX 1000", "LOCK.ACQUIRE held PX 1000 ID 7"] {
                let reply = way.execute(&mut conn, command);
                assert!(reply.is_nil(), "{setting}, {command}: {reply:?}");
            }
            conn.ok(&["CONFIG", "SET", setting, "0"]);
        }
    }
}

#[test]
fn wrongtype_comes_after_bad_input() {
    let (_server, mut conn, ways) = started(&[]);
    conn.int(&["RPUSH", "list", "1"]);
    let wrong_type = "WRONGTYPE Operation against a key holding the wrong kind of value";
    for way in ways {
        for command in [
            "LOCK.ACQUIRE list PX 1000",
            "LOCK.RECOVER list PX 1000",
            "LOCK.EXTEND list 7 PX 1000",
            "LOCK.RELEASE list 7",
            "LOCK.CHECK list 1763710000482913",
        ] {
            assert_eq!(way.execute(&mut conn, command).error(), wrong_type, "{command}, {way:?}");
        }
        for command in
            ["LOCK.ACQUIRE list PX 0", "LOCK.EXTEND list x PX 1000", "LOCK.RELEASE list x", "LOCK.CHECK list x"]
        {
            assert!(way.execute(&mut conn, command).error().starts_with("ERR "), "{command}, {way:?}");
        }
    }
}
