//! The queue against a plain list that does the same slowly. The fuzzer feeds it, and proptest does in the queue's own
//! tests (`core/src/engine/queue_tests.rs`).

use redis_lock::engine::queue::{Gone, Handle, MostPlaces, Next, Queues, ReplyShape, Vacancy, Waiter};
use redis_lock::lock::record::Id;
use redis_lock::lock::rules::Share;
use redis_lock::lock::time::{Micros, MonotonicMicros, UnixMicros};
use std::collections::BTreeSet;

/// More places than an input can keep.
const MOST: MostPlaces = MostPlaces { keys: 10_000, bytes: 100_000 };
const KEYS: u8 = 3;
const ATTEMPTS: u8 = 6;
const SHARES: [Share; 4] = [Share::Alone, Share::Shared, Share::Limit(2), Share::Limit(5)];

/// Who stands where, in order of arrival, all keys together.
#[derive(Clone, Debug)]
struct Entry {
    keys: Vec<u8>,
    /// The key in whose line it waits.
    at: u8,
    attempt: u8,
    /// Nobody: only a place.
    client: Option<u64>,
    share: Share,
    until: u64,
}

impl Entry {
    fn stands(&self, key: u8) -> bool {
        self.keys.contains(&key)
    }

    fn waits(&self, key: u8) -> bool {
        self.client.is_some() && self.at == key
    }

    /// Whether the line of this key is where it stands; the place of one for several keys stands in none.
    fn is_in_line(&self, key: u8) -> bool {
        self.waits(key) || (self.client.is_none() && self.keys == [key])
    }

    /// It waits for this key, and for no other besides.
    fn waits_alone(&self, key: u8) -> bool {
        self.waits(key) && self.keys.len() == 1
    }

    fn same_keys(&self, other: &Self) -> bool {
        self.keys.iter().collect::<BTreeSet<_>>() == other.keys.iter().collect::<BTreeSet<_>>()
    }
}

/// Every four bytes of the input are a step: what, which keys and attempt, which client, when and how shared.
pub fn check(input: &[u8]) {
    check_with(input, |_, _| None);
}

/// `is_kept` says whether the lock of a key is kept for those who are parked there, if the caller can see it. It is
/// asked for each key after each step.
pub fn check_with(input: &[u8], is_kept: impl Fn(&Queues<u64>, &[u8]) -> Option<bool>) {
    let mut queues: Queues<u64> = Queues::default();
    let mut plain: Vec<Entry> = Vec::new();
    for step in input.chunks_exact(4).take(400) {
        let keys = keys(step[1] % KEYS, step[1] / KEYS / ATTEMPTS);
        let who = Who {
            keys,
            at: usize::from(step[3]),
            attempt: step[1] / KEYS % ATTEMPTS,
            client: u64::from(step[2] % 24),
            share: SHARES[usize::from(step[3] / 64)],
            time: u64::from(step[3] % 64),
        };
        let keep = (step[2] >= 128).then_some(u64::from(step[2]));
        one_step(&mut queues, &mut plain, step[0] % 10, who, keep);
        compare(&queues, &plain, &is_kept);
    }
    let waiting = plain.iter().filter(|entry| entry.client.is_some()).count();
    let gone = std::iter::from_fn(|| queues.next_of_all()).flatten().count();
    assert_eq!(gone, waiting);
    assert!(queues.is_empty() && queues.next_end().is_none() && queues.next_due().is_none());
    assert!(queues.take_ready().is_none(), "a line that is gone is not looked at");
}

/// Mostly one key; else two or all of them, in either order.
fn keys(first: u8, which: u8) -> Vec<u8> {
    let [second, third] = [1, 2].map(|ahead| (first + ahead) % KEYS);
    match which {
        8 | 9 => vec![first, second],
        10 | 11 => vec![second, first],
        12 => vec![first, second, third],
        13 => vec![third, second, first],
        _ => vec![first],
    }
}

fn id(attempt: u8) -> Option<Id> {
    (attempt != 0).then(|| Id::parse(attempt.to_string().as_bytes()).unwrap())
}

const NAMES: [&[u8]; KEYS as usize] = [b"\0", b"b", b"\xff"];

