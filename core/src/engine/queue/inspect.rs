//! Queries on the queues.

use super::{Channel, Deadline, Keys, Mark, Names, Narrows, Position, QueueId, Queues, Ticket, Wait, Waiter, Wanted};
use crate::engine::budget::Budget;
use crate::engine::key_name::{KeyName, KeyNames};
use crate::lock::record::Id;
use crate::lock::time::MonotonicMicros;
use std::ops::Bound;
use std::rc::Rc;

impl<H> Queues<H> {
    /// Whether an attempt waits for a key; a reserved place does not count.
    #[must_use]
    pub fn is_waiting(&self, key: KeyName<'_>, id: Id) -> bool {
        let ticket = self.ticket(key, id).and_then(|ticket| self.entries.get(&ticket));
        ticket.is_some_and(|entry| entry.waiter().is_some())
    }

    /// An attempt's ticket for a key.
    #[must_use]
    pub fn ticket(&self, key: KeyName<'_>, id: Id) -> Option<Ticket> {
        let single = self.queue_of(key).and_then(|queue| queue.ids.get(&id));
        single.copied().or_else(|| self.attempt(key, id))
    }

    /// The ticket of the attempt with this ID whose several keys include `key`.
    fn attempt(&self, key: KeyName<'_>, id: Id) -> Option<Ticket> {
        // Most servers never have attempts for several keys.
        if self.attempts.is_empty() {
            return None;
        }
        let attempts = self.attempts.get(&(key.db, id))?;
        let mark = self.marks.of(key.name);
        let wants = |ticket: &&Ticket| match self.entries.get(ticket).map(|entry| &entry.position) {
            Some(Position::Parked { names, .. }) => names.contains(key.name, mark),
            _ => false,
        };
        attempts.iter().find(wants).copied()
    }

    /// Calls back for each attempt with this ID for several keys, with the given names that are among its keys.
    pub(super) fn attempts_for(
        &self,
        keys: KeyNames<'_>,
        id: Id,
        mut each: impl FnMut(Ticket, &Names, &mut dyn Iterator<Item = usize>),
    ) {
        if !self.attempts.contains_key(&(keys.db, id)) {
            return;
        }
        let wanted = Wanted::of(keys.names, keys.names.iter().map(|name| self.marks.of(name)));
        self.attempts_among(keys.db, &wanted, id, &mut each);
    }

    fn attempts_among(
        &self,
        db: i32,
        wanted: &Wanted<'_>,
        id: Id,
        each: &mut impl FnMut(Ticket, &Names, &mut dyn Iterator<Item = usize>),
    ) {
        for ticket in self.attempts.get(&(db, id)).into_iter().flatten() {
            if let Some(Position::Parked { names: own, .. }) = self.entries.get(ticket).map(|entry| &entry.position) {
                each(*ticket, own, &mut wanted.among(own));
            }
        }
    }

    /// The tickets of an ID for each of these keys.
    pub(super) fn own_tickets(&self, keys: KeyNames<'_>, id: Id) -> Vec<Option<Ticket>> {
        let single = |key: KeyName<'_>| self.queue_of(key)?.ids.get(&id).copied();
        let mut own: Vec<Option<Ticket>> = keys.iter().map(single).collect();
        self.attempts_for(keys, id, |ticket, _, numbers| {
            for number in numbers {
                if let Some(own) = own.get_mut(number) {
                    *own = Some(ticket);
                }
            }
        });
        own
    }

    /// Whether an attempt is in the queue of any of these keys.
    pub(super) fn is_queued_for_any(&self, db: i32, keys: &Keys, id: Id) -> bool {
        let names = || keys.iter().zip(keys.marks());
        let is_single = |(name, mark): (&[u8], &Mark)| {
            self.find_marked(KeyName { db, name }, *mark).is_some_and(|(_, queue)| queue.ids.contains_key(&id))
        };
        if names().any(is_single) {
            return true;
        }
        let mut is_queued = false;
        if self.attempts.contains_key(&(db, id)) {
            let all: Vec<&[u8]> = keys.iter().collect();
            let wanted = Wanted::of(&all, keys.marks().iter().copied());
            self.attempts_among(db, &wanted, id, &mut |_, _, numbers| is_queued |= numbers.next().is_some());
        }
        is_queued
    }

    /// Whether an attempt with this ID waits for one of these keys.
    #[must_use]
    pub fn is_waiting_for_any(&self, keys: KeyNames<'_>, id: Id) -> bool {
        let waits = |ticket: &Ticket| self.entries.get(ticket).is_some_and(|entry| entry.waiter().is_some());
        self.own_tickets(keys, id).iter().flatten().any(waits)
    }

    /// How many clients wait for a key, and when the first of them began to wait.
    #[must_use]
    pub fn length(&self, key: KeyName<'_>) -> (usize, Option<MonotonicMicros>) {
        self.queue_of(key).map_or((0, None), |queue| (queue.waiters(), queue.since()))
    }

