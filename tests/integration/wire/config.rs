//! Margin and retention: their defaults, their bounds, module arguments and CONFIG, and what they do
//! to the value and to the native expiry of a key.

use super::fixture::{expires_at_ms, now_us, retained_ms, value};
use crate::support::{Conn, Reply, Server};

fn config(conn: &mut Conn, name: &str) -> String {
    conn.call(&["CONFIG", "GET", name]).field(name).text()
}

/// Whether CONFIG has the settings of modules (7.0); if not, says that `what` is skipped.
fn has_settings(conn: &mut Conn, what: &str) -> bool {
    let has = conn.call(&["CONFIG", "GET", "lock.margin-ms"]) != Reply::List(vec![]);
    if !has {
        eprintln!("skipped: {what}: this server has no settings of modules in CONFIG");
    }
    has
}

/// Takes a lock for 30 s: how long its margin and its retention are (`None`: no native expiry).
fn measure(conn: &mut Conn) -> (i64, Option<i64>) {
    conn.call(&["DEL", "k"]);
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]);
    let value = value(conn, "k");
    assert_eq!(value.token, token);
    let margin_us = value.timestamp_us - token - 30_000_000;
    assert_eq!(margin_us % 1000, 0);
    let expiry = expires_at_ms(conn, "k");
    (margin_us / 1000, (expiry != -1).then(|| expiry - retained_ms(value.timestamp_us, 0)))
}

#[test]
fn the_defaults_are_a_margin_of_one_second_and_a_retention_of_one_minute() {
    let server = Server::start();
    let mut conn = server.conn();
    assert_eq!(measure(&mut conn), (1000, Some(60_000)));
    if has_settings(&mut conn, "CONFIG GET of the defaults") {
        assert_eq!(config(&mut conn, "lock.margin-ms"), "1000");
        assert_eq!(config(&mut conn, "lock.retention-ms"), "60000");
    }
}

#[test]
fn module_arguments_set_them_at_load() {
    let server = Server::with().module_args(&["margin-ms", "250", "retention-ms", "5000"]).start();
    let mut conn = server.conn();
    assert_eq!(measure(&mut conn), (250, Some(5000)));
    if has_settings(&mut conn, "CONFIG GET of module arguments") {
        assert_eq!(config(&mut conn, "lock.margin-ms"), "250");
        assert_eq!(config(&mut conn, "lock.retention-ms"), "5000");
    }
}

#[test]
fn a_module_argument_that_is_none_keeps_the_module_from_loading() {
    for args in [
        &["margin-ms", "-1"][..],
        &["margin-ms", "soon"],
        &["margin-ms"],
        &["retention-ms", "-2"],
        &["retention-ms", "1.5"],
        &["bogus", "1"],
    ] {
        let log = Server::with().module_args(args).try_start().err();
        assert!(log.is_some_and(|log| log.contains("the module is not loaded: ")), "{args:?}");
    }
}

#[test]
fn config_set_counts_from_the_next_grant() {
    let server = Server::start();
    let mut conn = server.conn();
    if !has_settings(&mut conn, "CONFIG SET of lock.*") {
        return;
    }
    for (margin, retention, expected) in [
        ("0", "60000", (0, Some(60_000))),
        ("1", "0", (1, Some(0))),
        ("60000", "-1", (60_000, None)),
        ("1000", "1", (1000, Some(1))),
    ] {
        conn.ok(&["CONFIG", "SET", "lock.margin-ms", margin]);
        conn.ok(&["CONFIG", "SET", "lock.retention-ms", retention]);
        assert_eq!(config(&mut conn, "lock.margin-ms"), margin);
        assert_eq!(config(&mut conn, "lock.retention-ms"), retention);
        assert_eq!(measure(&mut conn), expected, "margin {margin}, retention {retention}");
    }
}

#[test]
fn config_set_refuses_what_is_out_of_bounds() {
    let server = Server::start();
    let mut conn = server.conn();
    if !has_settings(&mut conn, "CONFIG SET of lock.*") {
        return;
    }
    for (name, refused) in
        [("lock.margin-ms", "-1"), ("lock.margin-ms", "soon"), ("lock.retention-ms", "-2"), ("lock.retention-ms", "")]
    {
        let reply = conn.call(&["CONFIG", "SET", name, refused]);
        assert!(reply.error().starts_with("ERR "), "{name} {refused}: {reply:?}");
    }
    assert_eq!(measure(&mut conn), (1000, Some(60_000)));
}

