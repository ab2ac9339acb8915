//! Helpers for tests that go through events on the fake server step by step: clients' commands with times in seconds,
//! their replies, and running the event loop until nothing is due.

use crate::fake::{Blocked, Node, Settings};
use redis_lock_core::driver::{Ask, Outcome};
use redis_lock_core::engine::counters::Counter;
use redis_lock_core::engine::grant::Granted;
use redis_lock_core::engine::outbox::{Answer, Grant};
use redis_lock_core::engine::queue::ReplyShape;
use redis_lock_core::lock::error::Error;
use redis_lock_core::lock::record::Id;
use redis_lock_core::lock::request::{Request, Share};
use redis_lock_core::lock::time::{Micros, UnixMicros};
use redis_lock_core::lock::token::Token;

/// When a server starts.
pub const START: UnixMicros = UnixMicros(1_763_710_000_000_000);

pub fn node() -> Node {
    Node::new(Settings::default(), START)
}

pub const fn seconds(number: u64) -> Micros {
    Micros(number * 1_000_000)
}

/// A lease and a wait in seconds.
pub fn ask(share: Share, lease: u64, wait: u64) -> Ask<'static> {
    let request = Request { share, lease: seconds(lease), id: None, owner: None };
    Ask { request, wait: seconds(wait), shape: ReplyShape::Token, session: false, wants_result: false, notify: None }
}

pub fn alone(lease: u64, wait: u64) -> Ask<'static> {
    ask(Share::Alone, lease, wait)
}

pub fn id(number: u64) -> Id {
    Id::parse(number.to_string().as_bytes()).unwrap()
}

/// The same request, with an ID.
pub fn named(number: u64, ask: Ask<'static>) -> Ask<'static> {
    Ask { request: Request { id: Some(id(number)), ..ask.request }, ..ask }
}

/// The same request for a lock that ends with the connection.
pub fn in_session(ask: Ask<'static>) -> Ask<'static> {
    Ask { session: true, ..ask }
}

pub fn acquire(node: &Node, client: u64, names: &[&[u8]], ask: &Ask<'_>) -> Result<Outcome, Error> {
    node.command(client, |entry| match names {
        [name] => entry.acquire(name, ask),
        names => entry.acquire_all(names, ask),
    })
}

pub fn hold(node: &Node, client: u64, name: &[u8], ask: &Ask<'_>) -> Token {
    hold_all(node, client, &[name], ask).token
}

pub fn hold_all(node: &Node, client: u64, names: &[&[u8]], ask: &Ask<'_>) -> Granted {
    match acquire(node, client, names, ask) {
        Ok(Outcome::Granted(granted)) => granted,
        other => panic!("{other:?}"),
    }
}

pub fn wait(node: &Node, client: u64, names: &[&[u8]], ask: &Ask<'_>) {
    let outcome = acquire(node, client, names, ask);
    assert!(matches!(outcome, Ok(Outcome::Waits)), "{outcome:?}");
}

/// The grant that is on its way to a client.
pub fn granted(node: &Node, client: u64) -> Option<Grant> {
    match node.deliver(Blocked(client))? {
        Answer::Granted(grant) => Some(grant),
        other => panic!("{other:?}"),
    }
}

pub fn is_granted(node: &Node, client: u64) -> bool {
    granted(node, client).is_some()
}

pub fn place(name: &[u8]) -> (i32, Vec<u8>) {
    (0, name.to_vec())
}

pub fn count(node: &Node, counter: Counter) -> u64 {
    node.driver.borrow().engine().counters().get(counter)
}

/// Runs the timer until nothing is due.
pub fn settle(node: &Node) {
    let fires = (0..1_000).take_while(|_| node.fire()).count();
    assert!(fires < 1_000, "the timer fires forever");
}
