//! What the driver needs from a server, provided by the fake one.

use super::key::FakeKey;
use super::{Blocked, Fault, Node, Place, Settings};
use redis_lock_core::driver::{
    Access, Edge, Expected, Key as _, Level, Permit, Replication, Span, Unseen, WriteRefused, Writer,
};
use redis_lock_core::engine::grant::Event;
use redis_lock_core::engine::outbox::Letter;
use redis_lock_core::engine::queue::Channel;
use redis_lock_core::engine::{Clock, KeyName, Limits};
use redis_lock_core::lock::change::{Change, Primitive, Retentions};
use redis_lock_core::lock::clocks::Reading;
use redis_lock_core::lock::grace;
use redis_lock_core::lock::request::Terms;
use redis_lock_core::lock::time::{Micros, MonotonicMicros, UnixMicros};

/// The clocks as they stand.
#[derive(Clone, Copy)]
pub struct FakeClock(pub(super) UnixMicros, pub(super) MonotonicMicros);

impl Clock for FakeClock {
    fn now(self) -> UnixMicros {
        self.0
    }

    fn monotonic(self) -> MonotonicMicros {
        self.1
    }
}

/// The server, for one call.
pub struct FakeEdge<'w> {
    pub(super) node: &'w Node,
    pub(super) writer: Writer,
    pub(super) client: u64,
    pub(super) db: i32,
    /// It is the timer, and not another event.
    pub(super) is_timer: bool,
}

impl FakeEdge<'_> {
    fn settings(&self) -> Settings {
        self.node.world.borrow().settings
    }

    fn has(&self, fault: Fault) -> bool {
        self.settings().fault == fault
    }
}

