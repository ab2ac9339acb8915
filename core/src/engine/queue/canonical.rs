//! The canonical form of the queues, for comparison. Tickets and queues keep their order but not their numbers: only
//! the order of the numbers matters.

use super::delivery::Delivery;
use super::{Body, Cause, Channel, Entry, Handle, Position, Queue, QueueId, Queues, ReplyShape, Ticket, Waiter};
use crate::lock::record::{Id, OwnerBuf};
use crate::lock::request::Share;
use crate::lock::time::{Micros, MonotonicMicros, UnixMicros};

/// Numbers for which only the order matters.
#[derive(Clone, Debug)]
pub struct Order<T>(Vec<T>);

impl<T: Ord + Copy> Order<T> {
    /// Orders these numbers.
    #[must_use]
    pub fn of(mut numbers: Vec<T>) -> Self {
        numbers.sort_unstable();
        numbers.dedup();
        Self(numbers)
    }

    /// How many are smaller than `number`.
    #[must_use]
    pub fn at(&self, number: T) -> usize {
        self.0.partition_point(|own| *own < number)
    }
}

/// The canonical form of [`Queues`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QueuesForm<H> {
    /// In the order of their tickets.
    entries: Vec<(usize, PositionForm, BodyForm<H>)>,
    /// In order of creation, which decides between queues that are ready with the same ticket.
    by_id: Vec<QueueForm>,
    attempts: Vec<((i32, Id), Vec<usize>)>,
    skipped: Vec<Channel>,
    /// Whether a check of slots is under way, however far it has come, and whether another follows.
    slot_check: (bool, bool),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum BodyForm<H> {
    Waits(HandleForm<H>, (Share, Micros), (Option<Id>, Option<OwnerBuf>), (ReplyShape, bool, bool), MonotonicMicros),
    Keeps(Id, MonotonicMicros, bool),
    Cancelled(Id, MonotonicMicros),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum HandleForm<H> {
    Blocked(H, u64),
    Channel(Channel, Option<u64>, MonotonicMicros),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PositionForm {
    In(usize),
    Parked(i32, Vec<Box<[u8]>>, Option<usize>),
}

/// The state of a queue beyond its entries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct QueueForm {
    db: i32,
    name: Box<[u8]>,
    due: Option<UnixMicros>,
    last_end: Option<UnixMicros>,
    evicted_until: Option<UnixMicros>,
    is_refused: bool,
    /// How it will be served; the rest of an earlier round is overwritten before it is read.
    ready: Option<(Option<usize>, Cause, usize)>,
    deliveries: Vec<(Box<[u8]>, Vec<usize>)>,
}

impl<H: Clone> Queues<H> {
    /// All tickets whose order matters.
    pub fn tickets(&self) -> impl Iterator<Item = Ticket> + '_ {
        self.entries.keys().copied().chain(self.by_id.values().filter_map(|queue| queue.ready))
    }

    /// The canonical form. It leaves out when a waiter arrived, which is reported on request and affects no decision.
    #[must_use]
    pub fn canonical(&self, tickets: &Order<Ticket>) -> QueuesForm<H> {
        let by_id = Order::of(self.by_id.keys().copied().collect());
        let mut entries: Vec<(&Ticket, &Entry<H>)> =
            self.entries.iter().map(|(ticket, entry)| (ticket, entry.as_ref())).collect();
        entries.sort_unstable_by_key(|(ticket, _)| **ticket);
        let entry = |(ticket, entry): (&Ticket, &Entry<H>)| (tickets.at(*ticket), entry.position(&by_id), entry.body());
        let attempts = self.attempts.iter();
        let mut attempts: Vec<_> =
            attempts.map(|(attempt, own)| (*attempt, own.iter().map(|ticket| tickets.at(*ticket)).collect())).collect();
        attempts.sort_unstable();
        QueuesForm {
            entries: entries.into_iter().map(entry).collect(),
            by_id: by_id.0.iter().filter_map(|id| Some(self.queue_form(*id, self.by_id.get(id)?, tickets))).collect(),
            attempts,
            skipped: self.channels.skipped().map(|channel| channel.as_ref().clone()).collect(),
            slot_check: (self.slot_check.next.is_some(), self.slot_check.has_to_repeat),
        }
    }

    fn queue_form(&self, id: QueueId, queue: &Queue, tickets: &Order<Ticket>) -> QueueForm {
        let is_to_be_served = queue.ready.is_some() || self.later.contains(&id);
        QueueForm {
            db: queue.db,
            name: queue.name.as_ref().into(),
            due: queue.due,
            last_end: queue.last_end,
            evicted_until: queue.evicted_until,
            is_refused: queue.is_refused,
            ready: is_to_be_served.then(|| (queue.ready.map(|ticket| tickets.at(ticket)), queue.cause, queue.tried)),
            deliveries: queue.deliveries.iter().map(|delivery| delivered(delivery, tickets)).collect(),
        }
    }
}

fn delivered(delivery: &Delivery, tickets: &Order<Ticket>) -> (Box<[u8]>, Vec<usize>) {
    let all = delivery.tickets.iter().flatten();
    (delivery.result.bytes.clone(), all.map(|ticket| tickets.at(*ticket)).collect())
}

impl<H: Clone> Entry<H> {
    fn position(&self, by_id: &Order<QueueId>) -> PositionForm {
        match &self.position {
            Position::In(queue) => PositionForm::In(by_id.at(*queue)),
            Position::Parked { db, names, queue } => {
                PositionForm::Parked(*db, names.iter().map(Box::from).collect(), queue.map(|queue| by_id.at(queue)))
            }
        }
    }

    fn body(&self) -> BodyForm<H> {
        match &self.body {
            Body::Waits(waiter) => {
                let Waiter { handle, share, lease, id, owner, shape, session, wants_result, since: _, until } =
                    waiter.clone();
                let handle = match handle {
                    Handle::Blocked { handle, client } => HandleForm::Blocked(handle, client),
                    Handle::Channel { channel, session, sent } => {
                        HandleForm::Channel(channel.as_ref().clone(), session, sent)
                    }
                };
                BodyForm::Waits(handle, (share, lease), (id, owner), (shape, session, wants_result), until)
            }
            Body::Keeps(place) => BodyForm::Keeps(place.id, place.until, place.wants_result),
            Body::Cancelled(place) => BodyForm::Cancelled(place.id, place.until),
        }
    }
}
