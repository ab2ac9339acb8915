//! Reasons for a server not to grant: a grace that has not passed, replicas that do not answer, a stall, clocks that
//! jump. Each of them makes the server refuse commands and holds up waiters, is logged, and ends when it should.

use crate::asks::{alone as ask, hold, hold_all, is_granted, named, seconds, wait, START};
use crate::fake::{Blocked, Node, Settings};
use redis_lock_core::driver::{Ask, ChannelName, Outcome, Span};
use redis_lock_core::engine::counters::Counter;
use redis_lock_core::engine::outbox::Answer;
use redis_lock_core::lock::error::Error;
use redis_lock_core::lock::grace;
use redis_lock_core::lock::held::Release;
use redis_lock_core::lock::time::{Micros, UnixMicros};
use redis_lock_core::lock::token::Token;

/// Leases of up to 16 s have expired when the grace ends: the grace also has to cover the margin, the lag and two
/// seconds.
const GRACE: grace::Settings =
    grace::Settings { grace: seconds(20), margin: seconds(1), max_lag: seconds(1), wanted: 1 };

/// A master with one replica that answers, and no grace yet.
fn node() -> Node {
    let node = Node::new(Settings::default(), START);
    answers(&node, 1, &[0]);
    node
}

/// Sets the master's offset; each replica acknowledged it the given number of seconds ago.
fn answers(node: &Node, offset: u64, lags: &[i64]) {
    let answers = lags.iter().map(|lag_s| grace::Answer { offset, lag_s: *lag_s }).collect();
    node.world.borrow_mut().replication = Some((offset, answers));
}

fn set_grace(node: &Node, grace: Option<grace::Settings>) {
    node.world.borrow_mut().settings.grace = grace;
}

/// Runs a healthy server's event loop for `tenths` of a second; its replica acknowledges all writes.
fn run(node: &Node, tenths: u64) {
    for _ in 0..tenths {
        node.pass(Micros(100_000));
        if let Some((offset, answers)) = &mut node.world.borrow_mut().replication {
            *offset += 1;
            for answer in answers {
                answer.offset = *offset;
            }
        }
        node.event(|entry| entry.tick());
        node.fire();
    }
}

/// A master whose grace has passed.
fn after_grace() -> Node {
    let node = node();
    set_grace(&node, Some(GRACE));
    run(&node, 200);
    node.world.borrow_mut().log.clear();
    node
}

fn acquire(node: &Node, client: u64, name: &[u8], ask: &Ask<'_>) -> Result<Option<Token>, Error> {
    match node.command(client, |entry| entry.acquire(name, ask))? {
        Outcome::Granted(granted) => Ok(Some(granted.token)),
        Outcome::NotGranted => Ok(None),
        Outcome::Waits | Outcome::Queued => panic!("the client waits"),
        Outcome::Result(_) => panic!("nobody asks for a result"),
    }
}

fn failed(node: &Node, client: u64) -> Option<Error> {
    match node.deliver(Blocked(client)) {
        Some(Answer::Failed(error)) => Some(error),
        None => None,
        other => panic!("{other:?}"),
    }
}

fn log(node: &Node) -> Vec<String> {
    std::mem::take(&mut node.world.borrow_mut().log)
}

#[test]
fn a_new_master_grants_nothing_to_anybody_until_its_grace_ends() {
    let node = node();
    let token = hold(&node, 1, b"held", &ask(5, 0));
    let too = hold(&node, 1, b"too", &ask(5, 0));
    wait(&node, 2, &[b"held"], &ask(5, 99));
    set_grace(&node, Some(GRACE));
    run(&node, 1);
    assert_eq!(acquire(&node, 3, b"free", &ask(5, 0)), Err(Error::Grace(19_900)));
    assert_eq!(
        node.command(3, |entry| entry.acquire_all(&[b"free", b"other"], &ask(5, 0))).unwrap_err(),
        Error::Grace(19_900)
    );
    assert_eq!(acquire(&node, 3, b"held", &ask(5, 0)), Ok(None), "somebody else holds that lock");
    assert_eq!(node.command(3, |entry| entry.acquire_all(&[b"free", b"held"], &ask(5, 0))).map(|_| ()), Ok(()));
    assert_eq!(node.command(3, |entry| entry.recover(b"free", &ask(5, 0))), Ok(None), "nothing has expired there");
    assert_eq!(node.command(3, |entry| entry.recover(b"held", &ask(5, 0))), Ok(None), "that lock has not expired");
    wait(&node, 4, &[b"free"], &ask(5, 99));
    wait(&node, 5, &[b"too", b"x"], &ask(5, 99));
    // Earlier grants are extended and released; nobody gets the lock.
    assert_eq!(node.command(1, |entry| entry.extend(b"held", token, seconds(7))), Ok(true));
    assert_eq!(node.command(1, |entry| entry.release(b"held", token)), Ok(Release::InTime));
    assert_eq!(node.command(1, |entry| entry.release(b"too", too)), Ok(Release::InTime));
    run(&node, 198);
    assert!(![2, 4, 5].iter().any(|client| is_granted(&node, *client)));
    run(&node, 2);
    assert!(is_granted(&node, 2) && is_granted(&node, 4), "nothing else has to happen for that");
    assert!(acquire(&node, 3, b"other", &ask(5, 0)).unwrap().is_some());
}

