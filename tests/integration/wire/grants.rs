//! What a grant promises: the same ID gets the same grant, tokens of a key grow, the details report the predecessor,
//! and only the holder can make a lease longer or shorter.

use super::fixture::{expires_at_ms, now_us, retained_ms, value, Snapshot};
use super::RETENTION_MS;
use testkit::{Conn, Reply, Server};

/// A value of ours that expired 5 s ago.
fn expired(conn: &mut Conn, token: i64, rest: &str) -> String {
    format!("{}.000000{token:016}{rest}", now_us(conn) / 1_000_000 - 5)
}

#[test]
fn a_repeated_id_never_shortens_its_lease() {
    let (server, mut conn) = Server::connected();
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "42", "OWNER", "alice"]);
    let before = Snapshot::take(&mut conn, "k");
    for (id, lease) in [("42", "1"), ("042", "20000"), ("0000000000000000042", "20000")] {
        assert_eq!(conn.int(&["LOCK.ACQUIRE", "k", "PX", lease, "ID", id, "OWNER", "bob"]), token, "{id}");
        assert_eq!(Snapshot::take(&mut conn, "k"), before, "{id}");
    }
    // Another connection, as after a lost reply.
    assert_eq!(server.conn().int(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "42"]), token);
}

#[test]
fn a_different_id_or_none_is_refused() {
    let (_server, mut conn) = Server::connected();
    for (holder, others) in [
        (&["ID", "42"][..], &["0", "4", "420", "43", "9999999999999999999"][..]),
        // 0 is an ID; a missing one is not.
        (&[], &["0"]),
        (&["ID", "0"], &["1"]),
    ] {
        conn.execute(&["DEL", "k"]);
        conn.int(&[&["LOCK.ACQUIRE", "k", "PX", "30000"], holder].concat());
        let before = Snapshot::take(&mut conn, "k");
        for other in others {
            assert!(conn.execute(&["LOCK.ACQUIRE", "k", "PX", "90000", "ID", other]).is_nil(), "{holder:?}, {other}");
        }
        assert!(conn.execute(&["LOCK.ACQUIRE", "k", "PX", "90000"]).is_nil(), "{holder:?}");
        assert_eq!(Snapshot::take(&mut conn, "k"), before, "{holder:?}");
    }
}

#[test]
fn the_same_id_prolongs_its_lease() {
    let (_server, mut conn) = Server::connected();
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "42", "OWNER", "alice"]);
    let from = now_us(&mut conn);
    assert_eq!(conn.int(&["LOCK.ACQUIRE", "k", "PX", "90000", "ID", "42", "OWNER", "bob"]), token);
    let later = value(&mut conn, "k");
    assert!((from..=now_us(&mut conn)).contains(&(later.timestamp_us - 91_000_000)));
    assert_eq!(later.rest, "0000000000000000042 alice", "the owner stays");
    assert_eq!(expires_at_ms(&mut conn, "k"), retained_ms(later.timestamp_us, RETENTION_MS));
}

#[test]
fn a_repeated_id_with_details_has_no_predecessor() {
    let (_server, mut conn) = Server::connected();
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "42"]);
    let reply = conn.raw(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "42", "DETAILS"]);
    assert_eq!(String::from_utf8(reply).unwrap(), format!("*4\r\n:{token}\r\n$-1\r\n$-1\r\n$-1\r\n"));
    conn.execute(&["HELLO", "3"]);
    let reply = conn.raw(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "42", "DETAILS"]);
    assert_eq!(String::from_utf8(reply).unwrap(), format!("*4\r\n:{token}\r\n_\r\n_\r\n_\r\n"));
}

#[test]
fn the_same_id_still_holds_within_the_margin() {
    let (_server, mut conn) = Server::with().module_args(&["margin-ms", "1000000"]).connected();
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "1", "ID", "42"]);
    testkit::until("the lease has expired", || (conn.int(&["LOCK.CHECK", "k", &token.to_string()]) == 0).then_some(()));
    assert_eq!(conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "42"]), token);
    assert!(conn.int(&["LOCK.CHECK", "k", &token.to_string()]) > 20_000);
}

#[test]
fn a_repeated_id_on_an_expired_lock_is_a_new_grant() {
    let (_server, mut conn) = Server::connected();
    let old = now_us(&mut conn) - 40_000_000;
    for command in ["LOCK.ACQUIRE", "LOCK.RECOVER"] {
        let value = expired(&mut conn, old, "0000000000000000042 alice");
        conn.ok(&["SET", "k", &value]);
        let mut args = vec![command, "k", "PX", "30000", "ID", "42"];
        args.extend((command == "LOCK.ACQUIRE").then_some("DETAILS"));
        let reply = conn.execute(&args);
        assert!(reply.list()[0].int() > old, "{command}");
        assert!((5000..15_000).contains(&reply.list()[1].int()), "{command}: {reply:?}");
        assert_eq!(reply.list()[2..], [Reply::Int(old), Reply::Text(b"alice".into())], "{command}");
    }
}

