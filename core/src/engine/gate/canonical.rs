//! The canonical form of the gate, for comparison.

use super::{Gate, Sweep};
use crate::engine::queue::{Order, Ticket};
use crate::lock::clocks::Clocks;
use crate::lock::grace::{Misconfiguration, Reign};
use crate::lock::time::{Micros, MonotonicMicros};
use crate::lock::token::Token;

/// The canonical form of a [`Gate`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GateForm {
    reign: Reign,
    clocks: Clocks,
    longest_lease: Option<Micros>,
    sweep: Sweep<(MonotonicMicros, usize)>,
    is_in_grace: bool,
    misconfiguration: Option<Misconfiguration>,
    checked: MonotonicMicros,
    own: Vec<Token>,
}

impl Gate {
    /// The ticket after which a check of the waiters continues.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        match self.sweep {
            Sweep::GoesOn((_, ticket)) => Some(ticket),
            Sweep::Done | Sweep::Begins => None,
        }
    }

    #[must_use]
    pub fn canonical(&self, tickets: &Order<Ticket>) -> GateForm {
        let sweep = match self.sweep {
            Sweep::Done => Sweep::Done,
            Sweep::Begins => Sweep::Begins,
            Sweep::GoesOn((end, ticket)) => Sweep::GoesOn((end, tickets.at(ticket))),
        };
        let Self { reign, clocks, longest_lease, is_in_grace, misconfiguration, checked, .. } = *self;
        let own = self.own.iter().copied().collect();
        GateForm { reign, clocks, longest_lease, sweep, is_in_grace, misconfiguration, checked, own }
    }
}
