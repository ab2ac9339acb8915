//! INFO lock: every counter changes by exactly the number of its events.
//!
//! `metrics/clock.rs` sets the server's wall clock; `metrics/overruns.rs` tests overruns, `metrics/oldest.rs` the
//! oldest wait and hold, `metrics/waits.rs` the histograms.

pub mod clock;
mod oldest;
pub mod overruns;
mod waits;

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};
use testkit::{until, Conn, Reply, Server};

/// The integers in INFO lock, without their name prefix.
pub fn numbers(conn: &mut Conn) -> BTreeMap<String, i64> {
    let text = conn.text(&["INFO", "lock"]);
    assert!(text.starts_with("# lock\r\n"), "{text}");
    let fields = text.lines().filter_map(|line| line.strip_prefix("lock_")?.split_once(':'));
    fields.filter_map(|(name, value)| Some((name.to_string(), value.parse().ok()?))).collect()
}

/// One of these integers.
pub fn number(conn: &mut Conn, name: &str) -> i64 {
    *numbers(conn).get(name).unwrap_or_else(|| panic!("INFO lock has no {name}"))
}

/// A percentile from INFO lock in microseconds; `None` if it has no value yet.
fn percentile(conn: &mut Conn, name: &str, percent: &str) -> Option<i64> {
    let text = conn.text(&["INFO", "lock"]);
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("lock_{name}_percentiles_usec:")))?;
    let value = line.split(',').find_map(|part| part.strip_prefix(&format!("{percent}=")));
    Some(value.unwrap_or_else(|| panic!("no {percent}: {line}")).parse().unwrap())
}

/// The changes in INFO lock since `before`, except for values that depend on time.
pub fn moved(conn: &mut Conn, before: &BTreeMap<String, i64>) -> Vec<(String, i64)> {
    let after = numbers(conn);
    assert!(before.keys().eq(after.keys()), "{before:?} {after:?}");
    let changes = after.iter().map(|(name, now)| (name.clone(), now - before[name]));
    changes.filter(|(name, by)| *by != 0 && !name.starts_with("oldest_")).collect()
}

/// A server on which locks expire with no margin and stay expired, and a connection to it.
struct Scene {
    conn: Conn,
    before: BTreeMap<String, i64>,
    server: Server,
}

impl Scene {
    fn new() -> Self {
        let (server, mut conn) = Server::with().module_args(&["margin-ms", "0", "retention-ms", "-1"]).connected();
        let before = numbers(&mut conn);
        Self { conn, before, server }
    }

    /// Asserts which counters changed since the last read, `expected` in alphabetical order, and rereads them.
    #[track_caller]
    fn moves(&mut self, expected: &[(&str, i64)]) {
        let moved = moved(&mut self.conn, &self.before);
        // If keyspace events are off, each DEL is a missed wake-up. The number of writes that need no replication
        // depends on the server's ticks.
        let has_events = self.conn.has_key_events();
        let counts = |name: &str| name != "unreplicated_writes" && (has_events || name != "missed_wakeups");
        let moved: Vec<_> =
            moved.iter().map(|(name, by)| (name.as_str(), *by)).filter(|(name, _)| counts(name)).collect();
        assert_eq!(moved, expected);
        self.before = numbers(&mut self.conn);
    }

    /// Rereads the counters, whatever changed.
    fn inspect(&mut self) {
        self.before = numbers(&mut self.conn);
    }

    /// Takes a lock for a minute. Returns its token.
    fn hold(&mut self, key: &str) -> String {
        self.conn.int(&["LOCK.ACQUIRE", key, "EX", "60"]).to_string()
    }

    /// Takes a lock and lets it expire.
    fn let_expire(&mut self, key: &str) -> String {
        let token = self.conn.int(&["LOCK.ACQUIRE", key, "PX", "1"]).to_string();
        until("the lock is expired", || (self.conn.state(key) == "expired").then_some(()));
        token
    }

    /// A client that waits for a key.
    fn waiter(&self, args: &[&str]) -> Conn {
        self.server.waiter(&[&["LOCK.ACQUIRE"], args].concat())
    }
}

