//! Joining queues, and reserving places in them.

use super::removal::Removed;
use super::tickets::Tickets;
use super::{
    load, Body, Cause, Entry, Gone, Handle, Joined, Keys, Mark, MostPlaces, Names, Place, Position, Queue, QueueId,
    Queues, Singles, Ticket, Waiter, MOST_OF_AN_ID,
};
use crate::engine::key_name::{KeyName, KeyNames};
use crate::lock::record::Id;
use crate::lock::time::MonotonicMicros;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// An ID's entries in the queue before a newer command of its attempt.
struct Taken<H> {
    /// Its ticket, if it was for exactly the same keys.
    ticket: Option<Ticket>,
    /// Its waiters, which no longer wait.
    earlier: Vec<Gone<H>>,
    /// Whether the ticket was a reserved place.
    resumed: bool,
    /// When the ticket's attempt began to wait; it may have been interrupted since.
    since: Option<MonotonicMicros>,
}

impl<H> Queues<H> {
    /// Puts a client that begins to wait into the queue: with its ID's ticket if that is for the same keys, otherwise
    /// at the end. A waiter for several keys is parked in the queue of `names[parked_at]`.
    pub fn join(&mut self, keys: KeyNames<'_>, parked_at: usize, mut waiter: Waiter<H>) -> Joined<H> {
        // This is done before the earlier command leaves, because a channel is dropped with its last attempt.
        let channel = waiter.channel().map(|channel| self.channels.shared(Rc::clone(channel)));
        let Taken { ticket: place, mut earlier, resumed, since } = self.take_place(keys, waiter.id);
        let ticket = place.unwrap_or_else(|| Ticket(self.next_number()));
        // All commands with one ID are one attempt, which has been waiting since the first of them.
        waiter.since = since.unwrap_or(waiter.since);
        match (&mut waiter.handle, channel) {
            (Handle::Channel { channel, .. }, Some(shared)) => {
                *channel = shared;
                self.notifiable = self.notifiable.saturating_add(1);
                self.queued = self.queued.saturating_add(keys.names.len());
                // The same attempt, resent: nothing has ended.
                let before = earlier.iter().position(|gone| place.is_some() && gone.waiter.channel().is_some());
                if let Some(before) = before {
                    earlier.swap_remove(before);
                }
            }
            (Handle::Blocked { client, .. }, _) => {
                self.clients.insert(*client, ticket);
                self.load = self.load.saturating_add(load(keys.names.iter().map(|name| name.len()).sum()));
            }
            (Handle::Channel { .. }, None) => {}
        }
        self.ends.insert((waiter.until, ticket));
        let queue = self.insert_entry(keys.db, self.keys_named(keys), Some(parked_at), ticket, Body::Waits(waiter));
        Joined { queue, earlier, resumed }
    }

    /// Reserves a place for an attempt that does not wait: its old place if it has one, otherwise one at the end,
    /// within the limits `most`. Returns the waiters with this ID, which no longer wait.
    pub fn keep_place(&mut self, keys: KeyNames<'_>, place: Place, most: MostPlaces) -> Vec<Gone<H>> {
        let Taken { ticket, earlier, since, .. } = self.take_place(keys, Some(place.id));
        let ticket = ticket.unwrap_or_else(|| Ticket(self.next_number()));
        self.keep(keys.db, self.keys_named(keys), ticket, Place { since, ..place }, most);
        earlier
    }

    /// Whether one more attempt for several keys may use this ID.
    #[must_use]
    pub fn takes_id(&self, db: i32, id: Id) -> bool {
        self.attempts.get(&(db, id)).is_none_or(|attempts| attempts.len() < MOST_OF_AN_ID)
    }

    /// Removes an ID from all of these keys.
    fn take_place(&mut self, keys: KeyNames<'_>, id: Option<Id>) -> Taken<H> {
        let mut taken = Taken { ticket: None, earlier: Vec::new(), resumed: false, since: None };
        let Some(id) = id else { return taken };
        let mut tickets: Vec<(Ticket, bool)> = Vec::new();
        for key in keys.iter() {
            let single = self.queue_of(key).and_then(|queue| queue.ids.get(&id));
            tickets.extend(single.map(|ticket| (*ticket, keys.names.len() == 1)));
        }
        self.attempts_for(keys, id, |ticket, own, numbers| {
            let common = numbers.count();
            if common > 0 {
                tickets.push((ticket, common == keys.names.len() && common == own.len()));
            }
        });
        for (ticket, is_same) in tickets {
            let removed = self.remove(ticket);
            let since = removed.as_ref().and_then(|removed| removed.entry.since());
            let gone = removed.and_then(Removed::into_gone);
            if is_same {
                taken = Taken { ticket: Some(ticket), resumed: gone.is_none(), since, ..taken };
            }
            taken.earlier.extend(gone);
        }
        taken
    }

    /// Removes an ID from all of these keys because its attempt got them. Returns its waiters.
    pub fn forget_all(&mut self, keys: KeyNames<'_>, id: Id) -> Vec<Gone<H>> {
        self.take_place(keys, Some(id)).earlier
    }

    /// Restores the place of an attempt whose grant could not be delivered or was not claimed.
    pub fn restore_place(&mut self, db: i32, keys: Keys, ticket: Ticket, place: Place, most: MostPlaces) {
        if !self.is_queued_for_any(db, &keys, place.id) && !self.entries.contains_key(&ticket) {
            self.keep(db, keys, ticket, place, most);
        }
    }

