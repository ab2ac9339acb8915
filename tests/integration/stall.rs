//! With a failover grace, a master that stalled and was replaced in the meantime grants nothing. Also the limits that
//! the grace sets for a new master and for leases.

use crate::kinds::{Kind, Row, KINDS};
use std::thread::sleep;
use std::time::{Duration, Instant};
use testkit::relay::Relay;
use testkit::{until, Conn, Reply, Server};

/// The longest lease is then 500 ms: 4500 less the margin of 1000, max-lag of 1000, and 2000.
pub const GRACE_MS: &str = "4500";
const LEASE: [&str; 2] = ["PX", "500"];

fn acquire(conn: &mut Conn, key: &str) -> Reply {
    conn.execute(&["LOCK.ACQUIRE", key, LEASE[0], LEASE[1]])
}

/// A master with one replica behind a relay; it grants locks.
pub fn pair(grace_ms: &str) -> (Server, Server, Relay) {
    let args = ["--min-replicas-to-write", "1", "--min-replicas-max-lag", "1", "--repl-diskless-sync-delay", "0"];
    let master = Server::with().args(&args).module_args(&["failover-grace-ms", grace_ms]).start();
    let replica = Server::with().args(&args).module_args(&["failover-grace-ms", grace_ms]).start();
    let relay = Relay::to(master.port());
    replica.conn().ok(&["REPLICAOF", "127.0.0.1", &relay.port().to_string()]);
    let mut conn = master.conn();
    until("the master grants locks", || matches!(acquire(&mut conn, "before"), Reply::Int(_)).then_some(()));
    (master, replica, relay)
}

/// Stops the master, promotes its replica, silently cuts the network and lets the master continue. Returns its replies
/// to lock commands in the next three seconds.
fn deposed_master_answers(grace_ms: &str, stands_still: Duration) -> Vec<Reply> {
    let (master, replica, relay) = pair(grace_ms);
    let mut conn = master.conn();
    master.signal("STOP");
    // The replica's acknowledgements, one a second, wait to be read, and will look new.
    sleep(stands_still);
    relay.cut();
    replica.conn().ok(&["REPLICAOF", "NO", "ONE"]);
    master.signal("CONT");
    let end = Instant::now() + Duration::from_secs(3);
    let mut answers = Vec::new();
    while Instant::now() < end {
        answers.push(acquire(&mut conn, &format!("door-{}", answers.len())));
        sleep(Duration::from_millis(5));
    }
    answers
}

#[test]
fn a_replaced_master_that_stalled_grants_nothing() {
    let answers = deposed_master_answers(GRACE_MS, Duration::from_secs(15));
    assert!(answers.len() > 100, "{}", answers.len());
    for answer in answers {
        assert!(answer.error().starts_with("NOREPLICAS"), "{answer:?}");
    }
}

#[test]
fn without_a_grace_period_a_replaced_master_that_stalled_grants() {
    let granted = deposed_master_answers("0", Duration::from_millis(2_500))
        .iter()
        .filter(|answer| matches!(answer, Reply::Int(_)))
        .count();
    assert!(granted > 0, "this is what the grace is for");
}

#[test]
fn a_stalled_master_that_was_kept_grants_again() {
    let (master, _replica, _relay) = pair(GRACE_MS);
    let mut conn = master.conn();
    // Nothing but the server's own PING to its replicas moves the offset here.
    conn.ok(&["CONFIG", "SET", "repl-ping-replica-period", "1"]);
    master.signal("STOP");
    sleep(Duration::from_millis(2_500));
    master.signal("CONT");
    assert!(acquire(&mut conn, "door").error().starts_with("NOREPLICAS"));
    until("it grants again", || matches!(acquire(&mut conn, "door"), Reply::Int(_)).then_some(()));
    assert!(master.log().contains("the server stalled"));
}

/// The token of the holders that a server loads at startup.
const HELD: &str = "1763710000482913";

/// Stores a lock of this kind under the kind's keys, as an earlier server wrote it.
fn write_held(conn: &mut Conn, kind: Kind) {
    for key in kind.keys() {
        match kind {
            Kind::Alone | Kind::Several => conn.ok(&["SET", key, &format!("9999999999.000000{HELD}")]),
            _ => assert_eq!(conn.int(&["ZADD", key, "9999999998", "1763710000000000", "9999999999", HELD]), 2),
        }
    }
}

