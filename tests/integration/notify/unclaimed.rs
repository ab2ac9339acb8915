//! A grant that is not claimed in time is passed on as if it had never been made; its attempt keeps its place, and its
//! channel is skipped until one of its attempts is sent again.

use super::{pass, waiting, Queue, Subscriber};
use crate::kinds::{Kind, Row, KINDS};
use testkit::{server_time_us, until, Reply};

/// How long an attempt has to claim, in these tests.
const CLAIM: [&str; 2] = ["claim-ms", "150"];

#[test]
fn without_other_waiters_the_lock_is_free() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let Some(mut queue) = Queue::with(&CLAIM) else { return };
        let token = queue.locks.hold();
        queue.ask_with(&kind.acquire(&[]), "7", &[]);
        queue.locks.release(token);
        queue.subscriber.gets("granted 7 k");
        assert_eq!(usize::try_from(kind.exist(&mut queue.locks.conn)), Ok(kind.keys().len()));
        until("the lock is free", || (kind.exist(&mut queue.locks.conn) == 0).then_some(()));
        assert_eq!(["lock_unclaimed", "lock_claims", "lock_waiters"].map(|field| queue.info(field)), [1, 0, 0]);
        queue.subscriber.gets_nothing();
        // The next caller has no predecessor.
        let next = queue.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "DETAILS"]);
        assert_eq!(next.list()[1..], [Reply::Nil, Reply::Nil, Reply::Nil]);
    }
}

#[test]
fn the_next_attempt_gets_it_when_the_time_to_claim_ends() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let Some(mut queue) = Queue::with(&CLAIM) else { return };
        let mut other = Subscriber::of(&queue.locks.server, "d");
        let token = queue.locks.hold();
        queue.ask_with(&kind.acquire(&[]), "7", &[]);
        queue.ask_with(&["LOCK.ACQUIRE", "k"], "8", &["NOTIFY", "d"]);
        let mut blocked = queue.locks.wait(&[]);
        queue.locks.release(token);
        queue.subscriber.gets("granted 7 k");
        let granted = queue.locks.conn.lock("k", "token").int();
        other.gets("granted 8 k");
        let passed = queue.locks.conn.lock("k", "token").int();
        assert!(passed - granted >= 149_000, "after {} us", passed - granted);
        let token = queue.claim("8");
        queue.locks.release(token);
        blocked.granted();
    }
}

#[test]
fn the_predecessor_that_never_released_is_restored() {
    for kind in [Kind::Alone, Kind::Shared, Kind::Limit, Kind::Several] {
        let _row = Row::of(kind);
        let Some(mut queue) = Queue::with(&CLAIM) else { return };
        let ask = |queue: &mut Queue| queue.ask_with(&kind.acquire(&[]), "7", &[]);
        let dead = queue.hold_until(&["ID", "5", "OWNER", "bob"], ask);
        queue.subscriber.gets("granted 7 k");
        until("its time to claim has passed", || (queue.info("lock_unclaimed") == 1).then_some(()));
        until("the predecessor is back", || (queue.locks.conn.state("k") == "expired").then_some(()));
        // If others could join the grant, they may have held the lock since: the predecessor returns without its token.
        let could_join = matches!(kind, Kind::Shared | Kind::Limit);
        let token = queue.value()[17..33].parse::<i64>().unwrap();
        assert_eq!(token == dead, !could_join, "{kind:?}");
        if could_join {
            assert_eq!(queue.execute(&["LOCK.RELEASE", "k", &dead.to_string()]).int(), 0);
        }
        let details = queue.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "DETAILS"]);
        assert_eq!(details.list()[2..], [Reply::Int(token), Reply::Text(b"bob".into())]);
    }
}

#[test]
fn the_next_waiter_sees_its_predecessor() {
    let Some(mut queue) = Queue::with(&CLAIM) else { return };
    let mut other = Subscriber::of(&queue.locks.server, "d");
    let dead = queue.hold_until(&["OWNER", "bob"], |queue| {
        queue.ask("7");
        queue.ask_with(&["LOCK.ACQUIRE", "k"], "8", &["NOTIFY", "d"]);
    });
    other.gets("granted 8 k");
    let details = queue.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "8", "DETAILS"]);
    assert!(details.list()[1].int() >= 140, "{details:?}");
    assert_eq!(details.list()[2..], [Reply::Int(dead), Reply::Text(b"bob".into())]);
}

