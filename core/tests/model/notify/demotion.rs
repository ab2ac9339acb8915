//! How a demotion and a grace affect grants: nobody can claim them afterwards, and only the server that made them
//! reports them again.

use super::{attempt, claim, notified, pass, queue, received, release, value, K};
use crate::asks::{acquire, alone, hold, named, seconds, settle, START};
use crate::fake::{Node, Settings};
use redis_lock_core::engine::Limits;
use redis_lock_core::lock::error::Error;
use redis_lock_core::lock::grace;
use redis_lock_core::lock::time::Micros;

#[test]
fn a_demoted_server_forgets_many_grants_in_pieces() {
    let limits = Limits { queued: 10_000, ..Settings::default().limits };
    let node = Node::new(Settings { limits, ..Settings::default() }, START);
    for number in 0..2_500_u64 {
        let name = number.to_string().into_bytes();
        let token = hold(&node, 1, &name, &alone(30, 0));
        queue(&node, &[&name], &attempt(number));
        release(&node, &name, token);
    }
    settle(&node);
    node.world.borrow_mut().is_replica = true;
    node.event(|entry| entry.demoted());
    let mut pieces = 1;
    while node.fire() {
        pieces += 1;
    }
    assert_eq!(pieces, 10, "256 at a time");
    assert_eq!(node.timer_at(), None, "nothing is left to do");
}

#[test]
fn nobody_claims_after_a_demotion_and_the_grant_ends_at_its_timestamp() {
    let (node, _) = notified(K);
    queue(&node, K, &attempt(8));
    let before = value(&node, b"k");
    node.world.borrow_mut().is_replica = true;
    node.event(|entry| entry.demoted());
    settle(&node);
    assert_eq!(received(&node), ["unblocked 8 k"]);
    node.world.borrow_mut().is_replica = false;
    node.event(|entry| entry.promoted());
    queue(&node, K, &attempt(7));
    assert_eq!(value(&node, b"k"), before, "its holder is unknown");
    pass(&node, 3_050);
    assert_eq!(received(&node), ["granted 7 k"], "the grant ended like that of a predecessor that never released");
    assert_eq!(claim(&node, 3, K, &attempt(7)).before(0).unwrap().token, before.map(|(token, ..)| token));
}

#[test]
fn only_the_granting_server_reports_a_lock_again_in_the_grace() {
    let set = grace::Settings { grace: seconds(20), margin: seconds(1), max_lag: seconds(1), wanted: 0 };
    let node = Node::new(Settings { grace: Some(set), ..Settings::default() }, START);
    for _ in 0..250 {
        node.pass(Micros(100_000));
        node.event(|entry| entry.tick());
    }
    let ask = named(7, alone(5, 0));
    hold(&node, 1, b"k", &ask);
    node.event(|entry| entry.promoted());
    node.pass(Micros(100_000));
    node.event(|entry| entry.tick());
    let before = value(&node, b"k");
    assert!(matches!(acquire(&node, 1, K, &ask), Err(Error::Grace(_))));
    assert_eq!(value(&node, b"k"), before, "its lease is not extended");
}
