//! A wall clock that is set. Replica lags are measured with it, so a master with a grace distrusts its last counts
//! until it has checked the replicas again. `failover` contains the rule; here the driver has to check in time.

use crate::asks::{self, alone, seconds, START};
use crate::fake::{Node, Settings};
use redis_lock_core::driver::Outcome;
use redis_lock_core::lock::error::Error;
use redis_lock_core::lock::grace;
use redis_lock_core::lock::time::UnixMicros;
use redis_lock_core::lock::token::Token;

fn acquire(node: &Node, name: &[u8]) -> Result<Token, Error> {
    match asks::acquire(node, 1, &[name], &alone(30, 0))? {
        Outcome::Granted(granted) => Ok(granted.token),
        other => panic!("{other:?}"),
    }
}

#[test]
fn after_a_clock_step_nothing_is_granted_until_the_replicas_are_checked() {
    let grace = grace::Settings { grace: seconds(60), margin: seconds(1), max_lag: seconds(1), wanted: 0 };
    let node = Node::new(Settings { grace: Some(grace), ..Settings::default() }, START);
    node.pass(grace.grace);
    node.event(|entry| entry.tick());
    let token = acquire(&node, b"held").unwrap();
    for (name, ahead) in [(b"1", 2), (b"2", -2)] {
        // No tick happens in between: the next command has to notice the step.
        let wall = node.world.borrow().wall.0.checked_add_signed(ahead * 1_000_000).unwrap();
        node.world.borrow_mut().wall = UnixMicros(wall);
        let extended = node.command(1, |entry| entry.extend(b"held", token, seconds(30)));
        assert_eq!(extended, Err(Error::NoReplicas), "the clock was set by {ahead} s");
        assert_eq!(acquire(&node, name), Err(Error::NoReplicas), "the clock was set by {ahead} s");
        node.event(|entry| entry.tick());
        assert!(acquire(&node, name).is_ok(), "the replicas were checked");
    }
}
