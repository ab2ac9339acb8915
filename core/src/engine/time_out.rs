//! Waits that time out.

use super::counters::Counter;
use super::parts::{Clock, Engine, Limits};
use super::written::End;

impl<H> Engine<H> {
    /// Ends at most `most` waits whose time is over.
    pub fn time_out(&mut self, most: usize, limits: Limits, clock: impl Clock) {
        let now = clock.monotonic();
        if self.queues.next_end().is_none_or(|end| end > now) {
            return;
        }
        for _ in 0..most {
            let Some(gone) = self.queues.time_out(now, limits.reserved_until(clock), limits.most_places()) else {
                return;
            };
            self.count(Counter::TimeOuts);
            self.end(gone, End::TimedOut);
        }
    }
}
