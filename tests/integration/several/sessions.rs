//! Sessions of those who share a lock or hold several: with the connection ends all that it held, and nothing else.

use super::{acquire, acquire_all};
use crate::support::{until, Conn, Reply, Server};
use crate::waiting::Locks;

/// With a margin, so that what a session leaves is seen before it is over.
fn start() -> Locks {
    Locks::on(Server::with().module_args(&["margin-ms", "60000"]).start())
}

/// In microseconds, as a double says it to within one.
#[allow(clippy::cast_possible_truncation)]
fn micros(seconds: &str) -> i64 {
    (seconds.parse::<f64>().unwrap() * 1e6).round() as i64
}

fn timestamp(conn: &mut Conn, key: &str) -> i64 {
    micros(&conn.call(&["LOCK.INFO", key]).field("timestamp").text())
}

fn score(conn: &mut Conn, key: &str, token: &str) -> i64 {
    micros(&conn.text(&["ZSCORE", key, token]))
}

fn session(conn: &mut Conn, key: &str) -> Reply {
    conn.call(&["LOCK.INFO", key]).field("session")
}

#[test]
fn all_that_a_connection_shared_and_all_its_keys_end_together() {
    let mut locks = start();
    let mut dying = locks.server.conn();
    let shared = acquire(&mut dying, &["shared", "EX", "600", "SHARED", "SESSION"]);
    let limited = acquire(&mut dying, &["limited", "EX", "600", "LIMIT", "2", "SESSION"]);
    let short = acquire(&mut dying, &["shared", "PX", "1", "SHARED", "SESSION"]);
    let all = acquire_all(&mut dying, &["a", "b", "c"], &["EX", "600", "SESSION"]);
    let unbound = acquire(&mut dying, &["shared", "EX", "500", "SHARED"]);
    let other = acquire(&mut locks.conn, &["shared", "EX", "400", "SHARED"]);
    let conn = &mut locks.conn;
    // What ends before its connection does is left alone.
    until("the short lease is over", || (conn.int(&["LOCK.CHECK", "shared", &short]) == 0).then_some(()));
    std::thread::sleep(std::time::Duration::from_millis(5));
    let kept = [&unbound, &other, &short].map(|token| score(conn, "shared", token));
    let before = [timestamp(conn, "a"), score(conn, "shared", &shared)];
    drop(dying);
    until("the session ends", || (timestamp(conn, "a") < before[0] - 500_000_000).then_some(()));
    until("the shared one too", || (score(conn, "shared", &shared) < before[1] - 500_000_000).then_some(()));
    // The time of the end and the margin, for each of them.
    let end = timestamp(conn, "a");
    assert_eq!(["b", "c"].map(|key| timestamp(conn, key)), [end, end]);
    for (key, token) in [("shared", &shared), ("limited", &limited)] {
        assert_eq!(score(conn, key, token), end, "{key}");
    }
    assert_eq!([&unbound, &other, &short].map(|token| score(conn, "shared", token)), kept, "nobody else's");
    // The tokens still release: in time, as long as the margin lasts.
    assert_eq!(conn.int(&["LOCK.CHECK", "b", &all]), 0);
    assert_eq!(conn.int(&["LOCK.MRELEASE", "3", "a", "b", "c", &all]), 3);
    assert_eq!(conn.int(&["LOCK.RELEASE", "shared", &shared]), 1);
    assert_eq!(conn.int(&["LOCK.RELEASE", "limited", &limited]), 1);
    assert_eq!(locks.info("lock", "lock_sessions"), 0);
}

#[test]
fn an_attempt_that_is_sent_again_belongs_to_the_newer_connection_with_all_its_keys() {
    let mut locks = start();
    let (mut first, mut second) = (locks.server.conn(), locks.server.conn());
    let take_all = ["EX", "600", "SESSION", "ID", "5"];
    let take = ["shared", "EX", "600", "SHARED", "SESSION", "ID", "6"];
    let all = acquire_all(&mut first, &["a", "b"], &take_all);
    let shared = acquire(&mut first, &take);
    let id = second.call(&["CLIENT", "ID"]);
    assert_eq!(acquire_all(&mut second, &["b", "a"], &take_all), all);
    assert_eq!(acquire(&mut second, &take), shared);
    for key in ["a", "b", "shared"] {
        assert_eq!(session(&mut locks.conn, key), id, "{key}");
    }
    let gone = first.int(&["CLIENT", "ID"]).to_string();
    drop(first);
    until("it has gone", || (!locks.conn.text(&["CLIENT", "LIST"]).contains(&format!("id={gone} "))).then_some(()));
    locks.conn.call(&["PING"]);
    assert!(locks.conn.int(&["LOCK.CHECK", "a", &all]) > 500_000);
    assert!(locks.conn.int(&["LOCK.CHECK", "shared", &shared]) > 500_000);
    // Without SESSION it is bound to nobody.
    assert_eq!(acquire_all(&mut locks.conn, &["a", "b"], &["EX", "600", "ID", "5"]), all);
    assert!(session(&mut locks.conn, "a").is_nil() && session(&mut locks.conn, "b").is_nil());
    drop(second);
    until("the shared one ends", || (locks.conn.int(&["LOCK.CHECK", "shared", &shared]) == 0).then_some(()));
    assert!(locks.conn.int(&["LOCK.CHECK", "b", &all]) > 500_000);
}

#[test]
fn who_waited_with_a_session_ends_all_its_keys_with_its_connection() {
    let mut locks = Locks::start();
    let held = acquire_all(&mut locks.conn, &["k", "l"], &["EX", "60"]);
    let mut all =
        locks.wait_with(&["LOCK.MACQUIRE", "3", "k", "l", "m", "EX", "60", "WAIT", "60000", "SESSION", "OWNER", "all"]);
    // One after the other, because they want another one besides.
    let mut next: Vec<_> = ["k", "l"]
        .iter()
        .map(|key| locks.wait_with(&["LOCK.MACQUIRE", "2", key, "other", "EX", "60", "WAIT", "60000"]))
        .collect();
    assert_eq!(locks.conn.int(&["LOCK.MRELEASE", "2", "k", "l", &held]), 2);
    all.granted();
    for key in ["k", "l", "m"] {
        assert_eq!(session(&mut locks.conn, key).int().to_string(), all.id, "{key}");
    }
    drop(all);
    for (waiter, key) in next.iter_mut().zip(["k", "l"]) {
        let token = waiter.granted().to_string();
        assert_eq!(locks.conn.int(&["LOCK.MRELEASE", "2", key, "other", &token]), 2);
    }
    assert_eq!(locks.info("lock", "lock_sessions"), 0);
}

#[test]
fn a_script_has_no_session_for_several_either() {
    let mut locks = Locks::start();
    for call in [
        "return redis.pcall('LOCK.ACQUIRE', KEYS[1], 'EX', 5, 'SHARED', 'SESSION')",
        "return redis.pcall('LOCK.MACQUIRE', 2, KEYS[1], KEYS[2], 'EX', 5, 'SESSION')",
    ] {
        let reply = locks.conn.call(&["EVAL", call, "2", "k", "l"]);
        assert!(reply.error().starts_with("ERR SESSION needs a connection"), "{reply:?}");
    }
    assert_eq!(locks.conn.int(&["EXISTS", "k", "l"]), 0);
}
