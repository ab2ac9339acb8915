//! LOCK.TOP BY waiters, wait and held: the order, unknown values, and the server's time for 100,000 queues.

use super::wait;
use crate::holders::most::cost;
use crate::waiting::Locks;
use std::time::Duration;
use testkit::{bound, until, Iterations, Reply, Server};

/// LOCK.TOP's keys in order.
fn keys(locks: &mut Locks, options: &[&str]) -> Vec<String> {
    let top = locks.conn.execute(&[&["LOCK.TOP"], options].concat());
    top.list().iter().map(|row| row.field("key").text()).collect()
}

#[test]
fn top_comes_in_the_requested_order() {
    let mut locks = Locks::start();
    // Taken in this order, waited for in a different order.
    for key in ["old", "middle", "new"] {
        locks.conn.int(&["LOCK.ACQUIRE", key, "EX", "60"]);
    }
    locks.conn.ok(&["SET", "foreign", "x"]);
    let mut waiters = Vec::new();
    for key in ["foreign", "new", "old", "middle", "middle", "middle", "new"] {
        waiters.push(wait(&mut locks, key));
    }
    assert_eq!(keys(&mut locks, &[]), ["middle", "new", "foreign", "old"]);
    assert_eq!(keys(&mut locks, &["BY", "waiters"]), ["middle", "new", "foreign", "old"]);
    assert_eq!(keys(&mut locks, &["BY", "wait"]), ["foreign", "new", "old", "middle"]);
    assert_eq!(keys(&mut locks, &["BY", "held"]), ["old", "middle", "new", "foreign"]);
    assert_eq!(keys(&mut locks, &["COUNT", "2", "BY", "HELD"]), ["old", "middle"]);
    assert_eq!(keys(&mut locks, &["by", "wait", "count", "1"]), ["foreign"]);
}

#[test]
fn a_hand_off_resets_a_locks_held_time() {
    let mut locks = Locks::start();
    let token = locks.conn.int(&["LOCK.ACQUIRE", "a", "EX", "60"]).to_string();
    locks.conn.int(&["LOCK.ACQUIRE", "b", "EX", "60"]);
    let mut first = wait(&mut locks, "a");
    let _others = [wait(&mut locks, "a"), wait(&mut locks, "b")];
    assert_eq!(keys(&mut locks, &["BY", "held"]), ["a", "b"]);
    // An extension is not a new grant.
    assert_eq!(locks.conn.int(&["LOCK.EXTEND", "a", &token, "EX", "90"]), 1);
    assert_eq!(keys(&mut locks, &["BY", "held"]), ["a", "b"]);
    assert_eq!(locks.conn.int(&["LOCK.RELEASE", "a", &token]), 1);
    first.granted();
    assert_eq!(keys(&mut locks, &["BY", "held"]), ["b", "a"]);
    // The second client has waited longer than the one for b.
    assert_eq!(keys(&mut locks, &["BY", "wait"]), ["a", "b"]);
}

#[test]
fn a_change_by_others_shows_within_a_second() {
    let mut locks = Locks::start();
    for key in ["a", "b"] {
        locks.conn.int(&["LOCK.ACQUIRE", key, "EX", "60"]);
    }
    let _waiters = [wait(&mut locks, "a"), wait(&mut locks, "b")];
    assert_eq!(keys(&mut locks, &["BY", "held"]), ["a", "b"]);
    locks.conn.ok(&["SET", "a", "foreign"]);
    until("a comes last", || (keys(&mut locks, &["BY", "held", "COUNT", "1"]) == ["b"]).then_some(()));
    let top = locks.conn.execute(&["LOCK.TOP", "BY", "held"]);
    assert_eq!(top.list()[1].field("held-ms"), Reply::Nil);
}

#[test]
fn top_of_100000_queues_is_fast_in_any_order() {
    let script = "for n = tonumber(ARGV[1]), tonumber(ARGV[2]) do local key = n .. KEYS[1] \
        redis.call('LOCK.ACQUIRE', key, 'EX', 600) \
        redis.call('LOCK.ACQUIRE', key, 'EX', 600, 'WAIT', 600000, 'ID', n, 'NOTIFY', 'c') end";
    for (lines, name) in [(2_000, "k".repeat(4_000)), (100_000, "k".into())] {
        let options = Server::with().module_args(&["max-queued", "200000"]);
        let Some((server, iterations)) = Iterations::start(options) else { return };
        let mut locks = Locks::on(server);
        if !crate::notify::can_publish(&mut locks.conn) {
            return;
        }
        let case = format!("names of {} bytes", name.len());
        for from in (0..lines).step_by(1_000) {
            let (first, last) = ((from + 1).to_string(), (from + 1_000).to_string());
            assert_eq!(locks.conn.execute(&["EVAL", script, "1", &name, &first, &last]), Reply::Nil);
        }
        assert_eq!(locks.info("lock", "lock_waiters"), lines, "{case}");
        for command in [
            &["LOCK.TOP", "COUNT", "1000"][..],
            &["LOCK.TOP", "COUNT", "10"],
            &["LOCK.TOP", "BY", "wait", "COUNT", "1000"],
            &["LOCK.TOP", "BY", "held", "COUNT", "1000"],
            &["INFO", "lock"],
        ] {
            bound::cpu(&format!("{}, {case}", command.join(" ")), Duration::from_millis(5), || {
                Some(cost(&iterations, &mut locks.conn, command).1)
            });
        }
        if name.len() > 1 {
            // The locks that are not shown come later in the order.
            let rows = keys(&mut locks, &["BY", "wait", "COUNT", "1000"]);
            assert!((150..300).contains(&rows.len()), "{} rows", rows.len());
            assert_eq!(rows, keys(&mut locks, &["BY", "wait", "COUNT", &rows.len().to_string()]));
        }
    }
}
