//! Everything around the module on a fake server: clocks, keys, clients, channels and replicas.

use super::{Blocked, Content, OwnedKeyName, Settings, Stored};
use redis_lock_core::driver::{Span, WriteRefused};
use redis_lock_core::engine::grant::Event;
use redis_lock_core::engine::outbox::Answer;
use redis_lock_core::engine::queue::Channel;
use redis_lock_core::lock::change::Primitive;
use redis_lock_core::lock::grace;
use redis_lock_core::lock::time::{Micros, MonotonicMicros, UnixMicros};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Everything except the module.
#[derive(Clone, Debug, Default)]
pub struct World {
    pub wall: UnixMicros,
    pub monotonic: MonotonicMicros,
    pub settings: Settings,
    pub keys: BTreeMap<OwnedKeyName, Stored>,
    /// The blocked clients.
    pub blocked: Vec<Blocked>,
    /// Answers that were sent and have not arrived.
    pub letters: Vec<(Blocked, Answer)>,
    /// The timer: its number and when it fires, in wall-clock milliseconds, as in a server.
    pub timer: Option<(u64, u64)>,
    pub timers: u64,
    pub has_key_events: bool,
    pub has_client_events: bool,
    /// Whether it reports no keyspace events, even if they are on.
    pub is_mute: bool,
    /// Whether the server does not let a module write outside commands.
    pub is_paused: bool,
    /// Whether it has fewer good replicas than it requires.
    pub is_short_of_replicas: bool,
    pub is_replica: bool,
    /// Keys whose slots are no longer served here; `None` if the server is not in a cluster.
    pub lost_slots: Option<BTreeSet<Vec<u8>>>,
    /// How many times the module asked whether a slot is served here.
    pub slots_asked: usize,
    /// The changes to keys, in order, if a test keeps them.
    pub journal: Option<Vec<Changed>>,
    /// How many times a key was opened.
    pub opened: usize,
    /// The lines that were logged.
    pub log: Vec<String>,
    /// The keyspace events of locks.
    pub events: Vec<(OwnedKeyName, Event)>,
    /// The channels with a subscriber.
    pub subscribed: BTreeSet<Channel>,
    /// The published messages, in order.
    pub messages: Vec<(Channel, Vec<u8>)>,
    /// How long publishing a message takes.
    pub publish_takes: Micros,
    /// Whether its memory use is above its limit.
    pub is_out_of_memory: bool,
    /// The recorded spans.
    pub spans: Vec<(Span, Micros)>,
    /// Whether commands run in a script, which cannot block.
    pub is_script: bool,
    pub is_transaction: bool,
    /// Keys that the server does not let the module write, and why.
    pub refused: BTreeMap<Vec<u8>, WriteRefused>,
    /// A master's offset and its replicas' answers; `None` if the server does not report them.
    pub replication: Option<(u64, Vec<grace::Answer>)>,
    /// How long the machine was suspended.
    pub suspended: Micros,
    /// The events that the module has subscribed to.
    pub subscriptions: Vec<&'static str>,
    /// The number of open keys that may still be read.
    pub open_keys: Rc<Cell<usize>>,
}

/// A key that was changed.
#[derive(Clone, Debug)]
pub struct Changed {
    pub place: OwnedKeyName,
    pub before: Option<Stored>,
    pub after: Option<Stored>,
    /// Whether the module changed it, not another command or the passing of time.
    pub by_module: bool,
}

impl World {
    /// Records a key's change.
    pub(super) fn note(&mut self, place: &OwnedKeyName, before: Option<Stored>, by_module: bool) {
        let after = self.keys.get(place).cloned();
        if let Some(journal) = &mut self.journal {
            journal.push(Changed { place: place.clone(), before, after, by_module });
        }
    }

    /// Changes a key, and records the change.
    pub(super) fn change(
        &mut self,
        place: &OwnedKeyName,
        change: impl FnOnce(&mut Self) -> Result<(), WriteRefused>,
    ) -> Result<(), WriteRefused> {
        let before = self.journal.is_some().then(|| self.keys.get(place).cloned()).flatten();
        change(self)?;
        self.note(place, before, true);
        Ok(())
    }

    /// Executes a server command, which knows nothing about locks.
    pub(super) fn execute(&mut self, place: &OwnedKeyName, primitive: &Primitive<'_>) {
        match primitive {
            Primitive::Set { value, expire_at_ms } => {
                let content = Content::String(value.as_bytes().to_vec());
                self.keys.insert(place.clone(), Stored { content, expire_at_ms: *expire_at_ms });
            }
            Primitive::Del => {
                self.keys.remove(place).expect("a deleted key exists");
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
                set.remove(holder.record().encode().member()).expect("a removed holder exists");
                if set.is_empty() {
                    self.keys.remove(place);
                }
            }
            Primitive::PexpireAt(ms) => self.keys.get_mut(place).expect("a key").expire_at_ms = Some(*ms),
            Primitive::Persist => self.keys.get_mut(place).expect("a key").expire_at_ms = None,
        }
    }
}
