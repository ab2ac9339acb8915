//! Grants that wait to be claimed: what is refused before the claim, when it is accepted, and what becomes of the lock.

use super::{
    attempt, cancel, claim, hang_up, held, notified_on, pass, places, queue, received, release, value, waiters,
    CHANNEL, K, K_AND_X, OTHER,
};
use crate::asks::{
    acquire, alone, ask, granted, hold, in_session, is_granted, named, place, seconds, settle, wait, START,
};
use crate::fake::{Blocked, Content, Node, Settings, Stored};
use redis_lock_core::driver::{Outcome, WriteRefused};
use redis_lock_core::engine::Limits;
use redis_lock_core::lock::error::Error;
use redis_lock_core::lock::grace;
use redis_lock_core::lock::held::Release;
use redis_lock_core::lock::request::Share;
use redis_lock_core::lock::state::State;
use redis_lock_core::lock::time::Micros;
use redis_lock_core::lock::token::Token;

/// A server on which an attempt was just notified of its grant.
fn notified(names: &[&[u8]]) -> (Node, Token) {
    let (node, token) = held();
    queue(&node, names, &attempt(7));
    release(&node, b"k", token);
    settle(&node);
    assert_eq!(received(&node), ["granted 7 k"]);
    let token = value(&node, b"k").unwrap().0;
    (node, token)
}

#[test]
fn only_a_claimed_grant_can_be_extended_or_checked() {
    for names in [K, K_AND_X] {
        let (node, token) = notified(names);
        let before = value(&node, b"k");
        assert_eq!(node.command(1, |entry| entry.extend(b"k", token, seconds(9))), Ok(false));
        assert_eq!(node.command(1, |entry| entry.extend_all(names, token, seconds(9))), Ok(false));
        assert_eq!(node.command(1, |entry| entry.check(b"k", token)), Ok(Micros(0)));
        assert_eq!(value(&node, b"k"), before);
        claim(&node, 3, names, &attempt(7));
        assert_eq!(node.command(1, |entry| entry.check(b"k", token)), Ok(seconds(5)));
        assert_eq!(node.command(1, |entry| entry.extend_all(names, token, seconds(9))), Ok(true));
    }
}

#[test]
fn a_grant_that_was_given_up_is_not_extended() {
    let (node, token) = notified(K_AND_X);
    // The attempt asks for only one of its keys: it gives up the grant of both, and gets that one.
    let granted = claim(&node, 1, K, &attempt(7));
    assert!(granted.token > token);
    for name in K_AND_X {
        assert_eq!(node.command(1, |entry| entry.extend(name, token, seconds(9))), Ok(false));
        assert_eq!(node.command(1, |entry| entry.check(name, token)), Ok(Micros(0)));
    }
    assert_eq!(node.command(1, |entry| entry.extend_all(K_AND_X, token, seconds(9))), Ok(false));
    assert_eq!(value(&node, b"x"), None);
}

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

#[test]
fn the_other_locks_of_a_lost_grant_end_with_its_session() {
    let (node, token) = held();
    wait(&node, 3, K_AND_X, &in_session(named(7, alone(5, 9))));
    release(&node, b"k", token);
    settle(&node);
    node.event(|entry| entry.connection_ended(3));
    // Its answer has not failed yet when the attempt asks for one of its locks.
    claim(&node, 4, K, &named(7, alone(5, 0)));
    node.lose(Blocked(3));
    settle(&node);
    assert_eq!(value(&node, b"k").unwrap().2, START.after(seconds(6)));
    assert_eq!(value(&node, b"x").unwrap().2, START.after(seconds(1)), "the margin");
}

#[test]
fn a_release_or_a_cancel_before_the_claim_passes_the_lock_on() {
    for names in [K, K_AND_X] {
        for cancels in [false, true] {
            let (node, token) = notified(names);
            queue(&node, K, &attempt(8));
            if cancels {
                assert!(cancel(&node, b"k", 7));
            } else {
                assert_eq!(node.command(1, |entry| entry.release_all(names, token)), Ok(names.len()));
            }
            settle(&node);
            let mut messages = received(&node);
            messages.sort_unstable();
            assert_eq!(messages, ["cancelled 7 k", "granted 8 k"], "{names:?} {cancels}");
            assert_eq!(value(&node, b"x"), None);
            assert_eq!(node.driver.borrow().engine().claims().len(), 1);
            let outcome = acquire(&node, 3, names, &attempt(7));
            assert!(matches!(outcome, Ok(Outcome::NotGranted)) == cancels, "{outcome:?}");
            assert_eq!(claim(&node, 3, K, &attempt(8)).token, value(&node, b"k").unwrap().0);
        }
    }
    let (node, token) = notified(K);
    assert_eq!(release(&node, b"k", token), Release::InTime);
    assert_eq!(value(&node, b"k"), None);
}

