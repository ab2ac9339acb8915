//! Leaving the queue one by one: served, timed out, disconnected, or replaced.

use super::{load, Body, Entry, Gone, Handle, Keys, MostPlaces, Place, Position, QueueId, Queues, Ticket, Waiter};
use crate::engine::key_name::KeyName;
use crate::engine::result::LockResult;
use crate::lock::record::Id;
use crate::lock::request::Share;
use crate::lock::time::MonotonicMicros;
use std::rc::Rc;

/// A removed entry, with the keys of a waiter whose end is announced on a channel.
pub(super) struct Removed<H> {
    pub(super) entry: Entry<H>,
    keys: Option<Keys>,
    /// The result that its attempt gets.
    pub(super) result: Option<Rc<LockResult>>,
}

impl<H> Removed<H> {
    pub(super) fn into_gone(self) -> Option<Gone<H>> {
        match self.entry.body {
            Body::Waits(waiter) => Some(Gone { waiter, keys: self.keys, is_kept: false, result: self.result }),
            Body::Keeps(_) | Body::Cancelled(_) => None,
        }
    }
}

impl<H> Queues<H> {
    /// Removes an ID from a key and from the other keys of its attempt. Returns its ticket, and its waiter unless it
    /// only had a reserved place.
    pub fn forget(&mut self, key: KeyName<'_>, id: Id) -> Option<(Ticket, Option<Gone<H>>)> {
        let ticket = self.ticket(key, id)?;
        let removed = self.remove(ticket)?;
        let was_barred = matches!(removed.entry.body, Body::Cancelled(_));
        self.give_up(&removed.entry);
        (!was_barred).then(|| (ticket, removed.into_gone()))
    }

    /// Removes the first waiter of a queue.
    pub fn pop_head(&mut self, queue: QueueId) -> Option<(Ticket, Gone<H>)> {
        let ticket = self.by_id.get(&queue)?.head()?;
        self.end_wait(ticket, None, MostPlaces::NONE).map(|gone| (ticket, gone))
    }

    /// Removes a waiter because it was granted its lock or locks.
    pub fn serve(&mut self, ticket: Ticket) -> Option<Waiter<H>> {
        self.entries.get(&ticket)?.waiter()?;
        self.take_out(ticket, true).and_then(Removed::into_gone).map(|gone| gone.waiter)
    }

    /// Called when a client no longer waits. If it sent an ID, its place is reserved until `kept_until`.
    pub fn leave(&mut self, client: u64, kept_until: Option<MonotonicMicros>, most: MostPlaces) -> Option<Gone<H>> {
        let ticket = *self.clients.get(&client)?;
        self.end_wait(ticket, kept_until, most)
    }

    /// Removes the next waiter or place whose time is up at `now`; `None` if there is none. Returns its keys and the
    /// waiter, whose place is reserved as in [`Queues::leave`].
    pub fn time_out(
        &mut self,
        now: MonotonicMicros,
        kept_until: Option<MonotonicMicros>,
        most: MostPlaces,
    ) -> Option<(Keys, Option<Gone<H>>)> {
        let (_, ticket) = self.ends.first().copied().filter(|(end, _)| *end <= now)?;
        let (_, keys) = self.keys(ticket)?;
        if self.waiter(ticket).is_some() {
            return Some((keys, self.end_wait(ticket, kept_until, most)));
        }
        if let Some(removed) = self.remove(ticket) {
            self.give_up(&removed.entry);
        }
        Some((keys, None))
    }

    /// Called when a reserved place is given up: its attempt has waited in vain, if it waited at all.
    fn give_up(&mut self, entry: &Entry<H>) {
        if let Body::Keeps(Place { since: Some(since), until, .. }) = entry.body {
            self.given_up.push((since, until));
        }
    }

    /// Takes the places given up since the last call: when each attempt began to wait, and the time until which its
    /// place was reserved.
    pub fn take_given_up(&mut self) -> Vec<(MonotonicMicros, MonotonicMicros)> {
        std::mem::take(&mut self.given_up)
    }