#[test]
fn a_new_server_grants_nothing_until_its_grace_is_over() {
    let begin = Instant::now();
    let lag = ["--min-replicas-max-lag", "1"];
    let server = Server::with().args(&lag).module_args(&["failover-grace-ms", "5000"]).start();
    let mut conn = server.conn();
    let mut waiters: Vec<_> = KINDS.iter().map(|kind| (kind, server.conn())).collect();
    for (db, (kind, waiter)) in waiters.iter_mut().enumerate() {
        let _row = Row::of(&kind);
        let db = db.to_string();
        waiter.ok(&["SELECT", &db]);
        waiter.send(&kind.acquire(&["PX", "1000", "WAIT", "20000"]));
        conn.ok(&["SELECT", &db]);
        let new = conn.execute(&["LOCK.ACQUIRE", "other", "PX", "1000"]);
        assert!(new.error().starts_with("GRACE this server has just started"), "{new:?}");
        for free in [kind.acquire(&["PX", "1000"]), kind.acquire(&["PX", "1000", "ID", "7"])] {
            assert!(conn.execute(&free).error().starts_with("GRACE this server has just started"), "{free:?}");
        }
        assert_eq!(kind.exist(&mut conn), 0);
    }
    conn.ok(&["SET", "old", "1500000000"]);
    assert!(conn.execute(&["LOCK.RECOVER", "old", "PX", "1000"]).error().starts_with("GRACE"));
    // Holders may keep working and release.
    for kind in KINDS {
        let _row = Row::of(kind);
        conn.ok(&["SELECT", "9"]);
        write_held(&mut conn, kind);
        // A client that the holders exclude gets nil; one that could share the lock gets GRACE.
        let is_grace = |reply: &Reply| matches!(reply, Reply::Error(text) if text.starts_with("GRACE "));
        let shares = matches!(kind, Kind::Shared | Kind::Limit);
        assert_eq!(is_grace(&conn.execute(&["LOCK.ACQUIRE", "k", "PX", "1000", "SHARED"])), shares);
        assert_eq!(is_grace(&conn.execute(&["LOCK.ACQUIRE", "k", "PX", "1000", "LIMIT", "3"])), shares);
        assert!(conn.execute(&["LOCK.ACQUIRE", "k", "PX", "1000", "LIMIT", "2"]).is_nil());
        assert!(conn.execute(&["LOCK.ACQUIRE", "k", "PX", "1000"]).is_nil());
        assert!(conn.execute(&["LOCK.MACQUIRE", "2", "free", "k", "PX", "1000"]).is_nil());
        assert_eq!(conn.int(&kind.command("EXTEND", &[HELD, "PX", "1000"])), 1);
        kind.release(&mut conn, HELD);
        conn.ok(&["FLUSHDB"]);
    }
    for (kind, waiter) in &mut waiters {
        let _row = Row::of(kind);
        waiter.read().int();
        assert!(begin.elapsed() >= Duration::from_secs(5), "granted after {:?}", begin.elapsed());
    }
    assert!(conn.int(&["LOCK.ACQUIRE", "other", "PX", "1000"]) > 0);
}

#[test]
fn a_promoted_replica_grants_nothing_until_its_grace_is_over() {
    let lag = ["--min-replicas-max-lag", "1"];
    let server = Server::with().args(&lag).module_args(&["failover-grace-ms", "5000"]).start();
    let mut conn = server.conn();
    until("its first grace ends", || conn.text(&["INFO", "lock"]).contains("lock_grace_left_ms:0\r").then_some(()));
    conn.ok(&["REPLICAOF", "127.0.0.1", "1"]);
    conn.ok(&["REPLICAOF", "NO", "ONE"]);
    assert!(acquire(&mut conn, "door").error().starts_with("GRACE"));
    until("its grace ends", || matches!(acquire(&mut conn, "door"), Reply::Int(_)).then_some(()));
}

