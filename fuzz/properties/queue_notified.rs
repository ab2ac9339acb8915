//! Steps of attempts that are notified on a channel: they join, are cancelled with their channel or one by one, lose
//! their connection, or do not claim their grants.

use super::{
    channel, id, join, leave, name, names, number, position, Entry, Notified, Plain, Share, Who, CHANNELS, MOST,
};
use redis_lock::engine::queue::{Ended, MostPlaces, Place, Queues};
use redis_lock::engine::{KeyName, KeyNames};
use redis_lock::lock::time::MonotonicMicros;

/// The numbers of attempts begin here; smaller numbers are clients.
const FIRST_ATTEMPT: u64 = 1_000;

pub fn step(queues: &mut Queues<u64>, plain: &mut Plain, step: u8, who: Who, keep: Option<u64>) {
    let of_channel = u8::try_from(who.client).unwrap() % CHANNELS;
    let session = (who.client >= 12).then_some(who.client % 4);
    match (step, id(who.attempt)) {
        (0..=3, Some(_)) => {
            let notified = Notified { channel: of_channel, session };
            let client = FIRST_ATTEMPT + plain.steps;
            join(queues, plain, Who { client, ..who }, Some(notified));
        }
        (4, _) => cancel_channel(queues, plain, who.keys[0], of_channel),
        (5, _) => end_session(queues, plain, who.client % 4, keep),
        (6, Some(id)) => {
            let (key, until) = (who.keys[0], who.time);
            queues.bar(KeyName::new(0, name(key)), id, MonotonicMicros(until), MOST);
            if position(&plain.all, key, who.attempt).is_none() {
                let (keys, attempt, share) = (vec![key], who.attempt, who.share);
                plain.all.push(Entry {
                    keys,
                    at: key,
                    attempt,
                    client: None,
                    notified: None,
                    is_bar: true,
                    wants_result: false,
                    share,
                    since: None,
                    until,
                });
            }
        }
        (7, _) if keep.is_some() => restore(queues, plain, who.time),
        (7, _) => {
            queues.skip(&channel(of_channel));
            plain.skipped.insert(of_channel);
        }
        _ => {}
    }
}

/// Cancels all attempts of a channel in a queue, which takes effect at once.
fn cancel_channel(queues: &mut Queues<u64>, plain: &mut Plain, key: u8, of: u8) {
    let is_it = |entry: &Entry| entry.waits(key) && entry.is_notified_on(of);
    let most = plain.all.iter().filter(|entry| is_it(entry)).count();
    assert_eq!(queues.cancel_channel(KeyName::new(0, name(key)), &channel(of)), most);
    assert_eq!(queues.cancel_channel(KeyName::new(0, name(key)), &channel(of)), 0, "they were cancelled before");
    for entry in plain.all.iter().filter(|entry| entry.notified.is_some()) {
        let ticket = queues.ticket(KeyName::new(0, name(entry.keys[0])), id(entry.attempt).unwrap()).unwrap();
        let expected = is_it(entry).then_some(Ended::Cancelled);
        assert_eq!(queues.ended(ticket), expected);
        for own in &entry.keys {
            let is_barred = queues.is_barred(KeyNames::new(0, &[name(*own)]), id(entry.attempt).unwrap());
            assert_eq!(is_barred, expected.is_some() && *own == key, "late copies get nothing either");
        }
    }
    while let Some((ticket, how)) = queues.next_ended() {
        assert_eq!(how, Ended::Cancelled);
        let gone = queues.end_wait(ticket, None, MostPlaces::NONE).unwrap();
        let at = plain.all.iter().position(|entry| entry.client == Some(number(&gone.waiter))).unwrap();
        assert!(is_it(&plain.all[at]));
        assert_eq!(gone.keys.unwrap().iter().collect::<Vec<_>>(), names(&plain.all.remove(at).keys));
    }
    assert!(!plain.all.iter().any(is_it) && !queues.has_leaving());
}

/// Ends a connection, and with it the waits of its attempts.
fn end_session(queues: &mut Queues<u64>, plain: &mut Plain, session: u64, keep: Option<u64>) {
    let is_it = |entry: &Entry| entry.notified.is_some_and(|notified| notified.session == Some(session));
    queues.end_session(session);
    queues.end_session(session);
    while let Some((ticket, how)) = queues.next_ended() {
        assert_eq!((how, queues.ended(ticket)), (Ended::Disconnected, Some(Ended::Disconnected)));
        let gone = queues.end_wait(ticket, keep.map(MonotonicMicros), MOST).unwrap();
        let at = plain.all.iter().position(|entry| entry.client == Some(number(&gone.waiter))).unwrap();
        assert!(is_it(&plain.all[at]));
        leave(&mut plain.all, at, keep);
    }
    assert!(!plain.all.iter().any(is_it));
}

/// Restores the place of the last attempt served, which did not claim its grant, unless its attempt is in another
/// queue.
fn restore(queues: &mut Queues<u64>, plain: &mut Plain, until: u64) {
    let Some((ticket, keys, attempt)) = plain.served.take() else { return };
    let place = Place { id: id(attempt).unwrap(), until: MonotonicMicros(until), since: None, wants_result: false };
    let named = queues.keys_named(KeyNames::new(0, &names(&keys)));
    queues.restore_place(0, named, ticket, place, MOST);
    if keys.iter().any(|key| position(&plain.all, *key, attempt).is_some()) {
        return;
    }
    let ticket_of = |entry: &Entry| match (id(entry.attempt), entry.client) {
        (Some(id), _) => queues.ticket(KeyName::new(0, name(entry.keys[0])), id),
        (None, client) => queues.waits_for(client.unwrap()).map(|wait| wait.ticket),
    };
    let at = plain.all.iter().position(|entry| ticket_of(entry) > Some(ticket)).unwrap_or(plain.all.len());
    let (key, share) = (keys[0], Share::Alone);
    plain.all.insert(
        at,
        Entry {
            keys,
            at: key,
            attempt,
            client: None,
            notified: None,
            is_bar: false,
            share,
            wants_result: false,
            since: None,
            until,
        },
    );
}
