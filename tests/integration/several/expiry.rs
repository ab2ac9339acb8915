//! The native expiry of a set of holders: it goes when the retention of the one that ends last is over, and not
//! before; where locks get none, it has none.

use super::acquire;
use crate::replication::Stream;
use crate::support::{expire_at_ms, until, Conn, Server};
use crate::waiting::Locks;

/// When the one that ends last does, in milliseconds, rounded up.
fn last_end_ms(conn: &mut Conn) -> i64 {
    let text = conn.call(&["LOCK.INFO", "k"]).field("timestamp").text().replace('.', "");
    (text.parse::<i64>().unwrap() + 999) / 1000
}

#[test]
fn the_key_ends_with_the_retention_of_the_last() {
    for retention in [0, 60_000] {
        let server = Server::with().module_args(&["retention-ms", &retention.to_string()]).start();
        let mut conn = server.conn();
        let check = |conn: &mut Conn, what: &str| {
            assert_eq!(expire_at_ms(conn, "k"), last_end_ms(conn) + retention, "{what}, {retention}");
        };
        let first = acquire(&mut conn, &["k", "EX", "60", "SHARED"]);
        check(&mut conn, "one");
        let last = acquire(&mut conn, &["k", "EX", "90", "SHARED"]);
        check(&mut conn, "a later one");
        acquire(&mut conn, &["k", "EX", "30", "SHARED"]);
        check(&mut conn, "an earlier one");
        assert_eq!(conn.int(&["LOCK.EXTEND", "k", &first, "EX", "300"]), 1);
        check(&mut conn, "extended beyond the last");
        assert_eq!(conn.int(&["LOCK.EXTEND", "k", &first, "EX", "10"]), 1);
        check(&mut conn, "made shorter than the last");
        assert_eq!(conn.int(&["LOCK.RELEASE", "k", &last]), 1);
        check(&mut conn, "the last released");
    }
}

#[test]
fn a_set_whose_retention_is_over_goes_and_wakes_those_who_wait() {
    let mut locks = Locks::with(&["retention-ms", "0"]);
    acquire(&mut locks.conn, &["k", "PX", "200", "SHARED"]);
    acquire(&mut locks.conn, &["k", "PX", "300", "SHARED"]);
    let mut waiter = locks.wait(&["DETAILS"]);
    waiter.granted();
    acquire(&mut locks.conn, &["l", "PX", "200", "SHARED"]);
    until("it is gone", || (locks.conn.int(&["EXISTS", "l"]) == 0).then_some(()));
}

#[test]
fn for_ever_and_under_a_volatile_policy_it_has_none() {
    for args in [&["--maxmemory-policy", "volatile-lru"][..], &[]] {
        let retention = if args.is_empty() { "-1" } else { "60000" };
        let server = Server::with().args(args).module_args(&["retention-ms", retention]).start();
        let mut conn = server.conn();
        let token = acquire(&mut conn, &["k", "EX", "60", "SHARED"]);
        acquire(&mut conn, &["k", "EX", "90", "SHARED"]);
        assert_eq!(conn.int(&["LOCK.RELEASE", "k", &token]), 1);
        assert_eq!(expire_at_ms(&mut conn, "k"), -1, "{args:?}");
    }
}

#[test]
fn with_the_policy_the_expiry_goes_and_comes_back_at_the_next_change() {
    let server = Server::with().args(&["--repl-diskless-sync-delay", "0"]).start();
    let mut conn = server.conn();
    if conn.call(&["CONFIG", "GET", "lock.margin-ms"]).list().is_empty() {
        eprintln!("skipped: this server tells modules of no settings, they find out within a second");
        return;
    }
    let mut stream = Stream::of(&server);
    let names = |stream: &mut Stream| -> Vec<String> {
        stream.take().iter().map(|command| command[0].to_uppercase()).filter(|name| name != "CONFIG").collect()
    };
    acquire(&mut conn, &["k", "EX", "90", "SHARED"]);
    assert!(expire_at_ms(&mut conn, "k") > 0);
    conn.ok(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    stream.take();
    let token = acquire(&mut conn, &["k", "EX", "30", "SHARED"]);
    assert_eq!(names(&mut stream), ["MULTI", "ZADD", "PERSIST", "EXEC"]);
    assert_eq!(expire_at_ms(&mut conn, "k"), -1);
    assert_eq!(conn.int(&["LOCK.EXTEND", "k", &token, "EX", "20"]), 1);
    assert_eq!(names(&mut stream), ["ZADD"]);
    conn.ok(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &token]), 1);
    assert_eq!(names(&mut stream), ["MULTI", "ZREM", "PEXPIREAT", "EXEC"]);
    assert_eq!(expire_at_ms(&mut conn, "k"), last_end_ms(&mut conn) + 60_000);
}