    /// What a client waits for.
    #[must_use]
    pub fn waits_for(&self, client: u64) -> Option<Wait> {
        let ticket = *self.clients.get(&client).filter(|ticket| !self.gets_result(**ticket))?;
        let share = self.entries.get(&ticket)?.waiter()?.share;
        let (db, keys) = self.keys(ticket)?;
        Some(Wait { ticket, share, db, keys })
    }

    /// The fewest holders allowed by the waiters for this lock alone, from the head up to each ticket at which this
    /// number changes, and how many waiters were inspected. It stops after inspecting more than `most`.
    #[must_use]
    pub fn narrows(&self, key: KeyName<'_>, most: usize) -> (Narrows, usize) {
        let (mut steps, mut inspected): (Vec<(Ticket, u64)>, usize) = (Vec::new(), 0);
        for ticket in self.queue_of(key).into_iter().flat_map(|queue| queue.single.blocked().iter()) {
            inspected = inspected.saturating_add(1);
            if inspected > most {
                break;
            }
            let fewest = steps.last().map_or(u64::MAX, |(_, fewest)| *fewest);
            if fewest <= 1 {
                break;
            }
            let most = self.waiter(*ticket).map_or(fewest, |waiter| waiter.share.most());
            if most < fewest {
                steps.push((*ticket, most));
            }
        }
        (Narrows(steps), inspected)
    }

    /// Walks waiters in the order of their deadlines, starting after `from`, and returns the tickets for which `check`
    /// finds something. It stops when the budget is spent and returns where to continue, unless it has seen all
    /// waiters. An inspection costs an eighth of a key.
    pub fn walk<F>(
        &self,
        from: Option<Deadline>,
        budget: &mut Budget,
        check: impl Fn(&Waiter<H>) -> Option<F>,
    ) -> (Vec<(Ticket, F)>, Option<Deadline>) {
        let mut found = Vec::new();
        let behind = from.map_or(Bound::Unbounded, Bound::Excluded);
        for (seen, end) in self.ends.range((behind, Bound::Unbounded)).enumerate() {
            budget.spend(usize::from(seen & 7 == 7));
            if let Some(finding) = self.waiter(end.1).and_then(&check) {
                if let Some((_, keys)) = self.keys(end.1) {
                    budget.spend_on_waiter(&keys);
                }
                found.push((end.1, finding));
            }
            if !budget.has_left() {
                return (found, Some(*end));
            }
        }
        (found, None)
    }

    #[must_use]
    pub fn waiter(&self, ticket: Ticket) -> Option<&Waiter<H>> {
        self.entries.get(&ticket)?.waiter()
    }

    /// The first waiter in a queue.
    #[must_use]
    pub fn head(&self, queue: QueueId) -> Option<&Waiter<H>> {
        self.entries.get(&self.by_id.get(&queue)?.head()?)?.waiter()
    }

    /// The first waiter in a queue, and its keys.
    #[must_use]
    pub fn head_keys(&self, queue: QueueId) -> Option<(Ticket, Keys)> {
        let head = self.by_id.get(&queue)?.head()?;
        Some((head, self.keys(head)?.1))
    }

    /// The first waiter in a queue, if it waits for the queue's lock alone.
    #[must_use]
    pub fn single_head(&self, queue: QueueId) -> Option<(Ticket, &Waiter<H>)> {
        let queue = self.by_id.get(&queue)?;
        let head = queue.head().filter(|head| queue.single.contains(*head))?;
        Some((head, self.entries.get(&head)?.waiter()?))
    }

    /// Whether the server refused to write the key of this waiter's queue, and has not written it since.
    #[must_use]
    pub fn is_refused(&self, ticket: Ticket) -> bool {
        self.queue_of_ticket(ticket).and_then(|queue| self.by_id.get(&queue)).is_some_and(|queue| queue.is_refused)
    }

    /// Whether the attempts of a channel are passed over.
    #[must_use]
    pub fn is_skipped(&self, channel: &Rc<Channel>) -> bool {
        self.channels.is_skipped(channel)
    }

    /// Called when a channel's process did not claim a grant: its attempts are passed over until one of them is resent.
    pub fn skip(&mut self, channel: &Rc<Channel>) {
        self.channels.skip(channel);
    }

    /// Called when a channel's process has claimed a grant, which shows that it is alive.
    pub fn stop_skipping(&mut self, channel: &Channel) {
        self.channels.stop_skipping(channel);
    }

    /// The queue that a ticket is in; a reserved place for several keys is not in a queue.
    #[must_use]
    pub fn queue_of_ticket(&self, ticket: Ticket) -> Option<QueueId> {
        match self.entries.get(&ticket)?.position {
            Position::In(queue) => Some(queue),
            Position::Parked { queue, .. } => queue,
        }
    }

    /// Whether a waiter for several locks is parked in the queue of a key.
    #[must_use]
    pub fn has_parked(&self, key: KeyName<'_>) -> bool {
        self.queue_of(key).is_some_and(|queue| !queue.parked.is_empty())
    }

    /// The first parked waiter of a queue, if it came before all waiters for this lock alone.
    #[must_use]
    pub fn parked_head(&self, queue: QueueId) -> Option<Ticket> {
        let queue = self.by_id.get(&queue)?;
        queue.head().filter(|head| queue.parked.contains(head))
    }
}
