//! Expired holders leave their set when their retention is over, whether the key has a native expiry or not.

use super::acquire;
use crate::support::{server_time_us, until, Conn, Server};

/// Puts holders in whose timestamps passed that long ago, as the module writes them.
fn lapsed(conn: &mut Conn, count: i64, ms_ago: i64) -> Vec<String> {
    let now = server_time_us(conn);
    let end = now - ms_ago * 1_000;
    let score = format!("{}.{:06}", end / 1_000_000, end % 1_000_000);
    (0..count)
        .map(|n| {
            let token = (end - 30_000_000 + n).to_string();
            assert_eq!(conn.int(&["ZADD", "k", &score, &token]), 1);
            token
        })
        .collect()
}

#[test]
fn without_a_native_expiry_an_expired_holder_stays_for_its_retention_and_no_longer() {
    const VOLATILE: &[&str] = &["--maxmemory-policy", "volatile-lru"];
    // Where locks stay for ever, an expired holder among others stays for a minute.
    for (args, retention, stays_ms) in [(VOLATILE, "5000", 5_000), (&[], "-1", 60_000), (VOLATILE, "-1", 60_000)] {
        let server = Server::with().args(args).module_args(&["retention-ms", retention]).start();
        let mut conn = server.conn();
        let over = lapsed(&mut conn, 30, stays_ms + 1_000);
        let stay = lapsed(&mut conn, 3, stays_ms / 4);
        let live: Vec<String> = (0..5).map(|_| acquire(&mut conn, &["k", "EX", "60", "SHARED"])).collect();
        let members = conn.call(&["ZRANGE", "k", "0", "-1"]);
        let members: Vec<String> = members.list().iter().map(crate::support::Reply::text).collect();
        assert_eq!(members, [stay, live].concat(), "{args:?} {retention}");
        for token in over {
            assert_eq!(conn.int(&["LOCK.RELEASE", "k", &token]), 0);
        }
        assert_eq!(conn.int(&["PTTL", "k"]), -1, "the key has no expiry of its own");
    }
}

#[test]
fn leases_that_lapse_all_the_time_leave_a_set_that_stays_small() {
    let server = Server::with().args(&["--maxmemory-policy", "volatile-lru"]).module_args(&[
        "margin-ms",
        "0",
        "retention-ms",
        "0",
    ]);
    let server = server.start();
    let mut conn = server.conn();
    let mut largest = 0;
    for _ in 0..2_000 {
        acquire(&mut conn, &["k", "PX", "1", "SHARED"]);
        largest = largest.max(conn.int(&["ZCARD", "k"]));
    }
    assert!(largest < 500, "{largest}");
    until("all have expired", || (conn.call(&["LOCK.INFO", "k"]).field("state").text() == "expired").then_some(()));
}
