//! The channels on which waiters without a connection are notified.
//!
//! A channel belongs to one process. A channel whose process did not claim a grant is skipped: its other attempts are
//! passed over until one of them is resent.
//!
//! Many attempts can end at once, with their channel or their connection. They are marked at once, and leave the queue
//! a piece at a time.

use super::delivery::Delivery;
use super::{QueueId, Ticket};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::rc::Rc;

/// A channel on the server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Channel {
    pub name: Box<[u8]>,
    /// Whether it is a sharded channel.
    pub is_sharded: bool,
}

/// The attempts of a channel in one queue.
#[derive(Clone, Debug, Default)]
struct Group {
    tickets: BTreeSet<Ticket>,
    /// The last cancelled ticket, and how many cancelled attempts are left.
    cancelled: Option<(Ticket, usize)>,
}

impl Group {
    /// How many of the `new` tickets, those after the last cancelled one, are in `tickets`.
    fn new_in(&self, tickets: &BTreeSet<Ticket>, new: usize) -> usize {
        let last = self.cancelled.map(|(last, _)| last);
        // A few are looked up. Many are compared in order, which is faster for each.
        if new < tickets.len() / 16 {
            let from = last.map_or(Bound::Unbounded, Bound::Excluded);
            return self.tickets.range((from, Bound::Unbounded)).filter(|ticket| tickets.contains(ticket)).count();
        }
        self.tickets.intersection(tickets).filter(|ticket| last.is_none_or(|last| **ticket > last)).count()
    }
}

/// The attempts of a channel in the queues.
#[derive(Clone, Debug, Default)]
struct Attempts {
    is_skipped: bool,
    by_id: BTreeMap<QueueId, Group>,
}

/// The attempts that end with a connection.
#[derive(Clone, Debug, Default)]
struct Session {
    tickets: BTreeSet<Ticket>,
    /// Whether the connection has ended.
    is_over: bool,
}

/// All channels with attempts in the queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Channels {
    all: BTreeMap<Rc<Channel>, Attempts>,
    sessions: BTreeMap<u64, Session>,
    /// The cancelled groups that have not left yet.
    cancelled: VecDeque<(Rc<Channel>, QueueId)>,
    /// The connections that have ended, whose attempts have not left yet.
    over: VecDeque<u64>,
}

impl Channels {
    /// The stored channel equal to this one: one allocation serves all of its attempts.
    pub(super) fn shared(&self, channel: Rc<Channel>) -> Rc<Channel> {
        self.all.get_key_value(&channel).map_or(channel, |(known, _)| Rc::clone(known))
    }

    fn group(&self, channel: &Channel, queue: QueueId) -> Option<&Group> {
        self.all.get(channel)?.by_id.get(&queue)
    }

    fn group_mut(&mut self, channel: &Channel, queue: QueueId) -> Option<&mut Group> {
        self.all.get_mut(channel)?.by_id.get_mut(&queue)
    }

    /// Notes that an attempt is in a queue.
    pub(super) fn add(&mut self, channel: &Rc<Channel>, queue: QueueId, ticket: Ticket, session: Option<u64>) {
        if !self.all.contains_key(channel) {
            self.all.insert(Rc::clone(channel), Attempts::default());
        }
        if let Some(attempts) = self.all.get_mut(channel) {
            attempts.by_id.entry(queue).or_default().tickets.insert(ticket);
        }
        if let Some(client) = session {
            self.sessions.entry(client).or_default().tickets.insert(ticket);
        }
    }

    /// Notes that an attempt left its queue.
    pub(super) fn remove(&mut self, channel: &Channel, queue: QueueId, ticket: Ticket, session: Option<u64>) {
        if let Some(attempts) = self.all.get_mut(channel) {
            if let Some(group) = attempts.by_id.get_mut(&queue) {
                group.tickets.remove(&ticket);
                group.cancelled = match group.cancelled {
                    Some((last, left)) if ticket <= last => {
                        left.checked_sub(1).filter(|left| *left > 0).map(|left| (last, left))
                    }
                    cancelled => cancelled,
                };
                if group.tickets.is_empty() {
                    attempts.by_id.remove(&queue);
                }
            }
            if attempts.by_id.is_empty() {
                self.all.remove(channel);
            }
        }
        if let Some((client, own)) = session.and_then(|client| Some((client, self.sessions.get_mut(&client)?))) {
            own.tickets.remove(&ticket);
            if own.tickets.is_empty() {
                self.sessions.remove(&client);
            }
        }
    }

    /// Called when a channel's process has sent an attempt, which shows that it is alive.
    pub(super) fn stop_skipping(&mut self, channel: &Channel) {
        if let Some(attempts) = self.all.get_mut(channel) {
            attempts.is_skipped = false;
        }
    }

