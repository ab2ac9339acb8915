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
        queues.join(0, &[b"k"], waiter(client, 0, 9));
    }
    let line = queues.line(0, b"k").unwrap();
    let served: Vec<u64> = std::iter::from_fn(|| queues.pop_head(line)).map(|(_, waiter)| waiter.client).collect();
    assert_eq!(served, [1, 2, 3]);
    assert!(queues.is_empty());
}

#[test]
fn an_attempt_that_comes_back_has_its_old_place() {
    let mut queues = Queues::default();
    queues.join(0, &[b"k"], waiter(1, 7, 9));
    queues.join(0, &[b"k"], waiter(2, 0, 9));
    assert!(queues.leave(1, Some(MonotonicMicros(50)), MOST).is_some());
    assert!(queues.has_ahead(0, b"k", None));
    assert!(!queues.has_ahead(0, b"k", id(7)));
    assert!(queues.join(0, &[b"k"], waiter(3, 7, 60)).resumed);
    let line = queues.line(0, b"k").unwrap();
    assert_eq!(queues.head(line).unwrap().client, 3);
}

#[test]
fn a_newer_call_takes_the_place_of_the_waiter_with_its_id() {
    let mut queues = Queues::default();
    queues.join(0, &[b"k"], waiter(1, 7, 9));
    queues.join(0, &[b"k"], waiter(2, 0, 9));
    let Joined { line, mut earlier, .. } = queues.join(0, &[b"k"], waiter(3, 7, 9));
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
        queues.keep_place(0, &[b"k"], id(number).unwrap(), MonotonicMicros(5), 3);
    }
    assert_eq!(queues.places(), 3);
}

#[test]
fn an_evicted_lock_stays_taken_until_the_time_last_seen() {
    let mut queues = Queues::default();
    let line = queues.join(0, &[b"k"], waiter(1, 0, 9)).line.unwrap();
    queues.set_due(line, Some(UnixMicros(70)));
    queues.evicted(line);
    assert_eq!(queues.evicted_until(line), Some(UnixMicros(70)));
    queues.seen(line);
    assert_eq!(queues.evicted_until(line), None);
}

#[test]
fn a_line_that_is_ready_is_taken_once() {
    let mut queues = Queues::default();
    let line = queues.join(0, &[b"k"], waiter(1, 0, 9)).line.unwrap();
    queues.set_due(line, Some(UnixMicros(5)));
    queues.set_due_ready(UnixMicros(4));
    assert_eq!(queues.take_ready(), None);
    queues.set_due_ready(UnixMicros(5));
    assert!(!queues.set_ready(line));
    assert_eq!(queues.take_ready(), Some((line, None)));
    assert_eq!(queues.take_ready(), None);
    assert_eq!(queues.next_due(), None);
}

#[test]
fn the_longest_queues_come_first() {
    let mut queues = Queues::default();
    for (client, key) in [b"a", b"b", b"b", b"c", b"c", b"c"].into_iter().enumerate() {
        queues.join(0, &[key], waiter(client as u64, 0, 9));
    }
    let longest = |most| queues.longest(most).into_iter().map(|line| (line.1[0], line.2)).collect::<Vec<_>>();
    assert_eq!(longest(2), [(b'c', 3), (b'b', 2)]);
    assert_eq!(longest(9), [(b'c', 3), (b'b', 2), (b'a', 1)]);
    assert_eq!(queues.waits_for(0).map(|wait| wait.names.as_slice()[0][0]), Some(b'a'));
    assert_eq!(queues.waiting(0, b"c").map(|waiter| waiter.client).collect::<Vec<_>>(), [3, 4, 5]);
}

#[test]
fn who_waits_for_several_keys_leaves_all_lines_at_once() {
    let mut queues = Queues::default();
    queues.join(0, &[b"a", b"b"], waiter(1, 7, 9));
    queues.join(0, &[b"b"], waiter(2, 0, 9));
    assert_eq!(queues.length(0, b"a").0, 1);
    assert_eq!(queues.length(0, b"b").0, 2);
    assert_eq!(queues.forget(0, b"b", id(7).unwrap()).unwrap().1.unwrap().client, 1);
    assert!(queues.line(0, b"a").is_none());
    assert_eq!(queues.length(0, b"b").0, 1);
}

