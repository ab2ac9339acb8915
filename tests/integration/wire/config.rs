//! The effect of margin and retention on the value and on the native expiry of a key. `settings.rs` tests how to set
//! them.

use super::fixture::{expires_at_ms, now_us, retained_ms, value};
use testkit::{Reply, Server};

#[test]
fn extend_writes_the_expiry_of_the_current_retention() {
    let (_server, mut conn) = Server::with().module_args(&["retention-ms", "-1"]).connected();
    if conn.is_before_7() {
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
        assert!(!conn.execute(&[command, "k", "PX", "30000"]).is_nil());
        let timestamp_us = value(&mut conn, "k").timestamp_us;
        assert_eq!(expires_at_ms(&mut conn, "k"), retained_ms(timestamp_us, 60_000), "{command}, {native}");
    }
}

#[test]
fn a_retention_of_zero_ends_the_key_with_its_timestamp() {
    let (_server, mut conn) = Server::with().module_args(&["margin-ms", "0", "retention-ms", "0"]).connected();
    conn.int(&["LOCK.ACQUIRE", "k", "PX", "1"]);
    testkit::until("the key is gone", || (conn.int(&["EXISTS", "k"]) == 0).then_some(()));
    // Nothing is left to recover; SET NX PX clients can take the lock.
    assert!(conn.execute(&["LOCK.RECOVER", "k", "PX", "30000"]).is_nil());
    assert_eq!(conn.execute(&["SET", "k", "token", "NX", "PX", "1000"]), Reply::Status("OK".into()));
}
