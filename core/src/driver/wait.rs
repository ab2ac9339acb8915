//! A caller begins to wait for a lock that was refused.

use super::acquire::{Ask, Outcome};
use super::edge::Edge;
use super::entry::Entry;
use crate::engine::counters::Counter;
use crate::engine::queue::{Handle, Waiter};
use crate::engine::{Blocked, Clock, KeyNames};
use crate::lock::error::Error;
use crate::lock::record::Owner;
use crate::lock::time::Micros;
use std::rc::Rc;

impl<E: Edge> Entry<'_, E> {
    /// Called when a caller was refused: it waits if it wants to and may; otherwise it gets its reply at once.
    /// `too_early` is the error for a caller that would have got the lock if the gate had allowed it.
    pub(super) fn wait_or_not(
        &mut self,
        keys: KeyNames<'_>,
        blocked: Blocked,
        ask: &Ask<'_>,
        too_early: Option<Error>,
    ) -> Result<Outcome, Error> {
        match too_early {
            Some(Error::NoReplicas) => Err(Error::NoReplicas),
            too_early => match (self.begin_wait(keys, blocked, ask)?, too_early) {
                (Some(outcome), _) => Ok(outcome),
                (None, Some(error)) => Err(self.refused_by_gate(error)),
                (None, None) => Ok(Outcome::NotGranted),
            },
        }
    }

    /// Called when a caller was refused: it begins to wait if it wants to and may; otherwise it gets a place reserved
    /// if it has an ID. Returns how it waits.
    fn begin_wait(&mut self, keys: KeyNames<'_>, blocked: Blocked, ask: &Ask<'_>) -> Result<Option<Outcome>, Error> {
        let (request, limits) = (&ask.request, self.edge.limits());
        if !self.would_wait(ask) {
            if let Some(id) = request.id {
                let clock = self.edge.clock();
                self.engine().reserve(keys, id, ask.wants_result, limits, clock);
            }
            return Ok(None);
        }
        self.may_begin_wait(keys, ask)?;
        if let Some(channel) = ask.notify {
            let session = ask.session.then(|| self.edge.client());
            let sent = self.edge.clock().monotonic();
            let handle = Handle::Channel { channel: Rc::new(channel.to_owned()), session, sent };
            self.join(keys, blocked, ask, handle);
            return Ok(Some(Outcome::Queued));
        }
        let Some(handle) = self.edge.block() else { return Ok(None) };
        let client = self.edge.client();
        self.join(keys, blocked, ask, Handle::Blocked { handle, client });
        Ok(Some(Outcome::Waits))
    }

    /// Whether a command waits if it is refused.
    pub(super) fn would_wait(&self, ask: &Ask<'_>) -> bool {
        ask.wait > Micros(0) && (ask.notify.is_some() || self.edge.may_block())
    }

    /// Whether a command that was refused may wait.
    pub(super) fn may_begin_wait(&mut self, keys: KeyNames<'_>, ask: &Ask<'_>) -> Result<(), Error> {
        let (has_channel, limits) = (ask.notify.is_some(), self.edge.limits());
        self.engine().may_wait(keys, ask.request.id, has_channel, limits)?;
        if !has_channel && self.closes_cycle(keys, &ask.request) {
            self.engine().count(Counter::Deadlocks);
            return Err(Error::Deadlock);
        }
        Ok(())
    }

    fn join(&mut self, keys: KeyNames<'_>, blocked: Blocked, ask: &Ask<'_>, handle: Handle<E::Handle>) {
        let request = &ask.request;
        let since = self.edge.clock().monotonic();
        let waiter = Waiter {
            handle,
            share: request.share,
            lease: request.lease,
            id: request.id,
            owner: request.owner.map(Owner::to_boxed),
            shape: ask.shape,
            session: ask.session,
            wants_result: ask.wants_result,
            since,
            until: since.after(ask.wait),
        };
        self.engine().join(keys, blocked, waiter);
    }
}
