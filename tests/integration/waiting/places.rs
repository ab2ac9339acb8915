//! A place in the queue belongs to an ID. It outlives the connection, the command and its WAIT by `lock.place-ms`, and
//! then ends.

use super::{no_reply_within, Locks, Waiter};
use crate::kinds::{acquire_all, Kind, Row};
use std::time::Duration;
use testkit::{server_time_us, until};

/// Waits until slightly more than `time_ms` has passed on the server.
fn pass(locks: &mut Locks, time_ms: i64) {
    let end = server_time_us(&mut locks.conn) + time_ms * 1000 + 5000;
    until("the time has passed", || (server_time_us(&mut locks.conn) > end).then_some(()));
}

/// Asserts that these get the lock in this order.
fn assert_order(locks: &mut Locks, token: impl std::fmt::Display, queue: &mut [(&str, Waiter)]) {
    let mut token = token.to_string();
    let mut left = i64::try_from(queue.len()).unwrap();
    for (name, waiter) in queue {
        locks.release(token);
        token = waiter.granted().to_string();
        left -= 1;
        assert_eq!(locks.waiters(), left, "{name} and nobody else");
    }
    locks.release(token);
}

fn time_out(locks: &mut Locks, id: &str) {
    locks.wait_with(&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30", "ID", id]).refused();
}

/// How attempt 7 leaves the queue.
type Leave = (&'static str, fn(&mut Locks));

const LEAVES: [Leave; 4] = [
    ("its time", |locks| time_out(locks, "7")),
    ("no wait at all", |locks| assert!(locks.conn.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"]).is_nil())),
    ("a disconnect", |locks| drop(locks.wait(&["ID", "7"]))),
    ("a kill", |locks| {
        let mut killed = locks.wait(&["ID", "7"]);
        assert_eq!(locks.conn.int(&["CLIENT", "KILL", "ID", &killed.id]), 1);
        killed.closed();
    }),
];

#[test]
fn it_is_kept_however_its_attempt_leaves_the_queue() {
    for (name, leave) in LEAVES {
        let _row = Row::of(name);
        let mut locks = Locks::start();
        let token = locks.hold();
        leave(&mut locks);
        locks.until_waiters(0);
        let second = locks.wait(&[]);
        for _ in 0..3 {
            leave(&mut locks);
            locks.until_waiters(1);
        }
        let first = locks.wait(&["ID", "7"]);
        assert_order(&mut locks, token, &mut [("it is back", first), ("behind it", second)]);
    }
}

#[test]
fn a_poller_needs_a_place_ahead_of_the_queue() {
    let mut locks = Locks::start();
    locks.hold();
    let poll = |id: &'static str| ["LOCK.ACQUIRE", "k", "PX", "30000", "ID", id];
    assert!(locks.conn.execute(&poll("1")).is_nil());
    let mut waiter = locks.wait(&[]);
    assert!(locks.conn.execute(&poll("2")).is_nil());
    // In the same iteration as the release, before the lock is passed on.
    let replies = locks.in_one_turn(&[&["MULTI"], &["DEL", "k"], &poll("2"), &poll("1"), &["EXEC"]]);
    let replies = replies[4].list();
    assert!(replies[1].is_nil(), "behind the waiter: {replies:?}");
    let token = replies[2].int();
    waiter.assert_waits();
    locks.release(token);
    let granted = waiter.granted();
    locks.release(granted);
}

#[test]
fn it_is_passed_over_while_its_attempt_is_away() {
    let mut locks = Locks::start();
    let token = locks.hold();
    time_out(&mut locks, "7");
    let (mut second, third) = (locks.wait(&[]), locks.wait(&[]));
    locks.release(token);
    let granted = second.granted();
    let first = locks.wait(&["ID", "7"]);
    assert_order(&mut locks, granted, &mut [("it is back", first), ("behind it", third)]);
}

#[test]
fn without_an_id_there_is_no_place() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let gone = locks.wait(&[]);
    let second = locks.wait(&[]);
    drop(gone);
    locks.until_waiters(1);
    let first = locks.wait(&[]);
    assert_order(&mut locks, token, &mut [("second", second), ("a newcomer", first)]);
}

#[test]
fn a_place_ends_after_its_time() {
    let mut locks = Locks::with(&["place-ms", "100"]);
    let token = locks.hold();
    time_out(&mut locks, "7");
    let gone = locks.wait(&["ID", "8"]);
    drop(gone);
    let second = locks.wait(&[]);
    locks.until_waiters(1);
    pass(&mut locks, 100);
    for id in ["7", "8"] {
        assert_eq!(locks.conn.int(&["LOCK.CANCEL", "k", id]), 0, "the place of {id} has ended");
    }
    // CANCEL bars late copies of the command for the same time.
    assert!(locks.conn.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000", "ID", "7"]).is_nil());
    pass(&mut locks, 100);
    let third = locks.wait(&["ID", "7"]);
    assert_order(&mut locks, token, &mut [("second", second), ("too late", third)]);
}

#[test]
fn each_command_renews_the_place() {
    let mut locks = Locks::with(&["place-ms", "400"]);
    let token = locks.hold();
    let poll = ["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"];
    let begin = server_time_us(&mut locks.conn);
    assert!(locks.conn.execute(&poll).is_nil());
    let second = locks.wait(&[]);
    let mut kept = true;
    let mut last = begin;
    while server_time_us(&mut locks.conn) < begin + 1_000_000 {
        assert!(locks.conn.execute(&poll).is_nil());
        let now = server_time_us(&mut locks.conn);
        kept &= now - last < 300_000;
        last = now;
        assert!(no_reply_within(&mut locks.conn, Duration::from_millis(50)));
    }
    let first = locks.wait(&["ID", "7"]);
    // If the machine was busy for longer than a place is kept, this proves nothing.
    if kept && server_time_us(&mut locks.conn) - last < 300_000 {
        assert_order(&mut locks, token, &mut [("the poller", first), ("behind it", second)]);
    }
}

#[test]
fn with_a_time_of_zero_there_is_no_place() {
    let mut locks = Locks::with(&["place-ms", "0"]);
    let token = locks.hold();
    assert!(locks.conn.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "6"]).is_nil());
    time_out(&mut locks, "7");
    let gone = locks.wait(&["ID", "8"]);
    drop(gone);
    locks.until_waiters(0);
    for id in ["6", "7", "8"] {
        assert_eq!(locks.conn.int(&["LOCK.CANCEL", "k", id]), 0, "{id}");
    }
    let second = locks.wait(&[]);
    let first = locks.wait(&["ID", "7"]);
    assert_order(&mut locks, token, &mut [("second", second), ("too late", first)]);
}

#[test]
fn a_grant_ends_it() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let mut first = locks.wait(&["ID", "7"]);
    locks.release(token);
    let granted = first.granted();
    locks.release(granted);
    let token = locks.hold();
    let second = locks.wait(&[]);
    let third = locks.wait(&["ID", "7"]);
    assert_order(&mut locks, token, &mut [("second", second), ("a new attempt", third)]);
}

#[test]
fn the_id_of_a_grant_gets_the_same_token_again() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let mut waiter = locks.wait(&["ID", "7"]);
    locks.release(token);
    let granted = waiter.granted();
    for wait in ["0", "30000"] {
        let args = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", wait, "ID", "7"];
        assert_eq!(locks.server.conn().int(&args), granted, "another connection");
        assert_eq!(waiter.conn.int(&args), granted, "the same connection");
    }
}

