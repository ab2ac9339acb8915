//! Replies to a client that waits or wants to: its token or the details in either protocol, the errors that refuse a
//! wait, and what others see of the queue.

use super::{Locks, Waiter};
use crate::kinds::{acquire_all, Row, KINDS};
use testkit::{server_time_us, timestamp_us, until, Conn, Reply};

const WAIT: [&str; 6] = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000"];

fn resp3(locks: &Locks) -> Conn {
    let mut conn = locks.server.conn();
    assert_eq!(conn.execute(&["HELLO", "3"]).field("proto"), Reply::Int(3));
    conn
}

fn raw(conn: &mut Conn, args: &[&str]) -> String {
    String::from_utf8(conn.raw(args)).unwrap()
}

#[test]
fn a_timeout_replies_with_the_right_kind_of_nil() {
    let mut locks = Locks::start();
    locks.hold();
    let wait = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "20"];
    let details = [&wait[..], &["DETAILS"]].concat();
    let (mut two, mut three) = (locks.server.conn(), resp3(&locks));
    assert_eq!(raw(&mut two, &wait), "$-1\r\n");
    assert_eq!(raw(&mut two, &details), "*-1\r\n");
    assert_eq!(raw(&mut three, &wait), "_\r\n");
    assert_eq!(raw(&mut three, &details), "_\r\n");
}

#[test]
fn a_grant_after_a_release_has_no_predecessor() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let details = [&WAIT[..], &["DETAILS"]].concat();
    let mut two = locks.wait_with(&details);
    let conn = resp3(&locks);
    let mut three = locks.wait_on(conn, &details);
    locks.release(token);
    let reply = two.answer();
    assert_eq!(reply.list()[1..], [Reply::Nil, Reply::Nil, Reply::Nil]);
    locks.release(reply.list()[0].int());
    let reply = three.answer();
    assert_eq!(reply.list()[1..], [Reply::Nil, Reply::Nil, Reply::Nil]);
}

#[test]
fn a_grant_after_an_expired_lease_names_its_predecessor() {
    let mut locks = Locks::start();
    for resp in [2, 3] {
        let token = locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", "50", "OWNER", "alice"]);
        let mut conn = if resp == 3 { resp3(&locks) } else { locks.server.conn() };
        let reply = conn.execute(&[&WAIT[..], &["DETAILS"]].concat());
        assert!(reply.list()[0].int() > token);
        assert!((0..10_000).contains(&reply.list()[1].int()), "{reply:?}");
        assert_eq!(reply.list()[2..], [Reply::Int(token), Reply::Text(b"alice".into())]);
        locks.release(reply.list()[0].int());
    }
}

#[test]
fn the_grant_of_a_waiter_is_in_the_key() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let mut waiter = locks.wait(&["ID", "42", "OWNER", "alice"]);
    locks.release(token);
    let granted = waiter.granted();
    let value = locks.conn.text(&["GET", "k"]);
    assert_eq!(value[17..], format!("{granted:016}0000000000000000042 alice"));
}

#[test]
fn a_lease_starts_at_the_grant() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let mut waiters = [
        locks.wait_with(&["LOCK.ACQUIRE", "k", "PX", "5000", "WAIT", "30000"]),
        locks.wait_with(&["LOCK.ACQUIRE", "k", "PX", "5000", "WAIT", "30000"]),
    ];
    waiters[0].assert_waits();
    let from = server_time_us(&mut locks.conn);
    locks.release(token);
    let granted = waiters[0].granted();
    let to = server_time_us(&mut locks.conn);
    let timestamp = timestamp_us(&locks.conn.text(&["GET", "k"]));
    assert!((from..=to).contains(&(timestamp - 5_000_000)), "by hand-off");
    // The timer grants it too.
    let from = server_time_us(&mut locks.conn);
    assert_eq!(locks.conn.int(&["LOCK.EXTEND", "k", &granted.to_string(), "PX", "10"]), 1);
    waiters[1].granted();
    let to = server_time_us(&mut locks.conn);
    let timestamp = timestamp_us(&locks.conn.text(&["GET", "k"]));
    assert!((from..=to).contains(&(timestamp - 5_000_000)), "the timer granted it");
}

