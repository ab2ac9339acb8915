//! Clients of LOCK.* on a few keys that all of them use: exclusively, shared, with a limit, or several at once in any
//! order. Some wait without a connection. They extend and release one, some, or all of the locks, even some that they
//! do not hold.

use super::ask::Attempt;
use super::{Client, Habits};
use crate::history::{Action, Outcome, Share};

/// A current or past grant.
#[derive(Clone)]
struct Grant<'a> {
    keys: Vec<&'a str>,
    token: i64,
}

pub fn work(client: &mut Client<'_>, habits: Habits, keys: &[&str]) {
    let mut earlier: Option<Grant<'_>> = None;
    while !client.world.is_over() {
        if let Some((grant, lease_ms)) = take(client, habits, keys) {
            // Its earlier grant has ended: its token must not end another client's grant.
            if let Some(earlier) = earlier.take_if(|_| client.dice.percent(5)) {
                release_all(client, &earlier);
            }
            hold(client, &grant, lease_ms, habits, keys);
            earlier = Some(grant);
        }
        // A client that lost its connection may believe that it still holds its locks.
        let is_lost = client.log.ops.last().is_some_and(|(_, op)| op.outcome == Outcome::Unknown);
        if let Some(grant) = earlier.take_if(|_| is_lost) {
            extend_all(client, &grant, habits);
        }
        client.sleep_up_to(habits.think_ms);
    }
}

/// Between two and all of the keys, in any order.
fn some_keys<'a>(client: &mut Client<'_>, keys: &[&'a str]) -> Vec<&'a str> {
    let mut keys = keys.to_vec();
    for at in (1..keys.len()).rev() {
        let other = client.dice.index(at + 1);
        keys.swap(at, other);
    }
    keys.truncate(2 + client.dice.index(keys.len() - 1));
    keys
}

fn take<'a>(client: &mut Client<'_>, habits: Habits, all: &[&'a str]) -> Option<(Grant<'a>, u64)> {
    let lease_ms = client.dice.between(habits.lease_ms.0, habits.lease_ms.1);
    let wait_ms = if client.dice.percent(75) { client.dice.between(50, 1_500) } else { 0 };
    let one = vec![all[client.dice.index(all.len())]];
    let (keys, share) = match client.dice.below(10) {
        0..=2 => (some_keys(client, all), Share::Alone),
        3 | 4 => (one, Share::Alone),
        5 | 6 => (one, Share::Shared),
        _ => (one, Share::Limit(1 + client.dice.index(4))),
    };
    let with_id = client.dice.percent(85);
    let session = habits.sessions && client.dice.percent(15);
    let notified = with_id && wait_ms > 0 && client.dice.percent(40);
    let token = Attempt { keys: &keys, share, lease_ms, wait_ms, with_id, session, notified }.ask(client)?;
    Some((Grant { keys, token }, lease_ms))
}

fn hold(client: &mut Client<'_>, grant: &Grant<'_>, lease_ms: u64, habits: Habits, all: &[&str]) {
    let Grant { keys, token } = grant;
    let text = token.to_string();
    client.sleep_up_to(habits.hold_ms);
    if client.dice.percent(25) {
        let key = keys[client.dice.index(keys.len())];
        client.run(key, Action::Check { token: *token }, &["LOCK.CHECK", key, &text]);
    }
    match client.dice.below(8) {
        0 | 1 => extend_all(client, grant, habits),
        2 => extend_one(client, grant, habits),
        // The client does not hold one of the keys, so none may change.
        3 => {
            let held = |key: &&&str| keys.contains(*key);
            let more: Vec<&str> = all.iter().filter(|key| !held(key)).take(1).copied().collect();
            extend_all(client, &Grant { keys: [&keys[..], &more].concat(), token: *token }, habits);
            client.run(keys[0], Action::Check { token: *token }, &["LOCK.CHECK", keys[0], &text]);
        }
        _ => {}
    }
    client.sleep_up_to(habits.hold_ms);
    match client.dice.below(20) {
        // The client dies, or forgets its release.
        0 => return,
        // The client stalls past its lease, sometimes past its timestamp, and does not notice that.
        1 => {
            client.sleep_up_to(lease_ms * 3);
            extend_all(client, grant, habits);
        }
        _ => {}
    }
    match client.dice.below(8) {
        // It releases them one by one.
        0 => keys.iter().for_each(|key| release(client, key, *token)),
        // It releases one of them, then all, including the one already released.
        1 => {
            let key = keys[client.dice.index(keys.len())];
            release(client, key, *token);
            release_all(client, grant);
        }
        _ if keys.len() == 1 && client.dice.percent(70) => release(client, keys[0], *token),
        _ => release_all(client, grant),
    }
    // The client has forgotten that it released the locks.
    if client.dice.percent(5) {
        client.sleep_up_to(habits.hold_ms);
        extend_all(client, grant, habits);
    }
}

fn release(client: &mut Client<'_>, key: &str, token: i64) {
    client.run(key, Action::Release { token }, &["LOCK.RELEASE", key, &token.to_string()]);
}

/// LOCK.MRELEASE, in a different order.
fn release_all(client: &mut Client<'_>, grant: &Grant<'_>) {
    let mut keys = grant.keys.clone();
    keys.reverse();
    let (count, token) = (keys.len().to_string(), grant.token.to_string());
    let command = [&["LOCK.MRELEASE", &count], &keys[..], &[&token]].concat();
    client.run_all(&keys, Action::Release { token: grant.token }, &command);
}

fn extend_one(client: &mut Client<'_>, grant: &Grant<'_>, habits: Habits) {
    let (lease, text) = client.lease(habits);
    let key = grant.keys[client.dice.index(grant.keys.len())];
    let command = ["LOCK.EXTEND", key, &grant.token.to_string(), "PX", &text];
    client.run(key, Action::Extend { token: grant.token, lease }, &command);
}

/// LOCK.MEXTEND
fn extend_all(client: &mut Client<'_>, grant: &Grant<'_>, habits: Habits) {
    let (lease, text) = client.lease(habits);
    let (count, token) = (grant.keys.len().to_string(), grant.token.to_string());
    let command = [&["LOCK.MEXTEND", &count], &grant.keys[..], &[&token, "PX", &text]].concat();
    client.run_all(&grant.keys, Action::Extend { token: grant.token, lease }, &command);
}
