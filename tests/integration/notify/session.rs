//! SESSION: the end of the asking connection ends the wait, passes on an unclaimed grant, and ends a claimed lock.

use super::{waiting, Queue};
use crate::kinds::{Row, KINDS};
use testkit::{until, Conn, Reply};

/// A connection on which attempt 7 asks with SESSION.
fn ask(queue: &mut Queue, command: &[&str]) -> Conn {
    let mut conn = queue.locks.server.conn();
    let more = ["PX", "30000", "WAIT", "30000", "ID", "7", "SESSION", "NOTIFY", "c"];
    assert_eq!(conn.execute(&[command, &more].concat()), waiting());
    conn
}

#[test]
fn a_lost_connection_ends_the_wait_and_reserves_the_place() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let Some(mut queue) = Queue::start() else { return };
        let token = queue.locks.hold();
        let conn = ask(&mut queue, &kind.acquire(&[]));
        queue.ask("8");
        drop(conn);
        queue.locks.until_waiters(1);
        assert_eq!((queue.info("lock_places"), queue.info("lock_queued")), (1, 1));
        queue.ask_with(&kind.acquire(&[]), "7", &[]);
        queue.locks.release(token);
        queue.subscriber.gets("granted 7 k");
    }
}

#[test]
fn an_unclaimed_grant_is_passed_on_at_once() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let Some(mut queue) = Queue::with(&["claim-ms", "60000"]) else { return };
        let token = queue.locks.hold();
        let conn = ask(&mut queue, &kind.acquire(&[]));
        queue.ask("8");
        queue.locks.release(token);
        queue.subscriber.gets("granted 7 k");
        drop(conn);
        queue.takes_its_turn("8");
        until("all keys are free", || (kind.exist(&mut queue.locks.conn) == 0).then_some(()));
        // Its channel is not skipped, because the attempt did not miss its time to claim.
        assert_eq!((queue.info("lock_unclaimed"), queue.info("lock_unheard")), (0, 0));
    }
}

#[test]
fn a_claimed_lock_ends_with_the_claiming_connection() {
    let Some(mut queue) = Queue::start() else { return };
    let token = queue.locks.hold();
    let first = ask(&mut queue, &["LOCK.ACQUIRE", "k"]);
    queue.locks.release(token);
    queue.subscriber.gets("granted 7 k");
    let mut second = queue.locks.server.conn();
    let client = second.int(&["CLIENT", "ID"]);
    let token = second.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7", "SESSION"]);
    assert_eq!(queue.locks.conn.lock("k", "session"), Reply::Int(client));
    drop(first);
    queue.subscriber.gets_nothing();
    queue.locks.assert_holds(token);
    queue.ask("8");
    drop(second);
    queue.takes_its_turn("8");
    assert_eq!(queue.info("lock_sessions_ended"), 1);
}

#[test]
fn a_claim_without_session_belongs_to_no_connection() {
    let Some(mut queue) = Queue::start() else { return };
    let token = queue.locks.hold();
    let conn = ask(&mut queue, &["LOCK.ACQUIRE", "k"]);
    queue.locks.release(token);
    queue.subscriber.gets("granted 7 k");
    let token = queue.claim("7");
    assert_eq!(queue.locks.conn.lock("k", "session"), Reply::Nil);
    drop(conn);
    queue.subscriber.gets_nothing();
    queue.locks.assert_holds(token);
}

#[test]
fn an_attempt_sent_again_on_another_connection_belongs_to_that_one() {
    let Some(mut queue) = Queue::start() else { return };
    let token = queue.locks.hold();
    let first = ask(&mut queue, &["LOCK.ACQUIRE", "k"]);
    let second = ask(&mut queue, &["LOCK.ACQUIRE", "k"]);
    drop(first);
    queue.subscriber.gets_nothing();
    assert_eq!(queue.locks.waiters(), 1);
    drop(second);
    queue.locks.until_waiters(0);
    queue.locks.release(token);
    queue.subscriber.gets_nothing();
}

#[test]
fn session_in_a_script_is_an_error() {
    let Some(mut queue) = Queue::start() else { return };
    queue.locks.hold();
    let script =
        "return redis.call('LOCK.ACQUIRE', KEYS[1], 'PX', 30000, 'WAIT', 9, 'ID', 7, 'SESSION', 'NOTIFY', 'c')";
    let reply = queue.execute(&["EVAL", script, "1", "k"]);
    assert!(reply.error().contains("SESSION needs a connection"), "{reply:?}");
    assert_eq!(queue.locks.waiters(), 0);
}
