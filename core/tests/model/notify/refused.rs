//! Writes that the server refuses: nothing is announced that was not written, and a grant remains claimable.

use super::{
    attempt, cancel, claim, held, notified, notified_on, pass, queue, received, value, waiters, CHANNEL, K, K_AND_X,
};
use crate::asks::{alone, ask, hold, is_granted, named, seconds, settle, wait};
use crate::fake::Node;
use redis_lock_core::driver::WriteRefused;
use redis_lock_core::lock::error::Error;
use redis_lock_core::lock::held::Release;
use redis_lock_core::lock::request::Share;
use redis_lock_core::lock::time::Micros;
use redis_lock_core::lock::token::Token;

#[test]
fn a_release_that_cannot_be_written_leaves_its_grant_to_be_claimed() {
    type Release = fn(&Node, &[&[u8]], Token) -> Result<(), Error>;
    let one: Release = |node, names, token| node.command(1, |entry| entry.release(names[0], token)).map(|_| ());
    let all: Release = |node, names, token| node.command(1, |entry| entry.release_all(names, token)).map(|_| ());
    // The key alone, with a waiter behind it, and with a predecessor that would be restored.
    for release in [one, all] {
        for share in [Share::Alone, Share::Limit(1)] {
            for (has_next, has_before) in [(false, false), (true, false), (false, true)] {
                let node = crate::asks::node();
                super::subscribe(&node, CHANNEL);
                let first = hold(&node, 1, b"k", &ask(share, 5, 0));
                queue(&node, K, &notified_on(CHANNEL, named(7, ask(share, 5, 99))));
                if has_before {
                    pass(&node, 6_050);
                } else {
                    super::release(&node, b"k", first);
                }
                assert_eq!(received(&node), ["granted 7 k"]);
                if has_next {
                    wait(&node, 4, K, &ask(share, 5, 99));
                }
                let (token, ..) = value(&node, b"k").unwrap();
                let before = node.world.borrow().keys.clone();
                node.world.borrow_mut().refused.insert(b"k".to_vec(), WriteRefused::ForNow);
                assert_eq!(release(&node, K, token), Err(Error::Internal));
                node.world.borrow_mut().refused.clear();
                assert_eq!(node.world.borrow().keys, before);
                assert_eq!(received(&node), [""; 0], "nothing was cancelled");
                assert_eq!(node.driver.borrow().engine().claims().len(), 1);
                assert_eq!(claim(&node, 3, K, &notified_on(CHANNEL, named(7, ask(share, 5, 9)))).token, token);
            }
        }
    }
}

#[test]
fn a_cancel_that_cannot_be_written_changes_nothing() {
    // There is an unclaimed grant of one key or of two, or a lock that is held. Nobody, a blocked client or an attempt
    // waits behind it.
    for names in [K, K_AND_X] {
        for is_claimed in [false, true] {
            for behind in 0..3 {
                let (node, token) = notified(names);
                if is_claimed {
                    claim(&node, 3, names, &attempt(7));
                }
                match behind {
                    0 => {}
                    1 => wait(&node, 4, K, &alone(5, 99)),
                    _ => queue(&node, K, &attempt(8)),
                }
                // This is longer ago than any command that could still be on its way.
                node.pass(Micros(1_900_000));
                let before = node.world.borrow().keys.clone();
                let (waited, claims) = (waiters(&node), node.driver.borrow().engine().claims().len());
                node.world.borrow_mut().refused.insert(b"k".to_vec(), WriteRefused::ForNow);
                let cancelled = node.command(1, |entry| entry.cancel(b"k", crate::asks::id(7)));
                assert_eq!(cancelled, Err(Error::Internal), "{names:?} {is_claimed} {behind}");
                settle(&node);
                node.world.borrow_mut().refused.clear();
                assert_eq!(node.world.borrow().keys, before);
                assert_eq!(received(&node), [""; 0], "nobody is notified: {names:?} {is_claimed} {behind}");
                assert_eq!((waiters(&node), node.driver.borrow().engine().claims().len()), (waited, claims));
                assert_eq!(claim(&node, 3, names, &attempt(7)).token, token, "{names:?} {is_claimed} {behind}");
                assert!(cancel(&node, b"k", 7));
                settle(&node);
                assert_eq!((value(&node, b"k").is_some(), is_granted(&node, 4)), (behind > 0, behind == 1));
            }
        }
    }
}

