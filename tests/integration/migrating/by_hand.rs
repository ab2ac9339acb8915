//! Libraries that these tests do not run. Instead they send the libraries' commands, as found in their sources.

use crate::metrics::number;
use testkit::{server_time_us, until, Reply, Server};

#[test]
fn redisson_and_lock_commands_refuse_each_others_keys() {
    let (_server, mut conn) = Server::connected();
    // An RLock is a hash that maps its holder to the hold count.
    assert_eq!(conn.int(&["HINCRBY", "theirs", "2fd93dbd:42", "1"]), 1);
    conn.int(&["PEXPIRE", "theirs", "30000"]);
    for command in [
        &["LOCK.ACQUIRE", "theirs", "EX", "60"][..],
        &["LOCK.ACQUIRE", "theirs", "EX", "60", "WAIT", "20000"],
        &["LOCK.RELEASE", "theirs", "1"],
        &["LOCK.INFO", "theirs"],
    ] {
        assert!(conn.execute(command).error().starts_with("WRONGTYPE "), "{command:?}");
    }
    assert_eq!(conn.text(&["HGET", "theirs", "2fd93dbd:42"]), "1");

    let token = conn.int(&["LOCK.ACQUIRE", "ours", "EX", "60"]).to_string();
    // The key exists, so Redisson's lock and unlock both check next whether the client holds it.
    assert!(conn.execute(&["HEXISTS", "ours", "2fd93dbd:42"]).error().starts_with("WRONGTYPE "));
    assert!(conn.int(&["LOCK.CHECK", "ours", &token]) > 0);
    assert_eq!(conn.int(&["LOCK.RELEASE", "ours", &token]), 1);
}

#[test]
fn shedlock_without_safe_update_harms_its_successor() {
    let (server, mut conn) = Server::connected();
    let value = "ADDED:2026-11-21T12:00:00.000Z@worker-1:0b1c3a6e-7d5a-4f0e-9a51-2f6d3a1b9c77";
    let taken = |key: &str| {
        let mut conn = server.conn();
        conn.ok(&["SET", key, value, "NX", "PX", "100"]);
        assert_eq!(conn.state(key), "foreign");
        // ShedLock's lockAtMostFor passes, and the next holder uses LOCK.ACQUIRE.
        conn.int(&["LOCK.ACQUIRE", key, "EX", "60", "WAIT", "20000"]).to_string()
    };
    // ShedLock sends this to unlock before lockAtLeastFor has passed, and to extend.
    let token = taken("over");
    conn.ok(&["SET", "over", value, "XX", "PX", "5000"]);
    assert_eq!(conn.int(&["LOCK.CHECK", "over", &token]), 0);
    // ShedLock sends this to unlock after lockAtLeastFor.
    let token = taken("deleted");
    assert_eq!(conn.int(&["DEL", "deleted"]), 1);
    assert_eq!(conn.int(&["LOCK.CHECK", "deleted", &token]), 0);
    // With safeUpdate both compare first.
    let token = taken("safe");
    let compare = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
    assert_eq!(conn.int(&["EVAL", compare, "1", "safe", value]), 0);
    assert!(conn.int(&["LOCK.CHECK", "safe", &token]) > 0);
}

#[test]
fn redsync_setnx_extension_takes_only_a_free_lock() {
    let (_server, mut conn) = Server::connected();
    let token = conn.int(&["LOCK.ACQUIRE", "a", "EX", "60"]).to_string();
    // WithSetNXOnExtend: compare, else SET NX.
    let extend = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) \
                  elseif redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') then return 1 end return 0";
    let extend = ["EVAL", extend, "1", "a", "8Zt0b3mX6Q==", "8000"];
    assert_eq!(conn.int(&extend), 0);
    assert_eq!(conn.int(&["LOCK.RELEASE", "a", &token]), 1);
    assert_eq!(conn.int(&extend), 1);
    assert!(conn.execute(&["LOCK.ACQUIRE", "a", "EX", "60"]).is_nil());
}

#[test]
fn info_shows_the_owner_and_counts_foreign_values() {
    let (_server, mut conn) = Server::connected();
    let seen = |conn: &mut testkit::Conn| {
        assert!(conn.execute(&["LOCK.ACQUIRE", "a", "EX", "60"]).is_nil());
        let info = conn.execute(&["LOCK.INFO", "a"]);
        (info.field("state").text(), info.field("token").is_nil(), number(conn, "foreign_values_met"))
    };
    conn.ok(&["SET", "a", "1e7f0b52c4c711f0a1", "NX", "PX", "60000"]);
    assert_eq!(seen(&mut conn), ("foreign".into(), true, 1), "a token with an expiry");
    conn.ok(&["SET", "a", "4102444800.5"]);
    assert_eq!(seen(&mut conn), ("held".into(), true, 1), "the documented pattern");
    conn.int(&["DEL", "a"]);
    conn.int(&["LOCK.ACQUIRE", "a", "EX", "60"]);
    assert_eq!(seen(&mut conn), ("held".into(), false, 1), "LOCK.*");
}

#[test]
fn a_late_getset_creates_a_lock_without_a_holder() {
    let (_server, mut conn) = Server::with().module_args(&["margin-ms", "0", "retention-ms", "0"]).connected();
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "20"]).to_string();
    let seen = conn.text(&["GET", "k"]);
    until("the key expires", || (conn.int(&["EXISTS", "k"]) == 0).then_some(()));
    let end_us = server_time_us(&mut conn) + 1_000_000;
    let end = format!("{}.{:06}", end_us / 1_000_000, end_us % 1_000_000);
    // GETSET does not return the value that the client saw, so the client believes that another client was faster.
    assert_ne!(conn.execute(&["GETSET", "k", &end]), Reply::Text(seen.into_bytes()));
    assert!(conn.execute(&["LOCK.ACQUIRE", "k", "EX", "60"]).is_nil());
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &token]), 0);
    let next = conn.int(&["LOCK.ACQUIRE", "k", "EX", "60", "WAIT", "20000"]);
    assert!(server_time_us(&mut conn) >= end_us);
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &next.to_string()]), 1);
}
