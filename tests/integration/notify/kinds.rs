//! SHARED, LIMIT, several keys, and blocked clients beside attempts without a connection: one queue, one order.

use super::{Line, Listener};
use crate::kinds::{acquire, Kind, Row, KINDS};
use testkit::{until, Reply};

#[test]
fn blocked_clients_and_attempts_are_served_in_one_order() {
    for first in KINDS {
        for second in KINDS {
            let _row = Row::of((first, second));
            let Some(mut line) = Line::start() else { return };
            let token = line.locks.hold();
            let mut one = line.locks.wait(&[]);
            line.ask_with(&first.acquire(&[]), "2", &[]);
            let mut three = line.locks.wait(&[]);
            line.ask_with(&second.acquire(&[]), "4", &[]);
            let mut five = line.locks.wait(&[]);
            assert_eq!(line.locks.waiters(), 5);
            line.locks.release(token);
            let token = one.granted();
            line.told.hears_nothing();
            line.locks.release(token);
            line.told.hears("granted 2 k");
            let token = line.call(&first.acquire(&["PX", "30000", "ID", "2"])).int().to_string();
            three.assert_waits();
            first.release(&mut line.locks.conn, &token);
            let token = three.granted();
            assert!(!line.told.conn.has_reply());
            line.locks.release(token);
            line.told.hears("granted 4 k");
            let token = line.call(&second.acquire(&["PX", "30000", "ID", "4"])).int().to_string();
            assert!(!five.conn.has_reply());
            second.release(&mut line.locks.conn, &token);
            let token = five.granted();
            line.locks.release(token);
            line.locks.assert_no_missed_wakeups();
        }
    }
}

#[test]
fn neighbours_that_share_are_told_together_blocked_or_not() {
    let Some(mut line) = Line::start() else { return };
    let token = line.locks.hold();
    line.ask_with(&["LOCK.ACQUIRE", "k"], "1", &["SHARED"]);
    let mut blocked = line.locks.wait(&["SHARED"]);
    line.ask_with(&["LOCK.ACQUIRE", "k"], "3", &["LIMIT", "3"]);
    line.ask("4");
    line.ask_with(&["LOCK.ACQUIRE", "k"], "5", &["SHARED"]);
    line.locks.release(token);
    line.told.hears("granted 1 k");
    line.told.hears("granted 3 k");
    let second = blocked.granted();
    line.told.hears_nothing();
    let claim = |line: &mut Line, id: &str, share: &[&str]| {
        let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "ID", id, "OWNER", "alice"];
        line.locks.conn.int(&[&ask[..], share].concat())
    };
    // Before a claim neither ID nor owner is in the member.
    let members = line.call(&["ZRANGE", "k", "0", "-1"]);
    assert!(members.list().iter().all(|member| member.text().len() == 16), "{members:?}");
    let first = claim(&mut line, "1", &["SHARED"]);
    let third = claim(&mut line, "3", &["LIMIT", "3"]);
    let members = line.call(&["ZRANGE", "k", "0", "-1"]);
    let named: Vec<String> = members.list().iter().map(Reply::text).filter(|member| member.len() > 16).collect();
    assert_eq!(named.len(), 2, "{members:?}");
    assert!(named.iter().all(|member| member.ends_with(" alice")), "{named:?}");
    for token in [first, second, third] {
        line.locks.assert_holds(token);
        line.told.hears_nothing();
        line.locks.release(token);
    }
    line.takes_its_turn("4");
    line.told.hears("granted 5 k");
    claim(&mut line, "5", &["SHARED"]);
}

#[test]
fn one_of_several_that_is_not_claimed_makes_room_for_the_next() {
    let Some(mut line) = Line::with(&["claim-ms", "150"]) else { return };
    let mut other = Listener::of(&line.locks.server, "d");
    let first = acquire(&mut line.locks.conn, &["k", "PX", "60000", "LIMIT", "2"]);
    let second = acquire(&mut line.locks.conn, &["k", "PX", "60000", "LIMIT", "2"]);
    line.ask_with(&["LOCK.ACQUIRE", "k"], "7", &["LIMIT", "2"]);
    line.ask_with(&["LOCK.ACQUIRE", "k"], "8", &["LIMIT", "2", "NOTIFY", "d"]);
    line.locks.release(second);
    line.told.hears("granted 7 k");
    other.hears("granted 8 k");
    let token = line.locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "8", "LIMIT", "2"]);
    line.locks.assert_holds(token);
    line.locks.assert_holds(first.parse().unwrap());
    assert_eq!(line.call(&["ZCARD", "k"]).int(), 2);
}

