//! Compares the queue with a plain list that does the same slowly. The fuzzer runs it, and so does proptest in the
//! queue's own tests (`core/src/engine/queue_tests.rs`).

#[path = "queue_list.rs"]
mod list;
#[path = "queue_notified.rs"]
mod notified;

use list::{channels, head, leave, position, put, Entry, Notified};
use redis_lock::engine::budget::Budget;
use redis_lock::engine::queue::{
    Candidate, Channel, Gone, Handle, Leaving, MostPlaces, Of, Place, QueueId, Queues, ReplyShape, Ticket, Waiter,
};
use redis_lock::engine::result::Kept;
use redis_lock::engine::{KeyName, KeyNames};
use redis_lock::lock::record::Id;
use redis_lock::lock::request::Share;
use redis_lock::lock::time::{Micros, MonotonicMicros, UnixMicros};
use std::collections::BTreeSet;
use std::rc::Rc;

/// More places than an input can keep.
const MOST: MostPlaces = MostPlaces { keys: 10_000, bytes: 100_000 };
const KEYS: u8 = 3;
const ATTEMPTS: u8 = 6;
const CHANNELS: u8 = 3;
/// Steps whose first byte is at least this concern attempts that are notified on a channel.
const OF_NOTIFIED: u8 = 200;
const SHARES: [Share; 4] = [Share::Alone, Share::Shared, Share::Limit(2), Share::Limit(5)];

/// The plain list.
#[derive(Default)]
struct Plain {
    all: Vec<Entry>,
    /// The skipped channels.
    skipped: BTreeSet<u8>,
    /// The last attempt served: its ticket and its keys.
    served: Option<(Ticket, Vec<u8>, u8)>,
    /// The number of steps so far.
    steps: u64,
}

/// Every four bytes of the input are a step: the action, the keys and attempt, the client, the time and the share.
pub fn check(input: &[u8]) {
    check_with(input, |_, _| None);
}

/// `is_kept` returns whether a key's lock is kept for the waiters parked there, if the caller can see that. It is
/// called for each key after each step.
pub fn check_with(input: &[u8], is_kept: impl Fn(&Queues<u64>, &[u8]) -> Option<bool>) {
    let mut queues: Queues<u64> = Queues::default();
    let mut plain = Plain::default();
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
        plain.steps += 1;
        if step[0] >= OF_NOTIFIED {
            notified::step(&mut queues, &mut plain, step[0] % 8, who, keep);
        } else {
            one_step(&mut queues, &mut plain, step[0] % 11, who, keep);
        }
        // A channel is known as long as one of its attempts waits.
        let known = channels(plain.all.iter());
        plain.skipped.retain(|channel| known.contains(channel));
        compare(&queues, &plain, &is_kept);
    }
    let waiting = plain.all.iter().filter(|entry| entry.client.is_some()).count();
    let gone = std::iter::from_fn(|| queues.next_of_all()).filter(|(_, gone)| gone.is_some()).count();
    assert_eq!(gone, waiting);
    assert!(queues.is_empty() && queues.next_end().is_none() && queues.next_due().is_none());
    assert!(!queues.has_sessions() && !queues.has_leaving() && queues.queued() == 0);
    assert!(queues.take_ready().is_none(), "a dropped queue is not ready");
}

/// Usually one key, otherwise two or all of them, in either order.
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

struct Who {
    keys: Vec<u8>,
    /// The number of the key to be parked at, modulo the number of keys.
    at: usize,
    attempt: u8,
    client: u64,
    share: Share,
    time: u64,
}

/// The number of a waiter, stored in its lease, which the queue never reads.
fn number(waiter: &Waiter<u64>) -> u64 {
    waiter.lease.0
}

fn numbers(gone: &[Gone<u64>]) -> Vec<u64> {
    let mut numbers: Vec<u64> = gone.iter().map(|gone| number(&gone.waiter)).collect();
    numbers.sort_unstable();
    numbers
}

fn channel(number: u8) -> Rc<Channel> {
    Rc::new(Channel { name: [b'C', number][..].into(), is_sharded: number == 0 })
}

