//! Attempts that were cancelled: late copies of their commands get nothing for a while.

use super::{Body, Ended, MostPlaces, Place, Queues, Ticket};
use crate::engine::key_name::{KeyName, KeyNames};
use crate::lock::record::Id;
use crate::lock::time::MonotonicMicros;

impl<H> Queues<H> {
    /// Bars an attempt from a key until `until`, within the limits `most`. Its place and its wait have ended.
    pub fn bar(&mut self, key: KeyName<'_>, id: Id, until: MonotonicMicros, most: MostPlaces) {
        let keys = self.keys_named(KeyNames { db: key.db, names: &[key.name] });
        if self.ticket(key, id).is_some() || !self.has_room(&keys, most) {
            return;
        }
        let ticket = Ticket(self.next_number());
        self.barred = self.barred.saturating_add(1);
        self.ends.insert((until, ticket));
        self.insert_entry(
            key.db,
            keys,
            None,
            ticket,
            Body::Cancelled(Place { id, until, since: None, wants_result: false }),
        );
    }

    /// Whether an attempt is barred from one of these keys.
    #[must_use]
    pub fn is_barred(&self, keys: KeyNames<'_>, id: Id) -> bool {
        if self.barred == 0 && !self.has_leaving() {
            return false;
        }
        let bars = |ticket: &Ticket| {
            let is_barred = self.entries.get(ticket).is_some_and(|entry| matches!(entry.body, Body::Cancelled(_)));
            is_barred || self.ended(*ticket) == Some(Ended::Cancelled)
        };
        keys.iter().any(|key| self.queue_of(key).and_then(|queue| queue.ids.get(&id)).is_some_and(bars))
            || self.is_barred_as_parked(keys, id)
    }

    /// Whether an attempt for several keys was cancelled in the queue of one of these keys, and has not left yet.
    fn is_barred_as_parked(&self, keys: KeyNames<'_>, id: Id) -> bool {
        let attempts = self.attempts.get(&(keys.db, id));
        attempts.into_iter().flatten().any(|ticket| {
            let queue = || self.by_id.get(&self.queue_of_ticket(*ticket)?);
            self.ended(*ticket) == Some(Ended::Cancelled)
                && queue().is_some_and(|queue| keys.names.contains(&&*queue.name))
        })
    }
}
