//! A holder releases its lock with a result: whoever waits with RESULT gets the result instead of the lock, and leaves
//! the queue; the first of the others gets the lock.

mod blocked;
mod denied;
mod kept;
mod many;

use crate::waiting::{Locks, Waiter};
use testkit::Reply;

/// The reply to a client that gets this value instead of the lock.
fn result(value: impl AsRef<[u8]>) -> Reply {
    Reply::List(vec![Reply::Text(value.as_ref().to_vec())])
}

/// Releases `k` with a result. Returns the reply.
fn release_with(locks: &mut Locks, token: impl std::fmt::Display, value: &str) -> Reply {
    locks.conn.execute(&["LOCK.RELEASE", "k", &token.to_string(), "RESULT", value])
}

/// Clients that wait for `k` with RESULT.
fn wait_for_result(locks: &mut Locks, count: usize) -> Vec<Waiter> {
    (0..count).map(|_| locks.wait(&["RESULT"])).collect()
}
