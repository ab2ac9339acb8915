//! Every way in which a wait ends, exactly once: afterwards the connection replies to the next command, or is closed,
//! and the rest of the queue is served.

use super::{no_reply_within, Locks, Waiter, QUIET};
use crate::kinds::{Kind, Row, KINDS};
use std::time::{Duration, Instant};
use testkit::{encoded, module, until, Reply};

/// Each remaining waiter gets the lock, and then it is free.
fn assert_queue_moves_on(locks: &mut Locks, token: impl std::fmt::Display, others: &mut [Waiter]) {
    locks.release(token);
    for waiter in others {
        let granted = waiter.granted();
        locks.release(granted);
    }
    assert_eq!(locks.conn.int(&["EXISTS", "k"]), 0);
    assert_eq!(locks.waiters(), 0);
}

/// A way to end the wait of a client with ID 7.
type Way = fn(&mut Locks, &mut Waiter);

const WAYS: [(&str, Way); 7] = [
    ("its time", |_, waiter| waiter.refused()),
    ("CLIENT KILL", |locks, waiter| {
        assert_eq!(locks.conn.int(&["CLIENT", "KILL", "ID", &waiter.id]), 1);
        waiter.closed();
    }),
    ("a disconnect", |locks, waiter| waiter.conn = locks.server.conn()),
    ("a disconnect in the middle of a pipeline", |locks, waiter| {
        waiter.conn.send(&["SET", "other", "what a dead client had sent is not run"]);
        waiter.conn = locks.server.conn();
    }),
    ("LOCK.CANCEL", |locks, waiter| {
        assert_eq!(locks.conn.int(&["LOCK.CANCEL", "other", "7"]), 0, "CANCEL applies to its keys only");
        assert_eq!(locks.conn.int(&["LOCK.CANCEL", "k", "007"]), 1);
        waiter.refused();
        assert_eq!(locks.conn.int(&["LOCK.CANCEL", "k", "7"]), 0, "once only");
    }),
    ("CLIENT UNBLOCK TIMEOUT", |locks, waiter| {
        if unblock(locks, waiter, "TIMEOUT") {
            waiter.refused();
        }
    }),
    ("CLIENT UNBLOCK ERROR", |locks, waiter| {
        if unblock(locks, waiter, "ERROR") {
            waiter.failed("UNBLOCKED");
        }
    }),
];

/// Whether the server was able to end the wait: if not, the client goes on waiting, and then leaves.
fn unblock(locks: &mut Locks, waiter: &mut Waiter, how: &str) -> bool {
    let can = match locks.conn.version() {
        (true, major, _) => major >= 8,
        (false, major, minor) => (major, minor) >= (7, 4),
    };
    assert_eq!(locks.conn.int(&["CLIENT", "UNBLOCK", &waiter.id, how]), i64::from(can));
    if !can {
        waiter.assert_waits();
        waiter.conn = locks.server.conn();
    }
    can
}

/// The number of its keys that have waiters.
fn queues(locks: &mut Locks, kind: Kind) -> i64 {
    kind.keys().iter().map(|key| locks.conn.waiters(key)).sum()
}

#[test]
fn every_way_ends_a_wait_of_every_kind_once() {
    for (kind, (name, way)) in KINDS.into_iter().flat_map(|kind| WAYS.map(|way| (kind, way))) {
        let _row = Row::of((kind, name));
        let mut locks = Locks::start();
        let token = locks.hold();
        let wait = if name == "its time" { "400" } else { "30000" };
        let begin = Instant::now();
        let mut waiter = locks.wait_with(&kind.acquire(&["PX", "30000", "WAIT", wait, "ID", "7"]));
        let other = locks.wait(&[]);
        way(&mut locks, &mut waiter);
        assert!(name != "its time" || begin.elapsed() >= Duration::from_millis(400), "{:?}", begin.elapsed());
        // The waiter was in one queue, and has left it.
        until("it has left", || (queues(&mut locks, kind) == 1).then_some(()));
        assert_eq!(locks.conn.int(&["EXISTS", "other", "l"]), 0);
        assert_queue_moves_on(&mut locks, token, &mut [other]);
        // The next client that asks for all keys gets them.
        let next = kind.take(&mut locks.conn, &["PX", "30000"]);
        kind.release(&mut locks.conn, &next);
        assert_eq!(locks.info("lock", "lock_waiters"), 0);
    }
}

#[test]
fn cancelling_any_key_ends_a_wait_for_several() {
    let mut locks = Locks::start();
    locks.hold();
    let mut waiter = locks.wait_as(Kind::Several, &["ID", "8"]);
    assert_eq!(locks.conn.int(&["LOCK.CANCEL", "l", "8"]), 1);
    waiter.refused();
    // Late copies of its command are barred from that key, which counts as a place.
    assert_eq!((queues(&mut locks, Kind::Several), locks.info("lock", "lock_places")), (0, 1));
    assert_eq!(["k", "l"].map(|key| locks.conn.int(&["LOCK.CANCEL", key, "8"])), [0, 0]);
}