#[test]
fn blocked_waits_count_once_more_per_16_kb_of_names() {
    type End = fn(&mut Locks, Waiter, &mut String);
    fn with<'a>(call: &'a [String], rest: &[&'a str]) -> Vec<&'a str> {
        call.iter().map(String::as_str).chain(rest.iter().copied()).collect()
    }
    // With names of 32,001 bytes they count twice, and with 49,149 three times.
    let names = |count: usize| -> Vec<String> { (0..count).map(|n| format!("{n:0>4000}")).collect() };
    let long = |names: &[String], last: &str| -> Vec<String> {
        let names = names.iter().map(String::as_str).chain([last]).collect::<Vec<_>>();
        let count = names.len().to_string();
        let call = [&["LOCK.MACQUIRE", &count], &names[..], &["PX", "30000", "WAIT"]].concat();
        call.into_iter().map(Into::into).collect()
    };
    let (two, three) = (long(&names(8), "k"), long(&names(12), &"k".repeat(1_149)));
    let mut locks = Locks::with(&["max-waiters", "3"]);
    let mut token = locks.hold();
    acquire_all(&mut locks.conn, &[&"k".repeat(1_149), "other"], &["PX", "30000"]);
    let other = ["LOCK.ACQUIRE", "other", "PX", "30000", "WAIT", "30000"];
    let ends: [(&str, &str, End); 4] = [
        ("granted", "30000", |locks, mut waiter, token| {
            locks.release(&token);
            let granted = waiter.conn.read().int();
            // The locks with the long names are held too.
            locks.release(granted);
            locks.conn.ok(&["FLUSHDB"]);
            locks.conn.int(&["LOCK.ACQUIRE", "other", "PX", "30000"]);
            locks.conn.int(&["LOCK.ACQUIRE", &"k".repeat(1_149), "PX", "30000"]);
            *token = locks.hold();
        }),
        ("timed out", "3000", |_, mut waiter, _| assert!(waiter.conn.read().is_nil())),
        ("cancelled", "30000", |locks, mut waiter, _| {
            assert_eq!(locks.conn.int(&["LOCK.CANCEL", "k", "8"]), 1);
            assert!(waiter.conn.read().is_nil());
        }),
        ("gone", "30000", |locks, waiter, _| {
            drop(waiter);
            locks.until_waiters(0);
        }),
    ];
    // This wait alone is too large, although nobody waits.
    let refused = locks.conn.execute(&with(&long(&names(20), "k"), &["30000"]));
    assert_eq!(refused.error(), "BUSYLOCKS lock.max-waiters would be exceeded by this wait");
    assert_eq!(locks.info("lock", "lock_blocked"), 0);
    for (id, (name, wait, end)) in ["6", "7", "8", "9"].into_iter().zip(ends) {
        let _row = Row::of(name);
        // All of these fit, so nothing is left of the previous wait.
        let last = locks.wait_with(&with(&three, &["30000"]));
        assert!(locks.conn.execute(&other).error().starts_with("BUSYLOCKS "));
        drop(last);
        until("it has left", || (locks.info("lock", "lock_blocked") == 0).then_some(()));
        let waiter = locks.wait_with(&with(&two, &[wait, "ID", id]));
        let one = locks.wait_with(&other);
        assert!(locks.conn.execute(&other).error().starts_with("BUSYLOCKS "));
        assert!(locks.conn.execute(&with(&two, &["30000"])).error().starts_with("BUSYLOCKS "));
        assert_eq!(locks.info("lock", "lock_blocked"), 2, "the field counts clients");
        drop(one);
        end(&mut locks, waiter, &mut token);
        until("all have left", || (locks.info("lock", "lock_blocked") == 0).then_some(()));
    }
}

#[test]
fn one_waiter_too_many_is_refused() {
    let mut locks = Locks::with(&["max-waiters", "2"]);
    let token = locks.hold();
    locks.conn.int(&["LOCK.ACQUIRE", "other", "PX", "30000"]);
    let (mut first, second) = (locks.wait(&["ID", "7"]), locks.wait(&[]));
    let refuses = |locks: &mut Locks, call: &[&str]| {
        let reply = locks.conn.execute(call);
        assert!(reply.error().starts_with("BUSYLOCKS "), "{call:?}: {reply:?}");
    };
    refuses(&mut locks, &["LOCK.ACQUIRE", "other", "PX", "30000", "WAIT", "30000"]);
    for kind in KINDS {
        refuses(&mut locks, &kind.acquire(&["PX", "30000", "WAIT", "30000"]));
    }
    // An immediate grant does not wait.
    acquire_all(&mut locks.conn, &["x", "y"], &["PX", "30000", "WAIT", "1000"]);
    // A client that does not wait is refused as usual, and a waiting one may send again.
    assert!(locks.conn.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "0"]).is_nil());
    let mut again = locks.wait(&["ID", "7"]);
    first.failed("UNBLOCKED");
    // A client that left made room.
    drop(second);
    locks.until_waiters(1);
    let mut third = locks.wait(&[]);
    locks.release(token);
    let granted = again.granted();
    locks.release(granted);
    third.granted();
}

