//! When the server must not be written to outside of a command (paused, failing over, loading, a
//! replica, short of good replicas), nobody is granted a lock; afterwards the line moves on. Nobody
//! is left hanging, nobody gets a lock that another one holds, and the server lives.

use crate::support::{server_time_us, temp_dir, timestamp_us, until, Reply, Server};
use crate::waiting::{is_silent, Locks, Waiter};
use std::fs;
use std::time::Duration;

/// A master whose AOF or replica makes a forbidden write fatal to it.
fn with_aof() -> Locks {
    let args = ["--appendonly", "yes", "--repl-diskless-sync-delay", "0"];
    Locks::on(Server::with().args(&args).module_args(&["margin-ms", "0"]).start())
}

/// Takes `k` for `lease_ms`; the timestamp.
fn hold_for(locks: &mut Locks, lease_ms: i64) -> i64 {
    let lease = lease_ms.to_string();
    locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", &lease]);
    timestamp_us(&locks.conn.text(&["GET", "k"]))
}

/// Serves everybody in line, one after the other: each gets the lock only when it is given back.
fn serve_all(locks: &mut Locks, waiters: &mut [Waiter]) {
    let mut left = waiters.len();
    let mut last = 0;
    for waiter in waiters {
        let token = waiter.granted();
        left -= 1;
        assert!(token > last, "{token} after {last}");
        locks.assert_holds(token);
        assert_eq!(locks.waiters(), i64::try_from(left).unwrap());
        locks.release(token);
        last = token;
    }
    assert_eq!(locks.conn.int(&["EXISTS", "k"]), 0);
}

/// A holder's time runs out while clients are paused for 600 ms.
fn pause(mode: &str) {
    let mut locks = with_aof();
    let timestamp = hold_for(&mut locks, 150);
    let mut waiters = [locks.wait(&[]), locks.wait(&["ID", "7"]), locks.wait(&["DETAILS"])];
    let mut brief = locks.server.conn();
    brief.send(&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "300"]);
    locks.until_waiters(4);
    let from = server_time_us(&mut locks.conn);
    locks.conn.ok(&["CLIENT", "PAUSE", "600", mode]);
    if from >= timestamp {
        // A busy machine: it was over before.
        return;
    }
    let first = waiters[0].conn.read().int();
    // The server counts the pause from its clock in whole milliseconds: up to one is missing.
    assert!(first > from + 599_000, "granted {} us after the pause began", first - from);
    assert!(brief.read().is_nil(), "its time was over");
    assert_eq!(waiters[0].conn.text(&["PING"]), "PONG");
    locks.release(first);
    serve_all(&mut locks, &mut waiters[1..]);
    assert_eq!(locks.server.log().matches("crashed by signal").count(), 0);
}

#[test]
fn nothing_is_granted_while_writes_are_paused() {
    pause("WRITE");
}

#[test]
fn nothing_is_granted_while_all_clients_are_paused() {
    pause("ALL");
}

#[test]
fn a_deleted_lock_is_not_granted_before_an_unpause() {
    let mut locks = with_aof();
    locks.hold();
    let mut waiters = [locks.wait(&[]), locks.wait(&[])];
    // In one turn: the timer that would serve the line comes when clients are paused already.
    let replies = locks.in_one_turn(&[&["DEL", "k"], &["CLIENT", "PAUSE", "60000", "WRITE"]]);
    assert_eq!(replies[0], Reply::Int(1));
    waiters[0].assert_waits();
    assert_eq!(locks.conn.int(&["EXISTS", "k"]), 0);
    locks.conn.ok(&["CLIENT", "UNPAUSE"]);
    serve_all(&mut locks, &mut waiters);
}

#[test]
fn a_grant_that_nobody_received_passes_on_after_a_pause() {
    let mut locks = with_aof();
    let token = locks.hold();
    let mut dead = locks.wait(&[]);
    let mut rest = [locks.wait(&[]), locks.wait(&[])];
    let id = dead.id.clone();
    let pause = ["CLIENT", "PAUSE", "60000", "WRITE"];
    locks.in_one_turn(&[&["LOCK.RELEASE", "k", &token], &["CLIENT", "KILL", "ID", &id], &pause]);
    dead.closed();
    rest[0].assert_waits();
    locks.conn.ok(&["CLIENT", "UNPAUSE"]);
    serve_all(&mut locks, &mut rest);
}

