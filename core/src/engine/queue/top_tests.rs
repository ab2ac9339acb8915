//! LOCK.TOP shows queues in the right order.

use super::*;

/// The key names of the first queues in an order.
fn top(queues: &Queues<u64>, by: By, most: usize) -> String {
    queues.top(by, most).iter().map(|queue| char::from(queue.name[0])).collect()
}

#[test]
fn the_longest_queues_come_first_and_older_before_newer_among_equals() {
    let mut queues = Queues::default();
    for (client, (key, since)) in
        [(b"a", 7), (b"b", 5), (b"b", 6), (b"c", 4), (b"c", 9), (b"c", 9), (b"d", 3)].into_iter().enumerate()
    {
        queues.join(
            KeyNames::new(0, &[key]),
            0,
            Waiter { since: MonotonicMicros(since), ..waiter(client as u64, 0, 9) },
        );
    }
    let longest = [(b'c', 3, 4), (b'b', 2, 5), (b'd', 1, 3), (b'a', 1, 7)];
    for most in [2, 4, 9] {
        let by_id = queues.top(By::Waiters, most).into_iter();
        let found: Vec<_> = by_id.map(|queue| (queue.name[0], queue.waiters, queue.since.0)).collect();
        assert_eq!(found, longest[..most.min(4)]);
    }
    assert_eq!(queues.length(KeyName::new(0, b"b")), (2, Some(MonotonicMicros(5))));
    assert_eq!(queues.longest_length(), 3);
}

#[test]
fn queues_are_ordered_by_the_oldest_wait_or_the_oldest_hold() {
    let mut queues = Queues::default();
    let mut by_id = Vec::new();
    for (client, (key, since, held)) in
        [(b"a", 7, Some(30)), (b"b", 5, None), (b"c", 4, Some(40)), (b"d", 6, Some(20)), (b"a", 1, None)]
            .into_iter()
            .enumerate()
    {
        let waiter = Waiter { since: MonotonicMicros(since), ..waiter(client as u64, client as u64, 9) };
        let queue = queues.join(KeyNames::new(0, &[key]), 0, waiter).queue.unwrap();
        queues.set_held(queue, held.map(UnixMicros));
        by_id.push(queue);
    }
    // The holder of a is no longer known.
    assert_eq!((top(&queues, By::Wait, 9), top(&queues, By::Wait, 2)), ("cbda".into(), "cb".into()));
    assert_eq!((top(&queues, By::Held, 9), top(&queues, By::Held, 3)), ("dcba".into(), "dcb".into()));
    assert_eq!(
        (queues.oldest_wait(), queues.oldest_hold(UnixMicros(50))),
        (Some(MonotonicMicros(4)), Some(UnixMicros(20)))
    );
    // The first waiter leaves, and the second has waited longer.
    queues.leave(0, None, MOST);
    assert_eq!(top(&queues, By::Wait, 9), "acbd");
    // The holder of d has expired; of several holders, the one whose lease ends last counts.
    queues.set_last_end(by_id[3], Some(UnixMicros(50)));
    queues.set_last_end(by_id[2], Some(UnixMicros(60)));
    assert_eq!(queues.oldest_hold(UnixMicros(50)), Some(UnixMicros(40)));
    queues.set_held_among(by_id[2], UnixMicros(45), UnixMicros(59));
    assert_eq!(queues.oldest_hold(UnixMicros(50)), Some(UnixMicros(40)));
    queues.set_held_among(by_id[2], UnixMicros(45), UnixMicros(60));
    assert_eq!(queues.oldest_hold(UnixMicros(50)), Some(UnixMicros(45)));
    for client in 1..5 {
        queues.leave(client, Some(MonotonicMicros(99)), MOST);
    }
    assert_eq!(
        (top(&queues, By::Held, 9), queues.oldest_wait(), queues.oldest_hold(UnixMicros(0))),
        (String::new(), None, None)
    );
}

#[test]
fn a_waiter_that_moves_to_another_queue_makes_that_one_longer() {
    let mut queues = Queues::default();
    queues.join(KeyNames::new(0, &[b"a", b"b"]), 0, waiter(1, 7, 9));
    let ticket = queues.ticket(KeyName::new(0, b"a"), id(7).unwrap()).unwrap();
    for by in [By::Waiters, By::Wait, By::Held] {
        queues.park(ticket, 0);
        assert_eq!(top(&queues, by, 9), "a");
        queues.park(ticket, 1);
        assert_eq!(top(&queues, by, 9), "b");
    }
}
