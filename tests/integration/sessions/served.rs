//! Grants to a waiter with SESSION are bound when they are made, and passed on with their full lease if they were not
//! received.

use super::{assert_succeeds, Scene};
use crate::kinds::Kind;
use crate::waiting::Waiter;
use std::time::Duration;
use testkit::{bound, until, Reply};

fn session_waiter(scene: &mut Scene, options: &[&str]) -> Waiter {
    scene.locks.wait(&[&["SESSION", "OWNER", "first"], options].concat())
}

#[test]
fn a_handed_off_lock_ends_with_its_waiters_connection() {
    let mut scene = Scene::start();
    let token = scene.locks.hold();
    let mut bound = session_waiter(&mut scene, &[]);
    let mut next = scene.wait();
    scene.locks.release(token);
    let granted = bound.granted();
    assert_eq!(scene.session("k"), Some(bound.id.clone()));
    scene.forget();
    let from = scene.now_us();
    drop(bound);
    let timestamp = scene.until_ended(granted, from);
    assert_succeeds(&mut next, granted, timestamp);
    assert_eq!(scene.session("k"), None);
}

#[test]
fn several_awaited_keys_end_with_their_connection() {
    let mut scene = Scene::start();
    let held = Kind::Several.take(&mut scene.locks.conn, &["EX", "60"]);
    let mut bound = scene.locks.wait_as(Kind::Several, &["SESSION"]);
    // Each of these waiters wants a third key too.
    let mut next = ["k", "l"]
        .map(|key| (key, scene.locks.wait_with(&["LOCK.MACQUIRE", "2", key, "other", "EX", "60", "WAIT", "60000"])));
    Kind::Several.release(&mut scene.locks.conn, &held);
    bound.granted();
    assert_eq!(["k", "l"].map(|key| scene.session(key)), [Some(bound.id.clone()), Some(bound.id.clone())]);
    drop(bound);
    for (key, waiter) in &mut next {
        let token = waiter.granted().to_string();
        assert_eq!(scene.locks.conn.int(&["LOCK.MRELEASE", "2", key, "other", &token]), 2);
    }
    assert_eq!(scene.locks.info("lock", "lock_sessions"), 0);
}

#[test]
fn a_queue_of_ending_sessions_is_served_one_by_one() {
    let mut scene = Scene::start();
    let first = scene.hold();
    let mut line: Vec<_> = (0..4).map(|_| session_waiter(&mut scene, &["DETAILS"])).collect();
    let mut last = scene.wait();
    let mut token = first.token;
    drop(first.conn);
    for waiter in &mut line {
        let details = waiter.answer();
        assert_eq!(details.list()[2], Reply::Int(token), "{details:?}");
        token = details.list()[0].int();
        assert_eq!(scene.locks.conn.int(&["CLIENT", "KILL", "ID", &waiter.id]), 1);
    }
    assert_succeeds(&mut last, token, token);
}

#[test]
fn a_grant_that_nobody_received_is_passed_on_at_once() {
    let mut scene = Scene::with_margin(5_000);
    let token = scene.locks.hold();
    let dead = session_waiter(&mut scene, &[]);
    let mut next = session_waiter(&mut scene, &[]);
    let (id, from) = (dead.id.clone(), scene.now_us());
    scene.locks.in_one_turn(&[&["LOCK.RELEASE", "k", &token], &["CLIENT", "KILL", "ID", &id]]);
    let granted = next.granted();
    assert_eq!(scene.session("k"), Some(next.id.clone()));
    let took = Duration::from_micros((granted - from).try_into().unwrap());
    bound::wall("a hand-off without a margin", Duration::from_secs(5), took);
    scene.locks.assert_holds(granted);
    // The disconnected client no longer affects the grant.
    let before = scene.value("k");
    next.assert_waits();
    assert_eq!(scene.value("k"), before);
    scene.locks.release(granted);
}

#[test]
fn an_undelivered_grant_without_waiters_is_free() {
    let mut scene = Scene::start();
    let token = scene.locks.hold();
    let dead = session_waiter(&mut scene, &[]);
    let id = dead.id.clone();
    scene.locks.in_one_turn(&[&["LOCK.RELEASE", "k", &token], &["CLIENT", "KILL", "ID", &id]]);
    until("the lock is free", || (scene.locks.conn.int(&["EXISTS", "k"]) == 0).then_some(()));
}

#[test]
fn an_undelivered_grant_is_kept_by_its_id() {
    let mut scene = Scene::start();
    let token = scene.locks.hold();
    let dead = session_waiter(&mut scene, &["ID", "7"]);
    let id = dead.id.clone();
    let again = ["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7", "SESSION"];
    let replies = scene.locks.in_one_turn(&[&["LOCK.RELEASE", "k", &token], &["CLIENT", "KILL", "ID", &id], &again]);
    let kept = replies[2].int();
    let own = scene.locks.conn.int(&["CLIENT", "ID"]).to_string();
    assert!(scene.locks.server.conn().no_reply_within(crate::waiting::QUIET * 2));
    assert_eq!(scene.session("k"), Some(own));
    scene.locks.assert_holds(kept);
}

#[test]
fn a_dead_waiter_leaves_the_queue_and_ends_its_locks() {
    let mut scene = Scene::start();
    let token = scene.locks.hold();
    let held = scene.hold_with(&["LOCK.ACQUIRE", "own", "PX", "30000", "SESSION", "OWNER", "first"]);
    let waiter = scene.locks.wait_on(held.conn, &["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000", "SESSION"]);
    let mut behind = scene.wait();
    let mut other = scene.locks.wait_with(&["LOCK.ACQUIRE", "own", "PX", "30000", "WAIT", "30000", "DETAILS"]);
    drop(waiter);
    assert_succeeds(&mut other, held.token, held.token);
    scene.locks.release(token);
    let details = behind.answer();
    assert_eq!(details.list()[1..], [Reply::Nil, Reply::Nil, Reply::Nil], "released, not abandoned");
    assert_eq!(scene.session("k"), None);
}
