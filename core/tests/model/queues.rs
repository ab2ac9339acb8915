//! Waiters, and commands that may not wait: no waiter is overtaken, queues are bounded, an evicted lock stays taken,
//! and a session ends once. Also how INFO counts all of these.

use crate::asks::{
    acquire, alone, ask, count, hold, hold_all, id, in_session, is_granted, named, node, place, seconds, settle, wait,
    START,
};
use crate::fake::{Blocked, Content, Node, Settings, Stored};
use redis_lock_core::driver::Outcome;
use redis_lock_core::engine::counters::Counter;
use redis_lock_core::engine::outbox::Answer;
use redis_lock_core::engine::{KeyChange, KeyName, Limits};
use redis_lock_core::lock::error::Error;
use redis_lock_core::lock::held::Release;
use redis_lock_core::lock::request::Share;
use redis_lock_core::lock::time::{Micros, UnixMicros};
use redis_lock_core::lock::token::Token;

fn release(node: &Node, client: u64, name: &[u8], token: Token) {
    assert_eq!(node.command(client, |entry| entry.release(name, token)), Ok(Release::InTime));
}

fn ends_at(node: &Node, name: &[u8]) -> Option<UnixMicros> {
    node.with_lock(&place(name), |lock| lock.last_end())
}

/// Runs the event loop until `time`.
fn run_until(node: &Node, time: UnixMicros) {
    let left = time.since(node.world.borrow().wall);
    for _ in 0..left.0 / 100_000 {
        node.pass(Micros(100_000));
        node.event(|entry| entry.tick());
        settle(node);
    }
    node.pass(Micros(left.0 % 100_000));
    settle(node);
}

const K: &[&[u8]] = &[b"k"];
const K_AND_X: &[&[u8]] = &[b"k", b"x"];

#[test]
fn a_freed_lock_goes_to_its_waiter_and_not_to_a_newcomer() {
    for waits_for in [K, K_AND_X] {
        let came_free = || {
            let node = node();
            hold(&node, 1, b"k", &alone(5, 0));
            wait(&node, 2, waits_for, &named(7, alone(5, 9)));
            wait(&node, 3, waits_for, &named(8, alone(5, 9)));
            node.delete(&place(b"k"));
            node
        };
        for asks_for in [K, K_AND_X, &[b"y", b"k"], &[b"x", b"k", b"y"]] {
            for number in [None, Some(8), Some(9)] {
                let node = came_free();
                let ask = number.map_or(alone(5, 0), |number| named(number, alone(5, 0)));
                let outcome = acquire(&node, 4, asks_for, &ask);
                assert!(matches!(outcome, Ok(Outcome::NotGranted)), "{asks_for:?} {number:?} {outcome:?}");
                settle(&node);
                assert!(is_granted(&node, 2));
            }
        }
        // The first attempt gets the lock whichever of its commands asks, and its older command gets a reply.
        let node = came_free();
        assert!(matches!(acquire(&node, 4, waits_for, &named(7, alone(5, 0))), Ok(Outcome::Granted(_))));
        assert!(matches!(node.deliver(Blocked(2)), Some(Answer::Failed(Error::Replaced))));
        settle(&node);
        assert!(!is_granted(&node, 3));
    }
}

#[test]
fn the_numbers_of_waiters_and_of_attempts_with_one_id_are_limited() {
    let limits = Limits { waiters: 2, ..Settings::default().limits };
    let node = Node::new(Settings { limits, ..Settings::default() }, START);
    hold(&node, 1, b"k", &alone(5, 0));
    wait(&node, 2, K, &named(7, alone(5, 9)));
    wait(&node, 3, K_AND_X, &named(8, alone(5, 9)));
    for names in [K, K_AND_X] {
        assert_eq!(acquire(&node, 4, names, &alone(5, 9)).unwrap_err(), Error::BusyLocks);
        assert_eq!(acquire(&node, 4, names, &named(9, alone(5, 9))).unwrap_err(), Error::BusyLocks);
    }
    wait(&node, 4, K, &named(7, alone(5, 9)));
    wait(&node, 5, K_AND_X, &named(8, alone(5, 9)));

    let node = crate::asks::node();
    for number in 0..65_u8 {
        hold(&node, 1, &[number], &alone(5, 0));
    }
    for number in 0..64_u8 {
        wait(&node, 100 + u64::from(number), &[&[number], &[number, 0]], &named(7, alone(5, 9)));
    }
    let waits = |client, names: &[&[u8]], number| {
        acquire(&node, client, names, &named(number, alone(5, 9))).map(|outcome| matches!(outcome, Outcome::Waits))
    };
    assert_eq!(waits(2, &[&[64], b"z"], 7), Err(Error::BusyId));
    assert_eq!(waits(2, &[&[64], b"z"], 8), Ok(true), "another ID");
    assert_eq!(waits(3, &[&[64]], 7), Ok(true), "one key alone");
    assert_eq!(waits(4, &[&[5], &[64]], 7), Ok(true), "it replaces one of the 64");
}

