//! Clients of the SETNX pattern use the same keys as LOCK.*. They read our timestamps, and their late writes do no
//! harm. `neighbours.rs` checks that their timestamps differ from the tokens of SET NX PX.

use super::fixture::{now_us, value, Snapshot};
use testkit::{Conn, Server};

#[test]
fn clients_of_the_pattern_read_the_timestamp_as_a_number() {
    let (_server, mut conn) = Server::connected();
    for id in [&[][..], &["ID", "42"]] {
        conn.execute(&["DEL", "k"]);
        conn.int(&[&["LOCK.ACQUIRE", "k", "PX", "30000"], id].concat());
        let text = conn.text(&["GET", "k"]);
        let us = value(&mut conn, "k").timestamp_us;
        let float: f64 = text.parse().unwrap();
        #[allow(clippy::cast_precision_loss)]
        let seconds = us as f64 / 1e6;
        assert!((float - seconds).abs() < 0.000_01, "{text}");
        assert_eq!(text.split('.').next().unwrap().parse::<i64>().unwrap(), us / 1_000_000);
        // Lua's tonumber, in the server.
        let script = "return tonumber(redis.call('GET', KEYS[1])) > tonumber(redis.call('TIME')[1])";
        assert_eq!(conn.int(&["EVAL", script, "1", "k"]), 1);
        assert_eq!(conn.int(&["SETNX", "k", "1"]), 0, "SETNX finds it taken");
    }
}

/// The classic takeover: SETNX fails, GET finds an expired time, GETSET writes its own.
fn classic_takeover(conn: &mut Conn, key: &str) -> bool {
    let now = now_us(conn) / 1_000_000;
    let second = |text: &str| text.split('.').next().and_then(|digits| digits.parse::<i64>().ok()).unwrap();
    let mine = (now + 101).to_string();
    if conn.int(&["SETNX", key, &mine]) == 1 {
        return true;
    }
    if second(&conn.text(&["GET", key])) >= now {
        return false;
    }
    second(&conn.text(&["GETSET", key, &mine])) < now
}

#[test]
fn a_classic_client_waits_and_takes_over_an_expired_lock() {
    let (_server, mut conn) = Server::connected();
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]).to_string();
    assert!(!classic_takeover(&mut conn, "k"));
    assert!(conn.int(&["LOCK.CHECK", "k", &token]) > 0);

    let now = now_us(&mut conn);
    conn.ok(&[
        "SET",
        "k",
        &format!("{}.000000{}", now / 1_000_000 - 5, now - 40_000_000),
        "PXAT",
        &(now / 1000 + 55_000).to_string(),
    ]);
    assert!(classic_takeover(&mut conn, "k"));
    // GETSET removed the native expiry, so its timestamp applies.
    let info = conn.execute(&["LOCK.INFO", "k"]);
    assert_eq!(info.field("state").text(), "held");
    assert!(conn.execute(&["LOCK.ACQUIRE", "k", "PX", "30000"]).is_nil());
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &(now - 40_000_000).to_string()]), 0, "that grant has ended");
}

#[test]
fn a_late_getset_over_a_grant_ends_it() {
    let (_server, mut conn) = Server::connected();
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "42"]).to_string();
    let seconds = now_us(&mut conn) / 1_000_000;
    conn.execute(&["GETSET", "k", &(seconds + 31).to_string()]);
    let before = Snapshot::take(&mut conn, "k");
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &token]), 0);
    assert_eq!(conn.int(&["LOCK.EXTEND", "k", &token, "PX", "30000"]), 0);
    assert_eq!(conn.int(&["LOCK.CHECK", "k", &token]), 0);
    assert!(conn.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "42"]).is_nil(), "nobody knows that ID");
    assert!(conn.execute(&["LOCK.ACQUIRE", "k", "PX", "30000"]).is_nil());
    assert_eq!(Snapshot::take(&mut conn, "k"), before);

    conn.execute(&["GETSET", "k", &(seconds - 1).to_string()]);
    let next = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]);
    assert!(next > token.parse().unwrap());
}