#[test]
fn recover_never_returns_a_held_lock() {
    let (_server, mut conn) = Server::connected();
    conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "42"]);
    let before = Snapshot::take(&mut conn, "k");
    assert!(conn.execute(&["LOCK.RECOVER", "k", "PX", "90000", "ID", "42"]).is_nil());
    assert_eq!(Snapshot::take(&mut conn, "k"), before);
}

#[test]
fn tokens_grow_from_grant_to_grant_across_all_keys() {
    let (_server, mut conn) = Server::connected();
    let mut last = 0;
    for round in 0..200 {
        let key = format!("k{}", round % 7);
        let token = conn.int(&["LOCK.ACQUIRE", &key, "PX", "30000"]);
        assert!(token > last, "{token} after {last}");
        last = token;
        assert_eq!(conn.int(&["LOCK.RELEASE", &key, &token.to_string()]), 1);
    }
    // Within one script they may be issued faster than the clock moves.
    let script =
        "local out = {} for i = 1, 50 do out[i] = redis.call('LOCK.ACQUIRE', KEYS[1] .. i, 'PX', 30000) end return out";
    for token in conn.execute(&["EVAL", script, "1", "s"]).list() {
        assert!(token.int() > last, "{token:?} after {last}");
        last = token.int();
    }
}

#[test]
fn tokens_pass_one_that_is_ahead_of_the_clock() {
    let (_server, mut conn) = Server::connected();
    for (command, key) in [("LOCK.ACQUIRE", "a"), ("LOCK.RECOVER", "b")] {
        let ahead = now_us(&mut conn) + 86_400_000_000;
        let value = expired(&mut conn, ahead, "");
        conn.ok(&["SET", key, &value]);
        let reply = conn.execute(&[command, key, "PX", "30000"]);
        let token = if command == "LOCK.ACQUIRE" { reply.int() } else { reply.list()[0].int() };
        assert!(token > ahead, "{command}: {token} after {ahead}");
        // The lease runs from the clock's time, not from the token.
        let left = conn.int(&["LOCK.CHECK", key, &token.to_string()]);
        assert!((1..=30_000).contains(&left), "{command}: {left}");
        assert_eq!(conn.lock(key, "held-ms"), Reply::Int(0), "never negative");
        // Once released, the key is empty: the server itself remembers the token.
        assert_eq!(conn.int(&["LOCK.RELEASE", key, &token.to_string()]), 1);
        assert!(conn.int(&["LOCK.ACQUIRE", key, "PX", "30000"]) > token, "{command}");
    }
}

#[test]
fn after_the_largest_token_the_tokens_of_a_key_begin_again_at_the_clock() {
    let (_server, mut conn) = Server::connected();
    for command in ["LOCK.ACQUIRE", "LOCK.RECOVER"] {
        let value = expired(&mut conn, 9_007_199_254_740_990, "");
        conn.ok(&["SET", "k", &value]);
        let before = now_us(&mut conn);
        let reply = conn.execute(&[command, "k", "PX", "30000"]);
        let token = if command == "LOCK.ACQUIRE" { reply.int() } else { reply.list()[0].int() };
        assert!((before..=now_us(&mut conn)).contains(&token), "{command}: {token}");
        assert_eq!(conn.state("k"), "held", "{command}");
        assert_eq!(conn.int(&["LOCK.RELEASE", "k", &token.to_string()]), 1, "{command}");
    }
}

#[test]
fn extend_makes_a_lease_longer_or_shorter() {
    let (_server, mut conn) = Server::connected();
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "42", "OWNER", "alice"]).to_string();
    for (unit, lease, ms) in [("PX", "90000", 90_000), ("EX", "10", 10_000), ("PX", "5000", 5000), ("EX", "30", 30_000)]
    {
        let from = now_us(&mut conn);
        assert_eq!(conn.int(&["LOCK.EXTEND", "k", &token, unit, lease]), 1);
        let value = value(&mut conn, "k");
        let to = now_us(&mut conn);
        assert!((from..=to).contains(&(value.timestamp_us - (ms + 1000) * 1000)), "{lease}");
        assert_eq!((value.token.to_string(), value.rest.as_str()), (token.clone(), "0000000000000000042 alice"));
        assert_eq!(expires_at_ms(&mut conn, "k"), retained_ms(value.timestamp_us, RETENTION_MS), "{lease}");
        let left = conn.int(&["LOCK.CHECK", "k", &token]);
        assert!(left <= ms && left > ms - 4000, "{left} of {ms}");
    }
}

#[test]
fn a_successor_ends_the_grant_before_it() {
    let (_server, mut conn) = Server::connected();
    let old = now_us(&mut conn) - 40_000_000;
    let value = expired(&mut conn, old, "");
    conn.ok(&["SET", "k", &value]);
    let new = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]).to_string();
    let before = Snapshot::take(&mut conn, "k");
    let old = old.to_string();
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &old]), 0);
    assert_eq!(conn.int(&["LOCK.EXTEND", "k", &old, "PX", "90000"]), 0);
    assert_eq!(conn.int(&["LOCK.CHECK", "k", &old]), 0);
    assert_eq!(Snapshot::take(&mut conn, "k"), before);
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &new]), 1);
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &new]), 0, "once only");
}
