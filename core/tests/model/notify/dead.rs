//! Disconnected clients do not stall the queue: their attempts are passed over.

use super::{
    attempt, claim, hang_up, held, notified_on, pass, places, queue, received, release, subscribe, value, waiters,
    CHANNEL, K, OTHER,
};
use crate::asks::{alone, count, granted, is_granted, named, seconds, settle, wait};
use redis_lock_core::engine::counters::Counter;
use redis_lock_core::lock::held::Release;
use redis_lock_core::lock::request::Share;

#[test]
fn an_attempt_without_a_subscriber_keeps_its_place() {
    let (node, token) = held();
    queue(&node, K, &notified_on(CHANNEL, named(7, alone(5, 99))));
    wait(&node, 3, K, &alone(5, 99));
    hang_up(&node, CHANNEL);
    node.pass(seconds(2));
    release(&node, b"k", token);
    settle(&node);
    let token = granted(&node, 3).unwrap().granted.token;
    assert_eq!((waiters(&node), places(&node)), (0, 1));
    assert_eq!(count(&node, Counter::NoSubscriber), 1);
    received(&node);
    wait(&node, 4, K, &alone(5, 99));
    queue(&node, K, &attempt(7));
    release(&node, b"k", token);
    assert_eq!(received(&node), ["granted 7 k"], "it was sent recently");
}

#[test]
fn an_attempt_sent_within_claim_ms_needs_no_subscriber() {
    for (after_ms, is_granted) in [(1_999, true), (2_000, false)] {
        let (node, token) = held();
        hang_up(&node, CHANNEL);
        queue(&node, K, &attempt(7));
        node.pass(redis_lock_core::lock::time::Micros(after_ms * 1_000));
        release(&node, b"k", token);
        settle(&node);
        assert_eq!(value(&node, b"k").is_some(), is_granted, "{after_ms}");
    }
}

#[test]
fn an_unclaimed_grant_skips_its_channel_until_a_repeat() {
    let (node, token) = held();
    for number in [7, 8, 9] {
        queue(&node, K, &notified_on(CHANNEL, named(number, alone(5, 99))));
    }
    queue(&node, K, &notified_on(OTHER, named(10, alone(5, 99))));
    release(&node, b"k", token);
    pass(&node, 2_050);
    assert_eq!(received(&node), ["granted 7 k", "granted 10 k"], "the others of its channel are passed over");
    let token = claim(&node, 3, K, &notified_on(OTHER, named(10, alone(5, 99)))).token;
    queue(&node, K, &notified_on(CHANNEL, named(9, alone(5, 99))));
    queue(&node, K, &notified_on(CHANNEL, named(8, alone(5, 99))));
    release(&node, b"k", token);
    assert_eq!(received(&node), ["granted 8 k"], "in its old place, and its channel is no longer skipped");
}

#[test]
fn a_live_attempt_behind_a_thousand_dead_ones_gets_the_lock_in_a_moment() {
    let (node, token) = held();
    node.world.borrow_mut().settings.limits.queued = 2_000;
    for number in 100..1_100 {
        queue(&node, K, &notified_on(OTHER, named(number, alone(5, 99))));
    }
    hang_up(&node, OTHER);
    node.pass(seconds(3));
    queue(&node, K, &attempt(7));
    subscribe(&node, CHANNEL);
    received(&node);
    release(&node, b"k", token);
    for _ in 0..100 {
        settle(&node);
        node.pass(redis_lock_core::lock::time::Micros(1_000));
    }
    assert_eq!(received(&node).len(), 1_001, "one publish each");
    claim(&node, 3, K, &attempt(7));
    assert!(!is_granted(&node, 9));
}

