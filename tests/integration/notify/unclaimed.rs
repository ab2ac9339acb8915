//! A grant that is not claimed in time passes on as if it had never been given; its attempt keeps its place, and its
//! channel is skipped until one of its attempts is sent again.

use super::{pass, waiting, Line, Listener};
use crate::kinds::{Kind, Row, KINDS};
use testkit::{server_time_us, until, Reply};

/// How long an attempt has to claim, in these tests.
const CLAIM: [&str; 2] = ["claim-ms", "150"];

#[test]
fn with_nobody_else_in_line_the_lock_is_free() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let Some(mut line) = Line::with(&CLAIM) else { return };
        let token = line.locks.hold();
        line.ask_with(&kind.acquire(&[]), "7", &[]);
        line.locks.release(token);
        line.told.hears("granted 7 k");
        assert_eq!(usize::try_from(kind.exist(&mut line.locks.conn)), Ok(kind.keys().len()));
        until("the lock is free", || (kind.exist(&mut line.locks.conn) == 0).then_some(()));
        assert_eq!(["lock_unclaimed", "lock_claims", "lock_waiters"].map(|field| line.info(field)), [1, 0, 0]);
        line.told.hears_nothing();
        // The next caller has no predecessor.
        let next = line.call(&["LOCK.ACQUIRE", "k", "PX", "30000", "DETAILS"]);
        assert_eq!(next.list()[1..], [Reply::Nil, Reply::Nil, Reply::Nil]);
    }
}

#[test]
fn the_next_in_line_has_it_after_its_time_and_not_before() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let Some(mut line) = Line::with(&CLAIM) else { return };
        let mut other = Listener::of(&line.locks.server, "d");
        let token = line.locks.hold();
        line.ask_with(&kind.acquire(&[]), "7", &[]);
        line.ask_with(&["LOCK.ACQUIRE", "k"], "8", &["NOTIFY", "d"]);
        let mut blocked = line.locks.wait(&[]);
        line.locks.release(token);
        line.told.hears("granted 7 k");
        let granted = line.locks.conn.lock("k", "token").int();
        other.hears("granted 8 k");
        let passed = line.locks.conn.lock("k", "token").int();
        assert!(passed - granted >= 149_000, "after {} us", passed - granted);
        let token = line.claim("8");
        line.locks.release(token);
        blocked.granted();
    }
}

#[test]
fn the_predecessor_that_never_released_is_there_again() {
    for kind in [Kind::Alone, Kind::Shared, Kind::Limit, Kind::Several] {
        let _row = Row::of(kind);
        let Some(mut line) = Line::with(&CLAIM) else { return };
        let ask = |line: &mut Line| line.ask_with(&kind.acquire(&[]), "7", &[]);
        let dead = line.hold_until(&["ID", "5", "OWNER", "bob"], ask);
        line.told.hears("granted 7 k");
        until("its time is over", || (line.info("lock_unclaimed") == 1).then_some(()));
        until("the predecessor is back", || (line.locks.conn.state("k") == "expired").then_some(()));
        assert_eq!(line.value()[17..33], format!("{dead:016}"));
        let details = line.call(&["LOCK.ACQUIRE", "k", "PX", "30000", "DETAILS"]);
        assert_eq!(details.list()[2..], [Reply::Int(dead), Reply::Text(b"bob".into())]);
    }
}

#[test]
fn the_predecessor_is_reported_to_the_next_in_line() {
    let Some(mut line) = Line::with(&CLAIM) else { return };
    let mut other = Listener::of(&line.locks.server, "d");
    let dead = line.hold_until(&["OWNER", "bob"], |line| {
        line.ask("7");
        line.ask_with(&["LOCK.ACQUIRE", "k"], "8", &["NOTIFY", "d"]);
    });
    other.hears("granted 8 k");
    let details = line.call(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "8", "DETAILS"]);
    assert!(details.list()[1].int() >= 140, "{details:?}");
    assert_eq!(details.list()[2..], [Reply::Int(dead), Reply::Text(b"bob".into())]);
}

