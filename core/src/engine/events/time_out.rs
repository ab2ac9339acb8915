//! Waits and reserved places that time out.

use super::end_wait::End;
use crate::engine::budget::Budget;
use crate::engine::counters::Counter;
use crate::engine::{Clock, Engine, Limits};
use crate::lock::time::Micros;

impl<H> Engine<H> {
    /// Ends waits and reserved places whose time is up, until the budget is spent.
    pub fn time_out(&mut self, budget: &mut Budget, limits: Limits, clock: impl Clock) {
        let now = clock.monotonic();
        if self.queues.next_end().is_none_or(|end| end > now) {
            return;
        }
        while budget.has_left() {
            let gone = self.queues.time_out(now, limits.reserved_until(clock), limits.most_places());
            let Some((keys, gone)) = gone else { break };
            budget.spend_on_waiter(&keys);
            if let Some(gone) = gone {
                if gone.result.is_none() {
                    self.count(Counter::TimeOuts);
                }
                self.end(gone, End::TimedOut);
            }
        }
        self.count_given_up(limits);
    }

    /// Counts the waits of the attempts whose places were given up: they ended when the places were reserved.
    pub(super) fn count_given_up(&mut self, limits: Limits) {
        for (since, until) in self.queues.take_given_up() {
            let waited = until.since(since);
            self.waits.has_failed(Micros(waited.0.saturating_sub(limits.place.0)));
        }
    }
}
