//! The queue of one key, and what a ticket means in it.

use super::delivery::Delivery;
use super::singles::Singles;
use super::tickets::{earlier, in_order, Tickets};
use super::{Leaving, Place, QueueId, Ticket, Waiter};
use crate::engine::names::{Mark, Names};
use crate::lock::record::Id;
use crate::lock::time::{MonotonicMicros, UnixMicros};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// Why a queue is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Its lock may have become free, and is kept for the queue until it has been served.
    Event,
    /// A periodic check: a change to the key may have gone unreported.
    Scan,
    /// One event-loop iteration was not enough to try all parked waiters.
    Continue,
}

#[derive(Clone, Debug)]
pub(super) enum Body<H> {
    Waits(Waiter<H>),
    Keeps(Place),
    /// The attempt was cancelled: late copies of its commands get nothing.
    Cancelled(Place),
}

impl<H> Body<H> {
    /// Whether its attempt takes the holder's result instead of the lock.
    pub(super) const fn wants_result(&self) -> bool {
        match self {
            Self::Waits(waiter) => waiter.wants_result,
            Self::Keeps(place) => place.wants_result,
            Self::Cancelled(_) => false,
        }
    }
}

/// Where a ticket is.
#[derive(Clone, Debug)]
pub(super) enum Position {
    /// In the queue of its only key.
    In(QueueId),
    /// For several keys: parked in the queue of one of them, or in no queue if it is a reserved place.
    Parked { db: i32, names: Rc<Names>, queue: Option<QueueId> },
}

/// The owner of a ticket.
#[derive(Clone, Debug)]
pub(super) struct Entry<H> {
    pub(super) position: Position,
    pub(super) body: Body<H>,
}

impl<H> Entry<H> {
    pub(super) fn waiter(&self) -> Option<&Waiter<H>> {
        match &self.body {
            Body::Waits(waiter) => Some(waiter),
            Body::Keeps(_) | Body::Cancelled(_) => None,
        }
    }

    pub(super) fn since(&self) -> Option<MonotonicMicros> {
        match &self.body {
            Body::Waits(waiter) => Some(waiter.since),
            Body::Keeps(place) | Body::Cancelled(place) => place.since,
        }
    }

    pub(super) fn id(&self) -> Option<Id> {
        match &self.body {
            Body::Waits(waiter) => waiter.id,
            Body::Keeps(place) | Body::Cancelled(place) => Some(place.id),
        }
    }
}

/// The queue of one key.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub(super) db: i32,
    pub(super) name: Rc<[u8]>,
    pub(super) mark: Mark,
    /// The waiters for this lock alone.
    pub(super) single: Singles,
    /// The waiters for several locks that cannot have this lock.
    pub(super) parked: BTreeSet<Ticket>,
    pub(super) places: Tickets,
    /// Attempts that have left with a result, and are still to be removed.
    pub(super) deliveries: VecDeque<Delivery>,
    /// The IDs of `single` and `places`.
    pub(super) ids: BTreeMap<Id, Ticket>,
    /// When the lock becomes free on its own, if known.
    pub(super) due: Option<UnixMicros>,
    /// When the last holder seen expires.
    pub(super) last_end: Option<UnixMicros>,
    /// The time until which the lock still counts as held although its key was evicted.
    pub(super) evicted_until: Option<UnixMicros>,
    /// The ticket that determines when the queue is served, if it has to be served.
    pub(super) ready: Option<Ticket>,
    /// Why it has to be served.
    pub(super) cause: Cause,
    /// How many of the parked waiters were tried since the lock may have become free.
    pub(super) tried: usize,
    /// Whether the server refused to write its key, and has not written it since.
    pub(super) is_refused: bool,
    /// Whether its key is no longer served here, so that its waiters are leaving.
    pub(super) is_lost: bool,
    /// The binary logarithm of its length, under which it is listed in `by_length`.
    pub(super) log_length: Option<u32>,
    /// Its first waiter, and when that waiter began to wait: the queue is listed under both in `waiting_since`.
    pub(super) first: Option<(Ticket, MonotonicMicros)>,
    /// The time since which its lock has been held, if known: the queue is listed under this time in `held`.
    pub(super) held_since: Option<UnixMicros>,
}

impl Queue {
    pub(super) fn head(&self) -> Option<Ticket> {
        match (self.single.first(), self.parked.first()) {
            (Some(single), Some(parked)) => Some(*single.min(parked)),
            (single, parked) => single.or(parked).copied(),
        }
    }

    /// The first waiter, without those that are leaving.
    pub(super) fn head_but(&self, leaving: Leaving) -> Option<Ticket> {
        let head = self.head();
        match leaving {
            Leaving::Nobody => head,
            Leaving::One(ticket) if head != Some(ticket) => head,
            Leaving::One(ticket) => self.in_order().copied().find(|other| *other != ticket),
            Leaving::Wanting { all } => earlier(self.single.first_without_result(all), self.parked.first()).copied(),
        }
    }

    /// All waiters, in order.
    pub(super) fn in_order(&self) -> impl Iterator<Item = &Ticket> {
        let [[one, two], [three, four]] = [self.single.blocked().sets(), self.single.notifiable().sets()];
        in_order([one, two, three, four, &self.parked])
    }

    pub(super) fn since(&self) -> Option<MonotonicMicros> {
        self.first.map(|(_, since)| since)
    }

    pub(super) fn waiters(&self) -> usize {
        self.single.len().saturating_add(self.parked.len())
    }

    pub(super) fn is_waited_for(&self) -> bool {
        !(self.single.is_empty() && self.parked.is_empty())
    }
}
