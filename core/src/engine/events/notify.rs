//! The turn of an attempt that waits without a connection: it is told on its channel, unless nobody seems to listen
//! there.

use crate::engine::counters::Counter;
use crate::engine::outbox::{News, Notice};
use crate::engine::queue::{Handle, Ticket};
use crate::engine::{Clock, Engine, Limits};
use crate::lock::time::Micros;

/// An attempt whose turn has come, and that has heard of it as far as is known.
#[derive(Clone, Copy, Debug)]
pub struct Notified {
    /// Its ticket.
    pub ticket: Ticket,
    /// Its lease until it claims the lock.
    pub lease: Micros,
    /// Whether it was told. In a transaction or a script it is told later.
    pub is_sent: bool,
}

/// How to find out whether an attempt is still there.
#[derive(Debug)]
pub struct Notification {
    /// The message for it.
    pub notice: Notice,
    /// Whether it was sent so recently that it may not listen yet.
    pub is_recent: bool,
}

impl<H> Engine<H> {
    /// The message for an attempt whose turn has come; `None` if it is passed over, because its channel is silent or it
    /// no longer waits.
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

    /// An attempt was not heard when its turn came: it leaves the queue as if it had disconnected.
    pub fn pass_over(&mut self, ticket: Ticket, limits: Limits, clock: impl Clock) {
        let kept_until = limits.reserved_until(clock);
        let gone = self.queues.end_wait(ticket, kept_until, limits.most_places());
        if gone.is_some() {
            self.count(Counter::Unheard);
        }
        self.not_kept(gone);
    }
}