/// Lets an attempt begin to wait: blocked, or notified on a channel.
fn join(queues: &mut Queues<u64>, plain: &mut Plain, who: Who, notified: Option<Notified>) {
    let Who { keys, at, attempt, client, share, time } = who;
    let at = at % keys.len();
    // Only for the whole lock.
    let wants_result = keys.len() == 1 && share == Share::Alone && time % 2 == 1;
    let handle = match notified {
        None => Handle::Blocked { handle: client, client },
        Some(Notified { channel: number, session, .. }) => {
            Handle::Channel { channel: channel(number), session, sent: MonotonicMicros(plain.steps) }
        }
    };
    let waiter = Waiter {
        handle,
        share,
        lease: Micros(client),
        id: id(attempt),
        owner: None,
        shape: ReplyShape::Token,
        session: false,
        wants_result,
        since: MonotonicMicros(plain.steps),
        until: MonotonicMicros(time),
    };
    let joined = queues.join(KeyNames::new(0, &names(&keys)), at, waiter);
    assert_eq!(joined.queue, queues.queue(KeyName::new(0, name(keys[at]))));
    let found = (numbers(&joined.earlier), joined.resumed);
    let at = keys[at];
    let since = Some(plain.steps);
    let entry = Entry {
        keys,
        at,
        attempt,
        client: Some(client),
        notified,
        is_bar: false,
        share,
        wants_result,
        since,
        until: time,
    };
    assert_eq!(found, put(&mut plain.all, entry));
    if let Some(notified) = notified {
        plain.skipped.remove(&notified.channel);
    }
}

fn one_step(queues: &mut Queues<u64>, plain: &mut Plain, step: u8, who: Who, keep: Option<u64>) {
    if step <= 2 {
        // A client has at most one wait.
        return match plain.all.iter_mut().find(|entry| entry.client == Some(who.client)) {
            Some(entry) => park(queues, entry, who.at),
            None => join(queues, plain, who, None),
        };
    }
    if step == 9 {
        return share_result(queues, &mut plain.all, who.keys[0], keep.is_some());
    }
    if step == 8 {
        return try_to_serve(queues, plain, &who.keys, UnixMicros(who.time), keep.is_some());
    }
    let plain = &mut plain.all;
    let Who { keys, attempt, client, share, time, .. } = who;
    let key = keys[0];
    let of = |gone: Option<Gone<u64>>| gone.map(|gone| number(&gone.waiter));
    match step {
        3 => {
            let Some(id) = id(attempt) else { return };
            let wants_result = time % 2 == 1 && keys.len() == 1;
            let earlier = queues.keep_place(
                KeyNames::new(0, &names(&keys)),
                Place { id, until: MonotonicMicros(time), since: None, wants_result: time % 2 == 1 && keys.len() == 1 },
                MOST,
            );
            let place = Entry {
                at: key,
                keys,
                attempt,
                client: None,
                notified: None,
                is_bar: false,
                share,
                wants_result,
                since: None,
                until: time,
            };
            assert_eq!(numbers(&earlier), put(plain, place).0);
        }
        4 => {
            let left = queues.leave(client, keep.map(MonotonicMicros), MOST);
            let at = plain.iter().position(|entry| entry.client == Some(client));
            assert_eq!(of(left), at.and_then(|at| leave(plain, at, keep)));
        }
        5 => {
            let queue = queues.queue(KeyName::new(0, name(key)));
            let popped = of(queue.and_then(|queue| queues.pop_head(queue)).map(|(_, gone)| gone));
            assert_eq!(popped, head(plain, key).and_then(|at| plain.remove(at).client));
        }
        6 => {
            let Some(id) = id(attempt) else { return };
            let found = queues.forget(KeyName::new(0, name(key)), id);
            let at = position(plain, key, attempt);
            assert_eq!(found.is_some(), at.is_some_and(|at| !plain[at].is_bar));
            assert_eq!(of(found.and_then(|(_, waiter)| waiter)), at.and_then(|at| plain.remove(at).client));
        }
        7 => {
            // All attempts whose waits have ended, in order of their ends; their places stay.
            while let Some((_, ended)) = queues.time_out(MonotonicMicros(time), keep.map(MonotonicMicros), MOST) {
                let Some(gone) = ended else { continue };
                let at = plain.iter().position(|entry| entry.client == Some(number(&gone.waiter))).unwrap();
                assert!(plain[at].until <= time);
                leave(plain, at, keep);
            }
            plain.retain(|entry| entry.client.is_some() || entry.until > time);
        }
        _ => {
            if let Some(queue) = queues.queue(KeyName::new(0, name(key))) {
                queues.lose_queue(queue);
            }
            let gone = std::iter::from_fn(|| queues.next_lost()).filter(|(_, gone)| gone.is_some()).count();
            assert_eq!(gone, plain.iter().filter(|entry| entry.waits(key)).count());
            plain.retain(|entry| !entry.is_in_queue(key));
        }
    }
}

