//! The histograms of waits in INFO lock: each attempt counts once, with its total wait, by how it ended; CONFIG
//! RESETSTAT resets them.

use super::{number, percentile, Scene};
use crate::notify::Queue;
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};
use testkit::{until, Conn};

/// A histogram's buckets and its sum.
fn histogram(conn: &mut Conn, name: &str) -> BTreeMap<String, i64> {
    let text = conn.text(&["INFO", "lock"]);
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("lock_{name}_histogram_ms:")));
    let parts = line.unwrap_or_else(|| panic!("no {name}: {text}")).split(',');
    let parts = parts.map(|part| part.split_once('=').expect("a name and a value"));
    parts.map(|(name, value)| (name.into(), value.parse().unwrap())).collect()
}

/// The number of waits that got the lock, and the number that failed.
fn counts(conn: &mut Conn) -> [i64; 2] {
    ["wait", "failed_wait"].map(|name| histogram(conn, name)["le_inf"])
}

#[test]
fn a_histogram_is_cumulative_and_has_every_bucket() {
    let mut scene = Scene::new();
    let empty = histogram(&mut scene.conn, "wait");
    assert_eq!((empty.len(), empty.values().sum::<i64>()), (17, 0));
    let token = scene.hold("k");
    let start = Instant::now();
    let mut waiter = scene.waiter(&["k", "EX", "60", "WAIT", "60000"]);
    sleep(Duration::from_millis(120));
    scene.conn.int(&["LOCK.RELEASE", "k", &token]);
    waiter.read().int();
    let most = i64::try_from(start.elapsed().as_millis()).unwrap() + 1;
    let after = histogram(&mut scene.conn, "wait");
    for (bound, count) in [("le_1", 0), ("le_100", 0), ("le_60000", 1), ("le_3600000", 1), ("le_inf", 1)] {
        assert_eq!(after[bound], count, "{bound}: {after:?}");
    }
    assert!((120..=most).contains(&after["sum"]), "{after:?}");
    assert_eq!(counts(&mut scene.conn), [1, 0]);
}

#[test]
fn failed_waits_count_separately_however_they_ended() {
    let mut scene = Scene::new();
    scene.hold("k");
    let wait = ["k", "EX", "60", "WAIT", "60000"];
    // Timed out.
    let mut waiter = scene.waiter(&["k", "EX", "60", "WAIT", "50"]);
    assert!(waiter.read().is_nil());
    assert_eq!(counts(&mut scene.conn), [0, 1]);
    assert!(histogram(&mut scene.conn, "failed_wait")["sum"] >= 50);
    // Disconnected.
    drop(scene.waiter(&wait));
    until("it has left", || (counts(&mut scene.conn) == [0, 2]).then_some(()));
    // Cancelled.
    let mut waiter = scene.waiter(&[&wait[..], &["ID", "7"]].concat());
    assert_eq!(scene.conn.int(&["LOCK.CANCEL", "k", "7"]), 1);
    assert!(waiter.read().is_nil());
    assert_eq!(counts(&mut scene.conn), [0, 3]);
    // Unblocked: this server becomes a replica.
    let mut waiter = scene.waiter(&wait);
    scene.conn.ok(&["REPLICAOF", "127.0.0.1", "1"]);
    assert!(waiter.try_read().map_or(true, |reply| reply.error().starts_with("UNBLOCKED ")));
    assert_eq!(counts(&mut scene.conn), [0, 4]);
}

