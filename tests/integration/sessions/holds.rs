//! The end of a connection never affects a lock that no longer belongs to it, and never makes a lock last longer.

use super::{token_of, Scene, MARGIN_US};
use testkit::{timestamp_us, until, Conn};

/// A change of `k` before its holder disconnects, given the holder's token.
type Change = fn(&mut Scene, &mut Conn, &str);

const CHANGES: [(&str, Change); 11] = [
    ("released and taken by another", |scene, _, token| {
        assert_eq!(scene.locks.conn.int(&["LOCK.RELEASE", "k", token]), 1);
        scene.locks.hold();
    }),
    ("released, and taken again by the same client without SESSION", |_, conn, token| {
        assert_eq!(conn.int(&["LOCK.RELEASE", "k", token]), 1);
        conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]);
    }),
    ("handed to a waiter", |scene, conn, token| {
        let mut next = scene.wait();
        assert_eq!(conn.int(&["LOCK.RELEASE", "k", token]), 1);
        next.answer().list();
    }),
    ("deleted and taken by another", |scene, _, _| {
        scene.locks.conn.int(&["DEL", "k"]);
        scene.locks.hold();
    }),
    ("taken over by a classic client", |scene, _, _| {
        let far = scene.now_us() / 1_000_000 + 1000;
        scene.locks.conn.text(&["GETSET", "k", &far.to_string()]);
    }),
    ("overwritten with the token of a SET NX PX client", |scene, _, _| {
        scene.locks.conn.ok(&["SET", "k", "foreign", "PX", "30000"]);
    }),
    ("overwritten with another grant", |scene, _, _| {
        let other = scene.locks.conn.int(&["LOCK.ACQUIRE", "other", "PX", "30000"]);
        scene.locks.conn.ok(&["RENAME", "other", "k"]);
        let value = scene.value("k");
        assert_eq!(token_of(&value), other);
    }),
    ("expired and recovered by another", |scene, _, _| {
        let value = scene.value("k");
        scene.locks.conn.ok(&["SET", "k", &format!("1700000000.000000{}", &value[17..])]);
        scene.locks.conn.execute(&["LOCK.RECOVER", "k", "PX", "30000"]).list();
    }),
    ("cancelled and taken by another", |scene, _, _| {
        assert_eq!(scene.locks.conn.int(&["LOCK.CANCEL", "k", "7"]), 1);
        scene.locks.hold();
    }),
    ("expired already", |scene, _, _| {
        let value = scene.value("k");
        scene.locks.conn.ok(&["SET", "k", &format!("1700000000.000000{}", &value[17..])]);
    }),
    ("ends within the margin anyway", |scene, conn, token| {
        assert_eq!(conn.int(&["LOCK.EXTEND", "k", token, "PX", "1"]), 1);
        until("the lease has expired", || {
            let lease_end = timestamp_us(&scene.value("k")) - MARGIN_US;
            (scene.now_us() >= lease_end).then_some(())
        });
    }),
];

#[test]
fn a_lock_that_is_no_longer_its_own_is_left_alone() {
    for (name, change) in CHANGES {
        // Each case has a new server, because a cancelled ID gets nothing for a while.
        let mut scene = Scene::start();
        let mut holder = scene.hold_with(&["LOCK.ACQUIRE", "k", "PX", "30000", "SESSION", "ID", "7"]);
        change(&mut scene, &mut holder.conn, &holder.token.to_string());
        let before = scene.value("k");
        scene.end(holder.conn);
        assert_eq!(scene.value("k"), before, "{name}");
    }
}

#[test]
fn another_type_in_its_key_is_left_alone() {
    let mut scene = Scene::start();
    let holder = scene.hold();
    scene.locks.conn.int(&["DEL", "k"]);
    scene.locks.conn.int(&["RPUSH", "k", "a"]);
    scene.end(holder.conn);
    assert_eq!(scene.locks.conn.int(&["LLEN", "k"]), 1);
}

#[test]
fn a_lock_that_is_moved_is_bounded_by_its_lease() {
    let mut scene = Scene::start();
    let moves: [(&[&str], &str, &str); 3] =
        [(&["RENAME", "k", "there"], "0", "there"), (&["MOVE", "k", "1"], "1", "k"), (&["SWAPDB", "0", "1"], "1", "k")];
    for (command, db, key) in moves {
        let holder = scene.hold();
        let before = scene.value("k");
        scene.locks.conn.execute(command);
        scene.locks.conn.ok(&["SELECT", db]);
        let session = scene.session(key);
        scene.locks.conn.ok(&["SELECT", "0"]);
        scene.end(holder.conn);
        scene.locks.conn.ok(&["SELECT", db]);
        assert_eq!(scene.value(key), before, "{command:?}");
        assert_eq!(session, None, "{command:?}");
        scene.locks.conn.ok(&["FLUSHALL"]);
        scene.locks.conn.ok(&["SELECT", "0"]);
    }
}

#[test]
fn a_lock_that_is_extended_still_ends_with_its_connection() {
    let mut scene = Scene::start();
    for by_another in [false, true] {
        let mut holder = scene.hold();
        let token = holder.token.to_string();
        let conn = if by_another { &mut scene.locks.conn } else { &mut holder.conn };
        assert_eq!(conn.int(&["LOCK.EXTEND", "k", &token, "PX", "60000"]), 1);
        assert_eq!(scene.session("k"), Some(holder.id));
        scene.forget();
        let from = scene.now_us();
        drop(holder.conn);
        scene.until_ended(holder.token, from);
        scene.locks.conn.int(&["DEL", "k"]);
    }
}

#[test]
fn a_lock_without_session_outlives_its_connection() {
    let mut scene = Scene::start();
    let holder = scene.hold_with(&["LOCK.ACQUIRE", "k", "PX", "30000"]);
    let before = scene.value("k");
    assert_eq!(scene.session("k"), None);
    scene.end(holder.conn);
    assert_eq!(scene.value("k"), before);
}
