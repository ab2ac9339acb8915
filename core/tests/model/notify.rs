//! Attempts that wait without a connection, step by step: their places in the queue, their messages, and what they
//! claim. Each test checks one sentence of the contract.

mod atomic;
mod claims;
mod dead;
mod demotion;
mod ended;
mod limits;
mod newer;
mod predecessors;
mod refused;
mod stall;

use crate::asks::{acquire, alone, id, named, place, seconds, settle, START};
use crate::fake::{Node, Settings};
use redis_lock_core::driver::{Ask, ChannelName, Outcome};
use redis_lock_core::engine::grant::Granted;
use redis_lock_core::engine::queue::Channel;
use redis_lock_core::lock::error::Error;
use redis_lock_core::lock::held::Release;
use redis_lock_core::lock::state::State;
use redis_lock_core::lock::time::UnixMicros;
use redis_lock_core::lock::token::Token;

const CHANNEL: ChannelName<'static> = ChannelName { name: b"app-1", is_sharded: false };
const OTHER: ChannelName<'static> = ChannelName { name: b"app-2", is_sharded: false };
const K: &[&[u8]] = &[b"k"];
const K_AND_X: &[&[u8]] = &[b"k", b"x"];

/// The same request, for an attempt that is notified on a channel.
fn notified_on(channel: ChannelName<'static>, ask: Ask<'static>) -> Ask<'static> {
    Ask { notify: Some(channel), ..ask }
}

/// An attempt with a lease of 5 s that waits for 9 s, notified on the first channel.
fn attempt(number: u64) -> Ask<'static> {
    notified_on(CHANNEL, named(number, alone(5, 9)))
}

/// A server whose lock `k` is held, and on which both channels have a subscriber.
fn held() -> (Node, Token) {
    let node = Node::new(Settings::default(), START);
    subscribe(&node, CHANNEL);
    subscribe(&node, OTHER);
    let token = crate::asks::hold(&node, 1, b"k", &alone(60, 0));
    (node, token)
}

/// A server on which an attempt was just notified of its grant.
fn notified(names: &[&[u8]]) -> (Node, Token) {
    let (node, token) = held();
    queue(&node, names, &attempt(7));
    release(&node, b"k", token);
    settle(&node);
    assert_eq!(received(&node), ["granted 7 k"]);
    let token = value(&node, b"k").unwrap().0;
    (node, token)
}

fn subscribe(node: &Node, channel: ChannelName<'_>) {
    node.world.borrow_mut().subscribed.insert(channel.to_owned());
}

fn hang_up(node: &Node, channel: ChannelName<'_>) {
    node.world.borrow_mut().subscribed.remove(&channel.to_owned());
}

fn queue(node: &Node, names: &[&[u8]], ask: &Ask<'_>) {
    let outcome = acquire(node, 2, names, ask);
    assert!(matches!(outcome, Ok(Outcome::Queued)), "{outcome:?}");
}

fn claim(node: &Node, client: u64, names: &[&[u8]], ask: &Ask<'_>) -> Granted {
    crate::asks::hold_all(node, client, names, ask)
}

/// What was published since the last comparison.
fn received(node: &Node) -> Vec<String> {
    let messages = std::mem::take(&mut node.world.borrow_mut().messages);
    messages.into_iter().map(|(_, message)| String::from_utf8(message).unwrap()).collect()
}

fn release(node: &Node, name: &[u8], token: Token) -> Release {
    node.command(1, |entry| entry.release(name, token)).unwrap()
}

fn cancel(node: &Node, name: &[u8], number: u64) -> bool {
    node.command(1, |entry| entry.cancel(name, id(number))).unwrap()
}

/// The token and ID in a key, and when the grant ends.
fn value(node: &Node, name: &[u8]) -> Option<(Token, Option<u64>, UnixMicros)> {
    node.with_lock(&place(name), |lock| match lock {
        State::Held(_, Some(record)) | State::Expired(_, Some(record)) => {
            Some((record.token, record.id.map(|id| id.get()), record.timestamp))
        }
        State::Several(holders) => {
            let holder = holders.iter().last()?;
            Some((holder.token, holder.record().id.map(|id| id.get()), holder.timestamp))
        }
        _ => None,
    })
}

/// Advances the clocks, and the event loop with them: the server does not stall.
fn pass(node: &Node, ms: u64) {
    for _ in 0..ms.div_ceil(50) {
        node.pass(redis_lock_core::lock::time::Micros(50_000));
        node.tick();
        crate::asks::settle(node);
    }
}

fn waiters(node: &Node) -> usize {
    node.driver.borrow().engine().queues().waiters()
}

fn places(node: &Node) -> usize {
    node.driver.borrow().engine().queues().places()
}

#[test]
fn an_attempt_is_queued_notified_and_claims_its_lease() {
    for names in [K, K_AND_X] {
        let (node, token) = held();
        queue(&node, names, &attempt(7));
        assert!(node.world.borrow().blocked.is_empty());
        assert_eq!(received(&node), [""; 0]);
        release(&node, b"k", token);
        crate::asks::settle(&node);
        assert_eq!(received(&node), ["granted 7 k"]);
        let (unclaimed, named, ends) = value(&node, b"k").unwrap();
        assert_eq!(named, None, "only this server knows whose grant it is");
        assert_eq!(ends, START.after(seconds(3)), "a lease of claim-ms, and the margin");
        node.pass(seconds(1));
        let granted = claim(&node, 3, names, &attempt(7));
        assert_eq!(granted.token, unclaimed);
        for name in names {
            assert_eq!(value(&node, name), Some((unclaimed, Some(7), START.after(seconds(7)))), "from the claim on");
        }
        assert_eq!(claim(&node, 4, names, &attempt(7)).token, unclaimed, "a late copy gets the same token");
        assert_eq!(waiters(&node) + places(&node), 0);
    }
}