/// Lets all attempts that want a key's result leave with it; without `all`, only the blocked clients.
fn share_result(queues: &mut Queues<u64>, plain: &mut Vec<Entry>, key: u8, all: bool) {
    let place = KeyName::new(0, name(key));
    let gets_it = |entry: &Entry| entry.wants_result && entry.keys == [key] && (all || entry.is_blocked());
    let unblocked = |entry: &&Entry| entry.wants_result && entry.keys == [key] && !entry.is_blocked();
    assert_eq!(queues.unblocked_for_result(place), plain.iter().filter(unblocked).count());
    assert_eq!(queues.wants_result(place), plain.iter().any(|entry| entry.wants_result && entry.keys == [key]));
    // The hand-off is decided as if they had left.
    if let Some(queue) = queues.awaited_queue(place) {
        let next = match queues.candidate(queue, false, Of::Head(Leaving::Wanting { all })) {
            Some(Candidate::Single(_, waiter)) => Some(number(waiter)),
            _ => None,
        };
        let heir = plain.iter().filter(|entry| !gets_it(entry)).find(|entry| entry.waits(key));
        assert_eq!(next, heir.filter(|heir| heir.keys.len() == 1).and_then(|heir| heir.client));
    }
    let result = Kept::default().result(place, b"42", MonotonicMicros(9));
    queues.share_result(place, Rc::clone(&result), all);
    let mut expected: Vec<Entry> = plain.iter().filter(|entry| gets_it(entry)).cloned().collect();
    plain.retain(|entry| !gets_it(entry));
    assert_eq!(queues.has_results(), !expected.is_empty());
    // They wait no longer, even before they are removed.
    let waiting: Vec<u64> = queues.waiting(place).map(number).collect();
    assert!(waiting.into_iter().eq(plain.iter().filter(|entry| entry.waits(key)).filter_map(|entry| entry.client)));
    for entry in &expected {
        if entry.is_blocked() {
            assert!(queues.waits_for(entry.client.unwrap()).is_none());
        }
        if let Some(id) = id(entry.attempt) {
            assert!(queues.ticket_with_result(place, id).is_some());
        }
    }
    // One of them disconnects first.
    if let Some(at) = expected.iter().position(Entry::is_blocked) {
        let gone = queues.leave(expected.remove(at).client.unwrap(), Some(MonotonicMicros(9)), MOST).unwrap();
        assert!(!gone.is_kept && gone.result.as_ref() == Some(&result));
    }
    while let Some(ticket) = queues.next_result() {
        let (client, attempt) = if queues.waiter(ticket).is_some() {
            let gone = queues.end_wait(ticket, None, MostPlaces::NONE).unwrap();
            assert_eq!(gone.result.as_ref(), Some(&result));
            (Some(number(&gone.waiter)), gone.waiter.id)
        } else {
            let (id, found) = queues.take_place_with_result(ticket).unwrap();
            assert_eq!(found, result);
            (None, Some(id))
        };
        let at = expected.iter().position(|entry| entry.client == client && id(entry.attempt) == attempt).unwrap();
        expected.remove(at);
    }
    assert!(expected.is_empty() && !queues.has_results());
}

/// Parks an attempt at another of its keys without trying it. The last key has no successor, and an attempt for one key
/// stays in its queue.
fn park(queues: &mut Queues<u64>, entry: &mut Entry, at: usize) {
    let ticket = queues.waits_for(entry.client.unwrap()).unwrap().ticket;
    let at = at % (entry.keys.len() + 1);
    let to = entry.keys.get(at).filter(|_| entry.keys.len() > 1).copied();
    let queue = queues.park(ticket, at);
    assert_eq!(queue, to.and_then(|key| queues.awaited_queue(KeyName::new(0, name(key)))));
    entry.at = to.unwrap_or(entry.at);
}