#[test]
fn a_cancel_passes_on_the_other_keys_of_a_grant_once_the_server_allows_it() {
    let (node, _) = notified(K_AND_X);
    wait(&node, 4, &[b"x"], &alone(5, 99));
    queue(&node, K, &attempt(8));
    node.world.borrow_mut().refused.insert(b"x".to_vec(), WriteRefused::ForNow);
    assert!(cancel(&node, b"k", 7), "its key is written");
    let mut messages = received(&node);
    messages.sort_unstable();
    assert_eq!(messages, ["cancelled 7 k", "granted 8 k"]);
    pass(&node, 1_000);
    assert!(!is_granted(&node, 4));
    node.world.borrow_mut().refused.clear();
    pass(&node, 1_000);
    assert!(is_granted(&node, 4));
}

#[test]
fn a_write_refused_to_a_command_is_not_announced() {
    for names in [K, K_AND_X] {
        let (node, token) = held();
        queue(&node, names, &attempt(8));
        node.pass(seconds(3));
        node.world.borrow_mut().refused.insert(names[names.len() - 1].to_vec(), WriteRefused::ForNow);
        let released = node.command(1, |entry| entry.release(b"k", token));
        assert_eq!(released, if names == K { Err(Error::Internal) } else { Ok(Release::InTime) });
        assert_eq!((received(&node), waiters(&node)), (vec![], 1), "{names:?}");
    }
}

#[test]
fn a_write_refused_to_the_timer_is_announced_at_most_once() {
    let node = crate::asks::node();
    super::subscribe(&node, CHANNEL);
    hold(&node, 1, b"k", &alone(5, 0));
    queue(&node, K, &notified_on(CHANNEL, named(7, alone(5, 99))));
    node.world.borrow_mut().refused.insert(b"k".to_vec(), WriteRefused::ForNow);
    pass(&node, 9_000);
    assert_eq!(received(&node), ["granted 7 k"], "the write is retried again and again");
    node.world.borrow_mut().refused.clear();
    pass(&node, 100);
    assert_eq!(received(&node), ["granted 7 k"]);
    claim(&node, 3, K, &attempt(7));
}

#[test]
fn an_mrelease_refused_halfway_keeps_its_writes_and_grants_nothing_else() {
    let names: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    for (number, refused) in names.into_iter().enumerate() {
        let node = crate::asks::node();
        super::subscribe(&node, CHANNEL);
        let token = crate::asks::hold_all(&node, 1, &names, &alone(60, 0)).token;
        // Nobody waits for the first two. Each of the others has one attempt, with somebody behind it who wants both.
        for (name, id) in [(b"c", 8), (b"d", 9)] {
            queue(&node, &[name], &notified_on(CHANNEL, named(id, alone(5, 99))));
        }
        wait(&node, 4, &[b"a", b"b"], &alone(5, 99));
        node.pass(seconds(3));
        node.world.borrow_mut().refused.insert(refused.to_vec(), WriteRefused::ForNow);
        assert_eq!(node.command(1, |entry| entry.release_all(&names, token)), Err(Error::Internal));
        let releases = crate::asks::count(&node, redis_lock_core::engine::counters::Counter::Releases);
        let is_held = |name: &&[u8]| value(&node, name).is_some_and(|(own, ..)| own == token);
        let written = names.iter().filter(|name| !is_held(name)).count();
        assert_eq!(releases, written as u64, "{number}");
        for message in received(&node) {
            let name = message.rsplit(' ').next().unwrap().as_bytes();
            assert_ne!(value(&node, name).unwrap().0, token, "{number}: {message}");
        }
        node.world.borrow_mut().refused.clear();
        assert_eq!(node.command(1, |entry| entry.release_all(&names, token)), Ok(names.len() - written), "{number}");
        assert!(is_granted(&node, 4), "{number}");
    }
}