    /// Ends a wait. If its attempt sent an ID, its place is reserved until `kept_until`.
    pub fn end_wait(
        &mut self,
        ticket: Ticket,
        kept_until: Option<MonotonicMicros>,
        most: MostPlaces,
    ) -> Option<Gone<H>> {
        self.entries.get(&ticket)?.waiter()?;
        let (db, keys) = self.keys(ticket)?;
        let mut gone = self.remove(ticket)?.into_gone()?;
        // An attempt that gets a result has left for good.
        if let (Some(id), Some(until), None) = (gone.waiter.id, kept_until, &gone.result) {
            let place = Place { id, until, since: Some(gone.waiter.since), wants_result: gone.waiter.wants_result };
            gone.is_kept = self.keep(db, keys, ticket, place, most);
        }
        Some(gone)
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Removed<H>> {
        self.take_out(ticket, false)
    }

    /// Removes a ticket; `granted`: whether it is removed because its lock was granted.
    fn take_out(&mut self, ticket: Ticket, granted: bool) -> Option<Removed<H>> {
        let entry = *self.entries.remove(&ticket)?;
        // This is done before its queue is dropped.
        let has_channel = entry.waiter().is_some_and(|waiter| waiter.channel().is_some());
        let keys = if has_channel { self.keys_of(&entry.position).map(|(_, keys)| keys) } else { None };
        let id = entry.id();
        let size = match &entry.position {
            Position::In(queue) => {
                MostPlaces { keys: 1, bytes: self.by_id.get(queue).map_or(0, |queue| queue.name.len()) }
            }
            Position::Parked { names, .. } => MostPlaces { keys: names.len(), bytes: names.size() },
        };
        let until = match &entry.body {
            Body::Waits(waiter) => {
                match &waiter.handle {
                    Handle::Blocked { client, .. } => {
                        self.clients.remove(client);
                        self.load = self.load.saturating_sub(load(size.bytes));
                    }
                    Handle::Channel { channel, session, .. } => {
                        self.notifiable = self.notifiable.saturating_sub(1);
                        self.queued = self.queued.saturating_sub(size.keys);
                        if let Position::In(queue) | Position::Parked { queue: Some(queue), .. } = &entry.position {
                            self.channels.remove(channel, *queue, ticket, *session);
                        }
                    }
                }
                waiter.until
            }
            Body::Keeps(place) | Body::Cancelled(place) => {
                if matches!(entry.body, Body::Cancelled(_)) {
                    self.barred = self.barred.saturating_sub(1);
                }
                self.placed.keys = self.placed.keys.saturating_sub(size.keys);
                self.placed.bytes = self.placed.bytes.saturating_sub(size.bytes);
                place.until
            }
        };
        self.ends.remove(&(until, ticket));
        let result = match &entry.position {
            Position::In(queue) => self.leave_queue(*queue, ticket, id, granted),
            Position::Parked { db, queue, .. } => {
                if let Some(id) = id {
                    self.forget_attempt(*db, id, ticket);
                }
                queue.and_then(|queue| self.leave_queue(queue, ticket, None, granted))
            }
        };
        if self.entries.is_empty() {
            self.shrink();
        }
        Some(Removed { entry, keys, result })
    }

    fn forget_attempt(&mut self, db: i32, id: Id, ticket: Ticket) {
        if let Some(attempts) = self.attempts.get_mut(&(db, id)) {
            attempts.retain(|own| *own != ticket);
            if attempts.is_empty() {
                self.attempts.remove(&(db, id));
            }
        }
    }

    /// Removes a ticket from its queue. Returns the result that its attempt gets.
    fn leave_queue(
        &mut self,
        id: QueueId,
        ticket: Ticket,
        attempt: Option<Id>,
        granted: bool,
    ) -> Option<Rc<LockResult>> {
        let queue = self.by_id.get_mut(&id)?;
        if let Some(attempt) = attempt {
            queue.ids.remove(&attempt);
        }
        let was_first = queue.single.first() == Some(&ticket);
        let is_queued = queue.single.remove(ticket) || queue.parked.remove(&ticket) || queue.places.remove(ticket);
        let result = if is_queued { None } else { queue.take_delivery(ticket) };
        // The waiter that left may have held up parked waiters.
        let frees_parked = was_first && !granted && !queue.parked.is_empty();
        // The next in the queue may allow more holders than the waiter that left.
        let next = queue.single.first().filter(|_| was_first);
        let shares = next.and_then(|next| self.entries.get(next)?.waiter()).map(|next| next.share);
        if frees_parked || shares.is_some_and(|share| share != Share::Alone) {
            self.set_ready(id);
        }
        self.relist(id);
        self.tidy(id);
        result
    }

    /// Removes a reserved place.
    pub(super) fn forget_place(&mut self, ticket: Ticket) {
        self.remove(ticket);
    }

    /// Drops what a queue no longer needs.
    pub(super) fn tidy(&mut self, id: QueueId) {
        let Some(queue) = self.by_id.get_mut(&id) else { return };
        if queue.is_waited_for() {
            return;
        }
        self.rest(id);
        let Some(queue) = self.by_id.get_mut(&id) else { return };
        if queue.places.is_empty() && queue.deliveries.is_empty() {
            let (db, name, mark) = (queue.db, Rc::clone(&queue.name), queue.mark);
            self.index.remove_if(KeyName { db, name: &name }, mark, |queue| *queue == id);
            self.by_id.remove(&id);
        }
    }

    /// Stops serving a queue.
    pub(super) fn rest(&mut self, id: QueueId) {
        let Some(queue) = self.by_id.get_mut(&id) else { return };
        queue.evicted_until = None;
        queue.last_end = None;
        self.later.remove(&id);
        if let Some(ready) = queue.ready.take() {
            self.ready.remove(&(ready, id));
        }
        if let Some(due) = queue.due.take() {
            self.dues.remove(&(due, id));
        }
        if let Some(since) = queue.held_since.take() {
            self.held.remove(&(since, id));
        }
    }

    /// Frees the memory that many waiters used: maps keep theirs when they become empty.
    fn shrink(&mut self) {
        const FEW: usize = 1_024;
        if self.clients.capacity() > FEW {
            self.clients.shrink_to_fit();
        }
        self.index.shrink();
    }
}
