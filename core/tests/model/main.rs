//! The driver and the engine on a fake server, model checked: every order of what clients, network, server and clock can
//! do, within bounds. docs/TESTING.md says what is checked, what is left out, and how each check was seen to fail.
//!
//! `cargo test --test model -- --nocapture` prints how many states were looked at, and the counter-examples.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]
#![allow(clippy::arithmetic_side_effects, clippy::redundant_closure_for_method_calls, dead_code)]
#![allow(clippy::struct_excessive_bools)]

mod canonical;
mod check;
mod classic;
mod clients;
mod failover;
mod fake;
mod mutants;
mod protocol;
mod scopes;
mod server;
mod several;
mod witness;

use fake::{Node, Settings};
use redis_lock_core::driver::{Ask, Outcome};
use redis_lock_core::engine::outbox::Answer;
use redis_lock_core::lock::rules::{Release, Request, Share};
use redis_lock_core::lock::time::{Micros, UnixMicros};

fn ask(wait: u64) -> Ask<'static> {
    let request = Request { share: Share::Alone, lease: Micros(30_000_000), id: None, owner: None };
    Ask { request, wait: Micros(wait), shape: redis_lock_core::engine::queue::ReplyShape::Token, session: false }
}

#[test]
fn a_lock_passes_on() {
    let node = Node::new(Settings::default(), UnixMicros(1_763_710_000_000_000));
    let name = &b"k"[..];
    let Ok(Outcome::Granted(first)) = node.command(1, |entry| entry.acquire(name, &ask(0))) else { panic!() };
    assert!(matches!(node.command(2, |entry| entry.acquire(name, &ask(1_000_000))), Ok(Outcome::Waits)));
    assert_eq!(node.command(1, |entry| entry.release(name, first.token)), Ok(Release::InTime));
    assert!(matches!(node.deliver(fake::Blocked(2)), Some(Answer::Granted(_))));
}
