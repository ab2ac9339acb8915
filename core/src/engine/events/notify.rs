//! An attempt that waits without a connection could have its lock: it is notified on its channel if the channel seems
//! to have a subscriber.

use crate::engine::counters::Counter;
use crate::engine::outbox::{News, Notice};
use crate::engine::queue::{Handle, Ticket};
use crate::engine::{Clock, Engine, Limits};
use crate::lock::time::Micros;

/// An attempt that could have its lock, and whose channel seems to have a subscriber.
#[derive(Clone, Copy, Debug)]
pub struct Notified {
    pub ticket: Ticket,
    /// Its lease until it claims the lock.
    pub lease: Micros,
    /// Whether its message was sent. In a transaction or a script it is sent later.
    pub is_sent: bool,
}

/// A message that shows whether an attempt is still there.
#[derive(Debug)]
pub struct Notification {
    /// The message.
    pub notice: Notice,
    /// Whether the attempt was sent so recently that its client may not have subscribed yet.
    pub is_recent: bool,
}

impl<H> Engine<H> {
    /// The message for an attempt that could have its lock; `None` if the attempt is passed over because its channel is
    /// skipped or it no longer waits.
    #[must_use]
    pub fn notification(&self, ticket: Ticket, limits: Limits, clock: impl Clock) -> Option<Notification> {
        let waiter = self.queues.waiter(ticket)?;
        let Handle::Channel { channel, sent, .. } = &waiter.handle else { return None };
        if self.queues.is_skipped(channel) {
            return None;
        }
        let (_, keys) = self.queues.keys(ticket)?;
        let is_recent = clock.monotonic().since(*sent) < limits.claim;
        let channel = std::rc::Rc::clone(channel);
        Some(Notification {
            notice: Notice { channel, news: News::Granted, id: waiter.id?, keys, claim: None },
            is_recent,
        })
    }

    /// Called when an attempt's channel has no subscriber: the attempt leaves the queue as if it had disconnected.
    pub fn pass_over(&mut self, ticket: Ticket, limits: Limits, clock: impl Clock) {
        let kept_until = limits.reserved_until(clock);
        let gone = self.queues.end_wait(ticket, kept_until, limits.most_places());
        if gone.is_some() {
            self.count(Counter::NoSubscriber);
        }
        self.not_kept(gone);
    }
}
