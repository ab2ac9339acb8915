//! The queue against a plain list that does the same slowly.

use super::*;
use proptest::prelude::*;

fn id(number: u64) -> Option<Id> {
    Id::parse(number.to_string().as_bytes())
}

fn waiter(client: u64, attempt: u64, until: u64) -> Waiter<u64> {
    Waiter {
        handle: client,
        client,
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
fn the_first_to_come_is_the_first_served() {
    let mut queues = Queues::default();
    for client in 1..=3 {
        queues.join(0, &[b"k"], 0, waiter(client, 0, 9));
    }
    let line = queues.line(0, b"k").unwrap();
    let served: Vec<u64> = std::iter::from_fn(|| queues.pop_head(line)).map(|(_, waiter)| waiter.client).collect();
    assert_eq!(served, [1, 2, 3]);
    assert!(queues.is_empty());
}

#[test]
fn an_attempt_that_comes_back_has_its_old_place() {
    let mut queues = Queues::default();
    queues.join(0, &[b"k"], 0, waiter(1, 7, 9));
    queues.join(0, &[b"k"], 0, waiter(2, 0, 9));
    assert!(queues.leave(1, Some(MonotonicMicros(50)), MOST).is_some());
    assert!(queues.has_ahead(0, b"k", None));
    assert!(!queues.has_ahead(0, b"k", id(7)));
    assert!(queues.join(0, &[b"k"], 0, waiter(3, 7, 60)).resumed);
    let line = queues.line(0, b"k").unwrap();
    assert_eq!(queues.head(line).unwrap().client, 3);
}

#[test]
fn a_newer_call_takes_the_place_of_the_waiter_with_its_id() {
    let mut queues = Queues::default();
    queues.join(0, &[b"k"], 0, waiter(1, 7, 9));
    queues.join(0, &[b"k"], 0, waiter(2, 0, 9));
    let Joined { line, mut earlier, .. } = queues.join(0, &[b"k"], 0, waiter(3, 7, 9));
    assert_eq!(earlier.pop().unwrap().client, 1);
    assert_eq!(queues.head(line.unwrap()).unwrap().client, 3);
    assert!(queues.leave(1, None, MOST).is_none());
}

#[test]
fn a_place_is_given_up_after_its_time() {
    let mut queues: Queues<u64> = Queues::default();
    assert!(queues.keep_place(0, &[b"k"], id(7).unwrap(), MonotonicMicros(5), MOST).is_empty());
    assert_eq!(queues.next_end(), Some(MonotonicMicros(5)));
    assert!(queues.time_out(MonotonicMicros(4), None, MOST).is_none());
    assert_eq!(queues.places(), 1);
    assert!(queues.time_out(MonotonicMicros(5), None, MOST).is_none());
    assert!(queues.is_empty());
}

#[test]
fn places_are_bounded() {
    let mut queues: Queues<u64> = Queues::default();
    for number in 1..10 {
        queues.keep_place(0, &[b"k"], id(number).unwrap(), MonotonicMicros(5), MostPlaces { keys: 3, ..MOST });
    }
    assert_eq!(queues.places(), 3);
}

#[test]
fn an_evicted_lock_stays_taken_until_the_time_last_seen() {
    let mut queues = Queues::default();
    let line = queues.join(0, &[b"k"], 0, waiter(1, 0, 9)).line.unwrap();
    queues.set_due(line, Some(UnixMicros(70)));
    queues.evicted(line);
    assert_eq!(queues.evicted_until(line), Some(UnixMicros(70)));
    queues.seen(line);
    assert_eq!(queues.evicted_until(line), None);
}

#[test]
fn a_line_that_is_ready_is_taken_once() {
    let mut queues = Queues::default();
    let line = queues.join(0, &[b"k"], 0, waiter(1, 0, 9)).line.unwrap();
    queues.set_due(line, Some(UnixMicros(5)));
    queues.set_due_ready(UnixMicros(4));
    assert_eq!(queues.take_ready(), None);
    queues.set_due_ready(UnixMicros(5));
    queues.set_ready(line);
    assert_eq!(queues.take_ready(), Some((line, Cause::Event)));
    assert_eq!(queues.take_ready(), None);
    assert_eq!(queues.next_due(), None);
}

#[test]
fn the_longest_queues_come_first() {
    let mut queues = Queues::default();
    for (client, key) in [b"a", b"b", b"b", b"c", b"c", b"c"].into_iter().enumerate() {
        queues.join(0, &[key], 0, waiter(client as u64, 0, 9));
    }
    let longest = |most| queues.longest(most).into_iter().map(|line| (line.1[0], line.2)).collect::<Vec<_>>();
    assert_eq!(longest(2), [(b'c', 3), (b'b', 2)]);
    for most in [3, 9] {
        assert_eq!(longest(most), [(b'c', 3), (b'b', 2), (b'a', 1)]);
    }
    assert_eq!(queues.waits_for(0).map(|wait| wait.keys.get(0).unwrap()[0]), Some(b'a'));
    assert_eq!(queues.waiting(0, b"c").map(|waiter| waiter.client).collect::<Vec<_>>(), [3, 4, 5]);
}

#[test]
fn of_queues_that_are_as_long_the_one_that_began_first_comes_first() {
    let mut queues = Queues::default();
    for (key, since) in [(b"a", 7), (b"b", 5), (b"c", 6)] {
        queues.join(0, &[key], 0, Waiter { since: MonotonicMicros(since), ..waiter(since, 0, 9) });
        queues.join(0, &[key], 0, Waiter { since: MonotonicMicros(9), ..waiter(since + 10, 0, 9) });
    }
    let longest: Vec<_> = queues.longest(9).into_iter().map(|line| (line.1[0], line.3 .0)).collect();
    assert_eq!(longest, [(b'b', 5), (b'c', 6), (b'a', 7)]);
    assert_eq!(queues.length(0, b"a"), (2, Some(MonotonicMicros(7))));
}

#[test]
fn an_order_tells_how_many_come_before() {
    let order = Order::of(vec![9, 5, 9, 7]);
    assert_eq!([4, 5, 6, 7, 9, 10].map(|number| order.at(number)), [0, 0, 1, 1, 2, 3]);
}

#[test]
fn keys_are_those_of_the_call_in_their_order() {
    let marks = Marks::default();
    for names in [&[&b"a"[..], b"", b"bc"][..], &[b"k"], &[]] {
        let several = Names::of(names, &marks);
        assert_eq!((several.len(), several.is_empty()), (names.len(), names.is_empty()));
        assert!(several.iter().eq(names.iter().copied()));
        let keys = Keys::Several(several.into());
        assert_eq!((keys.len(), keys.is_empty(), keys.get(names.len())), (names.len(), names.is_empty(), None));
    }
    let one = Keys::One(b"k"[..].into());
    assert_eq!((one.len(), one.is_empty(), one.get(0), one.get(1)), (1, false, Some(&b"k"[..]), None));
}

#[test]
fn an_attempt_waits_where_it_has_more_than_a_place() {
    let mut queues = Queues::default();
    let seven = id(7).unwrap();
    queues.join(0, &[b"a"], 0, waiter(1, 7, 9));
    queues.join(0, &[b"b", b"c"], 0, waiter(2, 7, 9));
    queues.keep_place(0, &[b"d"], seven, MonotonicMicros(5), MOST);
    let waits = |names: &[&[u8]]| queues.is_waiting_for_any(0, names, seven);
    assert_eq!(
        [b"a", b"b", b"c", b"d", b"e"].map(|name| queues.is_waiting(0, name, seven)),
        [true, true, true, false, false]
    );
    assert_eq!(
        [&[&b"a"[..]][..], &[b"x", b"c"], &[b"d"], &[b"x", b"d"], &[]].map(waits),
        [true, true, false, false, false]
    );
}

#[test]
fn those_who_want_several_locks_are_held_up_by_an_eviction_until_it_is_over() {
    let mut queues = Queues::default();
    let line = queues.join(0, &[b"a", b"b"], 0, waiter(1, 0, 9)).line.unwrap();
    let ticket = queues.parked_head(line).unwrap();
    queues.set_last_end(line, Some(UnixMicros(50)));
    queues.set_last_end_after(line, UnixMicros(70));
    queues.set_last_end_after(line, UnixMicros(60));
    queues.evicted(line);
    let held_up = [69, 70, 71].map(|now| queues.is_held_up(0, b"a", ticket, UnixMicros(now)));
    assert_eq!((held_up, queues.line_of_ticket(ticket)), ([true, false, false], Some(line)));
}

#[test]
fn a_crowd_leaves_no_room_behind() {
    let mut queues = Queues::default();
    for client in 0..5_000_u64 {
        queues.join(0, &[&client.to_be_bytes()], 0, waiter(client, 0, 9));
    }
    for client in 0..5_000 {
        queues.leave(client, None, MOST);
    }
    assert!(queues.entries.capacity() + queues.lines.capacity() + queues.clients.capacity() < 100);
    queues.join(0, &[b"k"], 0, waiter(1, 0, 9));
    queues.leave(1, None, MOST);
    assert!(queues.entries.capacity() > 0, "that of a few is kept");
}

fn parked_in<'a>(queues: &Queues<u64>, names: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let waits = |name: &&&[u8]| queues.line_of(0, name).is_some_and(|line| !line.parked.is_empty());
    names.iter().filter(waits).copied().collect()
}

#[test]
fn a_waiter_for_several_keys_stands_in_the_line_of_one() {
    let mut queues = Queues::default();
    queues.join(0, &[b"a", b"b"], 1, waiter(1, 7, 9));
    queues.join(0, &[b"b"], 0, waiter(2, 0, 9));
    assert_eq!((queues.length(0, b"a").0, queues.length(0, b"b").0), (0, 2));
    // It is found by any of its keys.
    assert_eq!(queues.ticket(0, b"a", id(7).unwrap()), queues.ticket(0, b"b", id(7).unwrap()));
    assert_eq!(queues.forget(0, b"a", id(7).unwrap()).unwrap().1.unwrap().client, 1);
    assert!(queues.line(0, b"a").is_none() && queues.attempts.is_empty());
    assert_eq!(queues.length(0, b"b").0, 1);
}

#[test]
fn a_waiter_for_several_keys_moves_from_line_to_line_and_keeps_its_ticket() {
    let names: [&[u8]; 3] = [b"a", b"b", b"c"];
    let mut queues = Queues::default();
    let first = queues.join(0, &names, 0, waiter(1, 0, 9)).line.unwrap();
    queues.join(0, &[b"c"], 0, waiter(2, 0, 9));
    let ticket = queues.parked_head(first).unwrap();
    let third = queues.park(ticket, 2).unwrap();
    assert_eq!(parked_in(&queues, &names), [b"c"]);
    assert!(queues.line(0, b"a").is_none(), "nobody is left there");
    assert_eq!(queues.parked_head(third), Some(ticket), "it came first");
    assert_eq!(queues.park(ticket, 2), Some(third), "it may stay");
    assert_eq!(queues.park(ticket, 3), None, "there is no such key");
    assert_eq!(queues.serve(ticket).unwrap().client, 1);
    assert_eq!(queues.park(ticket, 0), None, "it is gone");
}

#[test]
fn a_lock_that_came_free_is_kept_for_those_parked_there_until_it_was_looked_at() {
    let mut queues = Queues::default();
    let line = queues.join(0, &[b"a", b"b"], 0, waiter(1, 7, 9)).line.unwrap();
    assert!(!queues.has_ahead(0, b"a", None));
    queues.set_ready(line);
    assert!(queues.has_ahead(0, b"a", None));
    assert!(!queues.has_ahead(0, b"a", id(7)), "not from itself");
    assert!(!queues.has_ahead(0, b"b", None));
    queues.take_ready();
    assert!(!queues.has_ahead(0, b"a", None));
    // That it is time to look again is no news.
    queues.look_again();
    assert!(queues.has_ready() && !queues.has_ahead(0, b"a", None));
    queues.set_ready(line);
    assert!(queues.has_ahead(0, b"a", None));
    assert_eq!(queues.take_ready(), Some((line, Cause::Event)));
}

#[test]
fn a_waiter_for_several_keys_is_held_up_by_those_ahead_for_one() {
    let mut queues = Queues::default();
    queues.join(0, &[b"b"], 0, waiter(1, 0, 9));
    let line = queues.join(0, &[b"a", b"b"], 0, waiter(2, 0, 9)).line.unwrap();
    queues.join(0, &[b"a"], 0, waiter(3, 0, 9));
    let Next::Parked(ticket) = queues.next(line, Vacancy::Whole) else { panic!("it came first") };
    assert!(queues.is_held_up(0, b"b", ticket, UnixMicros(0)));
    assert!(!queues.is_held_up(0, b"a", ticket, UnixMicros(0)), "that one came later");
    assert!(matches!(queues.next(line, Vacancy::Part), Next::Single(_, waiter) if waiter.client == 3));
    assert!(queues.single_head(line).is_none());
    queues.leave(1, None, MOST);
    assert!(!queues.is_held_up(0, b"b", ticket, UnixMicros(0)));
}

#[test]
fn those_parked_behind_a_waiter_that_leaves_are_looked_at() {
    let mut queues = Queues::default();
    let line = queues.join(0, &[b"a"], 0, waiter(1, 0, 9)).line.unwrap();
    queues.join(0, &[b"a", b"b"], 0, waiter(2, 0, 9));
    queues.leave(1, None, MOST);
    assert_eq!(queues.take_ready(), Some((line, Cause::Event)));
    queues.join(0, &[b"a"], 0, waiter(3, 0, 9));
    queues.leave(3, None, MOST);
    let other = queues.join(0, &[b"c"], 0, waiter(4, 0, 9)).line.unwrap();
    let (ticket, _) = queues.single_head(other).unwrap();
    queues.join(0, &[b"c", b"d"], 0, waiter(5, 0, 9));
    while queues.take_ready().is_some() {}
    assert!(queues.serve(ticket).is_some() && !queues.has_ready(), "who was granted holds them up now");
}

#[test]
fn so_many_are_tried_and_the_rest_in_the_next_iteration() {
    let mut queues = Queues::default();
    let many = u64::try_from(MOST_TRIED).unwrap();
    for client in 1..=many + 2 {
        queues.join(0, &[b"a", b"b"], 0, waiter(client, 0, 9));
    }
    let single = queues.join(0, &[b"a"], 0, waiter(many + 3, 0, 9));
    let line = single.line.unwrap();
    let try_all = |queues: &mut Queues<u64>| {
        let mut tried = 0;
        while let Next::Parked(ticket) = queues.next(line, Vacancy::Whole) {
            queues.park(ticket, 1);
            tried += 1;
        }
        tried
    };
    queues.set_ready(line);
    queues.take_ready();
    assert_eq!(try_all(&mut queues), MOST_TRIED);
    // Those behind them are served.
    assert!(matches!(queues.next(line, Vacancy::Whole), Next::Single(_, waiter) if waiter.client == many + 3));
    queues.leave(many + 3, None, MOST);
    assert_eq!(try_all(&mut queues), 2, "one that leaves is news");
    let mut queues = Queues::default();
    for client in 1..=many + 2 {
        queues.join(0, &[b"a", b"b"], 0, waiter(client, 0, 9));
    }
    let line = queues.line(0, b"a").unwrap();
    queues.set_ready(line);
    queues.take_ready();
    assert_eq!(try_all(&mut queues), MOST_TRIED);
    assert!(matches!(queues.next(line, Vacancy::Whole), Next::Later));
    assert!(queues.has_ready() && queues.take_ready().is_none(), "not in this iteration");
    assert!(!queues.has_ahead(0, b"a", None), "meanwhile it is free to others");
    queues.begin_iteration();
    assert_eq!(queues.take_ready(), Some((line, Cause::GoOn)));
    assert_eq!(try_all(&mut queues), 2);
}

#[test]
fn lines_that_are_ready_together_are_looked_at_in_the_order_of_tickets() {
    let mut queues = Queues::default();
    queues.join(0, &[b"a", b"c"], 0, waiter(1, 0, 9));
    queues.join(0, &[b"b"], 0, waiter(2, 0, 9));
    queues.join(0, &[b"a"], 0, waiter(3, 0, 9));
    let [a, b] = [b"a", b"b"].map(|name| queues.line(0, name).unwrap());
    queues.set_ready(b);
    queues.set_ready(a);
    assert_eq!(queues.take_ready(), Some((a, Cause::Event)));
    let Next::Parked(ticket) = queues.next(a, Vacancy::Whole) else { panic!("it came first") };
    queues.park(ticket, 1);
    queues.go_on(a);
    assert_eq!(queues.take_ready(), Some((b, Cause::Event)));
    assert_eq!(queues.take_ready(), Some((a, Cause::Event)));
    assert_eq!(queues.take_ready(), None);
}

#[test]
fn places_for_several_keys_are_bounded_by_keys_and_by_bytes() {
    let mut queues: Queues<u64> = Queues::default();
    let keep = |queues: &mut Queues<u64>, number: u64, names: &[&[u8]]| {
        queues.keep_place(0, names, id(number).unwrap(), MonotonicMicros(5), MostPlaces { keys: 5, bytes: 20 });
        queues.places()
    };
    assert_eq!(keep(&mut queues, 1, &[b"a", b"b", b"c"]), 1);
    assert_eq!(keep(&mut queues, 2, &[b"d", b"e", b"f"]), 1, "six keys");
    assert_eq!(keep(&mut queues, 3, &[b"d", b"012345678901234567"]), 1, "22 bytes");
    assert_eq!(keep(&mut queues, 4, &[b"d", b"0123456789012345"]), 2);
    assert_eq!(keep(&mut queues, 5, &[b"g"]), 2, "six keys");
    assert!(queues.forget(0, b"d", id(4).unwrap()).is_some());
    assert_eq!(keep(&mut queues, 5, &[b"g"]), 2);
    assert!(queues.time_out(MonotonicMicros(5), None, MOST).is_none());
    assert!(queues.is_empty() && queues.placed.keys == 0 && queues.placed.bytes == 0);
}

#[test]
fn so_many_attempts_for_several_keys_have_one_id() {
    let mut queues: Queues<u64> = Queues::default();
    for number in 0..MOST_OF_AN_ID + 5 {
        let name = number.to_string().into_bytes();
        queues.keep_place(
            0,
            &[&name, b"x".repeat(number + 1).as_slice()],
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
        queues.join(0, &[b"k"], 0, waiter(client, 0, client));
    }
    queues.keep_place(0, &[b"k"], id(7).unwrap(), MonotonicMicros(3), MOST);
    let odd = |waiter: &Waiter<u64>| (waiter.client % 2 == 1).then_some(());
    let (mut clients, mut from) = (Vec::new(), None);
    loop {
        let (found, next) = queues.walk(from, 100, 2, odd);
        assert!(found.len() <= 2);
        clients.extend(found.into_iter().map(|(client, ())| client));
        from = next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!(clients, [1, 3, 5, 7, 9]);
    assert!(queues.walk(None, 3, 100, odd).1.is_some());
}

#[test]
fn a_place_is_that_of_one_set_of_keys() {
    let mut queues = Queues::default();
    queues.join(0, &[b"a", b"b"], 0, waiter(1, 7, 9));
    queues.join(0, &[b"a"], 0, waiter(2, 0, 9));
    // The same keys, in another order: the same place.
    queues.join(0, &[b"b", b"a"], 1, waiter(3, 7, 9));
    let line = queues.line(0, b"a").unwrap();
    assert_eq!(queues.head(line).unwrap().client, 3);
    // Other keys: a new one.
    queues.join(0, &[b"a"], 0, waiter(4, 7, 9));
    assert_eq!(queues.waiting(0, b"a").map(|waiter| waiter.client).collect::<Vec<_>>(), [2, 4]);
    assert!(queues.line(0, b"b").is_none());
}

#[test]
fn a_reader_is_looked_at_when_the_writer_ahead_of_it_leaves() {
    let mut queues = Queues::default();
    queues.join(0, &[b"k"], 0, waiter(1, 0, 9));
    queues.join(0, &[b"k"], 0, Waiter { share: Share::Shared, ..waiter(2, 0, 9) });
    queues.join(0, &[b"k"], 0, waiter(3, 0, 9));
    assert!(!queues.has_ready());
    queues.leave(1, None, MOST);
    assert_eq!(queues.take_ready().map(|(line, _)| line), queues.line(0, b"k"));
    queues.leave(2, None, MOST);
    assert!(!queues.has_ready(), "a writer has no more to hope for than the reader had");
    assert_eq!(queues.narrows(0, b"k").before(None, Share::Shared), 1);
    queues.join(0, &[b"s"], 0, Waiter { share: Share::Limit(3), ..waiter(4, 7, 9) });
    queues.join(0, &[b"s"], 0, Waiter { share: Share::Limit(2), ..waiter(5, 8, 9) });
    let before =
        |attempt| queues.narrows(0, b"s").before(queues.ticket(0, b"s", id(attempt).unwrap()), Share::Limit(4));
    assert_eq!([7, 8, 9].map(before), [4, 3, 2], "only those who are ahead count");
    assert_eq!(queues.narrows(0, b"x").before(None, Share::Limit(4)), 4);
}

#[derive(Clone, Debug)]
enum Step {
    Join { keys: Vec<u8>, at: usize, client: u64, attempt: u64, until: u64 },
    Park { client: u64, at: usize },
    Keep { keys: Vec<u8>, attempt: u64, until: u64 },
    Leave { client: u64, keep: Option<u64> },
    Pop { key: u8 },
    Forget { key: u8, attempt: u64 },
    TimeOut { now: u64, keep: Option<u64> },
    Due { key: u8, at: u64 },
    Ready { now: u64 },
    Dissolve { key: u8 },
}

fn any_step() -> impl Strategy<Value = Step> {
    let key = 0..3_u8;
    let keys = prop_oneof![
        3 => key.clone().prop_map(|key| vec![key]),
        1 => prop::sample::select(vec![vec![0, 1], vec![1, 0], vec![1, 2], vec![2, 0], vec![0, 1, 2], vec![2, 1, 0]]),
    ];
    let time = 0..40_u64;
    let keep = prop::option::of(0..60_u64);
    prop_oneof![
        5 => (keys.clone(), 0..3_usize, 1..20_u64, 0..6_u64, time.clone())
            .prop_map(|(keys, at, client, attempt, until)| {
                Step::Join { at: at % keys.len(), keys, client, attempt, until }
            }),
        1 => (1..20_u64, 0..4_usize).prop_map(|(client, at)| Step::Park { client, at }),
        1 => (keys, 1..6_u64, time.clone()).prop_map(|(keys, attempt, until)| Step::Keep { keys, attempt, until }),
        2 => (1..20_u64, keep.clone()).prop_map(|(client, keep)| Step::Leave { client, keep }),
        2 => key.clone().prop_map(|key| Step::Pop { key }),
        1 => (key.clone(), 1..6_u64).prop_map(|(key, attempt)| Step::Forget { key, attempt }),
        2 => (time.clone(), keep).prop_map(|(now, keep)| Step::TimeOut { now, keep }),
        1 => (key.clone(), time.clone()).prop_map(|(key, at)| Step::Due { key, at }),
        1 => time.prop_map(|now| Step::Ready { now }),
        1 => key.prop_map(|key| Step::Dissolve { key }),
    ]
}

/// One entry of the plain list: who stands where, in order of arrival.
#[derive(Clone, Debug)]
struct Entry {
    keys: Vec<u8>,
    /// The key in whose line it waits.
    at: u8,
    attempt: u64,
    /// 0: only a place.
    client: u64,
    until: u64,
}

impl Entry {
    fn stands(&self, key: u8) -> bool {
        self.keys.contains(&key)
    }

    fn waits(&self, key: u8) -> bool {
        self.client != 0 && self.at == key
    }

    fn is_parked(&self, key: u8) -> bool {
        self.waits(key) && self.keys.len() > 1
    }
}

#[derive(Default)]
struct Plain(Vec<Entry>);

impl Plain {
    fn position(&self, key: u8, attempt: u64) -> Option<usize> {
        self.0.iter().position(|entry| entry.stands(key) && attempt != 0 && entry.attempt == attempt)
    }

    /// In the place of the same attempt for the same keys, else at the end; the clients that stood there.
    fn put(&mut self, mut entry: Entry) -> Vec<u64> {
        let mut earlier = Vec::new();
        for key in entry.keys.clone() {
            let Some(at) = self.position(key, entry.attempt) else { continue };
            let sorted = |keys: &[u8]| std::collections::BTreeSet::from_iter(keys.to_vec());
            earlier.push(self.0[at].client);
            if sorted(&self.0[at].keys) == sorted(&entry.keys) {
                std::mem::swap(&mut self.0[at], &mut entry);
                earlier.retain(|client| *client != 0);
                return earlier;
            }
            self.0.remove(at);
        }
        self.0.push(entry);
        earlier.retain(|client| *client != 0);
        earlier.sort_unstable();
        earlier
    }

    fn leave(&mut self, at: usize, keep: Option<u64>) -> u64 {
        let client = self.0[at].client;
        match keep {
            Some(until) if self.0[at].attempt != 0 => {
                self.0[at].client = 0;
                self.0[at].until = until;
            }
            _ => drop(self.0.remove(at)),
        }
        client
    }

    fn head(&self, key: u8) -> Option<usize> {
        self.0.iter().position(|entry| entry.waits(key))
    }
}

fn name(key: u8) -> [u8; 1] {
    [b'a' + key]
}

fn names(keys: &[u8]) -> Vec<&'static [u8]> {
    keys.iter().map(|key| [&b"a"[..], b"b", b"c"][usize::from(*key)]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8 * ProptestConfig::default().cases))]
    #[test]
    fn the_queue_does_what_a_plain_list_does(steps in prop::collection::vec(any_step(), 1..80)) {
        let mut queues = Queues::default();
        let mut plain = Plain::default();
        for step in steps {
            match step {
                Step::Join { client, .. } if plain.0.iter().any(|entry| entry.client == client) => {}
                Step::Join { keys, at, client, attempt, until } => {
                    let earlier = queues.join(0, &names(&keys), at, waiter(client, attempt, until)).earlier;
                    let mut earlier: Vec<u64> = earlier.into_iter().map(|waiter| waiter.client).collect();
                    earlier.sort_unstable();
                    prop_assert_eq!(earlier, plain.put(Entry { at: keys[at], keys, attempt, client, until }));
                }
                Step::Park { client, at } => {
                    let entry = plain.0.iter_mut().find(|entry| entry.client == client && entry.keys.len() > at);
                    if let (Some(entry), Some(wait)) = (entry, queues.waits_for(client)) {
                        let moved = queues.park(wait.ticket, at);
                        prop_assert_eq!(moved.is_some(), entry.keys.len() > 1);
                        if moved.is_some() {
                            entry.at = entry.keys[at];
                        }
                    }
                }
                Step::Keep { keys, attempt, until } => {
                    let earlier =
                        queues.keep_place(0, &names(&keys), id(attempt).unwrap(), MonotonicMicros(until), MOST);
                    let mut earlier: Vec<u64> = earlier.into_iter().map(|waiter| waiter.client).collect();
                    earlier.sort_unstable();
                    prop_assert_eq!(earlier, plain.put(Entry { at: keys[0], keys, attempt, client: 0, until }));
                }
                Step::Leave { client, keep } => {
                    let left = queues.leave(client, keep.map(MonotonicMicros), MOST).map(|waiter| waiter.client);
                    let at = plain.0.iter().position(|entry| entry.client == client);
                    prop_assert_eq!(left, at.map(|at| plain.leave(at, keep)));
                }
                Step::Pop { key } => {
                    let line = queues.line(0, &name(key));
                    let popped = line.and_then(|line| queues.pop_head(line)).map(|(_, waiter)| waiter.client);
                    prop_assert_eq!(popped, plain.head(key).map(|at| plain.leave(at, None)));
                }
                Step::Forget { key, attempt } => {
                    let found = queues.forget(0, &name(key), id(attempt).unwrap());
                    let at = plain.position(key, attempt);
                    prop_assert_eq!(found.is_some(), at.is_some());
                    let waited = found.and_then(|(_, waiter)| waiter).map(|waiter| waiter.client);
                    prop_assert_eq!(waited, at.map(|at| plain.0.remove(at).client).filter(|client| *client != 0));
                }
                Step::TimeOut { now, keep } => {
                    // A place that is kept until before now would end at once and again: keep later ones only.
                    let keep = keep.filter(|until| *until > now);
                    let mut over = Vec::new();
                    while let Some(waiter) = queues.time_out(MonotonicMicros(now), keep.map(MonotonicMicros), MOST) {
                        over.push(waiter.client);
                    }
                    let mut expected = Vec::new();
                    while let Some(at) = plain.0.iter().position(|entry| entry.until <= now) {
                        if plain.0[at].client == 0 {
                            plain.0.remove(at);
                        } else {
                            expected.push(plain.leave(at, keep));
                        }
                    }
                    over.sort_unstable();
                    expected.sort_unstable();
                    prop_assert_eq!(over, expected);
                }
                Step::Due { key, at } => {
                    if let Some(line) = queues.line(0, &name(key)) {
                        queues.set_due(line, Some(UnixMicros(at)));
                    }
                }
                Step::Ready { now } => {
                    queues.set_due_ready(UnixMicros(now));
                    prop_assert!(queues.next_due().is_none_or(|due| due.0 > now));
                    while let Some((line, _)) = queues.take_ready() {
                        prop_assert!(queues.head(line).is_some());
                    }
                }
                Step::Dissolve { key } => {
                    let gone = queues.line(0, &name(key)).map_or(0, |line| queues.dissolve(line).len());
                    let waited = plain.0.iter().filter(|entry| entry.waits(key)).count();
                    // The place of one for several keys stands in no line.
                    plain.0.retain(|entry| !(entry.waits(key) || entry.client == 0 && entry.keys == [key]));
                    prop_assert_eq!(gone, waited);
                }
            }
            let waiting = plain.0.iter().filter(|entry| entry.client != 0).count();
            prop_assert_eq!(queues.waiters(), waiting);
            prop_assert_eq!(queues.places(), plain.0.len() - waiting);
            prop_assert_eq!(queues.ends.len(), plain.0.len());
            prop_assert_eq!(queues.entries.len(), plain.0.len());
            let places = plain.0.iter().filter(|entry| entry.client == 0);
            prop_assert_eq!(queues.placed.keys, places.map(|entry| entry.keys.len()).sum::<usize>());
            let several = plain.0.iter().filter(|entry| entry.attempt != 0 && entry.keys.len() > 1);
            prop_assert_eq!(queues.attempts.values().map(Vec::len).sum::<usize>(), several.count());
            prop_assert_eq!(queues.next_end().map(|end| end.0), plain.0.iter().map(|entry| entry.until).min());
            for key in 0..3 {
                let stands = |entry: &&Entry| entry.waits(key) || entry.client == 0 && entry.keys == [key];
                prop_assert_eq!(queues.line(0, &name(key)).is_some(), plain.0.iter().any(|entry| stands(&entry)));
                let waiting: Vec<u64> = queues.waiting(0, &name(key)).map(|waiter| waiter.client).collect();
                let expected: Vec<u64> = plain.0.iter().filter(|entry| entry.waits(key)).map(|entry| entry.client).collect();
                prop_assert_eq!(queues.length(0, &name(key)).0, waiting.len());
                prop_assert_eq!(waiting, expected);
                let head = queues.line(0, &name(key)).and_then(|line| queues.head(line)).map(|waiter| waiter.client);
                prop_assert_eq!(head, plain.head(key).map(|at| plain.0[at].client));
                for attempt in 0..6 {
                    let own = plain.position(key, attempt).unwrap_or(usize::MAX);
                    let single = |entry: &Entry| entry.waits(key) && entry.keys.len() == 1;
                    let is_kept = queues.line_of(0, &name(key)).is_some_and(|line| line.cause == Cause::Event && line.ready.is_some());
                    let counts = |entry: &Entry| single(entry) || (is_kept && entry.is_parked(key));
                    let ahead = plain.0.iter().position(counts).is_some_and(|at| at < own);
                    prop_assert_eq!(queues.has_ahead(0, &name(key), id(attempt).filter(|_| attempt != 0)), ahead);
                }
            }
            for line in queues.lines.values() {
                prop_assert!(line.is_waited_for() || line.due.is_none());
                let stands = line.single.iter().filter_map(|ticket| queues.waiter(*ticket));
                prop_assert_eq!(line.ids.len(), stands.filter(|waiter| waiter.id.is_some()).count() + line.places.len());
            }
        }
    }
}

/// As where the key of a line expires when it is opened: the look at the line is what is told of it.
#[test]
fn a_line_whose_first_has_left_is_looked_at_in_the_order_of_the_next() {
    let mut queues = Queues::default();
    queues.join(0, &[b"a", b"c"], 0, waiter(1, 0, 9));
    queues.join(0, &[b"b"], 0, waiter(2, 0, 9));
    queues.join(0, &[b"a"], 0, waiter(3, 0, 9));
    let [a, b] = [b"a", b"b"].map(|name| queues.line(0, name).unwrap());
    queues.set_ready(b);
    queues.set_ready(a);
    assert_eq!(queues.take_ready(), Some((a, Cause::Event)));
    queues.set_ready(a);
    let Next::Parked(ticket) = queues.next(a, Vacancy::Whole) else { panic!("it came first") };
    queues.park(ticket, 1);
    queues.go_on(a);
    assert_eq!(queues.take_ready(), Some((b, Cause::Event)));
    assert_eq!(queues.take_ready(), Some((a, Cause::Event)));
    assert_eq!(queues.take_ready(), None);
}
