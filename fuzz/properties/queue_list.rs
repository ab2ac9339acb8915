//! The plain list that the queue is compared with: all waiters and places of all keys, in order of arrival.

use redis_lock::lock::request::Share;
use std::collections::BTreeSet;

/// An attempt that is notified on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notified {
    pub channel: u8,
    /// The wait ends when this connection closes.
    pub session: Option<u64>,
}

/// The attempts and their places.
#[derive(Clone, Debug)]
pub struct Entry {
    pub keys: Vec<u8>,
    /// The key in whose queue it waits.
    pub at: u8,
    pub attempt: u8,
    /// The number of the blocked client, or of the attempt to notify. `None`: only a place, or a bar.
    pub client: Option<u64>,
    pub notified: Option<Notified>,
    /// Whether it was cancelled: it has no place, but late copies of its commands get nothing.
    pub is_bar: bool,
    pub share: Share,
    /// Whether it takes the holder's result instead of the lock.
    pub wants_result: bool,
    /// When the attempt began to wait, across all of its commands; unknown for a place that was only reserved.
    pub since: Option<u64>,
    pub until: u64,
}

impl Entry {
    pub fn is_queued_for(&self, key: u8) -> bool {
        self.keys.contains(&key)
    }

    pub fn waits(&self, key: u8) -> bool {
        self.client.is_some() && self.at == key
    }

    /// Whether it is in this key's queue; the place of an attempt for several keys is not in a queue.
    pub fn is_in_queue(&self, key: u8) -> bool {
        self.waits(key) || (self.client.is_none() && self.keys == [key])
    }

    /// Whether it waits for this key alone.
    pub fn waits_alone(&self, key: u8) -> bool {
        self.waits(key) && self.keys.len() == 1
    }

    pub fn is_blocked(&self) -> bool {
        self.client.is_some() && self.notified.is_none()
    }

    /// Whether it is notified on this channel.
    pub fn is_notified_on(&self, channel: u8) -> bool {
        self.notified.is_some_and(|notified| notified.channel == channel)
    }

    fn same_keys(&self, other: &Self) -> bool {
        self.keys.iter().collect::<BTreeSet<_>>() == other.keys.iter().collect::<BTreeSet<_>>()
    }
}

pub fn position(plain: &[Entry], key: u8, attempt: u8) -> Option<usize> {
    plain.iter().position(|entry| entry.is_queued_for(key) && attempt != 0 && entry.attempt == attempt)
}

/// Puts an entry in the place of its attempt for the same keys, or at the end: its attempts for other keys end. Returns
/// the previous entry, and whether only its place was kept. If both are notified on a channel, they are the same
/// attempt, and no earlier wait has ended.
pub fn put(plain: &mut Vec<Entry>, mut entry: Entry) -> (Vec<u64>, bool) {
    let mut earlier = Vec::new();
    for key in entry.keys.clone() {
        let Some(at) = position(plain, key, entry.attempt) else { continue };
        if plain[at].same_keys(&entry) {
            entry.since = plain[at].since.or(entry.since);
            if plain[at].notified.is_none() || entry.notified.is_none() {
                earlier.extend(plain[at].client);
            }
            std::mem::swap(&mut plain[at], &mut entry);
            return (earlier, entry.client.is_none());
        }
        earlier.extend(plain[at].client);
        plain.remove(at);
    }
    plain.push(entry);
    earlier.sort_unstable();
    (earlier, false)
}

/// Ends the wait at `at`; if it belongs to an attempt, its place is kept until `keep`.
pub fn leave(plain: &mut Vec<Entry>, at: usize, keep: Option<u64>) -> Option<u64> {
    match keep {
        Some(until) if plain[at].attempt != 0 => {
            plain[at].until = until;
            plain[at].notified = None;
            plain[at].client.take()
        }
        _ => plain.remove(at).client,
    }
}

/// The first in the queue of a key.
pub fn head(plain: &[Entry], key: u8) -> Option<usize> {
    plain.iter().position(|entry| entry.waits(key))
}

/// The channels of the given attempts.
pub fn channels<'p>(plain: impl Iterator<Item = &'p Entry>) -> BTreeSet<u8> {
    plain.filter_map(|entry| entry.notified).map(|notified| notified.channel).collect()
}
