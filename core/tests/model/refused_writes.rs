//! Writes that the server refuses, and waits whose slot is lost: everything else goes on.

use crate::asks::{alone, count, granted, hold, hold_all, in_session, node, place, seconds, settle, wait, START};
use crate::fake::{Blocked, Node};
use crate::passing::tokens;
use redis_lock_core::driver::{Span, WriteRefused};
use redis_lock_core::engine::counters::Counter;
use redis_lock_core::engine::outbox::Answer;
use redis_lock_core::lock::error::Error;
use redis_lock_core::lock::held::Release;
use redis_lock_core::lock::time::Micros;

fn refuse(node: &Node, name: &[u8], why: WriteRefused) {
    node.world.borrow_mut().refused.insert(name.to_vec(), why);
}

fn allow(node: &Node) {
    node.world.borrow_mut().refused.clear();
}

#[test]
fn a_refused_write_is_tried_again_and_holds_up_no_other_key() {
    let node = node();
    // There is a lock that becomes free, a lock whose grant is lost, and a lock that ends with its connection. Each
    // one's write is refused, alongside another lock's write that is not.
    for name in [b"a", b"b"] {
        hold(&node, 1, name, &alone(5, 0));
    }
    wait(&node, 2, &[b"a"], &alone(5, 99));
    wait(&node, 3, &[b"b"], &alone(5, 99));
    for (name, client) in [(b"c", 4), (b"d", 5)] {
        let token = hold(&node, 1, name, &alone(60, 0));
        wait(&node, client, &[name], &alone(60, 99));
        node.command(1, |entry| entry.release(name, token)).unwrap();
    }
    for (name, client) in [(b"e", 6), (b"f", 7)] {
        hold(&node, client, name, &in_session(alone(60, 0)));
    }
    for name in [b"a", b"c", b"e"] {
        refuse(&node, name, WriteRefused::ForNow);
    }
    for name in [b"a", b"b"] {
        node.delete(&place(name));
    }
    for client in [4, 5] {
        assert!(node.lose(Blocked(client)).is_some());
    }
    for client in [6, 7] {
        node.disconnect(client);
    }
    assert!(node.fire());
    let ends_at = |name: &[u8]| node.with_lock(&place(name), |lock| lock.last_end());
    assert!(granted(&node, 3).is_some() && granted(&node, 2).is_none());
    assert_eq!((ends_at(b"c").is_some(), ends_at(b"d")), (true, None));
    assert_eq!((ends_at(b"e"), ends_at(b"f")), (Some(START.after(seconds(61))), Some(START.after(seconds(1)))));
    // The writes are not tried again at once, because the loop would do nothing else.
    assert!(!node.fire());
    allow(&node);
    node.pass(Micros(19_000));
    assert!(!node.fire());
    node.pass(Micros(1_000));
    settle(&node);
    assert!(granted(&node, 2).is_some());
    assert_eq!(ends_at(b"c"), None);
    assert_eq!(ends_at(b"e"), Some(START.after(seconds(1))), "a margin after its connection has ended");
}

#[test]
fn a_waiter_for_several_locks_gets_none_if_one_cannot_be_written() {
    for is_lost in [false, true] {
        let node = node();
        let token = hold(&node, 1, b"a", &alone(5, 0));
        wait(&node, 2, &[b"a", b"b", b"c"], &alone(5, 99));
        let why = if is_lost { WriteRefused::NotOurs } else { WriteRefused::ForNow };
        refuse(&node, b"b", why);
        assert_eq!(node.command(1, |entry| entry.release(b"a", token)), Ok(Release::InTime));
        settle(&node);
        node.pass(Micros(20_000));
        settle(&node);
        if is_lost {
            let answer = node.deliver(Blocked(2));
            assert!(matches!(answer, Some(Answer::Failed(Error::SlotLost))), "{answer:?}");
            node.pass(Micros(20_000));
            settle(&node);
            assert!(node.world.borrow().keys.is_empty(), "the written part was undone");
            continue;
        }
        assert!(node.deliver(Blocked(2)).is_none());
        allow(&node);
        node.pass(Micros(40_000));
        settle(&node);
        let grant = granted(&node, 2).unwrap();
        assert_eq!([b"a", b"b", b"c"].map(|name| tokens(&node, name).1), [(); 3].map(|()| vec![grant.granted.token]));
    }
}