#[test]
fn a_new_server_counts_nothing() {
    let mut scene = Scene::new();
    let limits = [("max_waiters", 5_000), ("max_queued", 100_000)];
    for (name, value) in &scene.before {
        let limit = limits.iter().find(|(limit, _)| limit == name).map_or(0, |(_, limit)| *limit);
        assert_eq!(*value, limit, "{name}");
    }
    assert_eq!(percentile(&mut scene.conn, "wait", "p50"), None);
    assert_eq!(percentile(&mut scene.conn, "hold", "p50"), None);
    scene.moves(&[]);
}

#[test]
fn grants_refusals_and_extensions_are_counted() {
    let mut scene = Scene::new();
    scene.conn.int(&["LOCK.ACQUIRE", "k", "EX", "5", "ID", "7"]);
    scene.moves(&[("grants", 1)]);
    assert!(scene.conn.execute(&["LOCK.ACQUIRE", "k", "EX", "5"]).is_nil());
    scene.moves(&[("refusals", 1)]);
    assert!(scene.conn.execute(&["LOCK.RECOVER", "k", "EX", "5"]).is_nil());
    scene.moves(&[("refusals", 1)]);
    let token = scene.conn.int(&["LOCK.ACQUIRE", "k", "EX", "60", "ID", "7"]).to_string();
    scene.moves(&[("extends", 1)]);
    scene.conn.int(&["LOCK.ACQUIRE", "k", "EX", "5", "ID", "7"]);
    scene.moves(&[]);
    assert_eq!(scene.conn.int(&["LOCK.EXTEND", "k", &token, "EX", "9"]), 1);
    scene.moves(&[("extends", 1)]);
    // Commands that inspect, and invalid ones, are not counted.
    scene.conn.execute(&["LOCK.INFO", "k", "FULL"]);
    scene.conn.execute(&["LOCK.CHECK", "k", &token]);
    scene.conn.execute(&["LOCK.TOP"]);
    scene.conn.execute(&["LOCK.ACQUIRE", "k", "EX", "0"]).error();
    scene.conn.execute(&["LOCK.RELEASE", "k", "x"]).error();
    scene.moves(&[]);
}

#[test]
fn releases_late_releases_and_stale_tokens_are_counted() {
    let mut scene = Scene::new();
    let token = scene.hold("k");
    let late = scene.let_expire("late");
    scene.inspect();
    assert_eq!(scene.conn.int(&["LOCK.RELEASE", "k", "1"]), 0);
    scene.moves(&[("stale_tokens", 1)]);
    assert_eq!(scene.conn.int(&["LOCK.EXTEND", "k", "1", "EX", "5"]), 0);
    scene.moves(&[("stale_tokens", 1)]);
    assert_eq!(scene.conn.int(&["LOCK.RELEASE", "k", &token]), 1);
    scene.moves(&[("releases", 1)]);
    assert_eq!(scene.conn.int(&["LOCK.RELEASE", "late", &late]), -1);
    scene.moves(&[("late_releases", 1)]);
    assert_eq!(scene.conn.int(&["LOCK.RELEASE", "late", &late]), 0);
    scene.moves(&[("stale_tokens", 1)]);
}

#[test]
fn recoveries_by_either_command_are_grants_too() {
    let mut scene = Scene::new();
    scene.let_expire("a");
    scene.let_expire("b");
    scene.inspect();
    scene.conn.int(&["LOCK.ACQUIRE", "a", "EX", "5"]);
    scene.moves(&[("grants", 1), ("recoveries", 1)]);
    assert_eq!(scene.conn.execute(&["LOCK.RECOVER", "b", "EX", "5"]).list().len(), 4);
    scene.moves(&[("grants", 1), ("recoveries", 1)]);
    assert!(scene.conn.execute(&["LOCK.RECOVER", "nothing", "EX", "5"]).is_nil());
    scene.moves(&[("refusals", 1)]);
}

#[test]
fn foreign_values_that_are_met_are_counted() {
    let mut scene = Scene::new();
    scene.conn.ok(&["SET", "k", "somebody's"]);
    scene.moves(&[]);
    assert!(scene.conn.execute(&["LOCK.ACQUIRE", "k", "EX", "5"]).is_nil());
    scene.moves(&[("foreign_values_met", 1), ("refusals", 1)]);
    assert!(scene.conn.execute(&["LOCK.RECOVER", "k", "EX", "5"]).is_nil());
    scene.moves(&[("foreign_values_met", 1), ("refusals", 1)]);
}