#[test]
fn waits_time_out_in_the_order_of_their_deadlines() {
    let mut locks = Locks::start();
    locks.hold();
    let mut conns = [(); 3].map(|()| locks.server.conn());
    for (conn, wait) in conns.iter_mut().zip(["1800", "200", "1000"]) {
        // The server runs the second command once the wait has ended.
        let commands = [&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", wait][..], &["RPUSH", "ends", wait]];
        conn.send_bytes(&commands.map(encoded).concat());
    }
    for conn in &mut conns {
        assert!(conn.read().is_nil());
        conn.read().int();
    }
    let ends: Vec<String> = locks.conn.execute(&["LRANGE", "ends", "0", "-1"]).list().iter().map(Reply::text).collect();
    assert_eq!(ends, ["200", "1000", "1800"]);
    assert_eq!(locks.waiters(), 0);
}

#[test]
fn a_newer_attempt_with_its_id_takes_its_place() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let (mut earlier, other) = (locks.wait(&["ID", "7"]), locks.wait(&[]));
    let newer = locks.wait(&["ID", "007"]);
    earlier.failed("UNBLOCKED");
    assert_eq!(locks.waiters(), 2);
    assert_queue_moves_on(&mut locks, token, &mut [newer, other]);
}

#[test]
fn a_newer_attempt_without_wait_keeps_the_place() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let (mut earlier, other) = (locks.wait(&["ID", "7"]), locks.wait(&[]));
    assert!(locks.conn.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"]).is_nil());
    earlier.failed("UNBLOCKED");
    assert_eq!(locks.waiters(), 1);
    let newer = locks.wait(&["ID", "7"]);
    assert_queue_moves_on(&mut locks, token, &mut [newer, other]);
}

/// With the same keys in any order, it takes the older one's place. With other keys, it goes to the end.
#[test]
fn a_newer_attempt_for_the_same_keys_replaces_the_older() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let (mut earlier, mut other) = (locks.wait_as(Kind::Several, &["ID", "7"]), locks.wait(&[]));
    let wait = ["PX", "30000", "WAIT", "30000", "ID", "7"];
    let mut same = locks.wait_with(&[&["LOCK.MACQUIRE", "2", "l", "k"], &wait[..]].concat());
    earlier.failed("UNBLOCKED");
    let mut others = locks.wait_with(&[&["LOCK.MACQUIRE", "2", "k", "x"], &wait[..]].concat());
    same.failed("UNBLOCKED");
    assert_eq!(queues(&mut locks, Kind::Several), 2);
    locks.release(token);
    let token = other.granted();
    others.assert_waits();
    locks.release(token);
    others.granted();
}

#[test]
fn a_demotion_ends_the_wait() {
    let mut locks = Locks::start();
    locks.hold();
    let mut waiters: Vec<Waiter> = KINDS.iter().map(|kind| locks.wait_as(*kind, &[])).collect();
    waiters.push(locks.wait(&["ID", "7"]));
    locks.conn.ok(&["REPLICAOF", "127.0.0.1", "1"]);
    waiters.iter_mut().for_each(Waiter::demoted);
    locks.conn.ok(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!((locks.info("lock", "lock_waiters"), locks.conn.int(&["EXISTS", "k", "l"])), (0, 1));
    // The lock was kept, and the queue is a new one.
    let mut next = locks.wait(&[]);
    assert_eq!(locks.conn.int(&["DEL", "k"]), 1);
    next.granted();
}

#[test]
fn shutdown_ends_the_wait_and_the_server() {
    let mut locks = Locks::start();
    locks.hold();
    let mut waiters = [locks.wait(&[]), locks.wait(&["ID", "7"])];
    locks.conn.send(&["SHUTDOWN", "NOSAVE"]);
    for waiter in &mut waiters {
        waiter.closed();
    }
    locks.server.wait_end();
    let log = locks.server.log();
    assert!(log.contains("bye bye") && !log.contains("crashed by signal"), "{}", locks.server.log_tail(30));
}

#[test]
fn the_module_is_not_unloaded_while_somebody_waits() {
    let mut locks = Locks::with(&["place-ms", "300"]);
    let token = locks.hold();
    let mut waiters = [locks.wait(&[]), locks.wait(&["ID", "7"])];
    let reply = locks.conn.execute(&["MODULE", "UNLOAD", "lock"]);
    assert!(reply.error().starts_with("ERR Error unloading module"), "{reply:?}");
    locks.release(token);
    let first = waiters[0].granted();
    locks.assert_holds(first);
    // A client has left a place behind.
    assert_eq!(locks.conn.int(&["CLIENT", "KILL", "ID", &waiters[1].id]), 1);
    waiters[1].closed();
    unload(&mut locks);
}

#[test]
fn the_module_unloads_after_the_last_waiter() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let mut waiter = locks.wait(&[]);
    locks.release(token);
    waiter.granted();
    assert_eq!(locks.conn.execute(&["MODULE", "UNLOAD", "lock"]), Reply::Status("OK".into()));
}

