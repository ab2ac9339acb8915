//! A grant that its client did not receive, because it died between the grant and the reply, is passed on to the next
//! in the queue, or the lock is free. An attempt with an ID keeps its place, and keeps a grant that it claimed on
//! another connection in the meantime.

use super::{no_reply_within, Locks, Waiter, QUIET};
use crate::kinds::{Row, KINDS};
use testkit::{server_time_us, until, Reply, Server};

/// `k` is handed off to a client that is killed in the same iteration; then these commands run. Returns their replies.
fn lose(locks: &mut Locks, token: &str, dead: &mut Waiter, then: &[&[&str]]) -> Vec<Reply> {
    let id = dead.id.clone();
    let (release, kill) = (["LOCK.RELEASE", "k", token], ["CLIENT", "KILL", "ID", &id]);
    let turn = [&[&release[..], &kill], then].concat();
    let replies = locks.in_one_turn(&turn);
    assert_eq!(replies[..2], [1, 1].map(Reply::Int));
    dead.closed();
    replies[2..].to_vec()
}

fn until_free(locks: &mut Locks) {
    until("the lock is free", || (locks.conn.int(&["EXISTS", "k"]) == 0).then_some(()));
}

#[test]
fn without_other_waiters_the_lock_is_free() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let mut locks = Locks::start();
        let token = locks.hold();
        let mut dead = locks.wait_as(kind, &[]);
        let replies = lose(&mut locks, &token, &mut dead, &[&[&["EXISTS"], kind.keys()].concat()]);
        assert_eq!(usize::try_from(replies[0].int()), Ok(kind.keys().len()), "the client that died was granted it");
        until("the lock is free", || (kind.exist(&mut locks.conn) == 0).then_some(()));
        assert_eq!(locks.info("lock", "lock_waiters"), 0);
        let next = kind.take(&mut locks.conn, &["PX", "30000"]);
        kind.release(&mut locks.conn, &next);
    }
}

#[test]
fn the_next_waiter_gets_it() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let mut locks = Locks::start();
        let token = locks.hold();
        let (mut dead, mut next, mut last) = (locks.wait_as(kind, &[]), locks.wait_as(kind, &[]), locks.wait(&[]));
        lose(&mut locks, &token, &mut dead, &[]);
        let granted = next.granted();
        locks.assert_holds(granted);
        assert_eq!(locks.waiters(), 1);
        kind.release(&mut locks.conn, &granted.to_string());
        let granted = last.granted();
        locks.release(granted);
    }
}

#[test]
fn several_that_die_at_once_are_all_passed_over() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let mut dead = [locks.wait(&[]), locks.wait(&["ID", "7"]), locks.wait(&[])];
    let mut next = locks.wait(&[]);
    let ids = [0, 1, 2].map(|n: usize| dead[n].id.clone());
    let kill = |n: usize| ["CLIENT", "KILL", "ID", &ids[n]];
    locks.in_one_turn(&[&["LOCK.RELEASE", "k", &token], &kill(0), &kill(1), &kill(2)]);
    dead.iter_mut().for_each(Waiter::closed);
    let granted = next.granted();
    locks.release(granted);
    assert_eq!(locks.waiters(), 0);
}

#[test]
fn a_grant_lost_in_a_transaction_is_passed_on() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let (mut dead, mut next) = (locks.wait(&["DETAILS"]), locks.wait(&["DETAILS"]));
    let id = dead.id.clone();
    locks.in_one_turn(&[&["MULTI"], &["LOCK.RELEASE", "k", &token], &["CLIENT", "KILL", "ID", &id], &["EXEC"]]);
    dead.closed();
    let details = next.answer();
    // As far as anyone can tell, nobody held the lock in the meantime.
    assert_eq!(details.list()[1..], [Reply::Nil, Reply::Nil, Reply::Nil]);
    let granted = details.list()[0].int();
    locks.assert_holds(granted);
    locks.release(granted);
}

#[test]
fn a_cancelled_hold_is_passed_on_past_a_dead_client() {
    let mut locks = Locks::start();
    locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "5"]);
    let (mut dead, mut next) = (locks.wait(&[]), locks.wait(&[]));
    let id = dead.id.clone();
    locks.in_one_turn(&[&["LOCK.CANCEL", "k", "5"], &["CLIENT", "KILL", "ID", &id]]);
    dead.closed();
    let granted = next.granted();
    locks.assert_holds(granted);
}

#[test]
fn a_cancelled_attempt_does_not_get_its_place_back() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let (mut dead, mut next) = (locks.wait(&["ID", "7"]), locks.wait(&[]));
    let id = dead.id.clone();
    locks.in_one_turn(&[&["LOCK.RELEASE", "k", &token], &["LOCK.CANCEL", "k", "7"], &["CLIENT", "KILL", "ID", &id]]);
    dead.closed();
    let granted = next.granted();
    let mut later = locks.wait(&[]);
    // Nor does a late copy of its command join the queue.
    assert!(locks.conn.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000", "ID", "7"]).is_nil());
    locks.release(granted);
    let granted = later.granted();
    locks.release(granted);
    assert_eq!(locks.conn.int(&["EXISTS", "k"]), 0);
}

