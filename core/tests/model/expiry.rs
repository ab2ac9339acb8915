//! Keys with other clients' values, and native expiry: their waiters are served when the key becomes free.

use crate::asks::{alone, ask, count, granted, hold, node, place, settle, wait, START};
use crate::fake::{Content, Node, Stored};
use redis_lock_core::engine::counters::Counter;
use redis_lock_core::engine::KeyChange;
use redis_lock_core::lock::held::Release;
use redis_lock_core::lock::request::Share;
use redis_lock_core::lock::time::Micros;

#[test]
fn a_waiter_for_several_locks_waits_for_a_key_of_another_type_too() {
    let node = node();
    let token = hold(&node, 1, b"k", &alone(5, 0));
    wait(&node, 2, &[b"k", b"other"], &alone(5, 99));
    let content = Content::Set([(b"no holder".to_vec(), START.0)].into());
    node.world.borrow_mut().keys.insert(place(b"other"), Stored { content, expire_at_ms: None });
    assert_eq!(node.command(1, |entry| entry.release(b"k", token)), Ok(Release::InTime));
    settle(&node);
    assert!(granted(&node, 2).is_none());
    node.delete(&place(b"other"));
    settle(&node);
    assert!(granted(&node, 2).is_some(), "in the turn in which that value disappears");
}

#[test]
fn clients_wait_until_a_foreign_values_key_expires() {
    let node = node();
    let content = Content::String(b"foreign".to_vec());
    let expire_at_ms = Some(START.0 / 1_000 + 3_000);
    node.world.borrow_mut().keys.insert(place(b"k"), Stored { content, expire_at_ms });
    wait(&node, 2, &[b"k"], &alone(5, 99));
    wait(&node, 3, &[b"k", b"x"], &alone(5, 99));
    assert_eq!(node.timer_at(), Some(START.after(Micros(3_001_000))), "past its expiry");
    node.pass(Micros(3_001_000));
    settle(&node);
    let first = granted(&node, 2).unwrap().granted.token;
    assert_eq!(node.command(2, |entry| entry.release(b"k", first)), Ok(Release::InTime));
    assert!(granted(&node, 3).is_some());
}

/// The contents, with an expiry, that others leave in a key that somebody waits for: the holder's value, their own
/// string, or a value of another type.
fn contents(node: &Node) -> [Content; 3] {
    let held = node.world.borrow().keys[&place(b"k")].content.clone();
    let other = Content::Set([(b"no holder".to_vec(), START.0)].into());
    [held, Content::String(b"foreign".to_vec()), other]
}

#[test]
fn clients_wait_until_a_keys_native_expiry_whatever_it_holds() {
    for names in [&[b"k".as_slice()][..], &[b"k", b"x"]] {
        for kind in 0..3 {
            for share in [Share::Alone, Share::Limit(1)] {
                let node = node();
                hold(&node, 1, b"k", &ask(share, 60, 0));
                wait(&node, 2, names, &alone(5, 99));
                let content = contents(&node)[kind].clone();
                let expire_at_ms = Some(START.0 / 1_000 + 3_000);
                node.put(&place(b"k"), Some(Stored { content, expire_at_ms }));
                // The server reports PEXPIRE.
                node.report_key(&place(b"k"), KeyChange::Gone);
                assert!(node.fire());
                let due = Some(START.after(Micros(3_001_000)));
                assert_eq!(node.timer_at(), due, "past its expiry: {names:?} {kind} {share:?}");
                node.pass(Micros(3_001_000));
                node.event(|entry| entry.tick());
                settle(&node);
                assert!(granted(&node, 2).is_some(), "{names:?} {kind} {share:?}");
                assert_eq!(count(&node, Counter::MissedWakeups), 0, "{names:?} {kind} {share:?}");
            }
        }
    }
}

#[test]
fn clients_wait_until_the_native_expiry_that_the_key_already_had() {
    let node = node();
    hold(&node, 1, b"k", &alone(60, 0));
    let before = node.world.borrow().keys[&place(b"k")].clone();
    node.put(&place(b"k"), Some(Stored { expire_at_ms: Some(START.0 / 1_000 + 3_000), ..before }));
    wait(&node, 2, &[b"k"], &alone(5, 99));
    assert_eq!(node.timer_at(), Some(START.after(Micros(3_001_000))));
}

/// The server notices an expiry when the key is opened, and reports it then.
#[test]
fn an_expiry_found_by_the_check_of_all_queues_is_not_a_missed_wake_up() {
    let node = node();
    hold(&node, 1, b"k", &alone(60, 0));
    wait(&node, 2, &[b"k"], &alone(5, 99));
    let before = node.world.borrow().keys[&place(b"k")].clone();
    node.put(&place(b"k"), Some(Stored { expire_at_ms: Some(START.0 / 1_000 + 100), ..before }));
    node.pass(Micros(900_000));
    node.event(|entry| entry.tick());
    settle(&node);
    assert!(granted(&node, 2).is_some());
    assert_eq!(count(&node, Counter::MissedWakeups), 0);
}
