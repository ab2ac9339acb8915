//! The events that the server reports: keys that become free, clients that disconnect, answers that arrive or fail to,
//! role changes, and the passing of time.
//!
//! Nothing is written here: the server may be in the middle of a command, transaction, script or expiry that has not
//! been replicated yet. An event only notes what to check soon.

use super::edge::Edge;
use super::entry::Entry;
use crate::engine::outbox::Grant;
use crate::engine::queue::ReplyShape;
use crate::engine::{Clock, KeyChange, KeyName};
use crate::lock::token::Token;

impl<E: Edge> Entry<'_, E> {
    /// Called when a key was changed by means other than LOCK.\*.
    pub fn key_changed(&mut self, key: KeyName<'_>, how: KeyChange) {
        self.engine().key_changed(key, how);
    }

    /// Called when a database was flushed or swapped, or all of them were.
    pub fn database_changed(&mut self, db: Option<i32>) {
        self.engine().all_changed(db);
    }

    /// Called when a blocked client has disconnected, or the server ended its wait. Returns the shape of its reply, if
    /// it was waiting.
    pub fn client_left(&mut self, client: u64) -> Option<ReplyShape> {
        let (limits, clock) = (self.edge.limits(), self.edge.clock());
        let left = self.engine().left(client, limits, clock);
        left.map(|(handle, shape)| {
            self.edge.release(handle);
            shape
        })
    }

    pub fn connection_ended(&mut self, client: u64) {
        let (limits, clock) = (self.edge.limits(), self.edge.clock());
        self.engine().connection_ended(client, clock.now(), limits, clock);
    }

    /// Called when a grant reached the client that waited for it.
    pub fn delivered(&mut self, token: Token) {
        self.engine().delivered(token);
    }

    /// Called when a grant did not reach the client that waited for it. On a replica the grant stays until its lease
    /// ends.
    pub fn undelivered(&mut self, grant: Grant) {
        if self.edge.is_replica() {
            self.engine().delivered(grant.granted.token);
            return;
        }
        let (limits, clock) = (self.edge.limits(), self.edge.clock());
        self.engine().undelivered(grant, limits, clock);
    }

    /// Called when slots left this server, or may have.
    pub fn slots_left(&mut self) {
        self.engine().slots_left();
    }

    /// Called when this server became a replica.
    pub fn demoted(&mut self) {
        self.engine().demoted();
    }

    /// Called when this server started, or became master.
    pub fn promoted(&mut self) {
        let now = self.edge.clock().monotonic();
        self.engine().gate().begin_reign(now);
    }

    /// Called by the server about ten times a second, for everything that no timer or event reports.
    pub fn tick(&mut self) {
        let now = self.compare_clocks();
        let limits = self.edge.limits();
        self.engine().note_turn(now, limits);
        self.maintain_gate(now);
        self.renew_late_timer(now);
        let (are_keys_reported, clock) = (self.edge.reports_keys(), self.edge.clock());
        let has_begun_scan = {
            let mut engine = self.engine();
            engine.renew_events();
            engine.forget_old(clock);
            engine.scan(now, are_keys_reported)
        };
        // Otherwise serving a queue shows that its slot left.
        if has_begun_scan && self.edge.may_lose_slots() && self.permit().is_none() {
            self.slots_left();
        }
    }
}
