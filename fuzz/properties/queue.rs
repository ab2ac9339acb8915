//! The queue against a plain list that does the same slowly.

use redis_lock::lock::queue::{Queues, Waiter};
use redis_lock::lock::record::Id;
use redis_lock::lock::rules::Share;
use redis_lock::lock::time::{Micros, MonotonicMicros, UnixMicros};

/// More places than an input can keep.
const MOST: usize = 10_000;
const KEYS: u8 = 3;

/// Who stands where, in order of arrival, all keys together.
#[derive(Clone, Debug)]
struct Entry {
    key: u8,
    attempt: u8,
    /// Nobody: only a place.
    client: Option<u64>,
    until: u64,
}

/// Every four bytes of the input are a step: what, which key and attempt, which client, when.
pub fn check(input: &[u8]) {
    let mut queues: Queues<u64> = Queues::default();
    let mut plain: Vec<Entry> = Vec::new();
    for step in input.chunks_exact(4).take(400) {
        let (key, attempt, client, time) = (step[1] % KEYS, step[1] / KEYS % 6, u64::from(step[2] % 24), step[3] % 64);
        let keep = (step[2] >= 128).then_some(u64::from(step[2]));
        one_step(&mut queues, &mut plain, step[0] % 10, (key, attempt, client, u64::from(time)), keep);
        compare(&queues, &plain);
    }
    let waiting = plain.iter().filter(|entry| entry.client.is_some()).count();
    assert_eq!(queues.dissolve_all().len(), waiting);
    assert!(queues.is_empty() && queues.next_end().is_none() && queues.next_due().is_none());
    assert!(queues.take_ready().is_none(), "a line that is gone is not looked at");
}

fn id(attempt: u8) -> Option<Id> {
    (attempt != 0).then(|| Id::parse(attempt.to_string().as_bytes()).unwrap())
}

fn position(plain: &[Entry], key: u8, attempt: u8) -> Option<usize> {
    plain.iter().position(|entry| entry.key == key && attempt != 0 && entry.attempt == attempt)
}

/// Puts an entry in the place of its attempt, or at the end; who stood there.
fn put(plain: &mut Vec<Entry>, entry: Entry) -> Option<u64> {
    if let Some(at) = position(plain, entry.key, entry.attempt) {
        return std::mem::replace(&mut plain[at], entry).client;
    }
    plain.push(entry);
    None
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
    plain.iter().position(|entry| entry.key == key && entry.client.is_some())
}

type Who = (u8, u8, u64, u64);

fn one_step(queues: &mut Queues<u64>, plain: &mut Vec<Entry>, step: u8, who: Who, keep: Option<u64>) {
    let (key, attempt, client, time) = who;
    let name = [key];
    let of = |waiter: Option<Waiter<u64>>| waiter.map(|waiter| waiter.client);
    let one = |mut waiters: Vec<Waiter<u64>>| waiters.pop().map(|waiter| waiter.client);
    match step {
        // A client waits for one key at most.
        0..=2 if plain.iter().any(|entry| entry.client == Some(client)) => {}
        0..=2 => {
            let waiter = Waiter {
                handle: client,
                client,
                share: Share::Alone,
                lease: Micros(1),
                id: id(attempt),
                owner: None,
                details: false,
                session: false,
                since: MonotonicMicros(0),
                until: MonotonicMicros(time),
            };
            let resumes = position(plain, key, attempt).is_some_and(|at| plain[at].client.is_none());
            let joined = queues.join(0, &[&name], waiter);
            assert_eq!(joined.resumed, resumes);
            assert_eq!(one(joined.earlier), put(plain, Entry { key, attempt, client: Some(client), until: time }));
        }
        3 => {
            let Some(id) = id(attempt) else { return };
            let earlier = queues.keep_place(0, &[&name], id, MonotonicMicros(time), MOST);
            assert_eq!(one(earlier), put(plain, Entry { key, attempt, client: None, until: time }));
        }
        4 => {
            let left = queues.leave(client, keep.map(MonotonicMicros), MOST);
            let at = plain.iter().position(|entry| entry.client == Some(client));
            assert_eq!(of(left), at.and_then(|at| leave(plain, at, keep)));
        }
        5 => {
            let line = queues.line(0, &name);
            let popped = line.and_then(|line| queues.pop_head(line)).map(|(_, waiter)| waiter.client);
            assert_eq!(popped, head(plain, key).and_then(|at| plain.remove(at).client));
        }
        6 => {
            let Some(id) = id(attempt) else { return };
            let found = queues.forget(0, &name, id);
            let at = position(plain, key, attempt);
            assert_eq!(found.is_some(), at.is_some());
            assert_eq!(of(found.and_then(|(_, waiter)| waiter)), at.and_then(|at| plain.remove(at).client));
        }
        7 => {
            // Who has waited enough, all of them, in the order of their ends; their places stay.
            while let Some(waiter) = queues.time_out(MonotonicMicros(time), keep.map(MonotonicMicros), MOST) {
                let at = plain.iter().position(|entry| entry.client == Some(waiter.client)).unwrap();
                assert!(plain[at].until <= time);
                leave(plain, at, keep);
            }
            plain.retain(|entry| entry.client.is_some() || entry.until > time);
        }
        8 => {
            let Some(line) = queues.line(0, &name) else { return };
            queues.set_due(line, Some(UnixMicros(time)));
            queues.set_ready(line);
            queues.set_due_ready(UnixMicros(u64::from(attempt) * 10));
            assert!(queues.next_due().is_none_or(|due| due.0 > u64::from(attempt) * 10));
            if let Some((line, _)) = queues.take_ready() {
                assert!(queues.head(line).is_some());
            }
        }
        _ => {
            let gone = queues.line(0, &name).map_or(0, |line| queues.dissolve(line).len());
            assert_eq!(gone, plain.iter().filter(|entry| entry.key == key && entry.client.is_some()).count());
            plain.retain(|entry| entry.key != key);
        }
    }
}

fn compare(queues: &Queues<u64>, plain: &[Entry]) {
    let waiting = plain.iter().filter(|entry| entry.client.is_some()).count();
    assert_eq!((queues.waiters(), queues.places()), (waiting, plain.len() - waiting));
    assert_eq!(queues.is_empty(), plain.is_empty());
    assert_eq!(queues.next_end().map(|end| end.0), plain.iter().map(|entry| entry.until).min());
    for key in 0..KEYS {
        let line: Vec<u64> = plain.iter().filter(|entry| entry.key == key).filter_map(|entry| entry.client).collect();
        let found: Vec<u64> = queues.waiting(0, &[key]).map(|waiter| waiter.client).collect();
        assert_eq!(found, line, "the order of arrival");
        assert_eq!(queues.length(0, &[key]).0, line.len());
        assert_eq!(queues.waited_line(0, &[key]).is_some(), !line.is_empty());
        for attempt in 0..6 {
            let own = position(plain, key, attempt).unwrap_or(usize::MAX);
            let is_ahead = head(plain, key).is_some_and(|at| at < own);
            assert_eq!(queues.has_ahead(0, &[key], id(attempt)), is_ahead);
        }
    }
    for client in 0..24 {
        let at = plain.iter().find(|entry| entry.client == Some(client));
        assert_eq!(queues.waits_for(client).map(|wait| wait.names.as_slice()[0][0]), at.map(|entry| entry.key));
    }
}
