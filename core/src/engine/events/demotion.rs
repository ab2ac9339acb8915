//! The server stops serving keys: it became a replica, or a slot left it. Everything that ends as a result is removed
//! soon, a piece at a time.

use crate::engine::budget::Budget;
use crate::engine::leftovers::Reign;
use crate::engine::queue::{QueueId, Queues};
use crate::engine::Engine;
use std::mem::take;

impl<H> Engine<H> {
    /// Called when the server became a replica: all waits and sessions end, and grants can no longer be claimed.
    pub fn demoted(&mut self) {
        self.leftovers.add(Reign {
            sessions: take(&mut self.sessions),
            claims: take(&mut self.claims),
            lost: self.outstanding.forget_lost(),
            ended: take(&mut self.ended),
            cut_short: take(&mut self.cut_short),
        });
        self.grantees.clear();
        if !self.queues.is_empty() {
            let queues = Queues::with(self.queues.marks().clone());
            self.dissolving.push(std::mem::replace(&mut self.queues, queues));
        }
        let mut budget = Budget::COMMAND;
        self.leave_unserved(&mut budget);
    }

    /// Called when slots left this server, or may have. The next runs of the timer ask the server about each queue.
    pub fn slots_left(&mut self) {
        self.queues.begin_slot_check();
    }

    /// The next queue whose slot has to be checked; `None` if the others can wait for the next run of the timer.
    pub fn next_unchecked(&mut self) -> Option<QueueId> {
        self.queues.next_unchecked()
    }

    /// Called when no slot can leave this server.
    pub fn keeps_slots(&mut self) {
        self.queues.end_slot_check();
    }

    /// Ends all waits in a queue whose key is no longer served here.
    pub fn slot_lost(&mut self, queue: QueueId, budget: &mut Budget) {
        self.queues.lose_queue(queue);
        self.leave_unserved(budget);
    }
}