#[test]
fn it_keeps_its_place_and_a_late_claim_is_a_wait() {
    let Some(mut line) = Line::with(&CLAIM) else { return };
    let mut other = Listener::of(&line.locks.server, "d");
    let token = line.locks.hold();
    line.ask("7");
    for id in ["8", "9"] {
        line.ask_with(&["LOCK.ACQUIRE", "k"], id, &["NOTIFY", "d"]);
    }
    line.locks.release(token);
    other.hears("granted 8 k");
    let token = line.claim("8");
    // Too late: another client has it. A command without WAIT is refused.
    assert_eq!(line.call(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"]), Reply::Nil);
    line.ask("7");
    line.told.hears("granted 7 k");
    line.locks.assert_holds(token);
    line.locks.release(token);
    line.takes_its_turn("7");
    other.hears("granted 9 k");
}

#[test]
fn its_channel_is_silent_until_one_of_its_attempts_is_sent_again() {
    let Some(mut line) = Line::with(&CLAIM) else { return };
    let mut other = Listener::of(&line.locks.server, "d");
    let token = line.locks.hold();
    let elsewhere = line.locks.conn.int(&["LOCK.ACQUIRE", "l", "PX", "30000"]).to_string();
    for id in ["1", "2", "3"] {
        line.ask(id);
    }
    line.ask_with(&["LOCK.ACQUIRE", "l"], "4", &[]);
    line.ask_with(&["LOCK.ACQUIRE", "k"], "8", &["NOTIFY", "d"]);
    line.locks.release(token);
    line.told.hears("granted 1 k");
    other.hears("granted 8 k");
    let token = line.claim("8");
    // 2 and 3 were passed over, and nothing was published for them.
    line.told.hears_nothing();
    assert_eq!((line.info("lock_unclaimed"), line.info("lock_unheard")), (1, 2));
    assert_eq!(line.locks.waiters(), 0);
    // Its attempt for another key is skipped too.
    assert_eq!(line.call(&["LOCK.RELEASE", "l", &elsewhere]).int(), 1);
    line.told.hears_nothing();
    assert_eq!(line.call(&["EXISTS", "l"]).int(), 0);
    // Sending one attempt again revives its channel: all its attempts are notified again.
    line.ask("2");
    line.ask("3");
    line.locks.release(token);
    line.takes_its_turn("2");
    line.takes_its_turn("3");
}

#[test]
fn a_claim_in_its_last_moment_wins_or_finds_the_next_in_line_there() {
    let Some(mut line) = Line::with(&["claim-ms", "20"]) else { return };
    let mut won = 0;
    for round in 0..20 {
        let token = line.locks.hold();
        let (id, next) = ((100 + round).to_string(), (200 + round).to_string());
        line.ask(&id);
        line.ask_with(&["LOCK.ACQUIRE", "k"], &next, &["NOTIFY", "d"]);
        line.locks.release(token);
        line.told.hears(&format!("granted {id} k"));
        let granted = line.locks.conn.lock("k", "token").int();
        until("its time is nearly over", || {
            (server_time_us(&mut line.locks.conn) > granted + 19_000 + round * 100).then_some(())
        });
        match line.call(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", &id]) {
            Reply::Int(token) => {
                // It is the grant that it was notified of; or that grant has ended, the lock was free, and this is a
                // new one.
                won += i32::from(token == granted);
                let earlier = if token == granted { 1 } else { granted };
                assert_eq!(line.call(&["LOCK.CHECK", "k", &earlier.to_string()]).int(), 0);
                pass(&mut line.locks.conn, 5);
                line.locks.assert_holds(token);
                line.locks.release(token);
                line.call(&["LOCK.CANCEL", "k", &next]);
            }
            reply => {
                // Channel d has no subscriber: its attempt was sent a moment ago, or is skipped.
                assert_eq!(reply, Reply::Nil);
                until("the lock is free", || (line.call(&["EXISTS", "k"]).int() == 0).then_some(()));
                assert_eq!(line.call(&["LOCK.CHECK", "k", &granted.to_string()]).int(), 0);
            }
        }
        line.call(&["LOCK.CANCEL", "k", &id]);
        line.call(&["LOCK.CANCEL", "k", &next]);
        until("the lock is free", || (line.call(&["EXISTS", "k"]).int() == 0).then_some(()));
        while line.told.conn.has_reply() {
            line.told.next();
        }
    }
    println!("{won} of 20 claims came in time");
}

#[test]
fn a_restart_of_the_wait_is_not_needed_for_those_behind() {
    let Some(mut line) = Line::with(&CLAIM) else { return };
    let token = line.locks.hold();
    line.ask("7");
    line.locks.release(token);
    line.told.hears("granted 7 k");
    // A newcomer waits for the unclaimed grant as for any other.
    let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000", "ID", "8", "NOTIFY", "d"];
    assert_eq!(line.call(&ask), waiting());
    let mut blocked = line.locks.wait(&[]);
    let mut other = Listener::of(&line.locks.server, "d");
    other.hears("granted 8 k");
    let token = line.claim("8");
    line.locks.release(token);
    blocked.granted();
}