#[test]
fn waits_end_in_a_pause() {
    let mut locks = with_aof();
    locks.hold();
    let (mut killed, gone) = (locks.wait(&["ID", "7"]), locks.wait(&["ID", "8"]));
    let mut brief = locks.wait_with(&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "300"]);
    locks.conn.ok(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    brief.refused();
    assert_eq!(locks.conn.int(&["CLIENT", "KILL", "ID", &killed.id]), 1);
    killed.closed();
    drop(gone);
    locks.until_waiters(0);
    locks.conn.ok(&["CLIENT", "UNPAUSE"]);
    locks.conn.int(&["LOCK.CANCEL", "k", "7"]);
}

#[test]
fn what_was_granted_after_a_pause_is_in_the_aof() {
    let dir = temp_dir();
    let start = || {
        let args = ["--appendonly", "yes", "--appendfsync", "always"];
        Server::with().args(&args).module_args(&["margin-ms", "0"]).dir(&dir).start()
    };
    let mut locks = Locks::on(start());
    hold_for(&mut locks, 100);
    let mut waiters = [locks.wait(&["OWNER", "first"]), locks.wait(&["OWNER", "second"])];
    locks.conn.ok(&["CLIENT", "PAUSE", "300", "WRITE"]);
    let first = waiters[0].granted();
    locks.release(first);
    waiters[1].granted();
    let (value, digest) = (locks.conn.text(&["GET", "k"]), locks.conn.text(&["DEBUG", "DIGEST"]));
    assert!(value.ends_with(" second"), "{value}");
    drop((locks, waiters));
    let again = start();
    let mut conn = again.conn();
    assert_eq!(conn.text(&["GET", "k"]), value);
    assert_eq!(conn.text(&["DEBUG", "DIGEST"]), digest);
    drop(again);
    let _ = fs::remove_dir_all(&dir);
}

/// A master with a replica that is in sync.
fn pair() -> (Locks, Server) {
    let (master, replica) = (with_aof(), Server::with().module_args(&["margin-ms", "0"]).start());
    replica.replicate(&master.server);
    until("the replica is known to be good", || {
        master.server.conn().text(&["INFO", "replication"]).contains("state=online").then_some(())
    });
    (master, replica)
}

#[test]
fn a_failover_that_fails_grants_nothing_meanwhile_and_the_line_moves_on() {
    let (mut locks, replica) = pair();
    let timestamp = hold_for(&mut locks, 600);
    let mut waiters = [locks.wait(&[]), locks.wait(&["ID", "7"])];
    // A replica that does not answer: the master waits for it to catch up, paused.
    replica.signal("STOP");
    locks.conn.ok(&["SET", "more", "1"]);
    let from = server_time_us(&mut locks.conn);
    let port = replica.port().to_string();
    locks.conn.ok(&["FAILOVER", "TO", "127.0.0.1", &port, "TIMEOUT", "1200"]);
    let in_time = from < timestamp;
    let first = waiters[0].conn.read().int();
    replica.signal("CONT");
    assert!(!in_time || first >= from + 1_200_000, "granted {} us after it began", first - from);
    assert_eq!(waiters[0].conn.text(&["PING"]), "PONG");
    locks.release(first);
    serve_all(&mut locks, &mut waiters[1..]);
    assert_eq!(locks.conn.call(&["ROLE"]).list()[0].text(), "master");
    locks.server.wait_offset(&replica);
    let digest = locks.conn.text(&["DEBUG", "DIGEST"]);
    assert_eq!(replica.conn().text(&["DEBUG", "DIGEST"]), digest);
}

