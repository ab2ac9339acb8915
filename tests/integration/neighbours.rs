//! How clients of other locks and LOCK.* affect each other: which tokens must not be read as timestamps, and how the
//! classic pattern treats the module's values.

use std::time::{Duration, SystemTime};

use testkit::{bound, expire_at_ms, server_time_us, until, Conn, Reply, Server};

/// A client's clock, in nanoseconds.
fn now_ns() -> u128 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos()
}

/// Tokens of SET NX PX clients that look like a past or future time.
fn tokens_like_times() -> Vec<(&'static str, String)> {
    let passed_ns = now_ns() - 100_000_000_000;
    let snowflake = ((passed_ns / 1_000_000 - 1_420_070_400_000) << 22) | 4095;
    vec![
        ("seconds", (passed_ns / 1_000_000_000).to_string()),
        ("seconds with a fraction", format!("{}.25", passed_ns / 1_000_000_000)),
        ("milliseconds", (passed_ns / 1_000_000).to_string()),
        ("microseconds", (passed_ns / 1000).to_string()),
        ("nanoseconds", passed_ns.to_string()),
        ("a counter", "42".into()),
        ("a large counter", "1000000007".into()),
        ("a snowflake", snowflake.to_string()),
        ("random letters", "c3f9e2a7d1".into()),
        ("random digits", "1234567890123456".into()),
        ("future seconds", (passed_ns / 1_000_000_000 + 200).to_string()),
    ]
}

#[test]
fn a_numeric_token_with_an_expiry_is_never_stolen() {
    let (_server, mut conn) = Server::connected();
    for (what, token) in tokens_like_times() {
        conn.execute(&["DEL", "a"]);
        conn.ok(&["SET", "a", &token, "NX", "PX", "30000"]);
        let expiry = expire_at_ms(&mut conn, "a");
        assert!(conn.execute(&["LOCK.ACQUIRE", "a", "EX", "30"]).is_nil(), "{what}");
        assert!(conn.execute(&["LOCK.ACQUIRE", "a", "EX", "30", "ID", "42", "DETAILS"]).is_nil(), "{what}");
        assert!(conn.execute(&["LOCK.RECOVER", "a", "EX", "30"]).is_nil(), "{what}");
        for number in ["0", "42", "1000000007", "1234567890123456"] {
            assert_eq!(conn.int(&["LOCK.EXTEND", "a", number, "EX", "30"]), 0, "{what}");
            assert_eq!(conn.int(&["LOCK.RELEASE", "a", number]), 0, "{what}");
            assert_eq!(conn.int(&["LOCK.CHECK", "a", number]), 0, "{what}");
        }
        assert_eq!(conn.state("a"), "foreign", "{what}");
        assert_eq!(conn.text(&["GET", "a"]), token, "{what}");
        assert_eq!(expire_at_ms(&mut conn, "a"), expiry, "{what}");
    }
}

#[test]
fn a_past_timestamp_without_expiry_is_taken_over() {
    // The counterpart of the test above: the expiry distinguishes the two.
    let (_server, mut conn) = Server::connected();
    for (what, token) in tokens_like_times() {
        conn.ok(&["SET", "a", &token]);
        let granted = !conn.execute(&["LOCK.RECOVER", "a", "EX", "30"]).is_nil();
        // A counter of 1000000007 looks like a second in 2001. The contract says so.
        let has_passed = !matches!(what, "a counter" | "random letters" | "future seconds");
        assert_eq!(granted, has_passed, "{what}: {token}");
    }
}

#[test]
fn a_classic_lock_ends_at_its_timestamp_in_every_unit() {
    let (_server, mut conn) = Server::connected();
    for unit_ns in [1, 1000, 1_000_000, 1_000_000_000] {
        let timestamp = (now_ns() + 60_000_000_000) / unit_ns;
        conn.ok(&["SET", "a", &timestamp.to_string()]);
        assert!(conn.execute(&["LOCK.ACQUIRE", "a", "EX", "30"]).is_nil());
        assert!(conn.execute(&["LOCK.RECOVER", "a", "EX", "30"]).is_nil());
        assert_eq!(conn.state("a"), "held");
        assert_eq!(conn.text(&["GET", "a"]), timestamp.to_string());
    }
}

/// The leading number of a value, as lenient readers see it.
fn number(value: &str) -> f64 {
    value.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_classic_client_in_milliseconds_steals_as_documented() {
    let server = Server::start();
    let (mut holder, mut thief) = (server.conn(), server.conn());
    let token = holder.int(&["LOCK.ACQUIRE", "a", "EX", "30"]).to_string();

    // The client's current time is a thousand times larger than any timestamp in seconds.
    let now_ms = now_ns() / 1_000_000;
    let timestamp = (now_ms + 501).to_string();
    #[allow(clippy::cast_precision_loss)]
    let expired = |value: &str| number(value) < now_ms as f64;
    assert_eq!(thief.int(&["SETNX", "a", &timestamp]), 0);
    assert!(expired(&thief.text(&["GET", "a"])));
    assert!(expired(&thief.text(&["GETSET", "a", &timestamp])), "the thief believes that it holds the lock");

    assert_eq!(holder.int(&["LOCK.CHECK", "a", &token]), 0);
    assert_eq!(holder.int(&["LOCK.EXTEND", "a", &token, "EX", "30"]), 0);
    assert_eq!(holder.int(&["LOCK.RELEASE", "a", &token]), 0);
    assert_eq!(holder.text(&["GET", "a"]), timestamp, "the loser changes nothing");
    ends_at(&mut holder, now_ms * 1000 + 501_000);
}

/// Asserts that another program's lock `a` is granted when its timestamp has passed, not before.
fn ends_at(conn: &mut Conn, timestamp_us: u128) {
    let timestamp_us = i64::try_from(timestamp_us).unwrap();
    let details = until("the lock ends at its timestamp", || {
        let reply = conn.execute(&["LOCK.ACQUIRE", "a", "EX", "30", "DETAILS"]);
        (!reply.is_nil()).then_some(reply)
    });
    assert!(server_time_us(conn) >= timestamp_us);
    let details = details.list();
    let overdue = Duration::from_millis(details[1].int().try_into().unwrap());
    bound::wall("a lock that ends at its timestamp", Duration::from_secs(5), overdue);
    assert_eq!(details[2..], [Reply::Nil, Reply::Nil], "its writer is unknown");
    assert_eq!(conn.int(&["LOCK.RELEASE", "a", &details[0].int().to_string()]), 1);
    assert_eq!(conn.int(&["EXISTS", "a"]), 0);
}