#[test]
fn a_grace_that_is_too_short_for_an_earlier_lease_is_logged() {
    for (lease, is_logged) in [(16, false), (18, true)] {
        let node = node();
        acquire(&node, 1, b"k", &ask(lease, 0)).unwrap().unwrap();
        set_grace(&node, Some(GRACE));
        run(&node, 1);
        let monotonic = node.world.borrow().monotonic;
        assert_eq!(node.driver.borrow().engine().gate_ref().grace_left(&GRACE, monotonic), Micros(19_900_000));
        let logged = log(&node);
        assert_eq!(
            logged.iter().any(|line| line.contains("too short for a lease that was already granted")),
            is_logged
        );
    }
}

#[test]
fn an_expired_lock_is_not_recovered_during_a_grace() {
    let node = node();
    hold(&node, 1, b"k", &ask(5, 0));
    run(&node, 70);
    set_grace(&node, Some(GRACE));
    run(&node, 2);
    assert_eq!(node.command(2, |entry| entry.recover(b"k", &ask(5, 0))), Err(Error::Grace(12_800)));
}

#[test]
fn a_lease_that_the_grace_does_not_cover_is_neither_granted_nor_set() {
    let node = after_grace();
    let beyond = Err(Error::LeaseBeyondGrace(16_000));
    assert_eq!(acquire(&node, 1, b"k", &ask(17, 0)), beyond.map(|()| None));
    let token = acquire(&node, 1, b"k", &ask(16, 0)).unwrap().unwrap();
    assert_eq!(node.command(1, |entry| entry.extend(b"k", token, seconds(17))), beyond.map(|()| true));
    assert_eq!(node.command(1, |entry| entry.extend_all(&[b"k"], token, seconds(17))), beyond.map(|()| true));
    assert_eq!(node.command(1, |entry| entry.extend_all(&[b"k"], token, seconds(16))), Ok(true));
}

#[test]
fn waits_for_leases_that_a_new_grace_does_not_cover_end() {
    let node = node();
    let token = hold(&node, 1, b"k", &ask(5, 0));
    hold(&node, 1, b"other", &ask(5, 0));
    hold(&node, 1, b"a", &ask(5, 0));
    wait(&node, 2, &[b"k"], &ask(17, 9));
    wait(&node, 3, &[b"k"], &ask(16, 9));
    wait(&node, 4, &[b"other"], &ask(17, 9));
    wait(&node, 5, &[b"a", b"b"], &ask(17, 9));
    set_grace(&node, Some(GRACE));
    // A release asks the gate before any timer has fired.
    assert_eq!(node.command(1, |entry| entry.release(b"k", token)), Ok(Release::InTime));
    let beyond = Some(Error::LeaseBeyondGrace(16_000));
    assert_eq!([2, 3, 4, 5].map(|client| failed(&node, client)), [beyond, None, None, None]);
    node.event(|entry| entry.tick());
    assert!(node.fire());
    assert_eq!([3, 4, 5].map(|client| failed(&node, client)), [None, beyond, beyond]);
    // A longer grace ends no wait, a shorter one does.
    set_grace(&node, Some(grace::Settings { grace: seconds(30), ..GRACE }));
    run(&node, 1);
    assert_eq!(failed(&node, 3), None);
    set_grace(&node, Some(grace::Settings { grace: seconds(19), ..GRACE }));
    run(&node, 1);
    assert_eq!(failed(&node, 3), Some(Error::LeaseBeyondGrace(15_000)));
}