#[test]
fn a_failover_ends_the_waits_and_the_lock_goes_with_it() {
    let (mut locks, replica) = pair();
    locks.hold();
    let value = locks.conn.text(&["GET", "k"]);
    let mut waiters = [locks.wait(&[]), locks.wait(&["ID", "7"])];
    let port = replica.port().to_string();
    locks.conn.ok(&["FAILOVER", "TO", "127.0.0.1", &port]);
    for waiter in &mut waiters {
        // The server itself says so, and then closes the connection or not.
        if let Ok(reply) = waiter.conn.try_read() {
            assert!(reply.error().starts_with("UNBLOCKED "), "{reply:?}");
        }
    }
    let mut new = Locks::on(replica);
    until("the replica is master", || (new.conn.call(&["ROLE"]).list()[0].text() == "master").then_some(()));
    assert_eq!(new.conn.text(&["GET", "k"]), value);
    let mut next = new.wait(&[]);
    assert_eq!(new.conn.int(&["DEL", "k"]), 1);
    next.granted();
    until("the old master follows", || {
        (locks.conn.call(&["LOCK.INFO", "k"]).field("token") == new.conn.call(&["LOCK.INFO", "k"]).field("token"))
            .then_some(())
    });
}

#[test]
fn a_lease_that_runs_out_in_a_failover_that_succeeds_is_granted_once() {
    let (mut locks, replica) = pair();
    hold_for(&mut locks, 300);
    let mut waiter = locks.wait(&[]);
    replica.signal("STOP");
    locks.conn.ok(&["SET", "more", "1"]);
    let port = replica.port().to_string();
    locks.conn.ok(&["FAILOVER", "TO", "127.0.0.1", &port]);
    // Past the lease; the reply to WAIT of the server itself would be as good a clock.
    let mut ask = locks.server.conn();
    let end = server_time_us(&mut ask) + 500_000;
    until("the lease is over", || (server_time_us(&mut ask) > end).then_some(()));
    replica.signal("CONT");
    let old = waiter.conn.try_read();
    assert!(!matches!(old, Ok(Reply::Int(_) | Reply::Nil)), "{old:?}");
    let mut new = Locks::on(replica);
    until("the replica is master", || (new.conn.call(&["ROLE"]).list()[0].text() == "master").then_some(()));
    let token = new.hold();
    assert!(new.conn.call(&["LOCK.ACQUIRE", "k", "PX", "30000"]).is_nil());
    new.release(token);
}

#[test]
fn a_demotion_in_the_turn_of_a_release_grants_to_nobody_else() {
    let mut locks = with_aof();
    let token = locks.hold();
    let mut waiters = [locks.wait(&[]), locks.wait(&["ID", "7"])];
    let replies = locks.in_one_turn(&[&["LOCK.RELEASE", "k", &token], &["REPLICAOF", "127.0.0.1", "1"]]);
    assert_eq!(replies[0], Reply::Int(1));
    let answers: Vec<_> = waiters.iter_mut().map(|waiter| waiter.conn.try_read()).collect();
    assert!(!matches!(answers[1], Ok(Reply::Int(_) | Reply::Nil)), "{answers:?}");
    locks.conn.ok(&["REPLICAOF", "NO", "ONE"]);
    // If the grant reached the first it holds; if not, nobody else was told that it does.
    if let Ok(Reply::Int(token)) = answers[0] {
        locks.assert_holds(token);
    }
    assert_eq!(locks.waiters(), 0);
    assert_eq!(locks.conn.text(&["PING"]), "PONG");
}

#[test]
fn a_replica_has_nothing_left_to_do() {
    let mut locks = with_aof();
    let token = locks.hold();
    let mut waiters = [locks.wait(&[]), locks.wait(&["ID", "7"])];
    let id = waiters[0].id.clone();
    locks.in_one_turn(&[
        &["LOCK.RELEASE", "k", &token],
        &["CLIENT", "KILL", "ID", &id],
        &["REPLICAOF", "127.0.0.1", "1"],
    ]);
    for waiter in &mut waiters {
        let _ = waiter.conn.try_read();
    }
    // It is refused as long as the module has a client, or a timer for what cannot be done here.
    until("the module is unloaded", || {
        matches!(locks.conn.call(&["MODULE", "UNLOAD", "lock"]), Reply::Status(_)).then_some(())
    });
}

/// Whether modules hear of CONFIG SET: not before 7.0.
fn tells_of_settings(locks: &mut Locks) -> bool {
    let (valkey, major, _) = locks.version();
    valkey || major >= 7
}

