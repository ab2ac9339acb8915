//! A server that may not grant at the moment, because of its grace, its replicas or a pause, still checks its slots:
//! waiters in a slot that it no longer owns get UNBLOCKED or MOVED. A server that reports changes to its slots answers
//! them at once (Redis 8.10), others within two seconds.

use super::waiters::{assert_told_at_once, Waiters};
use testkit::{until, Conn, Server};

/// A cluster of one server, which owns the slots of `k` and of `{other}`. Returns the slot of `k` too.
fn one_server(module_args: &[&str]) -> (Server, Conn, String) {
    let (server, mut conn) = Server::with()
        .args(&["--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"])
        .module_args(module_args)
        .connected();
    let [slot, other] = ["k", "{other}"].map(|key| conn.int(&["CLUSTER", "KEYSLOT", key]).to_string());
    // With a second slot the cluster stays up.
    conn.ok(&["CLUSTER", "ADDSLOTS", &slot, &other]);
    until("the cluster is up", || conn.text(&["CLUSTER", "INFO"]).contains("cluster_state:ok").then_some(()));
    // So that no waiter gets the lock first.
    conn.ok(&["SET", "k", "taken"]);
    (server, conn, slot)
}

/// Ten clients wait, granting becomes forbidden, and then the server loses the slot.
fn ends_although(module_args: &[&str], may_not_grant: impl FnOnce(&mut Conn)) {
    let (server, mut conn, slot) = one_server(module_args);
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

#[test]
fn a_slot_that_leaves_is_noticed_behind_many_other_queues() {
    // More of them than one run of the timer looks at.
    const OTHERS: usize = 200;
    let (server, mut conn, slot) = one_server(&[]);
    let wait = |key: &str| server.sent(&["LOCK.ACQUIRE", key, "PX", "1000", "WAIT", "60000"]);
    let others: Vec<String> = (0..OTHERS).map(|n| format!("{{other}}{n}")).collect();
    let mut waiting: Vec<Conn> = others
        .iter()
        .map(|key| {
            conn.ok(&["SET", key, "taken"]);
            wait(key)
        })
        .collect();
    for key in &others {
        conn.until_waiters(key, 1);
    }
    let last = wait("k");
    conn.until_waiters("k", 1);
    conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    conn.ok(&["CLUSTER", "DELSLOTS", &slot]);
    let ends = Waiters(vec![last]).end();
    assert_eq!((ends.unblocked + ends.moved, ends.down, ends.closed), (1, 0, 0), "{ends:?}");
    assert!(!waiting.iter_mut().any(Conn::has_reply), "the others go on waiting");
}
