//! LOCK.CANCEL: takes an attempt out of the queue.

use super::end_wait::End;
use super::unclaimed::GivenUp;
use crate::engine::budget::Budget;
use crate::engine::counters::Counter;
use crate::engine::grant::{Granted, Written};
use crate::engine::queue::{Channel, Ticket};
use crate::engine::unclaimed::{Leaves, Own};
use crate::engine::{Clock, Engine, KeyName, Limits};
use crate::lock::record::Id;
use crate::lock::token::Token;
use std::rc::Rc;

impl<H> Engine<H> {
    /// An attempt's unclaimed grant of a key: its ticket, its token, and what was written with it.
    #[must_use]
    pub fn unclaimed_by(&self, key: KeyName<'_>, id: Id) -> Option<(Ticket, Token, Written)> {
        let Own { same, others } = self.own_claims(key.alone(), Some(id));
        let ticket = same.or_else(|| others.first().copied())?;
        let Granted { token, until, .. } = self.claims.get(ticket)?.granted;
        Some((ticket, token, Written { until, id: None, owner: None }))
    }

    /// LOCK.CANCEL, once the end of the attempt's grant is written to the key: takes an attempt and its unclaimed grant
    /// out of the queue, and blocks late copies of its commands for a while. Returns whether the attempt was waiting or
    /// had a place, and what is passed on. When memory is nearly full, an unknown attempt is not blocked: the server
    /// cannot evict that entry, and would evict keys instead.
    pub fn cancel(
        &mut self,
        key: KeyName<'_>,
        id: Id,
        is_nearly_full: bool,
        limits: Limits,
        clock: impl Clock,
    ) -> (bool, Vec<GivenUp>) {
        let was_barred = is_nearly_full && self.queues.is_barred(key.alone(), id);
        let found = self.queues.forget(key, id);
        self.count_given_up(limits);
        let own = self.own_claims(key.alone(), Some(id));
        let claims: Vec<_> = own.same.into_iter().chain(own.others).collect();
        let was_there = found.is_some() || !claims.is_empty();
        if let Some((_, Some(gone))) = found {
            self.end(gone, End::Cancelled);
        }
        let given_up = claims.into_iter().filter_map(|claim| self.cancel_claim(claim)).collect();
        // An attempt that has left with a result can still ask for it.
        let may_bar = (!is_nearly_full || was_there || was_barred) && self.kept_result(key, id, clock).is_none();
        if let Some(until) = limits.reserved_until(clock).filter(|_| may_bar) {
            self.queues.bar(key, id, until, limits.most_places());
        }
        (was_there, given_up)
    }

    /// LOCK.CANCEL CHANNEL: cancels all of a channel's attempts in a key's queue. If there are many, the rest are
    /// removed soon, and get nothing until then. Returns their number, and what is passed on.
    pub fn cancel_channel(
        &mut self,
        key: KeyName<'_>,
        channel: &Rc<Channel>,
        limits: Limits,
        clock: impl Clock,
    ) -> (usize, Vec<GivenUp>) {
        let (mut given_up, mut budget) = (Vec::new(), Budget::COMMAND);
        let waiting = self.queues.cancel_channel(key, channel);
        self.leave_ended(&mut budget, limits, clock);
        let claims = self.claims.of_channel(key, channel, self.queues.marks());
        for (ticket, at) in &claims {
            if budget.has_left() {
                let cancelled = self.cancel_and_bar(*ticket, *at, limits, clock);
                if let Some(cancelled) = &cancelled {
                    budget.spend_on_each(&cancelled.keys);
                }
                given_up.extend(cancelled);
            } else {
                self.claims.leave_soon(*ticket, Leaves::Cancelled { at: *at });
            }
            self.count(Counter::Cancels);
        }
        (waiting.saturating_add(claims.len()), given_up)
    }
}
