//! Blocked clients that wait for a result.

use super::{release_with, result, wait_for_result};
use crate::replication::Stream;
use crate::waiting::Locks;
use testkit::Reply;

#[test]
fn all_that_wait_for_a_result_get_it_and_nobody_gets_the_lock() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let waiters = wait_for_result(&mut locks, 5);
    assert_eq!(release_with(&mut locks, token, "42"), Reply::Int(1));
    for mut waiter in waiters {
        assert_eq!(waiter.answer(), result("42"));
    }
    assert_eq!((locks.conn.int(&["EXISTS", "k"]), locks.waiters()), (0, 0));
    assert_eq!((locks.info("lock", "lock_results"), locks.info("lock", "lock_hand_offs")), (5, 0));
}

#[test]
fn a_result_can_be_empty_and_any_bytes() {
    let mut locks = Locks::start();
    for value in [b"".to_vec(), b"\0\r\n$-1\xff".to_vec(), vec![b'x'; 65_536]] {
        let token = locks.hold();
        let mut waiter = locks.wait(&["RESULT"]);
        let release: [&[u8]; 5] = [b"LOCK.RELEASE", b"k", token.as_bytes(), b"result", &value];
        assert_eq!(locks.conn.execute(&release), Reply::Int(1));
        assert_eq!(waiter.answer(), result(value));
    }
}

#[test]
fn the_first_that_does_not_want_the_result_gets_the_lock_in_the_same_change() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let mut before = locks.wait(&["RESULT"]);
    let mut heir = locks.wait(&[]);
    let mut between = locks.wait(&["RESULT"]);
    let mut last = locks.wait(&["DETAILS"]);
    assert_eq!(release_with(&mut locks, token, "42"), Reply::Int(1));
    assert_eq!((before.answer(), between.answer()), (result("42"), result("42")));
    let next = heir.granted();
    last.assert_waits();
    locks.release(next);
    let last = last.granted();
    locks.release(last);
    locks.assert_no_missed_wakeups();
}

#[test]
fn sharers_behind_the_heir_share_the_lock_with_it() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let mut wants = locks.wait(&["RESULT"]);
    let mut sharers = [locks.wait(&["SHARED"]), locks.wait(&["SHARED"]), locks.wait(&["SHARED"])];
    assert_eq!(release_with(&mut locks, token, "42"), Reply::Int(1));
    assert_eq!(wants.answer(), result("42"));
    for sharer in &mut sharers {
        sharer.granted();
    }
    locks.assert_no_missed_wakeups();
}

#[test]
fn a_waiter_for_several_locks_behind_them_gets_its_locks() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let mut wants = locks.wait(&["RESULT"]);
    let mut several = locks.wait_with(&["LOCK.MACQUIRE", "2", "k", "other", "PX", "30000", "WAIT", "30000"]);
    assert_eq!(release_with(&mut locks, token, "42"), Reply::Int(1));
    assert_eq!(wants.answer(), result("42"));
    several.granted();
    locks.assert_no_missed_wakeups();
}

#[test]
fn without_a_result_they_wait_like_others_and_the_first_gets_the_lock() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let mut waiters = wait_for_result(&mut locks, 3);
    locks.release(token);
    let first = waiters.remove(0).granted();
    for waiter in &mut waiters {
        waiter.assert_waits();
    }
    // The holder died: the next computes, and its result is for the rest.
    assert_eq!(locks.conn.int(&["LOCK.EXTEND", "k", &first.to_string(), "PX", "20"]), 1);
    let second = waiters.remove(0).granted();
    assert_eq!(release_with(&mut locks, second, "from the second"), Reply::Int(1));
    assert_eq!(waiters.remove(0).answer(), result("from the second"));
}

#[test]
fn who_comes_after_the_release_computes_anew() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let mut waiter = locks.wait(&["RESULT"]);
    assert_eq!(release_with(&mut locks, token, "42"), Reply::Int(1));
    assert_eq!(waiter.answer(), result("42"));
    let acquire = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000", "RESULT"];
    let next = locks.conn.int(&acquire);
    assert_eq!(release_with(&mut locks, next, "nobody waits"), Reply::Int(1));
    let again = locks.conn.int(&acquire);
    locks.release(again);
}

#[test]
fn each_round_gets_its_own_result() {
    let mut locks = Locks::start();
    let first = locks.hold();
    let mut early = locks.wait(&["RESULT"]);
    let mut heir = locks.wait(&[]);
    assert_eq!(release_with(&mut locks, first, "one"), Reply::Int(1));
    let second = heir.granted();
    let mut late = locks.wait(&["RESULT"]);
    assert_eq!(release_with(&mut locks, second, "two"), Reply::Int(1));
    assert_eq!((early.answer(), late.answer()), (result("one"), result("two")));
}

#[test]
fn a_cancel_in_the_same_turn_changes_nothing_for_those_that_left() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let mut waiter = locks.wait(&["RESULT", "ID", "7"]);
    let replies = locks.in_one_turn(&[
        &["LOCK.RELEASE", "k", &token, "RESULT", "42"],
        &["LOCK.CANCEL", "k", "7"],
        &["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "8"],
    ]);
    assert_eq!(replies[..2], [Reply::Int(1), Reply::Int(0)]);
    assert!(replies[2].int() > 0, "the lock is free");
    assert_eq!(waiter.answer(), result("42"));
}

#[test]
fn a_result_is_replicated_as_a_plain_release() {
    let mut locks = Locks::start();
    let mut stream = Stream::of(&locks.server);
    let token = locks.hold();
    let mut waiter = locks.wait(&["RESULT"]);
    stream.take();
    assert_eq!(release_with(&mut locks, token, "a secret"), Reply::Int(1));
    assert_eq!(waiter.answer(), result("a secret"));
    assert_eq!(stream.take(), [["DEL", "k"]]);
}
