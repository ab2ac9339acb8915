//! Limits on places by keys and bytes, on blocked clients by the size of their names, and on attempts with one ID.

use super::*;

#[test]
fn many_waiters_leave_no_memory_behind() {
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
    assert!(queues.clients.capacity() > 0, "memory for a few is kept");
}

#[test]
fn places_for_several_keys_are_bounded_by_keys_and_by_bytes() {
    let mut queues: Queues<u64> = Queues::default();
    let keep = |queues: &mut Queues<u64>, number: u64, names: &[&[u8]]| {
        queues.keep_place(
            KeyNames::new(0, names),
            place(number, MonotonicMicros(5)),
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
    queues.keep_place(KeyNames::new(0, &[b"0123456789"]), place(1, until), most);
    queues.bar(KeyName::new(0, b"012345678"), id(2).unwrap(), until, most);
    assert_eq!((queues.places(), queues.placed.bytes), (2, 19));
    queues.keep_place(KeyNames::new(0, &[b"ab"]), place(3, until), most);
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
    // A resent attempt counts once.
    queues.join(KeyNames::new(0, &names), 0, waiter(3, 7, 9));
    assert_eq!((queues.load(), queues.blocked()), (1 + 17, 2));
    queues.leave(3, Some(MonotonicMicros(10)), MOST);
    assert_eq!(queues.load(), 1);
    queues.leave(1, None, MOST);
    assert_eq!(queues.load(), 0);
}

#[test]
fn only_a_limited_number_of_attempts_for_several_keys_may_share_an_id() {
    let mut queues: Queues<u64> = Queues::default();
    for number in 0..MOST_OF_AN_ID + 5 {
        let name = number.to_string().into_bytes();
        queues.keep_place(
            KeyNames::new(0, &[&name, b"x".repeat(number + 1).as_slice()]),
            place(7, MonotonicMicros(5)),
            MostPlaces { keys: 10_000, bytes: 100_000 },
        );
    }
    assert_eq!(queues.places(), MOST_OF_AN_ID);
    assert!(!queues.takes_id(0, id(7).unwrap()) && queues.takes_id(1, id(7).unwrap()));
}
