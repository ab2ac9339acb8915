//! Clients of the SETNX pattern and of SET NX PX live beside LOCK.* on the same keys: their
//! timestamps are respected and taken over, ours are read by them, their late writes do no harm.

use super::fixture::{now_us, value, Snapshot};
use crate::support::{Conn, Reply, Server};

/// A timestamp `offset_us` from now in each form that clients write.
fn forms(now_us: i64, offset_us: i64) -> Vec<(&'static str, String)> {
    let us = now_us + offset_us;
    vec![
        ("seconds", (us / 1_000_000).to_string()),
        ("float seconds", format!("{}.{:06}", us / 1_000_000, us % 1_000_000)),
        ("float seconds, short", format!("{}.0", us / 1_000_000)),
        ("milliseconds", (us / 1000).to_string()),
        ("microseconds", us.to_string()),
        ("nanoseconds", (us * 1000 + 7).to_string()),
    ]
}

#[test]
fn a_timestamp_ahead_is_held_in_every_unit() {
    let (_server, mut conn) = Server::connected();
    let now = now_us(&mut conn);
    for (form, text) in forms(now, 100_000_000) {
        assert_eq!(conn.int(&["SETNX", form, &text]), 1);
        let before = Snapshot::take(&mut conn, form);
        assert!(conn.call(&["LOCK.ACQUIRE", form, "PX", "1000"]).is_nil(), "{form}");
        assert!(conn.call(&["LOCK.RECOVER", form, "PX", "1000"]).is_nil(), "{form}");
        let free_in = conn.call(&["LOCK.INFO", form]).field("free-in-ms").int();
        assert!((80_000..=100_001).contains(&free_in), "{form}: {free_in}");
        assert_eq!(Snapshot::take(&mut conn, form), before, "{form}");
    }
}

#[test]
fn a_timestamp_that_has_passed_is_taken_over_in_every_unit() {
    let (_server, mut conn) = Server::connected();
    for command in ["LOCK.ACQUIRE", "LOCK.RECOVER"] {
        let now = now_us(&mut conn);
        for (form, text) in forms(now, -5_000_000) {
            conn.ok(&["SET", form, &text]);
            let mut args = vec![command, form, "PX", "30000"];
            args.extend((command == "LOCK.ACQUIRE").then_some("DETAILS"));
            let reply = conn.call(&args);
            assert!((5000..15_000).contains(&reply.list()[1].int()), "{command}, {form}: {reply:?}");
            assert_eq!(reply.list()[2..], [Reply::Nil, Reply::Nil], "{command}, {form}");
            assert_eq!(value(&mut conn, form).token, reply.list()[0].int(), "{command}, {form}");
        }
    }
}

#[test]
fn with_a_native_expiry_a_timestamp_is_a_foreign_token() {
    let (_server, mut conn) = Server::connected();
    for offset in [-5_000_000, 100_000_000] {
        let now = now_us(&mut conn);
        for (form, text) in forms(now, offset) {
            conn.call(&["DEL", form]);
            conn.ok(&["SET", form, &text, "NX", "PX", "100000"]);
            let before = Snapshot::take(&mut conn, form);
            for command in ["LOCK.ACQUIRE", "LOCK.RECOVER"] {
                assert!(conn.call(&[command, form, "PX", "1000"]).is_nil(), "{command}, {form}");
            }
            for token in [text.as_str(), "0", "1763710000482913"] {
                if token.len() <= 16 && !token.contains('.') {
                    assert_eq!(conn.int(&["LOCK.RELEASE", form, token]), 0, "{form}");
                    assert_eq!(conn.int(&["LOCK.EXTEND", form, token, "PX", "1000"]), 0, "{form}");
                }
            }
            let info = conn.call(&["LOCK.INFO", form]);
            assert_eq!(info.field("state").text(), "foreign", "{form}");
            assert_eq!(Snapshot::take(&mut conn, form), before, "{form}");
        }
    }
}

#[test]
fn without_its_native_expiry_it_is_a_timestamp_again() {
    let (_server, mut conn) = Server::connected();
    conn.ok(&["SET", "k", "1763710031", "NX", "PX", "100000"]);
    assert!(conn.call(&["LOCK.ACQUIRE", "k", "PX", "1000"]).is_nil());
    assert_eq!(conn.int(&["PERSIST", "k"]), 1);
    assert!(conn.int(&["LOCK.ACQUIRE", "k", "PX", "1000"]) > 0);
}

#[test]
fn clients_of_the_pattern_read_the_timestamp_as_a_number() {
    let (_server, mut conn) = Server::connected();
    for id in [&[][..], &["ID", "42"]] {
        conn.call(&["DEL", "k"]);
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

/// The classic takeover: SETNX fails, GET finds an expired time, GETSET writes one's own.
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
fn a_classic_client_waits_for_a_held_lock_and_takes_over_an_expired_one() {
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
    // GETSET took the native expiry away, so its timestamp counts.
    let info = conn.call(&["LOCK.INFO", "k"]);
    assert_eq!(info.field("state").text(), "held");
    assert!(conn.call(&["LOCK.ACQUIRE", "k", "PX", "30000"]).is_nil());
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &(now - 40_000_000).to_string()]), 0, "that grant is over");
}

#[test]
fn a_late_getset_over_a_grant_ends_it_at_the_time_written_and_nobody_holds_twice() {
    let (_server, mut conn) = Server::connected();
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "42"]).to_string();
    let seconds = now_us(&mut conn) / 1_000_000;
    conn.call(&["GETSET", "k", &(seconds + 31).to_string()]);
    let before = Snapshot::take(&mut conn, "k");
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &token]), 0);
    assert_eq!(conn.int(&["LOCK.EXTEND", "k", &token, "PX", "30000"]), 0);
    assert_eq!(conn.int(&["LOCK.CHECK", "k", &token]), 0);
    assert!(conn.call(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "42"]).is_nil(), "nobody knows that ID");
    assert!(conn.call(&["LOCK.ACQUIRE", "k", "PX", "30000"]).is_nil());
    assert_eq!(Snapshot::take(&mut conn, "k"), before);

    conn.call(&["GETSET", "k", &(seconds - 1).to_string()]);
    let next = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]);
    assert!(next > token.parse().unwrap());
}

#[test]
fn a_set_nx_px_client_is_kept_out_and_keeps_out() {
    let (_server, mut conn) = Server::connected();
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]).to_string();
    assert!(conn.call(&["SET", "k", "random", "NX", "PX", "30000"]).is_nil());
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &token]), 1);
    conn.ok(&["SET", "k", "random", "NX", "PX", "30000"]);
    assert!(conn.call(&["LOCK.ACQUIRE", "k", "PX", "30000"]).is_nil());
    // It releases by its own comparison, then the lock is free for all.
    conn.call(&["DEL", "k"]);
    assert!(conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]) > token.parse().unwrap());
}