#[test]
fn a_repeated_id_gets_its_token_at_once() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let mut waiter = locks.wait(&["ID", "7"]);
    let mut second = locks.wait(&[]);
    let again = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000", "ID", "7"];
    let replies = locks.in_one_turn(&[&["LOCK.RELEASE", "k", &token], &again]);
    assert_eq!(replies[1].int(), waiter.granted());
    second.assert_waits();
    locks.release(replies[1].int());
    second.granted();
}

#[test]
fn it_belongs_to_its_key_and_database() {
    let mut locks = Locks::start();
    let token = locks.hold();
    time_out(&mut locks, "7");
    let second = locks.wait(&[]);
    // The same ID elsewhere is another attempt.
    locks.conn.int(&["LOCK.ACQUIRE", "other", "PX", "30000", "ID", "7"]);
    let mut elsewhere = locks.server.conn();
    elsewhere.ok(&["SELECT", "1"]);
    elsewhere.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"]);
    assert_eq!(elsewhere.int(&["LOCK.CANCEL", "k", "7"]), 1);
    let first = locks.wait(&["ID", "7"]);
    assert_order(&mut locks, token, &mut [("it is back", first), ("behind it", second)]);
}

#[test]
fn it_is_kept_in_the_queues_of_several_keys() {
    let mut locks = Locks::start();
    let held = acquire_all(&mut locks.conn, &["k", "l"], &["PX", "30000"]);
    locks.wait_with(&["LOCK.MACQUIRE", "2", "k", "l", "PX", "30000", "ID", "7", "WAIT", "50"]).refused();
    assert_eq!(locks.info("lock", "lock_places"), 1);
    let mut single = locks.wait_with(&["LOCK.ACQUIRE", "l", "PX", "30000", "WAIT", "30000"]);
    let mut all = locks.wait_with(&["LOCK.MACQUIRE", "2", "l", "k", "PX", "30000", "ID", "7", "WAIT", "30000"]);
    Kind::Several.release(&mut locks.conn, &held);
    // The attempt arrived first, although it was away.
    let token = all.granted().to_string();
    single.assert_waits();
    Kind::Several.release(&mut locks.conn, &token);
    single.granted();
}
