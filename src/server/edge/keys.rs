//! Keys: opening and writing them, and their events.

use super::ServerEdge;
use crate::driver::{Access, Expected, Keys, Permit, Unseen, WriteRefused, Writer};
use crate::engine::grant::Event;
use crate::engine::KeyName;
use crate::lock::change::Change;
use crate::lock::time::UnixMicros;
use crate::server::api::api;
use crate::server::api::context::{Arg, OwnString};
use crate::server::keys::key::{self, Key, Mode};
use crate::server::keys::served::is_served_here;
use crate::server::keys::write::{self, Written};
use crate::server::replication::may_write;
use redis_module::raw;

impl Keys for ServerEdge<'_> {
    type Name<'n> = Arg<'n>;
    type OwnName = OwnString;
    type Key<'n> = Key<'n>;
    type Written<'n> = Written<'n>;

    fn key_name<'n>(&self, name: Self::Name<'n>) -> KeyName<'n> {
        KeyName { db: self.context.selected_db(), name: name.as_bytes() }
    }

    fn name(&mut self, key: KeyName<'_>) -> Option<OwnString> {
        OwnString::in_db(self.context, key)
    }

    fn lend(name: &OwnString) -> Arg<'_> {
        name.as_arg()
    }

    fn select(&mut self, db: i32) {
        self.context.select_db(db);
    }

    fn serves(&mut self, name: Arg<'_>) -> bool {
        is_served_here(self.context, name)
    }

    fn may_lose_slots(&self) -> bool {
        may_write::may_lose_slots(self.context)
    }

    fn open<'n>(
        &mut self,
        name: Self::Name<'n>,
        access: Access,
        expected: Expected,
        now: UnixMicros,
    ) -> Result<Self::Key<'n>, Unseen> {
        let mode = match (access, self.writer) {
            (Access::Caller, _) | (Access::Waiter, Writer::Command) => Mode::Write,
            (Access::ReadOnly, _) | (Access::Waiter, Writer::Timer) => Mode::Read,
        };
        if access == Access::Waiter && !self.serves(name) {
            return Err(Unseen::NotServed);
        }
        // SAFETY: the driver drops opened keys before the entry returns.
        let context = unsafe { self.context.copy() };
        Key::open(context, name, mode, expected, now)
    }

    fn expires_in_ms(&mut self, name: Arg<'_>) -> Option<u64> {
        key::expires_in_ms(self.context, name)
    }

    fn check_writable(&self, permit: Permit, key: &Self::Key<'_>) -> Result<(), WriteRefused> {
        write::check_writable(permit, key)
    }

    fn write<'n>(
        &mut self,
        permit: Permit,
        key: Self::Key<'n>,
        change: Change<'_>,
    ) -> Result<Self::Written<'n>, WriteRefused> {
        write::write(permit, key, change)
    }

    fn delete_all<'n>(&mut self, keys: Vec<Self::Key<'n>>) -> Vec<Self::Written<'n>> {
        write::delete_all(keys)
    }

    fn signal(&mut self, written: Written<'_>, events: &[Event]) {
        written.signal(events);
    }

    fn subscribe_to_keys(&mut self) {
        // Where generic events are harmful, polling finds keys that become free.
        let generic = if self.module.facts.has_safe_key_events() { raw::REDISMODULE_NOTIFY_GENERIC } else { 0 };
        let classes = generic | raw::REDISMODULE_NOTIFY_EXPIRED | raw::REDISMODULE_NOTIFY_EVICTED;
        let on_key = self.module.callbacks.get().and_then(|callbacks| callbacks.key);
        // SAFETY: the context is valid, the callback is static.
        unsafe { (api().subscribe_to_keyspace_events)(self.context.as_ptr(), classes, on_key) };
    }

    fn reports_keys(&self) -> bool {
        self.module.facts.has_safe_key_events()
    }
}