#[test]
fn an_unclaimed_attempt_keeps_its_place() {
    let Some(mut queue) = Queue::with(&CLAIM) else { return };
    let mut other = Subscriber::of(&queue.locks.server, "d");
    let token = queue.locks.hold();
    queue.ask("7");
    for id in ["8", "9"] {
        queue.ask_with(&["LOCK.ACQUIRE", "k"], id, &["NOTIFY", "d"]);
    }
    queue.locks.release(token);
    other.gets("granted 8 k");
    let token = queue.claim("8");
    // It is too late: another client has the lock. A command without WAIT is refused.
    assert_eq!(queue.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"]), Reply::Nil);
    queue.ask("7");
    queue.subscriber.gets("granted 7 k");
    queue.locks.assert_holds(token);
    queue.locks.release(token);
    queue.takes_its_turn("7");
    other.gets("granted 9 k");
}

#[test]
fn its_channel_is_skipped_until_an_attempt_is_repeated() {
    let Some(mut queue) = Queue::with(&CLAIM) else { return };
    let mut other = Subscriber::of(&queue.locks.server, "d");
    let token = queue.locks.hold();
    let elsewhere = queue.locks.conn.int(&["LOCK.ACQUIRE", "l", "PX", "30000"]).to_string();
    for id in ["1", "2", "3"] {
        queue.ask(id);
    }
    queue.ask_with(&["LOCK.ACQUIRE", "l"], "4", &[]);
    queue.ask_with(&["LOCK.ACQUIRE", "k"], "8", &["NOTIFY", "d"]);
    queue.locks.release(token);
    queue.subscriber.gets("granted 1 k");
    other.gets("granted 8 k");
    let token = queue.claim("8");
    // 2 and 3 were passed over, and nothing was published for them.
    queue.subscriber.gets_nothing();
    assert_eq!((queue.info("lock_unclaimed"), queue.info("lock_unheard")), (1, 2));
    assert_eq!(queue.locks.waiters(), 0);
    // The channel's attempt for another key is skipped too.
    assert_eq!(queue.execute(&["LOCK.RELEASE", "l", &elsewhere]).int(), 1);
    queue.subscriber.gets_nothing();
    assert_eq!(queue.execute(&["EXISTS", "l"]).int(), 0);
    // Sending one attempt again revives its channel: all its attempts are notified again.
    queue.ask("2");
    queue.ask("3");
    queue.locks.release(token);
    queue.takes_its_turn("2");
    queue.takes_its_turn("3");
}

#[test]
fn a_last_moment_claim_wins_or_finds_the_next() {
    let Some(mut queue) = Queue::with(&["claim-ms", "20"]) else { return };
    let mut won = 0;
    for round in 0..20 {
        let token = queue.locks.hold();
        let (id, next) = ((100 + round).to_string(), (200 + round).to_string());
        queue.ask(&id);
        queue.ask_with(&["LOCK.ACQUIRE", "k"], &next, &["NOTIFY", "d"]);
        queue.locks.release(token);
        queue.subscriber.gets(&format!("granted {id} k"));
        let granted = queue.locks.conn.lock("k", "token").int();
        until("its time to claim is nearly over", || {
            (server_time_us(&mut queue.locks.conn) > granted + 19_000 + round * 100).then_some(())
        });
        match queue.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", &id]) {
            Reply::Int(token) => {
                // Either this is the grant that it was notified of, or that grant has ended, the lock was free, and
                // this is a new one.
                won += i32::from(token == granted);
                let earlier = if token == granted { 1 } else { granted };
                assert_eq!(queue.execute(&["LOCK.CHECK", "k", &earlier.to_string()]).int(), 0);
                pass(&mut queue.locks.conn, 5);
                queue.locks.assert_holds(token);
                queue.locks.release(token);
                queue.execute(&["LOCK.CANCEL", "k", &next]);
            }
            reply => {
                // Channel d has no subscriber: its attempt was sent just now, or is skipped.
                assert_eq!(reply, Reply::Nil);
                until("the lock is free", || (queue.execute(&["EXISTS", "k"]).int() == 0).then_some(()));
                assert_eq!(queue.execute(&["LOCK.CHECK", "k", &granted.to_string()]).int(), 0);
            }
        }
        queue.execute(&["LOCK.CANCEL", "k", &id]);
        queue.execute(&["LOCK.CANCEL", "k", &next]);
        until("the lock is free", || (queue.execute(&["EXISTS", "k"]).int() == 0).then_some(()));
        while queue.subscriber.conn.has_reply() {
            queue.subscriber.next();
        }
    }
    println!("{won} of 20 claims came in time");
}

#[test]
fn waiters_behind_are_served_without_a_restart() {
    let Some(mut queue) = Queue::with(&CLAIM) else { return };
    let token = queue.locks.hold();
    queue.ask("7");
    queue.locks.release(token);
    queue.subscriber.gets("granted 7 k");
    // A newcomer waits for the unclaimed grant as for any other grant.
    let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000", "ID", "8", "NOTIFY", "d"];
    assert_eq!(queue.execute(&ask), waiting());
    let mut blocked = queue.locks.wait(&[]);
    let mut other = Subscriber::of(&queue.locks.server, "d");
    other.gets("granted 8 k");
    let token = queue.claim("8");
    queue.locks.release(token);
    blocked.granted();
}