#[test]
fn an_evicted_lock_stays_taken_until_its_last_holder_ends() {
    let evict = |node: &Node| {
        node.world.borrow_mut().keys.remove(&place(b"k")).unwrap();
        node.event(|entry| entry.key_changed(KeyName { db: 0, name: b"k" }, KeyChange::Evicted));
    };
    let two = |lease, wait| ask(Share::Limit(2), lease, wait);
    // The waiter's share, the holders' leases, and the lease that is extended.
    for (waits_for, waiter) in [(K, alone(5, 99)), (K_AND_X, alone(5, 99)), (K, two(5, 99))] {
        for (leases, extended, end) in
            [(&[8][..], None, 9), (&[4], Some(0), 31), (&[4, 8], None, 9), (&[4, 8], Some(0), 31)]
        {
            let is_alone = leases.len() == 1;
            let node = node();
            let holder = |lease| if is_alone { alone(lease, 0) } else { two(lease, 0) };
            let tokens: Vec<Token> = leases.iter().map(|lease| hold(&node, 1, b"k", &holder(*lease))).collect();
            wait(&node, 2, waits_for, &waiter);
            if let Some(at) = extended {
                assert_eq!(node.command(1, |entry| entry.extend(b"k", tokens[at], seconds(30))), Ok(true));
            }
            evict(&node);
            run_until(&node, UnixMicros(START.0 + end * 1_000_000 - 1_000));
            assert!(!is_granted(&node, 2), "{waits_for:?} {leases:?} {extended:?}");
            run_until(&node, UnixMicros(START.0 + end * 1_000_000));
            assert!(is_granted(&node, 2), "{waits_for:?} {leases:?} {extended:?}");
        }
    }
    // The eviction is forgotten once the key is seen again.
    let node = node();
    hold(&node, 1, b"k", &alone(8, 0));
    wait(&node, 2, K, &alone(5, 99));
    let stored = node.world.borrow().keys[&place(b"k")].clone();
    evict(&node);
    node.world.borrow_mut().keys.insert(place(b"k"), stored);
    run_until(&node, START.after(seconds(1)));
    node.delete(&place(b"k"));
    settle(&node);
    assert!(is_granted(&node, 2));
}

#[test]
fn an_attempt_whose_grant_was_lost_gets_its_place_back_once() {
    for names in [K, K_AND_X] {
        let node = node();
        let token = hold(&node, 1, b"k", &alone(5, 0));
        wait(&node, 2, names, &named(7, alone(5, 9)));
        wait(&node, 3, K, &alone(5, 9));
        release(&node, 1, b"k", token);
        wait(&node, 4, K, &alone(5, 9));
        node.lose(Blocked(2)).unwrap();
        settle(&node);
        assert!(is_granted(&node, 3));
        wait(&node, 5, names, &named(7, alone(5, 9)));
        node.delete(&place(b"k"));
        settle(&node);
        assert!(is_granted(&node, 5) && !is_granted(&node, 4), "ahead of a client that came before it lost its grant");

        // Others took the attempt's lock away, and it is already waiting again when its grant is lost: it keeps its
        // new place.
        let node = crate::asks::node();
        let token = hold(&node, 1, b"k", &alone(5, 0));
        wait(&node, 2, names, &named(7, alone(5, 9)));
        release(&node, 1, b"k", token);
        node.delete(&place(b"k"));
        hold(&node, 1, b"k", &alone(5, 0));
        wait(&node, 4, names, &named(7, alone(5, 9)));
        node.lose(Blocked(2)).unwrap();
        let driver = node.driver.borrow();
        assert_eq!((driver.engine().queues().waiters(), driver.engine().queues().places()), (1, 0));
    }
}

