//! While the server must not be written to outside a command (it is paused, failing over, loading, a replica, or short
//! of good replicas), or is out of memory, no lock of any kind is granted. Afterwards the queue moves on in order. No
//! client hangs, none gets a lock that another holds, and the server survives.

mod failover;
mod grace;

use crate::kinds::{Kind, Row, KINDS};
use crate::waiting::{no_reply_within, Locks, Waiter};
use std::fs;
use std::time::Duration;
use testkit::{server_time_us, temp_dir, until, Reply, Server};

/// A master whose AOF or replica makes a forbidden write fatal to it.
fn with_aof() -> Locks {
    let args = ["--appendonly", "yes", "--repl-diskless-sync-delay", "0"];
    Locks::on(Server::with().args(&args).module_args(&["margin-ms", "0"]).start())
}

/// Makes a lease end this soon, and returns the timestamp. Waiters have begun to wait before that, however busy the
/// machine is.
fn shorten(locks: &mut Locks, kind: Kind, token: &str, lease_ms: i64) -> i64 {
    assert_eq!(locks.conn.int(&kind.command("EXTEND", &[token, "PX", &lease_ms.to_string()])), 1);
    locks.conn.lock("k", "timestamp").text().replace('.', "").parse().unwrap()
}

/// The waiters for `k`: exclusive, with an ID, with a limit of two, shared, and one that wants `l` too.
struct Queue([Waiter; 5]);

impl Queue {
    fn of(locks: &mut Locks) -> Self {
        let [alone, id] = [&["DETAILS"], &["ID", "7"][..]].map(|options| locks.wait(options));
        Self([alone, id, locks.wait(&["LIMIT", "2"]), locks.wait(&["SHARED"]), locks.wait_as(Kind::Several, &[])])
    }

    fn assert_waits(&mut self) {
        self.0[0].assert_waits();
        assert!(self.0.iter_mut().all(|waiter| !waiter.conn.has_reply()));
    }

    fn serve(&mut self, locks: &mut Locks) {
        let first = self.0[0].granted();
        self.serve_after(locks, first);
    }

    /// The first has been granted the lock. Each release grants it to the next waiter, and to all that share it
    /// together.
    fn serve_after(&mut self, locks: &mut Locks, first: i64) {
        let [_, id, limited, shared, all] = &mut self.0;
        locks.assert_holds(first);
        assert_eq!(locks.waiters(), 4);
        locks.release(first);
        let second = id.granted();
        assert!(second > first, "{second} after {first}");
        locks.release(second);
        let together = [limited.granted(), shared.granted()];
        all.assert_waits();
        for token in together {
            locks.release(token);
        }
        let token = all.granted().to_string();
        Kind::Several.release(&mut locks.conn, &token);
        assert_eq!(Kind::Several.exist(&mut locks.conn), 0);
        assert_eq!(locks.server.log().matches("crashed by signal").count(), 0);
    }
}

/// A holder's lease ends while clients are paused for 600 ms.
#[test]
fn nothing_is_granted_while_clients_are_paused() {
    for (mode, kind) in ["WRITE", "ALL"].into_iter().flat_map(|mode| KINDS.map(|kind| (mode, kind))) {
        let _row = Row::of((mode, kind));
        let mut locks = with_aof();
        let token = kind.take(&mut locks.conn, &["EX", "60"]);
        let mut queue = Queue::of(&mut locks);
        let mut brief = locks.wait_with(&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "300"]);
        let timestamp = shorten(&mut locks, kind, &token, 250);
        let from = server_time_us(&mut locks.conn);
        locks.conn.ok(&["CLIENT", "PAUSE", "600", mode]);
        if from >= timestamp {
            // On a busy machine, the lease may have ended before the pause.
            continue;
        }
        let first = queue.0[0].granted();
        // The server counts the pause in whole milliseconds of its clock: it may be up to one millisecond short.
        assert!(first > from + 599_000, "granted {} us after the pause began", first - from);
        brief.refused();
        queue.serve_after(&mut locks, first);
    }
}

#[test]
fn a_deleted_lock_is_not_granted_before_an_unpause() {
    let mut locks = with_aof();
    locks.hold();
    let mut queue = Queue::of(&mut locks);
    // Both run in one iteration, so the timer that would serve the queue fires when clients are already paused.
    let replies = locks.in_one_turn(&[&["DEL", "k"], &["CLIENT", "PAUSE", "60000", "WRITE"]]);
    assert_eq!(replies[0], Reply::Int(1));
    queue.assert_waits();
    assert_eq!(locks.conn.int(&["EXISTS", "k"]), 0);
    locks.conn.ok(&["CLIENT", "UNPAUSE"]);
    queue.serve(&mut locks);
}

