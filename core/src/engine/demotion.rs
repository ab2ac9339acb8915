//! The server stops serving keys: it became a replica, or a slot left it.

use super::outbox::Answer;
use super::parts::Engine;
use super::queue::LineId;
use crate::lock::error::Error;

impl<H> Engine<H> {
    /// The server became a replica: all waits and sessions end.
    pub fn demoted(&mut self) {
        self.outstanding.forget_lost();
        self.ended.clear();
        self.sessions.clear();
        for waiter in self.queues.dissolve_all() {
            self.outbox.put(waiter.handle, Answer::Failed(Error::Demoted));
        }
    }

    /// Ends all waits in a line whose key is no longer served here.
    pub fn slot_lost(&mut self, line: LineId) {
        for waiter in self.queues.dissolve(line) {
            self.outbox.put(waiter.handle, Answer::Failed(Error::SlotLost));
        }
    }
}
