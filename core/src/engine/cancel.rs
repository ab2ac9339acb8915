//! LOCK.CANCEL: takes an attempt out of the queue.

use super::claim::GivenUp;
use super::counters::Counter;
use super::parts::{Clock, Engine, KeyName, Limits};
use super::queue::Channel;
use super::written::End;
use crate::lock::record::Id;
use std::rc::Rc;

impl<H> Engine<H> {
    /// LOCK.CANCEL: takes an attempt out of the queue, with a grant that it has not claimed, and bars late copies of its
    /// calls for a while. Returns whether it waited or had a place, and what passes on.
    pub fn cancel(&mut self, key: KeyName<'_>, id: Id, limits: Limits, clock: impl Clock) -> (bool, Vec<GivenUp>) {
        let found = self.queues.forget(key.db, key.name, id);
        self.count_given_up(limits);
        let own = self.own_claims(key.db, &[key.name], Some(id));
        let claims: Vec<_> = own.same.into_iter().chain(own.others).collect();
        let stood = found.is_some() || !claims.is_empty();
        if let Some((_, Some(gone))) = found {
            self.end(gone, End::Cancelled);
        }
        let given_up = claims.into_iter().filter_map(|claim| self.cancel_claim(claim)).collect();
        if let Some(until) = limits.reserved_until(clock) {
            self.queues.bar(key.db, key.name, id, until, limits.most_places());
        }
        (stood, given_up)
    }

    /// LOCK.CANCEL CHANNEL: the same for all attempts of a channel in the line of a key. Returns their
    /// number, and what passes on.
    pub fn cancel_channel(
        &mut self,
        key: KeyName<'_>,
        channel: &Rc<Channel>,
        limits: Limits,
        clock: impl Clock,
    ) -> (usize, Vec<GivenUp>) {
        let mut given_up = Vec::new();
        let waiting = self.queues.cancel_channel(key.db, key.name, channel);
        self.leave_ended(limits, clock);
        let claims = self.claims.of_channel(key.db, key.name, channel);
        for ticket in &claims {
            let id = self.claims.get(*ticket).map(|claim| claim.id);
            given_up.extend(self.cancel_claim(*ticket));
            if let (Some(id), Some(until)) = (id, limits.reserved_until(clock)) {
                self.queues.bar(key.db, key.name, id, until, limits.most_places());
            }
            self.count(Counter::Cancels);
        }
        (waiting.saturating_add(claims.len()), given_up)
    }
}
