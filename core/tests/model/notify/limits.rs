//! Bounds: the number of keys that attempts wait for, the time to claim a grant, memory, and whole channels.

use super::{
    attempt, claim, held, notified_on, pass, queue, received, release, subscribe, value, waiters, CHANNEL, K, K_AND_X,
    OTHER,
};
use crate::asks::{acquire, alone, granted, hold, in_session, is_granted, named, seconds, settle, wait, START};
use crate::fake::{Node, Settings};
use redis_lock_core::driver::Outcome;
use redis_lock_core::engine::Limits;
use redis_lock_core::lock::error::Error;
use redis_lock_core::lock::grace;
use redis_lock_core::lock::request::Share;
use redis_lock_core::lock::time::Micros;

#[test]
fn keys_are_counted_and_one_too_many_is_refused_unless_its_id_is_queued() {
    let limits = Limits { queued: 3, waiters: 1, ..Settings::default().limits };
    let node = Node::new(Settings { limits, ..Settings::default() }, START);
    subscribe(&node, CHANNEL);
    let token = hold(&node, 1, b"k", &alone(60, 0));
    queue(&node, K_AND_X, &attempt(7));
    assert_eq!(acquire(&node, 3, K_AND_X, &attempt(8)).unwrap_err(), Error::BusyQueue);
    queue(&node, K, &attempt(8));
    assert_eq!(acquire(&node, 3, K, &attempt(9)).unwrap_err(), Error::BusyQueue);
    wait(&node, 4, K, &alone(5, 9));
    assert_eq!(acquire(&node, 5, K, &alone(5, 9)).unwrap_err(), Error::BusyLocks, "a separate bound");
    queue(&node, K_AND_X, &attempt(7));
    queue(&node, K, &attempt(8));
    release(&node, b"k", token);
    settle(&node);
    queue(&node, K, &attempt(10));
    assert_eq!(acquire(&node, 3, K, &attempt(11)).map(|_| ()), Ok(()), "two keys left the queue");
    assert_eq!(acquire(&node, 3, K, &attempt(12)).unwrap_err(), Error::BusyQueue);
    claim(&node, 3, K_AND_X, &attempt(7));
}

#[test]
fn a_grant_waits_to_be_claimed_no_longer_than_the_grace_allows() {
    // The longest lease under this grace is half a second.
    let set = grace::Settings { grace: Micros(4_500_000), margin: seconds(1), max_lag: seconds(1), wanted: 0 };
    let node = Node::new(Settings { grace: Some(set), ..Settings::default() }, START);
    subscribe(&node, CHANNEL);
    let turn = |node: &Node| {
        node.pass(Micros(100_000));
        node.event(|entry| entry.tick());
        settle(node);
    };
    (0..60).for_each(|_| turn(&node));
    let short = |wait| redis_lock_core::driver::Ask {
        request: redis_lock_core::lock::request::Request { lease: Micros(500_000), ..alone(1, 0).request },
        ..alone(1, wait)
    };
    let token = hold(&node, 1, b"k", &short(0));
    queue(&node, K, &notified_on(CHANNEL, named(7, short(9))));
    release(&node, b"k", token);
    let now = node.world.borrow().wall;
    assert_eq!(value(&node, b"k").unwrap().2, now.after(Micros(1_500_000)));
    (0..6).for_each(|_| turn(&node));
    assert_eq!(value(&node, b"k"), None);
}

#[test]
fn when_out_of_memory_nothing_is_granted_to_attempts_and_they_keep_waiting() {
    for names in [K, K_AND_X] {
        let (node, token) = held();
        queue(&node, names, &attempt(7));
        node.world.borrow_mut().is_out_of_memory = true;
        release(&node, b"k", token);
        pass(&node, 1_000);
        assert_eq!((received(&node).len(), waiters(&node), value(&node, b"k")), (0, 1, None));
        if names == K {
            let newcomer = acquire(&node, 3, K, &alone(5, 0));
            assert!(matches!(newcomer, Ok(Outcome::NotGranted)), "the lock is for the waiters");
        }
        node.world.borrow_mut().is_out_of_memory = false;
        pass(&node, 150);
        assert_eq!(received(&node), ["granted 7 k"]);
    }
}

