//! A fake server for the driver: keys that execute the commands of each change, clients that are blocked, one timer,
//! and a clock that stands still until a test moves it. It knows no rule of locks: a command that the driver forgets
//! is missing in its keys.
//!
//! It behaves as a server does. A key whose native expiry has passed is gone when it is opened, and its end is reported
//! as a keyspace event. A blocked client is answered once. A timer fires when its time has come, and nothing else wakes
//! a client.

mod edge;
mod key;

pub use edge::FakeEdge;
use key::FakeKey;
use redis_lock_core::driver::{Canonical, Driver, Entry, Key as _, Span, WriteRefused, Writer};
use redis_lock_core::engine::grant::Event;
use redis_lock_core::engine::outbox::Answer;
use redis_lock_core::engine::queue::Channel;
use redis_lock_core::engine::{KeyChange, KeyName, Limits};
use redis_lock_core::lock::change::Primitive;
use redis_lock_core::lock::grace;
use redis_lock_core::lock::retention::Retention;
use redis_lock_core::lock::state::State;
use redis_lock_core::lock::time::{Micros, MonotonicMicros, UnixMicros};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

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

/// A mutant of the server, to see that the checks can fail. Mutants of the module are in `tests/mutants`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    None,
    /// A key is judged by a clock that is a second ahead.
    TakesOverEarly,
    /// Contenders wait no longer than the holder may work.
    NoMargin,
    /// A key that is opened for its waiters looks free.
    GrantsWithoutInspecting,
    /// Timers fire at once or on the next day.
    ForgetsDueTimes,
    /// No place is reserved.
    ForgetsPlaces,
    /// The module does not get the ID of an attempt.
    IgnoresIds,
}

/// What an operator has set.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub margin: Micros,
    pub retention: Retention,
    pub limits: Limits,
    pub edges: usize,
    pub grace: Option<grace::Settings>,
    /// All keys that come free are reported.
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

/// The number of a client that is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blocked(pub u64);

/// A database and the name of a key in it.
pub type Place = (i32, Vec<u8>);

/// Everything except the module.
#[derive(Clone, Debug, Default)]
pub struct World {
    pub wall: UnixMicros,
    pub monotonic: MonotonicMicros,
    pub settings: Settings,
    pub keys: BTreeMap<Place, Stored>,
    /// Clients that are blocked.
    pub blocked: Vec<Blocked>,
    /// Answers that have been sent and not arrived.
    pub letters: Vec<(Blocked, Answer)>,
    /// The timer: its number and when it fires, on the wall clock in milliseconds, as in a server.
    pub timer: Option<(u64, u64)>,
    pub timers: u64,
    pub has_key_events: bool,
    pub has_client_events: bool,
    /// It reports no keyspace events, even if they are on.
    pub is_mute: bool,
    /// The server does not let a module write outside of commands.
    pub is_paused: bool,
    /// It has fewer good replicas than it wants.
    pub is_short_of_replicas: bool,
    pub is_replica: bool,
    /// Keys whose slots are no longer served here; none: the server is not in a cluster.
    pub lost_slots: Option<BTreeSet<Vec<u8>>>,
    /// The changes of keys, in order, if a test keeps them.
    pub journal: Option<Vec<Changed>>,
    /// How often a key was opened.
    pub opened: usize,
    /// What was logged.
    pub log: Vec<String>,
    /// The keyspace events of locks.
    pub events: Vec<(Place, Event)>,
    /// The channels with a subscriber.
    pub subscribed: BTreeSet<Channel>,
    /// What was published, in this order.
    pub messages: Vec<(Channel, Vec<u8>)>,
    /// How long publishing a message takes.
    pub publish_takes: Micros,
    /// It uses more memory than it may.
    pub is_out_of_memory: bool,
    /// What was recorded.
    pub spans: Vec<(Span, Micros)>,
    /// Commands run in a script, which cannot block.
    pub is_script: bool,
    pub is_transaction: bool,
    /// Keys that the server does not let the module write, and why.
    pub refused: BTreeMap<Vec<u8>, WriteRefused>,
    /// The offset of a master, and what its replicas have answered; `None`: the server does not report it.
    pub replication: Option<(u64, Vec<grace::Answer>)>,
    /// How long the machine was suspended.
    pub suspended: Micros,
    /// The events that the module has subscribed to.
    pub subscriptions: Vec<&'static str>,
    /// How many keys are open that may still be read.
    pub open_keys: Rc<Cell<usize>>,
}

/// A key that was changed.
#[derive(Clone, Debug)]
pub struct Changed {
    pub place: Place,
    pub before: Option<Stored>,
    pub after: Option<Stored>,
    /// The module did it, not another command or the passing of time.
    pub by_module: bool,
}

