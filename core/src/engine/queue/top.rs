//! The queues in the orders that operators ask for: by length, by how long the first waiter has been waiting, and by
//! how long the lock has been held.
//!
//! The order by length is kept approximately, because each wait changes a length: queues are listed by the binary
//! logarithm of their length, and queues of about the same length are compared on request. The other two orders are
//! exact, and cost O(log n) when a queue's first waiter or its holder changes.

use super::{Queue, QueueId, Queues};
use crate::engine::key_name::KeyName;
use crate::lock::time::{MonotonicMicros, UnixMicros};
use std::cmp::Reverse;
use std::rc::Rc;

/// How many queues of about the same length are compared to find the longest.
const MOST_COMPARED: usize = 16_384;
/// How many locks whose holders have expired are passed over.
const MOST_EXPIRED: usize = 1_024;

/// An order of queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Most waiters first.
    #[default]
    Waiters,
    /// Queues whose first waiter has waited longest come first.
    Wait,
    /// Longest-held lock first; locks with unknown times come last.
    Held,
}

/// A queue with waiters: a row of LOCK.TOP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRow {
    /// Its database.
    pub db: i32,
    /// The name of its key.
    pub name: Rc<[u8]>,
    /// The number of waiters.
    pub waiters: usize,
    /// When the first of them began to wait.
    pub since: MonotonicMicros,
}

impl QueueRow {
    fn of(queue: &Queue) -> Option<Self> {
        let (db, name, waiters) = (queue.db, Rc::clone(&queue.name), queue.waiters());
        Some(Self { db, name, waiters, since: queue.since()? })
    }

    #[must_use]
    pub fn key(&self) -> KeyName<'_> {
        KeyName { db: self.db, name: &self.name }
    }
}

impl<H> Queues<H> {
    /// The first `most` queues in this order.
    #[must_use]
    pub fn top(&self, by: By, most: usize) -> Vec<QueueRow> {
        let rows = |by_id: &mut dyn Iterator<Item = QueueId>| -> Vec<QueueRow> {
            by_id.filter_map(|id| QueueRow::of(self.by_id.get(&id)?)).take(most).collect()
        };
        let by_wait = self.waiting_since.iter().map(|(_, id)| *id);
        match by {
            By::Waiters => self.longest(most),
            By::Wait => rows(&mut by_wait.into_iter()),
            By::Held => {
                let others = by_wait.filter(|id| self.by_id.get(id).is_some_and(|queue| queue.held_since.is_none()));
                rows(&mut self.held.iter().map(|(_, id)| *id).chain(others))
            }
        }
    }

    /// The queues with the most waiters; among equals, older ones first. Of more than 16,384 queues of about the same
    /// length, only the oldest are compared.
    fn longest(&self, most: usize) -> Vec<QueueRow> {
        let mut by_id: Vec<(&Queue, MonotonicMicros)> = Vec::new();
        for about_as_long in self.by_length.values().rev() {
            let known = about_as_long.iter().take(MOST_COMPARED).filter_map(|id| self.by_id.get(id));
            by_id.extend(known.filter_map(|queue| Some((queue.as_ref(), queue.since()?))));
            if by_id.len() >= most {
                break;
            }
        }
        let order = |(queue, since): &(&Queue, MonotonicMicros)| (Reverse(queue.waiters()), *since);
        if by_id.len() > most {
            by_id.select_nth_unstable_by_key(most, order);
            by_id.truncate(most);
        }
        by_id.sort_by_cached_key(order);
        by_id.into_iter().filter_map(|(queue, _)| QueueRow::of(queue)).collect()
    }

    /// The length of the longest queue; of more than 16,384 queues of about the same length, only the oldest are
    /// compared.
    #[must_use]
    pub fn longest_length(&self) -> usize {
        let Some((length, about_as_long)) = self.by_length.last_key_value() else { return 0 };
        let most = 2_usize.checked_pow(length.saturating_add(1)).map_or(usize::MAX, |next| next.saturating_sub(1));
        let mut longest = 0;
        for queue in about_as_long.iter().take(MOST_COMPARED).filter_map(|id| self.by_id.get(id)) {
            longest = longest.max(queue.waiters());
            if longest >= most {
                break;
            }
        }
        longest
    }

    /// When the longest current wait began.
    #[must_use]
    pub fn oldest_wait(&self) -> Option<MonotonicMicros> {
        self.waiting_since.first().map(|(since, _)| *since)
    }

    /// The time of the oldest grant among locks that somebody waits for. Locks whose holders expired before `now` do
    /// not count.
    #[must_use]
    pub fn oldest_hold(&self, now: UnixMicros) -> Option<UnixMicros> {
        let is_held = |id| self.by_id.get(id).is_some_and(|queue| queue.last_end.is_none_or(|end| end > now));
        self.held.iter().take(MOST_EXPIRED).find(|(_, id)| is_held(id)).map(|(since, _)| *since)
    }

    /// Sets the time since which a queue's lock has been held, according to its key; `None` if nobody holds it or the
    /// time is unknown.
    pub fn set_held(&mut self, id: QueueId, since: Option<UnixMicros>) {
        let Some(queue) = self.by_id.get_mut(&id) else { return };
        if queue.held_since == since || queue.is_lost || !queue.is_waited_for() {
            return;
        }
        if let Some(before) = std::mem::replace(&mut queue.held_since, since) {
            self.held.remove(&(before, id));
        }
        if let Some(since) = since {
            self.held.insert((since, id));
        }
    }

    /// Notes that one of several holders was granted the lock at `since`, until `end`. The last holder to end decides.
    pub fn set_held_among(&mut self, id: QueueId, since: UnixMicros, end: UnixMicros) {
        let last = self.by_id.get(&id).and_then(|queue| queue.last_end);
        if last.is_none_or(|last| end >= last) {
            self.set_held(id, Some(since));
        }
    }

    /// Lists a queue under its length and its first waiter.
    pub(super) fn relist(&mut self, id: QueueId) {
        let Some(queue) = self.by_id.get_mut(&id) else { return };
        let head = queue.head();
        if head != queue.first.map(|(ticket, _)| ticket) {
            let waiter = head.and_then(|head| self.entries.get(&head)?.waiter());
            let first = head.zip(waiter.map(|waiter| waiter.since));
            if let Some((_, since)) = std::mem::replace(&mut queue.first, first) {
                self.waiting_since.remove(&(since, id));
            }
            if let Some((_, since)) = first {
                self.waiting_since.insert((since, id));
            }
        }
        let log_length = queue.waiters().checked_ilog2();
        let before = std::mem::replace(&mut queue.log_length, log_length);
        if before == log_length {
            return;
        }
        if let Some((length, by_id)) = before.and_then(|length| Some((length, self.by_length.get_mut(&length)?))) {
            by_id.remove(&id);
            if by_id.is_empty() {
                self.by_length.remove(&length);
            }
        }
        if let Some(length) = log_length {
            self.by_length.entry(length).or_default().insert(id);
        }
    }
}
