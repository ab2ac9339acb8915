//! A waiter for several locks: where it is parked, and its grant of all of them.

use super::join::Blocked;
use super::notify::Notified;
use crate::engine::grant::{Decision, Granted};
use crate::engine::queue::{Keys, Ticket};
use crate::engine::Engine;
use crate::lock::admit::{self, Turn};
use crate::lock::state::State;
use crate::lock::terms::Terms;
use crate::lock::time::{Micros, UnixMicros};

impl<H> Engine<H> {
    /// A waiter for several locks: its lease, database and keys, and whether it has to be notified before it is granted
    /// its locks. `None` if it no longer waits.
    #[must_use]
    pub fn parked(&self, ticket: Ticket) -> Option<(Micros, i32, Keys, bool)> {
        let waiter = self.queues.waiter(ticket)?;
        let (db, keys) = self.queues.keys(ticket)?;
        Some((waiter.lease, db, keys, waiter.channel().is_some()))
    }

    /// Parks a waiter for several locks at a lock that it cannot have. Returns whether it was parked there before.
    pub fn park(&mut self, ticket: Ticket, blocked: Blocked) -> bool {
        let before = self.queues.queue_of_ticket(ticket);
        let Some(queue) = self.queues.park(ticket, blocked.at) else { return false };
        if let Some(due) = blocked.due {
            self.queues.set_due_by(queue, due);
        }
        if blocked.last_end.is_some() {
            self.queues.set_last_end(queue, blocked.last_end);
            self.queues.set_held(queue, blocked.held_since);
        }
        before == Some(queue)
    }

    /// Grants a waiter all of its several locks, if all are available.
    pub fn grant_all(
        &mut self,
        ticket: Ticket,
        locks: &[State<'_>],
        terms: Terms,
        notified: Option<Notified>,
        now: UnixMicros,
    ) -> Option<(Vec<Decision>, Granted)> {
        let waiter = self.queues.waiter(ticket)?;
        let request = waiter.request(notified.map_or(Micros(0), |notified| notified.lease));
        let decisions = admit::acquire_all(locks, &request, Turn::Now, terms, &mut self.tokens, now);
        Decision::to_grants(&decisions.ok()??)
    }
}
