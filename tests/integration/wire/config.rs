//! The effect of margin and retention on the value and on the native expiry of a key. `settings.rs` tests how to set
//! them.

use super::fixture::{expires_at_ms, now_us, retained_ms, value};
use crate::settings::{assert_in_force, has_no_module_settings};
use crate::support::{Conn, Reply, Server};

#[test]
fn extend_writes_the_expiry_of_the_retention_that_counts_now() {
    let (_server, mut conn) = Server::with().module_args(&["retention-ms", "-1"]).connected();
    if has_no_module_settings(&mut conn) {
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
    let (_server, mut conn) = Server::connected();
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
    let (_server, mut conn) = Server::with().module_args(&["margin-ms", "0", "retention-ms", "0"]).connected();
    conn.int(&["LOCK.ACQUIRE", "k", "PX", "1"]);
    crate::support::until("the key is gone", || (conn.int(&["EXISTS", "k"]) == 0).then_some(()));
    // Nothing is left to recover; SET NX PX clients can have it.
    assert!(conn.call(&["LOCK.RECOVER", "k", "PX", "30000"]).is_nil());
    assert_eq!(conn.call(&["SET", "k", "token", "NX", "PX", "1000"]), Reply::Status("OK".into()));
}

#[test]
fn under_a_volatile_policy_locks_get_no_native_expiry() {
    let (_server, mut conn) = Server::connected();
    let is_told = !has_no_module_settings(&mut conn);
    let set = |conn: &mut Conn, policy: &str| {
        conn.ok(&["CONFIG", "SET", "maxmemory-policy", policy]);
        if !is_told {
            // A server that tells of no change is looked at once in a second.
            std::thread::sleep(std::time::Duration::from_millis(1_100));
        }
    };
    for policy in ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"] {
        set(&mut conn, policy);
        assert_in_force(&mut conn, 1000, -1);
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
        assert_in_force(&mut conn, 1000, 60_000);
    }
}
