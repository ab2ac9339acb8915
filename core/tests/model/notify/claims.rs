//! Unclaimed grants: what is refused before the claim, when the claim is accepted, and what happens to the lock.

use super::{
    attempt, cancel, claim, held, notified, notified_on, pass, places, queue, received, release, value, waiters,
    CHANNEL, K, K_AND_X,
};
use crate::asks::{
    acquire, alone, ask, granted, hold, in_session, is_granted, named, place, seconds, settle, wait, START,
};
use crate::fake::{Blocked, Content, Node, Stored};
use redis_lock_core::driver::Outcome;
use redis_lock_core::lock::error::Error;
use redis_lock_core::lock::grace;
use redis_lock_core::lock::held::Release;
use redis_lock_core::lock::request::Share;
use redis_lock_core::lock::time::Micros;
use redis_lock_core::lock::token::Token;

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
    // The attempt asks for only one of its keys: it gives up the grant of both, and gets a grant of this one.
    let granted = claim(&node, 1, K, &attempt(7));
    assert!(granted.token > token);
    for name in K_AND_X {
        assert_eq!(node.command(1, |entry| entry.extend(name, token, seconds(9))), Ok(false));
        assert_eq!(node.command(1, |entry| entry.check(name, token)), Ok(Micros(0)));
    }
    assert_eq!(node.command(1, |entry| entry.extend_all(K_AND_X, token, seconds(9))), Ok(false));
    assert_eq!(value(&node, b"x"), None);
}

#[test]
fn the_other_locks_of_a_lost_grant_end_with_its_session() {
    let (node, token) = held();
    wait(&node, 3, K_AND_X, &in_session(named(7, alone(5, 9))));
    release(&node, b"k", token);
    settle(&node);
    node.event(|entry| entry.connection_ended(3));
    // The attempt asks for one of its locks before its answer has failed.
    claim(&node, 4, K, &named(7, alone(5, 0)));
    node.lose(Blocked(3));
    settle(&node);
    assert_eq!(value(&node, b"k").unwrap().2, START.after(seconds(6)));
    assert_eq!(value(&node, b"x").unwrap().2, START.after(seconds(1)), "only the margin is left");
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
fn an_unclaimed_grant_is_passed_on_and_its_place_is_kept() {
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
    assert_eq!(value(&node, b"k"), None, "free, as before");
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
                    assert_eq!(value(&node, b"x"), None, "the attempt releases the other lock at once");
                }
                pass(&node, 2_500);
                assert_eq!(node.world.borrow().keys[&place(b"k")], changed, "the value is somebody else's");
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
fn a_cancelled_attempt_that_holds_and_waits_gets_no_second_grant() {
    // Its lock was renamed to the lock for which it waits.
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
    assert_eq!(value(&node, b"k").unwrap().2, START.after(seconds(1)), "only the margin is left");
}

#[test]
fn an_undelivered_grant_is_passed_on_only_if_unchanged() {
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
