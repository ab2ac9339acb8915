//! The order of waiters: the first of a queue, and those that are held up by others.

use super::{Cause, Queue, Queues, Ticket};
use crate::engine::key_name::{KeyName, KeyNames};
use crate::lock::record::Id;
use crate::lock::time::UnixMicros;

impl<H> Queues<H> {
    /// Whether somebody is ahead of the attempt `id`, or of a newcomer.
    #[must_use]
    pub fn has_ahead(&self, key: KeyName<'_>, id: Option<Id>) -> bool {
        let Some(queue) = self.queue_of(key) else { return false };
        let (single, parked) = Self::firsts(queue);
        if single.is_none() && parked.is_none() {
            return false;
        }
        let own = id.and_then(|id| self.ticket(key, id));
        Self::is_ahead(single, own) || Self::is_ahead(parked, own)
    }

    fn is_ahead(first: Option<&Ticket>, own: Option<Ticket>) -> bool {
        first.is_some_and(|first| own.is_none_or(|own| *first < own))
    }

    /// Whether a waiter for several locks cannot have this lock, whatever its key holds: a waiter for this lock alone
    /// came earlier, or the key was evicted while the lock was held.
    #[must_use]
    pub fn is_held_up(&self, key: KeyName<'_>, ticket: Ticket, now: UnixMicros) -> bool {
        self.queue_of(key).is_some_and(|queue| {
            let is_evicted = queue.evicted_until.is_some_and(|until| until > now);
            is_evicted || Self::is_ahead(queue.single.first(), Some(ticket))
        })
    }

    /// The first of several keys for which somebody is ahead of the attempt `id`, or of a newcomer.
    #[must_use]
    pub fn first_ahead(&self, keys: KeyNames<'_>, id: Option<Id>) -> Option<usize> {
        let mut own: Option<Vec<Option<Ticket>>> = None;
        keys.iter().enumerate().position(|(at, key)| {
            let (single, parked) = self.queue_of(key).map_or((None, None), Self::firsts);
            if single.is_none() && parked.is_none() {
                return false;
            }
            // One pass over all attempts with this ID finds the tickets of all keys.
            let own = own.get_or_insert_with(|| id.map(|id| self.own_tickets(keys, id)).unwrap_or_default());
            let own = own.get(at).copied().flatten();
            Self::is_ahead(single, own) || Self::is_ahead(parked, own)
        })
    }

    /// The first waiter for this lock alone, and the first parked one if the lock is kept for it.
    fn firsts(queue: &Queue) -> (Option<&Ticket>, Option<&Ticket>) {
        // A lock that became free is also kept for parked waiters until the queue has been served.
        let is_kept = queue.ready.is_some() && queue.cause == Cause::Event;
        (queue.single.first(), queue.parked.first().filter(|_| is_kept))
    }
}
