//! Clients of the classic pattern: SETNX of a timestamp, GET of an expired one, GETSET to take it over, and DEL before
//! it expires. Some do it wrong, with DEL and then SETNX, to show that the checks find them.

use super::Client;
use crate::history::{Action, Outcome};
use crate::moment::Unix;
use testkit::Reply;

/// How long their leases are, and how much longer contenders wait, like LOCK.* on the same key.
#[derive(Clone, Copy)]
pub struct Pattern {
    pub lease_ms: u64,
    pub margin_ms: u64,
    /// Takes an expired lock with DEL and SETNX.
    pub is_wrong: bool,
}

pub fn work(client: &mut Client<'_>, key: &str, pattern: Pattern) {
    while !client.world.is_over() {
        if let Some(end) = take(client, key, pattern) {
            if client.dice.percent(85) {
                client.sleep_up_to(30);
                // The holder checks before DEL, by the clock that it wrote.
                if client.world.now() < end {
                    client.run(key, Action::ClassicDrop { end }, &["DEL", key]);
                }
            }
        }
        client.sleep_up_to(if pattern.is_wrong { 3 } else { 40 });
    }
}

/// The end of the lease by the client's own clock, if it got the lock.
fn take(client: &mut Client<'_>, key: &str, pattern: Pattern) -> Option<i64> {
    client.link.server()?;
    let lease = i64::try_from(pattern.lease_ms * 1_000).unwrap();
    let beyond = i64::try_from(pattern.margin_ms * 1_000).unwrap();
    let (read_at, unix) = client.world.unix();
    let action = Action::ClassicTake { lease, read_at, is_getset: false };
    match client.run(key, action, &["SETNX", key, &text(unix + lease + beyond)]) {
        Outcome::Granted(_) => return Some(read_at + lease),
        Outcome::Refused => {}
        _ => return None,
    }
    let Some(Reply::Text(value)) = client.link.execute(&["GET", key]) else { return None };
    let (read_at, unix) = client.world.unix();
    if !is_expired(&value, unix) {
        return None;
    }
    let stamp = text(unix + lease + beyond);
    if pattern.is_wrong {
        client.link.execute(&["DEL", key])?;
        let action = Action::ClassicTake { lease, read_at, is_getset: false };
        let outcome = client.run(key, action, &["SETNX", key, &stamp]);
        return matches!(outcome, Outcome::Granted(_)).then_some(read_at + lease);
    }
    let from = client.world.now();
    let outcome = match client.link.execute(&["GETSET", key, &stamp]) {
        None => Outcome::Unknown,
        Some(Reply::Nil) => Outcome::Granted(0),
        Some(Reply::Text(before)) if is_expired(&before, unix) => Outcome::Granted(0),
        Some(Reply::Text(_)) => Outcome::Refused,
        Some(_) => Outcome::Error("refused"),
    };
    client.note(key, Action::ClassicTake { lease, read_at, is_getset: true }, outcome, (from, from));
    matches!(outcome, Outcome::Granted(_)).then_some(read_at + lease)
}

fn text(stamp: Unix) -> String {
    format!("{}.{:06}", stamp / 1_000_000, stamp % 1_000_000)
}

/// A value that is not a number counts as held; clients that read a float are off by less than a microsecond.
fn is_expired(value: &[u8], now: Unix) -> bool {
    let stamp = std::str::from_utf8(value).ok().and_then(|text| text.parse::<f64>().ok());
    let now = std::time::Duration::from_micros(u64::try_from(now).unwrap()).as_secs_f64();
    stamp.is_some_and(|stamp| stamp < now)
}