#[test]
fn hand_offs_and_current_waiters_are_counted() {
    let mut scene = Scene::new();
    let token = scene.hold("a");
    scene.hold("b");
    scene.inspect();
    let mut first = scene.waiter(&["a", "EX", "60", "WAIT", "60000"]);
    scene.moves(&[("blocked", 1), ("longest_queue", 1), ("refusals", 1), ("waiters", 1)]);
    let _b = scene.waiter(&["b", "EX", "60", "WAIT", "60000"]);
    scene.moves(&[("blocked", 1), ("refusals", 1), ("waiters", 1)]);
    let mut second = scene.waiter(&["a", "PX", "50", "WAIT", "60000"]);
    let mut third = scene.waiter(&["a", "EX", "60", "WAIT", "60000"]);
    scene.moves(&[("blocked", 2), ("longest_queue", 2), ("refusals", 2), ("waiters", 2)]);

    assert_eq!(scene.conn.int(&["LOCK.RELEASE", "a", &token]), 1);
    let token = first.read().int().to_string();
    scene.moves(&[
        ("blocked", -1),
        ("grants", 1),
        ("hand_offs", 1),
        ("longest_queue", -1),
        ("releases", 1),
        ("waiters", -1),
    ]);

    // Hand-offs of a deleted and of an expired lock.
    scene.conn.int(&["DEL", "a"]);
    second.read().int();
    third.read().int();
    scene.moves(&[
        ("blocked", -2),
        ("grants", 2),
        ("hand_offs", 2),
        ("longest_queue", -1),
        ("recoveries", 1),
        ("waiters", -2),
    ]);
    assert_eq!(scene.conn.int(&["LOCK.RELEASE", "a", &token]), 0);
}

#[test]
fn grants_that_nobody_received_are_counted() {
    let mut scene = Scene::new();
    for (id, place) in [("", 0), ("9", 1)] {
        let token = scene.hold("k");
        let args = ["k", "EX", "60", "WAIT", "60000", "ID", id];
        let mut gone = scene.server.conn();
        let client = gone.int(&["CLIENT", "ID"]).to_string();
        gone.send(&[&["LOCK.ACQUIRE"], &args[..if id.is_empty() { 5 } else { 7 }]].concat());
        until("it waits", || (number(&mut scene.conn, "waiters") == 1).then_some(()));
        scene.inspect();
        // In one iteration: no reply can leave in between.
        scene.conn.ok(&["MULTI"]);
        scene.conn.text(&["LOCK.RELEASE", "k", &token]);
        scene.conn.text(&["CLIENT", "KILL", "ID", &client]);
        assert_eq!(scene.conn.execute(&["EXEC"]), Reply::List(vec![Reply::Int(1), Reply::Int(1)]));
        until("the lock is free again", || (scene.conn.int(&["EXISTS", "k"]) == 0).then_some(()));
        let mut expected = vec![("blocked", -1), ("grants", 1), ("hand_offs", 1), ("longest_queue", -1)];
        expected.extend((place == 1).then_some(("places", 1)));
        expected.extend([("releases", 1), ("undelivered_grants", 1), ("waiters", -1)]);
        scene.moves(&expected);
        scene.conn.ok(&["FLUSHALL"]);
    }
}

#[test]
fn time_outs_and_kept_and_resumed_places_are_counted() {
    let mut scene = Scene::new();
    scene.hold("k");
    scene.inspect();
    let mut waiter = scene.waiter(&["k", "EX", "5", "WAIT", "30"]);
    assert!(waiter.read().is_nil());
    scene.moves(&[("refusals", 1), ("wait_timeouts", 1)]);

    let mut waiter = scene.waiter(&["k", "EX", "5", "WAIT", "30", "ID", "4"]);
    assert!(waiter.read().is_nil());
    scene.moves(&[("longest_queue", 0), ("places", 1), ("refusals", 1), ("wait_timeouts", 1)][1..]);
    scene.waiter(&["k", "EX", "5", "WAIT", "60000", "ID", "4"]);
    until("its client is gone", || (number(&mut scene.conn, "waiters") == 0).then_some(()));
    scene.moves(&[("places_resumed", 1), ("refusals", 1)]);

    // An attempt that does not wait gets a reserved place as well.
    assert!(scene.conn.execute(&["LOCK.ACQUIRE", "k", "EX", "5", "ID", "5"]).is_nil());
    scene.moves(&[("places", 1), ("refusals", 1)]);
    assert!(scene.conn.execute(&["LOCK.ACQUIRE", "k", "EX", "5", "ID", "5"]).is_nil());
    scene.moves(&[("refusals", 1)]);
}

