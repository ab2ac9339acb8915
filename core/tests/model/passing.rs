//! How locks are passed on outside the command that releases them: grants that were not received, locks that others
//! changed, and the keyspace events of each.

use crate::asks::{alone, ask, count, granted, hold, hold_all, in_session, named, node, place, seconds, settle, wait};
use crate::fake::{Blocked, Node};
use redis_lock_core::driver::{Ask, Outcome};
use redis_lock_core::engine::counters::Counter;
use redis_lock_core::engine::grant::Event;
use redis_lock_core::engine::outbox::Answer;
use redis_lock_core::lock::held::Release;
use redis_lock_core::lock::record::Owner;
use redis_lock_core::lock::request::{Request, Share};
use redis_lock_core::lock::state::State;
use redis_lock_core::lock::time::Micros;
use redis_lock_core::lock::token::Token;

fn labelled(ask: Ask<'static>) -> Ask<'static> {
    Ask { request: Request { owner: Owner::parse(b"cron@db1"), ..ask.request }, ..ask }
}

/// The tokens in a key, and whether it is a set of holders.
pub fn tokens(node: &Node, name: &[u8]) -> (bool, Vec<Token>) {
    node.with_lock(&place(name), |lock| match lock {
        State::Several(holders) => (true, holders.tokens().collect()),
        State::Held(_, Some(record)) | State::Expired(_, Some(record)) => (false, vec![record.token]),
        _ => (false, Vec::new()),
    })
}

#[test]
fn each_change_raises_its_events_and_nothing_else_does() {
    let node = node();
    let events = |node: &Node| {
        let events = std::mem::take(&mut node.world.borrow_mut().events);
        events.into_iter().map(|(_, event)| event).collect::<Vec<_>>()
    };
    let token = hold(&node, 1, b"k", &named(7, alone(5, 0)));
    assert_eq!(events(&node), [Event::Acquire]);
    hold(&node, 1, b"k", &named(7, alone(5, 0)));
    assert_eq!(events(&node), [], "the lease ends no later");
    hold(&node, 1, b"k", &named(7, alone(6, 0)));
    assert_eq!(events(&node), [Event::Extend]);
    node.command(1, |entry| entry.extend(b"k", token, seconds(7))).unwrap();
    assert_eq!(events(&node), [Event::Extend]);
    wait(&node, 2, &[b"k"], &alone(5, 9));
    node.command(1, |entry| entry.release(b"k", token)).unwrap();
    assert_eq!(events(&node), [Event::Release, Event::Acquire], "the lock is passed on");
    let token = granted(&node, 2).unwrap().granted.token;
    node.command(2, |entry| entry.release(b"k", token)).unwrap();
    assert_eq!(events(&node), [Event::Release]);
    for recovers in [false, true] {
        hold(&node, 1, b"k", &alone(5, 0));
        node.pass(seconds(7));
        events(&node);
        if recovers {
            assert!(node.command(2, |entry| entry.recover(b"k", &alone(5, 0))).unwrap().is_some());
            assert_eq!(events(&node), [Event::Lapse, Event::Recover]);
        } else {
            hold(&node, 2, b"k", &alone(5, 0));
            assert_eq!(events(&node), [Event::Lapse, Event::Acquire]);
            node.pass(seconds(7));
        }
    }
    let session = in_session(alone(5, 0));
    hold(&node, 3, b"s", &session);
    events(&node);
    node.disconnect(3);
    assert!(node.fire());
    assert_eq!(events(&node), [], "an earlier end is not an event");
    let both = hold_all(&node, 4, &[b"x", b"y"], &alone(5, 0));
    assert_eq!(events(&node), [Event::Acquire; 2]);
    node.command(4, |entry| entry.release_all(&[b"x", b"y"], both.token)).unwrap();
    assert_eq!(events(&node), [Event::Release; 2]);
}

#[test]
fn each_of_several_locks_reports_its_predecessor() {
    let node = node();
    let [a, c] = [b"a", b"c"].map(|name| hold(&node, 1, name, &labelled(alone(5, 0))));
    node.pass(seconds(7));
    let names: [&[u8]; 3] = [b"a", b"b", b"c"];
    let granted = hold_all(&node, 2, &names, &alone(5, 0));
    let before = |at| granted.before(at).map(|before| (before.token, before.owner(), before.overdue_ms));
    let owner = Owner::parse(b"cron@db1");
    assert_eq!([0, 1, 2].map(before), [Some((Some(a), owner, 1_000)), None, Some((Some(c), owner, 1_000))]);
}

/// A waiter's grant, which succeeds an overdue holder, is lost.
#[test]
fn when_a_grant_is_lost_the_lock_is_as_if_it_had_never_been_granted() {
    let two = |wait| ask(Share::Limit(2), 5, wait);
    // How many others are live, and the kind of lock: a string, or a set with one or two of two holders.
    for (share, others) in [(Share::Alone, 0), (Share::Limit(1), 0), (Share::Limit(2), 1)] {
        for has_next in [false, true] {
            let node = node();
            let first = hold(&node, 1, b"k", &labelled(ask(share, 5, 0)));
            if others > 0 {
                hold(&node, 1, b"k", &ask(share, 60, 0));
            }
            wait(&node, 2, &[b"k"], &ask(share, 5, 99));
            if has_next {
                wait(&node, 3, &[b"k"], &ask(share, 5, 99));
            }
            node.pass(seconds(6));
            assert!(node.fire());
            let lost = node.lose(Blocked(2)).unwrap();
            let Answer::Granted(lost) = lost else { panic!("{lost:?}") };
            assert_eq!(lost.granted.before(0).unwrap().token, Some(first));
            assert!(node.fire());
            let (is_set, held) = tokens(&node, b"k");
            assert!(!held.contains(&lost.granted.token), "{share:?}");
            if has_next {
                let next = granted(&node, 3).unwrap().granted;
                let before = next.before(0).expect("its predecessor is the holder that never released");
                assert_eq!((before.token, before.owner()), (Some(first), Owner::parse(b"cron@db1")), "{share:?}");
                assert_eq!(held.len(), others + 1);
            } else {
                assert_eq!((is_set, held.contains(&first), held.len()), (others > 0, true, others + 1), "{share:?}");
                let next = node.command(4, |entry| entry.acquire(b"k", &two(0)));
                let Ok(Outcome::Granted(next)) = next else { panic!("{next:?}") };
                assert_eq!(next.before(0).unwrap().token, Some(first));
            }
        }
    }
}

#[test]
fn a_restored_predecessor_stays_unless_the_next_holder_needs_its_slot() {
    let node = node();
    let two = |lease, wait| ask(Share::Limit(2), lease, wait);
    let first = hold(&node, 1, b"k", &two(5, 0));
    let other = hold(&node, 1, b"k", &two(60, 0));
    wait(&node, 2, &[b"k"], &two(5, 99));
    node.pass(seconds(6));
    assert!(node.fire());
    wait(&node, 5, &[b"k"], &two(5, 99));
    wait(&node, 6, &[b"k"], &ask(Share::Shared, 5, 99));
    node.event(|entry| entry.client_left(5));
    node.lose(Blocked(2)).unwrap();
    settle(&node);
    let next = granted(&node, 6).unwrap().granted;
    assert_eq!(next.before(0), None);
    assert_eq!(tokens(&node, b"k").1, [first, other, next.token]);
}

#[test]
fn a_lost_grant_that_succeeded_nobody_is_released() {
    let node = node();
    let token = hold(&node, 1, b"k", &alone(5, 0));
    wait(&node, 2, &[b"k"], &named(7, alone(5, 99)));
    node.command(1, |entry| entry.release(b"k", token)).unwrap();
    node.lose(Blocked(2)).unwrap();
    assert!(node.fire());
    assert!(!node.world.borrow().keys.contains_key(&place(b"k")));
    assert_eq!(count(&node, Counter::Undelivered), 1);
    // The attempt has its place back.
    let newcomer = node.command(3, |entry| entry.acquire(b"k", &alone(5, 0)));
    assert!(matches!(newcomer, Ok(Outcome::Granted(_))), "a reserved place alone blocks nobody");
}

#[test]
fn a_lost_shared_grant_passes_only_to_a_waiter_that_fits_the_others() {
    for (next, is_granted) in [(Share::Limit(2), true), (Share::Alone, false), (Share::Limit(1), false)] {
        let node = node();
        let two = |lease, wait| ask(Share::Limit(2), lease, wait);
        let other = hold(&node, 1, b"k", &two(60, 0));
        let token = hold(&node, 1, b"k", &two(60, 0));
        wait(&node, 2, &[b"k"], &two(5, 99));
        wait(&node, 3, &[b"k"], &ask(next, 5, 99));
        node.command(1, |entry| entry.release(b"k", token)).unwrap();
        node.lose(Blocked(2)).unwrap();
        settle(&node);
        assert_eq!(granted(&node, 3).is_some(), is_granted, "{next:?}");
        assert_eq!(tokens(&node, b"k").1[0], other);
        assert_eq!(tokens(&node, b"k").1.len(), 1 + usize::from(is_granted), "{next:?}");
    }
}

#[test]
fn a_replica_never_passes_on_a_lost_grant() {
    for is_lost_before in [true, false] {
        let node = node();
        let token = hold(&node, 1, b"k", &alone(5, 0));
        wait(&node, 2, &[b"k"], &alone(5, 99));
        node.command(1, |entry| entry.release(b"k", token)).unwrap();
        if is_lost_before {
            node.lose(Blocked(2)).unwrap();
        }
        node.world.borrow_mut().is_replica = true;
        node.event(|entry| entry.demoted());
        if !is_lost_before {
            node.lose(Blocked(2)).unwrap();
        }
        node.world.borrow_mut().is_replica = false;
        node.event(|entry| entry.promoted());
        assert_eq!(node.timer_at(), None, "nothing is left to do");
        assert_eq!(tokens(&node, b"k").1.len(), 1, "its lease bounds it");
    }
}

#[test]
fn everybody_who_can_share_a_freed_lock_gets_it_in_one_turn() {
    let node = node();
    let token = hold(&node, 1, b"k", &alone(5, 0));
    for client in 2..5 {
        wait(&node, client, &[b"k"], &ask(Share::Shared, 5, 9));
    }
    wait(&node, 5, &[b"k"], &alone(5, 9));
    node.delete(&place(b"k"));
    assert!(node.fire());
    assert!((2..5).all(|client| granted(&node, client).is_some()));
    assert!(granted(&node, 5).is_none());
    assert_eq!(node.command(1, |entry| entry.release(b"k", token)), Ok(Release::Over));
}

#[test]
fn a_lock_that_others_freed_without_an_event_is_found_and_counted() {
    for names in [&[b"k".as_slice()][..], &[b"k", b"x"]] {
        let node = node();
        hold(&node, 1, b"k", &alone(5, 0));
        hold(&node, 1, b"held", &alone(5, 0));
        wait(&node, 2, names, &alone(5, 99));
        wait(&node, 3, &[b"held", b"y"], &alone(5, 99));
        node.event(|entry| entry.tick());
        settle(&node);
        assert_eq!(count(&node, Counter::MissedWakeups), 0);
        node.world.borrow_mut().keys.remove(&place(b"k"));
        node.pass(Micros(900_000));
        node.event(|entry| entry.tick());
        settle(&node);
        assert!(granted(&node, 2).is_some());
        assert_eq!(count(&node, Counter::MissedWakeups), 1);
    }
}

#[test]
fn a_database_that_is_flushed_or_swapped_frees_its_locks() {
    for (db, is_freed) in [(Some(0), true), (None, true), (Some(1), false)] {
        let node = node();
        hold(&node, 1, b"k", &alone(5, 0));
        wait(&node, 2, &[b"k"], &alone(5, 99));
        node.world.borrow_mut().keys.clear();
        node.event(|entry| entry.database_changed(db));
        settle(&node);
        assert_eq!(granted(&node, 2).is_some(), is_freed, "{db:?}");
    }
}
