//! The condition under which the grace keeps a lock from two clients, and what happens without each
//! part of it. That the guard after a stall is one: `stall.rs`.
//!
//! In each the master grants a lock that its replica does not hear of, and goes; the replica is
//! promoted, the master comes back as its replica, and a second client asks for the lock.

use super::holders::now_us;
use crate::support::relay::Relay;
use crate::support::{until, Conn, Reply, Server};
use std::time::Duration;

/// Margin 1 s, max-lag 3 s and 2 s: so much shorter than the grace are leases.
const TAKEN_MS: u64 = 6_000;

fn server(grace_ms: u64, more: &[&str]) -> Server {
    let replicas = ["--min-replicas-to-write", "1", "--min-replicas-max-lag", "3"];
    let quick = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"];
    let grace = grace_ms.to_string();
    Server::with().args(&replicas).args(&quick).args(more).module_args(&["failover-grace-ms", &grace]).start()
}

/// A master that has replicas behind a relay, and grants locks.
struct Pair {
    master: Server,
    replica: Server,
    relay: Relay,
}

impl Pair {
    fn start(master_grace_ms: u64, replica_grace_ms: u64) -> Self {
        let (master, replica) = (server(master_grace_ms, &[]), server(replica_grace_ms, &[]));
        let relay = Relay::to(master.port());
        replica.conn().ok(&["REPLICAOF", "127.0.0.1", &relay.port().to_string()]);
        let mut conn = master.conn();
        until("the master grants locks", || {
            matches!(conn.call(&["LOCK.ACQUIRE", "before", "PX", "1"]), Reply::Int(_)).then_some(())
        });
        Self { master, replica, relay }
    }

    /// The master goes, and comes back as a replica of the one that it had, with nothing.
    fn fail_over(self) -> (Server, Server) {
        drop(self.master);
        self.replica.conn().ok(&["REPLICAOF", "NO", "ONE"]);
        let back = server(0, &["--replicaof", &format!("127.0.0.1 {}", self.replica.port())]);
        until("the master is back as a replica", || {
            self.replica.conn().text(&["INFO", "replication"]).contains("state=online").then_some(())
        });
        (self.replica, back)
    }
}

/// A client that gets a lock, and when: the token.
fn granted(conn: &mut Conn, lease_ms: u64) -> u64 {
    let lease = lease_ms.to_string();
    conn.int(&["LOCK.ACQUIRE", "door", "PX", &lease, "WAIT", "60000"]).try_into().unwrap()
}

/// By how much the second client got the lock after the lease of the first was over, in microseconds; below zero:
/// both had it.
fn gap_us(first: u64, lease_ms: u64, second: u64) -> i64 {
    second.cast_signed() - (first + lease_ms * 1_000).cast_signed()
}

/// Both clients, of a pair with these graces.
fn gap_with(master_grace_ms: u64, replica_grace_ms: u64) -> i64 {
    let pair = Pair::start(master_grace_ms, replica_grace_ms);
    let lease_ms = master_grace_ms - TAKEN_MS;
    let mut conn = pair.master.conn();
    pair.relay.cut();
    let first = granted(&mut conn, lease_ms);
    let (new, _back) = pair.fail_over();
    let least = if replica_grace_ms == 0 { lease_ms } else { replica_grace_ms - TAKEN_MS };
    gap_us(first, lease_ms, granted(&mut new.conn(), least))
}

#[test]
fn with_all_parts_the_second_gets_it_when_the_first_is_done() {
    let gap = gap_with(9_000, 9_000);
    assert!(gap >= 0, "{gap} us");
}

#[test]
fn without_a_grace_on_the_replica_both_have_it() {
    let gap = gap_with(16_000, 0);
    assert!(gap < 0, "{gap} us");
}

#[test]
fn with_a_shorter_grace_on_the_replica_both_have_it() {
    let gap = gap_with(18_000, 6_500);
    assert!(gap < 0, "{gap} us");
}

#[test]
fn with_a_lease_from_before_the_grace_was_set_both_have_it() {
    let pair = Pair::start(0, 0);
    let mut conn = pair.master.conn();
    if conn.call(&["CONFIG", "GET", "lock.failover-grace-ms"]) == Reply::List(vec![]) {
        eprintln!("skipped: this server has no settings of modules in CONFIG");
        return;
    }
    pair.relay.cut();
    let lease_ms = 30_000;
    let first = granted(&mut conn, lease_ms);
    for server in [&pair.master, &pair.replica] {
        server.conn().ok(&["CONFIG", "SET", "lock.failover-grace-ms", "6500"]);
    }
    let (new, _back) = pair.fail_over();
    let gap = gap_us(first, lease_ms, granted(&mut new.conn(), 500));
    assert!(gap < 0, "{gap} us");
}

/// The network falls in two halves, each with a master and one replica, and one is what they ask for.
#[test]
fn with_min_replicas_below_their_number_both_have_it() {
    let grace_ms = 7_000;
    let pair = Pair::start(grace_ms, grace_ms);
    let (with_old, with_new) = (server(grace_ms, &[]), server(grace_ms, &[]));
    with_old.replicate(&pair.master);
    with_new.replicate(&pair.replica);
    pair.relay.cut();
    pair.replica.conn().ok(&["REPLICAOF", "NO", "ONE"]);
    // Its own replica connects anew.
    let mut second = pair.replica.conn();
    until("the new master has a replica", || {
        second.text(&["INFO", "replication"]).contains("min_slaves_good_slaves:1\r").then_some(())
    });
    second.send(&["LOCK.ACQUIRE", "door", "PX", "1000", "WAIT", "60000"]);
    let mut first = pair.master.conn();
    let token = first.int(&["LOCK.ACQUIRE", "door", "PX", "1000"]).to_string();
    let mut held_until = 0;
    while second.silent_for(Duration::from_millis(20)) {
        let sent = now_us();
        assert_eq!(first.int(&["LOCK.EXTEND", "door", &token, "PX", "1000"]), 1);
        held_until = sent + 1_000_000;
    }
    let granted: u64 = second.read().int().try_into().unwrap();
    assert!(granted < held_until, "{granted} {held_until}");
}

/// What no grace can keep: a session lost its lock with its connection, which the new master does
/// not know. Who lost a SESSION takes the lock anew; it does not extend it.
#[test]
fn a_session_that_ended_unheard_lives_on_at_the_new_master() {
    let pair = Pair::start(12_000, 12_000);
    let mut session = pair.master.conn();
    let token = session.int(&["LOCK.ACQUIRE", "door", "PX", "6000", "SESSION"]).to_string();
    pair.master.wait_offset(&pair.replica);
    pair.relay.cut();
    drop(session);
    // The margin later.
    let second = granted(&mut pair.master.conn(), 6_000);
    let (new, _back) = pair.fail_over();
    let mut conn = new.conn();
    let extended = until("the new master has its replica's answer", || {
        let reply = conn.call(&["LOCK.EXTEND", "door", &token, "PX", "1000"]);
        (!matches!(reply, Reply::Error(_))).then(|| reply.int())
    });
    assert!(now_us() < second + 6_000_000, "too slow to tell");
    assert_eq!(extended, 1);
}