#[test]
fn a_repeated_attempt_ends_the_skipping_of_its_channel() {
    for is_sent_again in [false, true] {
        let (node, token) = held();
        let other = crate::asks::hold(&node, 1, b"l", &alone(60, 0));
        queue(&node, K, &attempt(7));
        queue(&node, &[b"l"], &notified_on(CHANNEL, named(8, alone(5, 99))));
        release(&node, b"k", token);
        pass(&node, 2_050);
        crate::asks::hold(&node, 1, b"k", &alone(60, 0));
        if is_sent_again {
            queue(&node, K, &attempt(9));
        }
        received(&node);
        release(&node, b"l", other);
        settle(&node);
        assert_eq!(value(&node, b"l").is_some(), is_sent_again);
    }
}

#[test]
fn a_claim_of_another_grant_ends_the_skipping_of_its_channel() {
    for claims in [false, true] {
        let (node, token) = held();
        let locks: [&[u8]; 2] = [b"l", b"m"];
        let [other, last] = locks.map(|name| crate::asks::hold(&node, 1, name, &alone(60, 0)));
        let patient = |number| notified_on(CHANNEL, named(number, alone(5, 99)));
        queue(&node, K, &patient(7));
        queue(&node, &[b"l"], &patient(8));
        queue(&node, &[b"m"], &patient(9));
        release(&node, b"k", token);
        pass(&node, 1_000);
        release(&node, b"l", other);
        pass(&node, 1_050);
        if claims {
            claim(&node, 2, &[b"l"], &patient(8));
        }
        received(&node);
        release(&node, b"m", last);
        settle(&node);
        assert_eq!(value(&node, b"m").is_some(), claims);
    }
}

#[test]
fn one_entry_passes_over_few_dead_attempts_while_messages_are_slow() {
    // With thousands of patterns a message takes a third of a millisecond.
    for (takes_us, most_of_timer, most_of_command) in [(0, 512, 16), (330, 10, 6), (3_000, 2, 2)] {
        let (node, token) = held();
        node.world.borrow_mut().settings.limits.queued = 2_000;
        for number in 100..1_100 {
            queue(&node, K, &notified_on(OTHER, named(number, alone(5, 99))));
        }
        hang_up(&node, OTHER);
        node.pass(seconds(3));
        queue(&node, K, &attempt(7));
        node.world.borrow_mut().publish_takes = redis_lock_core::lock::time::Micros(takes_us);
        release(&node, b"k", token);
        let (first, mut most, mut all) = (received(&node).len(), 0, 0);
        assert!((1..=most_of_command).contains(&first), "{first} attempts in a command, {takes_us} us each");
        for _ in 0..1_001 {
            node.fire();
            let messages = received(&node).len();
            (most, all) = (messages.max(most), all + messages);
        }
        assert!(most <= most_of_timer, "{most} attempts in an iteration, {takes_us} us each");
        assert_eq!(first + all, 1_001, "one message each");
        assert!(value(&node, b"k").is_some());
    }
}

#[test]
fn a_cancelled_channel_passes_grants_on_in_pieces_while_messages_are_slow() {
    let share = |wait| crate::asks::ask(Share::Limit(30), 60, wait);
    let (node, token) = held();
    release(&node, b"k", token);
    let first: Vec<_> = (0..30).map(|_| crate::asks::hold(&node, 1, b"k", &share(0))).collect();
    for number in 100..130 {
        queue(&node, K, &notified_on(CHANNEL, named(number, share(99))));
    }
    for number in 200..230 {
        queue(&node, K, &notified_on(OTHER, named(number, share(99))));
    }
    for token in first {
        assert_ne!(release(&node, b"k", token), Release::Over);
    }
    settle(&node);
    assert_eq!(received(&node).len(), 30);
    node.world.borrow_mut().publish_takes = redis_lock_core::lock::time::Micros(330);
    assert_eq!(node.command(1, |entry| entry.cancel_channel(b"k", b"app-1")), 30);
    let first = received(&node).len();
    assert!(first <= 12, "{first} messages in a command");
    settle(&node);
    assert_eq!(
        first + received(&node).len(),
        60,
        "each gets the message that it was cancelled, and the others are notified of grants"
    );
    assert_eq!(node.driver.borrow().engine().claims().len(), 30);
}
