//! The end of an entry from the server, and the timer's work in one event-loop iteration: the module turns events on
//! when it has to, sets one timer, and leaves the rest for later when a turn becomes too long.

use crate::asks::{alone as ask, count, hold, in_session, is_granted, named, node, seconds, settle, wait, START};
use crate::fake::{Blocked, Node};
use redis_lock_core::driver::Outcome;
use redis_lock_core::engine::counters::Counter;
use redis_lock_core::engine::outbox::Answer;
use redis_lock_core::engine::KeyName;
use redis_lock_core::lock::error::Error;
use redis_lock_core::lock::grace;
use redis_lock_core::lock::held::Release;
use redis_lock_core::lock::time::Micros;

fn opened(node: &Node) -> usize {
    std::mem::take(&mut node.world.borrow_mut().opened)
}

#[test]
fn it_subscribes_to_events_when_it_has_to_and_only_once() {
    let node = node();
    let subscriptions = |node: &Node| node.world.borrow().subscriptions.clone();
    let token = hold(&node, 1, b"k", &ask(30, 0));
    // A reserved place is not a waiter.
    let refused = node.command(2, |entry| entry.acquire(b"k", &named(7, ask(5, 0))));
    assert!(matches!(refused, Ok(Outcome::NotGranted)));
    assert_eq!(subscriptions(&node), [""; 0]);
    node.command(3, |entry| entry.acquire(b"s", &in_session(ask(5, 0)))).unwrap();
    assert_eq!(subscriptions(&node), ["clients"]);
    wait(&node, 2, &[b"k"], &ask(5, 9));
    wait(&node, 4, &[b"k"], &ask(5, 9));
    node.command(5, |entry| entry.acquire(b"t", &in_session(ask(5, 0)))).unwrap();
    assert_eq!(node.command(1, |entry| entry.release(b"k", token)), Ok(Release::InTime));
    assert_eq!(subscriptions(&node), ["clients", "keys"]);
}

#[test]
fn a_late_timer_is_set_again() {
    let node = node();
    hold(&node, 1, b"k", &ask(30, 0));
    wait(&node, 2, &[b"k"], &ask(5, 1));
    let timer = |node: &Node| node.world.borrow().timer.unwrap().0;
    node.pass(Micros(400_000));
    node.event(|entry| entry.tick());
    assert!(node.fire(), "all queues are checked");
    let before = timer(&node);
    node.pass(Micros(700_000));
    node.event(|entry| entry.tick());
    assert_eq!((timer(&node), count(&node, Counter::LateTimers)), (before, 0), "the timer may still fire");
    node.pass(Micros(1));
    node.event(|entry| entry.tick());
    assert_eq!((timer(&node), count(&node, Counter::LateTimers)), (before + 1, 1));
    assert!(node.fire());
    assert!(matches!(node.deliver(Blocked(2)), Some(Answer::NotGranted(_))));
}

#[test]
fn a_wait_that_ends_while_nothing_may_be_written_postpones_nothing() {
    let node = node();
    hold(&node, 1, b"k", &ask(30, 0));
    wait(&node, 2, &[b"k"], &ask(5, 1));
    node.world.borrow_mut().is_paused = true;
    node.pass(seconds(1));
    settle(&node);
    assert!(matches!(node.deliver(Blocked(2)), Some(Answer::NotGranted(_))));
    assert_eq!((count(&node, Counter::TimeOuts), count(&node, Counter::Postponed)), (1, 0));
}

#[test]
fn no_timer_is_left_when_there_is_nothing_to_do() {
    let node = node();
    let token = hold(&node, 1, b"k", &ask(30, 0));
    assert_eq!(node.timer_at(), None);
    wait(&node, 2, &[b"k"], &ask(5, 9));
    assert_eq!(node.timer_at(), Some(START.after(seconds(9))));
    node.disconnect(2);
    assert_eq!(node.timer_at(), None);
    node.command(1, |entry| entry.release(b"k", token)).unwrap();
    assert_eq!(node.timer_at(), None);
}

