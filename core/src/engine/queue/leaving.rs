//! Waiters that leave together: all attempts of a channel or connection, or all waiters of a queue. They are granted
//! nothing more. They are removed a piece at a time, because removing a million at once would block the server.

use super::{Channel, Gone, Keys, MostPlaces, Queue, QueueId, Queues, Ticket, Waiter};
use crate::engine::key_name::KeyName;
use std::rc::Rc;

/// Why an attempt that is still in the queue no longer gets anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was cancelled with its channel.
    Cancelled,
    /// Its connection has ended.
    Disconnected,
}

impl<H> Queues<H> {
    /// Cancels a channel's attempts in a key's queue. Returns their number, without those that leave with a result.
    pub fn cancel_channel(&mut self, key: KeyName<'_>, channel: &Rc<Channel>) -> usize {
        let Some(id) = self.queue(key) else { return 0 };
        self.by_id.get(&id).map_or(0, |queue| self.channels.cancel(channel, id, &queue.deliveries))
    }

    /// Called when a connection has ended, and with it its attempts that are notified on a channel.
    pub fn end_session(&mut self, client: u64) {
        self.channels.end_session(client);
    }

    /// Whether any attempt that is notified on a channel ends with a connection.
    #[must_use]
    pub fn has_sessions(&self) -> bool {
        self.channels.has_sessions()
    }

    /// Whether an attempt has ended and will leave when its turn comes.
    #[must_use]
    pub fn ended(&self, ticket: Ticket) -> Option<Ended> {
        if !self.channels.has_ended() {
            return None;
        }
        let queue = self.queue_of_ticket(ticket)?;
        let super::Handle::Channel { channel, session, .. } = &self.waiter(ticket)?.handle else { return None };
        if self.channels.is_cancelled(channel, queue, ticket) {
            return Some(Ended::Cancelled);
        }
        session.is_some_and(|client| self.channels.is_over(client)).then_some(Ended::Disconnected)
    }

    /// The next attempt that has ended, to be removed.
    pub fn next_ended(&mut self) -> Option<(Ticket, Ended)> {
        let cancelled = self.channels.next_cancelled().map(|ticket| (ticket, Ended::Cancelled));
        cancelled.or_else(|| self.channels.next_over().map(|ticket| (ticket, Ended::Disconnected)))
    }

    /// Called when a queue's key is no longer served here: its waiters leave.
    pub fn lose_queue(&mut self, id: QueueId) {
        let Some(queue) = self.by_id.get_mut(&id).filter(|queue| !queue.is_lost) else { return };
        queue.is_lost = true;
        let (db, name, mark) = (queue.db, Rc::clone(&queue.name), queue.mark);
        self.index.remove_if(KeyName { db, name: &name }, mark, |queue| *queue == id);
        self.rest(id);
        self.lost.insert(id);
    }

    /// Removes the next waiter or place from the queues that are no longer served here. Returns its keys and the
    /// waiter; `None` if there is none left.
    pub fn next_lost(&mut self) -> Option<(Keys, Option<Gone<H>>)> {
        while let Some(id) = self.lost.first().copied() {
            let queue = self.by_id.get(&id);
            if let Some(ticket) = queue.and_then(|queue| queue.head().or_else(|| queue.places.first().copied())) {
                return self.drop_ticket(ticket);
            }
            self.lost.remove(&id);
        }
        None
    }

    /// Removes the first waiter or place of all queues. Returns its keys and the waiter; `None` if all queues are
    /// empty.
    pub fn next_of_all(&mut self) -> Option<(Keys, Option<Gone<H>>)> {
        let ticket = *self.entries.first_key_value()?.0;
        self.drop_ticket(ticket)
    }

    /// Whether attempts are leaving a piece at a time.
    #[must_use]
    pub fn has_leaving(&self) -> bool {
        self.channels.has_ended() || !self.lost.is_empty() || self.has_results()
    }

    fn drop_ticket(&mut self, ticket: Ticket) -> Option<(Keys, Option<Gone<H>>)> {
        let (_, keys) = self.keys(ticket)?;
        if self.waiter(ticket).is_some() {
            return Some((keys, self.end_wait(ticket, None, MostPlaces::NONE)));
        }
        self.forget_place(ticket);
        Some((keys, None))
    }

    /// The waiters of a key, in order.
    pub fn waiting(&self, key: KeyName<'_>) -> impl Iterator<Item = &Waiter<H>> {
        let tickets = self.queue_of(key).into_iter().flat_map(Queue::in_order);
        tickets.filter_map(|ticket| self.waiter(*ticket))
    }
}
