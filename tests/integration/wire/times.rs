//! Every time in a reply is exact: compared with the server's clock before and after the command, rounded down for the
//! holder and up for everyone else.

use super::fixture::{expires_at_ms, now_us, retained_ms, value};
use testkit::{until, Conn, Reply, Server};

const MARGIN_US: i64 = 1_000_000;

/// Runs a command between two readings of the clock.
fn timed(conn: &mut Conn, args: &[&str]) -> (i64, Reply, i64) {
    let before = now_us(conn);
    let reply = conn.execute(args);
    (before, reply, now_us(conn))
}

fn ceil_ms(us: i64) -> i64 {
    (us + 999) / 1000
}

#[test]
fn check_rounds_the_time_left_down() {
    let (_server, mut conn) = Server::connected();
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]).to_string();
    let end_us = value(&mut conn, "k").timestamp_us - MARGIN_US;
    for _ in 0..200 {
        let (before, left, after) = timed(&mut conn, &["LOCK.CHECK", "k", &token]);
        assert!(((end_us - after) / 1000..=(end_us - before) / 1000).contains(&left.int()), "{left:?}");
    }
}

#[test]
fn info_shows_a_held_lock_to_the_millisecond() {
    let (_server, mut conn) = Server::connected();
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]);
    let timestamp_us = value(&mut conn, "k").timestamp_us;
    let mut rounded = 0;
    for _ in 0..200 {
        let (before, info, after) = timed(&mut conn, &["LOCK.INFO", "k"]);
        let held = info.field("held-ms").int();
        assert!(((before - token) / 1000..=(after - token) / 1000).contains(&held), "{info:?}");
        let lease = info.field("lease-ms").int();
        let end_us = timestamp_us - MARGIN_US;
        assert!(((end_us - after) / 1000..=(end_us - before) / 1000).contains(&lease), "{info:?}");
        let free = info.field("free-in-ms").int();
        assert!((ceil_ms(timestamp_us - after)..=ceil_ms(timestamp_us - before)).contains(&free), "{info:?}");
        // Both are the same moment, rounded in two ways.
        assert!([1000, 1001].contains(&(free - lease)), "{info:?}");
        rounded += free - lease - 1000;
    }
    assert!(rounded > 0, "no fraction of a millisecond in 200 tries");
}

#[test]
fn overdue_is_rounded_down_in_info_and_details() {
    let (_server, mut conn) = Server::connected();
    for text in ["1763710031.4829131763710000482913", "1763710031.482913", "1763710031482913000"] {
        conn.ok(&["SET", "k", text]);
        let ended_us = 1_763_710_031_482_913;
        let (before, info, after) = timed(&mut conn, &["LOCK.INFO", "k"]);
        let bounds = (before - ended_us) / 1000..=(after - ended_us) / 1000;
        assert!(bounds.contains(&info.field("overdue-ms").int()), "{text}: {info:?}");
        let (before, details, after) = timed(&mut conn, &["LOCK.RECOVER", "k", "PX", "1000"]);
        let bounds = (before - ended_us) / 1000..=(after - ended_us) / 1000;
        assert!(bounds.contains(&details.list()[1].int()), "{text}: {details:?}");
    }
}

#[test]
fn a_grant_has_the_time_of_its_decision() {
    let (_server, mut conn) = Server::connected();
    for (unit, lease, us) in [
        ("PX", "1", 1000),
        ("PX", "30000", 30_000_000),
        ("EX", "1", 1_000_000),
        ("EX", "315360000", 315_360_000_000_000),
    ] {
        conn.execute(&["DEL", "k"]);
        let (before, token, after) = timed(&mut conn, &["LOCK.ACQUIRE", "k", unit, lease]);
        assert!((before..=after).contains(&token.int()), "{unit} {lease}: {token:?}");
        assert_eq!(value(&mut conn, "k").timestamp_us, token.int() + us + MARGIN_US, "{unit} {lease}");
    }
}

#[test]
fn a_natively_expired_key_is_free_before_its_deletion() {
    let (_server, mut conn) = Server::connected();
    conn.ok(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    conn.ok(&["SET", "foreign", "not a timestamp", "PX", "1"]);
    for key in ["ours", "info", "recover", "release", "check"] {
        conn.ok(&["SET", key, "1763710031.4829131763710000482913 alice", "PX", "1"]);
    }
    let end = now_us(&mut conn) + 5000;
    until("the expiry has passed", || (now_us(&mut conn) > end).then_some(()));

    let free = [Reply::Nil, Reply::Nil, Reply::Nil];
    for key in ["foreign", "ours"] {
        let details = conn.execute(&["LOCK.ACQUIRE", key, "PX", "30000", "DETAILS"]);
        assert_eq!(details.list()[1..], free, "{key}");
        let timestamp_us = value(&mut conn, key).timestamp_us;
        assert_eq!(expires_at_ms(&mut conn, key), retained_ms(timestamp_us, 60_000), "{key}");
    }
    assert_eq!(conn.state("info"), "free");
    assert!(conn.execute(&["LOCK.RECOVER", "recover", "PX", "30000"]).is_nil());
    assert_eq!(conn.int(&["LOCK.RELEASE", "release", "1763710000482913"]), 0);
    assert_eq!(conn.int(&["LOCK.CHECK", "check", "1763710000482913"]), 0);
}