#[test]
fn without_keyspace_events_each_tick_checks_all_queues_unless_too_many() {
    for (reports_keys, waiters, after_us) in
        [(false, 1, 100_000), (false, 1_000, 100_000), (false, 1_001, 900_000), (true, 1, 900_000)]
    {
        let limits = Limits { waiters: 2_000, ..Settings::default().limits };
        let node = Node::new(Settings { limits, reports_keys, ..Settings::default() }, START);
        hold(&node, 1, b"k", &alone(5, 0));
        for client in 2..2 + waiters {
            wait(&node, client, K, &alone(5, 9));
        }
        node.event(|entry| entry.tick());
        settle(&node);
        node.world.borrow_mut().keys.clear();
        run_until(&node, UnixMicros(START.0 + after_us - 100_000));
        assert!(!is_granted(&node, 2), "{reports_keys} {waiters}");
        run_until(&node, UnixMicros(START.0 + after_us));
        assert!(is_granted(&node, 2), "{reports_keys} {waiters}");
    }
}

#[test]
fn a_deadlock_search_is_bounded_and_reads_no_key_unless_waits_lead_back() {
    let cycle = |edges| {
        let node = Node::new(Settings { edges, ..Settings::default() }, START);
        hold(&node, 1, b"a", &in_session(alone(5, 0)));
        hold(&node, 2, b"b", &in_session(alone(5, 0)));
        node.world.borrow_mut().opened = 0;
        wait(&node, 1, &[b"b"], &alone(5, 9));
        assert_eq!(node.world.borrow().opened, 1, "the wait does not lead back yet");
        let outcome = acquire(&node, 2, &[b"a"], &alone(5, 9)).map(|outcome| matches!(outcome, Outcome::Waits));
        (outcome, [Counter::Deadlocks, Counter::DeadlocksUnchecked].map(|counter| count(&node, counter)))
    };
    assert_eq!(cycle(10_000), (Err(Error::Deadlock), [1, 0]));
    let enough = (0..100).find(|edges| cycle(*edges).0.is_err()).expect("a few edges are enough");
    assert!(enough > 2, "{enough}");
    for edges in 2..enough {
        let (outcome, [_, unchecked]) = cycle(edges);
        assert_eq!((outcome, unchecked), (Ok(true), 1), "{edges}");
    }
    // Each lock and each binding counts once before keys are read and once when they are, where a key counts as five.
    assert_eq!(enough, 18);
}

#[test]
fn a_session_that_was_renewed_elsewhere_or_forgotten_ends_no_lock() {
    // An event between the end of a connection and the timer, and whether the lock still keeps its lease.
    type Between = fn(&Node, Token);
    let extend: Between = |node, token| {
        node.command(5, |entry| entry.extend(b"k", token, seconds(60))).unwrap();
    };
    let again: Between = |node, _| {
        hold(node, 5, b"k", &in_session(named(7, alone(60, 0))));
    };
    let again_for_as_long: Between = |node, _| {
        hold(node, 5, b"k", &named(7, alone(60, 0)));
    };
    let demoted: Between = |node, _| {
        node.event(|entry| entry.demoted());
        node.event(|entry| entry.promoted());
    };
    for (between, ends_s) in
        [(extend, 61), (again, 61), (again_for_as_long, 61), (demoted, 61), ((|_, _| {}) as Between, 1)]
    {
        let node = node();
        let token = hold(&node, 4, b"k", &in_session(named(7, alone(60, 0))));
        hold(&node, 4, b"other", &in_session(alone(60, 0)));
        node.disconnect(4);
        between(&node, token);
        settle(&node);
        assert_eq!(ends_at(&node, b"k"), Some(START.after(seconds(ends_s))));
    }
    // A demoted server forgets sessions whose connections are still open.
    let node = node();
    hold(&node, 4, b"k", &in_session(alone(60, 0)));
    demoted(&node, Token::LAST);
    node.disconnect(4);
    settle(&node);
    assert_eq!(ends_at(&node, b"k"), Some(START.after(seconds(61))));
    assert!(node.driver.borrow().engine().sessions().is_empty());
}

#[test]
fn a_script_is_neither_kept_waiting_nor_bound_to_its_connection() {
    let node = node();
    hold(&node, 1, b"k", &alone(5, 0));
    node.world.borrow_mut().is_script = true;
    assert!(matches!(acquire(&node, 2, K, &named(7, alone(5, 9))), Ok(Outcome::NotGranted)));
    assert_eq!(acquire(&node, 2, &[b"free"], &in_session(alone(5, 0))).unwrap_err(), Error::Session);
    assert!(matches!(acquire(&node, 2, &[b"free"], &alone(5, 9)), Ok(Outcome::Granted(_))));
    assert_eq!(node.driver.borrow().engine().queues().places(), 1, "its attempt has a place");
}

