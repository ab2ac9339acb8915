//! The hand-off: a lock becomes free and passes to the next waiter.
//!
//! Three events lead here: a holder releases its grant ([`Entry::pass_on`]), a grant turns out to have reached nobody
//! ([`Entry::pass_on_lost`]), and the timer serves a queue whose lock may have become free ([`Entry::serve`]). Each of
//! them takes three steps:
//! 1. **decide**: the engine names the next holder ([`Engine::next_holder`]) and changes nothing;
//! 2. **write** the decision to the key ([`Entry::carry_out`]); if this fails, nothing has changed;
//! 3. **commit**: the same call reports the write to the engine, and only then does the waiter leave its queue.

use super::edge::{Access, Edge, Expected, Key, Permit, Span, Unseen, WriteRefused};
use super::entry::Entry;
use super::write::Then;
use crate::engine::budget::Budget;
use crate::engine::grant::Before;
use crate::engine::outstanding::Lost;
use crate::engine::queue::{Leaving, Of, QueueId};
use crate::engine::{due, gone_at, Clock, Conditions, Engine, KeyName, Next, Successor};
use crate::lock::error::Error;
use crate::lock::held;
use crate::lock::state::State;
use crate::lock::time::{Micros, UnixMicros};
use crate::lock::token::Token;

/// A command passes over at most this many attempts without a subscriber; the timer continues from there.
const MOST_PASSED_OVER: usize = 16;
/// After this long, a queue whose attempts wait for memory is served again.
const OUT_OF_MEMORY: Micros = Micros(100_000);

/// The outcome of serving a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// It was granted its lock, or all of its locks.
    Granted,
    /// It has moved elsewhere or no longer waits: the queue has a new head.
    Moved,
    /// It keeps waiting: its lock is not free.
    Nobody,
    /// It has a channel, and attempts with a channel are granted nothing while memory is short.
    NotNow,
}

