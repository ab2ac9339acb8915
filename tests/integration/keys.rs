//! Several keys at once: all of them or none, with one token. Waiters for several keys delay no other client, other
//! clients keep their locks, each key needs its own permission, and all keys have to be in one slot.

mod kept;
mod long;
mod many;
mod pieces;

use crate::cluster::in_memory;
use crate::kinds::{acquire, acquire_all, Row};
use crate::waiting::Locks;
use testkit::{server_time_us, until, Conn, Reply, Server};

#[test]
fn several_locks_are_taken_extended_and_released_together() {
    let server = Server::start();
    let mut conn = server.conn();
    let token = acquire_all(&mut conn, &["a", "b", "c"], &["EX", "10", "ID", "5", "OWNER", "me"]);
    let values: Vec<String> = ["a", "b", "c"].iter().map(|key| conn.text(&["GET", key])).collect();
    assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
    assert_eq!(acquire_all(&mut conn, &["c", "a", "b"], &["EX", "60", "ID", "5"]), token);
    assert!(conn.int(&["LOCK.CHECK", "b", &token]) > 50_000);
    for others in [&["a", "d"][..], &["a", "b"], &["d", "c", "e"]] {
        let count = others.len().to_string();
        let call = [&["LOCK.MACQUIRE", &count], others, &["EX", "10", "ID", "6"]].concat();
        assert!(conn.execute(&call).is_nil(), "{others:?}");
    }
    // The attempt with this ID holds only some of the keys.
    assert!(conn.execute(&["LOCK.MACQUIRE", "2", "a", "d", "EX", "10", "ID", "5"]).is_nil());
    assert_eq!(conn.int(&["EXISTS", "d", "e"]), 0);
    assert_eq!(conn.int(&["LOCK.MEXTEND", "3", "a", "b", "c", &token, "EX", "20"]), 1);
    assert_eq!(conn.int(&["LOCK.RELEASE", "b", &token]), 1);
    assert_eq!(conn.int(&["LOCK.MEXTEND", "3", "a", "b", "c", &token, "EX", "90"]), 0);
    assert!(conn.int(&["LOCK.CHECK", "a", &token]) <= 20_000, "nothing has changed");
    assert_eq!(conn.int(&["LOCK.MRELEASE", "3", "a", "b", "c", &token]), 2);
    assert_eq!(conn.int(&["DBSIZE"]), 0);
}

#[test]
fn locks_of_others_are_not_released_with_several() {
    let server = Server::start();
    let mut conn = server.conn();
    let own = acquire_all(&mut conn, &["a", "b"], &["EX", "60"]);
    let other = acquire(&mut conn, &["c", "EX", "60"]);
    let shared = acquire(&mut conn, &["d", "EX", "60", "SHARED"]);
    assert_eq!(conn.int(&["LOCK.MRELEASE", "4", "a", "b", "c", "d", &other]), 1);
    assert_eq!(conn.int(&["LOCK.MRELEASE", "4", "d", "c", "b", "a", &own]), 2);
    assert!(conn.int(&["LOCK.CHECK", "d", &shared]) > 0);
    assert_eq!(conn.int(&["DBSIZE"]), 1);
}

#[test]
fn each_of_several_locks_has_a_predecessor_of_its_own() {
    // At once, and after a wait.
    for (keys, waits) in [(["a", "b"], false), (["b", "a"], false), (["b", "a"], true)] {
        let _row = Row::of((keys, waits));
        let mut locks = Locks::start();
        let before = acquire(&mut locks.conn, &["a", "PX", "1", "OWNER", "alice"]);
        let held = waits.then(|| acquire(&mut locks.conn, &["b", "EX", "60"]));
        let is_over = |conn: &mut Conn| conn.state("a") == "expired";
        until("it has expired", || is_over(&mut locks.conn).then_some(()));
        let take = ["LOCK.MACQUIRE", "2", keys[0], keys[1], "EX", "60", "ID", "7"];
        let token = match held {
            Some(held) => {
                let mut waiter = locks.wait_with(&[&take[..], &["WAIT", "60000"]].concat());
                assert_eq!(locks.conn.int(&["LOCK.RELEASE", "b", &held]), 1);
                waiter.granted()
            }
            None => locks.conn.int(&take),
        };
        for _ in 0..2 {
            let details = |locks: &mut Locks, key| {
                locks.conn.execute(&["LOCK.ACQUIRE", key, "EX", "60", "ID", "7", "DETAILS"]).list().to_vec()
            };
            let nobody = [Reply::Int(token), Reply::Nil, Reply::Nil, Reply::Nil];
            assert_eq!(details(&mut locks, "b"), nobody, "nobody let b expire");
            let of_a = details(&mut locks, "a");
            assert_eq!((of_a[0].int(), of_a[2].int().to_string()), (token, before.clone()));
            assert_eq!(of_a[3].text(), "alice");
            assert_eq!(locks.conn.int(&take), token);
        }
    }
}

