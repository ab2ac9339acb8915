//! An unclaimed grant is passed on because its time is up, its connection has ended, or its attempt was cancelled or
//! asks for something else.

use crate::engine::budget::Budget;
use crate::engine::counters::Counter;
use crate::engine::grant::{Granted, Written};
use crate::engine::outbox::{News, Notice};
use crate::engine::outstanding::Lost;
use crate::engine::queue::{Channel, Keys, Place, Ticket};
use crate::engine::unclaimed::{Claim, Leaves};
use crate::engine::{Clock, Engine, KeyName, Limits};
use crate::lock::held;
use crate::lock::state::State;
use crate::lock::token::Token;

/// A grant that can no longer be claimed and is passed on.
#[derive(Clone, Debug)]
pub struct GivenUp {
    /// Its keys' database.
    pub db: i32,
    pub keys: Keys,
    /// The grant.
    pub token: Token,
    /// Its attempt's channel.
    pub(super) channel: std::rc::Rc<Channel>,
    /// Whether its claim was refused.
    pub(super) was_refused: bool,
}

impl<H> Engine<H> {
    /// Passes on grants that were not claimed in time, and skips their channels, until the budget is spent. A grant
    /// ends only once the sockets have been read after its deadline: a claim can wait there while the server stalls. A
    /// channel is not skipped if its claim was refused, could not be accepted for lack of memory, or had to be sent to
    /// a stalled server.
    pub fn end_unclaimed(&mut self, budget: &mut Budget, is_out_of_memory: bool, limits: Limits, clock: impl Clock) {
        if self.claims.is_empty() {
            return;
        }
        let now = clock.monotonic();
        let over = self.claims.begin_turn(now, limits.claim, limits.tick);
        while budget.has_left() {
            let Some(ticket) = self.claims.due(over) else { return };
            if self.claims.get(ticket).is_some_and(|claim| claim.leaves.is_some()) {
                self.leave_unclaimed(ticket, budget, limits, clock);
                continue;
            }
            let is_late = self.claims.get(ticket).is_some_and(|claim| self.claims.stalled_after(claim.deadline));
            let given_up = self.give_up(ticket, limits, clock);
            let Some(GivenUp { keys, channel, was_refused, .. }) = given_up else { return };
            budget.spend_on_each(&keys);
            self.count(Counter::Unclaimed);
            if !is_out_of_memory && !was_refused && !is_late {
                self.queues.skip(&channel);
            }
        }
    }

    /// Called when a grant can no longer be claimed: its attempt gets its place back. Returns the grant, to be passed
    /// on.
    pub fn give_up(&mut self, ticket: Ticket, limits: Limits, clock: impl Clock) -> Option<GivenUp> {
        let claim = self.claims.take(ticket)?;
        if let Some(until) = limits.reserved_until(clock) {
            let place = Place { id: claim.id, until, since: Some(claim.since), wants_result: claim.wants_result };
            self.queues.restore_place(claim.db, claim.keys.clone(), ticket, place, limits.most_places());
        } else {
            self.waits.has_ended(claim.since);
        }
        Some(self.pass_claim_on(&claim))
    }

    /// Passes on a grant because its attempt or its connection has ended.
    pub(super) fn leave_unclaimed(
        &mut self,
        ticket: Ticket,
        budget: &mut Budget,
        limits: Limits,
        clock: impl Clock,
    ) -> Option<GivenUp> {
        let claim = self.claims.get(ticket)?;
        budget.spend_on_each(&claim.keys);
        match claim.leaves {
            Some(Leaves::Cancelled { at }) => self.cancel_and_bar(ticket, at, limits, clock),
            // The newer command has its place.
            Some(Leaves::Replaced) => self.replace_claim(ticket),
            None => self.give_up(ticket, limits, clock),
        }
    }

    /// Called when a newer command of the attempt asks for keys other than a grant's. Returns what is passed on now; a
    /// grant for which the budget has no room is passed on soon.
    pub fn replace_unclaimed(&mut self, ticket: Ticket, budget: &mut Budget) -> Option<GivenUp> {
        if !budget.has_left() {
            self.claims.leave_soon(ticket, Leaves::Replaced);
            return None;
        }
        let given_up = self.replace_claim(ticket)?;
        budget.spend_on_each(&given_up.keys);
        Some(given_up)
    }