#[test]
fn extend_writes_the_expiry_of_the_retention_that_counts_now() {
    let server = Server::with().module_args(&["retention-ms", "-1"]).start();
    let mut conn = server.conn();
    if !has_settings(&mut conn, "CONFIG SET of lock.*") {
        return;
    }
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]).to_string();
    assert_eq!(expires_at_ms(&mut conn, "k"), -1);
    conn.ok(&["CONFIG", "SET", "lock.retention-ms", "7000"]);
    assert_eq!(conn.int(&["LOCK.EXTEND", "k", &token, "PX", "30000"]), 1);
    let timestamp_us = value(&mut conn, "k").timestamp_us;
    assert_eq!(expires_at_ms(&mut conn, "k"), retained_ms(timestamp_us, 7000));
    conn.ok(&["CONFIG", "SET", "lock.retention-ms", "-1"]);
    assert_eq!(conn.int(&["LOCK.EXTEND", "k", &token, "PX", "30000"]), 1);
    assert_eq!(expires_at_ms(&mut conn, "k"), -1);
}

#[test]
fn a_takeover_writes_the_expiry_of_its_own_timestamp() {
    let server = Server::start();
    let mut conn = server.conn();
    for (command, native) in
        [("LOCK.ACQUIRE", true), ("LOCK.ACQUIRE", false), ("LOCK.RECOVER", true), ("LOCK.RECOVER", false)]
    {
        let seconds = now_us(&mut conn) / 1_000_000 - 5;
        conn.ok(&["SET", "k", &format!("{seconds}.0000001763710000482913")]);
        if native {
            assert_eq!(conn.int(&["PEXPIRE", "k", "55000"]), 1);
        }
        assert!(!conn.call(&[command, "k", "PX", "30000"]).is_nil());
        let timestamp_us = value(&mut conn, "k").timestamp_us;
        assert_eq!(expires_at_ms(&mut conn, "k"), retained_ms(timestamp_us, 60_000), "{command}, {native}");
    }
}

#[test]
fn a_retention_of_zero_ends_the_key_with_its_timestamp() {
    let server = Server::with().module_args(&["margin-ms", "0", "retention-ms", "0"]).start();
    let mut conn = server.conn();
    conn.int(&["LOCK.ACQUIRE", "k", "PX", "1"]);
    crate::support::until("the key is gone", || (conn.int(&["EXISTS", "k"]) == 0).then_some(()));
    // Nothing is left to recover; SET NX PX clients can have it.
    assert!(conn.call(&["LOCK.RECOVER", "k", "PX", "30000"]).is_nil());
    assert_eq!(conn.call(&["SET", "k", "token", "NX", "PX", "1000"]), Reply::Status("OK".into()));
}

#[test]
fn under_a_volatile_policy_locks_get_no_native_expiry() {
    let server = Server::start();
    let mut conn = server.conn();
    let is_told = has_settings(&mut conn, "a policy that counts at once");
    let set = |conn: &mut Conn, policy: &str| {
        conn.ok(&["CONFIG", "SET", "maxmemory-policy", policy]);
        if !is_told {
            // A server that tells of no change is looked at once in a second.
            std::thread::sleep(std::time::Duration::from_millis(1_100));
        }
    };
    for policy in ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"] {
        set(&mut conn, policy);
        assert_eq!(measure(&mut conn), (1000, None), "{policy}");
        let token = value(&mut conn, "k").token.to_string();
        set(&mut conn, "noeviction");
        assert_eq!(conn.int(&["LOCK.EXTEND", "k", &token, "PX", "30000"]), 1);
        assert_ne!(expires_at_ms(&mut conn, "k"), -1, "{policy}");
        set(&mut conn, policy);
        assert_eq!(conn.int(&["LOCK.EXTEND", "k", &token, "PX", "30000"]), 1);
        assert_eq!(expires_at_ms(&mut conn, "k"), -1, "{policy}");
    }
    for policy in ["allkeys-lru", "noeviction"] {
        set(&mut conn, policy);
        assert_eq!(measure(&mut conn), (1000, Some(60_000)), "{policy}");
    }
}