#[test]
fn a_free_lock_is_granted_at_once_and_wait_0_never_queues() {
    let (node, token) = held();
    let outcome = acquire(&node, 2, K, &notified_on(CHANNEL, named(7, alone(5, 0))));
    assert!(matches!(outcome, Ok(Outcome::NotGranted)));
    assert_eq!(waiters(&node), 0);
    release(&node, b"k", token);
    let granted = claim(&node, 2, K, &attempt(8));
    assert_eq!(value(&node, b"k").unwrap(), (granted.token, Some(8), START.after(seconds(6))));
    assert_eq!(received(&node), [""; 0]);
}

#[test]
fn a_repeated_command_keeps_its_place_and_its_newer_arguments_apply() {
    let (node, token) = held();
    queue(&node, K, &attempt(7));
    queue(&node, K, &attempt(8));
    node.pass(seconds(8));
    queue(&node, K, &notified_on(OTHER, named(7, alone(5, 9))));
    assert_eq!(waiters(&node), 2);
    node.pass(seconds(2));
    crate::asks::settle(&node);
    assert_eq!(received(&node), ["timeout 8 k"], "a wait is measured from the newest command");
    release(&node, b"k", token);
    assert_eq!(node.world.borrow().messages[0].0, Channel { name: b"app-2"[..].into(), is_sharded: false });
    assert_eq!(received(&node), ["granted 7 k"]);
}

#[test]
fn blocked_waiters_and_attempts_queue_in_one_order() {
    let (node, token) = held();
    queue(&node, K, &attempt(7));
    crate::asks::wait(&node, 3, K, &alone(5, 9));
    queue(&node, K, &attempt(8));
    release(&node, b"k", token);
    let first = claim(&node, 2, K, &attempt(7)).token;
    assert!(!crate::asks::is_granted(&node, 3));
    release(&node, b"k", first);
    let second = crate::asks::granted(&node, 3).unwrap().granted.token;
    assert_eq!(received(&node), ["granted 7 k"]);
    release(&node, b"k", second);
    assert_eq!(received(&node), ["granted 8 k"]);
}

#[test]
fn a_blocking_command_takes_over_the_place_and_vice_versa() {
    let (node, token) = held();
    queue(&node, K, &attempt(7));
    queue(&node, K, &attempt(8));
    crate::asks::wait(&node, 3, K, &named(7, alone(5, 9)));
    assert_eq!(received(&node), ["unblocked 7 k"]);
    release(&node, b"k", token);
    assert!(crate::asks::is_granted(&node, 3), "in the place of the attempt");

    let (node, token) = held();
    crate::asks::wait(&node, 3, K, &named(7, alone(5, 9)));
    crate::asks::wait(&node, 4, K, &alone(5, 9));
    queue(&node, K, &attempt(7));
    let replaced = node.deliver(crate::fake::Blocked(3));
    assert!(matches!(replaced, Some(redis_lock_core::engine::outbox::Answer::Failed(Error::Replaced))));
    release(&node, b"k", token);
    assert_eq!(received(&node), ["granted 7 k"]);
    assert!(!crate::asks::is_granted(&node, 4));
}

#[test]
fn a_wait_ends_when_its_time_is_up_and_its_place_is_kept() {
    for names in [K, K_AND_X] {
        let (node, token) = held();
        queue(&node, names, &attempt(7));
        pass(&node, 8_900);
        assert_eq!(received(&node), [""; 0]);
        pass(&node, 200);
        assert_eq!(received(&node), ["timeout 7 k"]);
        assert_eq!((waiters(&node), places(&node)), (0, 1));
        crate::asks::wait(&node, 3, K, &alone(5, 9));
        queue(&node, names, &attempt(7));
        release(&node, b"k", token);
        crate::asks::settle(&node);
        assert_eq!(received(&node), ["granted 7 k"], "in its old place");
    }
}

#[test]
fn cancel_ends_a_wait_and_bars_late_copies_for_a_while() {
    for names in [K, K_AND_X] {
        let (node, token) = held();
        queue(&node, names, &attempt(7));
        assert!(cancel(&node, b"k", 7));
        assert_eq!(received(&node), ["cancelled 7 k"]);
        release(&node, b"k", token);
        let late = |names: &[&[u8]]| acquire(&node, 3, names, &attempt(7));
        assert!(matches!(late(names), Ok(Outcome::NotGranted)));
        assert!(matches!(late(K_AND_X), Ok(Outcome::NotGranted)), "the key is one of them");
        assert!(matches!(late(&[b"other"]), Ok(Outcome::Granted(_))), "another key");
        assert!(!cancel(&node, b"k", 7), "that attempt is no longer known");
        assert_eq!(value(&node, b"k"), None);
        pass(&node, 10_100);
        assert!(matches!(late(names), Ok(Outcome::Granted(_))));
    }
}

#[test]
fn cancelling_an_unknown_id_bars_only_that_id() {
    let (node, token) = held();
    assert!(!cancel(&node, b"k", 7));
    release(&node, b"k", token);
    assert!(matches!(acquire(&node, 3, K, &attempt(8)), Ok(Outcome::Granted(_))));
    assert!(matches!(acquire(&node, 3, K, &attempt(7)), Ok(Outcome::NotGranted)), "CANCEL came before its command");
}
