//! Updates the engine after a decision was written: for the key, and for the new holder.

use super::notify::Notified;
use crate::engine::counters::Counter;
use crate::engine::grant::{Decision, Granted, What};
use crate::engine::outbox::{Answer, Grant, News, Notice};
use crate::engine::queue::{Handle, Ticket, Waiter};
use crate::engine::sessions::Binding;
use crate::engine::unclaimed::Claim;
use crate::engine::{Clock, Engine, KeyName, KeyNames};
use crate::lock::record::{Encoded, Id};
use crate::lock::time::{Micros, UnixMicros};
use crate::lock::token::Token;

/// The form of a key before a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// It holds a string, or nothing.
    One,
    /// It holds a sorted set of holders.
    Several,
}

/// A caller that got a lock without waiting.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// The attempt.
    pub id: Option<Id>,
    pub client: u64,
    /// The connection with which the grant ends, if there is one.
    pub session: Option<u64>,
}

impl<H> Engine<H> {
    /// Called when a decision was carried out and is in its key.
    pub fn commit(&mut self, decision: &mut Decision, key: KeyName<'_>, before: Shape) {
        decision.set_committed();
        for counter in decision.counts {
            self.counters.add(*counter);
        }
        match &decision.what {
            What::Nothing => {}
            What::Value(value, holds) => self.written(key, value, holds.is_among(before == Shape::Several), before),
            What::Release(token) => self.released(key, Some(*token).filter(|_| before == Shape::Several)),
        }
        if let Some(token) = decision.gives_back {
            self.released_unclaimed(key, token);
        }
    }

    /// Called when a value of ours was written: updates when the lock becomes free on its own, for the queue, and the
    /// lock's binding to a connection.
    fn written(&mut self, key: KeyName<'_>, value: &Encoded, is_among: bool, before: Shape) {
        let (token, until) = (value.token(), value.timestamp());
        self.latest = until.max(self.latest);
        if self.queues.is_empty() && self.sessions.is_empty() && self.ended.is_empty() {
            return;
        }
        self.ended.renewed(key, token);
        // A set that replaces a single holder has no other holders.
        let has_others = is_among && before != Shape::One;
        self.sessions.written(key, token, until, has_others);
        if let Some(queue) = self.queues.awaited_queue(key) {
            self.queues.seen(queue);
            self.queues.set_refused(queue, false);
            if is_among {
                // With several holders the lock may become free earlier or later; the next check shows when.
                self.queues.set_due_by(queue, until);
                self.queues.set_held_among(queue, UnixMicros(token.get()), until);
                self.queues.set_last_end_after(queue, until);
            } else {
                self.queues.set_due(queue, Some(until));
                self.queues.set_held(queue, Some(UnixMicros(token.get())));
                self.queues.set_last_end(queue, Some(until));
            }
        }
    }

    /// Unbinds one grant of a key from its connection, or all of them.
    fn released(&mut self, key: KeyName<'_>, token: Option<Token>) {
        if self.sessions.is_empty() {
            return;
        }
        match token {
            Some(token) => self.sessions.unbind(key, token),
            None => self.sessions.unbind_others(key, None),
        }
    }

    /// Called when an attempt got its lock or locks without waiting. They end with its connection, or with none. The
    /// attempt leaves the queue, and its earlier grant, if it seemed lost, is not lost.
    pub fn granted_to_caller(&mut self, keys: KeyNames<'_>, caller: Caller, granted: &mut Granted, clock: impl Clock) {
        let token = granted.token;
        if caller.session.is_none() {
            self.grantees.note(token, caller.client);
        }
        let is_plain = caller.id.is_none() && caller.session.is_none();
        if is_plain && self.sessions.is_empty() && self.ended.is_empty() {
            return;
        }
        self.gate.granted(token, caller.id);
        for (lock, key) in keys.iter().enumerate() {
            match caller.session {
                Some(client) => {
                    let binding = Binding { client, token, until: granted.until };
                    self.sessions.bind(key, binding, clock.now());
                }
                None => self.released(key, Some(token)),
            }
            self.ended.renewed(key, token);
            self.cut_short.extended(key, token);
            if caller.id.is_some() {
                self.outstanding.reported_again(key, token, self.queues.marks());
                self.remember_or_recall(key.name, lock, granted, clock);
            }
        }
        if let Some(id) = caller.id.filter(|_| !self.queues.is_empty()) {
            let earlier = self.queues.forget_all(keys, id);
            // An attempt without a connection has got what it waited for.
            let blocked = earlier.into_iter().filter(|gone| gone.waiter.client().is_some());
            self.replaced(blocked);
        }
    }

    /// Called when a waiter got its lock or locks: it leaves the queue and is answered. A waiter without a connection
    /// was `notified`, and has to claim its grant. Returns how long it waited.
    pub fn granted_to_waiter(
        &mut self,
        ticket: Ticket,
        mut granted: Granted,
        notified: Option<Notified>,
        clock: impl Clock,
    ) -> Option<Micros> {
        let (db, keys) = self.queues.keys(ticket)?;
        let waiter = self.queues.serve(ticket)?;
        self.count(Counter::HandOffs);
        let (handle, client) = match waiter.handle {
            Handle::Blocked { handle, client } => (handle, client),
            Handle::Channel { channel, session, sent } => {
                let (id, now) = (waiter.id?, clock.monotonic());
                self.grantees.note_unclaimed(granted.token);
                let deadline = now.after(notified.map_or(Micros(0), |notified| notified.lease));
                if notified.is_some_and(|notified| !notified.is_sent) {
                    let (channel, keys) = (std::rc::Rc::clone(&channel), keys.clone());
                    self.outbox.announce(Notice { channel, news: News::Granted, id, keys, claim: Some(ticket) });
                }
                let (share, since, wants_result) = (waiter.share, waiter.since, waiter.wants_result);
                let released = 0;
                self.claims.add(
                    ticket,
                    Claim {
                        granted,
                        db,
                        keys,
                        id,
                        share,
                        wants_result,
                        channel,
                        session,
                        sent,
                        since,
                        deadline,
                        released,
                        is_end_announced: false,
                        was_refused: false,
                        leaves: None,
                    },
                );
                return None;
            }
        };
        self.outstanding.sent(granted.token, db, keys.clone());
        self.gate.granted(granted.token, waiter.id);
        let waited = clock.monotonic().since(waiter.since);
        self.waits.has_got_it(waited);
        if waiter.id.is_some() {
            for (at, name) in keys.iter().enumerate() {
                self.remember_or_recall(name, at, &mut granted, clock);
            }
        }
        let Waiter { shape, session, id, owner, wants_result, .. } = waiter;
        if session {
            for name in keys.iter() {
                let binding = Binding { client, token: granted.token, until: granted.until };
                self.sessions.bind(KeyName { db, name }, binding, clock.now());
            }
        } else {
            self.grantees.note(granted.token, client);
        }
        self.outbox.put(handle, Answer::Granted(Grant { granted, shape, db, keys, id, owner, wants_result, ticket }));
        Some(waited)
    }

    /// Called when an attempt with an ID got a lock, for the first time or again: its predecessor is remembered for a
    /// while, and reported again when the attempt is resent. `lock` is the index of the lock in the grant.
    fn remember_or_recall(&mut self, name: &[u8], lock: usize, granted: &mut Granted, clock: impl Clock) {
        let now = clock.monotonic();
        if let Some(before) = granted.before(lock) {
            self.predecessors.remember(name, granted.token, before.clone(), now);
        } else if let Some(before) = self.predecessors.recall(name, granted.token, now) {
            granted.recall(lock, before.clone());
        }
    }
}
