//! A server that may not grant at the moment, because of its grace, its replicas or a pause, still checks its slots:
//! waiters in a slot that it no longer owns get UNBLOCKED or MOVED. A server that reports changes to its slots answers
//! them at once (Redis 8.10), others within two seconds.

use super::waiters::{assert_told_at_once, Waiters};
use testkit::{until, Conn, Server};

/// A cluster of one server: ten clients wait, granting becomes forbidden, and then the server loses the slot.
fn ends_although(module_args: &[&str], may_not_grant: impl FnOnce(&mut Conn)) {
    let (server, mut conn) = Server::with()
        .args(&["--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"])
        .module_args(module_args)
        .connected();
    let slot = conn.int(&["CLUSTER", "KEYSLOT", "k"]).to_string();
    // With a second slot the cluster stays up.
    conn.ok(&["CLUSTER", "ADDSLOTS", &slot, "0"]);
    until("the cluster is up", || conn.text(&["CLUSTER", "INFO"]).contains("cluster_state:ok").then_some(()));
    // So that no waiter gets the lock first.
    conn.ok(&["SET", "k", "taken"]);
    let wishes: [&[&str]; 4] = [
        &["LOCK.ACQUIRE", "k"],
        &["LOCK.ACQUIRE", "k", "SHARED"],
        &["LOCK.ACQUIRE", "k", "LIMIT", "5"],
        &["LOCK.MACQUIRE", "2", "{k}free", "k"],
    ];
    let waiters: Vec<Conn> = (0..10)
        .map(|n| {
            let mut waiter = server.conn();
            waiter.send(&[wishes[n % 4], &["PX", "1000", "WAIT", "60000"]].concat());
            waiter
        })
        .collect();
    conn.until_waiters("k", 10);
    may_not_grant(&mut conn);
    let (valkey, major, minor) = conn.version();
    conn.ok(&["CLUSTER", "DELSLOTS", &slot]);
    if !valkey && (major, minor) >= (8, 10) {
        assert_told_at_once(&mut conn, "k");
    }
    let ends = Waiters(waiters).end();
    assert_eq!((ends.unblocked + ends.moved, ends.down, ends.closed), (10, 0, 0), "{ends:?}");
}

#[test]
fn a_slot_that_leaves_during_the_grace_ends_its_waits() {
    ends_although(&["failover-grace-ms", "60000"], |_| {});
}

#[test]
fn waits_end_when_the_slot_leaves_a_refusing_server() {
    ends_although(&[], |conn| conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "1"]));
}

#[test]
fn a_slot_that_leaves_during_a_pause_ends_its_waits() {
    ends_although(&[], |conn| conn.ok(&["CLIENT", "PAUSE", "60000", "WRITE"]));
}
