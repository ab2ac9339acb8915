//! Scale: how thousands of waiters affect an event-loop iteration and each other, which a single waiter does not show.

use crate::asks::{alone, hold, wait, START};
use crate::fake::{Blocked, Node, Settings};
use redis_lock_core::engine::outbox::Answer;
use redis_lock_core::engine::Limits;
use redis_lock_core::lock::error::Error;
use redis_lock_core::lock::held::Release;
use redis_lock_core::lock::time::Micros;
use std::collections::BTreeSet;

const CLIENTS: u32 = 2_000;
/// The number of answers that leave in one event-loop iteration.
const AT_ONCE: usize = 256;
const KEY: &[u8] = b"k";

fn node() -> Node {
    let limits = Limits { waiters: 3_000, ..Settings::default().limits };
    Node::new(Settings { limits, ..Settings::default() }, START)
}

/// The clients whose answers were sent and have not arrived.
fn sent(node: &Node) -> Vec<u64> {
    node.world.borrow().letters.iter().map(|(client, _)| client.0).collect()
}

#[test]
fn a_lock_is_passed_on() {
    let node = node();
    let token = hold(&node, 0, KEY, &alone(30, 0));
    wait(&node, 2, &[KEY], &alone(30, 9));
    assert_eq!(node.command(1, |entry| entry.release(KEY, token)), Ok(Release::InTime));
    assert!(matches!(node.deliver(Blocked(2)), Some(Answer::Granted(_))));
}

#[test]
fn many_clients_are_answered_once_each_in_pieces_while_some_leave() {
    let node = node();
    hold(&node, 0, KEY, &alone(30, 0));
    let clients = 1..=u64::from(CLIENTS);
    clients.clone().for_each(|client| wait(&node, client, &[KEY], &alone(30, 9)));
    node.event(|entry| entry.demoted());
    assert_eq!(sent(&node).len(), AT_ONCE);
    // These clients have not been answered yet, and each is still released only once.
    let gone = [1_500, 1_999, u64::from(CLIENTS)];
    for client in gone {
        node.disconnect(client);
    }
    let mut before = sent(&node).len();
    assert!(before < 1_500);
    let answered = CLIENTS as usize - gone.len();
    while before < answered {
        assert!(node.fire(), "the rest have to be sent too");
        let now = sent(&node).len();
        assert!(now > before && now - before <= AT_ONCE, "{before} -> {now}");
        before = now;
    }
    assert_eq!(BTreeSet::from_iter(sent(&node)).len(), answered);
    assert!(node.world.borrow().blocked.is_empty());
    for client in clients.filter(|client| !gone.contains(client)) {
        let answer = node.deliver(Blocked(client));
        assert!(matches!(answer, Some(Answer::Failed(Error::Demoted))), "{client}: {answer:?}");
    }
    assert!(!node.fire() && node.timer_at().is_none(), "nothing is left to do");
}

#[test]
fn no_key_is_opened_for_waiters_while_nothing_may_be_written() {
    let node = node();
    let name = |number: u64| number.to_string().into_bytes();
    for number in 1..=100 {
        hold(&node, 0, &name(number), &alone(30, 0));
        wait(&node, number, &[&name(number)], &alone(30, 9));
    }
    let opened = node.world.borrow().opened;
    node.world.borrow_mut().is_paused = true;
    node.world.borrow_mut().lost_slots = Some(BTreeSet::from([name(7), name(70)]));
    (1..=100).for_each(|number| node.delete(&(0, name(number))));
    assert!(node.fire());
    assert_eq!(sent(&node), [7, 70], "they get the error that their slots are not served here");
    assert_eq!(node.world.borrow().opened, opened);
    node.world.borrow_mut().is_paused = false;
    node.pass(Micros(20_000));
    assert!(node.fire());
    assert_eq!(sent(&node).len(), 100, "the others get their locks afterwards");
}
