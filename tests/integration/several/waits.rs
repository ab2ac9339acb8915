//! How a wait for several locks ends: each way ends it once, in the lines of all its keys.

use super::{acquire, acquire_all};
use crate::support::{until, Reply};
use crate::waiting::{Locks, Waiter};

const KEYS: [&str; 3] = ["k", "l", "m"];

fn wait_for_all(locks: &mut Locks, options: &[&str]) -> Waiter {
    let all = ["LOCK.MACQUIRE", "3", "k", "l", "m", "EX", "60", "WAIT", "60000"];
    locks.wait_with(&[&all[..], options].concat())
}

/// In how many lines of the keys it stands: that of one that it cannot have.
fn lines(locks: &mut Locks) -> i64 {
    KEYS.map(|key| locks.conn.call(&["LOCK.INFO", key]).field("waiters").int()).iter().sum()
}

/// Nobody waits any more, and each lock goes to whoever asks next.
fn assert_all_left(locks: &mut Locks, held: &str) {
    until("it has left all lines", || (lines(locks) == 0).then_some(()));
    assert_eq!(locks.info("lock", "lock_waiters"), 0);
    let mut next = locks.wait_with(&["LOCK.MACQUIRE", "2", "l", "k", "EX", "60", "WAIT", "60000"]);
    assert_eq!(locks.conn.int(&["LOCK.RELEASE", "k", held]), 1);
    let token = next.granted().to_string();
    acquire(&mut locks.conn, &["m", "EX", "60"]);
    assert_eq!(locks.conn.int(&["LOCK.MRELEASE", "3", "k", "l", "m", &token]), 2);
}

fn ends(how: impl FnOnce(&mut Locks, Waiter)) {
    let mut locks = Locks::start();
    let held = locks.hold();
    let waiter = wait_for_all(&mut locks, &["ID", "7"]);
    assert_eq!(lines(&mut locks), 1);
    how(&mut locks, waiter);
    assert_all_left(&mut locks, &held);
}

#[test]
fn a_disconnect_ends_it_in_all_lines() {
    ends(|_, waiter| drop(waiter));
}

#[test]
fn a_kill_ends_it_in_all_lines() {
    ends(|locks, mut waiter| {
        assert_eq!(locks.conn.int(&["CLIENT", "KILL", "ID", &waiter.id]), 1);
        waiter.closed();
    });
}

#[test]
fn a_cancel_by_any_key_ends_it_in_all_lines() {
    for key in KEYS {
        ends(|locks, mut waiter| {
            assert_eq!(locks.conn.int(&["LOCK.CANCEL", key, "7"]), 1);
            waiter.refused();
            assert_eq!(locks.info("lock", "lock_places"), 0);
        });
    }
}

#[test]
fn client_unblock_ends_it_in_all_lines_where_the_server_can() {
    for (how, ends_in_error) in [("TIMEOUT", false), ("ERROR", true)] {
        ends(|locks, mut waiter| {
            let (is_valkey, major, minor) = locks.version();
            let can = if is_valkey { major >= 8 } else { (major, minor) >= (7, 4) };
            assert_eq!(locks.conn.int(&["CLIENT", "UNBLOCK", &waiter.id, how]), i64::from(can));
            if !can {
                waiter.assert_waits();
                drop(waiter);
            } else if ends_in_error {
                waiter.failed("UNBLOCKED");
            } else {
                waiter.refused();
            }
        });
    }
}

#[test]
fn a_newer_call_with_its_id_takes_its_place_also_for_other_keys() {
    let mut locks = Locks::start();
    let held = locks.hold();
    let mut first = wait_for_all(&mut locks, &["ID", "7"]);
    let mut later = locks.wait_with(&["LOCK.ACQUIRE", "k", "EX", "60", "WAIT", "60000"]);
    // The same keys: in its place.
    let mut second = locks.wait_with(&["LOCK.MACQUIRE", "3", "m", "l", "k", "EX", "60", "WAIT", "60000", "ID", "7"]);
    first.failed("UNBLOCKED");
    assert_eq!(lines(&mut locks), 2);
    // Others: behind.
    let mut third = locks.wait_with(&["LOCK.MACQUIRE", "2", "k", "x", "EX", "60", "WAIT", "60000", "ID", "7"]);
    second.failed("UNBLOCKED");
    assert_eq!(lines(&mut locks), 2);
    locks.release(held);
    let token = later.granted();
    third.assert_waits();
    locks.release(token);
    third.granted();
}

