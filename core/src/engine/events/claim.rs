//! An attempt claims its grant. For grants that nobody claims, see `unclaimed`.

use super::commit::Caller;
use crate::engine::counters::Counter;
use crate::engine::grant::{Before, Granted};
use crate::engine::queue::Ticket;
use crate::engine::unclaimed::{Claim, Own};
use crate::engine::{Clock, Engine, KeyName, KeyNames, Limits};
use crate::lock::record::Id;
use crate::lock::state::State;
use crate::lock::time::{Micros, MonotonicMicros, UnixMicros};
use crate::lock::token::Token;

impl<H> Engine<H> {
    /// An attempt's unclaimed grants on these keys.
    #[must_use]
    pub fn own_claims(&self, keys: KeyNames<'_>, id: Option<Id>) -> Own {
        match id {
            Some(id) if !self.claims.is_empty() => self.claims.own(keys, id, self.queues.marks()),
            _ => Own::default(),
        }
    }

    /// The grant of a key with this token, if it is still unclaimed.
    #[must_use]
    pub fn unclaimed(&self, key: KeyName<'_>, token: Token) -> Option<&Claim> {
        self.claims.of_grant(key, token, self.queues.marks()).map(|(_, claim, _)| claim)
    }

    /// Whether a grant of a key is unclaimed, or is about to be passed on because it was not claimed: nobody holds the
    /// lock through it.
    #[must_use]
    pub fn is_unclaimed(&self, key: KeyName<'_>, token: Token) -> bool {
        let marks = self.queues.marks();
        let lost = || self.outstanding.lost_of(key, token, marks);
        self.claims.of_grant(key, token, marks).is_some() || lost().is_some_and(|lost| lost.is_unclaimed)
    }

    /// Whether an expired lock's grant can still be claimed, because the server stalled or its clock was set. The
    /// grant is kept until the sockets have been read.
    #[must_use]
    #[inline]
    pub fn awaits_claim(&self, key: KeyName<'_>, lock: State<'_>) -> bool {
        match lock {
            State::Expired(_, Some(record)) if !self.claims.is_empty() => {
                let claim = self.claims.of_grant(key, record.token, self.queues.marks());
                claim.is_some_and(|(_, claim, _)| claim.leaves.is_none())
            }
            _ => false,
        }
    }

    /// Called when an attempt has claimed its grant, which now ends at `until`. Returns the grant and how long the
    /// attempt waited.
    pub fn claimed(
        &mut self,
        ticket: Ticket,
        until: UnixMicros,
        caller: Caller,
        clock: impl Clock,
    ) -> Option<(Granted, Micros)> {
        let claim = self.claims.take(ticket)?;
        self.count(Counter::Claims);
        self.queues.stop_skipping(&claim.channel);
        let waited = clock.monotonic().since(claim.since);
        self.waits.has_got_it(waited);
        let mut granted = claim.granted.claimed(until);
        let names: Vec<&[u8]> = claim.keys.iter().collect();
        self.granted_to_caller(KeyNames { db: claim.db, names: &names }, caller, &mut granted, clock);
        Some((granted, waited))
    }

    /// Called on each server tick: notes whether the server had stalled.
    pub fn note_turn(&mut self, now: MonotonicMicros, limits: Limits) {
        self.claims.seen(now, limits.claim, limits.tick);
    }

    /// Called when a claim was refused: the claim still shows that the attempt is alive.
    pub fn claim_refused(&mut self, ticket: Ticket) {
        self.claims.refused(ticket);
    }

    /// An unclaimed grant's predecessor, which has to be reported to the key's next holder. The lock is read only if
    /// the result depends on it.
    #[must_use]
    pub fn unclaimed_before<'l>(
        &self,
        key: KeyName<'_>,
        lock: impl FnOnce() -> State<'l>,
        token: Token,
    ) -> Option<Before> {
        match self.claims.of_grant(key, token, self.queues.marks()) {
            Some((_, claim, at)) => claim.granted.before(at).cloned(),
            // The grant may be about to be passed on, unless somebody has extended it.
            None => self.given_up(key, lock, token)?.succeeds.clone(),
        }
    }
}
