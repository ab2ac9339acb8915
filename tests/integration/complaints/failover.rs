//! The complaint about a master that is replaced.

use super::take;
use crate::stall::{pair, GRACE_MS};
use std::time::{Duration, Instant};
use testkit::{until, Reply, Server, DEADLINE};

/// The longest lease that the grace covers.
const LEASE: [&str; 2] = ["PX", "500"];
const LEASE_TIME: Duration = Duration::from_millis(500);

/// A master that does not yet know that its replica is cut off, and one of its grants: when it was requested, and the
/// token. `None` if the machine was busy for a second.
fn cut_off() -> Option<(Server, Server, Instant, String)> {
    let (master, replica, relay) = pair(GRACE_MS);
    let mut conn = master.conn();
    relay.cut();
    let theirs = conn.execute(&["SET", "theirs", "first", "NX", "PX", "30000"]);
    let sent = Instant::now();
    match (theirs, conn.execute(&["LOCK.ACQUIRE", "ours", LEASE[0], LEASE[1]])) {
        (Reply::Status(_), Reply::Int(token)) => Some((master, replica, sent, token.to_string())),
        _ => None,
    }
}

/// opsmill/infrahub#9450 (also mike-marcacci/node-redlock#16): the lock had not reached the replica that
/// took over, and a second client takes it there.
#[test]
fn no_two_owners_after_a_failover() {
    let (master, replica, mut sent, token) = until("a master grants a lock that reaches no replica", cut_off);
    let (mut first, mut second) = (master.conn(), replica.conn());
    assert_eq!(second.int(&["EXISTS", "theirs", "ours"]), 0);

    second.ok(&["REPLICAOF", "NO", "ONE"]);
    // The new master has no replica, and without one it would refuse writes.
    second.ok(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    assert!(take(&mut second, "theirs", "second", "30000"));
    assert!(first.int(&["PTTL", "theirs"]) > 0, "the complaint: both hold the lock");

    // The first client renews as long as it can; the second keeps trying.
    let mut lease_end = sent + LEASE_TIME;
    let end = Instant::now() + DEADLINE;
    let mut refusals = 0;
    loop {
        sent = Instant::now();
        if first.execute(&["LOCK.EXTEND", "ours", &token, LEASE[0], LEASE[1]]) == Reply::Int(1) {
            lease_end = sent + LEASE_TIME;
        }
        match second.execute(&["LOCK.ACQUIRE", "ours", LEASE[0], LEASE[1]]) {
            Reply::Int(_) => break,
            // On a busy machine the client can also have stalled.
            reply => {
                assert!(reply.error().starts_with("GRACE ") || reply.error().starts_with("NOREPLICAS "), "{reply:?}");
            }
        }
        refusals += 1;
        assert!(Instant::now() < end, "never granted");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(refusals > 0 && Instant::now() > lease_end, "granted while the first may still be working");
}