#[test]
fn a_newcomer_never_overtakes_the_queue() {
    let mut locks = Locks::start();
    locks.hold();
    let mut waiter = locks.wait(&[]);
    // In the same iteration as the release, before the lock is handed off.
    for newcomer in [
        &["LOCK.ACQUIRE", "k", "PX", "30000"][..],
        &["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "9"],
        &["LOCK.ACQUIRE", "k", "PX", "30000", "DETAILS"],
        &["LOCK.RECOVER", "k", "PX", "30000"],
        &["LOCK.RECOVER", "k", "PX", "30000", "ID", "9"],
    ] {
        for free in [&["DEL", "k"][..], &["SET", "k", "1763710031"]] {
            let again = ["SET", "k", "99999999999"];
            let replies = locks.in_one_turn(&[&["MULTI"], free, newcomer, &again, &["EXEC"]]);
            assert!(replies[4].list()[1].is_nil(), "{free:?} {newcomer:?}: {replies:?}");
        }
    }
    assert_eq!(locks.waiters(), 1);
    assert_eq!(locks.conn.int(&["DEL", "k"]), 1);
    waiter.granted();
}

#[test]
fn each_database_has_its_own_queues() {
    let mut locks = Locks::start();
    let mut queues = Vec::new();
    for db in ["0", "1", "2"] {
        let mut conn = locks.server.conn();
        conn.ok(&["SELECT", db]);
        let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]).to_string();
        let mut waiting = locks.server.conn();
        waiting.ok(&["SELECT", db]);
        queues.push((conn, token, locks.wait_on(waiting, &WAIT)));
    }
    // A client that was in one database frees a lock in another.
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        let target = to.to_string();
        let token = queues[to].1.clone();
        let conn: &mut Conn = &mut queues[from].0;
        conn.ok(&["SELECT", &target]);
        assert_eq!(conn.int(&["LOCK.RELEASE", "k", &token]), 1);
        let granted = queues[to].2.granted();
        assert!(queues[from].0.int(&["LOCK.CHECK", "k", &granted.to_string()]) > 0);
    }
}

#[test]
fn a_script_that_selects_another_database_wakes_the_queue_there() {
    let mut locks = Locks::start();
    let mut conn = locks.server.conn();
    conn.ok(&["SELECT", "5"]);
    conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]);
    let mut waiting = locks.server.conn();
    waiting.ok(&["SELECT", "5"]);
    let mut waiter = locks.wait_on(waiting, &WAIT);
    let script = "redis.call('SELECT', 5) return redis.call('DEL', 'k')";
    assert_eq!(locks.conn.int(&["EVAL", script, "0"]), 1);
    let granted = waiter.granted();
    assert!(conn.int(&["LOCK.CHECK", "k", &granted.to_string()]) > 0);
}

#[test]
fn waits_for_different_keys_are_independent() {
    let mut locks = Locks::start();
    let keys = ["a", "b\0c", "b", "", "a b"];
    let tokens = keys.map(|key| locks.conn.int(&["LOCK.ACQUIRE", key, "PX", "30000"]).to_string());
    // The longest permitted wait.
    let mut waiters =
        keys.map(|key| locks.wait_with(&["LOCK.ACQUIRE", key, "PX", "30000", "WAIT", "315360000000", "OWNER", "w"]));
    for n in [2, 0, 4, 1, 3] {
        assert_eq!(locks.conn.int(&["LOCK.RELEASE", keys[n], &tokens[n]]), 1);
        let granted = waiters[n].granted().to_string();
        assert!(locks.conn.int(&["LOCK.CHECK", keys[n], &granted]) > 0, "{:?}", keys[n]);
    }
}