/// A server as it is compared: without settings, the log and published events.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    driver: Canonical<Blocked>,
    clocks: (UnixMicros, MonotonicMicros),
    keys: BTreeMap<Place, Stored>,
    pub blocked: BTreeSet<Blocked>,
    /// The clients whose answers are on their way; the driver has them in the same order.
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
    /// A server that starts at that time.
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

    /// The server as it is compared: two servers of the same form behave the same from then on.
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

    /// An entry from the server, for a client.
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

    /// The timer fires.
    fn run_timer(&self) {
        let edge = FakeEdge { node: self, writer: Writer::Timer, client: 0, db: 0, is_timer: true };
        self.enter_with(edge, |entry| entry.timer_fired());
    }

    /// Both clocks move on.
    pub fn pass(&self, time: Micros) {
        let mut world = self.world.borrow_mut();
        world.wall = world.wall.after(time);
        world.monotonic = world.monotonic.after(time);
    }

    /// The wall clock is set, and the module reads it.
    pub fn set_clock(&self, wall: UnixMicros) {
        self.world.borrow_mut().wall = wall;
        self.event(|entry| entry.tick());
    }

    /// When the timer fires, if it is set.
    pub fn timer_at(&self) -> Option<UnixMicros> {
        self.world.borrow().timer.map(|(_, at_ms)| UnixMicros(at_ms * 1_000))
    }

    /// Fires the timer if its time has come. Returns whether it had.
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

    /// The clock that is never set moves on to the end of the next wait or place, and the timer fires.
    pub fn end_comes(&self) {
        let end = self.driver.borrow().engine().queues().next_end().expect("somebody waits, or has a place");
        {
            let mut world = self.world.borrow_mut();
            world.monotonic = end;
            world.timer.take().expect("there is a timer for it");
        }
        self.run_timer();
    }

    /// Somebody else deletes a key.
    pub fn delete(&self, place: &Place) {
        if self.put(place, None).is_some() {
            self.report_key(place, KeyChange::Gone);
        }
    }

    /// Somebody else changes a key, and no event reports it. Returns the old value.
    pub fn put(&self, place: &Place, stored: Option<Stored>) -> Option<Stored> {
        let mut world = self.world.borrow_mut();
        let before = match stored {
            Some(stored) => world.keys.insert(place.clone(), stored),
            None => world.keys.remove(place),
        };
        world.note(place, before.clone(), false);
        before
    }

    /// The native expiry of a key is noticed, if it has passed.
    pub fn expire(&self, place: &Place) {
        if self.is_past_expiry(place) {
            self.delete(place);
        }
    }

    /// Whether the native expiry of a key has passed.
    pub fn is_past_expiry(&self, place: &Place) -> bool {
        let world = self.world.borrow();
        let now_ms = world.wall.0 / 1_000;
        world.keys.get(place).and_then(|stored| stored.expire_at_ms).is_some_and(|at| now_ms > at)
    }

    /// The answer to a client arrives.
    pub fn deliver(&self, client: Blocked) -> Option<Answer> {
        let answer = self.take_letter(client)?;
        if let Answer::Granted(grant) = &answer {
            let token = grant.granted.token;
            self.event(|entry| entry.delivered(token));
        }
        Some(answer)
    }

    /// The answer to a client is lost: it is gone.
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

    /// A connection ends: its wait too, if it waits, and its locks.
    pub fn disconnect(&self, client: u64) {
        self.event(|entry| entry.client_left(client));
        if self.world.borrow().has_client_events {
            self.event(|entry| entry.connection_ended(client));
        }
    }

    /// A keyspace event reports a key.
    pub fn report_key(&self, (db, name): &Place, how: KeyChange) {
        let is_reported = {
            let world = self.world.borrow();
            world.has_key_events && !world.is_mute
        };
        if is_reported {
            self.event(|entry| entry.key_changed(KeyName { db: *db, name }, how));
        }
    }

    /// What a key holds now, without opening it.
    pub fn with_lock<R>(&self, place: &Place, body: impl FnOnce(State<'_>) -> R) -> R {
        let (stored, now) = {
            let world = self.world.borrow();
            (world.keys.get(place).cloned(), world.wall)
        };
        let key = FakeKey::read(place.clone(), stored, now, now).expect("a lock");
        body(key.lock())
    }
}

impl World {
    /// Records what has become of a key.
    fn note(&mut self, place: &Place, before: Option<Stored>, by_module: bool) {
        let after = self.keys.get(place).cloned();
        if let Some(journal) = &mut self.journal {
            journal.push(Changed { place: place.clone(), before, after, by_module });
        }
    }

    /// Changes a key, and records the change.
    fn change(
        &mut self,
        place: &Place,
        change: impl FnOnce(&mut Self) -> Result<(), WriteRefused>,
    ) -> Result<(), WriteRefused> {
        let before = self.journal.is_some().then(|| self.keys.get(place).cloned()).flatten();
        change(self)?;
        self.note(place, before, true);
        Ok(())
    }

    /// Executes a command of the server, which knows nothing about locks.
    fn execute(&mut self, place: &Place, primitive: &Primitive<'_>) {
        match primitive {
            Primitive::Set { value, expire_at_ms } => {
                let content = Content::String(value.as_bytes().to_vec());
                self.keys.insert(place.clone(), Stored { content, expire_at_ms: *expire_at_ms });
            }
            Primitive::Del => {
                self.keys.remove(place).expect("a key that is deleted is there");
            }
            Primitive::Zadd(value) => {
                let empty = Stored { content: Content::Set(BTreeMap::new()), expire_at_ms: None };
                let stored = self.keys.entry(place.clone()).or_insert(empty);
                let Content::Set(set) = &mut stored.content else { panic!("WRONGTYPE ZADD") };
                set.insert(value.member().to_vec(), value.timestamp().0);
            }
            Primitive::Zrem(holder) => {
                let stored = self.keys.get_mut(place).expect("a set");
                let Content::Set(set) = &mut stored.content else { panic!("WRONGTYPE ZREM") };
                set.remove(holder.record().encode().member()).expect("a holder that is removed is there");
                if set.is_empty() {
                    self.keys.remove(place);
                }
            }
            Primitive::PexpireAt(ms) => self.keys.get_mut(place).expect("a key").expire_at_ms = Some(*ms),
            Primitive::Persist => self.keys.get_mut(place).expect("a key").expire_at_ms = None,
        }
    }
}
