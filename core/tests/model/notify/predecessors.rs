//! The predecessors of unclaimed grants: the claim and the next grant report them, and they are restored.

use super::{cancel, claim, notified_on, pass, queue, received, release, value, CHANNEL, K, OTHER};
use crate::asks::{alone, ask, granted, hold, named, place, seconds, settle, wait, START};
use crate::fake::{Blocked, Content, Node, Stored};
use redis_lock_core::lock::held::Release;
use redis_lock_core::lock::request::Share;
use redis_lock_core::lock::state::State;
use redis_lock_core::lock::token::Token;

/// A server on which an attempt was just notified of its grant, which succeeds a client of the classic pattern.
fn notified_after_a_classic_client(share: Share) -> Node {
    let node = crate::asks::node();
    super::subscribe(&node, CHANNEL);
    let second = (START.0 / 1_000_000 + 1).to_string().into_bytes();
    node.put(&place(b"k"), Some(Stored { content: Content::String(second), expire_at_ms: None }));
    queue(&node, K, &notified_on(CHANNEL, named(7, ask(share, 5, 9))));
    pass(&node, 2_100);
    assert_eq!(received(&node), ["granted 7 k"]);
    node
}

#[test]
fn the_successor_of_an_unclaimed_grant_gets_the_classic_predecessor() {
    let end: [fn(&Node); 2] = [
        |node| pass(node, 2_100),
        |node| assert_eq!(release(node, b"k", value(node, b"k").unwrap().0), Release::InTime),
    ];
    for end in end {
        let node = notified_after_a_classic_client(Share::Alone);
        wait(&node, 3, K, &alone(5, 99));
        end(&node);
        let granted = granted(&node, 3).unwrap().granted;
        assert_eq!(granted.before(0).unwrap().token, None);
    }
}

#[test]
fn a_predecessor_without_a_token_is_restored_beside_other_holders() {
    let node = notified_after_a_classic_client(Share::Shared);
    let other = hold(&node, 3, b"k", &ask(Share::Shared, 5, 0));
    assert!(cancel(&node, b"k", 7));
    settle(&node);
    let ends = node.with_lock(&place(b"k"), |lock| match lock {
        State::Several(holders) => holders.iter().map(|holder| (holder.token == other, holder.timestamp)).collect(),
        _ => Vec::new(),
    });
    assert_eq!(ends.len(), 2, "{ends:?}");
    assert!(ends.contains(&(false, START.after(seconds(1)))), "{ends:?}");
    assert_eq!(release(&node, b"k", other), Release::InTime);
}

/// A server on which attempts were just granted an expired lock, each beside the others. The lock's old holder, with
/// the returned token, had held it alone.
fn notified_after_a_sole_holder(attempts: &[u64]) -> (Node, Token) {
    let node = crate::asks::node();
    super::subscribe(&node, CHANNEL);
    let first = hold(&node, 1, b"k", &alone(5, 0));
    for number in attempts {
        queue(&node, K, &notified_on(CHANNEL, named(*number, ask(Share::Limit(4), 5, 99))));
    }
    pass(&node, 6_050);
    assert_eq!(received(&node).len(), attempts.len());
    (node, first)
}

/// The ways in which an unclaimed grant ends.
const ENDS: [fn(&Node); 3] = [
    |node| pass(node, 2_100),
    |node| assert!(cancel(node, b"k", 7)),
    |node| {
        let token = node.with_lock(&place(b"k"), |lock| match lock {
            State::Several(holders) => holders.iter().map(|holder| holder.token).min(),
            _ => None,
        });
        assert_eq!(release(node, b"k", token.unwrap()), Release::InTime);
    },
];

#[test]
fn a_late_release_is_over_once_others_could_join() {
    for (number, end) in ENDS.into_iter().enumerate() {
        // Alongside a grant that is never claimed, another client holds the lock, has held it, or has never held it.
        for (joins, is_released) in [(true, true), (true, false), (false, false)] {
            let (node, first) = notified_after_a_sole_holder(&[7]);
            let joined = joins.then(|| claim(&node, 3, K, &ask(Share::Limit(3), 5, 0)).token);
            if let Some(token) = joined.filter(|_| is_released) {
                assert_eq!(release(&node, b"k", token), Release::InTime);
            }
            end(&node);
            settle(&node);
            assert_eq!(release(&node, b"k", first), Release::Over, "{number} {joins} {is_released}");
            if let Some(token) = joined.filter(|_| !is_released) {
                assert_eq!(release(&node, b"k", token), Release::InTime);
            }
            let next = claim(&node, 4, K, &alone(5, 0));
            assert!(next.before(0).is_some(), "a holder that never released is reported: {number} {joins}");
        }
    }
}

#[test]
fn a_late_release_is_over_after_a_chain_of_grants_that_nobody_claimed() {
    for end in ENDS {
        let (node, first) = notified_after_a_sole_holder(&[7]);
        let joined = claim(&node, 3, K, &ask(Share::Limit(3), 5, 0)).token;
        // A channel that misses a grant is skipped.
        super::subscribe(&node, OTHER);
        queue(&node, K, &notified_on(OTHER, named(9, alone(5, 99))));
        assert_eq!(release(&node, b"k", joined), Release::InTime);
        end(&node);
        settle(&node);
        assert!(received(&node).contains(&"granted 9 k".to_owned()), "that attempt is handed the lock alone");
        assert!(cancel(&node, b"k", 9));
        settle(&node);
        assert_eq!(release(&node, b"k", first), Release::Over);
        assert!(claim(&node, 4, K, &alone(5, 0)).before(0).is_some(), "a holder that never released is reported");
    }
}

