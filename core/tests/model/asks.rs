//! What clients ask for, in seconds, and the event loop until nothing is due: for tests that say step by step what
//! happens on the fake server.

use crate::fake::Node;
use redis_lock_core::driver::Ask;
use redis_lock_core::engine::queue::ReplyShape;
use redis_lock_core::lock::record::Id;
use redis_lock_core::lock::rules::{Request, Share};
use redis_lock_core::lock::time::{Micros, UnixMicros};

/// When a server starts.
pub const START: UnixMicros = UnixMicros(1_763_710_000_000_000);

pub const fn seconds(number: u64) -> Micros {
    Micros(number * 1_000_000)
}

/// A lease and a wait in seconds.
pub fn ask(share: Share, lease: u64, wait: u64) -> Ask<'static> {
    let request = Request { share, lease: seconds(lease), id: None, owner: None };
    Ask { request, wait: seconds(wait), shape: ReplyShape::Token, session: false }
}

pub fn alone(lease: u64, wait: u64) -> Ask<'static> {
    ask(Share::Alone, lease, wait)
}

/// The same with an ID.
pub fn named(id: u64, ask: Ask<'static>) -> Ask<'static> {
    Ask { request: Request { id: Id::parse(id.to_string().as_bytes()), ..ask.request }, ..ask }
}

/// The timer, until nothing is due.
pub fn settle(node: &Node) {
    let fires = (0..1_000).take_while(|_| node.fire()).count();
    assert!(fires < 1_000, "the timer fires for ever");
}
