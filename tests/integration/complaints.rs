//! Ten bug reports from users of other locks. Each test first sends those locks' plain commands and reproduces the
//! complaint, then does the same with LOCK.*, where the complaint does not occur.
//!
//! A complaint is cited as `owner/name#number` of the project where it was filed.

mod failover;
mod holder;
mod queue;

use testkit::{Conn, Reply};

/// Compare and delete: how SET NX PX locks release.
const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// Compare and extend: how they renew.
const RENEW: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0";

/// Whether the lock was taken with SET NX PX.
fn take(conn: &mut Conn, key: &str, value: &str, lease_ms: &str) -> bool {
    match conn.execute(&["SET", key, value, "NX", "PX", lease_ms]) {
        Reply::Status(_) => true,
        Reply::Nil => false,
        other => panic!("{other:?}"),
    }
}

/// Takes a lock with LOCK.ACQUIRE and these options. Returns its token.
fn acquire(conn: &mut Conn, key: &str, options: &[&str]) -> String {
    conn.int(&[&["LOCK.ACQUIRE", key], options].concat()).to_string()
}