#[test]
fn cancels_are_counted_in_every_state_of_an_attempt() {
    let mut scene = Scene::new();
    scene.conn.int(&["LOCK.ACQUIRE", "k", "EX", "60", "ID", "1"]);
    let mut waiter = scene.waiter(&["k", "EX", "60", "WAIT", "60000", "ID", "2"]);
    scene.conn.execute(&["LOCK.ACQUIRE", "k", "EX", "60", "ID", "3"]);
    scene.inspect();
    // Each cancelled ID is barred for a while, and counts as a place.
    assert_eq!(scene.conn.int(&["LOCK.CANCEL", "k", "99"]), 0);
    scene.moves(&[("places", 1)]);
    assert_eq!(scene.conn.int(&["LOCK.CANCEL", "k", "2"]), 1);
    assert!(waiter.read().is_nil());
    scene.moves(&[("blocked", -1), ("cancels", 1), ("longest_queue", -1), ("places", 1), ("waiters", -1)]);
    assert_eq!(scene.conn.int(&["LOCK.CANCEL", "k", "3"]), 1);
    scene.moves(&[("cancels", 1)]);
    assert_eq!(scene.conn.int(&["LOCK.CANCEL", "k", "1"]), 1);
    scene.moves(&[("cancels", 1), ("places", 1)]);
    assert_eq!(scene.conn.int(&["EXISTS", "k"]), 0);
}

#[test]
fn deadlocks_and_ended_sessions_are_counted() {
    let mut scene = Scene::new();
    let (mut a, mut b) = (scene.server.conn(), scene.server.conn());
    a.int(&["LOCK.ACQUIRE", "a", "EX", "60", "SESSION"]);
    b.int(&["LOCK.ACQUIRE", "b", "EX", "60", "SESSION"]);
    scene.moves(&[("grants", 2), ("sessions", 2)]);
    a.send(&["LOCK.ACQUIRE", "b", "EX", "60", "WAIT", "60000"]);
    until("it waits", || (number(&mut scene.conn, "waiters") == 1).then_some(()));
    scene.inspect();
    let reply = b.execute(&["LOCK.ACQUIRE", "a", "EX", "60", "WAIT", "60000"]);
    assert!(reply.error().starts_with("DEADLOCK "), "{reply:?}");
    scene.moves(&[("deadlocks", 1), ("refusals", 1)]);

    drop(b);
    a.read().int();
    let expected = [("blocked", -1), ("grants", 1), ("hand_offs", 1), ("longest_queue", -1), ("recoveries", 1)];
    scene.moves(&[&expected[..], &[("sessions", -1), ("sessions_ended", 1), ("waiters", -1)]].concat());
    // A session whose lock has already been released has nothing to end.
    let token = scene.conn.lock("a", "token").int().to_string();
    assert_eq!(a.int(&["LOCK.RELEASE", "a", &token]), 1);
    drop(a);
    scene.moves(&[("releases", 1), ("sessions", -1)]);
}

#[test]
fn percentiles_show_wait_and_hold_times() {
    let mut scene = Scene::new();
    let start = Instant::now();
    let token = scene.hold("k");
    let mut waiter = scene.waiter(&["k", "EX", "60", "WAIT", "60000"]);
    sleep(Duration::from_millis(150));
    scene.conn.int(&["LOCK.RELEASE", "k", &token]);
    let token = waiter.read().int().to_string();
    let most = i64::try_from(start.elapsed().as_micros()).unwrap() * 101 / 100;
    let least = 150_000;
    for name in ["wait", "hold"] {
        for percent in ["p50", "p99", "p99.9"] {
            let value = percentile(&mut scene.conn, name, percent).expect("one was recorded");
            assert!((least..=most).contains(&value), "{name} {percent}: {least} <= {value} <= {most}");
        }
    }

    // Many short waits lower the median but not the maximum.
    scene.conn.int(&["LOCK.RELEASE", "k", &token]);
    for _ in 0..20 {
        let token = scene.hold("k");
        scene.conn.int(&["LOCK.RELEASE", "k", &token]);
    }
    let median = percentile(&mut scene.conn, "hold", "p50").unwrap();
    assert!((1..150_000).contains(&median), "{median}");
    assert!(percentile(&mut scene.conn, "hold", "p99.9").unwrap() >= 150_000);
    assert!(percentile(&mut scene.conn, "wait", "p50").unwrap() >= least, "nobody waited since");
}

