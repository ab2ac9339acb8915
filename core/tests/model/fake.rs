//! A fake server for the driver: keys that execute the commands of each change, blocked clients, one timer, and a clock
//! that only a test moves. It knows no lock rules: a command that the driver forgets is missing from its keys.
//!
//! It behaves like a real server. A key whose native expiry has passed is gone when it is opened, and its end is
//! reported as a keyspace event. A blocked client is answered once. A timer fires when it is due, and nothing else
//! wakes a client.

mod edge;
mod key;
mod world;

pub use edge::FakeEdge;
use key::FakeKey;
use redis_lock_core::driver::{Canonical, Driver, Entry, Key as _, Writer};
use redis_lock_core::engine::outbox::Answer;
use redis_lock_core::engine::{KeyChange, KeyName, Limits};
use redis_lock_core::lock::grace;
use redis_lock_core::lock::retention::Retention;
use redis_lock_core::lock::state::State;
use redis_lock_core::lock::time::{Micros, MonotonicMicros, UnixMicros};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
pub use world::{Changed, World};

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    String(Vec<u8>),
    /// Members and their scores, in microseconds.
    Set(BTreeMap<Vec<u8>, u64>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stored {
    pub content: Content,
    pub expire_at_ms: Option<u64>,
}

/// A mutant of the server, to show that the checks can fail. Mutants of the module are in `tests/mutants`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    None,
    /// A key is judged with a clock that is one second ahead.
    TakesOverEarly,
    /// Contenders wait no longer than the holder may work.
    NoMargin,
    /// A key opened for its waiters looks free.
    GrantsWithoutInspecting,
    /// Timers fire at once or the next day.
    ForgetsDueTimes,
    /// No place is reserved.
    ForgetsPlaces,
    /// The module does not get an attempt's ID.
    IgnoresIds,
}

/// The operator's settings.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub margin: Micros,
    pub retention: Retention,
    pub limits: Limits,
    pub edges: usize,
    pub grace: Option<grace::Settings>,
    /// Whether all keys that become free are reported.
    pub reports_keys: bool,
    pub mutant: Mutant,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            margin: Micros(1_000_000),
            retention: Retention::Ms(60_000),
            limits: Limits {
                waiters: 1_000,
                queued: 1_000,
                claim: Micros(2_000_000),
                result: 65_536,
                place: Micros(10_000_000),
                tick: Micros(100_000),
            },
            edges: 10_000,
            grace: None,
            reports_keys: true,
            mutant: Mutant::None,
        }
    }
}

/// A blocked client's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blocked(pub u64);

/// A database and a key's name.
pub type OwnedKeyName = (i32, Vec<u8>);

/// The form in which servers are compared: without settings, the log and published events.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    driver: Canonical<Blocked>,
    clocks: (UnixMicros, MonotonicMicros),
    keys: BTreeMap<OwnedKeyName, Stored>,
    pub blocked: BTreeSet<Blocked>,
    /// The clients whose answers are on their way, in the driver's order.
    pub letters: Vec<Blocked>,
    timer_at_ms: Option<u64>,
    subscribed: [bool; 2],
    is_paused: bool,
    is_replica: bool,
}

/// A server with the module.
pub struct Node {
    pub world: RefCell<World>,
    pub driver: RefCell<Driver<Blocked, u64>>,
}

impl Clone for Node {
    fn clone(&self) -> Self {
        Self { world: self.world.clone(), driver: RefCell::new(self.driver.borrow().clone()) }
    }
}

impl Node {
    /// A server that starts at this time.
    pub fn new(settings: Settings, wall: UnixMicros) -> Self {
        let world = World {
            wall,
            monotonic: MonotonicMicros(1_000_000),
            settings,
            replication: Some((0, Vec::new())),
            ..World::default()
        };
        let node = Self { world: RefCell::new(world), driver: RefCell::new(Driver::default()) };
        node.event(|entry| entry.promoted());
        node
    }

    /// The server's canonical form: two servers with the same form behave the same from then on.
    pub fn canonical(&self) -> Form {
        let world = self.world.borrow();
        let mut letters: Vec<&(Blocked, Answer)> = world.letters.iter().collect();
        letters.sort_unstable_by_key(|(to, _)| *to);
        let sent: Vec<&Answer> = letters.iter().map(|(_, answer)| answer).collect();
        Form {
            driver: self.driver.borrow().canonical(&sent, world.monotonic),
            clocks: (world.wall, world.monotonic),
            keys: world.keys.clone(),
            blocked: world.blocked.iter().copied().collect(),
            letters: letters.iter().map(|(to, _)| *to).collect(),
            timer_at_ms: world.timer.map(|(_, at_ms)| at_ms),
            subscribed: [world.has_key_events, world.has_client_events],
            is_paused: world.is_paused,
            is_replica: world.is_replica,
        }
    }

    /// Runs an entry from the server, for a client.
    pub fn enter<R>(&self, writer: Writer, client: u64, body: impl FnOnce(&mut Entry<'_, FakeEdge<'_>>) -> R) -> R {
        self.enter_with(FakeEdge { node: self, writer, client, db: 0, is_timer: false }, body)
    }