#[test]
fn an_unclaimed_grant_passes_on_and_its_place_is_kept() {
    for names in [K, K_AND_X] {
        let (node, _) = notified(names);
        wait(&node, 3, K, &alone(5, 99));
        pass(&node, 1_900);
        assert!(!is_granted(&node, 3));
        pass(&node, 150);
        let token = granted(&node, 3).unwrap().granted.token;
        assert_eq!(value(&node, b"x"), None);
        assert_eq!((waiters(&node), places(&node)), (0, 1));
        wait(&node, 4, K, &alone(5, 99));
        queue(&node, names, &attempt(7));
        release(&node, b"k", token);
        settle(&node);
        assert_eq!(received(&node), ["granted 7 k"], "in its old place");
    }
    let (node, _) = notified(K);
    pass(&node, 2_100);
    assert_eq!(value(&node, b"k"), None, "free, as it was");
}

#[test]
fn the_successor_and_the_claim_learn_of_the_one_who_never_released() {
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
        assert_eq!(claim(&claimed, 3, K, &seventh).before(0).unwrap().token, Some(first), "and when it is sent again");
        // It is released, or cancelled, or nobody claims it: it passes on.
        let end: [fn(&Node); 5] = [
            |node| {
                let token = value(node, b"k").unwrap().0;
                assert!(cancel(node, b"k", 7));
                assert_eq!(release(node, b"k", token), Release::Over, "it has passed on");
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

#[test]
fn a_changed_value_is_neither_claimed_nor_passed_on() {
    type Change = fn(&Node, Token);
    let foreign: Change = |node, _| {
        node.put(&place(b"k"), Some(Stored { content: Content::String(b"mine".to_vec()), expire_at_ms: None }));
    };
    let longer: Change = |node, token| {
        let value = format!("1763719999.000000{:016}", token.get());
        node.put(&place(b"k"), Some(Stored { content: Content::String(value.into_bytes()), expire_at_ms: None }));
    };
    let labelled: Change = |node, token| {
        let seconds = value(node, b"k").unwrap().2 .0;
        let value = format!("{}.{:06}{:016} me", seconds / 1_000_000, seconds % 1_000_000, token.get());
        node.put(&place(b"k"), Some(Stored { content: Content::String(value.into_bytes()), expire_at_ms: None }));
    };
    for change in [foreign, longer, labelled] {
        for claims in [true, false] {
            for names in [K, K_AND_X] {
                let (node, token) = notified(names);
                wait(&node, 4, K, &alone(5, 99));
                change(&node, token);
                let changed = node.world.borrow().keys[&place(b"k")].clone();
                if claims {
                    queue(&node, names, &attempt(7));
                    settle(&node);
                    assert_eq!(value(&node, b"x"), None, "it gives the other back at once");
                }
                pass(&node, 2_500);
                assert_eq!(node.world.borrow().keys[&place(b"k")], changed, "it is somebody else's");
                assert!(!is_granted(&node, 4));
                if claims {
                    node.delete(&place(b"k"));
                    settle(&node);
                    assert_eq!(received(&node), ["granted 7 k"], "its ID keeps its place");
                }
            }
        }
    }
}

#[test]
fn a_claim_that_is_refused_changes_nothing() {
    let (node, token) = notified(K);
    let before = value(&node, b"k");
    let shared = notified_on(CHANNEL, named(7, ask(Share::Shared, 5, 9)));
    assert_eq!(acquire(&node, 3, K, &shared).unwrap_err(), Error::HeldAlone);
    let set = grace::Settings { grace: seconds(9), margin: seconds(1), max_lag: seconds(1), wanted: 0 };
    node.world.borrow_mut().settings.grace = Some(set);
    assert!(matches!(acquire(&node, 3, K, &attempt(7)), Err(Error::Grace(_))));
    let long = notified_on(CHANNEL, named(7, alone(6, 9)));
    assert!(matches!(acquire(&node, 3, K, &long), Err(Error::LeaseBeyondGrace(_))));
    node.world.borrow_mut().settings.grace = None;
    assert_eq!(value(&node, b"k"), before);
    assert_eq!(claim(&node, 3, K, &attempt(7)).token, token);
}

#[test]
fn a_release_that_cannot_be_written_leaves_its_grant_to_be_claimed() {
    type Release = fn(&Node, &[&[u8]], Token) -> Result<(), Error>;
    let one: Release = |node, names, token| node.command(1, |entry| entry.release(names[0], token)).map(|_| ());
    let all: Release = |node, names, token| node.command(1, |entry| entry.release_all(names, token)).map(|_| ());
    // The key alone, a waiter behind it, and a predecessor that would be restored.
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
    // An unclaimed grant of one key or of two, or a lock that is held; behind it nobody, a blocked client or an
    // attempt.
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
                // Longer ago than any command that could still be on its way.
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
fn a_cancel_passes_the_other_keys_of_a_grant_on_once_the_server_lets_it() {
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
fn a_cancelled_attempt_that_holds_and_waits_gets_no_second_grant() {
    // Its lock was renamed to that for which it waits.
    for names in [K, K_AND_X] {
        let (node, token) = held();
        wait(&node, 3, names, &named(7, alone(5, 99)));
        wait(&node, 4, K, &alone(5, 99));
        let mine = named(7, alone(30, 0));
        hold(&node, 5, b"mine", &mine);
        let stored = node.put(&place(b"mine"), None);
        node.put(&place(b"k"), stored);
        node.world.borrow_mut().journal = Some(Vec::new());
        assert!(cancel(&node, b"k", 7));
        assert_eq!(node.world.borrow().journal.as_ref().map(Vec::len), Some(1), "in one change: {names:?}");
        assert!(is_granted(&node, 4), "{names:?}");
        assert!(node.deliver(Blocked(3)).is_some(), "its own wait has ended");
        assert_eq!((waiters(&node), release(&node, b"k", token)), (0, Release::Over));
    }
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
    assert_eq!(received(&node), ["granted 7 k"], "it is tried again and again");
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
        // Nobody waits for the first two. The others have an attempt each, behind which somebody wants both.
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

#[test]
fn a_grant_among_several_is_claimed_beside_the_others() {
    let two = |lease, wait| ask(Share::Limit(2), lease, wait);
    let node = crate::asks::node();
    super::subscribe(&node, CHANNEL);
    let first = hold(&node, 1, b"k", &two(60, 0));
    let second = hold(&node, 1, b"k", &two(60, 0));
    let attempt = |number| notified_on(CHANNEL, named(number, two(5, 9)));
    queue(&node, K, &attempt(7));
    queue(&node, K, &attempt(8));
    release(&node, b"k", first);
    release(&node, b"k", second);
    settle(&node);
    assert_eq!(received(&node), ["granted 7 k", "granted 8 k"]);
    let [one, two] = [7, 8].map(|number| claim(&node, 3, K, &attempt(number)).token);
    let count = node.with_lock(&place(b"k"), |lock| match lock {
        redis_lock_core::lock::state::State::Several(holders) => {
            let ids: Vec<_> = holders.iter().map(|holder| holder.record().id.map(|id| id.get())).collect();
            assert_eq!(ids.len(), 2);
            assert!(ids.contains(&Some(7)) && ids.contains(&Some(8)), "{ids:?}");
            holders.len()
        }
        other => panic!("{other:?}"),
    });
    assert!(count == 2 && one < two);
}

#[test]
fn a_disconnect_ends_session_waits_and_passes_unclaimed_grants_on() {
    let (node, token) = held();
    let attempt = |number| in_session(super::attempt(number));
    queue(&node, K, &attempt(7));
    node.disconnect(2);
    assert_eq!((waiters(&node), places(&node)), (0, 1), "its place is kept");
    queue(&node, K, &attempt(7));
    wait(&node, 3, K, &alone(5, 9));
    release(&node, b"k", token);
    assert_eq!(received(&node), ["granted 7 k"]);
    node.disconnect(2);
    settle(&node);
    assert!(is_granted(&node, 3), "at once");
    // A claimed grant ends with the connection that claimed it.
    let (node, token) = held();
    queue(&node, K, &attempt(7));
    release(&node, b"k", token);
    claim(&node, 5, K, &attempt(7));
    node.disconnect(2);
    settle(&node);
    assert_eq!(value(&node, b"k").unwrap().2, START.after(seconds(6)));
    node.disconnect(5);
    settle(&node);
    assert_eq!(value(&node, b"k").unwrap().2, START.after(seconds(1)), "the margin");
}

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
            assert_eq!(value(&node, b"k").unwrap().1, None, "it is granted all the same");
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
    assert_eq!(node.timer_at(), None, "nothing is left to be done");
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
    assert_eq!(value(&node, b"k"), before, "it is held by nobody who is known");
    pass(&node, 3_050);
    assert_eq!(received(&node), ["granted 7 k"], "it ended like a predecessor that never released");
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

#[test]
fn an_undelivered_grant_passes_on_only_if_unchanged() {
    for changes in [false, true] {
        let (node, token) = held();
        wait(&node, 3, K, &alone(5, 9));
        release(&node, b"k", token);
        let token = value(&node, b"k").unwrap().0;
        if changes {
            assert_eq!(node.command(1, |entry| entry.extend(b"k", token, seconds(9))), Ok(true));
        }
        node.lose(crate::fake::Blocked(3)).unwrap();
        settle(&node);
        assert_eq!(value(&node, b"k").is_some(), changes);
    }
}
