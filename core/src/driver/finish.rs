//! The end of every entry from the server: it sends answers, subscribes to events that now matter, and sets the timer
//! for the next due time. Nothing else sets the timer, so no change can be forgotten.
//!
//! There is one timer for everything. The server's timers run on the wall clock, and fire late after it is set back. So
//! the driver remembers in monotonic time when the timer is due, and sets an overdue timer again.

use super::edge::Edge;
use super::entry::{Entry, Timer};
use crate::engine::counters::Counter;
use crate::engine::{Clock, Wake};
use crate::lock::time::{Micros, MonotonicMicros};

/// Half an hour: the timer fires by then even if the deadline is later. Redis 7.0 stores the time to its next timer as
/// a 32-bit number of microseconds: if that is more than 35 minutes away, its event loop never sleeps.
const LONGEST_MS: u64 = 1_800_000;
/// A timer that is overdue by more than this is set again.
const LATE: Micros = Micros(100_000);

impl<E: Edge> Entry<'_, E> {
    /// Ends the entry. The clocks are read only when the timer has to be set; a timer that fires too early does no
    /// harm.
    pub fn finish(&mut self) {
        if self.has_nothing_to_finish() {
            return;
        }
        self.send_answers();
        self.publish_notices();
        let (timer, wake, is_subscribed) = {
            let state = self.state();
            (state.timer, state.engine.wake(), state.is_subscribed_to_all())
        };
        self.settle_waits();
        if !is_subscribed {
            self.subscribe();
        }
        match timer {
            None if wake.is_never() => {}
            Some(timer) if !wake.is_never() && timer.wake.is_in_time_for(wake) => {}
            _ => {
                self.stop_timer();
                if !wake.is_never() {
                    self.set_timer(wake);
                }
            }
        }
    }

    /// Sends answers until the budget is spent; the rest follow in the next iteration. The budget is shared by all
    /// entries until everything is sent or the timer fires: the server frees an answer in an entry of its own, which
    /// would send more answers in the same iteration.
    fn send_answers(&mut self) {
        loop {
            let next = self.engine().next_answer();
            let Some((handle, letter)) = next else { return };
            self.edge.answer(handle, letter);
        }
    }

    /// The usual case: nobody waits, and no answer or message has to be sent.
    #[inline]
    fn has_nothing_to_finish(&mut self) -> bool {
        let state = self.state();
        state.timer.is_none() && state.engine.is_quiet()
    }

    /// Records the lengths of the waits that ended in this entry.
    fn settle_waits(&mut self) {
        if self.engine().waits().are_settled() {
            return;
        }
        let now = self.edge.clock().monotonic();
        self.engine().waits_mut().settle(now);
    }

    /// Subscribes to events on first use: key events when a client waits, connection events when a lock should end with
    /// its connection. Key events slow down every command that deletes a key, and most servers do not let a module
    /// unsubscribe.
    fn subscribe(&mut self) {
        let (keys, clients) = {
            let mut state = self.state();
            let keys = !state.is_subscribed_to_keys && state.engine.queues().waiters() > 0;
            let clients = !state.is_subscribed_to_clients && state.engine.has_sessions();
            state.is_subscribed_to_keys |= keys;
            state.is_subscribed_to_clients |= clients;
            (keys, clients)
        };
        if keys {
            self.edge.subscribe_to_keys();
        }
        if clients {
            self.edge.subscribe_to_clients();
        }
    }

    fn set_timer(&mut self, wake: Wake) {
        let clock = self.edge.clock();
        let now = clock.monotonic();
        let end = wake.end.map(|end| end.since(now));
        let due = wake.due.map(|due| due.since(clock.now()));
        let delay = end.into_iter().chain(due).min().unwrap_or(Micros(0));
        let id = self.edge.set_timer(delay.as_ms_ceil().min(LONGEST_MS));
        self.state().timer = Some(Timer { id, wake, at: now.after(delay) });
    }

    /// Stops the timer; the end of the entry sets it again.
    pub fn stop_timer(&mut self) {
        let timer = self.state().timer.take();
        if let Some(timer) = timer {
            self.edge.stop_timer(timer.id);
        }
    }

    /// Stops a timer that should have fired by now; the end of the entry sets it again.
    pub(super) fn renew_late_timer(&mut self, now: MonotonicMicros) {
        let is_late = self.state().timer.as_ref().is_some_and(|timer| timer.at.after(LATE) < now);
        if is_late {
            self.stop_timer();
            self.engine().count(Counter::LateTimers);
        }
    }
}