fn name(key: u8) -> &'static [u8] {
    NAMES[usize::from(key)]
}

fn names(keys: &[u8]) -> Vec<&'static [u8]> {
    keys.iter().map(|key| name(*key)).collect()
}

fn position(plain: &[Entry], key: u8, attempt: u8) -> Option<usize> {
    plain.iter().position(|entry| entry.stands(key) && attempt != 0 && entry.attempt == attempt)
}

/// Puts an entry in the place of its attempt for the same keys, or at the end: its attempts for other keys end.
/// Who stood there, and whether its place was only kept.
fn put(plain: &mut Vec<Entry>, mut entry: Entry) -> (Vec<u64>, bool) {
    let mut earlier = Vec::new();
    for key in entry.keys.clone() {
        let Some(at) = position(plain, key, entry.attempt) else { continue };
        earlier.extend(plain[at].client);
        if plain[at].same_keys(&entry) {
            std::mem::swap(&mut plain[at], &mut entry);
            return (earlier, entry.client.is_none());
        }
        plain.remove(at);
    }
    plain.push(entry);
    earlier.sort_unstable();
    (earlier, false)
}

/// The wait at `at` ends; with an attempt its place is kept until then.
fn leave(plain: &mut Vec<Entry>, at: usize, keep: Option<u64>) -> Option<u64> {
    match keep {
        Some(until) if plain[at].attempt != 0 => {
            plain[at].until = until;
            plain[at].client.take()
        }
        _ => plain.remove(at).client,
    }
}

fn head(plain: &[Entry], key: u8) -> Option<usize> {
    plain.iter().position(|entry| entry.waits(key))
}

struct Who {
    keys: Vec<u8>,
    /// The number of the key to be parked at, modulo how many there are.
    at: usize,
    attempt: u8,
    client: u64,
    share: Share,
    time: u64,
}

fn one_step(queues: &mut Queues<u64>, plain: &mut Vec<Entry>, step: u8, who: Who, keep: Option<u64>) {
    let Who { keys, at, attempt, client, share, time } = who;
    let key = keys[0];
    let of = |gone: Option<Gone<u64>>| gone.and_then(|gone| gone.waiter.client());
    let all = |waiters: Vec<Gone<u64>>| {
        let mut clients: Vec<u64> = waiters.into_iter().filter_map(|gone| gone.waiter.client()).collect();
        clients.sort_unstable();
        clients
    };
    match step {
        0..=2 => {
            // A client has one wait at most.
            if let Some(entry) = plain.iter_mut().find(|entry| entry.client == Some(client)) {
                return park(queues, entry, at);
            }
            let at = at % keys.len();
            let waiter = Waiter {
                handle: Handle::Blocked { handle: client, client },
                share,
                lease: Micros(1),
                id: id(attempt),
                owner: None,
                shape: ReplyShape::Token,
                session: false,
                since: MonotonicMicros(0),
                until: MonotonicMicros(time),
            };
            let joined = queues.join(0, &names(&keys), at, waiter);
            assert_eq!(joined.line, queues.line(0, name(keys[at])));
            let found = (all(joined.earlier), joined.resumed);
            let at = keys[at];
            assert_eq!(found, put(plain, Entry { keys, at, attempt, client: Some(client), share, until: time }));
        }
        3 => {
            let Some(id) = id(attempt) else { return };
            let earlier = queues.keep_place(0, &names(&keys), id, MonotonicMicros(time), MOST);
            assert_eq!(all(earlier), put(plain, Entry { at: key, keys, attempt, client: None, share, until: time }).0);
        }
        4 => {
            let left = queues.leave(client, keep.map(MonotonicMicros), MOST);
            let at = plain.iter().position(|entry| entry.client == Some(client));
            assert_eq!(of(left), at.and_then(|at| leave(plain, at, keep)));
        }
        5 => {
            let line = queues.line(0, name(key));
            let popped = line.and_then(|line| queues.pop_head(line)).and_then(|(_, gone)| gone.waiter.client());
            assert_eq!(popped, head(plain, key).and_then(|at| plain.remove(at).client));
        }
        6 => {
            let Some(id) = id(attempt) else { return };
            let found = queues.forget(0, name(key), id);
            let at = position(plain, key, attempt);
            assert_eq!(found.is_some(), at.is_some());
            assert_eq!(of(found.and_then(|(_, waiter)| waiter)), at.and_then(|at| plain.remove(at).client));
        }
        7 => {
            // Who has waited enough, all of them, in the order of their ends; their places stay.
            while let Some(gone) = queues.time_out(MonotonicMicros(time), keep.map(MonotonicMicros), MOST) {
                let at = plain.iter().position(|entry| entry.client == gone.waiter.client()).unwrap();
                assert!(plain[at].until <= time);
                leave(plain, at, keep);
            }
            plain.retain(|entry| entry.client.is_some() || entry.until > time);
        }
        8 => look(queues, plain, &keys, UnixMicros(time), keep.is_some()),
        _ => {
            if let Some(line) = queues.line(0, name(key)) {
                queues.lose_line(line);
            }
            let gone = std::iter::from_fn(|| queues.next_lost()).flatten().count();
            assert_eq!(gone, plain.iter().filter(|entry| entry.waits(key)).count());
            plain.retain(|entry| !entry.is_in_line(key));
        }
    }
}

