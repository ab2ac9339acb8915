//! The assumptions of the grace, where they are hard to meet: a master that was replaced stops in time although its
//! event loop is slow, and no lease is longer than the grace covers, whenever it was requested.

use super::conditions::Pair;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use testkit::relay::Relay;
use testkit::{until, Conn, Reply, Server};

/// The margin of 1 s, max-lag of 1 s, and 2 s: a master may grant for this long after its replicas left it, and leases
/// are this much shorter than the grace.
const LAST_GRANT: Duration = Duration::from_secs(4);
/// Leaves 500 ms for a lease.
const GRACE_MS: u64 = 4_500;

fn acquire(conn: &mut Conn) -> Reply {
    conn.execute(&["LOCK.ACQUIRE", "door", "PX", "1", "ID", "7"])
}

fn is_grant(reply: &Reply) -> bool {
    matches!(reply, Reply::Int(_))
}

/// A master with one replica behind a relay; it grants locks.
fn pair(more: &[&str]) -> (Server, Server, Relay) {
    let Pair { master, replica, relay } = Pair::start("1", [GRACE_MS; 2], more);
    (master, replica, relay)
}

/// Promotes the replica. Neither the promotion nor the replica's acknowledgements reach the master.
fn replace(replica: &Server, relay: &Relay) -> Instant {
    relay.cut();
    replica.conn().ok(&["REPLICAOF", "NO", "ONE"]);
    Instant::now()
}

/// The server counts its good replicas every `hz` iterations of its cron, not every second: if an iteration takes
/// longer than 1/`hz`, the counts are far apart, and min-replicas-to-write uses an old count.
#[test]
fn a_replaced_master_whose_loop_is_slow_stops_in_time() {
    let (master, replica, relay) = pair(&["--hz", "100"]);
    let mut busy = master.conn();
    let (mut conn, mut watch) = (master.conn(), master.conn());
    // When the master sends its PING, it has just counted its replicas.
    let mut offset = || watch.info("replication", "master_repl_offset").unwrap();
    let before = offset();
    until("the master sends its PING", || (offset() != before).then_some(()));
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let load = thread::spawn(move || {
        while !stopped.load(Ordering::SeqCst) {
            // This is far from a stall, but the counts are ten seconds apart.
            busy.execute(&["DEBUG", "SLEEP", "0.1"]);
        }
    });
    let cut = replace(&replica, &relay);
    let (mut last, mut grants) = (Duration::ZERO, 0);
    while cut.elapsed() < LAST_GRANT + Duration::from_secs(2) {
        if is_grant(&acquire(&mut conn)) {
            (last, grants) = (cut.elapsed(), grants + 1);
        }
    }
    stop.store(true, Ordering::SeqCst);
    load.join().unwrap();
    let info = conn.text(&["INFO", "replication"]);
    assert!(last < LAST_GRANT, "{grants} grants, the last {last:?} after the master was replaced\n{info}");
}

/// A long iteration that executes lock commands is a stall like any other.
#[test]
fn a_replaced_master_stalled_in_lock_commands_grants_nothing() {
    let (master, replica, relay) = pair(&[]);
    let mut conn = master.conn();
    until("it is held", || is_grant(&conn.execute(&["LOCK.ACQUIRE", "held", "PX", "500"])).then_some(()));
    // In one iteration of the event loop the master reads a short sleep and a request for a lock from each client.
    let mut clients: Vec<Conn> = (0..12).map(|_| master.conn()).collect();
    for client in &mut clients {
        client.execute(&["PING"]);
    }
    let mut last = master.conn();
    last.execute(&["PING"]);
    master.signal("STOP");
    for client in &mut clients {
        client.send(&["DEBUG", "SLEEP", "0.4"]);
        client.send(&["LOCK.ACQUIRE", "held", "PX", "1"]);
    }
    last.send(&["PING"]);
    master.signal("CONT");
    let cut = replace(&replica, &relay);
    thread::sleep(LAST_GRANT + Duration::from_millis(500));
    last.send(&["LOCK.ACQUIRE", "door", "PX", "500"]);
    last.read();
    let answer = last.read();
    assert!(answer.error().starts_with("NOREPLICAS"), "{answer:?} {:?} after the master was replaced", cut.elapsed());
}

/// A waiter's lease is checked against the grace when it is granted.
#[test]
fn no_waiter_gets_a_lease_beyond_a_new_grace() {
    let (server, mut conn) = Server::with().args(&["--min-replicas-max-lag", "1"]).connected();
    if conn.is_before_7() {
        eprintln!("skipped: this server has no module settings in CONFIG");
        return;
    }
    for end in ["RELEASE", "DEL", "the lease"] {
        conn.ok(&["CONFIG", "SET", "lock.failover-grace-ms", "0"]);
        let lease = if end == "the lease" { "300" } else { "60000" };
        let token = conn.int(&["LOCK.ACQUIRE", "door", "PX", lease]).to_string();
        let mut long = server.waiter(&["LOCK.ACQUIRE", "door", "PX", "60000", "WAIT", "60000"]);
        let mut short = server.waiter(&["LOCK.ACQUIRE", "door", "PX", "500", "WAIT", "60000"]);
        // A lease may be at most 500 ms: 4500 less the margin of 1000, max-lag of 1000, and 2000.
        conn.ok(&["CONFIG", "SET", "lock.failover-grace-ms", "4500"]);
        match end {
            "RELEASE" => assert_eq!(conn.int(&["LOCK.RELEASE", "door", &token]), 1),
            "DEL" => assert_eq!(conn.int(&["DEL", "door"]), 1),
            _ => {}
        }
        let answer = long.read();
        let text = "GRACE lease is longer than 500 ms, the most that lock.failover-grace-ms covers";
        assert!(answer == Reply::Error(text.into()), "after {end}: {answer:?}");
        let token = short.read().int().to_string();
        assert_eq!(conn.int(&["LOCK.RELEASE", "door", &token]), 1);
    }
}

/// The server itself then checks no replicas at all; the grace assumes 10 s.
#[test]
fn a_max_lag_of_zero_still_needs_replicas() {
    let replicas = ["--min-replicas-to-write", "1", "--min-replicas-max-lag", "0"];
    let quick = ["--repl-diskless-sync-delay", "0"];
    let (server, mut conn) =
        Server::with().args(&replicas).args(&quick).module_args(&["failover-grace-ms", "14000"]).connected();
    conn.ok(&["SET", "held", "9999999999.0000001763710000482913"]);
    let extend = ["LOCK.EXTEND", "held", "1763710000482913", "PX", "1000"];
    assert!(conn.execute(&extend).error().starts_with("NOREPLICAS"));
    let replica = Server::start();
    replica.replicate(&server);
    until("the replica has answered", || (conn.execute(&extend) == Reply::Int(1)).then_some(()));
}
