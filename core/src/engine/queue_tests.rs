//! The queue against a plain list that does the same slowly, and what that list does not know.

#[allow(dead_code)]
#[path = "../../../fuzz/properties/queue.rs"]
mod property;

use super::*;
use crate::engine::budget::Budget;
use crate::lock::request::Share;
use crate::lock::time::Micros;
use proptest::prelude::*;

fn id(number: u64) -> Option<Id> {
    Id::parse(number.to_string().as_bytes())
}

fn waiter(client: u64, attempt: u64, until: u64) -> Waiter<u64> {
    Waiter {
        handle: Handle::Blocked { handle: client, client },
        share: Share::Alone,
        lease: Micros(1),
        id: if attempt == 0 { None } else { id(attempt) },
        owner: None,
        shape: ReplyShape::Token,
        session: false,
        since: MonotonicMicros(0),
        until: MonotonicMicros(until),
    }
}

const MOST: MostPlaces = MostPlaces { keys: 100, bytes: 1_000 };

#[test]
fn an_evicted_lock_stays_taken_until_the_time_last_seen() {
    let mut queues = Queues::default();
    let queue = queues.join(KeyNames::new(0, &[b"k"]), 0, waiter(1, 0, 9)).queue.unwrap();
    queues.set_due(queue, Some(UnixMicros(70)));
    queues.evicted(queue);
    assert_eq!(queues.evicted_until(queue), Some(UnixMicros(70)));
    queues.seen(queue);
    assert_eq!(queues.evicted_until(queue), None);
}