#[test]
fn a_time_out_keeps_the_place_in_all_lines() {
    let mut locks = Locks::start();
    let held = acquire_all(&mut locks.conn, &["k", "l"], &["EX", "60"]);
    let brief = ["LOCK.MACQUIRE", "2", "k", "l", "EX", "60", "ID", "7", "WAIT", "50"];
    let mut first = locks.wait_with(&brief);
    first.refused();
    assert_eq!(locks.info("lock", "lock_places"), 1);
    let mut single = locks.wait_with(&["LOCK.ACQUIRE", "l", "EX", "60", "WAIT", "60000"]);
    let mut all = locks.wait_with(&["LOCK.MACQUIRE", "2", "l", "k", "EX", "60", "ID", "7", "WAIT", "60000"]);
    assert_eq!(locks.conn.int(&["LOCK.MRELEASE", "2", "k", "l", &held]), 2);
    // It came first, although it was away.
    let token = all.granted().to_string();
    single.assert_waits();
    assert_eq!(locks.conn.int(&["LOCK.MRELEASE", "2", "k", "l", &token]), 2);
    single.granted();
}

#[test]
fn a_demotion_ends_it_and_those_who_share() {
    let mut locks = Locks::start();
    locks.hold();
    let mut waiters = [
        wait_for_all(&mut locks, &[]),
        locks.wait_with(&["LOCK.ACQUIRE", "k", "EX", "60", "WAIT", "60000", "SHARED"]),
        locks.wait_with(&["LOCK.ACQUIRE", "k", "EX", "60", "WAIT", "60000", "LIMIT", "2"]),
    ];
    locks.conn.ok(&["REPLICAOF", "127.0.0.1", "1"]);
    for waiter in &mut waiters {
        // The server itself says so, and then closes the connection or not.
        if let Ok(reply) = waiter.conn.try_read() {
            assert!(reply.error().starts_with("UNBLOCKED "), "{reply:?}");
        }
    }
    locks.conn.ok(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(locks.info("lock", "lock_waiters"), 0);
    assert_eq!(locks.conn.int(&["EXISTS", "l", "m"]), 0);
}

#[test]
fn one_waiter_too_many_is_told_so_whatever_it_waits_for() {
    let mut locks = Locks::with(&["max-waiters", "2"]);
    locks.hold();
    let _waiters = [wait_for_all(&mut locks, &[]), locks.wait(&["SHARED"])];
    for call in ["LOCK.MACQUIRE 2 k x EX 5 WAIT 1000", "LOCK.ACQUIRE k EX 5 WAIT 1000 LIMIT 2"] {
        let reply = locks.conn.call(&call.split(' ').collect::<Vec<_>>());
        assert!(reply.error().starts_with("BUSYLOCKS "), "{call}: {reply:?}");
    }
    // What can be had at once needs no wait.
    acquire_all(&mut locks.conn, &["x", "y"], &["EX", "5", "WAIT", "1000"]);
}

#[test]
fn a_transaction_and_a_script_do_not_wait_for_several_and_take_them_as_one() {
    let mut locks = Locks::start();
    let held = locks.hold();
    let all = ["LOCK.MACQUIRE", "2", "k", "l", "EX", "60", "WAIT", "60000"];
    let shared = ["LOCK.ACQUIRE", "k", "EX", "60", "WAIT", "60000", "SHARED"];
    locks.conn.ok(&["MULTI"]);
    locks.conn.text(&all);
    locks.conn.text(&shared);
    assert!(locks.conn.call(&["EXEC"]).list().iter().all(Reply::is_nil));
    for call in [&all[..], &shared] {
        let eval = [&["EVAL", "return redis.call(unpack(ARGV))", "2", "k", "l"], call].concat();
        assert!(locks.conn.call(&eval).is_nil(), "{call:?}");
    }
    assert_eq!(locks.info("lock", "lock_waiters"), 0);
    locks.release(held);
    // And what they take is released in the same one.
    let script = "local token = redis.call('LOCK.MACQUIRE', 2, KEYS[1], KEYS[2], 'EX', 60) \
                  local busy = redis.call('LOCK.ACQUIRE', KEYS[2], 'EX', 60, 'SHARED') \
                  return {token, busy, redis.call('LOCK.MRELEASE', 2, KEYS[1], KEYS[2], token)}";
    let reply = locks.conn.call(&["EVAL", script, "2", "k", "l"]);
    assert!(reply.list()[0].int() > 0 && reply.list()[1].is_nil(), "{reply:?}");
    assert_eq!(reply.list()[2].int(), 2);
    assert_eq!(locks.conn.int(&["DBSIZE"]), 0);
}
