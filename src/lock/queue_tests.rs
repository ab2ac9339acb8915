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
        lease: Micros(1),
        id: if attempt == 0 { None } else { id(attempt) },
        owner: None,
        details: false,
        session: false,
        since: MonotonicMicros(0),
        until: MonotonicMicros(until),
    }
}

const MOST: usize = 100;

#[test]
fn the_first_to_come_is_the_first_served() {
    let mut queues = Queues::default();
    for client in 1..=3 {
        queues.join(0, b"k", waiter(client, 0, 9));
    }
    let line = queues.line(0, b"k").unwrap();
    let served: Vec<u64> = std::iter::from_fn(|| queues.pop_head(line)).map(|(_, waiter)| waiter.client).collect();
    assert_eq!(served, [1, 2, 3]);
    assert!(queues.is_empty());
}

#[test]
fn an_attempt_that_comes_back_has_its_old_place() {
    let mut queues = Queues::default();
    queues.join(0, b"k", waiter(1, 7, 9));
    queues.join(0, b"k", waiter(2, 0, 9));
    assert!(queues.leave(1, Some(MonotonicMicros(50)), MOST).is_some());
    assert!(queues.has_ahead(0, b"k", None));
    assert!(!queues.has_ahead(0, b"k", id(7)));
    assert!(queues.join(0, b"k", waiter(3, 7, 60)).resumed);
    let line = queues.line(0, b"k").unwrap();
    assert_eq!(queues.head(line).unwrap().client, 3);
}

#[test]
fn a_newer_call_takes_the_place_of_the_waiter_with_its_id() {
    let mut queues = Queues::default();
    queues.join(0, b"k", waiter(1, 7, 9));
    queues.join(0, b"k", waiter(2, 0, 9));
    let Joined { line, earlier, .. } = queues.join(0, b"k", waiter(3, 7, 9));
    assert_eq!(earlier.unwrap().client, 1);
    assert_eq!(queues.head(line).unwrap().client, 3);
    assert!(queues.leave(1, None, MOST).is_none());
}

#[test]
fn a_place_is_given_up_after_its_time() {
    let mut queues: Queues<u64> = Queues::default();
    assert!(queues.keep_place(0, b"k", id(7).unwrap(), MonotonicMicros(5), MOST).is_none());
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
        queues.keep_place(0, b"k", id(number).unwrap(), MonotonicMicros(5), 3);
    }
    assert_eq!(queues.places(), 3);
}

#[test]
fn an_evicted_lock_stays_taken_until_the_time_last_seen() {
    let mut queues = Queues::default();
    let line = queues.join(0, b"k", waiter(1, 0, 9)).line;
    queues.set_due(line, Some(UnixMicros(70)));
    queues.evicted(line);
    assert_eq!(queues.evicted_until(line), Some(UnixMicros(70)));
    queues.seen(line);
    assert_eq!(queues.evicted_until(line), None);
}

#[test]
fn a_line_that_is_ready_is_taken_once() {
    let mut queues = Queues::default();
    let line = queues.join(0, b"k", waiter(1, 0, 9)).line;
    queues.set_due(line, Some(UnixMicros(5)));
    queues.set_due_ready(UnixMicros(4));
    assert_eq!(queues.take_ready(), None);
    queues.set_due_ready(UnixMicros(5));
    assert!(!queues.set_ready(line));
    assert_eq!(queues.take_ready(), Some(line));
    assert_eq!(queues.take_ready(), None);
    assert_eq!(queues.next_due(), None);
}

#[test]
fn the_longest_queues_come_first() {
    let mut queues = Queues::default();
    for (client, key) in [b"a", b"b", b"b", b"c", b"c", b"c"].into_iter().enumerate() {
        queues.join(0, key, waiter(client as u64, 0, 9));
    }
    let longest = |most| queues.longest(most).into_iter().map(|line| (line.1[0], line.2)).collect::<Vec<_>>();
    assert_eq!(longest(2), [(b'c', 3), (b'b', 2)]);
    assert_eq!(longest(9), [(b'c', 3), (b'b', 2), (b'a', 1)]);
    assert_eq!(queues.waits_for(0).map(|(_, name)| name[0]), Some(b'a'));
    assert_eq!(queues.waiting(0, b"c").map(|waiter| waiter.client).collect::<Vec<_>>(), [3, 4, 5]);
}

