//! Many attempts for several locks that were cancelled with their channel and have not left yet: they get nothing more,
//! wherever they are parked and however often they are resent.

use super::{attempt, queue, received, release, subscribe, waiters, CHANNEL, K, K_AND_X};
use crate::asks::{acquire, alone, hold, settle, START};
use crate::fake::{Node, Settings};
use redis_lock_core::driver::Outcome;
use redis_lock_core::engine::Limits;
use redis_lock_core::lock::token::Token;

/// More attempts than leave in one event-loop iteration.
const ATTEMPTS: u32 = 600;

/// A server whose lock `k` is held, with many attempts that want `k` and `x`.
fn many_attempts() -> (Node, Token) {
    let limits = Limits { queued: 2 * ATTEMPTS as usize, ..Settings::default().limits };
    let node = Node::new(Settings { limits, ..Settings::default() }, START);
    subscribe(&node, CHANNEL);
    let token = hold(&node, 1, b"k", &alone(60, 0));
    (1..=u64::from(ATTEMPTS)).for_each(|number| queue(&node, K_AND_X, &attempt(number)));
    (node, token)
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