    /// Called when a channel's process did not claim a grant.
    pub(super) fn skip(&mut self, channel: &Channel) {
        if let Some(attempts) = self.all.get_mut(channel) {
            attempts.is_skipped = true;
        }
    }

    /// Whether the attempts of a channel are passed over.
    pub(super) fn is_skipped(&self, channel: &Channel) -> bool {
        self.all.get(channel).is_some_and(|attempts| attempts.is_skipped)
    }

    /// The channels whose attempts are passed over.
    #[cfg(feature = "model")]
    pub(super) fn skipped(&self) -> impl Iterator<Item = &Rc<Channel>> {
        self.all.iter().filter(|(_, attempts)| attempts.is_skipped).map(|(channel, _)| channel)
    }

    /// Cancels the attempts of a channel in a queue. Returns their number, without those in `deliveries`: they have
    /// left with a result. 100,000 are compared in 1.5 ms, and only once, however often their channel is cancelled.
    pub(super) fn cancel(&mut self, channel: &Rc<Channel>, queue: QueueId, deliveries: &VecDeque<Delivery>) -> usize {
        let Some(group) = self.group_mut(channel, queue) else { return 0 };
        let Some(last) = group.tickets.last().copied() else { return 0 };
        let before = group.cancelled;
        let new = group.tickets.len().saturating_sub(before.map_or(0, |(_, left)| left));
        let leaving: usize = match new {
            0 => 0,
            _ => deliveries.iter().map(|delivery| group.new_in(delivery.notifiable(), new)).sum(),
        };
        group.cancelled = Some((last, group.tickets.len()));
        if before.is_none_or(|(_, left)| left == 0) {
            self.cancelled.push_back((Rc::clone(channel), queue));
        }
        new.saturating_sub(leaving)
    }

    /// Whether an attempt was cancelled with its channel.
    pub(super) fn is_cancelled(&self, channel: &Channel, queue: QueueId, ticket: Ticket) -> bool {
        if self.cancelled.is_empty() {
            return false;
        }
        let cancelled = self.group(channel, queue).and_then(|group| group.cancelled);
        cancelled.is_some_and(|(last, _)| ticket <= last)
    }

    /// The next attempt that was cancelled with its channel, to be removed.
    pub(super) fn next_cancelled(&mut self) -> Option<Ticket> {
        while let Some((channel, queue)) = self.cancelled.front() {
            let group = self.group(channel, *queue).filter(|group| group.cancelled.is_some());
            if let Some(first) = group.and_then(|group| group.tickets.first()) {
                return Some(*first);
            }
            self.cancelled.pop_front();
        }
        None
    }

    /// Whether any attempt ends with a connection.
    pub(super) fn has_sessions(&self) -> bool {
        !self.sessions.is_empty()
    }

    /// Notes that a connection has ended.
    pub(super) fn end_session(&mut self, client: u64) {
        if let Some(session) = self.sessions.get_mut(&client).filter(|session| !session.is_over) {
            session.is_over = true;
            self.over.push_back(client);
        }
    }

    /// Whether a connection has ended.
    pub(super) fn is_over(&self, client: u64) -> bool {
        !self.over.is_empty() && self.sessions.get(&client).is_some_and(|session| session.is_over)
    }

    /// The next attempt whose connection has ended, to be removed.
    pub(super) fn next_over(&mut self) -> Option<Ticket> {
        while let Some(client) = self.over.front() {
            if let Some(first) = self.sessions.get(client).and_then(|session| session.tickets.first()) {
                return Some(*first);
            }
            self.over.pop_front();
        }
        None
    }

    /// Whether attempts have ended and not left yet.
    pub(super) fn has_ended(&self) -> bool {
        !self.cancelled.is_empty() || !self.over.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_new_attempts_are_counted_alike() {
        let all = |from: u64, by: usize| (from..400).step_by(by).map(Ticket).collect::<BTreeSet<_>>();
        for last in [None, Some(0), Some(150), Some(399)] {
            let group = Group { tickets: all(0, 3), cancelled: last.map(|last| (Ticket(last), 1)) };
            for tickets in [all(0, 1), all(0, 7), all(390, 1), BTreeSet::new()] {
                let is_new =
                    |ticket: &&Ticket| group.tickets.contains(ticket) && last.is_none_or(|last| ticket.0 > last);
                let count = tickets.iter().filter(is_new).count();
                for new in [0, 1, 400] {
                    assert_eq!(group.new_in(&tickets, new), count, "after {last:?}, {} tickets", tickets.len());
                }
            }
        }
    }
}
