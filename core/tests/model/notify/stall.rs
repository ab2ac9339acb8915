//! A server that stalls for longer than a claim may take: the claim waiting in its socket is accepted, even where a
//! lock ends with its timestamp.

use super::{attempt, claim, pass, place, queue, received, release, subscribe, value, CHANNEL, K, K_AND_X};
use crate::asks::{acquire, alone, hold, is_granted, seconds, settle, wait, START};
use crate::fake::{Node, Settings};
use redis_lock_core::driver::Outcome;
use redis_lock_core::lock::retention::Retention;
use redis_lock_core::lock::time::Micros;
use redis_lock_core::lock::token::Token;

const RETENTIONS: [Retention; 4] = [Retention::Ms(0), Retention::Ms(1), Retention::Ms(60_000), Retention::Forever];

/// A server without a margin on which an attempt was just notified of its grant of these keys, and the grant's token.
fn notified(retention: Retention, names: &[&[u8]]) -> (Node, Token) {
    let node = Node::new(Settings { margin: Micros(0), retention, ..Settings::default() }, START);
    subscribe(&node, CHANNEL);
    let token = hold(&node, 1, b"k", &alone(60, 0));
    queue(&node, names, &attempt(7));
    release(&node, b"k", token);
    settle(&node);
    assert_eq!(received(&node), ["granted 7 k"]);
    let token = value(&node, b"k").unwrap().0;
    (node, token)
}

#[test]
fn a_claim_is_accepted_after_a_stall_whatever_the_retention() {
    for retention in RETENTIONS {
        for names in [K, K_AND_X] {
            for has_waiter in [false, true] {
                let (node, token) = notified(retention, names);
                if has_waiter {
                    wait(&node, 4, K, &alone(5, 99));
                }
                node.pass(seconds(5));
                node.fire();
                let newcomer = acquire(&node, 3, K, &alone(5, 0));
                let context = format!("{retention:?} {names:?} {has_waiter}: {newcomer:?}");
                assert!(matches!(newcomer, Ok(Outcome::NotGranted)), "{context}");
                assert!(!is_granted(&node, 4), "{context}");
                assert_eq!(claim(&node, 2, names, &attempt(7)).token, token, "{context}");
                release(&node, b"k", token);
                settle(&node);
                assert_eq!(is_granted(&node, 4), has_waiter, "{context}");
            }
        }
    }
}

#[test]
fn a_grant_that_others_deleted_is_not_claimed() {
    for retention in RETENTIONS {
        let (node, token) = notified(retention, K);
        node.delete(&place(b"k"));
        node.pass(seconds(5));
        assert_ne!(claim(&node, 2, K, &attempt(7)).token, token, "a different grant");
    }
}

#[test]
fn a_grant_unclaimed_after_a_stall_leaves_nothing_behind() {
    for retention in RETENTIONS {
        let (node, _) = notified(retention, K_AND_X);
        pass(&node, 5_000);
        assert_eq!((value(&node, b"k"), value(&node, b"x")), (None, None), "{retention:?}");
    }
}
