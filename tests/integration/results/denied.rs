//! What RESULT refuses, and what it gives to nobody.

use super::{release_with, wait_for_result};
use crate::waiting::Locks;
use testkit::Reply;

fn error(locks: &mut Locks, command: &[&str]) -> String {
    locks.conn.execute(command).error().to_string()
}

#[test]
fn bad_arguments_are_named_and_change_nothing() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let mut waiter = locks.wait(&["RESULT"]);
    let acquire = ["LOCK.ACQUIRE", "k", "PX", "30000"];
    for (more, text) in [
        (&["RESULT"][..], "ERR syntax error: RESULT needs WAIT"),
        (&["WAIT", "1", "RESULT", "RESULT"], "ERR syntax error: RESULT is given twice"),
        (&["WAIT", "1", "RESULT", "SHARED"], "ERR syntax error: RESULT and SHARED exclude each other"),
        (&["WAIT", "1", "LIMIT", "3", "RESULT"], "ERR syntax error: RESULT and LIMIT exclude each other"),
        (&["SESSION", "WAIT", "1", "RESULT"], "ERR syntax error: RESULT and SESSION exclude each other"),
    ] {
        assert_eq!(error(&mut locks, &[&acquire, more].concat()), text);
    }
    let several = ["LOCK.MACQUIRE", "1", "k", "PX", "30000", "WAIT", "1", "RESULT"];
    assert_eq!(error(&mut locks, &several), "ERR syntax error: argument 7 is not an option of LOCK.MACQUIRE");
    let recover = ["LOCK.RECOVER", "k", "PX", "30000", "RESULT"];
    assert_eq!(error(&mut locks, &recover), "ERR syntax error: argument 4 is not an option of LOCK.RECOVER");
    let release = ["LOCK.RELEASE", "k", &token];
    for (more, text) in [
        (&["RESULT"][..], "ERR syntax error: RESULT has no value"),
        (&["OTHER", "x"], "ERR syntax error: argument 3 is not an option of LOCK.RELEASE"),
        (&["RESULT", "x", "RESULT", "y"], "ERR syntax error: RESULT is given twice"),
        (&["RESULT", "x", "y"], "ERR syntax error: argument 5 is not an option of LOCK.RELEASE"),
        (&["RESULT", &"x".repeat(65_537)], "ERR result is longer than 65536 bytes, the limit lock.result-max"),
    ] {
        assert_eq!(error(&mut locks, &[&release, more].concat()), text);
    }
    locks.assert_holds(token.parse().unwrap());
    waiter.assert_waits();
    locks.release(token);
    waiter.granted();
}

#[test]
fn the_longest_result_is_a_setting() {
    let mut locks = Locks::with(&["result-max", "3"]);
    let token = locks.hold();
    let release = ["LOCK.RELEASE", "k", &token, "RESULT", "four"];
    assert_eq!(error(&mut locks, &release), "ERR result is longer than 3 bytes, the limit lock.result-max");
    assert_eq!(release_with(&mut locks, token, "two"), Reply::Int(1));
}

#[test]
fn a_lock_with_several_holders_has_no_result() {
    let mut locks = Locks::start();
    let token = locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "SHARED"]);
    let text = "ERR RESULT needs a lock with one holder, and the key has several";
    let acquire = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000", "RESULT"];
    assert_eq!(error(&mut locks, &acquire), text);
    assert_eq!(release_with(&mut locks, token, "42").error(), text);
    locks.assert_holds(token);
}

#[test]
fn a_late_or_ended_grant_gives_no_result() {
    let mut locks = Locks::start();
    let token = locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]);
    let mut waiter = locks.wait(&["RESULT"]);
    assert_eq!(release_with(&mut locks, token + 1, "forged"), Reply::Int(0));
    waiter.assert_waits();
    locks.release(token);
    let own = waiter.granted();
    // Nobody waits, so the expired lock is still the holder's to release.
    assert_eq!(locks.conn.int(&["LOCK.EXTEND", "k", &own.to_string(), "PX", "1"]), 1);
    crate::notify::pass(&mut locks.conn, 5);
    assert_eq!(release_with(&mut locks, own, "late"), Reply::Int(-1));
    assert_eq!(locks.info("lock", "lock_results"), 0);
}

#[test]
fn a_wait_for_a_result_that_ends_gets_nil_and_leaves_no_trace() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let mut waiters = wait_for_result(&mut locks, 1);
    let timed = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "50", "RESULT"];
    assert!(locks.server.conn().execute(&timed).is_nil());
    assert_eq!(locks.conn.int(&["CLIENT", "KILL", "ID", &waiters[0].id]), 1);
    waiters[0].closed();
    locks.until_waiters(0);
    assert_eq!(release_with(&mut locks, token, "42"), Reply::Int(1));
    assert_eq!((locks.info("lock", "lock_results"), locks.conn.int(&["EXISTS", "k"])), (0, 0));
}

#[test]
fn a_transaction_and_a_script_release_with_a_result_but_do_not_wait_for_one() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let mut waiter = locks.wait(&["RESULT"]);
    let acquire = "return redis.call('LOCK.ACQUIRE', KEYS[1], 'PX', 100, 'WAIT', 100, 'RESULT')";
    assert!(locks.conn.execute(&["EVAL", acquire, "1", "k"]).is_nil());
    let release = "return redis.call('LOCK.RELEASE', KEYS[1], ARGV[1], 'RESULT', 'from a script')";
    assert_eq!(locks.conn.int(&["EVAL", release, "1", "k", &token]), 1);
    assert_eq!(waiter.answer(), super::result("from a script"));
}