/// Makes some queues ready, through an event or because they are due. All attempts in them are served or parked
/// elsewhere, in ticket order across queues.
fn try_to_serve(queues: &mut Queues<u64>, plain: &mut Plain, keys: &[u8], time: UnixMicros, serves: bool) {
    let Plain { all: plain, served, .. } = plain;
    let mut all = Budget::of(usize::MAX);
    queues.set_due_ready(UnixMicros(u64::MAX), &mut all);
    queues.begin_iteration(&mut all);
    while let Some((queue, _)) = queues.take_ready() {
        assert!(queues.head(queue).is_some(), "somebody waits in it");
    }
    assert!(queues.next_due().is_none());
    let ready: Vec<_> =
        keys.iter().filter_map(|key| Some((*key, queues.awaited_queue(KeyName::new(0, name(*key)))?))).collect();
    for (at, (_, queue)) in ready.iter().enumerate() {
        if at == 0 {
            queues.set_due(*queue, Some(UnixMicros(time.0 + 1)));
            queues.set_due_ready(time, &mut all);
            assert!(!queues.has_ready(), "it is not time yet");
            queues.set_due_ready(UnixMicros(time.0 + 1), &mut all);
            assert!(queues.has_ready() && queues.next_due().is_none());
        } else {
            queues.set_ready(*queue);
        }
        queues.set_ready(*queue);
    }
    // One queue is due later; its last waiter takes the due time with it when it leaves.
    if let Some((_, queue)) = ready.first() {
        queues.set_due(*queue, Some(time));
    }
    let mut last = None;
    while let Some((queue, _)) = queues.take_ready() {
        let (ticket, is_parked) = match queues.candidate(queue, true, Of::All) {
            Some(Candidate::Single(ticket, _)) => (ticket, false),
            Some(Candidate::Parked(ticket)) => (ticket, true),
            None => continue,
        };
        assert!(last < Some(ticket), "in ticket order");
        last = Some(ticket);
        let client = number(queues.waiter(ticket).unwrap());
        let at = plain.iter().position(|entry| entry.client == Some(client)).unwrap();
        let key = ready.iter().find(|(_, ready)| *ready == queue).unwrap().0;
        assert_eq!((head(plain, key), plain[at].keys.len() > 1), (Some(at), is_parked));
        assert_eq!(queues.single_head(queue).is_some(), !is_parked);
        assert_eq!(queues.parked_head(queue), Some(ticket).filter(|_| is_parked));
        let single = match queues.candidate(queue, false, Of::All) {
            Some(Candidate::Single(_, waiter)) => Some(number(waiter)),
            _ => None,
        };
        let alone = plain.iter().find(|entry| entry.waits_alone(key));
        assert_eq!(single, alone.and_then(|entry| entry.client), "a share is only for waiters for this lock alone");
        check_blocked(queues, plain, queue, key);
        for key in 0..KEYS {
            let ahead = plain[..at].iter().any(|entry| entry.waits_alone(key));
            assert_eq!(queues.is_held_up(KeyName::new(0, name(key)), ticket, UnixMicros(0)), ahead);
        }
        if serves || !is_parked {
            let entry = plain.remove(at);
            assert_eq!(queues.serve(ticket).map(|waiter| number(&waiter)), entry.client);
            *served = (entry.attempt != 0).then_some((ticket, entry.keys, entry.attempt));
            assert_eq!(queues.park(ticket, 0), None, "it is gone");
        } else {
            // It cannot have another of its keys, which nothing reads now.
            let other = plain[at].keys.iter().position(|other| !ready.iter().any(|(key, _)| key == other));
            let Some(other) = other else { continue };
            assert!(queues.park(ticket, other).is_some());
            plain[at].at = plain[at].keys[other];
        }
        queues.go_on(queue);
    }
}

/// Checks that only blocked clients are served when the server is out of memory: the first of them, unless an earlier
/// attempt for this lock alone holds it up.
fn check_blocked(queues: &mut Queues<u64>, plain: &[Entry], queue: QueueId, key: u8) {
    let next = |queues: &mut Queues<u64>, is_nobodys| match queues.candidate(queue, is_nobodys, Of::Blocked) {
        Some(Candidate::Single(ticket, _) | Candidate::Parked(ticket)) => queues.waiter(ticket).map(number),
        None => None,
    };
    let first_alone = plain.iter().position(|entry| entry.waits_alone(key)).unwrap_or(usize::MAX);
    let blocked = |entry: &&Entry| entry.waits_alone(key) && entry.is_blocked();
    let parked = plain.iter().take(first_alone).find(|entry| entry.waits(key) && entry.is_blocked());
    let single = plain.iter().find(blocked);
    assert_eq!(next(queues, false), single.and_then(|entry| entry.client));
    assert_eq!(next(queues, true), parked.or(single).and_then(|entry| entry.client));
}

