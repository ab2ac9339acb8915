//! SHARED, LIMIT, several keys, and blocked clients together with attempts without a connection: one queue, one order.

use super::{Queue, Subscriber};
use crate::kinds::{acquire, Kind, Row, KINDS};
use testkit::{until, Reply};

#[test]
fn blocked_clients_and_attempts_are_served_in_one_order() {
    for first in KINDS {
        for second in KINDS {
            let _row = Row::of((first, second));
            let Some(mut queue) = Queue::start() else { return };
            let token = queue.locks.hold();
            let mut one = queue.locks.wait(&[]);
            queue.ask_with(&first.acquire(&[]), "2", &[]);
            let mut three = queue.locks.wait(&[]);
            queue.ask_with(&second.acquire(&[]), "4", &[]);
            let mut five = queue.locks.wait(&[]);
            assert_eq!(queue.locks.waiters(), 5);
            queue.locks.release(token);
            let token = one.granted();
            queue.subscriber.gets_nothing();
            queue.locks.release(token);
            queue.subscriber.gets("granted 2 k");
            let token = queue.execute(&first.acquire(&["PX", "30000", "ID", "2"])).int().to_string();
            three.assert_waits();
            first.release(&mut queue.locks.conn, &token);
            let token = three.granted();
            assert!(!queue.subscriber.conn.has_reply());
            queue.locks.release(token);
            queue.subscriber.gets("granted 4 k");
            let token = queue.execute(&second.acquire(&["PX", "30000", "ID", "4"])).int().to_string();
            assert!(!five.conn.has_reply());
            second.release(&mut queue.locks.conn, &token);
            let token = five.granted();
            queue.locks.release(token);
            queue.locks.assert_no_missed_wakeups();
        }
    }
}

#[test]
fn sharing_neighbours_are_granted_together() {
    let Some(mut queue) = Queue::start() else { return };
    let token = queue.locks.hold();
    queue.ask_with(&["LOCK.ACQUIRE", "k"], "1", &["SHARED"]);
    let mut blocked = queue.locks.wait(&["SHARED"]);
    queue.ask_with(&["LOCK.ACQUIRE", "k"], "3", &["LIMIT", "3"]);
    queue.ask("4");
    queue.ask_with(&["LOCK.ACQUIRE", "k"], "5", &["SHARED"]);
    queue.locks.release(token);
    queue.subscriber.gets("granted 1 k");
    queue.subscriber.gets("granted 3 k");
    let second = blocked.granted();
    queue.subscriber.gets_nothing();
    let claim = |queue: &mut Queue, id: &str, share: &[&str]| {
        let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "ID", id, "OWNER", "alice"];
        queue.locks.conn.int(&[&ask[..], share].concat())
    };
    // Before a claim the member contains neither ID nor owner.
    let members = queue.execute(&["ZRANGE", "k", "0", "-1"]);
    assert!(members.list().iter().all(|member| member.text().len() == 16), "{members:?}");
    let first = claim(&mut queue, "1", &["SHARED"]);
    let third = claim(&mut queue, "3", &["LIMIT", "3"]);
    let members = queue.execute(&["ZRANGE", "k", "0", "-1"]);
    let named: Vec<String> = members.list().iter().map(Reply::text).filter(|member| member.len() > 16).collect();
    assert_eq!(named.len(), 2, "{members:?}");
    assert!(named.iter().all(|member| member.ends_with(" alice")), "{named:?}");
    for token in [first, second, third] {
        queue.locks.assert_holds(token);
        queue.subscriber.gets_nothing();
        queue.locks.release(token);
    }
    queue.takes_its_turn("4");
    queue.subscriber.gets("granted 5 k");
    claim(&mut queue, "5", &["SHARED"]);
}

#[test]
fn an_unclaimed_shared_grant_makes_room() {
    let Some(mut queue) = Queue::with(&["claim-ms", "150"]) else { return };
    let mut other = Subscriber::of(&queue.locks.server, "d");
    let first = acquire(&mut queue.locks.conn, &["k", "PX", "60000", "LIMIT", "2"]);
    let second = acquire(&mut queue.locks.conn, &["k", "PX", "60000", "LIMIT", "2"]);
    queue.ask_with(&["LOCK.ACQUIRE", "k"], "7", &["LIMIT", "2"]);
    queue.ask_with(&["LOCK.ACQUIRE", "k"], "8", &["LIMIT", "2", "NOTIFY", "d"]);
    queue.locks.release(second);
    queue.subscriber.gets("granted 7 k");
    other.gets("granted 8 k");
    let token = queue.locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "8", "LIMIT", "2"]);
    queue.locks.assert_holds(token);
    queue.locks.assert_holds(first.parse().unwrap());
    assert_eq!(queue.execute(&["ZCARD", "k"]).int(), 2);
}

