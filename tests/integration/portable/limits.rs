//! What happens beyond each limit named in docs/PORTABLE.md.

use super::client::{self, Way};
use super::load;
use std::time::Duration;
use testkit::{skipped, timestamp_us, until, Conn, Reply, Server};

/// The script on this server.
fn script(conn: &mut Conn) -> Way {
    Way::Script(conn.text(&["SCRIPT", "LOAD", &client::script()]))
}

#[test]
fn scripts_bypass_the_grace_unless_acls_forbid_it() {
    let server = Server::with().module_args(&["failover-grace-ms", "600000"]).start();
    let mut conn = server.conn();
    let ways = load(&mut conn);
    for way in ways {
        let reply = way.execute(&mut conn, "LOCK.ACQUIRE k PX 1000");
        match way {
            Way::Function => assert!(reply.error().starts_with("GRACE "), "{reply:?}"),
            Way::Script(_) => assert!(reply.int() > 0, "granted during the grace"),
        }
        conn.execute(&["DEL", "k"]);
    }
    let way = script(&mut conn);
    conn.ok(&["ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "-eval", "-evalsha"]);
    if !conn.is_before_7() {
        conn.ok(&["ACL", "SETUSER", "app", "-fcall"]);
    }
    conn.ok(&["AUTH", "app", "secret"]);
    let reply = way.execute(&mut conn, "LOCK.ACQUIRE k PX 1000");
    assert!(reply.error().starts_with("NOPERM "), "{reply:?}");
    assert!(conn.execute(&["LOCK.ACQUIRE", "k", "PX", "1000"]).error().starts_with("GRACE "));
}

#[test]
fn an_extended_session_still_ends_with_its_connection() {
    let (server, mut conn) = Server::connected();
    let way = script(&mut conn);
    let mut holder = server.conn();
    let token = holder.int(&["LOCK.ACQUIRE", "k", "PX", "60000", "SESSION", "ID", "7"]);
    assert_eq!(way.execute(&mut conn, &format!("LOCK.EXTEND k {token} PX 600000")), Reply::Int(1));
    // The ID gets its token from the script too, and the session stays with the first connection.
    assert_eq!(way.execute(&mut conn, "LOCK.ACQUIRE k PX 1000 ID 7"), Reply::Int(token));
    drop(holder);
    let now_us = testkit::server_time_us(&mut conn);
    until("the session has ended", || (timestamp_us(&conn.text(&["GET", "k"])) < now_us + 10_000_000).then_some(()));
}

#[test]
fn a_writable_replica_grants_what_its_master_granted_too() {
    let master = Server::with().without_module().args(&["--repl-diskless-sync-delay", "0"]).start();
    let replica = Server::with().without_module().args(&["--replica-read-only", "no"]).start();
    replica.replicate(&master);
    let (mut conn, mut there) = (master.conn(), replica.conn());
    let (way, other) = (script(&mut conn), script(&mut there));
    let first = other.execute(&mut there, "LOCK.ACQUIRE k PX 60000").int();
    let second = way.execute(&mut conn, "LOCK.ACQUIRE k PX 60000").int();
    master.wait_offset(&replica);
    assert_ne!(first, second, "both hold it");
    assert_eq!(other.execute(&mut there, &format!("LOCK.RELEASE k {first}")), Reply::Int(0), "and one loses it");
}

#[test]
fn keys_with_several_holders_belong_to_the_module() {
    let (_server, mut conn) = Server::connected();
    let way = script(&mut conn);
    for option in [&["SHARED"][..], &["LIMIT", "3"]] {
        let token = conn.int(&[&["LOCK.ACQUIRE", "k", "PX", "60000"], option].concat());
        for command in [
            "LOCK.ACQUIRE k PX 1".to_string(),
            "LOCK.RECOVER k PX 1".into(),
            format!("LOCK.EXTEND k {token} PX 1"),
            format!("LOCK.RELEASE k {token}"),
            format!("LOCK.CHECK k {token}"),
        ] {
            assert!(way.execute(&mut conn, &command).error().starts_with("WRONGTYPE "), "{command}");
        }
        assert_eq!(conn.int(&["LOCK.RELEASE", "k", &token.to_string()]), 1);
    }
}

#[test]
fn a_volatile_policy_evicts_no_lock() {
    let (_server, mut conn) = Server::with()
        .without_module()
        .args(&["--maxmemory-policy", "volatile-lru", "--maxmemory-samples", "10"])
        .connected();
    for way in load(&mut conn) {
        let lock = |conn: &mut Conn, key: &str, retention: &str| {
            conn.int(&way.args(&["LOCK.ACQUIRE", key, "PX", "600000"], "1000", retention))
        };
        let kept = lock(&mut conn, "kept", "-1");
        assert_eq!(conn.int(&["PTTL", "kept"]), -1);
        for number in 0..50 {
            lock(&mut conn, &format!("evicted:{number}"), "60000");
        }
        let used: u64 = conn.info("memory", "used_memory").unwrap().parse().unwrap();
        conn.ok(&["CONFIG", "SET", "maxmemory", &(used + 200_000).to_string()]);
        let filler = "x".repeat(20_000);
        let filled = (0..100)
            .any(|number| conn.execute(&["SET", &format!("filler:{number}"), &filler]) != Reply::Status("OK".into()));
        assert!(filled, "the server runs out of memory");
        let survivors = (0..50).filter(|number| conn.int(&["EXISTS", &format!("evicted:{number}")]) == 1).count();
        assert!(survivors < 5, "locks with a native expiry go first: {survivors} are left");
        assert!(way.execute(&mut conn, &format!("LOCK.CHECK kept {kept}")).int() > 500_000);
        conn.ok(&["CONFIG", "SET", "maxmemory", "0"]);
        conn.ok(&["FLUSHALL"]);
    }
}

#[test]
fn a_script_cannot_queue_and_starves() {
    let (server, mut conn) = Server::connected();
    let way = script(&mut conn);
    let mut token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "60000"]);
    for _ in 0..20 {
        let mut waiter = server.waiter(&["LOCK.ACQUIRE", "k", "PX", "60000", "WAIT", "20000"]);
        assert_eq!(conn.int(&["LOCK.RELEASE", "k", &token.to_string()]), 1);
        assert!(way.execute(&mut conn, "LOCK.ACQUIRE k PX 1000").is_nil(), "the waiter has it");
        token = waiter.read().int();
    }
    // In the same iteration as a DEL, the script comes first, although another client waits.
    let mut waiter = server.waiter(&["LOCK.ACQUIRE", "k", "PX", "60000", "WAIT", "20000"]);
    let acquire = way.usual(&["LOCK.ACQUIRE", "k", "PX", "60000"]);
    conn.send(&["MULTI"]);
    conn.send(&["DEL", "k"]);
    conn.send(&acquire);
    let replies = (conn.read(), conn.read(), conn.read());
    assert!(matches!(replies.0, Reply::Status(_)), "{replies:?}");
    let done = conn.execute(&["EXEC"]);
    let token = done.list()[1].int();
    assert!(waiter.no_reply_within(Duration::from_millis(50)), "the waiter goes on waiting");
    // To the module, a release through the script is a DEL: the head of the queue gets the lock.
    assert_eq!(way.execute(&mut conn, &format!("LOCK.RELEASE k {token}")), Reply::Int(1));
    server.allow_silent_changes();
    assert!(waiter.read().int() > token);
}

