//! A grace was set or shortened while clients wait: waits for leases that it does not cover end.

use super::grace::Sweep;
use super::parts::{Engine, KeyName};
use super::queue::{MostPlaces, Ticket};
use super::written::End;
use crate::lock::error::Error;
use crate::lock::grace;

/// How many waiters a check of the leases inspects in one event-loop iteration.
const INSPECTED: usize = 2_048;
/// How many waits it ends at most in one iteration.
const ENDED: usize = 128;

impl<H> Engine<H> {
    /// Ends a wait and reserves no place.
    pub fn end_wait(&mut self, ticket: Ticket, error: Error) {
        if let Some(gone) = self.queues.end_wait(ticket, None, MostPlaces::NONE) {
            self.end(gone, End::Failed(error));
        }
    }

    /// Ends waits at the head of a line for leases that the grace does not cover: it was set after they began.
    pub fn end_leases_beyond_grace(&mut self, key: KeyName<'_>, grace: &grace::Settings) {
        while let Some(line) = self.queues.waited_line(key.db, key.name) {
            let queues = &mut self.queues;
            let Some(Err(error)) = queues.head(line).map(|head| grace.check(head.lease)) else { return };
            let Some((_, gone)) = queues.pop_head(line) else { return };
            self.end(gone, End::Failed(error));
        }
    }

    /// Continues a check of all waiters for leases that the grace does not cover.
    pub fn sweep_leases(&mut self, grace: &grace::Settings) {
        let from = match self.gate.sweep {
            Sweep::Done => return,
            Sweep::Begins => None,
            Sweep::GoesOn(deadline) => Some(deadline),
        };
        let (found, next) = self.queues.walk(from, INSPECTED, ENDED, |waiter| grace.check(waiter.lease).err());
        self.gate.sweep = next.map_or(Sweep::Done, Sweep::GoesOn);
        for (ticket, error) in found {
            self.end_wait(ticket, error);
        }
    }
}