#[test]
fn short_of_good_replicas_timers_grant_nothing() {
    let mut locks = with_aof();
    // What the module knows of the setting may be a second old where the server does not tell.
    let (lease_ms, wait) = if tells_of_settings(&mut locks) { (100, "600") } else { (1500, "2200") };
    hold_for(&mut locks, lease_ms);
    let mut waiters = [locks.wait(&[]), locks.wait(&["ID", "7"])];
    let mut brief = locks.wait_with(&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", wait]);
    locks.conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let reply = locks.conn.call(&["LOCK.ACQUIRE", "k", "PX", "1000"]);
    assert!(reply.error().starts_with("NOREPLICAS "), "{reply:?}");
    // Long after the lease is over.
    brief.refused();
    assert_eq!(locks.conn.call(&["LOCK.INFO", "k"]).field("state").text(), "expired");
    waiters[0].assert_waits();
    // With a replica it goes on.
    let replica = Server::start();
    replica.replicate(&locks.server);
    serve_all(&mut locks, &mut waiters);
}

#[test]
fn a_grant_that_nobody_received_waits_for_good_replicas() {
    let mut locks = with_aof();
    let token = locks.hold();
    let mut dead = locks.wait(&[]);
    let mut rest = [locks.wait(&[]), locks.wait(&[])];
    let id = dead.id.clone();
    let short = ["CONFIG", "SET", "min-replicas-to-write", "1"];
    locks.in_one_turn(&[&["LOCK.RELEASE", "k", &token], &["CLIENT", "KILL", "ID", &id], &short]);
    dead.closed();
    if tells_of_settings(&mut locks) {
        rest[0].assert_waits();
    }
    locks.conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    serve_all(&mut locks, &mut rest);
}

fn reload(command: &[&str]) {
    let mut locks = with_aof();
    let token = locks.hold();
    let mut waiters = [locks.wait(&[]), locks.wait(&["ID", "7"])];
    for _ in 0..3 {
        locks.conn.ok(command);
    }
    waiters[0].assert_waits();
    locks.assert_holds(token.parse().unwrap());
    assert_eq!(locks.waiters(), 2);
    locks.release(token);
    serve_all(&mut locks, &mut waiters);
}

#[test]
fn a_reload_of_the_rdb_frees_no_lock() {
    reload(&["DEBUG", "RELOAD"]);
}

#[test]
fn a_reload_of_the_aof_frees_no_lock() {
    reload(&["DEBUG", "LOADAOF"]);
}

#[test]
fn a_lease_that_runs_out_while_the_server_loads_is_granted_afterwards() {
    let mut locks = with_aof();
    let keys: Vec<String> = (0..400).map(|n| format!("filler{n}")).collect();
    for key in &keys {
        locks.conn.ok(&["SET", key, "1"]);
    }
    // Loading serves connections meanwhile, and takes 400 ms.
    // (6.2 serves them less often, and knows no setting for it).
    let _ = locks.conn.call(&["CONFIG", "SET", "loading-process-events-interval-bytes", "1024"]);
    locks.conn.ok(&["CONFIG", "SET", "key-load-delay", "1000"]);
    let timestamp = hold_for(&mut locks, 200);
    let mut waiters = [locks.wait(&[]), locks.wait(&["ID", "7"])];
    locks.conn.ok(&["DEBUG", "RELOAD"]);
    assert_eq!(locks.conn.int(&["EXISTS", "filler399"]), 1);
    let first = waiters[0].granted();
    assert!(first >= timestamp);
    locks.release(first);
    serve_all(&mut locks, &mut waiters[1..]);
}

#[test]
fn a_server_that_stood_still_goes_on() {
    let mut locks = with_aof();
    let timestamp = hold_for(&mut locks, 200);
    let mut waiters = [locks.wait(&[]), locks.wait(&["ID", "7"])];
    let mut brief = locks.wait_with(&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "150"]);
    locks.server.signal("STOP");
    assert!(is_silent(&mut waiters[0].conn, Duration::from_millis(500)), "a stopped server");
    locks.server.signal("CONT");
    brief.refused();
    let first = waiters[0].granted();
    assert!(first >= timestamp);
    locks.release(first);
    serve_all(&mut locks, &mut waiters[1..]);
}