#[derive(Clone, Debug)]
enum Step {
    Join { key: u8, client: u64, attempt: u64, until: u64 },
    Keep { key: u8, attempt: u64, until: u64 },
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
    let time = 0..40_u64;
    let keep = prop::option::of(0..60_u64);
    prop_oneof![
        5 => (key.clone(), 1..20_u64, 0..6_u64, time.clone())
            .prop_map(|(key, client, attempt, until)| Step::Join { key, client, attempt, until }),
        1 => (key.clone(), 1..6_u64, time.clone()).prop_map(|(key, attempt, until)| Step::Keep { key, attempt, until }),
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
    key: u8,
    attempt: u64,
    /// 0: only a place.
    client: u64,
    until: u64,
}

#[derive(Default)]
struct Plain(Vec<Entry>);

impl Plain {
    fn position(&self, key: u8, attempt: u64) -> Option<usize> {
        self.0.iter().position(|entry| entry.key == key && attempt != 0 && entry.attempt == attempt)
    }

    fn put(&mut self, entry: Entry) -> Option<u64> {
        let Some(at) = self.position(entry.key, entry.attempt) else {
            self.0.push(entry);
            return None;
        };
        Some(std::mem::replace(&mut self.0[at], entry).client).filter(|client| *client != 0)
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
        self.0.iter().position(|entry| entry.key == key && entry.client != 0)
    }
}

fn name(key: u8) -> [u8; 1] {
    [b'a' + key]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]
    #[test]
    fn the_queue_does_what_a_plain_list_does(steps in prop::collection::vec(any_step(), 1..80)) {
        let mut queues = Queues::default();
        let mut plain = Plain::default();
        for step in steps {
            match step {
                Step::Join { client, .. } if plain.0.iter().any(|entry| entry.client == client) => {}
                Step::Join { key, client, attempt, until } => {
                    let earlier = queues.join(0, &name(key), waiter(client, attempt, until)).earlier;
                    prop_assert_eq!(earlier.map(|waiter| waiter.client), plain.put(Entry { key, attempt, client, until }));
                }
                Step::Keep { key, attempt, until } => {
                    let earlier = queues.keep_place(0, &name(key), id(attempt).unwrap(), MonotonicMicros(until), MOST);
                    prop_assert_eq!(earlier.map(|waiter| waiter.client), plain.put(Entry { key, attempt, client: 0, until }));
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
                    while let Some(line) = queues.take_ready() {
                        prop_assert!(queues.head(line).is_some());
                    }
                }
                Step::Dissolve { key } => {
                    let gone = queues.line(0, &name(key)).map_or(0, |line| queues.dissolve(line).len());
                    let waited = plain.0.iter().filter(|entry| entry.key == key && entry.client != 0).count();
                    plain.0.retain(|entry| entry.key != key);
                    prop_assert_eq!(gone, waited);
                }
            }
            let waiting = plain.0.iter().filter(|entry| entry.client != 0).count();
            prop_assert_eq!(queues.waiters(), waiting);
            prop_assert_eq!(queues.places(), plain.0.len() - waiting);
            prop_assert_eq!(queues.ends.len(), plain.0.len());
            prop_assert_eq!(queues.tickets.len(), plain.0.len());
            prop_assert_eq!(queues.next_end().map(|end| end.0), plain.0.iter().map(|entry| entry.until).min());
            for key in 0..3 {
                let stands = plain.0.iter().filter(|entry| entry.key == key);
                prop_assert_eq!(queues.line(0, &name(key)).is_some(), stands.count() > 0);
                let head = queues.line(0, &name(key)).and_then(|line| queues.head(line)).map(|waiter| waiter.client);
                prop_assert_eq!(head, plain.head(key).map(|at| plain.0[at].client));
                for attempt in 0..6 {
                    let own = plain.position(key, attempt).unwrap_or(usize::MAX);
                    let ahead = plain.head(key).is_some_and(|at| at < own);
                    prop_assert_eq!(queues.has_ahead(0, &name(key), id(attempt).filter(|_| attempt != 0)), ahead);
                }
            }
            for line in queues.lines.values() {
                prop_assert!(!line.waiters.is_empty() || line.due.is_none());
                prop_assert_eq!(line.ids.len(), line.waiters.values().filter(|waiter| waiter.id.is_some()).count() + line.places.len());
            }
        }
    }
}
