//! Many attempts that have ended and not left yet. If they were cancelled with their channel, they get nothing more,
//! wherever they are parked and however often they are resent. If they leave with a result, nothing can cancel them.

use super::{attempt, queue, received, release, subscribe, waiters, CHANNEL, K, K_AND_X};
use crate::asks::{acquire, alone, hold, settle, START};
use crate::fake::{Node, Settings};
use redis_lock_core::driver::{Ask, Outcome};
use redis_lock_core::engine::Limits;
use redis_lock_core::lock::token::Token;

/// More attempts than leave in one event-loop iteration.
const ATTEMPTS: u32 = 600;

/// A server whose lock `k` is held, with many attempts that want these locks.
fn many_attempts_for(names: &[&[u8]], ask: impl Fn(u64) -> Ask<'static>) -> (Node, Token) {
    let limits = Limits { queued: 2 * ATTEMPTS as usize, ..Settings::default().limits };
    let node = Node::new(Settings { limits, ..Settings::default() }, START);
    subscribe(&node, CHANNEL);
    let token = hold(&node, 1, b"k", &alone(60, 0));
    (1..=u64::from(ATTEMPTS)).for_each(|number| queue(&node, names, &ask(number)));
    (node, token)
}

/// A server whose lock `k` is held, with many attempts that want `k` and `x`.
fn many_attempts() -> (Node, Token) {
    many_attempts_for(K_AND_X, attempt)
}

fn wants_result(number: u64) -> Ask<'static> {
    Ask { wants_result: true, ..attempt(number) }
}

#[test]
fn a_cancelled_attempt_for_several_locks_is_never_granted_any() {
    let (node, k) = many_attempts();
    let x = hold(&node, 3, b"x", &alone(60, 0));
    assert_eq!(node.command(1, |entry| entry.cancel_channel(b"k", CHANNEL.name)), ATTEMPTS as usize);
    received(&node);
    assert!(waiters(&node) > 0, "some have not left yet");
    release(&node, b"k", k);
    release(&node, b"x", x);
    settle(&node);
    let granted: Vec<String> = received(&node).into_iter().filter(|message| message.starts_with("granted")).collect();
    assert_eq!((granted, waiters(&node)), (Vec::new(), 0));
}

#[test]
fn a_cancelled_attempt_for_several_locks_is_barred_before_it_leaves() {
    let (node, k) = many_attempts();
    node.command(1, |entry| entry.cancel_channel(b"k", CHANNEL.name));
    assert!(waiters(&node) > 0, "some have not left yet");
    for number in [1, u64::from(ATTEMPTS)] {
        for names in [K_AND_X, K] {
            let late = acquire(&node, 2, names, &attempt(number));
            assert!(matches!(late, Ok(Outcome::NotGranted)), "{number} {names:?}: {late:?}");
        }
    }
    release(&node, b"k", k);
    settle(&node);
    assert_eq!(waiters(&node), 0);
}

#[test]
fn attempts_that_have_left_with_a_result_are_not_counted_as_cancelled() {
    let (node, k) = many_attempts_for(K, wants_result);
    let cancel = || node.command(1, |entry| entry.cancel_channel(b"k", CHANNEL.name));
    // Attempts that stay in the queue are between those that leave.
    (1..=3).for_each(|number| queue(&node, K, &attempt(1_000 * number)));
    node.command(1, |entry| entry.release_with(b"k", k, Some(b"42"))).unwrap();
    assert!(waiters(&node) > 3, "some have not left yet");
    // Two wait, and one has been granted the lock.
    assert_eq!(cancel(), 3);
    queue(&node, K, &attempt(5_000));
    assert_eq!((cancel(), cancel()), (1, 0));
    settle(&node);
    let of = |start: &str| received(&node).iter().filter(|message| message.starts_with(start)).count();
    assert_eq!((of("result"), waiters(&node)), (ATTEMPTS as usize, 0));
}

#[test]
fn cancelled_attempts_that_then_leave_with_a_result_are_counted_once() {
    let (node, k) = many_attempts_for(K, wants_result);
    let cancel = || node.command(1, |entry| entry.cancel_channel(b"k", CHANNEL.name));
    assert_eq!(cancel(), ATTEMPTS as usize);
    node.command(1, |entry| entry.release_with(b"k", k, Some(b"42"))).unwrap();
    assert_eq!(cancel(), 0);
    settle(&node);
    assert_eq!(waiters(&node), 0);
}