#[test]
fn an_attempt_in_pieces_counts_once() {
    let mut scene = Scene::new();
    let token = scene.hold("k");
    for _ in 0..3 {
        let mut piece = scene.waiter(&["k", "EX", "60", "WAIT", "60", "ID", "7"]);
        assert!(piece.read().is_nil());
        assert_eq!(counts(&mut scene.conn), [0, 0], "the attempt may go on");
    }
    // A newer command replaces the previous one.
    let mut earlier = scene.waiter(&["k", "EX", "60", "WAIT", "60000", "ID", "7"]);
    scene.server.conn().send(&["PING"]);
    let mut last = scene.server.conn();
    last.send(&["LOCK.ACQUIRE", "k", "EX", "60", "WAIT", "60000", "ID", "7"]);
    assert!(earlier.read().error().starts_with("UNBLOCKED "));
    scene.conn.int(&["LOCK.RELEASE", "k", &token]);
    last.read().int();
    assert_eq!(counts(&mut scene.conn), [1, 0]);
    assert!(histogram(&mut scene.conn, "wait")["sum"] >= 180);
    let least = 180_000;
    assert!(percentile(&mut scene.conn, "wait", "p50").unwrap() >= least * 98 / 100, "two digits");
}

#[test]
fn an_attempt_has_failed_when_its_place_is_given_up() {
    let (server, mut conn) = testkit::Server::with().module_args(&["place-ms", "300"]).connected();
    conn.int(&["LOCK.ACQUIRE", "k", "EX", "60"]);
    let start = Instant::now();
    let mut waiter = server.waiter(&["LOCK.ACQUIRE", "k", "EX", "60", "WAIT", "50", "ID", "7"]);
    assert!(waiter.read().is_nil());
    let waited = i64::try_from(start.elapsed().as_millis()).unwrap();
    until("its place is given up", || (number(&mut conn, "places") == 0).then_some(()));
    assert_eq!(counts(&mut conn), [0, 1]);
    // The place is not counted as a wait.
    let sum = histogram(&mut conn, "failed_wait")["sum"];
    assert!((49..=waited).contains(&sum), "{sum} of {waited}");
}

#[test]
fn an_attempt_with_notify_counts_when_it_claims_or_ends() {
    let Some(mut queue) = Queue::start() else { return };
    let token = queue.locks.hold();
    queue.ask("1");
    queue.ask("2");
    queue.locks.release(token);
    queue.subscriber.gets("granted 1 k");
    assert_eq!(counts(&mut queue.locks.conn), [0, 0]);
    queue.claim("1");
    assert_eq!(counts(&mut queue.locks.conn), [1, 0]);
    assert_eq!(queue.execute(&["LOCK.CANCEL", "k", "2"]).int(), 1);
    assert_eq!(counts(&mut queue.locks.conn), [1, 1]);
}

#[test]
fn config_resetstat_resets_what_was_measured_and_no_counter() {
    let mut scene = Scene::new();
    let token = scene.hold("k");
    let mut waiter = scene.waiter(&["k", "EX", "60", "WAIT", "60000"]);
    let mut other = scene.waiter(&["k", "EX", "60", "WAIT", "20"]);
    assert!(other.read().is_nil());
    scene.conn.int(&["LOCK.RELEASE", "k", &token]);
    let token = waiter.read().int().to_string();
    assert_eq!(counts(&mut scene.conn), [1, 1]);
    // The module has seen large numbers: it reads them once a second.
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1_500) {
        scene.conn.text(&["PING", &"x".repeat(10_000)]);
    }
    scene.inspect();
    scene.conn.ok(&["CONFIG", "RESETSTAT"]);
    until("the module has noticed the reset", || {
        sleep(Duration::from_millis(50));
        (counts(&mut scene.conn) == [0, 0]).then_some(())
    });
    for name in ["wait", "hold"] {
        assert_eq!(percentile(&mut scene.conn, name, "p50"), None, "{name}");
    }
    scene.moves(&[]);
    // Later waits are counted.
    let mut waiter = scene.waiter(&["k", "EX", "60", "WAIT", "60000"]);
    scene.conn.int(&["LOCK.RELEASE", "k", &token]);
    waiter.read().int();
    sleep(Duration::from_millis(1_200));
    assert_eq!(counts(&mut scene.conn), [1, 0], "and nothing resets it again");
}
