//! An attempt without a connection claims its grant with any command that asks for the same locks with its ID.

use super::acquire::Ask;
use super::edge::{Access, Edge, Expected, Key, Permit, Span};
use super::entry::Entry;
use super::hand_off::end;
use super::write::{Decided, Then};
use crate::engine::budget::Budget;
use crate::engine::grant::{Decision, Granted};
use crate::engine::queue::Ticket;
use crate::engine::{KeyNames, Wanted};
use crate::lock::admit::{self, Holds};
use crate::lock::error::Error;
use crate::lock::held;
use crate::lock::request::Share;

impl<E: Edge> Entry<'_, E> {
    /// Claims the attempt's unclaimed grant of these keys. `None` if there is none or it has ended.
    ///
    /// # Errors
    /// The error for the caller; nothing has changed.
    pub(super) fn claim<'n>(
        &mut self,
        names: &[E::Name<'n>],
        ask: &Ask<'_>,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Granted>, Error> {
        let Some(id) = ask.request.id.filter(|_| self.has_claims()) else { return Ok(None) };
        let bytes: Vec<&'n [u8]> = names.iter().map(|name| self.edge.key_name(*name).name).collect();
        let db = names.first().map_or(0, |name| self.edge.key_name(*name).db);
        let keys = KeyNames { db, names: &bytes };
        let own = self.engine().own_claims(keys, Some(id));
        let (limits, clock) = (self.edge.limits(), self.edge.clock());
        if !own.others.is_empty() {
            self.may_fail(names, keys, ask, wanted)?;
        }
        // The newer command is for other keys: it replaces the attempt.
        let mut budget = Budget::COMMAND;
        for other in own.others {
            let given_up = self.engine().replace_unclaimed(other, &mut budget);
            self.pass_on_given_up(given_up);
        }
        let Some(ticket) = own.same else { return Ok(None) };
        let claimed = self.claim_with(ticket, names, ask, wanted);
        let claimed = claimed.inspect_err(|_| self.engine().claim_refused(ticket))?;
        if claimed.is_none() {
            // The attempt has lost a key: it releases the others and keeps waiting in its place.
            let given_up = self.engine().give_up(ticket, limits, clock);
            self.pass_on_given_up(given_up);
        }
        Ok(claimed)
    }

    /// Checks whether the command can fail, before anything is given up for it.
    fn may_fail(
        &mut self,
        names: &[E::Name<'_>],
        keys: KeyNames<'_>,
        ask: &Ask<'_>,
        wanted: &Wanted<'_>,
    ) -> Result<(), Error> {
        wanted.may_grant?;
        for (name, key_name) in names.iter().zip(keys.iter()) {
            let key = self.edge.open(*name, Access::Caller, Expected::Attempt(ask.request.id), wanted.now)?;
            self.engine().acquire(key_name, key.lock(), wanted)?;
        }
        if self.would_wait(ask) {
            self.may_begin_wait(keys, ask)?;
        }
        Ok(())
    }

    fn has_claims(&mut self) -> bool {
        !self.engine().claims().is_empty()
    }

    fn claim_with(
        &mut self,
        ticket: Ticket,
        names: &[E::Name<'_>],
        ask: &Ask<'_>,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Granted>, Error> {
        let claim =
            self.engine().claims().get(ticket).map(|claim| (claim.granted.token, claim.granted.until, claim.share));
        let Some((token, until, share)) = claim else { return Ok(None) };
        wanted.may_grant.map_err(|error| self.refused_by_gate(error))?;
        let mut keys = Vec::with_capacity(names.len());
        let mut ends = until;
        for name in names {
            let key = self.edge.open(*name, Access::Caller, Expected::Grant(token), wanted.now)?;
            let record = held::claim(key.lock(), token, until, &ask.request, wanted.terms, wanted.now)?;
            let Some(record) = record else { return Ok(None) };
            ends = record.timestamp;
            keys.push((self.edge.key_name(*name), key, record));
        }
        // This is not checked earlier, because a grant that is gone cannot be requested in a different form.
        if (share == Share::Alone) != (ask.request.share == Share::Alone) {
            return Err(admit::other_share(&ask.request));
        }
        let decided = keys.into_iter().map(|(name, mut key, record)| {
            // In a set, the member changes because it contains the ID: the unclaimed member is removed.
            let holds = if end(&mut key, token) { Holds::Among { replaces: None } } else { Holds::AsBefore };
            Decided { name, key, decision: Decision::to_claim(&record, holds) }
        });
        let decided = decided.collect();
        self.carry_all_out(Permit::COMMAND, decided, Then::Nobody).map_err(|partly| partly.refused)?;
        let (caller, clock) = (self.caller(ask), self.edge.clock());
        let claimed = self.engine().claimed(ticket, ends, caller, clock);
        Ok(claimed.map(|(granted, waited)| {
            self.edge.record(Span::Wait, waited);
            granted
        }))
    }
}