    /// Reserves a place. Returns whether there was room for it.
    pub(super) fn keep(&mut self, db: i32, keys: Keys, ticket: Ticket, place: Place, most: MostPlaces) -> bool {
        let takes_id = keys.len() == 1 || self.takes_id(db, place.id);
        if !takes_id || !self.has_room(&keys, most) {
            return false;
        }
        self.ends.insert((place.until, ticket));
        self.insert_entry(db, keys, None, ticket, Body::Keeps(place));
        true
    }

    /// Whether a place for these keys fits the limits `most`.
    pub(super) fn has_room(&self, keys: &Keys, most: MostPlaces) -> bool {
        let MostPlaces { keys: count, bytes } = self.placed.with(keys);
        count <= most.keys && bytes <= most.bytes
    }

    /// Puts a ticket in the queue of its key, or parks it in the queue of one of its keys.
    pub(super) fn insert_entry(
        &mut self,
        db: i32,
        keys: Keys,
        parked_at: Option<usize>,
        ticket: Ticket,
        body: Body<H>,
    ) -> Option<QueueId> {
        if !matches!(body, Body::Waits(_)) {
            self.placed = self.placed.with(&keys);
        }
        let queue = match &keys {
            Keys::One(name, mark) => Some(self.open(KeyName { db, name }, *mark, || Rc::clone(name))),
            Keys::Several(names) => parked_at.and_then(|at| self.open_one_of(db, names, at)),
        };
        let (waits, id) = match &body {
            Body::Waits(waiter) => (true, waiter.id),
            Body::Keeps(place) | Body::Cancelled(place) => (false, Some(place.id)),
        };
        let has_channel = matches!(&body, Body::Waits(waiter) if waiter.channel().is_some());
        let wants_result = body.wants_result();
        if let (Some(queue), Body::Waits(Waiter { handle: Handle::Channel { channel, session, .. }, .. })) =
            (queue, &body)
        {
            self.channels.add(channel, queue, ticket, *session);
            self.channels.stop_skipping(channel);
        }
        if let Some(queue) = queue.and_then(|queue| self.by_id.get_mut(&queue)) {
            let is_single = matches!(keys, Keys::One(..));
            if let Some(id) = id.filter(|_| is_single) {
                queue.ids.insert(id, ticket);
            }
            match (waits, is_single) {
                (false, _) => queue.places.insert(ticket, wants_result),
                (true, true) => queue.single.insert(ticket, has_channel, wants_result),
                (true, false) => {
                    queue.parked.insert(ticket);
                }
            }
        }
        let position = match (keys, queue) {
            (Keys::One(..), queue) => Position::In(queue?),
            (Keys::Several(names), queue) => {
                if let Some(id) = id {
                    self.attempts.entry((db, id)).or_default().push(ticket);
                }
                Position::Parked { db, names, queue }
            }
        };
        self.entries.insert(ticket, Box::new(Entry { position, body }));
        if let Some(queue) = queue {
            self.relist(queue);
        }
        queue
    }

    /// Parks a waiter for several locks at the lock with this index, which it cannot have. Returns the queue.
    pub fn park(&mut self, ticket: Ticket, at: usize) -> Option<QueueId> {
        let Some(Position::Parked { db, names, queue }) = self.entries.get(&ticket).map(|entry| entry.position.clone())
        else {
            return None;
        };
        let to = self.open_one_of(db, &names, at)?;
        if queue == Some(to) {
            return queue;
        }
        self.by_id.get_mut(&to)?.parked.insert(ticket);
        if let Some(Entry { position: Position::Parked { queue, .. }, body }) =
            self.entries.get_mut(&ticket).map(Box::as_mut)
        {
            let from = queue.replace(to);
            if let Body::Waits(Waiter { handle: Handle::Channel { channel, session, .. }, .. }) = body {
                self.channels.add(channel, to, ticket, *session);
                if let Some(from) = from {
                    self.channels.remove(channel, from, ticket, None);
                }
            }
        }
        self.relist(to);
        if let Some(from) = queue {
            if let Some(queue) = self.by_id.get_mut(&from) {
                queue.parked.remove(&ticket);
            }
            self.relist(from);
            self.tidy(from);
        }
        Some(to)
    }

    fn open_one_of(&mut self, db: i32, names: &Names, at: usize) -> Option<QueueId> {
        let (name, mark) = (names.get(at)?, names.mark(at)?);
        Some(self.open(KeyName { db, name }, mark, || name.into()))
    }

    fn open(&mut self, key: KeyName<'_>, mark: Mark, to_keep: impl FnOnce() -> Rc<[u8]>) -> QueueId {
        if let Some((queue, _)) = self.find_marked(key, mark) {
            self.found.set(queue);
            return queue;
        }
        let id = QueueId(self.next_number());
        let name = to_keep();
        self.index.insert(key.db, Rc::clone(&name), mark, id);
        let queue = Queue {
            db: key.db,
            name,
            mark,
            single: Singles::default(),
            parked: BTreeSet::new(),
            places: Tickets::default(),
            deliveries: VecDeque::new(),
            ids: BTreeMap::new(),
            due: None,
            last_end: None,
            evicted_until: None,
            ready: None,
            cause: Cause::Event,
            tried: 0,
            is_refused: false,
            is_lost: false,
            log_length: None,
            first: None,
            held_since: None,
        };
        self.by_id.insert(id, Box::new(queue));
        self.found.set(id);
        id
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.last = self.last.saturating_add(1);
        self.last
    }
}