/// A grace that is set while clients wait: all of them are told whose leases it does not cover, wherever they stand.
#[test]
fn a_grace_ends_the_waits_for_longer_leases_wherever_they_stand() {
    let mut locks = Locks::start();
    if matches!(locks.conn.call(&["CONFIG", "GET", "lock.margin-ms"]), Reply::List(pair) if pair.is_empty()) {
        eprintln!("skipped: the server has no settings of modules that can be changed");
        return;
    }
    locks.hold();
    locks.conn.int(&["LOCK.ACQUIRE", "other", "PX", "30000"]);
    let wait = |locks: &mut Locks, key: &str, lease: &str| {
        locks.wait_with(&["LOCK.ACQUIRE", key, "PX", lease, "WAIT", "60000"])
    };
    let all = ["LOCK.MACQUIRE", "2", "k", "other", "WAIT", "60000", "PX"];
    let mut long = vec![locks.wait_with(&[&all[..], &["60000"]].concat()), wait(&mut locks, "k", "60000")];
    let mut short = vec![wait(&mut locks, "k", "1000"), locks.wait_with(&[&all[..], &["1000"]].concat())];
    long.extend((0..300).map(|_| wait(&mut locks, "other", "60000")));
    short.push(wait(&mut locks, "other", "1000"));
    locks.conn.ok(&["CONFIG", "SET", "lock.failover-grace-ms", "20000"]);
    for waiter in &mut long {
        waiter.failed("GRACE");
    }
    for waiter in &mut short {
        waiter.assert_waits();
    }
    assert_eq!(locks.info("lock", "lock_waiters"), 3);
}

/// More of them than answers that leave in one event-loop iteration.
#[test]
fn a_crowd_whose_waits_end_in_one_command_is_answered_once_whoever_is_killed_meanwhile() {
    let mut locks = Locks::start();
    if matches!(locks.conn.call(&["CONFIG", "GET", "lock.margin-ms"]), Reply::List(pair) if pair.is_empty()) {
        eprintln!("skipped: the server has no settings of modules that can be changed");
        return;
    }
    let kill: &[&str] = &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
    for then in [&["PING"], kill] {
        locks.conn.ok(&["CONFIG", "SET", "lock.failover-grace-ms", "0"]);
        let token = locks.hold();
        let long = ["LOCK.ACQUIRE", "k", "PX", "60000", "WAIT", "60000"];
        let mut crowd: Vec<_> = (0..600).map(|_| locks.wait_with(&long)).collect();
        let shorter = &["CONFIG", "SET", "lock.failover-grace-ms", "20000"];
        locks.in_one_turn(&[shorter, &["LOCK.RELEASE", "k", &token], then]);
        for waiter in &mut crowd {
            if then == kill {
                waiter.closed();
            } else {
                waiter.failed("GRACE");
                assert_eq!(waiter.conn.call(&["PING"]).text(), "PONG", "there is no second answer");
            }
        }
        assert_eq!((locks.waiters(), locks.conn.int(&["EXISTS", "k"])), (0, 0));
    }
    assert_eq!(locks.info("clients", "blocked_clients"), 0);
}

/// The same where the lease is handed over before the module has come to look at all of them.
#[test]
fn no_lease_is_handed_over_that_a_grace_does_not_cover() {
    let mut locks = Locks::start();
    if matches!(locks.conn.call(&["CONFIG", "GET", "lock.margin-ms"]), Reply::List(pair) if pair.is_empty()) {
        eprintln!("skipped: the server has no settings of modules that can be changed");
        return;
    }
    let token = locks.hold();
    locks.conn.int(&["LOCK.ACQUIRE", "other", "PX", "30000"]);
    // One ahead may have its lease, but not the other lock that it wants.
    let all = ["LOCK.MACQUIRE", "2", "k", "other", "PX", "1000", "WAIT", "60000"];
    let mut first = locks.wait_with(&all);
    let mut second = locks.wait_with(&["LOCK.ACQUIRE", "k", "PX", "60000", "WAIT", "60000"]);
    locks.in_one_turn(&[&["CONFIG", "SET", "lock.failover-grace-ms", "20000"], &["LOCK.RELEASE", "k", &token]]);
    second.failed("GRACE");
    first.assert_waits();
    assert_eq!(locks.conn.int(&["EXISTS", "k"]), 0);
}
