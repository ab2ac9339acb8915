//! Ends waits for leases that the failover grace does not cover, when it was set or made shorter since they began.
//!
//! All of them are told, wherever they stand, a bounded number in each event-loop iteration. No grant depends on it:
//! the lease of a waiter is checked again before its grant.

use super::blocked::Answer;
use super::context::Context;
use super::{state, waiting};
use crate::broken::{self, Mutant};
use crate::engine::queue::Deadline;
use crate::lock::time::Micros;

/// How far a check has come: waiters are walked in the order of their deadlines.
#[derive(Clone, Copy, Debug, Default)]
enum Sweep {
    #[default]
    Done,
    Begins,
    GoesOn(Deadline),
}

/// What is enforced, and the check under way.
#[derive(Debug, Default)]
pub struct Leases {
    /// The longest lease that a waiter may have asked for; nothing: any.
    limit: Option<Micros>,
    sweep: Sweep,
}

impl Leases {
    /// Whether a check is under way.
    #[must_use]
    pub const fn has_work(&self) -> bool {
        !matches!(self.sweep, Sweep::Done)
    }

    fn set(&mut self, limit: Option<Micros>) {
        let is_shorter = limit.is_some_and(|limit| self.limit.is_none_or(|known| limit < known));
        self.limit = limit;
        if limit.is_none() || broken::is(Mutant::LongLeaseWaits) {
            self.sweep = Sweep::Done;
        } else if is_shorter {
            self.sweep = Sweep::Begins;
        }
    }
}

/// So many waiters are looked at in one event-loop iteration.
const LOOKED_AT: usize = 2_048;
/// And so many are told at most.
const TOLD: usize = 128;

/// Notes a limit that has changed.
pub fn look(context: &Context) {
    let limit = state::grace_settings(context).longest_lease();
    let _ = state::with(|state| state.leases.set(limit));
}

/// Goes on with a check that is under way.
pub fn sweep(context: &Context) {
    let settings = state::grace_settings(context);
    let found = state::with(|state| {
        let from = match state.leases.sweep {
            Sweep::Done => return None,
            Sweep::Begins => None,
            Sweep::GoesOn(deadline) => Some(deadline),
        };
        let (clients, next) = state.queues.walk(from, LOOKED_AT, TOLD, |waiter| settings.check(waiter.lease).err());
        state.leases.sweep = next.map_or(Sweep::Done, Sweep::GoesOn);
        Some(clients)
    });
    for (client, error) in found.ok().flatten().unwrap_or_default() {
        waiting::end(client, Answer::Failed(error));
    }
}
