//! Compares the queue with a plain list that does the same slowly, and tests what that list does not model.

#[path = "queue/limits_tests.rs"]
mod limits;
#[allow(dead_code)]
#[path = "../../../fuzz/properties/queue.rs"]
mod property;
#[path = "queue/result_tests.rs"]
mod result;
#[path = "queue/several_locks_tests.rs"]
mod several_locks;
#[path = "queue/top_tests.rs"]
mod top;

use super::*;
use crate::engine::budget::Budget;
use crate::lock::request::Share;
use crate::lock::time::Micros;
use proptest::prelude::*;

fn id(number: u64) -> Option<Id> {
    Id::parse(number.to_string().as_bytes())
}

fn place(number: u64, until: MonotonicMicros) -> Place {
    Place { id: id(number).unwrap(), until, since: None, wants_result: false }
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
        wants_result: false,
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
    queues.keep_place(KeyNames::new(0, &[b"k"]), place(7, MonotonicMicros(50)), MOST);
    assert_eq!(since(&mut queues, 30), Some(10));
    assert_eq!(queues.take_given_up(), []);
    // Without room for its place, the attempt ends at once.
    let gone = queues.leave(1, Some(MonotonicMicros(60)), MostPlaces::NONE).unwrap();
    assert!(!gone.is_kept);
    assert_eq!(since(&mut queues, 70), Some(70));
    queues.leave(1, Some(MonotonicMicros(80)), MOST);
    assert!(queues.time_out(MonotonicMicros(80), None, MOST).is_some_and(|(_, gone)| gone.is_none()));
    assert_eq!(queues.take_given_up(), [(MonotonicMicros(70), MonotonicMicros(80))]);
    // An attempt that never waited has not waited in vain.
    queues.keep_place(KeyNames::new(0, &[b"k"]), place(7, MonotonicMicros(90)), MOST);
    assert!(queues.time_out(MonotonicMicros(90), None, MOST).is_some_and(|(_, gone)| gone.is_none()));
    assert_eq!((queues.take_given_up(), since(&mut queues, 95)), (vec![], Some(95)));
    queues.leave(1, Some(MonotonicMicros(99)), MOST);
    queues.forget(KeyName::new(0, b"k"), id(7).unwrap());
    assert_eq!(queues.take_given_up(), [(MonotonicMicros(95), MonotonicMicros(99))]);
}

#[test]
fn an_order_gives_the_number_of_smaller_ones() {
    let order = Order::of(vec![9, 5, 9, 7]);
    assert_eq!([4, 5, 6, 7, 9, 10].map(|number| order.at(number)), [0, 0, 1, 1, 2, 3]);
}

#[test]
fn keys_are_those_of_the_command_in_order() {
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
fn a_check_of_all_queues_passes_over_those_with_only_places() {
    let mut queues = Queues::default();
    let name = |number: u64| number.to_be_bytes();
    for number in 0..1_000 {
        queues.keep_place(KeyNames::new(0, &[&name(number)]), place(1, MonotonicMicros(9)), MOST);
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
fn waiters_are_walked_in_pieces() {
    let mut queues = Queues::default();
    for client in 1..=10 {
        queues.join(KeyNames::new(0, &[b"k"]), 0, waiter(client, 0, client));
    }
    queues.keep_place(KeyNames::new(0, &[b"k"]), place(7, MonotonicMicros(3)), MOST);
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
        queues.keep_place(KeyNames::new(0, &[b"l"]), place(100 + number, MonotonicMicros(1)), MOST);
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
    assert!(!queues.has_ready(), "a writer gains nothing over the reader");
    assert_eq!(queues.narrows(KeyName::new(0, b"k"), 9).0.before(None, Share::Shared), 1);
    queues.join(KeyNames::new(0, &[b"s"]), 0, Waiter { share: Share::Limit(3), ..waiter(4, 7, 9) });
    queues.join(KeyNames::new(0, &[b"s"]), 0, Waiter { share: Share::Limit(2), ..waiter(5, 8, 9) });
    let before = |attempt| {
        queues
            .narrows(KeyName::new(0, b"s"), 9)
            .0
            .before(queues.ticket(KeyName::new(0, b"s"), id(attempt).unwrap()), Share::Limit(4))
    };
    assert_eq!([7, 8, 9].map(before), [4, 3, 2], "only waiters ahead count");
    assert_eq!(
        [0, 1, 2].map(|most| queues.narrows(KeyName::new(0, b"s"), most).1),
        [1, 2, 2],
        "one more shows the rest"
    );
    assert_eq!(queues.narrows(KeyName::new(0, b"x"), 9).0.before(None, Share::Limit(4)), 4);
}

#[test]
fn the_last_queue_found_is_not_mistaken_for_another_keys() {
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
        let singles = queue.single.blocked().iter().chain(queue.single.notifiable().iter());
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