#[test]
fn a_transaction_with_a_stopped_clock_repeats_a_token() {
    let (_server, mut conn) = Server::with().without_module().connected();
    let is_frozen = conn.version() >= (false, 7, 2);
    let ways = load(&mut conn);
    for way in &ways {
        // The usual case: two grants of a key with a release in between.
        let first = way.execute(&mut conn, "LOCK.ACQUIRE k PX 1000").int();
        way.execute(&mut conn, &format!("LOCK.RELEASE k {first}"));
        assert!(way.execute(&mut conn, "LOCK.ACQUIRE k PX 1000").int() > first);
        conn.execute(&["DEL", "k"]);
        conn.ok(&["MULTI"]);
        for _ in 0..2 {
            conn.execute(&way.usual(&["LOCK.ACQUIRE", "k", "PX", "1000"]));
            conn.execute(&["DEL", "k"]);
        }
        let done = conn.execute(&["EXEC"]);
        let [first, second] = [0, 2].map(|at| done.list()[at].int());
        if is_frozen {
            assert_eq!(first, second);
        } else {
            assert!(first <= second);
        }
    }
    if !is_frozen {
        skipped("a clock that stands still within a transaction", "it needs 7.2");
    }
}

#[test]
fn script_tokens_fall_behind_a_module_token_from_the_future() {
    let (_server, mut conn) = Server::connected();
    let way = script(&mut conn);
    let now_us = testkit::server_time_us(&mut conn);
    // A day ahead, in the key: the next token is larger. Then the key is deleted.
    let ahead = now_us + 86_400_000_000;
    conn.ok(&["SET", "k", &format!("1763710031.000000{ahead}")]);
    assert_eq!(way.execute(&mut conn, "LOCK.ACQUIRE k PX 60000"), Reply::Int(ahead + 1));
    assert_eq!(way.execute(&mut conn, &format!("LOCK.RELEASE k {}", ahead + 1)), Reply::Int(1));
    let behind = way.execute(&mut conn, "LOCK.ACQUIRE k PX 60000").int();
    assert!(behind < ahead, "{behind}");
}

#[test]
fn every_grant_can_be_released_whatever_the_token_before_it() {
    let (_server, mut conn) = Server::with().without_module().connected();
    for way in load(&mut conn) {
        for (below, kind) in [(1, ""), (2, ""), (3, ""), (1, " SHARED"), (2, " SHARED"), (3, " SHARED")] {
            conn.ok(&["FLUSHALL"]);
            let mut token = 9_007_199_254_740_991_i64 - below;
            for _ in 0..4 {
                // Each grant follows one that has expired.
                conn.ok(&["SET", "k", &format!("1763710031.000000{token:016}")]);
                let mut call = |command: String| conn.int(&way.queued(&command));
                token = call(format!("LOCK.ACQUIRE k PX 60000{kind}"));
                assert!(call(format!("LOCK.CHECK k {token}")) > 0, "{way:?}{kind}: {token}");
                assert_eq!(call(format!("LOCK.RELEASE k {token}")), 1, "{way:?}{kind}: {token}");
            }
        }
    }
}
