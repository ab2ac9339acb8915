//! Asking: the reply, the place in the queue, and the effect of sending a command again.

use super::{waiting, Queue, Subscriber};
use crate::kinds::{Row, KINDS};
use testkit::{until, Reply};

#[test]
fn a_free_lock_is_granted_at_once_without_a_message() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let Some(mut queue) = Queue::start() else { return };
        let ask = kind.acquire(&["PX", "30000", "WAIT", "30000", "ID", "7", "OWNER", "alice", "NOTIFY", "c"]);
        let token = queue.execute(&ask).int().to_string();
        assert_eq!(queue.locks.conn.lock("k", "id").text(), "7");
        assert_eq!(queue.locks.conn.lock("k", "owner").text(), "alice");
        kind.release(&mut queue.locks.conn, &token);
        queue.subscriber.gets_nothing();
        assert_eq!((queue.info("lock_queued"), queue.info("lock_places")), (0, 0));
    }
}

#[test]
fn a_waiting_attempt_is_answered_at_once() {
    let Some(mut queue) = Queue::start() else { return };
    queue.locks.hold();
    for (id, protocol) in [("7", "2"), ("8", "3")] {
        let mut conn = queue.locks.server.conn();
        conn.execute(&["HELLO", protocol]);
        let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000", "ID", id, "DETAILS", "NOTIFY", "c"];
        assert_eq!(conn.raw(&ask), b"+WAITING\r\n");
        assert_eq!(conn.text(&["PING"]), "PONG", "the connection is free");
    }
    // The attempt stays in the queue whatever happens to its connection.
    let token = queue.locks.conn.lock("k", "token").int();
    until("both connections are closed", || {
        (queue.locks.conn.info("clients", "connected_clients")? == "2").then_some(())
    });
    assert_eq!(queue.locks.waiters(), 2);
    queue.locks.release(token);
    queue.takes_its_turn("7");
    queue.takes_its_turn("8");
}

#[test]
fn a_wait_of_zero_never_queues() {
    let Some(mut queue) = Queue::start() else { return };
    let token = queue.locks.hold();
    let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "0", "ID", "7", "NOTIFY", "c"];
    assert_eq!(queue.execute(&ask), Reply::Nil);
    assert_eq!(queue.locks.waiters(), 0);
    // Nor does an attempt that was already in the queue.
    queue.ask("8");
    let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "0", "ID", "8", "NOTIFY", "c"];
    assert_eq!(queue.execute(&ask), Reply::Nil);
    assert_eq!(queue.locks.waiters(), 0);
    queue.subscriber.gets("unblocked 8 k");
    queue.locks.release(token);
    queue.subscriber.gets_nothing();
    assert_eq!(queue.execute(&["EXISTS", "k"]), Reply::Int(0));
}

#[test]
fn a_repeated_attempt_keeps_its_place_with_newer_arguments() {
    let Some(mut queue) = Queue::start() else { return };
    let mut other = Subscriber::of(&queue.locks.server, "d");
    let token = queue.locks.hold();
    queue.ask("7");
    queue.ask("8");
    let again = ["LOCK.ACQUIRE", "k", "PX", "60000", "WAIT", "90000", "ID", "7", "OWNER", "bob", "NOTIFY", "d"];
    for _ in 0..3 {
        assert_eq!(queue.execute(&again), waiting());
    }
    assert_eq!((queue.locks.waiters(), queue.info("lock_queued")), (2, 2));
    let rows = queue.execute(&["LOCK.INFO", "k", "FULL"]).field("queue");
    let first = &rows.list()[0];
    assert_eq!(["id", "owner", "channel"].map(|name| first.field(name).text()), ["7", "bob", "d"]);
    assert!(first.field("left-ms").int() > 60_000, "{first:?}");
    queue.locks.release(token);
    other.gets("granted 7 k");
    let token = queue.claim("7");
    queue.subscriber.gets_nothing();
    queue.locks.release(token);
    queue.takes_its_turn("8");
}

#[test]
fn its_wait_runs_from_the_newest_command() {
    let Some(mut queue) = Queue::start() else { return };
    queue.locks.hold();
    queue.ask("7");
    let shorter = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "50", "ID", "7", "NOTIFY", "c"];
    let begun = testkit::server_time_us(&mut queue.locks.conn);
    assert_eq!(queue.execute(&shorter), waiting());
    queue.subscriber.gets("timeout 7 k");
    assert!(testkit::server_time_us(&mut queue.locks.conn) - begun >= 49_000);
    assert_eq!((queue.locks.waiters(), queue.info("lock_wait_timeouts")), (0, 1));
    // The next command gets its old place.
    queue.ask("8");
    queue.ask("7");
    let rows = queue.execute(&["LOCK.INFO", "k", "FULL"]).field("queue");
    assert_eq!(rows.list().iter().map(|row| row.field("id").text()).collect::<Vec<_>>(), ["7", "8"]);
}

#[test]
fn blocking_and_notified_attempts_replace_each_other() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let Some(mut queue) = Queue::start() else { return };
        let token = queue.locks.hold();
        queue.ask_with(&kind.acquire(&[]), "7", &[]);
        let mut behind = queue.locks.wait_as(kind, &["ID", "8"]);
        let mut blocked = queue.locks.wait_as(kind, &["ID", "7"]);
        queue.subscriber.gets("unblocked 7 k");
        assert_eq!(queue.info("lock_queued"), 0);
        queue.ask_with(&kind.acquire(&[]), "7", &[]);
        blocked.failed("UNBLOCKED");
        assert_eq!(queue.locks.waiters(), 2);
        queue.locks.release(token);
        queue.subscriber.gets("granted 7 k");
        let token = queue.execute(&kind.acquire(&["PX", "30000", "ID", "7"])).int().to_string();
        if matches!(kind, crate::kinds::Kind::Shared | crate::kinds::Kind::Limit) {
            behind.granted();
            continue;
        }
        behind.assert_waits();
        kind.release(&mut queue.locks.conn, &token);
        behind.granted();
    }
}

#[test]
fn long_waits_and_ids_with_leading_zeros_are_allowed() {
    let Some(mut queue) = Queue::start() else { return };
    let token = queue.locks.hold();
    for id in ["007", "7"] {
        let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "3600000", "ID", id, "SNOTIFY", "c"];
        assert_eq!(queue.execute(&ask), waiting());
    }
    assert_eq!(queue.locks.waiters(), 1);
    let mut sharded = Subscriber::on(queue.locks.server.conn(), "SSUBSCRIBE", "c");
    queue.locks.release(token);
    sharded.gets("granted 7 k");
    queue.claim("7");
    queue.subscriber.gets_nothing();
}