#[test]
fn a_lease_beyond_a_shortened_grace_is_not_granted_behind_a_dead_attempt() {
    type Release = fn(&Node, Token) -> bool;
    let one: Release = |node, token| node.command(1, |entry| entry.release(b"k", token)).is_ok();
    let all: Release = |node, token| node.command(1, |entry| entry.release_all(&[b"k"], token)).is_ok();
    for release in [one, all] {
        let node = after_grace();
        let token = hold(&node, 1, b"k", &ask(15, 0));
        let channel = ChannelName { name: b"nobody", is_sharded: false };
        let is_not_there = Ask { notify: Some(channel), ..named(7, ask(5, 99)) };
        assert!(matches!(node.command(2, |entry| entry.acquire(b"k", &is_not_there)), Ok(Outcome::Queued)));
        wait(&node, 3, &[b"k"], &ask(16, 99));
        wait(&node, 4, &[b"k"], &ask(15, 99));
        run(&node, 30);
        // The next tick would find this waiter, but the lock is passed on first.
        set_grace(&node, Some(grace::Settings { grace: seconds(19), ..GRACE }));
        assert!(release(&node, token));
        assert_eq!(failed(&node, 3), Some(Error::LeaseBeyondGrace(15_000)));
        assert!(is_granted(&node, 4), "the lock is passed on at once");
    }
}

#[test]
fn short_of_good_replicas_nothing_is_granted_or_extended() {
    let node = after_grace();
    let token = hold(&node, 1, b"k", &ask(5, 0));
    wait(&node, 2, &[b"k"], &ask(5, 99));
    answers(&node, 500, &[2]);
    run(&node, 1);
    assert_eq!(acquire(&node, 3, b"free", &ask(5, 9)), Err(Error::NoReplicas), "it does not wait for that");
    assert_eq!(node.command(1, |entry| entry.extend(b"k", token, seconds(7))), Err(Error::NoReplicas));
    assert_eq!(node.command(1, |entry| entry.extend_all(&[b"k"], token, seconds(7))), Err(Error::NoReplicas));
    run(&node, 70);
    assert!(!is_granted(&node, 2));
    answers(&node, 1_000, &[1]);
    run(&node, 1);
    assert!(is_granted(&node, 2), "the lock had expired");
}

#[test]
fn a_holders_id_gets_no_reply_while_good_replicas_are_missing() {
    let node = after_grace();
    let named = |lease| named(7, ask(lease, 0));
    let token = acquire(&node, 1, b"k", &named(5)).unwrap();
    hold_all(&node, 1, &[b"a", b"b"], &named(5));
    answers(&node, 500, &[]);
    run(&node, 1);
    assert_eq!(acquire(&node, 1, b"k", &named(5)), Err(Error::NoReplicas), "the lease would end later");
    assert_eq!(acquire(&node, 1, b"k", &named(2)), Err(Error::NoReplicas), "another master may have given it away");
    let both = |lease| node.command(1, |entry| entry.acquire_all(&[b"a", b"b"], &named(lease)));
    for lease in [5, 2] {
        assert_eq!(both(lease).unwrap_err(), Error::NoReplicas);
    }
    answers(&node, 900, &[0, 0]);
    run(&node, 1);
    assert_eq!(acquire(&node, 1, b"k", &named(2)), Ok(token));
}

#[test]
fn after_a_stall_nothing_is_granted_until_the_replicas_answer() {
    let node = after_grace();
    node.pass(Micros(500_000));
    assert!(acquire(&node, 1, b"a", &ask(5, 0)).is_ok(), "no longer than the margin covers");
    node.event(|entry| entry.tick());
    assert_eq!(log(&node), [""; 0]);
    node.pass(Micros(500_001));
    assert_eq!(acquire(&node, 1, b"b", &ask(5, 0)), Err(Error::NoReplicas), "before any tick");
    node.event(|entry| entry.tick());
    let [line] = &log(&node)[..] else { panic!("one line") };
    assert!(line.starts_with("the server stalled"), "{line}");
    node.event(|entry| entry.tick());
    assert_eq!(acquire(&node, 1, b"b", &ask(5, 0)), Err(Error::NoReplicas), "they have sent no new answers");
    // If the server does not report its replicas, this does not change.
    let known = node.world.borrow_mut().replication.take();
    run(&node, 3);
    assert_eq!(acquire(&node, 1, b"b", &ask(5, 0)), Err(Error::NoReplicas));
    node.world.borrow_mut().replication = known;
    run(&node, 3);
    assert!(acquire(&node, 1, b"b", &ask(5, 0)).is_ok());
}