#[test]
fn the_longest_queues_come_first_and_the_older_of_equals() {
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

/// The names of the first queues in an order.
fn top(queues: &Queues<u64>, by: By, most: usize) -> String {
    queues.top(by, most).iter().map(|queue| char::from(queue.name[0])).collect()
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
    // The first of them leaves, and the second has waited longer.
    queues.leave(0, None, MOST);
    assert_eq!(top(&queues, By::Wait, 9), "acbd");
    // Of d the holder has expired; the one of several that ends last counts.
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
fn an_attempt_waits_from_its_first_command_until_its_place_is_given_up() {
    let mut queues = Queues::default();
    let at = |since: u64, until: u64| Waiter { since: MonotonicMicros(since), ..waiter(1, 7, until) };
    let since = |queues: &mut Queues<u64>, since: u64| {
        queues.join(KeyNames::new(0, &[b"k"]), 0, at(since, since + 5));
        queues.length(KeyName::new(0, b"k")).1.map(|since| since.0)
    };
    assert_eq!(since(&mut queues, 10), Some(10));
    let gone = queues.time_out(MonotonicMicros(15), Some(MonotonicMicros(40)), MOST).unwrap().1.unwrap();
    assert!(gone.is_kept);
    assert_eq!(since(&mut queues, 20), Some(10));
    // A command that does not wait keeps the place.
    queues.keep_place(KeyNames::new(0, &[b"k"]), id(7).unwrap(), MonotonicMicros(50), MOST);
    assert_eq!(since(&mut queues, 30), Some(10));
    assert_eq!(queues.take_given_up(), []);
    // Without room for its place it ends at once.
    let gone = queues.leave(1, Some(MonotonicMicros(60)), MostPlaces::NONE).unwrap();
    assert!(!gone.is_kept);
    assert_eq!(since(&mut queues, 70), Some(70));
    queues.leave(1, Some(MonotonicMicros(80)), MOST);
    assert!(queues.time_out(MonotonicMicros(80), None, MOST).is_some_and(|(_, gone)| gone.is_none()));
    assert_eq!(queues.take_given_up(), [(MonotonicMicros(70), MonotonicMicros(80))]);
    // One that never waited has not waited in vain.
    queues.keep_place(KeyNames::new(0, &[b"k"]), id(7).unwrap(), MonotonicMicros(90), MOST);
    assert!(queues.time_out(MonotonicMicros(90), None, MOST).is_some_and(|(_, gone)| gone.is_none()));
    assert_eq!((queues.take_given_up(), since(&mut queues, 95)), (vec![], Some(95)));
    queues.leave(1, Some(MonotonicMicros(99)), MOST);
    queues.forget(KeyName::new(0, b"k"), id(7).unwrap());
    assert_eq!(queues.take_given_up(), [(MonotonicMicros(95), MonotonicMicros(99))]);
}

#[test]
fn an_order_gives_the_number_of_those_before() {
    let order = Order::of(vec![9, 5, 9, 7]);
    assert_eq!([4, 5, 6, 7, 9, 10].map(|number| order.at(number)), [0, 0, 1, 1, 2, 3]);
}

#[test]
fn keys_are_those_of_the_command_in_their_order() {
    let marks = Marks::default();
    for names in [&[&b"a"[..], b"", b"bc"][..], &[b"k"], &[]] {
        let several = Names::of(names, &marks);
        assert_eq!((several.len(), several.is_empty()), (names.len(), names.is_empty()));
        assert!(several.iter().eq(names.iter().copied()));
        let keys = Keys::Several(several.into());
        assert_eq!((keys.len(), keys.is_empty(), keys.get(names.len())), (names.len(), names.is_empty(), None));
    }
    let one = Keys::One(b"k"[..].into(), marks.of(b"k"));
    assert_eq!((one.len(), one.is_empty(), one.get(0), one.get(1)), (1, false, Some(&b"k"[..]), None));
}

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
fn many_waiters_leave_no_room_behind() {
    let mut queues = Queues::default();
    for client in 0..5_000_u64 {
        queues.join(KeyNames::new(0, &[&client.to_be_bytes()]), 0, waiter(client, 0, 9));
    }
    for client in 0..5_000 {
        queues.leave(client, None, MOST);
    }
    assert!(queues.clients.capacity() < 100);
    queues.join(KeyNames::new(0, &[b"k"]), 0, waiter(1, 0, 9));
    queues.leave(1, None, MOST);
    assert!(queues.clients.capacity() > 0, "that of a few is kept");
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
fn a_check_of_all_queues_passes_over_those_with_only_places() {
    let mut queues = Queues::default();
    let name = |number: u64| number.to_be_bytes();
    for number in 0..1_000 {
        queues.keep_place(KeyNames::new(0, &[&name(number)]), id(1).unwrap(), MonotonicMicros(9), MOST);
    }
    for number in 0..10 {
        queues.join(KeyNames::new(0, &[&name(500 + number)]), 0, waiter(number, 0, 9));
    }
    queues.begin_scan();
    let mut seen = Vec::new();
    for scanning in [true, true, true, false] {
        queues.scan_on(3);
        let ready: Vec<QueueId> = std::iter::from_fn(|| queues.take_ready()).map(|(queue, _)| queue).collect();
        assert_eq!(ready.len(), if scanning { 3 } else { 1 }, "one piece");
        assert_eq!(queues.is_scanning(), scanning);
        seen.extend(ready);
    }
    let all: Vec<QueueId> = (0..10).map(|number| queues.queue(KeyName::new(0, &name(500 + number))).unwrap()).collect();
    assert_eq!(seen, all);
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
    assert!(queues.serve(ticket).is_some() && !queues.has_ready(), "who was granted holds them up now");
}

#[test]
fn so_many_are_tried_and_the_rest_in_the_next_iteration() {
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
    // Those behind them are served.
    assert!(
        matches!(queues.candidate(queue, true, Of::All), Some(Candidate::Single(_, waiter)) if waiter.client() == Some(many + 3))
    );
    queues.leave(many + 3, None, MOST);
    assert_eq!(try_all(&mut queues), 2, "one that leaves is news");
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
    assert!(!queues.has_ahead(KeyName::new(0, b"a"), None), "meanwhile it is free to others");
    queues.begin_iteration(&mut Budget::of(100));
    assert_eq!(queues.take_ready(), Some((queue, Cause::GoOn)));
    assert_eq!(try_all(&mut queues), 2);
}

#[test]
fn queues_that_are_ready_together_are_served_in_the_order_of_tickets() {
    // Reported again while the queue is served, as when its key expires as it is opened.
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

#[test]
fn places_for_several_keys_are_bounded_by_keys_and_by_bytes() {
    let mut queues: Queues<u64> = Queues::default();
    let keep = |queues: &mut Queues<u64>, number: u64, names: &[&[u8]]| {
        queues.keep_place(
            KeyNames::new(0, names),
            id(number).unwrap(),
            MonotonicMicros(5),
            MostPlaces { keys: 5, bytes: 20 },
        );
        queues.places()
    };
    assert_eq!(keep(&mut queues, 1, &[b"a", b"b", b"c"]), 1);
    assert_eq!(keep(&mut queues, 2, &[b"d", b"e", b"f"]), 1, "six keys");
    assert_eq!(keep(&mut queues, 3, &[b"d", b"012345678901234567"]), 1, "22 bytes");
    assert_eq!(keep(&mut queues, 4, &[b"d", b"0123456789012345"]), 2);
    assert_eq!(keep(&mut queues, 5, &[b"g"]), 2, "six keys");
    assert!(queues.forget(KeyName::new(0, b"d"), id(4).unwrap()).is_some());
    assert_eq!(keep(&mut queues, 5, &[b"g"]), 2);
    while queues.time_out(MonotonicMicros(5), None, MOST).is_some_and(|(_, gone)| gone.is_none()) {}
    assert!(queues.is_empty() && queues.placed.keys == 0 && queues.placed.bytes == 0);
}

#[test]
fn places_and_bars_for_one_key_are_bounded_by_the_bytes_of_its_name() {
    let mut queues: Queues<u64> = Queues::default();
    let most = MostPlaces { keys: 100, bytes: 20 };
    let until = MonotonicMicros(5);
    queues.keep_place(KeyNames::new(0, &[b"0123456789"]), id(1).unwrap(), until, most);
    queues.bar(KeyName::new(0, b"012345678"), id(2).unwrap(), until, most);
    assert_eq!((queues.places(), queues.placed.bytes), (2, 19));
    queues.keep_place(KeyNames::new(0, &[b"ab"]), id(3).unwrap(), until, most);
    queues.bar(KeyName::new(0, b"ab"), id(4).unwrap(), until, most);
    assert_eq!(queues.places(), 2);
    queues.bar(KeyName::new(0, b"a"), id(5).unwrap(), until, most);
    assert_eq!((queues.places(), queues.placed.bytes), (3, 20));
    while queues.time_out(until, None, most).is_some() {}
    assert!(queues.is_empty() && queues.placed.keys == 0 && queues.placed.bytes == 0);
}

#[test]
fn a_blocked_client_counts_for_the_names_of_its_keys_until_it_leaves() {
    let mut queues: Queues<u64> = Queues::default();
    let long = vec![b'x'; 4_096];
    let names: Vec<Vec<u8>> = (0..64).map(|key: u32| [&key.to_be_bytes()[..], &long[4..]].concat()).collect();
    let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    queues.join(KeyNames::new(0, &[&long]), 0, waiter(1, 0, 9));
    assert_eq!(queues.load(), 1);
    queues.join(KeyNames::new(0, &names), 0, waiter(2, 7, 9));
    assert_eq!((queues.load(), queues.blocked()), (1 + 17, 2), "256 kB of names");
    // Sent again, it counts once.
    queues.join(KeyNames::new(0, &names), 0, waiter(3, 7, 9));
    assert_eq!((queues.load(), queues.blocked()), (1 + 17, 2));
    queues.leave(3, Some(MonotonicMicros(10)), MOST);
    assert_eq!(queues.load(), 1);
    queues.leave(1, None, MOST);
    assert_eq!(queues.load(), 0);
}

#[test]
fn so_many_attempts_for_several_keys_have_one_id() {
    let mut queues: Queues<u64> = Queues::default();
    for number in 0..MOST_OF_AN_ID + 5 {
        let name = number.to_string().into_bytes();
        queues.keep_place(
            KeyNames::new(0, &[&name, b"x".repeat(number + 1).as_slice()]),
            id(7).unwrap(),
            MonotonicMicros(5),
            MostPlaces { keys: 10_000, bytes: 100_000 },
        );
    }
    assert_eq!(queues.places(), MOST_OF_AN_ID);
    assert!(!queues.takes_id(0, id(7).unwrap()) && queues.takes_id(1, id(7).unwrap()));
}

#[test]
fn waiters_are_walked_in_pieces() {
    let mut queues = Queues::default();
    for client in 1..=10 {
        queues.join(KeyNames::new(0, &[b"k"]), 0, waiter(client, 0, client));
    }
    queues.keep_place(KeyNames::new(0, &[b"k"]), id(7).unwrap(), MonotonicMicros(3), MOST);
    let odd = |waiter: &Waiter<u64>| (waiter.client().unwrap() % 2 == 1).then_some(());
    let (mut clients, mut from) = (Vec::new(), None);
    loop {
        let (found, next) = queues.walk(from, &mut Budget::of(2), odd);
        assert!(found.len() <= 2);
        clients.extend(found.into_iter().filter_map(|(ticket, ())| queues.waiter(ticket)?.client()));
        from = next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!(clients, [1, 3, 5, 7, 9]);
    assert_eq!(queues.walk(None, &mut Budget::of(100), odd).1, None);
    // Many reserved places are not walked at once either.
    for number in 0..100 {
        queues.keep_place(KeyNames::new(0, &[b"l"]), id(100 + number).unwrap(), MonotonicMicros(1), MOST);
    }
    let (found, next) = queues.walk(None, &mut Budget::of(10), odd);
    assert!(found.len() == 1 && next.is_some());
}

#[test]
fn a_reader_is_tried_when_the_writer_ahead_of_it_leaves() {
    let mut queues = Queues::default();
    queues.join(KeyNames::new(0, &[b"k"]), 0, waiter(1, 0, 9));
    queues.join(KeyNames::new(0, &[b"k"]), 0, Waiter { share: Share::Shared, ..waiter(2, 0, 9) });
    queues.join(KeyNames::new(0, &[b"k"]), 0, waiter(3, 0, 9));
    assert!(!queues.has_ready());
    queues.leave(1, None, MOST);
    assert_eq!(queues.take_ready().map(|(queue, _)| queue), queues.queue(KeyName::new(0, b"k")));
    queues.leave(2, None, MOST);
    assert!(!queues.has_ready(), "a writer has no more to hope for than the reader had");
    assert_eq!(queues.narrows(KeyName::new(0, b"k"), 9).0.before(None, Share::Shared), 1);
    queues.join(KeyNames::new(0, &[b"s"]), 0, Waiter { share: Share::Limit(3), ..waiter(4, 7, 9) });
    queues.join(KeyNames::new(0, &[b"s"]), 0, Waiter { share: Share::Limit(2), ..waiter(5, 8, 9) });
    let before = |attempt| {
        queues
            .narrows(KeyName::new(0, b"s"), 9)
            .0
            .before(queues.ticket(KeyName::new(0, b"s"), id(attempt).unwrap()), Share::Limit(4))
    };
    assert_eq!([7, 8, 9].map(before), [4, 3, 2], "only those who are ahead count");
    assert_eq!(queues.narrows(KeyName::new(0, b"x"), 9).0.before(None, Share::Limit(4)), 4);
}

#[test]
fn the_queue_found_last_is_not_taken_for_that_of_another_key() {
    let mut queues = Queues::default();
    let queue = queues.join(KeyNames::new(0, &[b"k"]), 0, waiter(1, 0, 9)).queue;
    assert_eq!(queues.queue(KeyName::new(0, b"k")), queue);
    assert_eq!([queues.queue(KeyName::new(0, b"x")), queues.queue(KeyName::new(1, b"k"))], [None, None]);
    let other = queues.join(KeyNames::new(1, &[b"k"]), 0, waiter(2, 0, 9)).queue;
    assert_ne!(other, queue);
    assert_eq!([queues.queue(KeyName::new(0, b"k")), queues.queue(KeyName::new(1, b"k"))], [queue, other]);
    queues.leave(2, None, MOST);
    assert_eq!(queues.queue(KeyName::new(1, b"k")), None);
    let again = queues.join(KeyNames::new(1, &[b"k"]), 0, waiter(3, 0, 9)).queue;
    assert_ne!(again, other);
    assert_eq!(queues.queue(KeyName::new(1, b"k")), again);
    queues.lose_queue(again.unwrap());
    assert_eq!(queues.queue(KeyName::new(1, b"k")), None, "its slot has left");
}

/// Invariants that only the queue itself can see.
fn assert_sound(queues: &Queues<u64>) {
    assert_eq!(queues.ends.len(), queues.entries.len());
    let names = |entry: &Entry<u64>| match &entry.position {
        Position::In(queue) => (1, queues.by_id[queue].name.len()),
        Position::Parked { names, .. } => (names.len(), names.size()),
    };
    let places: Vec<_> =
        queues.entries.values().map(Box::as_ref).filter(|entry| entry.waiter().is_none()).map(names).collect();
    assert_eq!(queues.placed.keys, places.iter().map(|place| place.0).sum::<usize>());
    let blocked = |entry: &&Entry<u64>| entry.waiter().is_some_and(|waiter| waiter.client().is_some());
    let loads = queues.entries.values().map(Box::as_ref).filter(blocked).map(|entry| load(names(entry).1));
    assert_eq!(queues.load, loads.sum::<usize>());
    assert_eq!(queues.placed.bytes, places.iter().map(|place| place.1).sum::<usize>());
    let is_attempt = |entry: &&Entry<u64>| entry.id().is_some() && matches!(entry.position, Position::Parked { .. });
    let attempts = queues.entries.values().map(Box::as_ref).filter(is_attempt).count();
    assert_eq!(queues.attempts.values().map(Vec::len).sum::<usize>(), attempts);
    let firsts = queues.by_id.iter().filter_map(|(id, queue)| Some((queues.waiter(queue.head()?)?.since, *id)));
    assert_eq!(queues.waiting_since, firsts.collect());
    let held = queues.by_id.iter().filter_map(|(id, queue)| Some((queue.held_since?, *id)));
    assert_eq!(queues.held, held.collect());
    for (id, queue) in &queues.by_id {
        assert!(queue.is_lost || queues.queue(KeyName::new(queue.db, &queue.name)) == Some(*id));
        assert!(queue.is_waited_for() || queue.due.is_none());
        let singles = queue.single.blocked().iter().chain(queue.single.notifiable());
        let waiters = singles.filter_map(|ticket| queues.waiter(*ticket));
        assert_eq!(queue.ids.len(), waiters.filter(|waiter| waiter.id.is_some()).count() + queue.places.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8 * ProptestConfig::default().cases))]
    #[test]
    fn the_queue_does_what_a_plain_list_does(steps in prop::collection::vec(any::<[u8; 4]>(), 1..80)) {
        property::check_with(&steps.concat(), |queues, name| {
            assert_sound(queues);
            let queue = queues.queue_of(KeyName::new(0, name));
            Some(queue.is_some_and(|queue| queue.cause == Cause::Event && queue.ready.is_some()))
        });
    }
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
