//! Ends a lock acquired with SESSION because its connection has ended.

use super::edge::{Access, Edge, Expected, Key, Permit, WriteRefused};
use super::entry::Entry;
use super::write::Then;
use crate::engine::grant::Decision;
use crate::engine::sessions::LockKey;
use crate::engine::{Clock, KeyName};
use crate::lock::held;
use crate::lock::time::UnixMicros;
use crate::lock::token::Token;

impl<E: Edge> Entry<'_, E> {
    /// Ends the grant of a connection that ended: the timestamp becomes the time of disconnection plus the margin.
    pub(super) fn end_session(
        &mut self,
        permit: Permit,
        lock: &LockKey,
        token: Token,
        at: UnixMicros,
    ) -> Result<(), WriteRefused> {
        let key_name = KeyName { db: lock.0, name: &lock.1 };
        let Some(name) = self.edge.name(key_name) else { return Ok(()) };
        let (name, terms, now) = (E::lend(&name), self.edge.terms(), self.edge.clock().now());
        let Ok(key) = self.edge.open(name, Access::Waiter, Expected::Grant(token), now) else { return Ok(()) };
        let Some(record) = held::end_session(key.lock(), token, terms, at) else { return Ok(()) };
        let (decision, until) = (Decision::to_end_session(&record), record.timestamp);
        self.carry_out(permit, key_name, key, decision, Then::Nobody)?;
        self.engine().cut_short((lock.clone(), token), until, now);
        Ok(())
    }
}