#[test]
fn the_release_of_the_last_lock_grants_all_of_several() {
    for is_one_of_several in [false, true] {
        let node = node();
        let token = hold(&node, 1, b"a", &ask(30, 0));
        wait(&node, 2, &[b"a", b"b"], &ask(5, 9));
        wait(&node, 3, &[b"a"], &ask(5, 9));
        if is_one_of_several {
            assert_eq!(node.command(1, |entry| entry.release_all(&[b"a", b"x"], token)), Ok(1));
        } else {
            assert_eq!(node.command(1, |entry| entry.release(b"a", token)), Ok(Release::InTime));
        }
        // This does not wait for a timer: in the meantime others would be refused the lock, and nobody would have it.
        let world = node.world.borrow();
        assert!(world.keys.contains_key(&(0, b"a".to_vec())) && world.keys.contains_key(&(0, b"b".to_vec())));
        drop(world);
        assert!(is_granted(&node, 2) && !is_granted(&node, 3));
    }
}

#[test]
fn a_command_tries_some_parked_waiters_and_the_timer_the_rest() {
    let node = node();
    let token = hold(&node, 1, b"a", &ask(30, 0));
    hold(&node, 1, b"b", &ask(30, 0));
    for client in 1..=400 {
        wait(&node, client, &[b"a", b"b"], &ask(5, 9));
    }
    opened(&node);
    node.command(0, |entry| entry.release(b"a", token)).unwrap();
    // 256 keys, and the released key.
    assert_eq!(opened(&node), 256 + 1);
    settle(&node);
    assert_eq!(node.driver.borrow().engine().queues().length(KeyName::new(0, b"b")).0, 400);
}

#[test]
fn the_timer_reads_a_limited_number_of_keys_in_a_turn() {
    const KEYS: usize = 40;
    let node = node();
    let names: Vec<Vec<u8>> = (0..KEYS).map(|number| number.to_string().into_bytes()).collect();
    let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    hold(&node, 1, names[0], &ask(30, 0));
    hold(&node, 1, names[KEYS - 1], &ask(30, 0));
    for client in 1..=60 {
        wait(&node, client, &names, &ask(5, 9));
    }
    opened(&node);
    node.delete(&(0, names[0].to_vec()));
    assert!(node.fire());
    // 2048 keys for tries and queues, without cutting off the last try, and the key where each try began.
    assert_eq!(opened(&node), 50 * (KEYS + 1));
    settle(&node);
    assert_eq!(opened(&node), 10 * (KEYS + 1));
}

#[test]
fn an_undelivered_grant_passes_over_waiters_beyond_the_grace() {
    let node = node();
    let token = hold(&node, 1, b"k", &ask(30, 0));
    hold(&node, 1, b"other", &ask(30, 0));
    wait(&node, 2, &[b"k"], &ask(5, 99));
    wait(&node, 3, &[b"k"], &ask(60, 99));
    wait(&node, 4, &[b"k"], &ask(5, 99));
    // First, more waits are due than one turn can end.
    for client in 10..200 {
        wait(&node, client, &[b"other"], &ask(60, 50));
    }
    node.command(1, |entry| entry.release(b"k", token)).unwrap();
    let grace = grace::Settings { grace: seconds(20), margin: seconds(1), max_lag: seconds(1), wanted: 0 };
    node.pass(seconds(21));
    node.world.borrow_mut().settings.grace = Some(grace);
    node.event(|entry| entry.tick());
    node.event(|entry| entry.tick());
    node.lose(Blocked(2)).unwrap();
    assert!(node.fire());
    assert!(matches!(node.deliver(Blocked(3)), Some(Answer::Failed(Error::LeaseBeyondGrace(16_000)))));
    assert!(is_granted(&node, 4));
}
