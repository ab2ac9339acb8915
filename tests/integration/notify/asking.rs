//! Asking: the reply, the place in the queue, and the effect of sending a command again.

use super::{waiting, Line, Listener};
use crate::kinds::{Row, KINDS};
use testkit::{until, Reply};

#[test]
fn a_free_lock_is_granted_at_once_and_nobody_is_told() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let Some(mut line) = Line::start() else { return };
        let ask = kind.acquire(&["PX", "30000", "WAIT", "30000", "ID", "7", "OWNER", "alice", "NOTIFY", "c"]);
        let token = line.call(&ask).int().to_string();
        assert_eq!(line.locks.conn.lock("k", "id").text(), "7");
        assert_eq!(line.locks.conn.lock("k", "owner").text(), "alice");
        kind.release(&mut line.locks.conn, &token);
        line.told.hears_nothing();
        assert_eq!((line.info("lock_queued"), line.info("lock_places")), (0, 0));
    }
}

#[test]
fn an_attempt_that_has_to_wait_is_answered_at_once_in_both_protocols() {
    let Some(mut line) = Line::start() else { return };
    line.locks.hold();
    for (id, protocol) in [("7", "2"), ("8", "3")] {
        let mut conn = line.locks.server.conn();
        conn.call(&["HELLO", protocol]);
        let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000", "ID", id, "DETAILS", "NOTIFY", "c"];
        assert_eq!(conn.raw(&ask), b"+WAITING\r\n");
        assert_eq!(conn.text(&["PING"]), "PONG", "the connection is free");
    }
    // It stays in the queue whatever happens to its connection.
    let token = line.locks.conn.lock("k", "token").int();
    until("both connections are closed", || {
        (line.locks.conn.info("clients", "connected_clients")? == "2").then_some(())
    });
    assert_eq!(line.locks.waiters(), 2);
    line.locks.release(token);
    line.takes_its_turn("7");
    line.takes_its_turn("8");
}

#[test]
fn with_a_wait_of_zero_it_never_stands_in_line() {
    let Some(mut line) = Line::start() else { return };
    let token = line.locks.hold();
    let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "0", "ID", "7", "NOTIFY", "c"];
    assert_eq!(line.call(&ask), Reply::Nil);
    assert_eq!(line.locks.waiters(), 0);
    // Nor does an attempt that was in the queue.
    line.ask("8");
    let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "0", "ID", "8", "NOTIFY", "c"];
    assert_eq!(line.call(&ask), Reply::Nil);
    assert_eq!(line.locks.waiters(), 0);
    line.told.hears("unblocked 8 k");
    line.locks.release(token);
    line.told.hears_nothing();
    assert_eq!(line.call(&["EXISTS", "k"]), Reply::Int(0));
}

#[test]
fn sent_again_it_keeps_its_place_and_the_newer_arguments_apply() {
    let Some(mut line) = Line::start() else { return };
    let mut other = Listener::of(&line.locks.server, "d");
    let token = line.locks.hold();
    line.ask("7");
    line.ask("8");
    let again = ["LOCK.ACQUIRE", "k", "PX", "60000", "WAIT", "90000", "ID", "7", "OWNER", "bob", "NOTIFY", "d"];
    for _ in 0..3 {
        assert_eq!(line.call(&again), waiting());
    }
    assert_eq!((line.locks.waiters(), line.info("lock_queued")), (2, 2));
    let queue = line.call(&["LOCK.INFO", "k", "FULL"]).field("queue");
    let first = &queue.list()[0];
    assert_eq!(["id", "owner", "channel"].map(|name| first.field(name).text()), ["7", "bob", "d"]);
    assert!(first.field("left-ms").int() > 60_000, "{first:?}");
    line.locks.release(token);
    other.hears("granted 7 k");
    let token = line.claim("7");
    line.told.hears_nothing();
    line.locks.release(token);
    line.takes_its_turn("8");
}

#[test]
fn its_wait_counts_from_the_newest_call() {
    let Some(mut line) = Line::start() else { return };
    line.locks.hold();
    line.ask("7");
    let shorter = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "50", "ID", "7", "NOTIFY", "c"];
    let begun = testkit::server_time_us(&mut line.locks.conn);
    assert_eq!(line.call(&shorter), waiting());
    line.told.hears("timeout 7 k");
    assert!(testkit::server_time_us(&mut line.locks.conn) - begun >= 49_000);
    assert_eq!((line.locks.waiters(), line.info("lock_wait_timeouts")), (0, 1));
    // The next command gets its old place.
    line.ask("8");
    line.ask("7");
    let queue = line.call(&["LOCK.INFO", "k", "FULL"]).field("queue");
    assert_eq!(queue.list().iter().map(|row| row.field("id").text()).collect::<Vec<_>>(), ["7", "8"]);
}

#[test]
fn a_blocking_call_and_one_that_does_not_block_take_over_each_others_place() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let Some(mut line) = Line::start() else { return };
        let token = line.locks.hold();
        line.ask_with(&kind.acquire(&[]), "7", &[]);
        let mut behind = line.locks.wait_as(kind, &["ID", "8"]);
        let mut blocked = line.locks.wait_as(kind, &["ID", "7"]);
        line.told.hears("unblocked 7 k");
        assert_eq!(line.info("lock_queued"), 0);
        line.ask_with(&kind.acquire(&[]), "7", &[]);
        blocked.failed("UNBLOCKED");
        assert_eq!(line.locks.waiters(), 2);
        line.locks.release(token);
        line.told.hears("granted 7 k");
        let token = line.call(&kind.acquire(&["PX", "30000", "ID", "7"])).int().to_string();
        if matches!(kind, crate::kinds::Kind::Shared | crate::kinds::Kind::Limit) {
            behind.granted();
            continue;
        }
        behind.assert_waits();
        kind.release(&mut line.locks.conn, &token);
        behind.granted();
    }
}

#[test]
fn it_may_wait_for_an_hour_and_its_id_may_have_zeros_in_front() {
    let Some(mut line) = Line::start() else { return };
    let token = line.locks.hold();
    for id in ["007", "7"] {
        let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "3600000", "ID", id, "SNOTIFY", "c"];
        assert_eq!(line.call(&ask), waiting());
    }
    assert_eq!(line.locks.waiters(), 1);
    let mut sharded = Listener::on(line.locks.server.conn(), "SSUBSCRIBE", "c");
    line.locks.release(token);
    sharded.hears("granted 7 k");
    line.claim("7");
    line.told.hears_nothing();
}
