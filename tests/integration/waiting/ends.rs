//! Every way a wait ends, exactly once: after it the connection answers the next command, or is
//! closed, and the rest of the line is served.

use super::{is_silent, Locks, Waiter, QUIET};
use crate::support::{module, until, Reply};
use std::time::{Duration, Instant};

/// Whoever still waits gets the lock, and then it is free.
fn assert_line_moves_on(locks: &mut Locks, token: impl std::fmt::Display, others: &mut [Waiter]) {
    locks.release(token);
    for waiter in others {
        let granted = waiter.granted();
        locks.release(granted);
    }
    assert_eq!(locks.conn.int(&["EXISTS", "k"]), 0);
    assert_eq!(locks.waiters(), 0);
}

#[test]
fn a_time_out_ends_it_with_nil_and_not_before() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let mut other = locks.wait(&[]);
    let begin = Instant::now();
    let mut waiter = locks.server.conn();
    assert!(waiter.call(&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "200"]).is_nil());
    assert!(begin.elapsed() >= Duration::from_millis(200), "{:?}", begin.elapsed());
    assert_eq!(waiter.text(&["PING"]), "PONG");
    other.assert_waits();
    assert_line_moves_on(&mut locks, token, &mut [other]);
}

#[test]
fn time_outs_come_in_the_order_of_their_deadlines() {
    let mut locks = Locks::start();
    locks.hold();
    let mut waits: Vec<_> =
        ["600", "200", "400"].map(|wait| locks.wait_with(&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", wait])).into();
    waits[1].refused();
    assert_eq!(locks.waiters(), 2);
    waits[2].refused();
    assert_eq!(locks.waiters(), 1);
    waits[0].refused();
    assert_eq!(locks.waiters(), 0);
}

#[test]
fn client_kill_ends_it() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let (mut killed, other) = (locks.wait(&[]), locks.wait(&[]));
    assert_eq!(locks.conn.int(&["CLIENT", "KILL", "ID", &killed.id]), 1);
    killed.closed();
    assert_eq!(locks.waiters(), 1);
    assert_line_moves_on(&mut locks, token, &mut [other]);
}

#[test]
fn a_disconnect_ends_it() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let (gone, other) = (locks.wait(&[]), locks.wait(&[]));
    drop(gone);
    locks.until_waiters(1);
    assert_line_moves_on(&mut locks, token, &mut [other]);
}

#[test]
fn a_disconnect_in_the_middle_of_a_pipeline_ends_it() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let mut gone = locks.wait(&[]);
    gone.conn.send(&["LOCK.ACQUIRE", "other", "PX", "30000"]);
    drop(gone);
    locks.until_waiters(0);
    assert_line_moves_on(&mut locks, token, &mut []);
    assert_eq!(locks.conn.int(&["EXISTS", "other"]), 0, "what a dead client had sent is not run");
}

#[test]
fn client_unblock_ends_it_where_the_server_can() {
    let mut locks = Locks::start();
    let can = match locks.version() {
        (true, major, _) => major >= 8,
        (false, major, minor) => (major, minor) >= (7, 4),
    };
    let token = locks.hold();
    let (mut plain, mut details, mut error, other) =
        (locks.wait(&[]), locks.wait(&["DETAILS"]), locks.wait(&["ID", "7"]), locks.wait(&[]));
    for (waiter, how) in [(&mut plain, "TIMEOUT"), (&mut details, "TIMEOUT"), (&mut error, "ERROR")] {
        let unblocked = locks.conn.int(&["CLIENT", "UNBLOCK", &waiter.id, how]);
        assert_eq!(unblocked, i64::from(can), "{how}");
        match (can, how) {
            (false, _) => waiter.assert_waits(),
            (true, "TIMEOUT") => waiter.refused(),
            (true, _) => waiter.failed("UNBLOCKED"),
        }
    }
    if can {
        // The ID keeps its place, as after a disconnect.
        assert_eq!(locks.conn.int(&["LOCK.CANCEL", "k", "7"]), 1);
        assert_line_moves_on(&mut locks, token, &mut [other]);
    } else {
        assert_line_moves_on(&mut locks, token, &mut [plain, details, error, other]);
    }
}

#[test]
fn a_newer_call_with_its_id_ends_it_and_takes_its_place() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let (mut earlier, other) = (locks.wait(&["ID", "7"]), locks.wait(&[]));
    let newer = locks.wait(&["ID", "007"]);
    earlier.failed("UNBLOCKED");
    assert_eq!(locks.waiters(), 2);
    assert_line_moves_on(&mut locks, token, &mut [newer, other]);
}

#[test]
fn a_newer_call_that_does_not_wait_ends_it_and_keeps_its_place() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let (mut earlier, other) = (locks.wait(&["ID", "7"]), locks.wait(&[]));
    assert!(locks.conn.call(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"]).is_nil());
    earlier.failed("UNBLOCKED");
    assert_eq!(locks.waiters(), 1);
    let newer = locks.wait(&["ID", "7"]);
    assert_line_moves_on(&mut locks, token, &mut [newer, other]);
}

#[test]
fn cancel_ends_it_with_nil_and_gives_its_place_up() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let (mut plain, mut details, other) =
        (locks.wait(&["ID", "7"]), locks.wait(&["ID", "8", "DETAILS"]), locks.wait(&["ID", "9"]));
    for (id, waiter) in [("007", &mut plain), ("8", &mut details)] {
        assert_eq!(locks.conn.int(&["LOCK.CANCEL", "k", id]), 1);
        waiter.refused();
        assert_eq!(locks.conn.int(&["LOCK.CANCEL", "k", id]), 0, "once only");
    }
    assert_eq!(locks.conn.int(&["LOCK.CANCEL", "other", "9"]), 0, "of that key only");
    let last = locks.wait(&["ID", "7"]);
    assert_line_moves_on(&mut locks, token, &mut [other, last]);
}