#[test]
fn when_out_of_memory_blocked_clients_are_served_before_attempts() {
    for names in [K, K_AND_X] {
        for others in [K, &[b"k", b"y"]] {
            let (node, token) = held();
            queue(&node, names, &attempt(7));
            wait(&node, 3, others, &alone(5, 9));
            wait(&node, 4, K, &alone(5, 9));
            node.world.borrow_mut().is_out_of_memory = true;
            release(&node, b"k", token);
            settle(&node);
            // An attempt for several locks is held up by an earlier attempt for one of them.
            let first = if names == K && others != K { 4 } else { 3 };
            let token = granted(&node, first).unwrap().granted.token;
            assert_eq!((received(&node).len(), waiters(&node)), (0, 2), "{names:?} {others:?}");
            node.world.borrow_mut().is_out_of_memory = false;
            assert_eq!(node.command(1, |entry| entry.release_all(others, token)).map(|all| all > 0), Ok(true));
            pass(&node, 150);
            assert_eq!(received(&node), ["granted 7 k"], "{names:?} {others:?}");
        }
    }
}

#[test]
fn when_out_of_memory_sharers_behind_an_attempt_are_served_together() {
    let (node, token) = held();
    let shared = |wait| crate::asks::ask(Share::Shared, 5, wait);
    queue(&node, K, &notified_on(CHANNEL, named(7, shared(9))));
    wait(&node, 3, K, &shared(9));
    wait(&node, 4, K, &shared(9));
    node.world.borrow_mut().is_out_of_memory = true;
    release(&node, b"k", token);
    settle(&node);
    assert!(is_granted(&node, 3) && is_granted(&node, 4));
}

#[test]
fn all_attempts_of_a_channel_are_cancelled_in_the_queue_of_a_key() {
    let (node, token) = held();
    hold(&node, 1, b"l", &alone(60, 0));
    queue(&node, K, &attempt(7));
    queue(&node, K_AND_X, &attempt(8));
    queue(&node, &[b"l"], &attempt(9));
    queue(&node, K, &notified_on(OTHER, named(10, alone(5, 99))));
    let cancel = |name: &[u8]| node.command(1, |entry| entry.cancel_channel(name, b"app-1"));
    assert_eq!(cancel(b"k"), 2);
    assert_eq!(received(&node), ["cancelled 7 k", "cancelled 8 k"]);
    assert_eq!((cancel(b"k"), waiters(&node)), (0, 2));
    assert!(matches!(acquire(&node, 3, K, &attempt(7)), Ok(Outcome::NotGranted)), "late copies get nothing");
    release(&node, b"k", token);
    assert_eq!(received(&node), ["granted 10 k"]);
    // An unclaimed grant is cancelled too.
    let unclaimed = node.command(1, |entry| entry.cancel_channel(b"k", b"app-2"));
    settle(&node);
    assert_eq!((unclaimed, value(&node, b"k")), (1, None));
}

#[test]
fn a_lost_slot_ends_the_waits_for_its_keys() {
    let (node, _) = held();
    queue(&node, K, &attempt(7));
    queue(&node, K_AND_X, &in_session(attempt(8)));
    node.world.borrow_mut().lost_slots = Some([b"k".to_vec()].into());
    pass(&node, 50);
    for _ in 0..11 {
        node.pass(Micros(100_000));
        node.event(|entry| entry.tick());
        settle(&node);
    }
    let mut messages = received(&node);
    messages.sort_unstable();
    assert_eq!(messages, ["unblocked 7 k", "unblocked 8 k"]);
    assert_eq!(waiters(&node), 0);
}