#[test]
fn an_attempt_with_an_id_gets_its_place_back() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let (mut dead, mut next) = (locks.wait(&["ID", "7"]), locks.wait(&[]));
    let mut last = locks.wait(&[]);
    lose(&mut locks, &token, &mut dead, &[]);
    let granted = next.granted();
    let mut again = locks.wait(&["ID", "7"]);
    locks.release(granted);
    let granted = again.granted();
    assert_eq!(locks.waiters(), 1);
    locks.release(granted);
    last.granted();
}

#[test]
fn a_lone_attempt_gets_it_when_it_asks_again() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let mut dead = locks.wait(&["ID", "7"]);
    lose(&mut locks, &token, &mut dead, &[]);
    let granted = locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"]);
    assert!(no_reply_within(&mut locks.server.conn(), QUIET));
    locks.assert_holds(granted);
}

/// The attempt sends again in the same iteration in which its first connection ends.
fn asks_again_in_the_same_turn(others: usize, options: &[&str]) {
    let mut locks = Locks::start();
    let token = locks.hold();
    let mut dead = locks.wait(&["ID", "7"]);
    let mut rest: Vec<_> = (0..others).map(|_| locks.wait(&[])).collect();
    let again = [&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"], options].concat();
    let granted = lose(&mut locks, &token, &mut dead, &[&again])[0].int();
    // Another client with the grant would hold it at the same time.
    assert!(no_reply_within(&mut locks.server.conn(), QUIET));
    locks.assert_holds(granted);
    for waiter in &mut rest {
        waiter.assert_waits();
    }
    assert_eq!(locks.conn.int(&["LOCK.CANCEL", "other", "7"]), 0);
    locks.release(granted);
    for waiter in &mut rest {
        let granted = waiter.granted();
        locks.release(granted);
    }
    assert_eq!(locks.conn.int(&["LOCK.CANCEL", "k", "7"]), 0, "no place is left behind");
}

#[test]
fn an_attempt_repeated_at_once_keeps_the_grant() {
    for (others, options) in [(0, &[][..]), (2, &[]), (1, &["WAIT", "30000"])] {
        let _row = Row::of((others, options));
        asks_again_in_the_same_turn(others, options);
    }
}

#[test]
fn a_grant_released_by_hand_is_passed_on_once() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let (mut dead, mut next) = (locks.wait(&["ID", "7"]), locks.wait(&[]));
    let mut last = locks.wait(&[]);
    // The disconnected attempt holds the lock. This passes it to the next.
    assert_eq!(lose(&mut locks, &token, &mut dead, &[&["LOCK.CANCEL", "k", "7"]]), [Reply::Int(1)]);
    let granted = next.granted();
    last.assert_waits();
    locks.assert_holds(granted);
    locks.release(granted);
    last.granted();
}

#[test]
fn a_lock_retaken_by_others_is_left_alone() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let mut dead = locks.wait(&[]);
    let far = (server_time_us(&mut locks.conn) / 1_000_000 + 1000).to_string();
    lose(&mut locks, &token, &mut dead, &[&["SET", "k", &far]]);
    assert!(no_reply_within(&mut locks.server.conn(), QUIET));
    assert_eq!(locks.conn.text(&["GET", "k"]), far);
}

#[test]
fn a_lost_grant_is_undone_in_its_own_database() {
    let mut locks = Locks::on(Server::start());
    locks.conn.ok(&["SELECT", "3"]);
    let token = locks.hold();
    let mut conn = locks.server.conn();
    conn.ok(&["SELECT", "3"]);
    let mut dead = locks.wait_on(conn, &["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000"]);
    lose(&mut locks, &token, &mut dead, &[&["SELECT", "0"], &["SET", "k", "another"], &["SELECT", "3"]]);
    until_free(&mut locks);
    locks.conn.ok(&["SELECT", "0"]);
    assert_eq!(locks.conn.text(&["GET", "k"]), "another");
}

#[test]
fn a_lost_grant_and_its_successor_are_replicated() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let (mut dead, mut next) = (locks.wait(&[]), locks.wait(&[]));
    let mut stream = crate::replication::Stream::of(&locks.server);
    lose(&mut locks, &token, &mut dead, &[]);
    let granted = next.granted();
    let value = locks.conn.text(&["GET", "k"]);
    locks.release(granted);
    let sent = stream.take();
    let names: Vec<&str> = sent.iter().map(|command| command[0].as_str()).collect();
    assert_eq!(names, ["SET", "SET", "DEL"], "{sent:?}");
    assert_eq!(sent[1][2], value);
}