impl Edge for FakeEdge<'_> {
    type Clock = FakeClock;
    type Handle = Blocked;
    type TimerId = u64;
    type Name<'n> = &'n [u8];
    type OwnName = Vec<u8>;
    type Key<'n> = FakeKey;
    type Written<'n> = Place;

    fn clock(&self) -> FakeClock {
        let world = self.node.world.borrow();
        FakeClock(world.wall, world.monotonic)
    }

    fn command_time(&self) -> UnixMicros {
        self.node.world.borrow().wall
    }

    fn reading(&self) -> Reading {
        let world = self.node.world.borrow();
        let awake = MonotonicMicros(world.monotonic.0 - world.suspended.0);
        Reading { wall: world.wall, monotonic: world.monotonic, awake }
    }

    fn terms(&self) -> Terms {
        let margin = if self.has(Fault::NoMargin) { Micros(0) } else { self.settings().margin };
        Terms { margin }
    }

    fn limits(&self) -> Limits {
        let limits = self.settings().limits;
        let place = if self.has(Fault::ForgetsPlaces) { Micros(0) } else { limits.place };
        Limits { place, ..limits }
    }

    fn most_edges(&self) -> usize {
        self.settings().edges
    }

    fn retentions(&mut self) -> Retentions {
        let retention = self.settings().retention;
        Retentions { key: retention, holder: retention }
    }

    fn grace(&mut self) -> Option<grace::Settings> {
        self.settings().grace
    }

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
        !self.node.world.borrow().lost_slots.as_ref().is_some_and(|lost| lost.contains(name))
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
        let ahead = if self.has(Fault::TakesOverEarly) { Micros(1_000_000) } else { Micros(0) };
        let mut key = FakeKey::read(place, stored, now, now.after(ahead))?;
        key.opened(&self.node.world.borrow().open_keys);
        key.looks_free =
            self.has(Fault::GrantsWithoutLooking) && (access, expected) == (Access::Waiter, Expected::Nothing);
        Ok(key)
    }

    fn expires_in_ms(&mut self, name: &[u8]) -> Option<u64> {
        let world = self.node.world.borrow();
        let at = world.keys.get(&(self.db, name.to_vec()))?.expire_at_ms?;
        Some(at.saturating_sub(world.wall.0 / 1_000))
    }

    fn check_writable(&self, permit: Permit, key: &FakeKey) -> Result<(), WriteRefused> {
        // A server does not know before what its own commands would reply.
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
        assert_eq!(permit.writer(), self.writer, "a command writes as a command, the timer as the timer");
        let mut world = self.node.world.borrow_mut();
        let is_told_at_once = self.writer == Writer::Timer;
        assert!(
            !is_told_at_once || world.open_keys.get() == 0,
            "who is told of this key may change those that are open"
        );
        assert_eq!(
            world.keys.get(&key.place),
            key.stored.as_ref(),
            "a key is written that has changed since it was read"
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
        let places: Vec<Place> = places.take_while(|(_, name)| !world.refused.contains_key(name)).collect();
        for place in &places {
            let deleted = world.change(place, |world| {
                world.execute(place, &Primitive::Del);
                Ok(())
            });
            assert_eq!(deleted, Ok(()));
        }
        places
    }

    fn signal(&mut self, place: Place, events: &[Event]) {
        let mut world = self.node.world.borrow_mut();
        world.events.extend(events.iter().map(|event| (place.clone(), *event)));
    }

    fn client(&self) -> u64 {
        self.client
    }

    fn is_connection(&self) -> bool {
        !self.node.world.borrow().is_script
    }

    fn may_block(&self) -> bool {
        let world = self.node.world.borrow();
        !world.is_script && !world.is_transaction
    }

    fn block(&mut self) -> Option<Blocked> {
        let blocked = Blocked(self.client);
        let mut world = self.node.world.borrow_mut();
        assert!(!world.blocked.contains(&blocked), "a client is blocked twice");
        world.blocked.push(blocked);
        Some(blocked)
    }

    fn answer(&mut self, handle: Blocked, letter: Box<Letter>) {
        self.release(handle);
        self.node.world.borrow_mut().letters.push((handle, letter.answer));
    }

    fn release(&mut self, handle: Blocked) {
        let mut world = self.node.world.borrow_mut();
        let at = world.blocked.iter().position(|blocked| *blocked == handle).expect("a client is released once");
        world.blocked.remove(at);
    }

    fn may_publish(&self) -> bool {
        self.is_timer || (self.writer == Writer::Command && self.may_block())
    }

    fn publish(&mut self, channel: &Channel, message: &[u8]) -> bool {
        assert!(self.may_publish(), "a message lands in the middle of something else");
        let mut world = self.node.world.borrow_mut();
        world.messages.push((channel.clone(), message.to_vec()));
        let took = world.publish_takes;
        (world.wall, world.monotonic) = (world.wall.after(took), world.monotonic.after(took));
        world.subscribed.contains(channel)
    }

    fn is_out_of_memory(&self) -> bool {
        self.node.world.borrow().is_out_of_memory
    }

    fn may_write(&mut self) -> bool {
        let world = self.node.world.borrow();
        !world.is_paused && !world.is_replica && !world.is_short_of_replicas
    }

    fn may_lose_slots(&self) -> bool {
        self.node.world.borrow().lost_slots.is_some()
    }

    fn is_replica(&self) -> bool {
        self.node.world.borrow().is_replica
    }

    fn replicas(&mut self) -> u64 {
        self.replication().map_or(0, |replication| replication.answers.len() as u64)
    }

    fn replication(&mut self) -> Option<Replication> {
        let (offset, answers) = self.node.world.borrow().replication.clone()?;
        Some(Replication { offset, answers })
    }

    fn set_timer(&mut self, after_ms: u64) -> u64 {
        let mut world = self.node.world.borrow_mut();
        assert_eq!(world.timer, None, "there is one timer");
        assert!(after_ms < 2_147_000, "the event loop of a real server would not sleep");
        world.timers += 1;
        // A server rounds its own time down, and the delay was rounded up.
        let is_forgotten = world.settings.fault == Fault::ForgetsDueTimes && after_ms > 0;
        let after_ms = if is_forgotten { 86_400_000 } else { after_ms };
        world.timer = Some((world.timers, world.wall.0 / 1_000 + after_ms));
        world.timers
    }

    fn stop_timer(&mut self, timer: u64) {
        self.node.world.borrow_mut().timer.take_if(|(id, _)| *id == timer);
    }

    fn subscribe_to_keys(&mut self) {
        let mut world = self.node.world.borrow_mut();
        world.subscriptions.push("keys");
        world.listens_to_keys = true;
    }

    fn reports_keys(&self) -> bool {
        self.settings().reports_keys
    }

    fn subscribe_to_clients(&mut self) {
        let mut world = self.node.world.borrow_mut();
        world.subscriptions.push("clients");
        world.listens_to_clients = true;
    }

    fn record(&mut self, span: Span, took: Micros) {
        self.node.world.borrow_mut().spans.push((span, took));
    }

    fn log(&mut self, _level: Level, text: &str) {
        self.node.world.borrow_mut().log.push(text.into());
    }
}