#[test]
fn who_waits_for_several_keys_holds_nobody_up_but_where_it_was_not_looked_at() {
    let mut queues = Queues::default();
    queues.join(0, &[b"a", b"b"], waiter(1, 0, 9));
    let line = queues.line(0, b"a").unwrap();
    assert!(!queues.has_ahead(0, b"a", None));
    queues.set_ready(line);
    assert!(queues.has_ahead(0, b"a", None));
    assert!(!queues.has_ahead(0, b"b", None));
    queues.take_ready();
    assert!(!queues.has_ahead(0, b"a", None));
    // That it is time to look again is no news.
    queues.look_again();
    assert!(queues.has_ready() && !queues.has_ahead(0, b"a", None));
    queues.set_ready(line);
    assert!(queues.has_ahead(0, b"a", None));
}

#[test]
fn who_waits_for_several_keys_is_held_up_by_those_ahead_for_one() {
    let mut queues = Queues::default();
    queues.join(0, &[b"b"], waiter(1, 0, 9));
    queues.join(0, &[b"a", b"b"], waiter(2, 0, 9));
    queues.join(0, &[b"a"], waiter(3, 0, 9));
    let line = queues.line(0, b"a").unwrap();
    let (ticket, _, is_several) = queues.next(line, None, false).unwrap();
    assert!(is_several);
    assert!(queues.is_held_up(ticket, UnixMicros(0)));
    assert_eq!(queues.next(line, None, true).unwrap().1.client, 3);
    assert!(queues.single_head(line).is_none());
    queues.leave(1, None, MOST);
    assert!(!queues.is_held_up(ticket, UnixMicros(0)));
}

#[test]
fn lines_that_are_ready_together_are_looked_at_in_the_order_of_tickets() {
    let mut queues = Queues::default();
    queues.join(0, &[b"a", b"c"], waiter(1, 0, 9));
    queues.join(0, &[b"b"], waiter(2, 0, 9));
    queues.join(0, &[b"a"], waiter(3, 0, 9));
    let [a, b] = [b"a", b"b"].map(|name| queues.line(0, name).unwrap());
    queues.set_ready(b);
    queues.set_ready(a);
    let (line, behind) = queues.take_ready().unwrap();
    assert_eq!((line, behind), (a, None));
    let (ticket, ..) = queues.next(a, None, false).unwrap();
    queues.go_on(a, Some(ticket));
    assert_eq!(queues.take_ready(), Some((b, None)));
    assert_eq!(queues.take_ready(), Some((a, Some(ticket))));
    assert_eq!(queues.take_ready(), None);
    // What is news begins at the head again.
    queues.go_on(a, Some(ticket));
    assert!(!queues.set_ready(a));
    assert_eq!(queues.take_ready(), Some((a, None)));
}

#[test]
fn a_place_is_that_of_one_set_of_keys() {
    let mut queues = Queues::default();
    queues.join(0, &[b"a", b"b"], waiter(1, 7, 9));
    queues.join(0, &[b"a"], waiter(2, 0, 9));
    // The same keys, in another order: the same place.
    queues.join(0, &[b"b", b"a"], waiter(3, 7, 9));
    let line = queues.line(0, b"a").unwrap();
    assert_eq!(queues.head(line).unwrap().client, 3);
    // Other keys: a new one.
    queues.join(0, &[b"a"], waiter(4, 7, 9));
    assert_eq!(queues.waiting(0, b"a").map(|waiter| waiter.client).collect::<Vec<_>>(), [2, 4]);
    assert!(queues.line(0, b"b").is_none());
}

#[test]
fn a_reader_is_looked_at_when_the_writer_ahead_of_it_leaves() {
    let mut queues = Queues::default();
    queues.join(0, &[b"k"], waiter(1, 0, 9));
    queues.join(0, &[b"k"], Waiter { share: Share::Shared, ..waiter(2, 0, 9) });
    queues.join(0, &[b"k"], waiter(3, 0, 9));
    assert!(!queues.has_ready());
    queues.leave(1, None, MOST);
    assert_eq!(queues.take_ready().map(|(line, _)| line), queues.line(0, b"k"));
    queues.leave(2, None, MOST);
    assert!(!queues.has_ready(), "a writer has no more to hope for than the reader had");
    assert_eq!(queues.narrows(0, b"k").before(None, Share::Shared), 1);
    assert_eq!(queues.narrows(0, b"x").before(None, Share::Limit(4)), 4);
}

