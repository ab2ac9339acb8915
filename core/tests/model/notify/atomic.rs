//! Transactions and scripts: attempts can queue in them, and grants are announced after them.

use super::{attempt, hang_up, held, notified_on, queue, received, release, value, CHANNEL, K, OTHER};
use crate::asks::{acquire, alone, in_session, named, seconds, settle};
use redis_lock_core::lock::error::Error;

#[test]
fn a_grant_in_a_transaction_or_a_script_is_announced_after_it() {
    for is_script in [false, true] {
        for has_subscriber in [false, true] {
            let (node, token) = held();
            queue(&node, K, &attempt(7));
            queue(&node, K, &notified_on(OTHER, named(8, alone(5, 99))));
            if !has_subscriber {
                hang_up(&node, CHANNEL);
                node.pass(seconds(3));
            }
            {
                let mut world = node.world.borrow_mut();
                (world.is_script, world.is_transaction) = (is_script, !is_script);
            }
            release(&node, b"k", token);
            assert_eq!(received(&node), [""; 0]);
            assert_eq!(value(&node, b"k").unwrap().1, None, "the lock is granted anyway");
            {
                let mut world = node.world.borrow_mut();
                (world.is_script, world.is_transaction) = (false, false);
            }
            settle(&node);
            let expected: &[&str] = if has_subscriber { &["granted 7 k"] } else { &["granted 7 k", "granted 8 k"] };
            assert_eq!(received(&node), expected);
        }
    }
}

#[test]
fn a_command_in_a_transaction_or_a_script_queues() {
    let (node, token) = held();
    node.world.borrow_mut().is_transaction = true;
    queue(&node, K, &attempt(7));
    node.world.borrow_mut().is_transaction = false;
    node.world.borrow_mut().is_script = true;
    queue(&node, K, &attempt(8));
    assert_eq!(acquire(&node, 2, K, &in_session(attempt(9))).unwrap_err(), Error::Session);
    node.world.borrow_mut().is_script = false;
    release(&node, b"k", token);
    assert_eq!(received(&node), ["granted 7 k"]);
}
