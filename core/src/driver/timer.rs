//! The timer: ends waits, and gives locks that became free by expiry or by other means to the first waiter. Each
//! event-loop iteration does a bounded amount of work; the timer runs again for the rest. The engine computes the time
//! in `next_run`, and `finish` sets the timer.

use super::edge::{Edge, Permit, WriteRefused};
use super::entry::Entry;
use crate::engine::budget::Budget;
use crate::engine::counters::Counter;
use crate::engine::queue::QueueId;
use crate::engine::{Clock as _, Iteration, KeyName, Task};

/// The most grants passed on and queues checked in one iteration. The iteration ends earlier if its budget is spent:
/// one step may have to read a whole set of holders.
const PER_ITERATION: usize = 128;

impl<E: Edge> Entry<'_, E> {
    pub fn timer_fired(&mut self) {
        // A timer that has fired must not be stopped.
        self.state().timer = None;
        let (limits, clock) = (self.edge.limits(), self.edge.clock());
        let is_out_of_memory = !self.engine().claims().is_empty() && self.edge.is_out_of_memory();
        let mut budget = Budget::ITERATION;
        {
            let mut engine = self.engine();
            engine.renew_events();
            engine.renew_answers();
            engine.leave_unserved(&mut budget);
            budget.part(|part| engine.deliver_results(part));
            budget.part(|part| engine.forget_results(clock.monotonic(), part));
            engine.leave_ended(&mut budget, limits, clock);
            budget.part(|part| engine.end_unclaimed(part, is_out_of_memory, limits, clock));
            budget.part(|part| engine.time_out(part, limits, clock));
        }
        self.sweep_leases(&mut budget);
        self.check_slots(&mut budget);
        let begun = self.engine().begin_iteration(&mut budget, clock);
        if let Some(iteration) = begun {
            self.iterate(iteration, budget);
        }
    }

    fn iterate(&mut self, mut iteration: Iteration, mut budget: Budget) {
        let clock = self.edge.clock();
        let Some(permit) = self.permit() else {
            self.end_queues_of_lost_slots(&mut budget);
            self.engine().postpone(clock);
            return;
        };
        for _ in 0..PER_ITERATION {
            if !budget.is_left(self.edge.clock()) {
                break;
            }
            let task = self.engine().next_task(&mut iteration, &mut budget);
            let Some(task) = task else { break };
            if self.see_to(permit, &task, &mut budget) == Err(WriteRefused::ForNow) {
                self.engine().refused_for_now(task, &mut iteration, clock);
            }
        }
        self.engine().end_iteration(&iteration, clock);
    }

    /// The permission to write outside a command, if the server and the gate allow it now.
    pub(super) fn permit(&mut self) -> Option<Permit> {
        (self.edge.may_write() && self.may_grant().is_ok()).then_some(Permit::TIMER)
    }

    fn see_to(&mut self, permit: Permit, task: &Task, budget: &mut Budget) -> Result<(), WriteRefused> {
        match task {
            Task::PassOn(lost) => self.pass_on_lost(permit, lost, budget),
            Task::EndSession((key, token), at) => self.end_session(permit, key, *token, *at),
            Task::Serve(queue, why) => {
                let reported = self.engine().reported();
                let is_granted = self.serve(permit, *queue, budget)?;
                // An expiry that the server notices and reports only when the key is opened was not missed.
                if is_granted && why.is_missed(self.edge.clock().now()) && self.engine().reported() == reported {
                    self.engine().count(Counter::MissedWakeups);
                }
                Ok(())
            }
        }
    }

    /// Answers waiters whose slots left, once that has been reported or is due to be checked, even while no lock may be
    /// granted.
    fn check_slots(&mut self, budget: &mut Budget) {
        if !self.engine().queues().is_checking_slots() {
            return;
        }
        if !self.edge.may_lose_slots() {
            self.engine().keeps_slots();
            return;
        }
        budget.part(|part| {
            while part.has_left() {
                let queue = self.engine().next_unchecked();
                let Some(queue) = queue else { break };
                self.end_if_lost(queue, part);
            }
        });
    }

    /// Answers waiters in ready queues whose slots are not served here, even while no lock may be granted.
    fn end_queues_of_lost_slots(&mut self, budget: &mut Budget) {
        if !self.edge.may_lose_slots() {
            return;
        }
        let queues = self.engine().take_ready(PER_ITERATION);
        for queue in queues {
            if !self.end_if_lost(queue, budget) {
                self.engine().set_ready(queue);
            }
        }
    }

    /// Ends a queue if its slot is not served here. Returns whether it did. The key is not opened: reading many holders
    /// again and again for nothing would take a long time.
    fn end_if_lost(&mut self, queue: QueueId, budget: &mut Budget) -> bool {
        let key = self.engine().queues().key(queue);
        let Some((db, bytes)) = key else { return false };
        budget.spend_names(1, bytes.len());
        let name = self.edge.name(KeyName { db, name: &bytes });
        let is_lost = name.is_some_and(|name| !self.edge.serves(E::lend(&name)));
        if is_lost {
            self.engine().slot_lost(queue, budget);
        }
        is_lost
    }
}
