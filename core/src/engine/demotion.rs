//! This server no longer serves what was waited for: it is a replica now, or a slot is no longer its own.

use super::outbox::Answer;
use super::parts::Engine;
use super::queue::LineId;
use crate::lock::error::Error;

impl<H> Engine<H> {
    /// This server is a replica from now on: all waits and sessions end.
    pub fn demoted(&mut self) {
        self.outstanding.forget_lost();
        self.ended.clear();
        self.sessions.clear();
        for waiter in self.queues.dissolve_all() {
            self.outbox.put(waiter.handle, Answer::Failed(Error::Demoted));
        }
    }

    /// Ends the waits of all in a line, whose key is not served here any longer.
    pub fn slot_lost(&mut self, line: LineId) {
        for waiter in self.queues.dissolve(line) {
            self.outbox.put(waiter.handle, Answer::Failed(Error::SlotLost));
        }
    }
}