#[test]
fn several_locks_are_granted_when_all_are_free() {
    let mut locks = Locks::start();
    let [a, b] = ["a", "b"].map(|key| acquire(&mut locks.conn, &[key, "EX", "60"]));
    let mut all = locks.wait_with(&["LOCK.MACQUIRE", "3", "a", "b", "c", "EX", "60", "WAIT", "60000"]);
    // c is free, and other clients can still take it.
    let c = acquire(&mut locks.conn, &["c", "EX", "60"]);
    let mut behind = locks.wait_with(&["LOCK.ACQUIRE", "a", "EX", "60", "WAIT", "60000"]);
    assert_eq!(locks.conn.int(&["LOCK.RELEASE", "a", &a]), 1);
    let a = behind.granted().to_string();
    assert_eq!(locks.conn.int(&["LOCK.RELEASE", "b", &b]), 1);
    assert_eq!(locks.conn.int(&["EXISTS", "b"]), 0, "no key is reserved");
    assert_eq!(locks.conn.int(&["LOCK.RELEASE", "c", &c]), 1);
    all.assert_waits();
    assert_eq!(locks.conn.int(&["LOCK.RELEASE", "a", &a]), 1);
    let held = all.granted().to_string();
    assert_eq!(locks.conn.int(&["LOCK.MRELEASE", "3", "a", "b", "c", &held]), 3);
    assert_eq!(locks.conn.int(&["DBSIZE"]), 0);
}

#[test]
fn a_waiter_for_several_locks_queues_behind_earlier_ones() {
    let mut locks = Locks::start();
    let held = acquire_all(&mut locks.conn, &["a", "b"], &["EX", "60"]);
    let single = ["LOCK.ACQUIRE", "b", "EX", "60", "WAIT", "60000"];
    let mut first = locks.wait_with(&single);
    let mut all = locks.wait_with(&["LOCK.MACQUIRE", "2", "a", "b", "EX", "60", "WAIT", "60000"]);
    let mut later = locks.wait_with(&single);
    assert_eq!(locks.conn.int(&["LOCK.MRELEASE", "2", "a", "b", &held]), 2);
    let b = first.granted().to_string();
    all.assert_waits();
    assert_eq!(locks.conn.int(&["LOCK.RELEASE", "b", &b]), 1);
    let held = all.granted().to_string();
    // It arrived later.
    later.assert_waits();
    assert_eq!(locks.conn.int(&["LOCK.MRELEASE", "2", "a", "b", &held]), 2);
    later.granted();
}

#[test]
fn the_last_free_key_grants_several_at_once() {
    const ROUNDS: usize = 15;
    let mut locks = Locks::start();
    let mut delay = |last: usize, round: usize| {
        let names = [0, 1, 2].map(|key| format!("{last}-{round}-{key}"));
        let keys = names.each_ref().map(String::as_str);
        let held = keys.map(|key| acquire(&mut locks.conn, &[key, "EX", "60"]));
        let call = [&["LOCK.MACQUIRE", "3"], &keys[..], &["EX", "60", "WAIT", "60000"]].concat();
        let mut waiter = locks.wait_with(&call);
        let mut release = |at: usize| assert_eq!(locks.conn.int(&["LOCK.RELEASE", keys[at], &held[at]]), 1);
        (0..3).filter(|at| *at != last).for_each(&mut release);
        let before = server_time_us(&mut locks.server.conn());
        release(last);
        // A token is the time of its grant.
        waiter.granted() - before
    };
    for last in 0..3 {
        let mut delays: Vec<i64> = (0..ROUNDS).map(|round| delay(last, round)).collect();
        delays.sort_unstable();
        // A pass over all queues would happen within 900 ms. A busy machine may delay some.
        assert!(delays[ROUNDS / 2] < 100_000, "{last}: {delays:?}");
    }
}

const CALLS: [&[&str]; 3] = [
    &["LOCK.MACQUIRE", "2", "app:a", "app:b", "EX", "60"],
    &["LOCK.MEXTEND", "2", "app:a", "app:b", "1", "EX", "60"],
    &["LOCK.MRELEASE", "2", "app:a", "app:b", "1"],
];

