//! Slots that leave: which queues have to be checked because their slots may no longer be served here.

use super::{QueueId, Queues};
use crate::lock::time::MonotonicMicros;
use std::mem::take;

/// The first entry of `waiting_since`.
const START: (MonotonicMicros, QueueId) = (MonotonicMicros(0), QueueId(0));

/// A check of all queues with waiters, a piece at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlotCheck {
    /// Where it continues in `waiting_since`; `None` if no check is under way. A queue whose first waiter leaves moves
    /// towards the end, so none is missed.
    pub(super) next: Option<(MonotonicMicros, QueueId)>,
    /// Whether slots left since it began. Then another check follows: beginning again at once would never reach the
    /// last queues while slots leave all the time.
    pub(super) has_to_repeat: bool,
}

impl<H> Queues<H> {
    /// Called when slots left this server, or may have: all queues with waiters have to be checked.
    pub fn begin_slot_check(&mut self) {
        if self.waiting_since.is_empty() {
            self.slot_check = SlotCheck::default();
        } else if self.slot_check.next.is_some() {
            self.slot_check.has_to_repeat = true;
        } else {
            self.slot_check.next = Some(START);
        }
    }

    /// The next queue whose slot has to be checked; `None` at the end of a check.
    pub fn next_unchecked(&mut self) -> Option<QueueId> {
        let from = self.slot_check.next?;
        let next = self.waiting_since.range(from..).next().copied();
        self.slot_check.next = match next {
            Some((since, id)) => Some((since, QueueId(id.0.saturating_add(1)))),
            None => take(&mut self.slot_check.has_to_repeat).then_some(START),
        };
        next.map(|(_, id)| id)
    }

    /// Whether queues have to be checked.
    #[must_use]
    pub const fn is_checking_slots(&self) -> bool {
        self.slot_check.next.is_some()
    }

    /// Ends the check: no slot can leave this server.
    pub fn end_slot_check(&mut self) {
        self.slot_check = SlotCheck::default();
    }
}
