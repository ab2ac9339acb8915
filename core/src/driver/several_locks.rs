//! Tries a waiter for several locks when the lock it is parked at may have become free. It gets all of its locks, or is
//! parked at another lock that it cannot have.

use super::edge::{Access, Edge, Expected, Key, Permit, Unseen, WriteRefused, Writer};
use super::entry::Entry;
use super::hand_off::Served;
use super::write::{Decided, Partly, Then};
use crate::engine::budget::Budget;
use crate::engine::queue::{Keys, QueueId, Ticket};
use crate::engine::{due, gone_at, Blocked, Clock, KeyName, Notified};
use crate::lock::error::Error;
use crate::lock::request::Share;
use crate::lock::state::State;
use crate::lock::time::UnixMicros;
use std::collections::BTreeSet;

/// Why a waiter cannot have all of its keys.
enum Obstacle {
    /// This server does not serve one of them, for example while a slot is moving.
    SlotLost,
    /// It cannot have this key.
    Lock(Blocked),
    /// The server refuses to write one of them.
    Refused(WriteRefused),
}

impl<E: Edge> Entry<'_, E> {
    /// Tries one waiter for several locks.
    pub(super) fn try_one(
        &mut self,
        permit: Permit,
        ticket: Ticket,
        budget: &mut Budget,
    ) -> Result<Served, WriteRefused> {
        let (limits, clock) = (self.edge.limits(), self.edge.clock());
        let now = clock.now();
        // In another queue, nothing would show that it was cancelled.
        let has_ended = self.engine().leave_if_ended(ticket, limits, clock);
        if has_ended {
            return Ok(Served::Moved);
        }
        let waiter = self.engine().parked(ticket);
        let Some((lease, db, keys, has_channel)) = waiter else { return Ok(Served::Moved) };
        if let Err(error) = self.check_lease(lease) {
            self.engine().end_wait(ticket, error);
            return Ok(Served::Moved);
        }
        match self.first_obstacle(permit, ticket, db, &keys, now, budget) {
            Some(Obstacle::Lock(blocked)) => {
                let stays = self.engine().park(ticket, blocked);
                return Ok(if stays { Served::Nobody } else { Served::Moved });
            }
            Some(Obstacle::Refused(refused)) => return Err(refused),
            Some(Obstacle::SlotLost) => {
                self.engine().end_wait(ticket, Error::SlotLost);
                return Ok(Served::Moved);
            }
            None => {}
        }
        let notified = if has_channel {
            if self.edge.is_out_of_memory() {
                return Ok(Served::NotNow);
            }
            let Some(notified) = self.notify(ticket, budget) else { return Ok(Served::Moved) };
            Some(notified)
        } else {
            None
        };
        budget.spend(keys.len().saturating_mul(2));
        let granted = self.grant_all(permit, ticket, db, &keys, notified, now)?;
        Ok(if granted { Served::Granted } else { Served::Nobody })
    }

    fn first_obstacle(
        &mut self,
        permit: Permit,
        ticket: Ticket,
        db: i32,
        keys: &Keys,
        now: UnixMicros,
        budget: &mut Budget,
    ) -> Option<Obstacle> {
        for (at, name) in keys.iter().enumerate() {
            budget.spend_names(1, name.len());
            let key_name = KeyName { db, name };
            if self.engine().queues().is_held_up(key_name, ticket, now) {
                return Some(Obstacle::Lock(Blocked { at, ..Blocked::default() }));
            }
            let name = self.edge.name(key_name)?;
            let opened = self.edge.open(E::lend(&name), Access::Waiter, Expected::Nothing, now);
            match opened {
                Err(Unseen::NotServed) => return Some(Obstacle::SlotLost),
                Err(_) => {
                    let due = gone_at(self.edge.expires_in_ms(E::lend(&name)), now);
                    return Some(Obstacle::Lock(Blocked { at, due, ..Blocked::default() }));
                }
                Ok(key) => {
                    let lock = key.lock();
                    if self.engine().awaits_claim(key_name, lock) {
                        let (last_end, held_since) = (lock.last_end(), None);
                        return Some(Obstacle::Lock(Blocked { at, due: None, last_end, held_since }));
                    }
                    if !lock.is_nobodys() {
                        let due = due(lock, Share::Alone, || key.expires_in_ms(), now);
                        let (last_end, held_since) = (lock.last_end(), lock.held_since());
                        return Some(Obstacle::Lock(Blocked { at, due, last_end, held_since }));
                    }
                    if let Err(refused) = self.edge.check_writable(permit, &key) {
                        return Some(Obstacle::Refused(refused));
                    }
                }
            }
        }
        None
    }

    /// Grants all of the keys, which nobody holds. Returns whether that succeeded.
    fn grant_all(
        &mut self,
        permit: Permit,
        ticket: Ticket,
        db: i32,
        keys: &Keys,
        notified: Option<Notified>,
        now: UnixMicros,
    ) -> Result<bool, WriteRefused> {
        let names: Option<Vec<E::OwnName>> = keys.iter().map(|name| self.edge.name(KeyName { db, name })).collect();
        let Some(names) = names else { return Ok(false) };
        let names: Vec<E::Name<'_>> = names.iter().map(E::lend).collect();
        let mut opened = Vec::with_capacity(names.len());
        for name in &names {
            let Ok(key) = self.edge.open(*name, Access::Waiter, Expected::Nothing, now) else { return Ok(false) };
            opened.push(key);
        }
        let terms = self.edge.terms();
        let locks: Vec<State<'_>> = opened.iter().map(Key::lock).collect();
        let decided = self.engine().grant_all(ticket, &locks, terms, notified, now);
        let Some((decisions, granted)) = decided else { return Ok(false) };
        if permit.writer() == Writer::Timer {
            // The server's own commands signal each key at once, and a module that receives the event may touch the
            // others.
            opened.iter_mut().for_each(Key::close);
        }
        let all = keys.iter().map(|name| KeyName { db, name }).zip(opened).zip(decisions);
        let all = all.map(|((name, key), decision)| Decided { name, key, decision }).collect();
        let then = Then::Waiter(ticket, granted.clone(), notified);
        if let Err(Partly { written, refused }) = self.carry_all_out(permit, all, then) {
            // All or nothing: the part of the grant that was written is released.
            let clock = self.edge.clock();
            self.engine().give_back(ticket, (db, keys), written, &granted, clock);
            return Err(refused);
        }
        Ok(true)
    }

    /// Called when a command has released the locks of these queues: tries the parked waiters at their heads at once,
    /// so that other callers are not refused a lock because of them. The timer serves the rest.
    #[inline]
    pub(super) fn pass_on_parked(&mut self, queues: &[QueueId], budget: &mut Budget) {
        if !queues.is_empty() {
            self.try_parked(queues, budget);
        }
    }

    fn try_parked(&mut self, queues: &[QueueId], budget: &mut Budget) {
        let mut heads: BTreeSet<(Ticket, QueueId)> = BTreeSet::new();
        for queue in queues {
            heads.extend(self.parked_head(*queue));
        }
        while budget.is_left(self.edge.clock()) {
            let Some((ticket, queue)) = heads.pop_first() else { break };
            if matches!(self.try_one(Permit::COMMAND, ticket, budget), Ok(Served::Moved)) {
                heads.extend(self.parked_head(queue));
            }
        }
        let mut engine = self.engine();
        for queue in queues {
            engine.set_ready(*queue);
        }
    }

    fn parked_head(&mut self, queue: QueueId) -> Option<(Ticket, QueueId)> {
        self.engine().queues().parked_head(queue).map(|ticket| (ticket, queue))
    }
}