impl<E: Edge> Entry<'_, E> {
    /// The holder of `token` released the lock: hands it to the next of `heirs` in one change to the key, or removes
    /// the grant from the key if they may not have it. Returns the queue if its lock may have become free for waiters
    /// that want other locks too: for [`Entry::pass_on_parked`], once the caller has released all locks.
    pub(super) fn pass_on<'n>(
        &mut self,
        key_name: KeyName<'n>,
        mut key: E::Key<'n>,
        token: Token,
        heirs: Option<Of>,
        budget: &mut Budget,
    ) -> Result<Option<QueueId>, Error> {
        let now = key.now();
        let may_grant = self.may_grant_in_queue(key_name, budget);
        // A grant that nobody had claimed ends as if it had never been made.
        let before = self.engine().unclaimed_before(key_name, || key.lock(), token);
        let was_among = end(&mut key, token);
        let queue = {
            let mut engine = self.engine();
            engine.given_back(token, now);
            engine.awaited_queue(key_name)
        };
        let heirs = queue.zip(heirs).filter(|_| may_grant);
        if heirs.is_some() {
            // Checked first, so that nobody is notified of a grant that cannot be written.
            self.edge.check_writable(Permit::COMMAND, &key)?;
        }
        let left = left(&mut key, before.as_ref(), token);
        let has_to_restore = left.is_none();
        if let Some(((queue, of), left)) = heirs.zip(left) {
            let next = self.next_holder(queue, left, of, Some(token), now, budget);
            if let Next::Grant(Successor { ticket, decision, granted, notified }) = next {
                let decision = decision.as_hand_off(token);
                self.carry_out(Permit::COMMAND, key_name, key, decision, Then::Waiter(ticket, granted, notified))?;
                self.edge.record(Span::Hold, held_for(token, now));
                return Ok(None);
            }
        }
        let is_free = !was_among || key.lock().is_nobodys();
        let is_free = is_free && !has_to_restore;
        let decision = Engine::<E::Handle>::to_end(token, before.as_ref(), has_to_restore);
        self.carry_out(Permit::COMMAND, key_name, key, decision, Then::Nobody)?;
        self.edge.record(Span::Hold, held_for(token, now));
        if let Some(queue) = queue.filter(|_| is_free) {
            self.engine().came_free(queue);
        }
        if let Some(queue) = queue.filter(|_| !(may_grant && is_free)) {
            self.engine().set_ready(queue);
            return Ok(None);
        }
        Ok(queue)
    }

    /// Called by the timer: passes on a grant that nobody received, or releases it, if the key still holds it.
    pub(super) fn pass_on_lost(
        &mut self,
        permit: Permit,
        lost: &Lost,
        budget: &mut Budget,
    ) -> Result<(), WriteRefused> {
        let key_name = KeyName { db: lost.db, name: lost.name() };
        let Some(name) = self.edge.name(key_name) else { return Ok(()) };
        let (name, now) = (E::lend(&name), self.edge.clock().now());
        let Ok(mut key) = self.edge.open(name, Access::Waiter, Expected::Grant(lost.token), now) else { return Ok(()) };
        if !held::is_unchanged(key.lock(), &lost.written.record(lost.token)) {
            return Ok(());
        }
        end(&mut key, lost.token);
        // As if nothing had been granted: a predecessor that never released has to be reported to the next holder.
        let before = lost.succeeds.as_ref();
        let left = left(&mut key, before, lost.token);
        let has_to_restore = left.is_none();
        let queue = self.engine().awaited_queue(key_name);
        if let Some((queue, left)) = queue.zip(left) {
            let next = self.next_holder(queue, left, Of::Head(Leaving::Nobody), Some(lost.token), now, budget);
            if let Next::Grant(successor) = next {
                return self.give(permit, queue, key_name, key, successor, budget);
            }
        }
        let decision = Engine::<E::Handle>::to_end(lost.token, before, has_to_restore);
        self.carry_out(permit, key_name, key, decision, Then::Nobody)?;
        self.engine().set_key_ready(key_name);
        Ok(())
    }

    /// Called by the timer: serves the first waiter of a queue whose lock may have become free. Returns whether the
    /// lock was granted. The others are served after earlier waiters in other queues.
    pub(super) fn serve(&mut self, permit: Permit, queue: QueueId, budget: &mut Budget) -> Result<bool, WriteRefused> {
        let served = self.serve_first(permit, queue, Of::All, budget)?;
        if served != Served::NotNow {
            return Ok(served == Served::Granted);
        }
        // A claim would be refused for lack of memory. Blocked clients further back need no claim.
        let is_granted = self.serve_first(permit, queue, Of::Blocked, budget)? == Served::Granted;
        let again = self.edge.clock().now().after(OUT_OF_MEMORY);
        let mut engine = self.engine();
        engine.try_again_by(queue, again);
        if is_granted {
            engine.go_on(queue);
        }
        Ok(is_granted)
    }

    fn serve_first(
        &mut self,
        permit: Permit,
        queue: QueueId,
        of: Of,
        budget: &mut Budget,
    ) -> Result<Served, WriteRefused> {
        let key = self.engine().queues().key(queue);
        let Some((db, bytes)) = key else { return Ok(Served::Nobody) };
        let key_name = KeyName { db, name: &bytes };
        let Some(name) = self.edge.name(key_name) else { return Ok(Served::Nobody) };
        let (name, now) = (E::lend(&name), self.edge.clock().now());
        let key = match self.edge.open(name, Access::Waiter, Expected::Nothing, now) {
            Ok(key) => key,
            Err(Unseen::NotServed) => {
                self.engine().slot_lost(queue, budget);
                return Ok(Served::Nobody);
            }
            // Waiters wait for a value of another type to go away, as they do for a foreign value.
            Err(Unseen::WrongType | Unseen::TooManyHolders) => {
                let gone_at = gone_at(self.edge.expires_in_ms(name), now);
                self.engine().set_due(queue, gone_at);
                return Ok(Served::Nobody);
            }
        };
        if !self.engine().note_lock(queue, key.lock(), now) {
            return Ok(Served::Nobody);
        }
        match self.next_holder(queue, key.lock(), of, None, now, budget) {
            Next::Grant(successor) => {
                let is_written = successor.decision.write().is_some();
                // If the next waiter may share the lock, this makes the queue ready again.
                self.give(permit, queue, key_name, key, successor, budget)?;
                if !is_written {
                    // The waiter's ID already held the lock: nothing has changed for the next waiter.
                    self.engine().go_on(queue);
                }
                Ok(Served::Granted)
            }
            Next::Try(ticket) => {
                drop(key);
                let served = self
                    .try_one(permit, ticket, budget)
                    .inspect_err(|refused| self.slot_lost(queue, *refused, budget))?;
                if served == Served::Moved {
                    self.engine().go_on(queue);
                }
                Ok(served)
            }
            Next::Notify(_) if self.edge.is_out_of_memory() => Ok(Served::NotNow),
            // The budget was spent on the attempts ahead.
            Next::Notify(_) | Next::TooLong(..) => {
                self.engine().go_on(queue);
                Ok(Served::Nobody)
            }
            Next::Nobody(share) => {
                let lock = key.lock();
                let due = if lock.is_nobodys() { None } else { due(lock, share, || key.expires_in_ms(), now) };
                self.engine().set_due(queue, due);
                Ok(Served::Nobody)
            }
        }
    }

    /// Asks the engine for the next holder until one can have the lock at once: attempts without a subscriber are
    /// passed over, and waits for leases that the grace does not cover are ended. Once the budget is spent, it returns
    /// the attempt or the wait that is next.
    fn next_holder(
        &mut self,
        queue: QueueId,
        lock: State<'_>,
        of: Of,
        ends: Option<Token>,
        now: UnixMicros,
        budget: &mut Budget,
    ) -> Next {
        let conditions = Conditions { terms: self.edge.terms(), grace: self.edge.grace(), of, ends, now };
        let most_passed_over = if matches!(of, Of::Head(_)) { MOST_PASSED_OVER } else { usize::MAX };
        let (mut notified, mut passed_over) = (None, 0_usize);
        loop {
            let next = self.engine().next_holder(queue, lock, notified, &conditions);
            match next {
                Next::Notify(ticket) => {
                    let may_notify = passed_over < most_passed_over && budget.is_left(self.edge.clock());
                    if !may_notify || self.edge.is_out_of_memory() {
                        return next;
                    }
                    notified = self.notify(ticket, budget);
                    passed_over = passed_over.saturating_add(usize::from(notified.is_none()));
                }
                Next::TooLong(ticket, error) => {
                    let has_ended = self.engine().end_too_long(ticket, error, budget);
                    if !has_ended {
                        return next;
                    }
                }
                Next::Grant(_) | Next::Try(_) | Next::Nobody(_) => return next,
            }
        }
    }

    /// Gives a queue's lock to one of its waiters.
    fn give<'n>(
        &mut self,
        permit: Permit,
        queue: QueueId,
        key_name: KeyName<'n>,
        key: E::Key<'n>,
        successor: Successor,
        budget: &mut Budget,
    ) -> Result<(), WriteRefused> {
        let Successor { ticket, decision, granted, notified } = successor;
        let given = self.carry_out(permit, key_name, key, decision, Then::Waiter(ticket, granted, notified));
        given.inspect_err(|refused| self.slot_lost(queue, *refused, budget))
    }

    fn slot_lost(&mut self, queue: QueueId, refused: WriteRefused, budget: &mut Budget) {
        if refused == WriteRefused::NotOurs {
            self.engine().slot_lost(queue, budget);
        }
    }
}

/// The lock that a key holds after the grant with this token is removed. `None` if the grant's predecessor has to be
/// put back into a set first: the next holder may not need its slot.
fn left<'l>(key: &'l mut impl Key, before: Option<&'l Before>, token: Token) -> Option<State<'l>> {
    let has_others = key.members().is_some_and(|members| !members.holders.is_empty());
    match before {
        Some(_) if has_others => None,
        Some(before) => {
            // A client of the classic pattern had no token, so none is reported.
            let record = before.record(token);
            Some(State::Expired(record.timestamp, before.token.map(|_| record)))
        }
        None if has_others => Some(key.lock()),
        None => Some(State::Free),
    }
}

/// Ends one of several grants in the open key, before the key is written. Returns whether the grant was one of several.
pub(super) fn end(key: &mut impl Key, token: Token) -> bool {
    key.members().is_some_and(|members| members.end(token))
}

/// How long a lock was held: a token is the time of its grant.
pub(super) fn held_for(token: Token, now: UnixMicros) -> Micros {
    now.since(UnixMicros(token.get()))
}