#[test]
fn a_late_release_is_over_after_a_chain_that_ends_with_a_lost_grant() {
    let (node, first) = notified_after_a_sole_holder(&[7]);
    let joined = claim(&node, 3, K, &ask(Share::Limit(3), 5, 0)).token;
    wait(&node, 4, K, &alone(5, 99));
    assert_eq!(release(&node, b"k", joined), Release::InTime);
    assert!(cancel(&node, b"k", 7));
    node.lose(Blocked(4)).expect("it is handed the lock");
    settle(&node);
    assert_eq!(release(&node, b"k", first), Release::Over);
}

#[test]
fn a_late_release_is_over_once_another_joined_a_lost_grant() {
    for is_released in [true, false] {
        let node = crate::asks::node();
        let first = hold(&node, 1, b"k", &alone(5, 0));
        wait(&node, 2, K, &ask(Share::Shared, 5, 99));
        node.pass(seconds(6));
        settle(&node);
        let joined = claim(&node, 3, K, &ask(Share::Shared, 5, 0)).token;
        if is_released {
            assert_eq!(release(&node, b"k", joined), Release::InTime);
        }
        node.lose(Blocked(2));
        settle(&node);
        assert_eq!(release(&node, b"k", first), Release::Over);
    }
}

#[test]
fn the_claim_gets_the_exclusive_holders_token_and_the_next_holder_the_unclaimed_grants() {
    let attempt = |number, most| notified_on(CHANNEL, named(number, ask(Share::Limit(most), 5, 99)));
    let (node, first) = notified_after_a_sole_holder(&[7]);
    queue(&node, K, &attempt(8, 1));
    let node_of_claim = node.clone();
    let granted = claim(&node_of_claim, 3, K, &attempt(7, 4));
    assert_eq!(granted.before(0).unwrap().token, Some(first));
    assert!(cancel(&node, b"k", 7));
    settle(&node);
    assert_eq!(claim(&node, 3, K, &attempt(8, 1)).before(0).unwrap().token, Some(granted.token));
}

#[test]
fn a_holder_that_never_released_is_reported_to_the_claim_and_the_successor() {
    for share in [Share::Alone, Share::Limit(1)] {
        let node = crate::asks::node();
        super::subscribe(&node, CHANNEL);
        super::subscribe(&node, OTHER);
        let first = hold(&node, 1, b"k", &ask(share, 5, 0));
        let [seventh, eighth] =
            [(7, CHANNEL), (8, OTHER)].map(|(number, channel)| notified_on(channel, named(number, ask(share, 5, 99))));
        queue(&node, K, &seventh);
        pass(&node, 6_050);
        assert_eq!(received(&node), ["granted 7 k"]);
        queue(&node, K, &eighth);
        let claimed = node.clone();
        let granted = claim(&claimed, 3, K, &seventh);
        assert_eq!(granted.before(0).unwrap().token, Some(first), "its own predecessor");
        assert_eq!(claim(&claimed, 3, K, &seventh).before(0).unwrap().token, Some(first), "and when it is resent");
        // The grant is released or cancelled, or nobody claims it, so it is passed on.
        let end: [fn(&Node); 5] = [
            |node| {
                let token = value(node, b"k").unwrap().0;
                assert!(cancel(node, b"k", 7));
                assert_eq!(release(node, b"k", token), Release::Over, "the grant has been passed on");
            },
            |node| pass(node, 2_050),
            |node| assert!(cancel(node, b"k", 7)),
            |node| assert_eq!(release(node, b"k", value(node, b"k").unwrap().0), Release::InTime),
            |node| {
                let token = value(node, b"k").unwrap().0;
                assert_eq!(node.command(1, |entry| entry.release_all(K, token)), Ok(1));
            },
        ];
        for (number, end) in end.into_iter().enumerate() {
            for has_next in [true, false] {
                let node = node.clone();
                if !has_next {
                    assert!(cancel(&node, b"k", 8));
                    received(&node);
                }
                end(&node);
                settle(&node);
                if has_next {
                    assert!(received(&node).contains(&"granted 8 k".to_owned()), "{share:?} {number}");
                    let granted = claim(&node, 3, K, &eighth);
                    assert_eq!(granted.before(0).unwrap().token, Some(first), "{share:?} {number}");
                } else {
                    assert_eq!(value(&node, b"k").unwrap().0, first, "{share:?} {number}");
                }
            }
        }
    }
    // If nobody waits, the lock is what it was before: expired, with its predecessor.
    let node = crate::asks::node();
    super::subscribe(&node, CHANNEL);
    let first = hold(&node, 1, b"k", &alone(5, 0));
    let before = value(&node, b"k");
    queue(&node, K, &notified_on(CHANNEL, named(7, alone(5, 99))));
    pass(&node, 6_050);
    assert_ne!(value(&node, b"k"), before);
    pass(&node, 2_050);
    assert_eq!(value(&node, b"k"), before);
    assert_eq!(hold(&node, 1, b"k", &alone(5, 0)).get().max(first.get() + 1), value(&node, b"k").unwrap().0.get());
}
