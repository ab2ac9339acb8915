//! Setting a grace ends the waits for leases that it does not cover: all of them, each once, at any place in the queue.

use super::reports_settings;
use crate::waiting::Locks;

/// Whether module settings can be changed: not before 7.0.
fn has_settings(locks: &mut Locks) -> bool {
    let has = reports_settings(locks);
    if !has {
        eprintln!("skipped: this server has no module settings that can be changed");
    }
    has
}

/// When a grace is set while clients wait, every waiter whose lease it does not cover gets an error, at any place in
/// the queue.
#[test]
fn a_grace_ends_all_waits_for_longer_leases() {
    let mut locks = Locks::start();
    if !has_settings(&mut locks) {
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

/// More waits end than replies can be sent in one event-loop iteration.
#[test]
fn waits_ended_by_one_command_are_answered_once() {
    let mut locks = Locks::start();
    if !has_settings(&mut locks) {
        return;
    }
    let kill: &[&str] = &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
    for then in [&["PING"], kill] {
        locks.conn.ok(&["CONFIG", "SET", "lock.failover-grace-ms", "0"]);
        let token = locks.hold();
        let long = ["LOCK.ACQUIRE", "k", "PX", "60000", "WAIT", "60000"];
        let mut many: Vec<_> = (0..600).map(|_| locks.wait_with(&long)).collect();
        let shorter = &["CONFIG", "SET", "lock.failover-grace-ms", "20000"];
        locks.in_one_turn(&[shorter, &["LOCK.RELEASE", "k", &token], then]);
        for waiter in &mut many {
            if then == kill {
                waiter.closed();
            } else {
                waiter.failed("GRACE");
                assert_eq!(waiter.conn.execute(&["PING"]).text(), "PONG", "there is no second reply");
            }
        }
        assert_eq!((locks.waiters(), locks.conn.int(&["EXISTS", "k"])), (0, 0));
    }
    assert_eq!(locks.info("clients", "blocked_clients"), 0);
}

/// A waiter whose lease the new grace does not cover gets an error, even if the lock is handed off before the module
/// has inspected all waiters.
#[test]
fn no_hand_off_exceeds_the_grace() {
    let mut locks = Locks::start();
    if !has_settings(&mut locks) {
        return;
    }
    let token = locks.hold();
    locks.conn.int(&["LOCK.ACQUIRE", "other", "PX", "30000"]);
    // The grace covers the first waiter's lease, but the other lock that this waiter wants is held.
    let all = ["LOCK.MACQUIRE", "2", "k", "other", "PX", "1000", "WAIT", "60000"];
    let mut first = locks.wait_with(&all);
    let mut second = locks.wait_with(&["LOCK.ACQUIRE", "k", "PX", "60000", "WAIT", "60000"]);
    locks.in_one_turn(&[&["CONFIG", "SET", "lock.failover-grace-ms", "20000"], &["LOCK.RELEASE", "k", &token]]);
    second.failed("GRACE");
    first.assert_waits();
    assert_eq!(locks.conn.int(&["EXISTS", "k"]), 0);
}
