//! Waiters for several locks that are parked in one queue: when they are tried, and how many at once.

use super::*;

#[test]
fn an_evicted_key_holds_up_waiters_for_several_locks_until_its_lease_ends() {
    let mut queues = Queues::default();
    let queue = queues.join(KeyNames::new(0, &[b"a", b"b"]), 0, waiter(1, 0, 9)).queue.unwrap();
    let ticket = queues.parked_head(queue).unwrap();
    queues.set_last_end(queue, Some(UnixMicros(50)));
    queues.set_last_end_after(queue, UnixMicros(70));
    queues.set_last_end_after(queue, UnixMicros(60));
    queues.evicted(queue);
    let held_up = [69, 70, 71].map(|now| queues.is_held_up(KeyName::new(0, b"a"), ticket, UnixMicros(now)));
    assert_eq!((held_up, queues.queue_of_ticket(ticket)), ([true, false, false], Some(queue)));
}

#[test]
fn a_freed_lock_is_kept_for_parked_waiters_until_they_are_tried() {
    let mut queues = Queues::default();
    let queue = queues.join(KeyNames::new(0, &[b"a", b"b"]), 0, waiter(1, 7, 9)).queue.unwrap();
    assert!(!queues.has_ahead(KeyName::new(0, b"a"), None));
    queues.set_ready(queue);
    assert!(queues.has_ahead(KeyName::new(0, b"a"), None));
    assert!(!queues.has_ahead(KeyName::new(0, b"a"), id(7)), "not from itself");
    assert!(!queues.has_ahead(KeyName::new(0, b"b"), None));
    queues.take_ready();
    assert!(!queues.has_ahead(KeyName::new(0, b"a"), None));
    // A scan is not an event.
    queues.begin_scan();
    queues.scan_on(1);
    assert!(queues.has_ready() && !queues.has_ahead(KeyName::new(0, b"a"), None));
    queues.set_ready(queue);
    assert!(queues.has_ahead(KeyName::new(0, b"a"), None));
    assert_eq!(queues.take_ready(), Some((queue, Cause::Event)));
}

#[test]
fn waiters_parked_behind_one_that_leaves_are_tried() {
    let mut queues = Queues::default();
    let queue = queues.join(KeyNames::new(0, &[b"a"]), 0, waiter(1, 0, 9)).queue.unwrap();
    queues.join(KeyNames::new(0, &[b"a", b"b"]), 0, waiter(2, 0, 9));
    queues.leave(1, None, MOST);
    assert_eq!(queues.take_ready(), Some((queue, Cause::Event)));
    queues.join(KeyNames::new(0, &[b"a"]), 0, waiter(3, 0, 9));
    queues.leave(3, None, MOST);
    let other = queues.join(KeyNames::new(0, &[b"c"]), 0, waiter(4, 0, 9)).queue.unwrap();
    let (ticket, _) = queues.single_head(other).unwrap();
    queues.join(KeyNames::new(0, &[b"c", b"d"]), 0, waiter(5, 0, 9));
    while queues.take_ready().is_some() {}
    assert!(queues.serve(ticket).is_some() && !queues.has_ready(), "the granted waiter holds them up now");
}

#[test]
fn only_a_limited_number_are_tried_and_the_rest_in_the_next_iteration() {
    let mut queues = Queues::default();
    let many = u64::try_from(MOST_TRIED).unwrap();
    for client in 1..=many + 2 {
        queues.join(KeyNames::new(0, &[b"a", b"b"]), 0, waiter(client, 0, 9));
    }
    let single = queues.join(KeyNames::new(0, &[b"a"]), 0, waiter(many + 3, 0, 9));
    let queue = single.queue.unwrap();
    let try_all = |queues: &mut Queues<u64>| {
        let mut tried = 0;
        while let Some(Candidate::Parked(ticket)) = queues.candidate(queue, true, Of::All) {
            queues.park(ticket, 1);
            tried += 1;
        }
        tried
    };
    queues.set_ready(queue);
    queues.take_ready();
    assert_eq!(try_all(&mut queues), MOST_TRIED);
    // The waiters behind them are served.
    assert!(
        matches!(queues.candidate(queue, true, Of::All), Some(Candidate::Single(_, waiter)) if waiter.client() == Some(many + 3))
    );
    queues.leave(many + 3, None, MOST);
    assert_eq!(try_all(&mut queues), 2, "a waiter that leaves is an event");
    let mut queues = Queues::default();
    for client in 1..=many + 2 {
        queues.join(KeyNames::new(0, &[b"a", b"b"]), 0, waiter(client, 0, 9));
    }
    let queue = queues.queue(KeyName::new(0, b"a")).unwrap();
    queues.set_ready(queue);
    queues.take_ready();
    assert_eq!(try_all(&mut queues), MOST_TRIED);
    assert!(queues.candidate(queue, true, Of::All).is_none());
    assert!(queues.has_ready() && queues.take_ready().is_none(), "not in this iteration");
    assert!(!queues.has_ahead(KeyName::new(0, b"a"), None), "meanwhile it is free for others");
    queues.begin_iteration(&mut Budget::of(100));
    assert_eq!(queues.take_ready(), Some((queue, Cause::Continue)));
    assert_eq!(try_all(&mut queues), 2);
}

#[test]
fn queues_that_become_ready_together_are_served_in_ticket_order() {
    // The lock is reported again while the queue is served, as happens when its key expires on being opened.
    for is_reported_again in [false, true] {
        let mut queues = Queues::default();
        queues.join(KeyNames::new(0, &[b"a", b"c"]), 0, waiter(1, 0, 9));
        queues.join(KeyNames::new(0, &[b"b"]), 0, waiter(2, 0, 9));
        queues.join(KeyNames::new(0, &[b"a"]), 0, waiter(3, 0, 9));
        let [a, b] = [b"a", b"b"].map(|name| queues.queue(KeyName::new(0, name)).unwrap());
        queues.set_ready(b);
        queues.set_ready(a);
        assert_eq!(queues.take_ready(), Some((a, Cause::Event)));
        if is_reported_again {
            queues.set_ready(a);
        }
        let Some(Candidate::Parked(ticket)) = queues.candidate(a, true, Of::All) else { panic!("it came first") };
        queues.park(ticket, 1);
        queues.go_on(a);
        assert_eq!(queues.take_ready(), Some((b, Cause::Event)));
        assert_eq!(queues.take_ready(), Some((a, Cause::Event)));
        assert_eq!(queues.take_ready(), None);
    }
}