fn compare(queues: &Queues<u64>, plain: &Plain, is_kept: &impl Fn(&Queues<u64>, &[u8]) -> Option<bool>) {
    let Plain { all: plain, skipped, .. } = plain;
    let notified = || plain.iter().filter_map(|entry| Some((entry, entry.notified?)));
    assert_eq!(queues.blocked(), plain.iter().filter(|entry| entry.is_blocked()).count());
    assert_eq!(queues.queued(), notified().map(|(entry, _)| entry.keys.len()).sum::<usize>());
    assert_eq!(queues.has_sessions(), notified().any(|(_, notified)| notified.session.is_some()));
    for number in 0..CHANNELS {
        assert_eq!(queues.is_skipped(&channel(number)), skipped.contains(&number));
    }
    let waiting = plain.iter().filter(|entry| entry.client.is_some()).count();
    assert_eq!((queues.waiters(), queues.places()), (waiting, plain.len() - waiting));
    assert_eq!(queues.is_empty(), plain.is_empty());
    assert_eq!(queues.next_end().map(|end| end.0), plain.iter().map(|entry| entry.until).min());
    for key in 0..KEYS {
        let queue: Vec<u64> = plain.iter().filter(|entry| entry.waits(key)).filter_map(|entry| entry.client).collect();
        let found: Vec<u64> = queues.waiting(KeyName::new(0, name(key))).map(number).collect();
        assert_eq!(found, queue, "the order of arrival");
        let since: Vec<u64> = plain.iter().filter(|entry| entry.waits(key)).filter_map(|entry| entry.since).collect();
        let found: Vec<u64> = queues.waiting(KeyName::new(0, name(key))).map(|waiter| waiter.since.0).collect();
        assert_eq!(found, since, "a resent command is not a newcomer");
        let opened = queues.queue(KeyName::new(0, name(key)));
        assert_eq!(opened.is_some(), plain.iter().any(|entry| entry.is_in_queue(key)));
        assert_eq!(opened.and_then(|queue| queues.head(queue)).map(number), queue.first().copied());
        assert_eq!(queues.length(KeyName::new(0, name(key))).0, queue.len());
        assert_eq!(queues.awaited_queue(KeyName::new(0, name(key))).is_some(), !queue.is_empty());
        let alone = plain.iter().filter(|entry| entry.waits_alone(key) && entry.is_blocked());
        let narrowest = alone.map(|entry| entry.share.most()).min().unwrap_or(Share::MOST);
        assert_eq!(queues.narrows(KeyName::new(0, name(key)), usize::MAX).0.before(None, Share::Shared), narrowest);
        let is_kept = is_kept(queues, name(key));
        for attempt in 0..ATTEMPTS {
            let own = position(plain, key, attempt).unwrap_or(usize::MAX);
            // An attempt for several keys counts only at a key with a reported change that has not been inspected.
            let is_ahead = |is_kept: bool| {
                let counts = |entry: &Entry| entry.waits_alone(key) || (is_kept && entry.waits(key));
                plain.iter().position(counts).is_some_and(|at| at < own)
            };
            let found = queues.has_ahead(KeyName::new(0, name(key)), id(attempt));
            match is_kept {
                Some(is_kept) => assert_eq!(found, is_ahead(is_kept)),
                None => assert!(found == is_ahead(false) || (found == is_ahead(true) && queues.has_ready())),
            }
            let is_waiting = plain.get(own).is_some_and(|entry| entry.client.is_some());
            let Some(id) = id(attempt) else { continue };
            assert_eq!(queues.is_waiting(KeyName::new(0, name(key)), id), is_waiting);
            let is_barred = plain.get(own).is_some_and(|entry| entry.is_bar);
            assert_eq!(queues.is_barred(KeyNames::new(0, &[b"nobody's", name(key)]), id), is_barred);
            assert_eq!(queues.is_waiting_for_any(KeyNames::new(0, &[b"nobody's", name(key)]), id), is_waiting);
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
