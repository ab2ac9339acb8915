//! Slots that leave: whoever waits for a key in one of them gets an error. If the server reports that slots left, the
//! next run of the timer answers them, whether or not anything may be written; otherwise a check of all queues does.

use crate::asks::{alone, hold, settle, wait, START};
use crate::fake::{Blocked, Node, Settings};
use redis_lock_core::engine::outbox::Answer;
use redis_lock_core::engine::Limits;
use redis_lock_core::lock::error::Error;
use redis_lock_core::lock::time::Micros;
use std::collections::BTreeSet;

/// The most slots that one run of the timer asks about.
const AT_ONCE: usize = 256;

fn name(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// A server on which clients 1 to `count` wait, each for the key of its number.
fn waiting(count: u64) -> Node {
    let limits = Limits { waiters: 3_000, ..Settings::default().limits };
    let node = Node::new(Settings { limits, ..Settings::default() }, START);
    node.world.borrow_mut().lost_slots = Some(BTreeSet::new());
    for number in 1..=count {
        hold(&node, 0, &name(number), &alone(60, 0));
        wait(&node, number, &[&name(number)], &alone(60, 50));
    }
    settle(&node);
    node
}

fn lose(node: &Node, numbers: &[u64]) {
    node.world.borrow_mut().lost_slots.as_mut().unwrap().extend(numbers.iter().copied().map(name));
}

/// The clients whose slots left, in the order of their answers.
fn told(node: &Node) -> Vec<u64> {
    let letters = &node.world.borrow().letters;
    assert!(letters.iter().all(|(_, answer)| matches!(answer, Answer::Failed(Error::SlotLost))));
    letters.iter().map(|(Blocked(client), _)| *client).collect()
}

#[test]
fn the_next_run_of_the_timer_answers_whoever_waits_in_a_slot_that_left() {
    for is_paused in [false, true] {
        let node = waiting(3);
        node.world.borrow_mut().is_paused = is_paused;
        if is_paused {
            // So that the timer has tried to write, and waits for the next attempt.
            node.delete(&(0, name(1)));
            assert!(node.fire());
        }
        let opened = node.world.borrow().opened;
        lose(&node, &[2]);
        assert_eq!(told(&node), [] as [u64; 0], "the server has not reported it");
        node.event(|entry| entry.slots_left());
        assert_eq!(told(&node), [] as [u64; 0], "nothing is answered within the event");
        assert!(node.fire());
        assert_eq!((told(&node), node.world.borrow().opened), (vec![2], opened), "no key has to be opened");
        settle(&node);
        assert_eq!(told(&node), [2], "the others go on waiting");
    }
}

#[test]
fn many_slots_are_checked_a_piece_at_a_time() {
    let node = waiting(1_000);
    lose(&node, &[10, 900]);
    let mut asked = node.world.borrow().slots_asked;
    node.event(|entry| entry.slots_left());
    assert!(node.fire());
    assert_eq!(told(&node), [10]);
    // Another slot leaves, whose queue has already been checked.
    lose(&node, &[20]);
    node.event(|entry| entry.slots_left());
    let mut runs = 1;
    loop {
        let now = node.world.borrow().slots_asked;
        assert!(now - asked <= AT_ONCE, "{asked} -> {now}");
        asked = now;
        if !node.fire() {
            break;
        }
        runs += 1;
    }
    assert_eq!(told(&node), [10, 900, 20]);
    assert!((7..=12).contains(&runs), "two rounds: {runs}");
}

#[test]
fn slots_that_leave_all_the_time_keep_no_queue_from_being_checked() {
    let node = waiting(1_000);
    lose(&node, &[1_000]);
    for _ in 0..5 {
        node.event(|entry| entry.slots_left());
        assert!(node.fire());
    }
    assert_eq!(told(&node), [1_000]);
}

#[test]
fn without_a_report_every_queue_is_checked_even_if_nothing_may_be_written() {
    let node = waiting(600);
    node.world.borrow_mut().is_paused = true;
    lose(&node, &[1, 300, 600]);
    for _ in 0..20 {
        node.pass(Micros(100_000));
        node.event(|entry| entry.tick());
        settle(&node);
    }
    let mut told = told(&node);
    told.sort_unstable();
    assert_eq!(told, [1, 300, 600]);
}

#[test]
fn a_server_without_slots_checks_nothing() {
    let node = waiting(3);
    node.world.borrow_mut().lost_slots = None;
    let asked = node.world.borrow().slots_asked;
    node.event(|entry| entry.slots_left());
    settle(&node);
    assert_eq!(node.world.borrow().slots_asked, asked);
}