#[test]
fn several_keys_are_granted_and_claimed_as_one() {
    let Some(mut queue) = Queue::start() else { return };
    let (first, second) = (queue.locks.hold(), acquire(&mut queue.locks.conn, &["l", "PX", "30000"]));
    queue.ask_with(&["LOCK.MACQUIRE", "2", "l", "k"], "7", &["OWNER", "alice"]);
    assert_eq!(queue.info("lock_queued"), 2);
    queue.locks.release(first);
    queue.subscriber.gets_nothing();
    // The free key goes to any client that asks.
    let taken = queue.locks.hold();
    assert_eq!(queue.execute(&["LOCK.RELEASE", "l", &second]).int(), 1);
    queue.subscriber.gets_nothing();
    queue.locks.release(taken);
    queue.subscriber.gets("granted 7 l");
    let unclaimed = ["k", "l"].map(|key| queue.locks.conn.text(&["GET", key]));
    assert!(unclaimed.iter().all(|value| value.len() == 33), "{unclaimed:?}");
    // The claim may name the keys in a different order, or only one of them.
    let token = queue.execute(&["LOCK.MACQUIRE", "2", "k", "l", "PX", "30000", "ID", "7", "OWNER", "alice"]).int();
    for key in ["k", "l"] {
        assert!(queue.locks.conn.text(&["GET", key]).ends_with("0000000000000000007 alice"));
        assert!(queue.execute(&["LOCK.CHECK", key, &token.to_string()]).int() > 0);
    }
    assert_eq!(queue.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"]).int(), token, "one grant");
    Kind::Several.release(&mut queue.locks.conn, &token.to_string());
}

#[test]
fn a_claim_that_lacks_a_key_releases_the_others() {
    let Some(mut queue) = Queue::with(&["claim-ms", "60000"]) else { return };
    queue.locks.server.allow_silent_changes();
    let token = queue.locks.hold();
    queue.ask_with(&["LOCK.MACQUIRE", "3", "j", "k", "l"], "7", &[]);
    queue.locks.release(token);
    queue.subscriber.gets("granted 7 j");
    queue.locks.conn.ok(&["SET", "l", "foreign"]);
    let mut behind = queue.locks.wait(&[]);
    let ask = ["LOCK.MACQUIRE", "3", "j", "k", "l", "PX", "30000", "WAIT", "30000", "ID", "7", "NOTIFY", "c"];
    assert_eq!(queue.execute(&ask), super::waiting());
    let token = behind.granted();
    until("the third is free", || (queue.execute(&["EXISTS", "j"]).int() == 0).then_some(()));
    assert_eq!(queue.locks.conn.text(&["GET", "l"]), "foreign");
    queue.locks.release(token);
    queue.subscriber.gets_nothing();
    assert_eq!(queue.execute(&["DEL", "l"]).int(), 1);
    queue.subscriber.gets("granted 7 j");
    assert!(queue.execute(&ask).int() > token);
}

#[test]
fn a_claim_for_other_keys_gives_up_the_grant() {
    let Some(mut queue) = Queue::with(&["claim-ms", "60000"]) else { return };
    let token = queue.locks.hold();
    queue.ask_with(&["LOCK.MACQUIRE", "2", "k", "l"], "7", &[]);
    queue.locks.release(token);
    queue.subscriber.gets("granted 7 k");
    // Nobody else is waiting, so it gets the single key at once.
    let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000", "ID", "7", "NOTIFY", "c"];
    assert!(queue.execute(&ask).int() > 0);
    assert_eq!(queue.execute(&["EXISTS", "l"]).int(), 0, "the other key is free");
}

#[test]
fn unclaimed_grants_of_several_keys_are_passed_on_key_by_key() {
    let Some(mut queue) = Queue::with(&["claim-ms", "150"]) else { return };
    let token = queue.locks.hold();
    queue.ask_with(&["LOCK.MACQUIRE", "2", "k", "l"], "7", &[]);
    queue.locks.release(token);
    queue.subscriber.gets("granted 7 k");
    let mut behind =
        [queue.locks.wait(&[]), queue.locks.wait_with(&["LOCK.ACQUIRE", "l", "PX", "9000", "WAIT", "9000"])];
    for waiter in &mut behind {
        waiter.granted();
    }
    assert_eq!(queue.info("lock_unclaimed"), 1);
}
