//! A newer command with the ID of an unclaimed grant, for other keys: it replaces the attempt, unless it fails.

use super::{attempt, claim, held, queue, received, release, value, K, K_AND_X};
use crate::asks::{acquire, alone, hold, is_granted, named, place, seconds, settle, wait};
use crate::fake::{Content, Node, Settings, Stored};
use redis_lock_core::driver::{Ask, Outcome};
use redis_lock_core::lock::error::Error;
use redis_lock_core::lock::grace;
use redis_lock_core::lock::request::Share;
use redis_lock_core::lock::token::Token;

const K_AND_W: &[&[u8]] = &[b"k", b"w"];

/// A server on which an attempt was just notified of its grant of two keys, with another client behind it.
fn notified() -> (Node, Token) {
    let (node, token) = held();
    queue(&node, K_AND_X, &attempt(7));
    release(&node, b"k", token);
    settle(&node);
    wait(&node, 9, K, &alone(5, 9));
    assert_eq!(received(&node), ["granted 7 k"]);
    let token = value(&node, b"k").unwrap().0;
    (node, token)
}

/// A command that fails, and why.
struct Failing {
    breaks: fn(&Node),
    mends: fn(&Node),
    names: &'static [&'static [u8]],
    ask: Ask<'static>,
    is_it: fn(&Error) -> bool,
}

#[test]
fn a_newer_command_that_fails_leaves_the_unclaimed_grant_as_it_is() {
    let failing = [
        Failing {
            breaks: |node| node.world.borrow_mut().settings.limits.queued = 0,
            mends: |node| node.world.borrow_mut().settings.limits = Settings::default().limits,
            names: K,
            ask: attempt(7),
            is_it: |error| *error == Error::BusyQueue,
        },
        Failing {
            breaks: |node| {
                let content = Content::Set([(b"no holder".to_vec(), 0)].into());
                node.put(&place(b"w"), Some(Stored { content, expire_at_ms: None }));
            },
            mends: |_| {},
            names: K_AND_W,
            ask: attempt(7),
            is_it: |error| *error == Error::WrongType,
        },
        Failing {
            breaks: |node| {
                let grace = grace::Settings { grace: seconds(9), margin: seconds(1), max_lag: seconds(1), wanted: 0 };
                node.world.borrow_mut().settings.grace = Some(grace);
            },
            mends: |node| node.world.borrow_mut().settings.grace = None,
            names: K,
            ask: attempt(7),
            is_it: |error| matches!(error, Error::Grace(_)),
        },
        Failing {
            breaks: |node| {
                hold(node, 5, b"w", &named(7, crate::asks::ask(Share::Shared, 60, 0)));
            },
            mends: |_| {},
            names: K_AND_W,
            ask: attempt(7),
            is_it: |error| *error == Error::HeldAmongSeveral,
        },
    ];
    for failing in failing {
        let (node, token) = notified();
        (failing.breaks)(&node);
        let before = node.world.borrow().keys.clone();
        let error = acquire(&node, 2, failing.names, &failing.ask).unwrap_err();
        assert!((failing.is_it)(&error), "{error:?}");
        settle(&node);
        assert_eq!(node.world.borrow().keys, before, "{error:?}");
        assert_eq!((received(&node).len(), is_granted(&node, 9)), (0, false), "{error:?}");
        (failing.mends)(&node);
        assert_eq!(claim(&node, 2, K_AND_X, &attempt(7)).token, token, "{error:?}");
    }
}

#[test]
fn a_newer_command_of_a_cancelled_id_leaves_the_unclaimed_grant() {
    let (node, _) = notified();
    assert!(!node.command(1, |entry| entry.cancel(b"w", crate::asks::id(7))).unwrap());
    let before = value(&node, b"k");
    let outcome = acquire(&node, 2, K_AND_W, &attempt(7));
    assert!(matches!(outcome, Ok(Outcome::NotGranted)), "{outcome:?}");
    settle(&node);
    assert_eq!((value(&node, b"k"), received(&node).len()), (before, 0));
}

#[test]
fn a_newer_command_that_waits_passes_the_unclaimed_grant_on() {
    let (node, token) = notified();
    queue(&node, K, &attempt(7));
    settle(&node);
    assert!(is_granted(&node, 9));
    assert_eq!(value(&node, b"x"), None);
    let (next, ..) = value(&node, b"k").unwrap();
    assert!(next > token);
    release(&node, b"k", next);
    settle(&node);
    assert_eq!(received(&node), ["granted 7 k"], "the attempt is queued with its newer command");
}
