//! Somebody stops waiting without a grant: its time is over, its connection or its slot is gone, it was cancelled, or
//! this server is no longer the master. And what becomes of grants whose client is gone.

use super::counters::Counter;
use super::gate::Sweep;
use super::outbox::{Answer, Grant};
use super::outstanding::Lost;
use super::queue::{LineId, ReplyShape};
use super::state::{Clock, Engine, KeyName, Limits};
use crate::broken::{self, Mutant};
use crate::lock::error::Error;
use crate::lock::grace;
use crate::lock::record::Id;
use crate::lock::time::UnixMicros;
use crate::lock::token::Token;

/// How many waiters a check of their leases inspects in one event-loop iteration.
const INSPECTED: usize = 2_048;
/// And how many it ends at most.
const ENDED: usize = 128;

impl<H> Engine<H> {
    /// A client that waited is gone, or was answered by the server: how to reach it, and the shape of the reply that it
    /// would have got. Nothing when it did not wait.
    pub fn left(&mut self, client: u64, limits: Limits, clock: impl Clock) -> Option<(H, ReplyShape)> {
        if broken::is(Mutant::DeadWaiter) {
            return None;
        }
        let left = self.queues.leave(client, limits.reserved_until(clock), limits.most_places());
        left.map(|waiter| (waiter.handle, waiter.shape))
    }

    /// Ends the waits whose time is over, at most so many.
    pub fn time_out(&mut self, most: usize, limits: Limits, clock: impl Clock) {
        let now = clock.monotonic();
        if self.queues.next_end().is_none_or(|end| end > now) {
            return;
        }
        for _ in 0..most {
            let Some(waiter) = self.queues.time_out(now, limits.reserved_until(clock), limits.most_places()) else {
                return;
            };
            self.count(Counter::TimeOuts);
            self.outbox.put(waiter.handle, Answer::NotGranted(waiter.shape));
        }
    }

    /// Ends the wait of a client, which keeps no place.
    pub fn end_wait(&mut self, client: u64, error: Error) {
        let none = super::queue::MostPlaces { keys: 0, bytes: 0 };
        if let Some(waiter) = self.queues.leave(client, None, none) {
            self.outbox.put(waiter.handle, Answer::Failed(error));
        }
    }

    /// LOCK.CANCEL: an attempt no longer stands in line. Whether it did.
    pub fn cancel(&mut self, key: KeyName<'_>, id: Id) -> bool {
        let found = self.queues.forget(key.db, key.name, id);
        let stood = found.is_some();
        if let Some((_, Some(waiter))) = found {
            self.outbox.put(waiter.handle, Answer::NotGranted(waiter.shape));
        }
        stood
    }

    /// Ends the waits of all in a line, whose key is not served here any longer.
    pub fn slot_lost(&mut self, line: LineId) {
        for waiter in self.queues.dissolve(line) {
            self.outbox.put(waiter.handle, Answer::Failed(Error::SlotLost));
        }
    }

    /// This server is a replica from now on: all waits and sessions end.
    pub fn demoted(&mut self) {
        self.outstanding.forget_lost();
        self.ended.clear();
        self.sessions.clear();
        for waiter in self.queues.dissolve_all() {
            self.outbox.put(waiter.handle, Answer::Failed(Error::Demoted));
        }
    }

    /// Ends waits at the head of a line for leases that the grace does not cover: it was set since.
    pub fn end_leases_beyond_grace(&mut self, key: KeyName<'_>, grace: &grace::Settings) {
        if grace.longest_lease().is_none() {
            return;
        }
        let queues = &mut self.queues;
        while let Some(line) = queues.waited_line(key.db, key.name) {
            let Some(Err(error)) = queues.head(line).map(|head| grace.check(head.lease)) else { return };
            let Some((_, waiter)) = queues.pop_head(line) else { return };
            self.outbox.put(waiter.handle, Answer::Failed(error));
        }
    }

    /// Goes on with a check of all who wait for leases that the grace does not cover.
    pub fn sweep_leases(&mut self, grace: &grace::Settings) {
        let from = match self.gate.sweep {
            Sweep::Done => return,
            Sweep::Begins => None,
            Sweep::GoesOn(deadline) => Some(deadline),
        };
        let (found, next) = self.queues.walk(from, INSPECTED, ENDED, |waiter| grace.check(waiter.lease).err());
        self.gate.sweep = next.map_or(Sweep::Done, Sweep::GoesOn);
        for (client, error) in found {
            self.end_wait(client, error);
        }
    }

    /// A grant has reached its client, or is no longer meant for it.
    pub fn delivered(&mut self, token: Token) {
        self.outstanding.arrived(token);
    }

    /// A grant did not reach its client: it passes on, and an attempt with an ID has its place again. Not if that
    /// attempt has asked again meanwhile and was told of it.
    pub fn undelivered(&mut self, grant: Grant, limits: Limits, clock: impl Clock) {
        let Grant { granted, db, keys, id, ticket, .. } = grant;
        if !self.outstanding.arrived(granted.token) || broken::is(Mutant::LostGrant) {
            return;
        }
        if let (Some(id), Some(until)) = (id, limits.reserved_until(clock)) {
            let names: Vec<&[u8]> = keys.iter().collect();
            self.queues.restore_place(db, &names, id, ticket, until, limits.most_places());
        }
        self.count(Counter::Undelivered);
        // Of several locks, each passes on by itself.
        self.outstanding.lose(keys.iter().enumerate().map(|(at, name)| Lost {
            db,
            name: name.into(),
            token: granted.token,
            succeeds: granted.before(at).cloned(),
        }));
    }

    /// A connection has ended: its locks are noted, to be ended soon.
    pub fn connection_ended(&mut self, client: u64, at: UnixMicros) {
        if broken::is(Mutant::SessionStays) {
            return;
        }
        let grants = self.sessions.end(client);
        self.ended.add(grants, at);
    }
}