#[test]
fn a_lease_that_could_outlive_the_grace_is_refused() {
    let (master, _replica, _relay) = pair(GRACE_MS);
    let mut conn = master.conn();
    let longer = ["PX", "501"];
    let mut refuses = |command: &[&str]| {
        let reply = conn.execute(command);
        let text = "GRACE lease is longer than 500 ms, the most that lock.failover-grace-ms covers";
        assert_eq!(reply.error(), text, "{command:?}");
    };
    refuses(&["LOCK.RECOVER", "k", "PX", "501"]);
    let mut holder = master.conn();
    for kind in KINDS {
        refuses(&kind.acquire(&longer));
        refuses(&kind.acquire(&[&longer[..], &["WAIT", "1000"]].concat()));
        let token = kind.take(&mut holder, &["PX", "500"]);
        refuses(&kind.command("EXTEND", &[&token, "PX", "501"]));
        kind.release(&mut holder, &token);
    }
}

#[test]
fn a_grace_that_cannot_work_is_warned_of() {
    for (args, settings, text) in [
        (&[][..], ["failover-grace-ms", "60000"], "without min-replicas-to-write"),
        (&["--min-replicas-to-write", "1"], ["failover-grace-ms", "5000"], "too short for any lease"),
    ] {
        let server = Server::with().args(args).module_args(&settings).start();
        assert!(server.log().contains(text), "{}", server.log());
        assert!(server.conn().text(&["INFO", "lock"]).contains("lock_grace_misconfigured:1"));
    }
}

fn is_misconfigured(conn: &mut Conn) -> bool {
    conn.text(&["INFO", "lock"]).contains("lock_grace_misconfigured:1")
}

#[test]
fn more_replicas_than_have_to_answer_are_warned_of() {
    let (master, _replica, _relay) = pair(GRACE_MS);
    let mut conn = master.conn();
    assert!(!is_misconfigured(&mut conn), "{}", master.log_tail(5));
    let second = Server::start();
    second.replicate(&master);
    until("the warning appears", || is_misconfigured(&mut conn).then_some(()));
    assert!(master.log().contains("min-replicas-to-write below the number of replicas"), "{}", master.log_tail(5));
    conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "2"]);
    until("the setting is corrected", || (!is_misconfigured(&mut conn)).then_some(()));
}

#[test]
fn an_older_lease_is_warned_of_until_it_ends() {
    let (master, _replica, _relay) = pair("0");
    let mut conn = master.conn();
    if !matches!(conn.execute(&["CONFIG", "GET", "lock.failover-grace-ms"]), Reply::List(found) if !found.is_empty()) {
        return; // Without module settings the grace cannot be set later.
    }
    conn.int(&["LOCK.ACQUIRE", "door", "PX", "4000"]);
    conn.ok(&["CONFIG", "SET", "lock.failover-grace-ms", GRACE_MS]);
    until("the warning appears", || is_misconfigured(&mut conn).then_some(()));
    assert!(master.log().contains("too short for a lease that was already granted"), "{}", master.log_tail(5));
    until("the lease ends", || (!is_misconfigured(&mut conn)).then_some(()));
}

/// The same, but the master is busy instead of stopped: one iteration of its loop consists of many slow commands, none
/// of which takes longer than the margin, with lock commands between them.
#[test]
fn a_replaced_master_after_a_long_iteration_grants_nothing() {
    let (master, replica, relay) = pair(GRACE_MS);
    let mut conns: Vec<Conn> = (0..10).map(|_| master.conn()).collect();
    for (number, conn) in conns.iter_mut().enumerate() {
        conn.send(&["DEBUG", "SLEEP", "0.8"]);
        conn.send(&["LOCK.ACQUIRE", &format!("door-{number}"), "PX", "500"]);
    }
    sleep(Duration::from_millis(300));
    relay.cut();
    replica.conn().ok(&["REPLICAOF", "NO", "ONE"]);
    let promoted = Instant::now();
    for conn in &mut conns {
        conn.read();
        let answer = conn.read();
        println!("{:?} after the promotion: {answer:?}", promoted.elapsed());
        if promoted.elapsed() > Duration::from_millis(4_500) {
            assert!(answer.error().starts_with("NOREPLICAS"), "{answer:?}");
        }
    }
}