#[test]
fn the_module_unloads_after_the_last_reserved_place() {
    let mut locks = Locks::with(&["place-ms", "300"]);
    locks.hold();
    assert!(locks.conn.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"]).is_nil());
    let waited = locks.wait_with(&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "50", "ID", "8"]).answer();
    assert!(waited.is_nil());
    unload(&mut locks);
    locks.conn.ok(&["MODULE", "LOAD", module().to_str().unwrap(), "margin-ms", "0"]);
    locks.hold();
    let mut waiter = locks.wait(&[]);
    assert_eq!(locks.conn.int(&["DEL", "k"]), 1);
    let granted = waiter.granted();
    locks.release(granted);
}

/// Unloads the module as soon as the server allows it, and checks that none of it still runs.
fn unload(locks: &mut Locks) {
    until("the module is unloaded", || match locks.conn.execute(&["MODULE", "UNLOAD", "lock"]) {
        Reply::Status(_) => Some(()),
        reply => {
            assert!(reply.error().starts_with("ERR Error unloading module"), "{reply:?}");
            None
        }
    });
    // Past every timer that it had, and some iterations of the server's cron.
    assert!(no_reply_within(&mut locks.server.conn(), Duration::from_millis(300) + QUIET));
    assert_eq!(locks.conn.int(&["EXISTS", "k"]), 1);
    assert_eq!(locks.conn.int(&["DEL", "k"]), 1);
    assert!(locks.conn.execute(&["LOCK.INFO", "k"]).error().starts_with("ERR unknown command"));
}

#[test]
fn a_transaction_a_script_and_a_function_do_not_wait() {
    let call = "return redis.call(unpack(ARGV))";
    for kind in KINDS {
        let _row = Row::of(kind);
        let mut locks = Locks::start();
        let token = locks.hold();
        let acquire = kind.acquire(&["PX", "30000", "WAIT", "30000"]);
        let by_script = [&["EVAL", call, "0"][..], &acquire].concat();
        let in_transaction = locks.in_one_turn(&[&["MULTI"], &acquire, &["EXEC"]])[2].list()[0].clone();
        assert!(in_transaction.is_nil(), "{in_transaction:?}");
        assert!(locks.conn.execute(&by_script).is_nil());
        let (valkey, major, _) = locks.conn.version();
        if valkey || major >= 7 {
            let library = "#!lua name=waiting\nredis.register_function('call', function(keys, args) return \
                           redis.call(unpack(args)) end)";
            assert_eq!(locks.conn.text(&["FUNCTION", "LOAD", library]), "waiting");
            assert!(locks.conn.execute(&[&["FCALL", "call", "0"][..], &acquire].concat()).is_nil());
        }
        assert_eq!(locks.info("lock", "lock_waiters"), 0);
        // With an ID such commands keep a place, like attempts that do not wait.
        assert!(locks.conn.execute(&[&by_script[..], &["ID", "7"]].concat()).is_nil());
        assert_eq!(locks.conn.int(&["LOCK.CANCEL", "k", "7"]), 1);
        // Such commands take and release free locks.
        locks.release(token);
        let token = locks.conn.int(&by_script).to_string();
        let release = [&["EVAL", call, "0"][..], &kind.command("RELEASE", &[&token])].concat();
        assert_eq!(usize::try_from(locks.conn.int(&release)), Ok(kind.keys().len()));
    }
}

#[test]
fn many_ends_at_once_end_each_wait_once() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let ids: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    let mut waiters: Vec<_> = ids.iter().map(|id| locks.wait(&["ID", id])).collect();
    // All in one iteration: a release, cancellations, a newer attempt and a kill.
    let killed = waiters[3].id.clone();
    let replies = locks.in_one_turn(&[
        &["LOCK.CANCEL", "k", "1"],
        &["LOCK.RELEASE", "k", &token],
        &["LOCK.CANCEL", "k", "0"],
        &["CLIENT", "KILL", "ID", &killed],
        &["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "2"],
        &["LOCK.CANCEL", "k", "3"],
    ]);
    assert_eq!(replies[..4], [1, 1, 1, 1].map(Reply::Int));
    // Cancelling holder 0 gave the lock to 2, which asked again.
    let second = replies[4].int();
    assert_eq!(replies[5], Reply::Int(1), "one place was kept");
    waiters[1].refused();
    assert!(waiters[0].granted() < second);
    assert_eq!(waiters[2].granted(), second);
    waiters[3].closed();
    locks.assert_holds(second);
    assert_eq!(locks.waiters(), 36);
    locks.release(second);
    for waiter in &mut waiters[4..] {
        let granted = waiter.granted();
        locks.release(granted);
    }
    assert_eq!(locks.conn.int(&["EXISTS", "k"]), 0);
}
