//! An attempt claims its grant, or does not.

use super::claims::{Claim, Own};
use super::counters::Counter;
use super::grant::{Before, Granted, Written};
use super::outbox::{News, Notice};
use super::outstanding::Lost;
use super::parts::{Clock, Engine, KeyName, Limits};
use super::queue::{Channel, Keys, Place, Ticket};
use super::written::Caller;
use crate::lock::record::Id;
use crate::lock::rules::{self, State};
use crate::lock::time::{Micros, UnixMicros};
use crate::lock::token::Token;

/// A grant that cannot be claimed any more, and passes on.
#[derive(Clone, Debug)]
pub struct GivenUp {
    /// Database of its keys.
    pub db: i32,
    /// Its keys.
    pub keys: Keys,
    /// The grant.
    pub token: Token,
    /// The channel of its attempt.
    pub(super) channel: std::rc::Rc<Channel>,
    /// Its claim was refused.
    pub(super) was_refused: bool,
}

impl<H> Engine<H> {
    /// The unclaimed grants of an attempt among these keys.
    #[must_use]
    pub fn own_claims(&self, db: i32, names: &[&[u8]], id: Option<Id>) -> Own {
        match id {
            Some(id) if !self.claims.is_empty() => self.claims.own(db, names, id),
            _ => Own::default(),
        }
    }

    /// Whether a grant of a key waits to be claimed, or passes on in a moment because it was not: nobody holds the lock
    /// by it.
    #[must_use]
    pub fn is_unclaimed(&self, key: KeyName<'_>, token: Token) -> bool {
        let given_up = || self.outstanding.lost_of(key.db, key.name, token).is_some_and(|lost| lost.is_unclaimed);
        self.claims.of_grant(key.db, key.name, token).is_some() || given_up()
    }

    /// An attempt has claimed its grant, which now ends at `until`. Returns what it is told, and how long it waited.
    pub fn claimed(
        &mut self,
        ticket: Ticket,
        until: UnixMicros,
        caller: Caller,
        clock: impl Clock,
    ) -> Option<(Granted, Micros)> {
        let claim = self.claims.take(ticket)?;
        self.count(Counter::Claims);
        self.queues.heard_from(&claim.channel);
        let waited = clock.monotonic().since(claim.since);
        self.waits.has_got_it(waited);
        let mut granted = claim.granted.claimed(until);
        let names: Vec<&[u8]> = claim.keys.iter().collect();
        self.granted_to_caller(claim.db, &names, caller, &mut granted, clock);
        Some((granted, waited))
    }

    /// Grants that were not claimed in time pass on, and their channels count as silent; at most `most` of them. Not
    /// silent is one whose claim was refused, or could not be accepted for want of memory.
    pub fn end_unclaimed(&mut self, most: usize, is_out_of_memory: bool, limits: Limits, clock: impl Clock) {
        if self.claims.is_empty() {
            return;
        }
        let now = clock.monotonic();
        for _ in 0..most {
            let Some(ticket) = self.claims.due(now) else { return };
            let Some(GivenUp { channel, was_refused, .. }) = self.give_up(ticket, limits, clock) else { return };
            self.count(Counter::Unclaimed);
            if !is_out_of_memory && !was_refused {
                self.queues.set_silent(&channel);
            }
        }
    }

    /// A grant that cannot be claimed any more passes on, and its attempt gets its place back. Returns what passes on.
    pub fn give_up(&mut self, ticket: Ticket, limits: Limits, clock: impl Clock) -> Option<GivenUp> {
        let claim = self.claims.take(ticket)?;
        if let Some(until) = limits.reserved_until(clock) {
            let names: Vec<&[u8]> = claim.keys.iter().collect();
            let place = Place { id: claim.id, until, since: Some(claim.since) };
            self.queues.restore_place(claim.db, &names, ticket, place, limits.most_places());
        } else {
            self.waits.has_ended(claim.since);
        }
        Some(self.pass_claim_on(&claim))
    }

    /// The attempt of a grant was cancelled. Returns what passes on.
    pub fn cancel_claim(&mut self, ticket: Ticket) -> Option<GivenUp> {
        let claim = self.claims.take(ticket)?;
        let given_up = self.pass_claim_on(&claim);
        self.announce_cancelled(claim);
        Some(given_up)
    }

    /// A claim was refused: the attempt is there all the same.
    pub fn claim_refused(&mut self, ticket: Ticket) {
        self.claims.refused(ticket);
    }

    /// The predecessor of a grant that waits to be claimed: whoever gets the key next has to learn of it. The lock is
    /// read only if the answer depends on it.
    #[must_use]
    pub fn unclaimed_before<'l>(
        &self,
        key: KeyName<'_>,
        lock: impl FnOnce() -> State<'l>,
        token: Token,
    ) -> Option<Before> {
        let Some((_, claim)) = self.claims.of_grant(key.db, key.name, token) else {
            // It may pass on in a moment, unless somebody has extended it.
            return self.given_up(key, lock, token)?.succeeds.clone();
        };
        let at = claim.keys.iter().position(|name| name == key.name)?;
        claim.granted.before(at).cloned()
    }

    /// A grant that passes on in a moment, if its value still stands as it was written.
    #[must_use]
    pub fn given_up<'l>(&self, key: KeyName<'_>, lock: impl FnOnce() -> State<'l>, token: Token) -> Option<&Lost> {
        let lost = self.outstanding.lost_of(key.db, key.name, token)?;
        rules::stands(lock(), &lost.written.record(token)).then_some(lost)
    }

    /// A key was released by its token before its grant was claimed. The attempt ends with the last of its keys; until
    /// then its claim finds that one is gone.
    pub fn released_unclaimed(&mut self, key: KeyName<'_>, token: Token) {
        let claim = self.claims.of_grant(key.db, key.name, token).map(|(ticket, _)| ticket);
        let ended = claim.filter(|ticket| self.claims.release_one(*ticket));
        if let Some(claim) = ended.and_then(|ticket| self.claims.take(ticket)) {
            self.announce_cancelled(claim);
        }
    }

    fn announce_cancelled(&mut self, claim: Claim) {
        let Claim { channel, id, keys, since, .. } = claim;
        self.waits.has_ended(since);
        self.outbox.announce(Notice { channel, news: News::Cancelled, id, keys, claim: None });
    }

    /// An announcement that was made later reached nobody: as if its deadline had passed, but its channel is not silent.
    pub fn not_heard(&mut self, ticket: Ticket, limits: Limits, clock: impl Clock) {
        let is_recent = |claim: &Claim| clock.monotonic().since(claim.sent) < limits.claim;
        if self.claims.get(ticket).is_some_and(|claim| !is_recent(claim)) {
            self.count(Counter::Unheard);
            self.give_up(ticket, limits, clock);
        }
    }

    fn pass_claim_on(&mut self, claim: &Claim) -> GivenUp {
        let Granted { token, until, .. } = claim.granted;
        let keys = claim.keys.iter().enumerate();
        self.outstanding.lose(keys.map(|(at, name)| Lost {
            db: claim.db,
            name: name.into(),
            token,
            written: Written { until, id: None, owner: None },
            succeeds: claim.granted.before(at).cloned(),
            is_unclaimed: true,
        }));
        GivenUp {
            db: claim.db,
            keys: claim.keys.clone(),
            token,
            channel: std::rc::Rc::clone(&claim.channel),
            was_refused: claim.was_refused,
        }
    }
}