/// Somebody is parked at another of its keys, though nobody has looked at it. There is no key behind the last, and who
/// wants one stays in its line.
fn park(queues: &mut Queues<u64>, entry: &mut Entry, at: usize) {
    let ticket = queues.waits_for(entry.client.unwrap()).unwrap().ticket;
    let at = at % (entry.keys.len() + 1);
    let to = entry.keys.get(at).filter(|_| entry.keys.len() > 1).copied();
    let line = queues.park(ticket, at);
    assert_eq!(line, to.and_then(|key| queues.waited_line(0, name(key))));
    entry.at = to.unwrap_or(entry.at);
}

/// Some lines are ready, by themselves or because it is time. Everybody in them is served, or parked elsewhere, in
/// the order of tickets, whatever line they stand in.
fn look(queues: &mut Queues<u64>, plain: &mut Vec<Entry>, keys: &[u8], time: UnixMicros, serves: bool) {
    queues.set_due_ready(UnixMicros(u64::MAX));
    queues.begin_iteration();
    while let Some((line, _)) = queues.take_ready() {
        assert!(queues.head(line).is_some(), "somebody waits in it");
    }
    assert!(queues.next_due().is_none());
    let ready: Vec<_> = keys.iter().filter_map(|key| Some((*key, queues.waited_line(0, name(*key))?))).collect();
    for (at, (_, line)) in ready.iter().enumerate() {
        if at == 0 {
            queues.set_due(*line, Some(UnixMicros(time.0 + 1)));
            queues.set_due_ready(time);
            assert!(!queues.has_ready(), "it is not time yet");
            queues.set_due_ready(UnixMicros(time.0 + 1));
            assert!(queues.has_ready() && queues.next_due().is_none());
        } else {
            queues.set_ready(*line);
        }
        queues.set_ready(*line);
    }
    // One is due later on: whoever leaves it takes that along.
    if let Some((_, line)) = ready.first() {
        queues.set_due(*line, Some(time));
    }
    let mut last = None;
    while let Some((line, _)) = queues.take_ready() {
        let (ticket, is_parked) = match queues.next(line, Vacancy::Whole) {
            Next::Single(ticket, _) => (ticket, false),
            Next::Parked(ticket) => (ticket, true),
            Next::Later | Next::Nobody => continue,
        };
        assert!(last < Some(ticket), "in the order of tickets");
        last = Some(ticket);
        let client = queues.waiter(ticket).unwrap().client().unwrap();
        let at = plain.iter().position(|entry| entry.client == Some(client)).unwrap();
        let key = ready.iter().find(|(_, ready)| *ready == line).unwrap().0;
        assert_eq!((head(plain, key), plain[at].keys.len() > 1), (Some(at), is_parked));
        assert_eq!(queues.single_head(line).is_some(), !is_parked);
        assert_eq!(queues.parked_head(line), Some(ticket).filter(|_| is_parked));
        let single = match queues.next(line, Vacancy::Part) {
            Next::Single(_, waiter) => waiter.client(),
            _ => None,
        };
        let alone = plain.iter().find(|entry| entry.waits_alone(key));
        assert_eq!(single, alone.and_then(|entry| entry.client), "a share is only for those who want this lock alone");
        for key in 0..KEYS {
            let ahead = plain[..at].iter().any(|entry| entry.waits_alone(key));
            assert_eq!(queues.is_held_up(0, name(key), ticket, UnixMicros(0)), ahead);
        }
        if serves || !is_parked {
            assert_eq!(queues.serve(ticket).and_then(|waiter| waiter.client()), plain.remove(at).client);
            assert_eq!(queues.park(ticket, 0), None, "it is gone");
        } else {
            // It cannot have another one, which nobody looks at now.
            let other = plain[at].keys.iter().position(|other| !ready.iter().any(|(key, _)| key == other));
            let Some(other) = other else { continue };
            assert!(queues.park(ticket, other).is_some());
            plain[at].at = plain[at].keys[other];
        }
        queues.go_on(line);
    }
}

