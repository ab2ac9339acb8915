//! The dead do not stall the line: attempts that nobody hears of are passed over.

use super::{
    attempt, claim, hang_up, heard, held, listen, pass, places, queue, release, told_on, value, waiters, CHANNEL, K,
    OTHER,
};
use crate::asks::{alone, count, granted, is_granted, named, seconds, settle, wait};
use redis_lock_core::engine::counters::Counter;

#[test]
fn an_attempt_that_nobody_listens_for_is_granted_nothing_and_keeps_its_place() {
    let (node, token) = held();
    queue(&node, K, &told_on(CHANNEL, named(7, alone(5, 99))));
    wait(&node, 3, K, &alone(5, 99));
    hang_up(&node, CHANNEL);
    node.pass(seconds(2));
    release(&node, b"k", token);
    settle(&node);
    let token = granted(&node, 3).unwrap().granted.token;
    assert_eq!((waiters(&node), places(&node)), (0, 1));
    assert_eq!(count(&node, Counter::Unheard), 1);
    heard(&node);
    wait(&node, 4, K, &alone(5, 99));
    queue(&node, K, &attempt(7));
    release(&node, b"k", token);
    assert_eq!(heard(&node), ["granted 7 k"], "it was sent a moment ago");
}

#[test]
fn one_that_was_sent_within_claim_ms_counts_as_heard() {
    for (after_ms, is_heard) in [(1_999, true), (2_000, false)] {
        let (node, token) = held();
        hang_up(&node, CHANNEL);
        queue(&node, K, &attempt(7));
        node.pass(redis_lock_core::lock::time::Micros(after_ms * 1_000));
        release(&node, b"k", token);
        settle(&node);
        assert_eq!(value(&node, b"k").is_some(), is_heard, "{after_ms}");
    }
}

#[test]
fn after_an_unclaimed_grant_its_channel_is_silent_until_one_of_its_attempts_is_sent_again() {
    let (node, token) = held();
    for number in [7, 8, 9] {
        queue(&node, K, &told_on(CHANNEL, named(number, alone(5, 99))));
    }
    queue(&node, K, &told_on(OTHER, named(10, alone(5, 99))));
    release(&node, b"k", token);
    pass(&node, 2_050);
    assert_eq!(heard(&node), ["granted 7 k", "granted 10 k"], "the others of its channel are passed over");
    let token = claim(&node, 3, K, &told_on(OTHER, named(10, alone(5, 99)))).token;
    queue(&node, K, &told_on(CHANNEL, named(9, alone(5, 99))));
    queue(&node, K, &told_on(CHANNEL, named(8, alone(5, 99))));
    release(&node, b"k", token);
    assert_eq!(heard(&node), ["granted 8 k"], "in its old place, and its channel is heard again");
}

#[test]
fn a_live_attempt_behind_a_thousand_dead_ones_has_the_lock_in_a_moment() {
    let (node, token) = held();
    node.world.borrow_mut().settings.limits.queued = 2_000;
    for number in 100..1_100 {
        queue(&node, K, &told_on(OTHER, named(number, alone(5, 99))));
    }
    hang_up(&node, OTHER);
    node.pass(seconds(3));
    queue(&node, K, &attempt(7));
    listen(&node, CHANNEL);
    heard(&node);
    release(&node, b"k", token);
    for _ in 0..100 {
        settle(&node);
        node.pass(redis_lock_core::lock::time::Micros(1_000));
    }
    assert_eq!(heard(&node).len(), 1_001, "a publish each");
    claim(&node, 3, K, &attempt(7));
    assert!(!is_granted(&node, 9));
}

#[test]
fn a_silent_channel_is_heard_again_in_all_lines_when_one_of_its_attempts_is_sent_again() {
    for is_sent_again in [false, true] {
        let (node, token) = held();
        let other = crate::asks::hold(&node, 1, b"l", &alone(60, 0));
        queue(&node, K, &attempt(7));
        queue(&node, &[b"l"], &told_on(CHANNEL, named(8, alone(5, 99))));
        release(&node, b"k", token);
        pass(&node, 2_050);
        crate::asks::hold(&node, 1, b"k", &alone(60, 0));
        if is_sent_again {
            queue(&node, K, &attempt(9));
        }
        heard(&node);
        release(&node, b"l", other);
        settle(&node);
        assert_eq!(value(&node, b"l").is_some(), is_sent_again);
    }
}