#[test]
fn releasing_several_locks_serves_waiters_for_a_single_lock_at_once() {
    let node = node();
    let both = hold_all(&node, 1, &[b"a", b"b"], &alone(5, 0));
    wait(&node, 2, &[b"a"], &alone(5, 9));
    assert_eq!(node.command(1, |entry| entry.release_all(&[b"a", b"b"], both.token)), Ok(2));
    assert!(is_granted(&node, 2), "without a timer");
}

#[test]
fn tokens_exceed_a_released_token_of_an_earlier_server() {
    for several in [false, true] {
        let node = node();
        let ahead = Token::new(START.0 + 9_000_000).unwrap();
        let value = format!("1763710099.000000{:016}", ahead.get()).into_bytes();
        node.world
            .borrow_mut()
            .keys
            .insert(place(b"k"), Stored { content: Content::String(value), expire_at_ms: None });
        if several {
            assert_eq!(node.command(1, |entry| entry.release_all(&[b"k", b"x"], ahead)), Ok(1));
        } else {
            release(&node, 1, b"k", ahead);
        }
        assert!(hold(&node, 1, b"k", &alone(5, 0)) > ahead);
    }
}

#[test]
fn info_counts_what_happens() {
    let node = node();
    let counted = |node: &Node| {
        let count =
            |(name, counter): &(&'static std::ffi::CStr, Counter)| (name.to_str().unwrap(), count(node, *counter));
        Counter::ALL.iter().map(count).filter(|(_, count)| *count > 0).collect::<Vec<_>>()
    };
    let token = hold(&node, 1, b"k", &alone(5, 0));
    node.command(1, |entry| entry.extend(b"k", token, seconds(5))).unwrap();
    assert!(matches!(acquire(&node, 2, K, &named(7, alone(5, 0))), Ok(Outcome::NotGranted)));
    assert!(matches!(acquire(&node, 2, K_AND_X, &alone(5, 0)), Ok(Outcome::NotGranted)));
    wait(&node, 2, K, &named(7, alone(5, 9)));
    release(&node, 1, b"k", token);
    assert_eq!(node.command(1, |entry| entry.release(b"k", token)), Ok(Release::Over));
    assert_eq!(node.command(1, |entry| entry.extend(b"k", token, seconds(5))), Ok(false));
    assert_eq!(node.command(1, |entry| entry.extend_all(K, token, seconds(5))), Ok(false));
    assert!(is_granted(&node, 2));
    wait(&node, 3, K, &named(8, alone(5, 2)));
    run_until(&node, START.after(seconds(2)));
    assert!(matches!(node.deliver(Blocked(3)), Some(Answer::NotGranted(_))));
    assert_eq!(node.command(3, |entry| entry.cancel(b"k", id(8))), Ok(true));
    assert_eq!(node.command(3, |entry| entry.cancel(b"k", id(8))), Ok(false));
    run_until(&node, START.after(seconds(7)));
    let late = hold(&node, 1, b"k", &alone(1, 0));
    run_until(&node, START.after(seconds(9)));
    assert_eq!(node.command(1, |entry| entry.release(b"k", late)), Ok(Release::Late));
    let content = Content::String(b"foreign".to_vec());
    node.world.borrow_mut().keys.insert(place(b"f"), Stored { content, expire_at_ms: None });
    assert!(matches!(acquire(&node, 2, &[b"f"], &alone(5, 0)), Ok(Outcome::NotGranted)));
    assert!(matches!(acquire(&node, 2, &[b"x", b"f"], &alone(5, 0)), Ok(Outcome::NotGranted)));
    assert_eq!(node.command(2, |entry| entry.recover(b"f", &alone(5, 0))), Ok(None));
    hold(&node, 4, b"s", &in_session(alone(5, 0)));
    node.disconnect(4);
    settle(&node);
    let expected = [
        ("grants", 4),
        ("refusals", 7),
        ("recoveries", 1),
        ("extends", 1),
        ("releases", 1),
        ("late_releases", 1),
        ("stale_tokens", 3),
        ("hand_offs", 1),
        ("wait_timeouts", 1),
        ("cancels", 1),
        ("places_resumed", 1),
        ("sessions_ended", 1),
        ("foreign_values_met", 3),
    ];
    assert_eq!(counted(&node), expected);
}