#[test]
fn clocks_that_jump_are_noticed_by_the_next_caller() {
    let node = after_grace();
    let count = |counter| node.driver.borrow().engine().counters().get(counter);
    let step = |by_us: i64| {
        let mut world = node.world.borrow_mut();
        world.wall = UnixMicros(world.wall.0.saturating_add_signed(by_us));
    };
    step(-2_000_000);
    assert_eq!(acquire(&node, 1, b"a", &ask(5, 0)), Err(Error::NoReplicas));
    assert_eq!(log(&node), ["the wall clock was set by -2000 ms: leases end earlier or later by that much"]);
    assert_eq!(count(Counter::ClockSteps), 1);
    run(&node, 1);
    run(&node, 1);
    let token = hold(&node, 1, b"a", &ask(5, 0));
    {
        let mut world = node.world.borrow_mut();
        world.suspended = Micros(30_000);
        world.wall = world.wall.after(Micros(30_000));
        world.monotonic = world.monotonic.after(Micros(30_000));
    }
    assert_eq!(node.command(1, |entry| entry.extend(b"a", token, seconds(7))), Err(Error::NoReplicas));
    let logged = "the machine was suspended for 30 ms: leases kept running, and waits that ended are answered now";
    assert_eq!(log(&node), [logged]);
    assert_eq!(count(Counter::ClockSteps), 1);
}

#[test]
fn a_grace_is_logged_once_when_it_begins_and_once_when_it_ends() {
    let node = node();
    set_grace(&node, Some(GRACE));
    run(&node, 1);
    assert_eq!(log(&node), ["a grace has begun: no lock is granted for the next 19900 ms"]);
    run(&node, 198);
    assert_eq!(log(&node), [""; 0]);
    run(&node, 5);
    assert_eq!(
        log(&node),
        ["the grace has ended: locks are granted. Calls refused with GRACE: 0, attempts that wait: 0"]
    );
    node.event(|entry| entry.promoted());
    run(&node, 1);
    assert_eq!(log(&node), ["a grace has begun: no lock is granted for the next 19900 ms"]);
    // A replica grants nothing, whatever its grace.
    node.world.borrow_mut().is_replica = true;
    node.event(|entry| entry.demoted());
    run(&node, 300);
    let logged = "the grace has ended: this server is a replica now. Calls refused with GRACE: 0";
    assert_eq!(log(&node), [logged]);
    run(&node, 300);
    assert_eq!(log(&node), [""; 0]);
}

#[test]
fn a_misconfiguration_is_logged_once_each_time_it_arises() {
    let node = node();
    node.world.borrow_mut().replication = Some((1, Vec::new()));
    let misconfigured = grace::Settings { wanted: 0, ..GRACE };
    run(&node, 250);
    assert_eq!(log(&node), [""; 0]);
    let assert_logged = |count: usize| {
        let logged = log(&node);
        assert_eq!(
            logged.iter().filter(|line| line.contains("without min-replicas-to-write")).count(),
            count,
            "{logged:?}"
        );
    };
    set_grace(&node, Some(misconfigured));
    run(&node, 10);
    assert_logged(1);
    run(&node, 30);
    assert_logged(0);
    // The misconfiguration goes away, then comes back.
    set_grace(&node, None);
    run(&node, 11);
    set_grace(&node, Some(misconfigured));
    run(&node, 11);
    assert_logged(1);
    answers(&node, 1, &[0, 0]);
    set_grace(&node, Some(GRACE));
    run(&node, 11);
    let logged = log(&node);
    assert!(logged.iter().any(|line| line.contains("below the number of replicas")), "{logged:?}");
}

#[test]
fn hold_and_wait_times_are_recorded() {
    let node = node();
    let token = hold(&node, 1, b"k", &ask(5, 0));
    run(&node, 10);
    wait(&node, 2, &[b"k"], &ask(5, 99));
    run(&node, 20);
    assert_eq!(node.command(1, |entry| entry.release(b"k", token)), Ok(Release::InTime));
    assert_eq!(node.world.borrow().spans, [(Span::Wait, seconds(2)), (Span::Hold, seconds(3))]);
    run(&node, 1);
    let token = hold(&node, 1, b"other", &ask(5, 0));
    run(&node, 10);
    assert_eq!(node.command(1, |entry| entry.release_all(&[b"other"], token)), Ok(1));
    assert_eq!(node.world.borrow().spans.last(), Some(&(Span::Hold, seconds(1))));
}