#[test]
fn info_shows_the_section_when_modules_are_asked_for() {
    let (_server, mut conn) = Server::connected();
    for section in ["lock", "modules", "everything"] {
        let text = conn.text(&["INFO", section]);
        assert!(text.contains("# lock\r\n") && text.contains("\r\nlock_grants:0\r\n"), "INFO {section}: {text}");
    }
    for args in [&["INFO"][..], &["INFO", "all"], &["INFO", "server"]] {
        assert!(!conn.text(args).contains("lock_grants"), "{args:?}");
    }
}

#[test]
fn config_resetstat_leaves_the_counters_alone() {
    let mut scene = Scene::new();
    let token = scene.hold("k");
    scene.hold("other");
    let mut waiter = scene.waiter(&["k", "EX", "60", "WAIT", "60000"]);
    scene.inspect();
    scene.conn.ok(&["CONFIG", "RESETSTAT"]);
    scene.moves(&[]);
    assert_eq!(scene.conn.int(&["LOCK.RELEASE", "k", &token]), 1);
    waiter.read().int();
    scene.moves(&[
        ("blocked", -1),
        ("grants", 1),
        ("hand_offs", 1),
        ("longest_queue", -1),
        ("releases", 1),
        ("waiters", -1),
    ]);
}

/// The line logged when locks may be evicted.
const EVICTION: &str = "maxmemory-policy evicts any key";

#[test]
fn the_eviction_risk_is_logged_once_per_change() {
    let (server, mut conn) = Server::connected();
    let lines = |server: &Server| server.log().lines().filter(|line| line.contains(EVICTION)).count();
    assert_eq!((number(&mut conn, "eviction_risk"), lines(&server)), (0, 0));
    for (policy, risk, logged) in [
        ("volatile-lru", 0, 0),
        ("allkeys-lru", 1, 1),
        ("allkeys-random", 1, 1),
        ("noeviction", 0, 1),
        ("allkeys-lfu", 1, 2),
    ] {
        conn.ok(&["CONFIG", "SET", "maxmemory-policy", policy]);
        until(policy, || {
            // On a server without change events (6.2) the setting is read when a lock is written.
            conn.int(&["LOCK.ACQUIRE", "k", "EX", "5"]);
            conn.int(&["DEL", "k"]);
            (number(&mut conn, "eviction_risk") == risk).then_some(())
        });
        assert_eq!(lines(&server), logged, "{policy}:\n{}", server.log_tail(5));
    }
}

#[test]
fn the_eviction_risk_is_logged_at_load() {
    let server = Server::with().args(&["--maxmemory-policy", "allkeys-random"]).start();
    assert_eq!(number(&mut server.conn(), "eviction_risk"), 1);
    assert!(server.log().contains(EVICTION), "{}", server.log_tail(10));
}

#[test]
fn info_shows_the_grace_and_its_misconfiguration() {
    let (_server, mut conn) = Server::with().module_args(&["failover-grace-ms", "5000"]).connected();
    let left = number(&mut conn, "grace_left_ms");
    assert!((1..=5000).contains(&left), "{left}");
    until("it shrinks", || (number(&mut conn, "grace_left_ms") < left).then_some(()));
    // Without min-replicas-to-write, the grace does not prevent two masters from granting the same lock.
    until("it is found", || (number(&mut conn, "grace_misconfigured") == 1).then_some(()));
    assert!(conn.execute(&["LOCK.ACQUIRE", "k", "PX", "500"]).error().starts_with("GRACE "));
    assert_eq!(number(&mut conn, "grants"), 0);
}
