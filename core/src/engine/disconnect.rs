//! A connection ends, and with it the wait of its client and the locks of its session.

use super::parts::{Clock, Engine, Limits};
use super::queue::ReplyShape;
use crate::lock::time::UnixMicros;

impl<H> Engine<H> {
    /// A client that waited is gone, or the server answered it. Returns how to reach it and the shape of the reply that
    /// it would have got; `None` if it did not wait.
    pub fn left(&mut self, client: u64, limits: Limits, clock: impl Clock) -> Option<(H, ReplyShape)> {
        let left = self.queues.leave(client, limits.reserved_until(clock), limits.most_places());
        left.map(|waiter| (waiter.handle, waiter.shape))
    }

    /// A connection ended: notes its locks, to be ended soon.
    pub fn connection_ended(&mut self, client: u64, at: UnixMicros) {
        let grants = self.sessions.end(client);
        self.ended.add(grants, at);
    }
}