    fn replace_claim(&mut self, ticket: Ticket) -> Option<GivenUp> {
        let claim = self.claims.take(ticket)?;
        Some(self.pass_claim_on(&claim))
    }

    /// Called when a grant's attempt was cancelled. Returns what is passed on.
    pub fn cancel_claim(&mut self, ticket: Ticket) -> Option<GivenUp> {
        let claim = self.claims.take(ticket)?;
        let given_up = self.pass_claim_on(&claim);
        self.announce_cancelled(claim);
        Some(given_up)
    }

    /// Like [`Self::cancel_claim`], and late copies of its commands get nothing for a while; `at`: the key for which it
    /// was cancelled.
    pub(super) fn cancel_and_bar(
        &mut self,
        ticket: Ticket,
        at: usize,
        limits: Limits,
        clock: impl Clock,
    ) -> Option<GivenUp> {
        let id = self.claims.get(ticket)?.id;
        let cancelled = self.cancel_claim(ticket)?;
        if let (Some(name), Some(until)) = (cancelled.keys.get(at), limits.reserved_until(clock)) {
            self.queues.bar(KeyName { db: cancelled.db, name }, id, until, limits.most_places());
        }
        Some(cancelled)
    }

    /// The grant, if it is about to be passed on and its value is unchanged.
    #[must_use]
    pub fn given_up<'l>(&self, key: KeyName<'_>, lock: impl FnOnce() -> State<'l>, token: Token) -> Option<&Lost> {
        let lost = self.outstanding.lost_of(key, token, self.queues.marks())?;
        held::is_unchanged(lock(), &lost.written.record(token)).then_some(lost)
    }

    /// Called when a key was released with its token before its grant was claimed. The attempt ends with the last of
    /// its keys; until then its claim finds that a key is gone.
    pub(super) fn released_unclaimed(&mut self, key: KeyName<'_>, token: Token) {
        let claim = self.claims.of_grant(key, token, self.queues.marks()).map(|(ticket, ..)| ticket);
        let ended = claim.filter(|ticket| self.claims.release_one(*ticket));
        if let Some(claim) = ended.and_then(|ticket| self.claims.take(ticket)) {
            self.announce_cancelled(claim);
        }
    }

    /// Notifies a grant's attempt of its cancellation, before the next in the queue is notified of its own grant.
    pub fn announce_end(&mut self, ticket: Ticket) {
        let Some(claim) = self.claims.end_announced(ticket) else { return };
        let (channel, keys) = (std::rc::Rc::clone(&claim.channel), claim.keys.clone());
        self.outbox.announce(Notice { channel, news: News::Cancelled, id: claim.id, keys, claim: None });
    }

    fn announce_cancelled(&mut self, claim: Claim) {
        let Claim { channel, id, keys, since, is_end_announced, .. } = claim;
        self.waits.has_ended(since);
        if !is_end_announced {
            self.outbox.announce(Notice { channel, news: News::Cancelled, id, keys, claim: None });
        }
    }

    /// Called when a delayed announcement reached nobody: the grant ends as if its deadline had passed, but its channel
    /// is not skipped.
    pub fn announcement_lost(&mut self, ticket: Ticket, limits: Limits, clock: impl Clock) {
        let is_recent = |claim: &Claim| clock.monotonic().since(claim.sent) < limits.claim;
        if self.claims.get(ticket).is_some_and(|claim| !is_recent(claim)) {
            self.count(Counter::NoSubscriber);
            self.give_up(ticket, limits, clock);
        }
    }

    fn pass_claim_on(&mut self, claim: &Claim) -> GivenUp {
        let Granted { token, until, .. } = claim.granted;
        self.outstanding.lose((0..claim.keys.len()).map(|at| Lost {
            db: claim.db,
            keys: claim.keys.clone(),
            at,
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
