//! SESSION: the end of the connection that asked ends the wait, passes an unclaimed grant on, and ends a lock that was
//! claimed.

use super::{waiting, Line};
use crate::kinds::{Row, KINDS};
use testkit::{until, Conn, Reply};

/// A connection on which the attempt 7 asks with SESSION.
fn ask(line: &mut Line, command: &[&str]) -> Conn {
    let mut conn = line.locks.server.conn();
    let more = ["PX", "30000", "WAIT", "30000", "ID", "7", "SESSION", "NOTIFY", "c"];
    assert_eq!(conn.call(&[command, &more].concat()), waiting());
    conn
}

#[test]
fn the_end_of_the_connection_ends_the_wait_and_the_place_is_kept() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let Some(mut line) = Line::start() else { return };
        let token = line.locks.hold();
        let conn = ask(&mut line, &kind.acquire(&[]));
        line.ask("8");
        drop(conn);
        line.locks.until_waiters(1);
        assert_eq!((line.info("lock_places"), line.info("lock_queued")), (1, 1));
        line.ask_with(&kind.acquire(&[]), "7", &[]);
        line.locks.release(token);
        line.told.hears("granted 7 k");
    }
}

#[test]
fn an_unclaimed_grant_passes_on_at_once() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let Some(mut line) = Line::with(&["claim-ms", "60000"]) else { return };
        let token = line.locks.hold();
        let conn = ask(&mut line, &kind.acquire(&[]));
        line.ask("8");
        line.locks.release(token);
        line.told.hears("granted 7 k");
        drop(conn);
        line.takes_its_turn("8");
        until("all is free", || (kind.exist(&mut line.locks.conn) == 0).then_some(()));
        // Its channel is not skipped: it did not miss its time to claim.
        assert_eq!((line.info("lock_unclaimed"), line.info("lock_unheard")), (0, 0));
    }
}

#[test]
fn a_lock_that_was_claimed_with_it_ends_with_the_connection_of_the_claim() {
    let Some(mut line) = Line::start() else { return };
    let token = line.locks.hold();
    let first = ask(&mut line, &["LOCK.ACQUIRE", "k"]);
    line.locks.release(token);
    line.told.hears("granted 7 k");
    let mut second = line.locks.server.conn();
    let client = second.int(&["CLIENT", "ID"]);
    let token = second.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7", "SESSION"]);
    assert_eq!(line.locks.conn.lock("k", "session"), Reply::Int(client));
    drop(first);
    line.told.hears_nothing();
    line.locks.assert_holds(token);
    line.ask("8");
    drop(second);
    line.takes_its_turn("8");
    assert_eq!(line.info("lock_sessions_ended"), 1);
}

#[test]
fn a_claim_without_it_belongs_to_no_connection() {
    let Some(mut line) = Line::start() else { return };
    let token = line.locks.hold();
    let conn = ask(&mut line, &["LOCK.ACQUIRE", "k"]);
    line.locks.release(token);
    line.told.hears("granted 7 k");
    let token = line.claim("7");
    assert_eq!(line.locks.conn.lock("k", "session"), Reply::Nil);
    drop(conn);
    line.told.hears_nothing();
    line.locks.assert_holds(token);
}

#[test]
fn sent_again_on_another_connection_it_belongs_to_that_one() {
    let Some(mut line) = Line::start() else { return };
    let token = line.locks.hold();
    let first = ask(&mut line, &["LOCK.ACQUIRE", "k"]);
    let second = ask(&mut line, &["LOCK.ACQUIRE", "k"]);
    drop(first);
    line.told.hears_nothing();
    assert_eq!(line.locks.waiters(), 1);
    drop(second);
    line.locks.until_waiters(0);
    line.locks.release(token);
    line.told.hears_nothing();
}

#[test]
fn in_a_script_it_is_an_error() {
    let Some(mut line) = Line::start() else { return };
    line.locks.hold();
    let script =
        "return redis.call('LOCK.ACQUIRE', KEYS[1], 'PX', 30000, 'WAIT', 9, 'ID', 7, 'SESSION', 'NOTIFY', 'c')";
    let reply = line.call(&["EVAL", script, "1", "k"]);
    assert!(reply.error().contains("SESSION needs a connection"), "{reply:?}");
    assert_eq!(line.locks.waiters(), 0);
}