fn compare(queues: &Queues<u64>, plain: &[Entry], is_kept: &impl Fn(&Queues<u64>, &[u8]) -> Option<bool>) {
    let waiting = plain.iter().filter(|entry| entry.client.is_some()).count();
    assert_eq!((queues.waiters(), queues.places()), (waiting, plain.len() - waiting));
    assert_eq!(queues.is_empty(), plain.is_empty());
    assert_eq!(queues.next_end().map(|end| end.0), plain.iter().map(|entry| entry.until).min());
    for key in 0..KEYS {
        let line: Vec<u64> = plain.iter().filter(|entry| entry.waits(key)).filter_map(|entry| entry.client).collect();
        let found: Vec<u64> = queues.waiting(0, name(key)).filter_map(Waiter::client).collect();
        assert_eq!(found, line, "the order of arrival");
        let opened = queues.line(0, name(key));
        assert_eq!(opened.is_some(), plain.iter().any(|entry| entry.is_in_line(key)));
        assert_eq!(opened.and_then(|line| queues.head(line)).and_then(Waiter::client), line.first().copied());
        assert_eq!(queues.length(0, name(key)).0, line.len());
        assert_eq!(queues.waited_line(0, name(key)).is_some(), !line.is_empty());
        let alone = plain.iter().filter(|entry| entry.waits_alone(key));
        let narrowest = alone.map(|entry| entry.share.most()).min().unwrap_or(Share::MOST);
        assert_eq!(queues.narrows(0, name(key)).before(None, Share::Shared), narrowest);
        let is_kept = is_kept(queues, name(key));
        for attempt in 0..ATTEMPTS {
            let own = position(plain, key, attempt).unwrap_or(usize::MAX);
            // Who waits for several counts only where there is news that nobody has looked at.
            let is_ahead = |is_kept: bool| {
                let counts = |entry: &Entry| entry.waits_alone(key) || (is_kept && entry.waits(key));
                plain.iter().position(counts).is_some_and(|at| at < own)
            };
            let found = queues.has_ahead(0, name(key), id(attempt));
            match is_kept {
                Some(is_kept) => assert_eq!(found, is_ahead(is_kept)),
                None => assert!(found == is_ahead(false) || (found == is_ahead(true) && queues.has_ready())),
            }
            let is_waiting = plain.get(own).is_some_and(|entry| entry.client.is_some());
            let Some(id) = id(attempt) else { continue };
            assert_eq!(queues.is_waiting(0, name(key), id), is_waiting);
            assert_eq!(queues.is_waiting_for_any(0, &[b"nobody's", name(key)], id), is_waiting);
        }
    }
    for client in 0..24 {
        let at = plain.iter().find(|entry| entry.client == Some(client));
        let wait = queues.waits_for(client);
        assert_eq!(wait.as_ref().map(|wait| wait.share), at.map(|entry| entry.share));
        let found: Option<Vec<&[u8]>> = wait.as_ref().map(|wait| wait.keys.iter().collect());
        assert_eq!(found, at.map(|entry| names(&entry.keys)));
    }
}