#[test]
fn waiters_for_a_key_whose_slot_is_lost_get_an_error() {
    // They get it when the lock becomes free, when a grant is passed on, and when the slot of one of several keys is
    // lost.
    let node = node();
    hold(&node, 1, b"a", &alone(5, 0));
    wait(&node, 2, &[b"a"], &alone(5, 99));
    wait(&node, 3, &[b"a"], &alone(5, 99));
    let token = hold(&node, 1, b"b", &alone(5, 0));
    wait(&node, 4, &[b"b"], &alone(5, 99));
    wait(&node, 5, &[b"b"], &alone(5, 99));
    node.command(1, |entry| entry.release(b"b", token)).unwrap();
    hold(&node, 1, b"c", &alone(5, 0));
    wait(&node, 6, &[b"c", b"d"], &alone(5, 99));
    for name in [b"a", b"b"] {
        refuse(&node, name, WriteRefused::NotOurs);
    }
    node.world.borrow_mut().lost_slots = Some([b"d".to_vec()].into());
    for name in [b"a", b"c"] {
        node.delete(&place(name));
    }
    node.lose(Blocked(4));
    settle(&node);
    for client in [2, 3, 5, 6] {
        let answer = node.deliver(Blocked(client));
        assert!(matches!(answer, Some(Answer::Failed(Error::SlotLost))), "{client}: {answer:?}");
    }
}

#[test]
fn a_release_of_several_locks_fails_if_one_of_them_cannot_be_written() {
    let node = node();
    let names: [&[u8]; 2] = [b"a", b"b"];
    let granted = hold_all(&node, 1, &names, &alone(5, 0));
    refuse(&node, b"b", WriteRefused::ForNow);
    assert_eq!(node.command(1, |entry| entry.release_all(&names, granted.token)), Err(Error::Internal));
    allow(&node);
    assert_eq!(node.command(1, |entry| entry.release_all(&names, granted.token)), Ok(1));
}

#[test]
fn a_release_of_several_locks_counts_what_was_written() {
    let names: [&[u8]; 3] = [b"a", b"b", b"c"];
    let overruns = [Counter::Releases, Counter::LateReleases, Counter::Overruns, Counter::StaleTokens];
    // Either nobody waits for any of the locks, or each has a waiter: a hand-off is a different write.
    for has_next in [false, true] {
        let node = node();
        let granted = hold_all(&node, 1, &names[..2], &alone(5, 0));
        if has_next {
            for (client, name) in [(2, b"a"), (3, b"b")] {
                wait(&node, client, &[name], &alone(5, 99));
            }
        }
        node.pass(Micros(5_500_000)); // Only the margin is left.
        let release = || node.command(1, |entry| entry.release_all(&names, granted.token));
        refuse(&node, b"a", WriteRefused::ForNow);
        refuse(&node, b"b", WriteRefused::ForNow);
        assert_eq!(release(), Err(Error::Internal));
        assert_eq!(overruns.map(|counter| count(&node, counter)), [0; 4], "{has_next}");
        assert_eq!(node.world.borrow().spans, [], "no lock was released");
        node.world.borrow_mut().refused.remove(&b"a"[..]);
        assert_eq!(release(), Err(Error::Internal));
        let one = overruns.map(|counter| count(&node, counter));
        assert_eq!((one[0] + one[1], one[2], one[3]), (1, 1, 0), "{has_next}");
        assert_eq!(node.world.borrow().spans.iter().filter(|(span, _)| *span == Span::Hold).count(), 1);
        allow(&node);
        assert_eq!(release(), Ok(1));
        let all = overruns.map(|counter| count(&node, counter));
        assert_eq!((all[0] + all[1], all[2], all[3]), (2, 2, 2), "{has_next}: the token does not hold a and c");
    }
}
