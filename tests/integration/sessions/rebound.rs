//! A lock ends with the connection on which its ID was last sent, before and after the first connection has ended.

use super::{Scene, MARGIN_US};
use crate::kinds::{Kind, Row};
use testkit::{timestamp_us, until, Conn};

const AGAIN: [&str; 7] = ["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7", "SESSION"];
const AGAIN_UNBOUND: [&str; 6] = ["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"];

/// A connection that sends the holder's ID again: it gets the same token.
fn again(scene: &Scene, args: &[&str], token: i64) -> (Conn, String) {
    let mut conn = scene.locks.server.conn();
    let id = conn.int(&["CLIENT", "ID"]).to_string();
    assert_eq!(conn.int(args), token);
    (conn, id)
}

#[test]
fn it_belongs_to_the_newer_connection() {
    let mut scene = Scene::start();
    let holder = scene.hold_with(&AGAIN);
    let (newer, id) = again(&scene, &AGAIN, holder.token);
    assert_eq!(scene.session("k"), Some(id.clone()));
    let before = scene.value("k");
    scene.end(holder.conn);
    assert_eq!(scene.value("k"), before);
    assert_eq!(scene.session("k"), Some(id));
    scene.forget();
    let from = scene.now_us();
    drop(newer);
    scene.until_ended(holder.token, from);
}

#[test]
fn a_newer_connection_owns_shared_and_several_locks_too() {
    for kind in [Kind::Shared, Kind::Several] {
        let _row = Row::of(kind);
        let mut scene = Scene::with_margin(60_000);
        let take = kind.acquire(&["EX", "600", "ID", "5", "SESSION"]);
        let holder = scene.hold_with(&take);
        let (newer, id) = again(&scene, &take, holder.token);
        for key in kind.keys() {
            assert_eq!(scene.session(key), Some(id.clone()), "{key}");
        }
        drop(holder.conn);
        scene.until_gone(&holder.id);
        scene.locks.conn.execute(&["PING"]);
        let token = holder.token.to_string();
        for key in kind.keys() {
            assert!(scene.locks.conn.int(&["LOCK.CHECK", key, &token]) > 500_000, "{key}");
        }
        // Without SESSION the lock is not bound to a connection.
        if kind == Kind::Several {
            let (_none, _) = again(&scene, &kind.acquire(&["EX", "600", "ID", "5"]), holder.token);
            assert!(kind.keys().iter().all(|key| scene.session(key).is_none()));
        }
        drop(newer);
        scene.until_gone(&id);
        scene.locks.conn.execute(&["PING"]);
        let has_ended = |scene: &mut Scene| scene.locks.conn.int(&["LOCK.CHECK", "k", &token]) == 0;
        if kind == Kind::Several {
            assert!(!has_ended(&mut scene));
        } else {
            until("it ends", || has_ended(&mut scene).then_some(()));
        }
    }
}

#[test]
fn without_session_it_belongs_to_no_connection() {
    let mut scene = Scene::start();
    let holder = scene.hold_with(&AGAIN);
    let (newer, _) = again(&scene, &AGAIN_UNBOUND, holder.token);
    assert_eq!(scene.session("k"), None);
    let before = scene.value("k");
    scene.end(holder.conn);
    scene.end(newer);
    assert_eq!(scene.value("k"), before);
    // The lock can be bound again.
    let (bound, id) = again(&scene, &AGAIN, holder.token);
    assert_eq!(scene.session("k"), Some(id));
    scene.forget();
    let from = scene.now_us();
    drop(bound);
    scene.until_ended(holder.token, from);
}

#[test]
fn a_holder_that_returns_within_the_margin_gets_its_lease_back() {
    let mut scene = Scene::with_margin(5_000);
    let holder = scene.hold_with(&AGAIN);
    scene.forget();
    let from = scene.now_us();
    drop(holder.conn);
    scene.until_ended(holder.token, from);
    let back = scene.now_us();
    let (conn, id) = again(&scene, &AGAIN, holder.token);
    assert!(timestamp_us(&scene.value("k")) >= back + 35_000_000);
    assert_eq!(scene.session("k"), Some(id));
    scene.forget();
    let from = scene.now_us();
    drop(conn);
    scene.until_ended(holder.token, from);
}

/// A holder is killed and sends a command in the same iteration, on a connection that stays: its lease runs from then
/// on.
fn assert_good_after_end(scene: &mut Scene, id: &str, then: &[&str]) {
    let from = scene.now_us();
    let replies = scene.locks.in_one_turn(&[&["CLIENT", "KILL", "ID", id], then]);
    assert_eq!(replies[0].int(), 1);
    assert!(replies[1].int() > 0, "{replies:?}");
    // The server has handled the end of the first connection once another lock of that connection has ended.
    until("the other lock has ended", || scene.sent_for("zz").into_iter().next());
    let timestamp = timestamp_us(&scene.value("k"));
    assert!(timestamp >= from + 30_000_000 + MARGIN_US, "cut to {} us after its renewal", timestamp - from);
}

fn hold_two(scene: &mut Scene) -> super::Holder {
    let mut holder = scene.hold_with(&AGAIN);
    holder.conn.int(&["LOCK.ACQUIRE", "zz", "PX", "30000", "SESSION"]);
    scene.forget();
    holder
}

#[test]
fn a_holder_that_returns_in_the_same_turn_keeps_its_lease() {
    let mut scene = Scene::start();
    let holder = hold_two(&mut scene);
    assert_good_after_end(&mut scene, &holder.id, &AGAIN);
    let own = scene.locks.conn.int(&["CLIENT", "ID"]).to_string();
    assert_eq!(scene.session("k"), Some(own));
    // The command is sent again without SESSION, or the lock is extended.
    for extends in [false, true] {
        let mut scene = Scene::start();
        let holder = hold_two(&mut scene);
        let extend = ["LOCK.EXTEND", "k", &holder.token.to_string(), "PX", "30000"];
        assert_good_after_end(&mut scene, &holder.id, if extends { &extend } else { &AGAIN_UNBOUND });
    }
}

#[test]
fn a_holder_that_returns_during_a_pause_keeps_its_lease() {
    let mut scene = Scene::start();
    let holder = hold_two(&mut scene);
    scene.locks.conn.ok(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    drop(holder.conn);
    scene.until_gone(&holder.id);
    let mut back = scene.locks.server.conn();
    back.send(&AGAIN);
    assert!(back.no_reply_within(crate::waiting::QUIET), "the pause holds it back");
    let from = scene.now_us();
    scene.locks.conn.ok(&["CLIENT", "UNPAUSE"]);
    assert_eq!(back.read().int(), holder.token);
    until("the other lock has ended", || scene.sent_for("zz").into_iter().next());
    let timestamp = timestamp_us(&scene.value("k"));
    assert!(timestamp >= from + 30_000_000 + MARGIN_US, "cut to {} us after its renewal", timestamp - from);
}
