//! A connection ends, and with it its client's wait and its session's locks.

use crate::engine::budget::Budget;
use crate::engine::queue::{Gone, Handle, MostPlaces, ReplyShape};
use crate::engine::{Clock, Engine, Limits};
use crate::lock::time::UnixMicros;

impl<H> Engine<H> {
    /// Called when a waiting client has disconnected, or the server answered it. Returns its handle and the shape of
    /// its reply; `None` if it was not waiting.
    pub fn left(&mut self, client: u64, limits: Limits, clock: impl Clock) -> Option<(H, ReplyShape)> {
        let left = self.queues.leave(client, limits.reserved_until(clock), limits.most_places());
        let mut dissolving = self.dissolving.iter_mut();
        let left = left.or_else(|| dissolving.find_map(|queues| queues.leave(client, None, MostPlaces::NONE)));
        let Gone { waiter, is_kept, result, .. } = left?;
        self.keep_result_of(waiter.id, result.as_ref());
        if !is_kept {
            self.waits.has_ended(waiter.since);
        }
        match waiter.handle {
            Handle::Blocked { handle, .. } => Some((handle, waiter.shape)),
            Handle::Channel { .. } => None,
        }
    }

    /// Called when a connection ended: its locks end soon. The waits of its attempts that are not blocked end soon too,
    /// and so do their unclaimed grants.
    pub fn connection_ended(&mut self, client: u64, at: UnixMicros, limits: Limits, clock: impl Clock) {
        self.sessions.end(client, at);
        self.queues.end_session(client);
        self.claims.end_session(client);
        let mut events = std::mem::replace(&mut self.events, Budget::of(0));
        self.leave_ended(&mut events, limits, clock);
        self.events = events;
    }
}