    fn enter_with<'n, R>(&'n self, edge: FakeEdge<'n>, body: impl FnOnce(&mut Entry<'n, FakeEdge<'n>>) -> R) -> R {
        let mut entry = Entry::new(&self.driver, edge);
        let result = body(&mut entry);
        entry.finish();
        result
    }

    pub fn command<R>(&self, client: u64, body: impl FnOnce(&mut Entry<'_, FakeEdge<'_>>) -> R) -> R {
        self.enter(Writer::Command, client, body)
    }

    pub fn event<R>(&self, body: impl FnOnce(&mut Entry<'_, FakeEdge<'_>>) -> R) -> R {
        self.enter(Writer::Timer, 0, body)
    }

    /// Fires the timer.
    fn run_timer(&self) {
        let edge = FakeEdge { node: self, writer: Writer::Timer, client: 0, db: 0, is_timer: true };
        self.enter_with(edge, |entry| entry.timer_fired());
    }

    /// Advances both clocks.
    pub fn pass(&self, time: Micros) {
        let mut world = self.world.borrow_mut();
        world.wall = world.wall.after(time);
        world.monotonic = world.monotonic.after(time);
    }

    /// Sets the wall clock, and the module reads it.
    pub fn set_clock(&self, wall: UnixMicros) {
        self.world.borrow_mut().wall = wall;
        self.tick();
    }

    /// The server's own tick.
    pub fn tick(&self) {
        self.event(|entry| entry.tick());
    }

    /// When the timer fires, if it is set.
    pub fn timer_at(&self) -> Option<UnixMicros> {
        self.world.borrow().timer.map(|(_, at_ms)| UnixMicros(at_ms * 1_000))
    }

    /// Fires the timer if it is due. Returns whether it was.
    pub fn fire(&self) -> bool {
        let is_due = {
            let mut world = self.world.borrow_mut();
            let now_ms = world.wall.0 / 1_000;
            world.timer.take_if(|(_, at_ms)| *at_ms <= now_ms).is_some()
        };
        if is_due {
            self.run_timer();
        }
        is_due
    }

    /// Advances the monotonic clock to the end of the next wait or place, and fires the timer.
    pub fn end_comes(&self) {
        let end = self.driver.borrow().engine().queues().next_end().expect("somebody waits, or has a place");
        {
            let mut world = self.world.borrow_mut();
            world.monotonic = end;
            world.timer.take().expect("there is a timer for it");
        }
        self.run_timer();
    }

    /// Deletes a key as another client would.
    pub fn delete(&self, place: &OwnedKeyName) {
        if self.put(place, None).is_some() {
            self.report_key(place, KeyChange::Gone);
        }
    }

    /// Changes a key as another client would; no event reports this. Returns the old value.
    pub fn put(&self, place: &OwnedKeyName, stored: Option<Stored>) -> Option<Stored> {
        let mut world = self.world.borrow_mut();
        let before = match stored {
            Some(stored) => world.keys.insert(place.clone(), stored),
            None => world.keys.remove(place),
        };
        world.note(place, before.clone(), false);
        before
    }

    /// Lets the server notice that a key's native expiry has passed, if it has.
    pub fn expire(&self, place: &OwnedKeyName) {
        if self.is_past_expiry(place) {
            self.delete(place);
        }
    }

    /// Whether a key's native expiry has passed.
    pub fn is_past_expiry(&self, place: &OwnedKeyName) -> bool {
        let world = self.world.borrow();
        let now_ms = world.wall.0 / 1_000;
        world.keys.get(place).and_then(|stored| stored.expire_at_ms).is_some_and(|at| now_ms > at)
    }

    /// Lets the answer to a client arrive.
    pub fn deliver(&self, client: Blocked) -> Option<Answer> {
        let answer = self.take_letter(client)?;
        if let Answer::Granted(grant) = &answer {
            let token = grant.granted.token;
            self.event(|entry| entry.delivered(token));
        }
        Some(answer)
    }

    /// Loses the answer to a client, which has disconnected.
    pub fn lose(&self, client: Blocked) -> Option<Answer> {
        let answer = self.take_letter(client)?;
        if let Answer::Granted(grant) = &answer {
            let grant = grant.clone();
            self.event(|entry| entry.undelivered(grant));
        }
        Some(answer)
    }

    fn take_letter(&self, client: Blocked) -> Option<Answer> {
        let mut world = self.world.borrow_mut();
        let at = world.letters.iter().position(|(to, _)| *to == client)?;
        Some(world.letters.remove(at).1)
    }

    /// Ends a connection, and with it its wait, if it waits, and its locks.
    pub fn disconnect(&self, client: u64) {
        self.event(|entry| entry.client_left(client));
        if self.world.borrow().has_client_events {
            self.event(|entry| entry.connection_ended(client));
        }
    }

    /// Reports a key with a keyspace event.
    pub fn report_key(&self, (db, name): &OwnedKeyName, how: KeyChange) {
        let is_reported = {
            let world = self.world.borrow();
            world.has_key_events && !world.is_mute
        };
        if is_reported {
            self.event(|entry| entry.key_changed(KeyName { db: *db, name }, how));
        }
    }

    /// Shows `body` the lock in a key now, without opening the key.
    pub fn with_lock<R>(&self, place: &OwnedKeyName, body: impl FnOnce(State<'_>) -> R) -> R {
        let (stored, now) = {
            let world = self.world.borrow();
            (world.keys.get(place).cloned(), world.wall)
        };
        let key = FakeKey::read(place.clone(), stored, now, now).expect("a lock");
        body(key.lock())
    }
}
