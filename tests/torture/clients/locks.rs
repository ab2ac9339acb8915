//! Clients of LOCK.*: they wait or not, repeat commands with an ID, hold, extend, check, release in time or too late or
//! never, and die at any moment.

use super::ask::Attempt;
use super::{Client, Habits};
use crate::history::{Action, Outcome, Share};

/// Works on the keys that `next_key` returns; `None` means not now.
pub fn work(client: &mut Client<'_>, habits: Habits, next_key: &dyn Fn() -> Option<String>) {
    let mut earlier: Option<(String, i64)> = None;
    while !client.world.is_over() {
        if let Some(key) = next_key() {
            if let Some((token, lease)) = take(client, &key, habits) {
                hold(client, &key, token, lease, habits);
                earlier = Some((key, token));
            }
        }
        // A client that lost its connection may believe that it still holds its locks.
        let is_lost = client.log.ops.last().is_some_and(|(_, op)| op.outcome == Outcome::Unknown);
        if let Some((key, token)) = earlier.take_if(|_| is_lost) {
            extend(client, &key, token, habits);
        }
        client.sleep_up_to(habits.think_ms);
    }
}

fn take(client: &mut Client<'_>, key: &str, habits: Habits) -> Option<(i64, u64)> {
    let lease_ms = client.dice.between(habits.lease_ms.0, habits.lease_ms.1);
    let lease = i64::try_from(lease_ms * 1_000).unwrap();
    if client.dice.percent(5) {
        let command = ["LOCK.RECOVER", key, "PX", &lease_ms.to_string()];
        return token_of(client.run(key, Action::Recover { lease }, &command)).map(|token| (token, lease_ms));
    }
    let wait_ms = if client.dice.percent(70) { client.dice.between(50, 900) } else { 0 };
    let with_id = client.dice.percent(60);
    let session = habits.sessions && client.dice.percent(15);
    let attempt = Attempt { keys: &[key], share: Share::Alone, lease_ms, wait_ms, with_id, session, notified: false };
    attempt.ask(client).map(|token| (token, lease_ms))
}

fn token_of(outcome: Outcome) -> Option<i64> {
    match outcome {
        Outcome::Granted(token) => Some(token),
        _ => None,
    }
}

fn hold(client: &mut Client<'_>, key: &str, token: i64, lease_ms: u64, habits: Habits) {
    let text = token.to_string();
    client.sleep_up_to(habits.hold_ms);
    if client.dice.percent(25) {
        client.run(key, Action::Check { token }, &["LOCK.CHECK", key, &text]);
    }
    if client.dice.percent(25) {
        extend(client, key, token, habits);
        client.sleep_up_to(habits.hold_ms);
    }
    match client.dice.below(20) {
        // The client dies, or forgets its release.
        0 => return,
        // The client stalls past its lease, sometimes past its timestamp, and does not notice that.
        1 => {
            client.sleep_up_to(lease_ms * 3);
            extend(client, key, token, habits);
        }
        _ => {}
    }
    client.run(key, Action::Release { token }, &["LOCK.RELEASE", key, &text]);
    // The client has forgotten that it released the lock.
    if client.dice.percent(5) {
        client.sleep_up_to(habits.hold_ms);
        extend(client, key, token, habits);
    }
}

fn extend(client: &mut Client<'_>, key: &str, token: i64, habits: Habits) {
    let (lease, text) = client.lease(habits);
    client.run(key, Action::Extend { token, lease }, &["LOCK.EXTEND", key, &token.to_string(), "PX", &text]);
}