#[derive(Clone, Debug)]
enum Step {
    Join { keys: Vec<u8>, client: u64, attempt: u64, until: u64 },
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
        5 => (keys.clone(), 1..20_u64, 0..6_u64, time.clone())
            .prop_map(|(keys, client, attempt, until)| Step::Join { keys, client, attempt, until }),
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
        self.client != 0 && self.stands(key)
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
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]
    #[test]
    fn the_queue_does_what_a_plain_list_does(steps in prop::collection::vec(any_step(), 1..80)) {
        let mut queues = Queues::default();
        let mut plain = Plain::default();
        for step in steps {
            match step {
                Step::Join { client, .. } if plain.0.iter().any(|entry| entry.client == client) => {}
                Step::Join { keys, client, attempt, until } => {
                    let earlier = queues.join(0, &names(&keys), waiter(client, attempt, until)).earlier;
                    let earlier: Vec<u64> = earlier.into_iter().map(|waiter| waiter.client).collect();
                    prop_assert_eq!(earlier, plain.put(Entry { keys, attempt, client, until }));
                }
                Step::Keep { keys, attempt, until } => {
                    let earlier =
                        queues.keep_place(0, &names(&keys), id(attempt).unwrap(), MonotonicMicros(until), MOST);
                    let earlier: Vec<u64> = earlier.into_iter().map(|waiter| waiter.client).collect();
                    prop_assert_eq!(earlier, plain.put(Entry { keys, attempt, client: 0, until }));
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
                    plain.0.retain(|entry| !entry.stands(key));
                    prop_assert_eq!(gone, waited);
                }
            }
            let waiting = plain.0.iter().filter(|entry| entry.client != 0).count();
            prop_assert_eq!(queues.waiters(), waiting);
            prop_assert_eq!(queues.places(), plain.0.len() - waiting);
            prop_assert_eq!(queues.ends.len(), plain.0.len());
            prop_assert_eq!(queues.entries.len(), plain.0.len());
            prop_assert_eq!(queues.next_end().map(|end| end.0), plain.0.iter().map(|entry| entry.until).min());
            for key in 0..3 {
                let stands = plain.0.iter().filter(|entry| entry.stands(key)).count();
                prop_assert_eq!(queues.line(0, &name(key)).is_some(), stands > 0);
                let waiting: Vec<u64> = queues.waiting(0, &name(key)).map(|waiter| waiter.client).collect();
                let expected: Vec<u64> = plain.0.iter().filter(|entry| entry.waits(key)).map(|entry| entry.client).collect();
                prop_assert_eq!(queues.length(0, &name(key)).0, waiting.len());
                prop_assert_eq!(waiting, expected);
                let head = queues.line(0, &name(key)).and_then(|line| queues.head(line)).map(|waiter| waiter.client);
                prop_assert_eq!(head, plain.head(key).map(|at| plain.0[at].client));
                for attempt in 0..6 {
                    let own = plain.position(key, attempt).unwrap_or(usize::MAX);
                    let single = |entry: &Entry| entry.waits(key) && entry.keys.len() == 1;
                    let is_ready = queues.line_of(0, &name(key)).is_some_and(|line| line.is_news && line.ready.is_some());
                    let counts = |entry: &Entry| single(entry) || (is_ready && entry.waits(key));
                    let ahead = plain.0.iter().position(counts).is_some_and(|at| at < own);
                    prop_assert_eq!(queues.has_ahead(0, &name(key), id(attempt).filter(|_| attempt != 0)), ahead);
                }
            }
            for line in queues.lines.values() {
                prop_assert!(line.is_waited_for() || line.due.is_none());
                let stands = line.single.union(&line.several).filter_map(|ticket| queues.waiter(*ticket));
                prop_assert_eq!(line.ids.len(), stands.filter(|waiter| waiter.id.is_some()).count() + line.places.len());
            }
        }
    }
}