#[test]
fn one_forbidden_key_refuses_the_command() {
    let server = Server::start();
    let mut admin = server.conn();
    admin.ok(&["ACL", "SETUSER", "app", "on", "nopass", "~app:*", "+@all"]);
    let mut conn = server.conn();
    conn.ok(&["AUTH", "app", "any"]);
    for call in CALLS {
        let keys = conn.execute(&[&["COMMAND", "GETKEYS"], call].concat());
        assert_eq!(keys.list().iter().map(Reply::text).collect::<Vec<_>>(), ["app:a", "app:b"], "{call:?}");
        assert!(!matches!(conn.execute(call), Reply::Error(_)), "{call:?}");
        for at in [2, 3] {
            let mut other = call.to_vec();
            other[at] = "other";
            assert!(conn.execute(&other).error().starts_with("NOPERM "), "{other:?}");
        }
    }
    for wrong in ["0", "-1", "5", "1025", "99999999999999999999", "x"] {
        let call = ["COMMAND", "GETKEYS", "LOCK.MRELEASE", wrong, "a", "b", "1"];
        assert!(conn.execute(&call).error().starts_with("ERR "), "{wrong}");
    }
    // The server finds keys only behind a number without zeros in front. Otherwise it would not check permissions.
    for hidden in ["02", "+2", " 2", "2 ", "00000000000000000002"] {
        let refused = conn.execute(&["LOCK.MACQUIRE", hidden, "other", "more", "EX", "60"]);
        assert!(matches!(&refused, Reply::Error(_)), "{hidden}: {refused:?}");
    }
    assert_eq!(admin.int(&["EXISTS", "other"]), 0);
    // The command itself refuses an invalid number of keys.
    assert!(conn.execute(&["LOCK.MACQUIRE", "9", "app:a", "EX", "60"]).error().contains("numkeys"));
}

#[test]
fn each_key_needs_permission_for_its_access() {
    let server = Server::start();
    let mut admin = server.conn();
    if admin.execute(&["ACL", "SETUSER", "mixed", "on", "nopass", "%RW~app:a", "%W~app:b", "%R~app:c", "+@all"])
        != Reply::Status("OK".into())
    {
        eprintln!("skipped: this server has no separate key permissions for reading and writing");
        return;
    }
    let mut conn = server.conn();
    conn.ok(&["AUTH", "mixed", "any"]);
    // MACQUIRE reads and writes all of the keys; the other commands only write them.
    let [take, extend, release] = CALLS;
    assert!(conn.execute(take).error().starts_with("NOPERM "));
    assert_eq!(conn.int(extend), 0);
    assert_eq!(conn.int(release), 0);
    for call in CALLS {
        let mut other = call.to_vec();
        other[3] = "app:c";
        assert!(conn.execute(&other).error().starts_with("NOPERM "), "{other:?}");
        // This holds in a transaction too.
        conn.ok(&["MULTI"]);
        assert!(conn.execute(&other).error().starts_with("NOPERM "), "{other:?}");
        assert!(conn.execute(&["EXEC"]).error().starts_with("EXECABORT "));
    }
    assert_eq!(admin.int(&["DBSIZE"]), 0);
}

#[test]
fn keys_in_a_cluster_must_share_a_slot() {
    let cluster = in_memory();
    let mut conn = cluster.master_of("{s}a").conn();
    let token = conn.int(&["LOCK.MACQUIRE", "2", "{s}a", "{s}b", "PX", "60000"]).to_string();
    let elsewhere = cluster.a_key_for_each_master("several");
    for call in [
        &["LOCK.MACQUIRE", "2", "{s}a", &elsewhere[0], "PX", "5"][..],
        &["LOCK.MEXTEND", "2", "{s}a", &elsewhere[1], &token, "PX", "5"],
        &["LOCK.MRELEASE", "2", "{s}a", &elsewhere[2], &token],
    ] {
        assert!(conn.execute(call).error().starts_with("CROSSSLOT "), "{call:?}");
        conn.ok(&["MULTI"]);
        let mut refused = conn.execute(call);
        if matches!(refused, Reply::Status(_)) {
            refused = conn.execute(&["EXEC"]).list()[0].clone();
        }
        assert!(refused.error().starts_with("CROSSSLOT "), "{call:?}: {refused:?}");
        conn.execute(&["DISCARD"]);
        let script = "return redis.pcall(unpack(ARGV))";
        let refused = conn.execute(&[&["EVAL", script, "1", "{s}a"], call].concat());
        assert!(["slot", "non local key"].iter().any(|text| refused.error().contains(text)), "{call:?}: {refused:?}");
    }
    // The server looks at the first key itself.
    for first in &elsewhere {
        let call = ["LOCK.MEXTEND", "2", first, "{s}a", &token, "PX", "5"];
        assert!(["CROSSSLOT ", "MOVED "].iter().any(|code| conn.execute(&call).error().starts_with(code)), "{call:?}");
    }
    let mut other = cluster.other_master("{s}a").conn();
    assert!(other.execute(&["LOCK.MRELEASE", "2", "{s}a", "{s}b", &token]).error().starts_with("MOVED "));
    assert_eq!(conn.int(&["LOCK.MRELEASE", "2", "{s}a", "{s}b", &token]), 2);
}
