//! The server stops serving keys: it became a replica, or a slot left it.

use super::parts::Engine;
use super::queue::LineId;

impl<H> Engine<H> {
    /// The server became a replica: all waits and sessions end, and nobody can claim a grant any more.
    pub fn demoted(&mut self) {
        self.outstanding.forget_lost();
        self.leftovers.add(std::mem::take(&mut self.sessions), std::mem::take(&mut self.claims));
        self.ended.clear();
        self.cut_short.clear();
        self.grantees.clear();
        if !self.queues.is_empty() {
            self.dissolving.push(std::mem::take(&mut self.queues));
        }
        self.leave_unserved();
    }

    /// Ends all waits in a line whose key is no longer served here.
    pub fn slot_lost(&mut self, line: LineId) {
        self.queues.lose_line(line);
        self.leave_unserved();
    }
}