#[test]
fn a_grant_that_nobody_received_is_passed_on_after_a_pause() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let mut locks = with_aof();
        let token = locks.hold();
        let mut dead = locks.wait_as(kind, &[]);
        let mut queue = Queue::of(&mut locks);
        let id = dead.id.clone();
        let pause = ["CLIENT", "PAUSE", "60000", "WRITE"];
        locks.in_one_turn(&[&["LOCK.RELEASE", "k", &token], &["CLIENT", "KILL", "ID", &id], &pause]);
        dead.closed();
        queue.assert_waits();
        locks.conn.ok(&["CLIENT", "UNPAUSE"]);
        queue.serve(&mut locks);
    }
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
fn a_grant_after_a_pause_is_in_the_aof() {
    let dir = temp_dir();
    let start = || {
        let args = ["--appendonly", "yes", "--appendfsync", "always"];
        Server::with().args(&args).module_args(&["margin-ms", "0"]).dir(&dir).start()
    };
    let mut locks = Locks::on(start());
    let token = locks.hold();
    let mut waiters = [locks.wait(&["OWNER", "first"]), locks.wait(&["OWNER", "second"])];
    shorten(&mut locks, Kind::Alone, &token, 100);
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

#[test]
fn a_demotion_right_after_a_release_grants_to_nobody() {
    let mut locks = with_aof();
    let token = locks.hold();
    let mut waiters = [locks.wait(&[]), locks.wait(&["ID", "7"])];
    let replies = locks.in_one_turn(&[&["LOCK.RELEASE", "k", &token], &["REPLICAOF", "127.0.0.1", "1"]]);
    assert_eq!(replies[0], Reply::Int(1));
    let answers: Vec<_> = waiters.iter_mut().map(|waiter| waiter.conn.try_read()).collect();
    assert!(!matches!(answers[1], Ok(Reply::Int(_) | Reply::Nil)), "{answers:?}");
    locks.conn.ok(&["REPLICAOF", "NO", "ONE"]);
    // If the grant reached the first client, it holds the lock; if not, no other client got a grant.
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
    let kill = ["CLIENT", "KILL", "ID", &waiters[0].id.clone()];
    locks.in_one_turn(&[&["LOCK.RELEASE", "k", &token], &kill, &["REPLICAOF", "127.0.0.1", "1"]]);
    for waiter in &mut waiters {
        let _ = waiter.conn.try_read();
    }
    // Unloading is refused while the module has a blocked client, or a timer for work that cannot be done yet.
    until("the module is unloaded", || {
        matches!(locks.conn.execute(&["MODULE", "UNLOAD", "lock"]), Reply::Status(_)).then_some(())
    });
}

/// Whether modules get an event for CONFIG SET: not before 7.0.
fn reports_settings(locks: &mut Locks) -> bool {
    let (valkey, major, _) = locks.conn.version();
    valkey || major >= 7
}

#[test]
fn short_of_good_replicas_timers_grant_nothing() {
    let mut locks = with_aof();
    // If the server raises no event, the module's copy of the setting may be a second old.
    let (lease_ms, wait) = if reports_settings(&mut locks) { (300, "900") } else { (1500, "2200") };
    let token = Kind::Shared.take(&mut locks.conn, &["EX", "60"]);
    let mut queue = Queue::of(&mut locks);
    let mut brief = locks.wait_with(&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", wait]);
    shorten(&mut locks, Kind::Shared, &token, lease_ms);
    locks.conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    for kind in KINDS {
        let reply = locks.conn.execute(&kind.acquire(&["PX", "1000"]));
        assert!(reply.error().starts_with("NOREPLICAS "), "{kind:?}: {reply:?}");
    }
    // This wait ends long after the lease.
    brief.refused();
    assert_eq!(locks.conn.state("k"), "expired");
    queue.assert_waits();
    // With a replica the queue moves on.
    let replica = Server::start();
    replica.replicate(&locks.server);
    queue.serve(&mut locks);
}

#[test]
fn a_grant_that_nobody_received_waits_for_good_replicas() {
    let mut locks = with_aof();
    let token = locks.hold();
    let mut dead = locks.wait(&[]);
    let mut queue = Queue::of(&mut locks);
    let id = dead.id.clone();
    let short = ["CONFIG", "SET", "min-replicas-to-write", "1"];
    locks.in_one_turn(&[&["LOCK.RELEASE", "k", &token], &["CLIENT", "KILL", "ID", &id], &short]);
    dead.closed();
    if reports_settings(&mut locks) {
        queue.assert_waits();
    }
    locks.conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    queue.serve(&mut locks);
}

#[test]
fn a_reload_frees_no_lock_and_no_place_among_several() {
    for (command, kind) in ["RELOAD", "LOADAOF"].into_iter().flat_map(|command| KINDS.map(|kind| (command, kind))) {
        let _row = Row::of((command, kind));
        let mut locks = with_aof();
        let token = kind.take(&mut locks.conn, &["EX", "60"]);
        let other = (kind == Kind::Limit).then(|| kind.take(&mut locks.conn, &["EX", "60"]));
        let mut next = locks.wait_as(if kind == Kind::Limit { kind } else { Kind::Alone }, &[]);
        let mut queue = Queue::of(&mut locks);
        for _ in 0..3 {
            locks.conn.ok(&["DEBUG", command]);
        }
        next.assert_waits();
        queue.assert_waits();
        locks.assert_holds(token.parse().unwrap());
        kind.release(&mut locks.conn, &token);
        let token = next.granted();
        queue.assert_waits();
        locks.release(token);
        if let Some(other) = other {
            queue.assert_waits();
            locks.release(other);
        }
        queue.serve(&mut locks);
    }
}

#[test]
fn a_lease_that_ends_while_loading_is_granted_afterwards() {
    let mut locks = with_aof();
    let keys: Vec<String> = (0..400).map(|n| format!("filler{n}")).collect();
    for key in &keys {
        locks.conn.ok(&["SET", key, "1"]);
    }
    // Loading takes 400 ms, with connections served in the meantime. (6.2 serves them less often, and has no setting
    // for it.)
    let _ = locks.conn.execute(&["CONFIG", "SET", "loading-process-events-interval-bytes", "1024"]);
    locks.conn.ok(&["CONFIG", "SET", "key-load-delay", "1000"]);
    let token = Kind::Shared.take(&mut locks.conn, &["EX", "60"]);
    let mut queue = Queue::of(&mut locks);
    let timestamp = shorten(&mut locks, Kind::Shared, &token, 300);
    locks.conn.ok(&["DEBUG", "RELOAD"]);
    assert_eq!(locks.conn.int(&["EXISTS", "filler399"]), 1);
    let first = queue.0[0].granted();
    assert!(first >= timestamp);
    queue.serve_after(&mut locks, first);
}

#[test]
fn a_server_that_stalled_goes_on() {
    let mut locks = with_aof();
    let token = Kind::Several.take(&mut locks.conn, &["EX", "60"]);
    let mut queue = Queue::of(&mut locks);
    let mut brief = locks.wait_with(&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "1000"]);
    let timestamp = shorten(&mut locks, Kind::Several, &token, 1_000);
    locks.server.signal("STOP");
    assert!(no_reply_within(&mut queue.0[0].conn, Duration::from_millis(1_300)), "a stopped server grants nothing");
    locks.server.signal("CONT");
    brief.refused();
    let first = queue.0[0].granted();
    assert!(first >= timestamp);
    queue.serve_after(&mut locks, first);
}

#[test]
fn without_memory_nothing_is_granted_and_holders_go_on() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let mut locks = with_aof();
        let token = kind.take(&mut locks.conn, &["EX", "600"]);
        locks.conn.ok(&["CONFIG", "SET", "maxmemory", "1"]);
        for other in KINDS {
            let reply = locks.conn.execute(&other.acquire(&["EX", "5"]));
            assert!(reply.error().starts_with("OOM "), "{other:?}: {reply:?}");
        }
        assert!(locks.conn.execute(&["LOCK.RECOVER", "k", "EX", "5"]).error().starts_with("OOM "));
        assert!(locks.conn.int(&["LOCK.CHECK", "k", &token]) > 0);
        assert_eq!(locks.conn.int(&kind.command("EXTEND", &[&token, "EX", "500"])), 1);
        assert_eq!(locks.conn.execute(&["LOCK.SCAN", "0", "COUNT", "1000"]).list()[1].list().len(), kind.keys().len());
        kind.release(&mut locks.conn, &token);
        assert_eq!(locks.conn.int(&["DBSIZE"]), 0);
    }
}
