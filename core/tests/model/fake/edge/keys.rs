//! Keys, and how they carry out the commands of a change.

use super::super::key::FakeKey;
use super::super::{Mutant, OwnedKeyName};
use super::FakeEdge;
use redis_lock_core::driver::{Access, Expected, Key as _, Keys, Permit, Unseen, WriteRefused, Writer};
use redis_lock_core::engine::grant::Event;
use redis_lock_core::engine::KeyName;
use redis_lock_core::lock::change::{Change, Primitive};
use redis_lock_core::lock::time::{Micros, UnixMicros};

impl Keys for FakeEdge<'_> {
    type Name<'n> = &'n [u8];
    type OwnName = Vec<u8>;
    type Key<'n> = FakeKey;
    type Written<'n> = OwnedKeyName;

    fn key_name<'n>(&self, name: Self::Name<'n>) -> KeyName<'n> {
        KeyName { db: self.db, name }
    }

    fn name(&mut self, key: KeyName<'_>) -> Option<Vec<u8>> {
        self.db = key.db;
        Some(key.name.to_vec())
    }

    fn lend(name: &Vec<u8>) -> &[u8] {
        name
    }

    fn select(&mut self, db: i32) {
        self.db = db;
    }

    fn serves(&mut self, name: &[u8]) -> bool {
        let mut world = self.node.world.borrow_mut();
        world.slots_asked += 1;
        !world.lost_slots.as_ref().is_some_and(|lost| lost.contains(name))
    }

    fn may_lose_slots(&self) -> bool {
        self.node.world.borrow().lost_slots.is_some()
    }

    fn open<'n>(
        &mut self,
        name: Self::Name<'n>,
        access: Access,
        expected: Expected,
        now: UnixMicros,
    ) -> Result<Self::Key<'n>, Unseen> {
        self.node.world.borrow_mut().opened += 1;
        if access == Access::Waiter && !self.serves(name) {
            return Err(Unseen::NotServed);
        }
        let place = (self.db, name.to_vec());
        self.node.expire(&place);
        let stored = self.node.world.borrow().keys.get(&place).cloned();
        let ahead = if self.has(Mutant::TakesOverEarly) { Micros(1_000_000) } else { Micros(0) };
        let mut key = FakeKey::read(place, stored, now, now.after(ahead))?;
        key.opened(&self.node.world.borrow().open_keys);
        key.looks_free =
            self.has(Mutant::GrantsWithoutInspecting) && (access, expected) == (Access::Waiter, Expected::Nothing);
        Ok(key)
    }

    fn expires_in_ms(&mut self, name: &[u8]) -> Option<u64> {
        let world = self.node.world.borrow();
        let at = world.keys.get(&(self.db, name.to_vec()))?.expire_at_ms?;
        Some(at.saturating_sub(world.wall.0 / 1_000))
    }

    fn check_writable(&self, permit: Permit, key: &FakeKey) -> Result<(), WriteRefused> {
        // A server does not know in advance what its own commands will reply.
        let refused = self.node.world.borrow().refused.get(&key.place.1).copied();
        refused.filter(|_| permit.writer() == Writer::Command).map_or(Ok(()), Err)
    }

    fn write<'n>(
        &mut self,
        permit: Permit,
        mut key: Self::Key<'n>,
        change: Change<'_>,
    ) -> Result<Self::Written<'n>, WriteRefused> {
        key.close();
        assert_eq!(permit.writer(), self.writer, "a command has to write as a command, and the timer as the timer");
        let mut world = self.node.world.borrow_mut();
        let is_reported_at_once = self.writer == Writer::Timer;
        assert!(!is_reported_at_once || world.open_keys.get() == 0, "a receiver of its event may change open keys");
        assert_eq!(
            world.keys.get(&key.place),
            key.stored.as_ref(),
            "a key that has changed since it was read is written"
        );
        if let Some(refused) = world.refused.get(&key.place.1) {
            return Err(*refused);
        }
        world.change(&key.place, |world| {
            change.try_each(|primitive| {
                world.execute(&key.place, &primitive);
                Ok(())
            })
        })?;
        Ok(key.place)
    }

    fn delete_all<'n>(&mut self, keys: Vec<Self::Key<'n>>) -> Vec<Self::Written<'n>> {
        let mut world = self.node.world.borrow_mut();
        let places = keys.into_iter().map(|key| key.place);
        let places: Vec<OwnedKeyName> = places.take_while(|(_, name)| !world.refused.contains_key(name)).collect();
        for place in &places {
            let deleted = world.change(place, |world| {
                world.execute(place, &Primitive::Del);
                Ok(())
            });
            assert_eq!(deleted, Ok(()));
        }
        places
    }

    fn signal(&mut self, place: OwnedKeyName, events: &[Event]) {
        let mut world = self.node.world.borrow_mut();
        world.events.extend(events.iter().map(|event| (place.clone(), *event)));
    }

    fn subscribe_to_keys(&mut self) {
        let mut world = self.node.world.borrow_mut();
        world.subscriptions.push("keys");
        world.has_key_events = true;
    }

    fn reports_keys(&self) -> bool {
        self.settings().reports_keys
    }
}
