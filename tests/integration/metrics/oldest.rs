//! The oldest wait and the oldest hold in INFO lock: an attempt's wait counts from its first command, and only locks
//! with waiters are considered.

use super::{number, Scene};
use crate::waiting::QUIET;
use std::thread::sleep;
use std::time::{Duration, Instant};
use testkit::{until, Conn};

/// Waits until a number reaches this value, and asserts that it does not exceed the time since `start`.
#[track_caller]
fn grows(conn: &mut Conn, name: &str, least: i64, start: Instant) {
    until(name, || (number(conn, name) >= least).then_some(()));
    let value = number(conn, name);
    assert!(value <= i64::try_from(start.elapsed().as_millis()).unwrap() + 1, "{name}: {value}");
}

#[test]
fn both_are_zero_while_nobody_waits() {
    let mut scene = Scene::new();
    let start = Instant::now();
    let token = scene.hold("k");
    sleep(QUIET);
    assert_eq!((number(&mut scene.conn, "oldest_wait_ms"), number(&mut scene.conn, "oldest_hold_ms")), (0, 0));
    // The lock has been held for longer than anybody has waited.
    let mut waiter = scene.waiter(&["k", "EX", "60", "WAIT", "60000"]);
    let least = i64::try_from(QUIET.as_millis()).unwrap();
    assert!(number(&mut scene.conn, "oldest_hold_ms") >= least);
    assert!(number(&mut scene.conn, "oldest_wait_ms") < number(&mut scene.conn, "oldest_hold_ms"));
    grows(&mut scene.conn, "oldest_wait_ms", 50, start);
    grows(&mut scene.conn, "oldest_hold_ms", least + 50, start);
    scene.conn.int(&["LOCK.RELEASE", "k", &token]);
    waiter.read().int();
    assert_eq!((number(&mut scene.conn, "oldest_wait_ms"), number(&mut scene.conn, "oldest_hold_ms")), (0, 0));
}

#[test]
fn the_oldest_of_many_counts_and_then_the_next() {
    let mut scene = Scene::new();
    let token = scene.hold("a");
    let mut first = scene.waiter(&["a", "EX", "60", "WAIT", "60000"]);
    sleep(Duration::from_millis(200));
    let start = Instant::now();
    scene.hold("b");
    let _second = scene.waiter(&["b", "EX", "60", "WAIT", "60000"]);
    assert!(number(&mut scene.conn, "oldest_wait_ms") >= 200);
    assert!(number(&mut scene.conn, "oldest_hold_ms") >= 200);
    scene.conn.int(&["LOCK.RELEASE", "a", &token]);
    first.read().int();
    let passed = |start: Instant| i64::try_from(start.elapsed().as_millis()).unwrap();
    for name in ["oldest_wait_ms", "oldest_hold_ms"] {
        let value = number(&mut scene.conn, name);
        assert!(value <= passed(start) + 1, "{name}: {value}");
    }
}

#[test]
fn waits_in_pieces_count_from_the_first() {
    let mut scene = Scene::new();
    scene.hold("k");
    let start = Instant::now();
    let mut pieces = 0;
    while start.elapsed() < Duration::from_millis(400) || pieces < 2 {
        let mut piece = scene.waiter(&["k", "EX", "60", "WAIT", "60", "ID", "7"]);
        assert!(piece.read().is_nil());
        pieces += 1;
    }
    let _last = scene.waiter(&["k", "EX", "60", "WAIT", "60000", "ID", "7"]);
    assert!(number(&mut scene.conn, "oldest_wait_ms") >= 400);
    assert!(scene.conn.lock("k", "oldest-wait-ms").int() >= 400);
    assert_eq!(number(&mut scene.conn, "longest_queue"), 1);
}

#[test]
fn a_lock_whose_holder_has_expired_is_not_held() {
    // During a grace nothing is handed off.
    let mut conn = testkit::Server::with().module_args(&["margin-ms", "0"]).connected();
    conn.1.int(&["LOCK.ACQUIRE", "k", "PX", "300"]);
    let _waiter = conn.0.waiter(&["LOCK.ACQUIRE", "k", "EX", "60", "WAIT", "60000"]);
    assert!(number(&mut conn.1, "waiters") == 1);
    until("it is held for a while", || (number(&mut conn.1, "oldest_hold_ms") > 0).then_some(()));
    conn.1.ok(&["CLIENT", "PAUSE", "2000", "WRITE"]);
    until("its holder has expired", || {
        (conn.1.state("k") == "expired" || number(&mut conn.1, "waiters") == 0).then_some(())
    });
    assert_eq!(number(&mut conn.1, "oldest_hold_ms"), 0);
}