#[test]
fn a_demotion_ends_it() {
    let mut locks = Locks::start();
    locks.hold();
    let mut waiters = [locks.wait(&[]), locks.wait(&["ID", "7"]), locks.wait(&["DETAILS"])];
    locks.conn.ok(&["REPLICAOF", "127.0.0.1", "1"]);
    for waiter in &mut waiters {
        // The server itself says so, and then closes the connection or not.
        if let Ok(reply) = waiter.conn.try_read() {
            assert!(reply.error().starts_with("UNBLOCKED "), "{reply:?}");
        }
    }
    locks.conn.ok(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(locks.waiters(), 0);
    // The lock was kept, and the line is a new one.
    let mut next = locks.wait(&[]);
    assert_eq!(locks.conn.int(&["DEL", "k"]), 1);
    next.granted();
}

#[test]
fn shutdown_ends_it_and_the_server() {
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
    let reply = locks.conn.call(&["MODULE", "UNLOAD", "lock"]);
    assert!(reply.error().starts_with("ERR Error unloading module"), "{reply:?}");
    locks.release(token);
    let first = waiters[0].granted();
    locks.assert_holds(first);
    // One that leaves a place behind.
    assert_eq!(locks.conn.int(&["CLIENT", "KILL", "ID", &waiters[1].id]), 1);
    waiters[1].closed();
    unload(&mut locks);
}

#[test]
fn the_module_is_unloaded_as_soon_as_the_last_waiter_has_left() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let mut waiter = locks.wait(&[]);
    locks.release(token);
    waiter.granted();
    assert_eq!(locks.conn.call(&["MODULE", "UNLOAD", "lock"]), Reply::Status("OK".into()));
}

#[test]
fn the_module_is_unloaded_when_no_place_is_kept_any_more_and_loads_again() {
    let mut locks = Locks::with(&["place-ms", "300"]);
    locks.hold();
    assert!(locks.conn.call(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"]).is_nil());
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

/// Unloads the module as soon as the server lets it, and looks that nothing of it runs any more.
fn unload(locks: &mut Locks) {
    until("the module is unloaded", || match locks.conn.call(&["MODULE", "UNLOAD", "lock"]) {
        Reply::Status(_) => Some(()),
        reply => {
            assert!(reply.error().starts_with("ERR Error unloading module"), "{reply:?}");
            None
        }
    });
    // Past every timer that it had, and some turns of the server's cron.
    assert!(is_silent(&mut locks.server.conn(), Duration::from_millis(300) + QUIET));
    assert_eq!(locks.conn.int(&["EXISTS", "k"]), 1);
    assert_eq!(locks.conn.int(&["DEL", "k"]), 1);
    assert!(locks.conn.call(&["LOCK.INFO", "k"]).error().starts_with("ERR unknown command"));
}

#[test]
fn a_transaction_a_script_and_a_function_do_not_wait() {
    let mut locks = Locks::start();
    locks.hold();
    let acquire = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000"];
    let call = "return redis.call(unpack(ARGV))";
    let mut refusals = vec![
        {
            let replies = locks.in_one_turn(&[&["MULTI"], &acquire, &["EXEC"]]);
            replies[2].list()[0].clone()
        },
        locks.conn.call(&[&["EVAL", call, "0"][..], &acquire].concat()),
    ];
    let (valkey, major, _) = locks.version();
    if valkey || major >= 7 {
        let library = "#!lua name=waiting\nredis.register_function('call', function(keys, args) return \
                       redis.call(unpack(args)) end)";
        assert_eq!(locks.conn.text(&["FUNCTION", "LOAD", library]), "waiting");
        refusals.push(locks.conn.call(&[&["FCALL", "call", "0"][..], &acquire].concat()));
    }
    for (n, reply) in refusals.iter().enumerate() {
        assert!(reply.is_nil(), "{n}: {reply:?}");
    }
    assert_eq!(locks.waiters(), 0);
    // With an ID they keep a place, as those who do not wait.
    let id = [&["EVAL", call, "0"][..], &acquire, &["ID", "7"]].concat();
    assert!(locks.conn.call(&id).is_nil());
    assert_eq!(locks.conn.int(&["LOCK.CANCEL", "k", "7"]), 1);
}

#[test]
fn many_ends_at_once_end_each_wait_once() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let ids: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    let mut waiters: Vec<_> = ids.iter().map(|id| locks.wait(&["ID", id])).collect();
    // In one turn: released, cancelled, taken over, killed.
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
    // The cancelled holder 0 gave the lock to 2, which asked again.
    let second = replies[4].int();
    assert_eq!(replies[5], Reply::Int(1), "a place kept");
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
