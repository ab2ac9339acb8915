//! The hand-off: who gets a lock that has become free.
//!
//! [`Engine::next_holder`] decides, both when a holder has just released the lock and when the timer finds it free. The
//! driver writes the decision (`driver/hand_off.rs`), and the engine commits it ([`Engine::granted_to_waiter`]).

use super::notify::Notified;
use crate::engine::grant::{Before, Decision, Granted};
use crate::engine::queue::{Candidate, Of, QueueId, Ticket};
use crate::engine::{Engine, KeyName};
use crate::lock::admit::{self, Acquire, Holds, Turn};
use crate::lock::error::Error;
use crate::lock::grace;
use crate::lock::request::Share;
use crate::lock::state::State;
use crate::lock::terms::Terms;
use crate::lock::time::{Micros, UnixMicros};
use crate::lock::token::Token;

/// The settings, the time and the waiters that determine the next holder.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// The settings for leases.
    pub terms: Terms,
    /// The settings for safety across failover; `None` if it is off.
    pub grace: Option<grace::Settings>,
    /// The waiters that can be served.
    pub of: Of,
    /// The grant that ends with the hand-off, if there is one: the next token is larger.
    pub ends: Option<Token>,
    /// The time.
    pub now: UnixMicros,
}

/// The next holder of a lock.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "it lives as long as one hand-off")]
pub enum Next {
    /// This waiter gets it.
    Grant(Successor),
    /// This attempt could have it, and has to be notified first.
    Notify(Ticket),
    /// This waiter wants other locks too, and could have this one.
    Try(Ticket),
    /// This waiter may not have a lease this long: its wait ends.
    TooLong(Ticket, Error),
    /// Nobody gets it now; the first waiter asks for this share.
    Nobody(Share),
}

/// The waiter that gets a lock.
#[derive(Debug)]
pub struct Successor {
    pub ticket: Ticket,
    /// The write.
    pub decision: Decision,
    pub granted: Granted,
    /// How it was notified, if it waits without a connection.
    pub notified: Option<Notified>,
}

impl<H> Engine<H> {
    /// Decides who gets a queue's lock, and changes nothing but tokens. `lock` is the lock without the grant that ends
    /// with the hand-off; `notified` is the attempt that was notified after the last decision.
    pub fn next_holder(
        &mut self,
        queue: QueueId,
        lock: State<'_>,
        notified: Option<Notified>,
        conditions: &Conditions,
    ) -> Next {
        let Conditions { terms, grace, of, ends, now } = *conditions;
        let Self { queues, tokens, .. } = self;
        let (ticket, waiter) = match queues.candidate(queue, lock.is_nobodys(), of) {
            Some(Candidate::Single(ticket, waiter)) => (ticket, waiter),
            Some(Candidate::Parked(ticket)) => return Next::Try(ticket),
            None => return Next::Nobody(Share::Alone),
        };
        if let Some(Err(error)) = grace.map(|grace| grace.check(waiter.lease)) {
            return Next::TooLong(ticket, error);
        }
        let notified = notified.filter(|notified| notified.ticket == ticket);
        let request = waiter.request(notified.map_or(Micros(0), |notified| notified.lease));
        let is_hand_off = matches!(of, Of::Head(_));
        if notified.is_none() && waiter.channel().is_some() {
            if admit::could_have(lock, &request, now) {
                return Next::Notify(ticket);
            }
            if is_hand_off {
                return Next::Nobody(request.share);
            }
        }
        // An ID that already holds the lock finds this out when it asks, not while it waits.
        let may_have_it = lock.is_nobodys() || matches!(lock, State::Several(_));
        let turn = if may_have_it { Turn::Now } else { Turn::Behind };
        let decision = match (lock, ends) {
            (State::Free, Some(token)) => admit::pass_on(token, &request, terms, tokens, now),
            _ => admit::acquire(lock, &request, turn, terms, tokens, now),
        };
        // If there is nothing to write for the next holder, the end of the grant would not be written either. The timer
        // serves that holder.
        let is_usable = |decision: &Acquire<'_>| may_have_it && !(is_hand_off && matches!(decision, Acquire::Keep(_)));
        match decision.ok().filter(is_usable).and_then(|decision| Decision::to_grant(&decision)) {
            Some((decision, granted)) => Next::Grant(Successor { ticket, decision, granted, notified }),
            None => Next::Nobody(request.share),
        }
    }

    /// Notes what a queue's key shows. Returns whether its lock can be granted. It cannot while it counts as held
    /// because the key was evicted, or while its last grant can still be claimed.
    pub fn note_lock(&mut self, queue: QueueId, lock: State<'_>, now: UnixMicros) -> bool {
        let key = self.queues.key(queue).filter(|_| !self.claims.is_empty());
        let awaits_claim = key.is_some_and(|(db, name)| self.awaits_claim(KeyName { db, name: &name }, lock));
        let queues = &mut self.queues;
        let evicted_until = queues.evicted_until(queue).filter(|until| *until > now);
        if lock == State::Free && evicted_until.is_some() {
            queues.set_due(queue, evicted_until);
            return false;
        }
        queues.set_last_end(queue, lock.last_end());
        queues.set_held(queue, lock.held_since());
        if awaits_claim {
            // The lock is passed on when the time to claim it has ended.
            queues.set_due(queue, None);
            return false;
        }
        if !lock.is_nobodys() {
            queues.seen(queue);
        }
        true
    }

    /// The queue of a key, if it has waiters.
    #[must_use]
    pub fn awaited_queue(&self, key: KeyName<'_>) -> Option<QueueId> {
        if self.queues.is_empty() {
            return None;
        }
        self.queues.awaited_queue(key)
    }

    /// Called when a queue's lock was released and nobody holds it.
    pub fn came_free(&mut self, queue: QueueId) {
        self.queues.set_held(queue, None);
    }

    /// Called when a queue's lock may have become free: the queue is served soon.
    pub fn set_ready(&mut self, queue: QueueId) {
        self.queues.set_ready(queue);
    }

    /// Like [`Self::set_ready`], for a key's queue.
    pub fn set_key_ready(&mut self, key: KeyName<'_>) {
        if let Some(queue) = self.awaited_queue(key) {
            self.queues.set_ready(queue);
        }
    }

    /// Called when others in a queue may be able to have its lock too. They are served after earlier waiters in other
    /// queues.
    pub fn go_on(&mut self, queue: QueueId) {
        self.queues.go_on(queue);
    }

    /// Sets when a queue's lock becomes free on its own, if that is known.
    pub fn set_due(&mut self, queue: QueueId, due: Option<UnixMicros>) {
        self.queues.set_due(queue, due);
    }

    /// Has the queue served again at this time or earlier.
    pub fn try_again_by(&mut self, queue: QueueId, at: UnixMicros) {
        self.queues.set_due_by(queue, at);
    }

    /// The decision that ends a grant: its predecessor is restored if the grant counts as never made.
    pub fn to_end(token: Token, before: Option<&Before>, is_among_others: bool) -> Decision {
        let Some(before) = before else { return Decision::to_release(token) };
        let holds = if is_among_others { Holds::AsBefore } else { Holds::Alone };
        Decision::to_restore(&before.record(token), holds).giving_back(token)
    }
}
