//! Results that are kept for attempts that are not connected: notified on a channel, or with a reserved place.

use super::{release_with, result};
use crate::notify::{waiting, Queue, CHANNEL};
use crate::waiting::Locks;
use testkit::{until, Reply};

/// Long enough for a busy machine.
const LONG: [&str; 2] = ["claim-ms", "600000"];

const ACQUIRE: [&str; 7] = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000", "RESULT"];

fn ask(id: &str) -> Vec<&str> {
    [&ACQUIRE[..], &["ID", id, "NOTIFY", CHANNEL]].concat()
}

#[test]
fn a_notified_attempt_gets_the_result_as_often_as_it_asks() {
    let Some(mut queue) = Queue::with(&LONG) else { return };
    let token = queue.locks.hold();
    for id in ["7", "8"] {
        assert_eq!(queue.execute(&ask(id)), waiting());
    }
    assert_eq!(release_with(&mut queue.locks, token, "42"), Reply::Int(1));
    queue.subscriber.gets("result 7 k");
    queue.subscriber.gets("result 8 k");
    for id in ["7", "8", "7"] {
        assert_eq!(queue.execute(&ask(id)), result("42"), "{id}");
    }
    // The attempt without NOTIFY is the same attempt.
    assert_eq!(queue.execute(&[&ACQUIRE[..], &["ID", "8"]].concat()), result("42"));
    assert_eq!((queue.info("lock_results"), queue.info("lock_queued")), (2, 0));
    assert_eq!(queue.execute(&["EXISTS", "k"]), Reply::Int(0));
}

#[test]
fn after_claim_ms_a_copy_is_a_new_attempt() {
    let Some(mut queue) = Queue::with(&["claim-ms", "60"]) else { return };
    let token = queue.locks.hold();
    assert_eq!(queue.execute(&ask("7")), waiting());
    assert_eq!(release_with(&mut queue.locks, token, "42"), Reply::Int(1));
    queue.subscriber.gets("result 7 k");
    until("the result is forgotten", || match queue.execute(&ask("7")) {
        Reply::Int(token) => Some(token),
        reply => {
            assert_eq!(reply, result("42"));
            None
        }
    });
}

#[test]
fn neither_cancel_nor_cancel_channel_takes_a_result_back() {
    let Some(mut queue) = Queue::with(&LONG) else { return };
    let token = queue.locks.hold();
    for id in ["7", "8"] {
        assert_eq!(queue.execute(&ask(id)), waiting());
    }
    let replies = queue.locks.in_one_turn(&[
        &["LOCK.RELEASE", "k", &token, "RESULT", "42"],
        &["LOCK.CANCEL", "k", "7"],
        &["LOCK.CANCEL", "k", "CHANNEL", CHANNEL],
        &ask("7"),
        &ask("8"),
    ]);
    assert_eq!(replies[..3], [Reply::Int(1), Reply::Int(0), Reply::Int(0)]);
    assert_eq!(replies[3..], [result("42"), result("42")]);
}

#[test]
fn a_reserved_place_whose_last_call_wanted_the_result_gets_it() {
    let mut locks = Locks::with(&[LONG[0], LONG[1], "place-ms", "600000"]);
    let token = locks.hold();
    let piece = |locks: &mut Locks, id: &str, more: &[&str]| {
        let acquire = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "20", "ID", id];
        assert!(locks.server.conn().execute(&[&acquire[..], more].concat()).is_nil());
    };
    piece(&mut locks, "7", &["RESULT"]);
    piece(&mut locks, "8", &["RESULT"]);
    // The last call counts.
    piece(&mut locks, "8", &[]);
    assert_eq!(release_with(&mut locks, token, "42"), Reply::Int(1));
    assert_eq!(locks.conn.execute(&[&ACQUIRE[..], &["ID", "7"]].concat()), result("42"));
    assert!(locks.conn.execute(&[&ACQUIRE[..], &["ID", "8"]].concat()).int() > 0);
}

#[test]
fn a_notified_attempt_at_the_head_claims_the_lock_and_its_result_is_for_the_others() {
    let Some(mut queue) = Queue::with(&LONG) else { return };
    let token = queue.locks.hold();
    for id in ["7", "8", "9"] {
        assert_eq!(queue.execute(&ask(id)), waiting());
    }
    queue.locks.release(token);
    queue.subscriber.gets("granted 7 k");
    // The unclaimed grant's token is in the key, but nobody holds the lock with it.
    let unclaimed = queue.locks.conn.lock("k", "token").int();
    assert_eq!(release_with(&mut queue.locks, unclaimed, "forged"), Reply::Int(1));
    let mut messages = [queue.subscriber.next(), queue.subscriber.next()];
    messages.sort();
    assert_eq!(messages, ["cancelled 7 k", "granted 8 k"]);
    let own = queue.execute(&ask("8")).int();
    assert_eq!(release_with(&mut queue.locks, own, "42"), Reply::Int(1));
    queue.subscriber.gets("result 9 k");
    assert_eq!(queue.execute(&ask("9")), result("42"));
}

#[test]
fn a_grant_that_nobody_claimed_leaves_a_place_that_wants_the_result() {
    let Some(mut queue) = Queue::with(&["claim-ms", "300"]) else { return };
    let token = queue.locks.hold();
    assert_eq!(queue.execute(&ask("7")), waiting());
    queue.locks.release(token);
    queue.subscriber.gets("granted 7 k");
    until("the grant ends", || (queue.info("lock_unclaimed") == 1).then_some(()));
    queue.locks.conn.ok(&["CONFIG", "SET", "lock.claim-ms", "600000"]);
    let next = queue.locks.hold();
    assert_eq!(release_with(&mut queue.locks, next, "42"), Reply::Int(1));
    assert_eq!(queue.execute(&ask("7")), result("42"));
}

/// Nothing can be kept: the attempts stay in the queue, and the first of them gets the lock.
#[test]
fn while_memory_is_short_only_blocked_clients_get_a_result() {
    let Some(mut queue) = Queue::with(&LONG) else { return };
    let token = queue.locks.hold();
    assert_eq!(queue.execute(&ask("7")), waiting());
    let mut blocked = queue.locks.wait(&["RESULT"]);
    queue.locks.conn.ok(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(release_with(&mut queue.locks, token, "42"), Reply::Int(1));
    assert_eq!(blocked.answer(), result("42"));
    queue.subscriber.gets_nothing();
    queue.locks.conn.ok(&["CONFIG", "SET", "maxmemory", "0"]);
    queue.subscriber.gets("granted 7 k");
    assert!(queue.execute(&ask("7")).int() > 0);
}

#[test]
fn a_result_is_for_its_key_and_database() {
    let Some(mut queue) = Queue::with(&LONG) else { return };
    let token = queue.locks.hold();
    assert_eq!(queue.execute(&ask("7")), waiting());
    assert_eq!(release_with(&mut queue.locks, token, "42"), Reply::Int(1));
    let other: Vec<&str> = ask("7").into_iter().map(|word| if word == "k" { "other" } else { word }).collect();
    assert!(queue.execute(&other).int() > 0);
    queue.locks.conn.ok(&["SELECT", "1"]);
    assert!(queue.execute(&ask("7")).int() > 0);
    queue.locks.conn.ok(&["SELECT", "0"]);
    assert_eq!(queue.execute(&ask("7")), result("42"));
}