#[test]
fn several_keys_are_granted_and_claimed_as_one() {
    let Some(mut line) = Line::start() else { return };
    let (first, second) = (line.locks.hold(), acquire(&mut line.locks.conn, &["l", "PX", "30000"]));
    line.ask_with(&["LOCK.MACQUIRE", "2", "l", "k"], "7", &["OWNER", "alice"]);
    assert_eq!(line.info("lock_queued"), 2);
    line.locks.release(first);
    line.told.hears_nothing();
    // The free key goes to any client that asks.
    let taken = line.locks.hold();
    assert_eq!(line.call(&["LOCK.RELEASE", "l", &second]).int(), 1);
    line.told.hears_nothing();
    line.locks.release(taken);
    line.told.hears("granted 7 l");
    let unclaimed = ["k", "l"].map(|key| line.locks.conn.text(&["GET", key]));
    assert!(unclaimed.iter().all(|value| value.len() == 33), "{unclaimed:?}");
    // In another order, and by one of the keys alone.
    let token = line.call(&["LOCK.MACQUIRE", "2", "k", "l", "PX", "30000", "ID", "7", "OWNER", "alice"]).int();
    for key in ["k", "l"] {
        assert!(line.locks.conn.text(&["GET", key]).ends_with("0000000000000000007 alice"));
        assert!(line.call(&["LOCK.CHECK", key, &token.to_string()]).int() > 0);
    }
    assert_eq!(line.call(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"]).int(), token, "one grant");
    Kind::Several.release(&mut line.locks.conn, &token.to_string());
}

#[test]
fn a_claim_that_finds_a_key_gone_gives_the_others_back() {
    let Some(mut line) = Line::with(&["claim-ms", "60000"]) else { return };
    line.locks.server.allow_silent_changes();
    let token = line.locks.hold();
    line.ask_with(&["LOCK.MACQUIRE", "3", "j", "k", "l"], "7", &[]);
    line.locks.release(token);
    line.told.hears("granted 7 j");
    line.locks.conn.ok(&["SET", "l", "foreign"]);
    let mut behind = line.locks.wait(&[]);
    let ask = ["LOCK.MACQUIRE", "3", "j", "k", "l", "PX", "30000", "WAIT", "30000", "ID", "7", "NOTIFY", "c"];
    assert_eq!(line.call(&ask), super::waiting());
    let token = behind.granted();
    until("the third is free", || (line.call(&["EXISTS", "j"]).int() == 0).then_some(()));
    assert_eq!(line.locks.conn.text(&["GET", "l"]), "foreign");
    line.locks.release(token);
    line.told.hears_nothing();
    assert_eq!(line.call(&["DEL", "l"]).int(), 1);
    line.told.hears("granted 7 j");
    assert!(line.call(&ask).int() > token);
}

#[test]
fn a_claim_for_other_keys_is_another_attempt_and_gives_the_grant_back() {
    let Some(mut line) = Line::with(&["claim-ms", "60000"]) else { return };
    let token = line.locks.hold();
    line.ask_with(&["LOCK.MACQUIRE", "2", "k", "l"], "7", &[]);
    line.locks.release(token);
    line.told.hears("granted 7 k");
    // Nobody else waits: it has the one key at once.
    let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000", "ID", "7", "NOTIFY", "c"];
    assert!(line.call(&ask).int() > 0);
    assert_eq!(line.call(&["EXISTS", "l"]).int(), 0, "the other key is free");
}

#[test]
fn an_unclaimed_grant_of_several_keys_passes_on_key_by_key() {
    let Some(mut line) = Line::with(&["claim-ms", "150"]) else { return };
    let token = line.locks.hold();
    line.ask_with(&["LOCK.MACQUIRE", "2", "k", "l"], "7", &[]);
    line.locks.release(token);
    line.told.hears("granted 7 k");
    let mut behind = [line.locks.wait(&[]), line.locks.wait_with(&["LOCK.ACQUIRE", "l", "PX", "9000", "WAIT", "9000"])];
    for waiter in &mut behind {
        waiter.granted();
    }
    assert_eq!(line.info("lock_unclaimed"), 1);
}
