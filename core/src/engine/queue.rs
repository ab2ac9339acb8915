//! The queues of all locks: first come, first served.
//!
//! Every waiter and every reserved place has a ticket; tickets grow. Invariants, checked by the tests:
//! - a client waits for one lock or for several at once, and leaves exactly once;
//! - an ID has at most one ticket for a key, as a waiter or as a reserved place, and keeps it;
//! - a queue exists only while it has a waiter or a place, and has a due time only while it has a waiter.
//!
//! A waiter for several locks is **parked** in the queue of one key that it cannot have: the key is held, or a waiter
//! for that key alone came earlier. The waiter cannot be served while that lasts, so no other key needs to know about
//! it, just as a SAT solver watches one literal of a clause. When the key becomes free, the waiter is tried: it is
//! granted all of its keys, or moves to another key that it cannot have. It holds up nobody behind it except while the
//! queue is ready: the key is then kept until the queue has been served, in the same event-loop iteration. The rejected
//! design put the waiter in the queues of all of its keys: 200 waiters for the same 100 keys kept an idle server busy,
//! and each wake-up of any key had to inspect all of them.
//!
//! Queues whose locks become free together are served in order of their first tickets.
//!
//! A hand-off touches the head of one queue, whatever its length: O(log n) in map steps, no scan. `H` is whatever the
//! caller needs to answer a waiter; the queues never inspect it.
//!
//! ```
//! use redis_lock_core::engine::queue::{Cause, Handle, Queues, ReplyShape, Waiter};
//! use redis_lock_core::engine::KeyName;
//! use redis_lock_core::lock::request::Share;
//! use redis_lock_core::lock::time::{Micros, MonotonicMicros};
//!
//! let waiter = |client, handle| Waiter {
//!     handle: Handle::Blocked { handle, client },
//!     share: Share::Alone,
//!     lease: Micros::from_ms(30_000),
//!     id: None,
//!     owner: None,
//!     shape: ReplyShape::Token,
//!     session: false,
//!     wants_result: false,
//!     since: MonotonicMicros(0),
//!     until: MonotonicMicros(60_000_000),
//! };
//! let mut queues = Queues::default();
//! let key = KeyName { db: 0, name: b"door" };
//! let queue = queues.join(key.alone(), 0, waiter(1, "alice")).queue.ok_or("no queue")?;
//! queues.join(key.alone(), 0, waiter(2, "bob"));
//! assert!(queues.has_ahead(key, None), "a newcomer has to queue");
//!
//! // The lock comes free: the first in the queue is served.
//! queues.set_ready(queue);
//! assert_eq!(queues.take_ready(), Some((queue, Cause::Event)));
//! let (ticket, _) = queues.single_head(queue).ok_or("nobody waits")?;
//! let alice = Handle::Blocked { handle: "alice", client: 1 };
//! assert_eq!(queues.serve(ticket).map(|served| served.handle), Some(alice));
//! assert_eq!(queues.head(queue).and_then(|next| next.client()), Some(2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cancelled;
#[cfg(feature = "model")]
mod canonical;
mod channels;
mod delivery;
mod inspect;
mod joining;
mod leaving;
mod order;
mod per_key;
mod ready;
mod removal;
mod results;
mod singles;
mod slots;
mod tickets;
mod top;
mod waiter;

#[cfg(feature = "model")]
pub use canonical::{Order, QueuesForm};
pub use channels::Channel;
pub use leaving::Ended;
pub use per_key::Cause;
pub use ready::{Candidate, Of, MOST_TRIED};
pub use top::{By, QueueRow};
pub use waiter::{Gone, Handle, Joined, Leaving, Narrows, Place, ReplyShape, Wait, Waiter};

use super::by_name::ByName;
use super::key_name::{KeyName, KeyNames};
use super::names::Wanted;
pub use super::names::{Keys, Mark, Marks, Names};
use channels::Channels;
use per_key::{Body, Entry, Position, Queue};
use singles::Singles;
use slots::SlotCheck;

use crate::lock::record::Id;
use crate::lock::time::{MonotonicMicros, UnixMicros};
use rustc_hash::FxHashMap;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A position in the order of arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

impl Ticket {
    /// The smallest.
    pub(super) const FIRST: Self = Self(0);
    /// The largest.
    pub(super) const LAST: Self = Self(u64::MAX);
}

/// Identifies the queue of one key; never reused for another queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(u64);

/// How many attempts with the same ID may queue for several keys each. IDs are random, so only a mistake or an attack
/// uses an ID more than once.
const MOST_OF_AN_ID: usize = 64;

/// The limits on all reserved places together.
#[derive(Clone, Copy, Debug)]
pub struct MostPlaces {
    /// A place for several keys counts once for each.
    pub keys: usize,
    /// Bytes of their names. Places for the same key share its name, but each counts it.
    pub bytes: usize,
}

impl MostPlaces {
    /// No place is reserved.
    pub const NONE: Self = Self { keys: 0, bytes: 0 };

    /// Adds a place for these keys.
    fn with(self, keys: &Keys) -> Self {
        Self { keys: self.keys.saturating_add(keys.len()), bytes: self.bytes.saturating_add(keys.size()) }
    }
}

/// How much a blocked client counts towards the limit, by the total size of its key names: one, plus one for each 16
/// kB. The server keeps a second copy of the names, and about 38 kB for a blocked client whatever it waits for.
#[must_use]
pub const fn load(bytes: usize) -> usize {
    const EACH: usize = 16 << 10;
    (bytes / EACH).saturating_add(1)
}

/// When a wait or a place ends, and its ticket.
pub type Deadline = (MonotonicMicros, Ticket);

/// All queues of a server.
#[derive(Clone, Debug)]
pub struct Queues<H> {
    index: ByName<QueueId>,
    /// The last queue found: one command asks for the same queue several times, and hashing a name costs more than
    /// comparing two.
    found: Cell<QueueId>,
    /// Trees where there can be a million entries: a hash map of that size stops the server while it grows.
    by_id: BTreeMap<QueueId, Box<Queue>>,
    entries: BTreeMap<Ticket, Box<Entry<H>>>,
    /// The waiters that the server keeps blocked.
    clients: FxHashMap<u64, Ticket>,
    /// The other waiters, by channel.
    channels: Channels,
    /// How much all blocked clients count in total: see [`load`].
    load: usize,
    /// How many waiters are notified on a channel.
    notifiable: usize,
    /// How many keys these waiters wait for.
    queued: usize,
    /// How many attempts are barred.
    barred: usize,
    /// The attempts for several keys, by ID.
    attempts: BTreeMap<(i32, Id), Vec<Ticket>>,
    marks: Marks,
    /// The total size of all reserved places.
    placed: MostPlaces,
    /// When waits and places end.
    ends: BTreeSet<Deadline>,
    /// When locks with waiters become free on their own.
    dues: BTreeSet<(UnixMicros, QueueId)>,
    /// The queues whose locks may have become free, each with its first ticket to be served.
    ready: BTreeSet<(Ticket, QueueId)>,
    /// Queues to continue with in the next event-loop iteration.
    later: BTreeSet<QueueId>,
    /// The queues of keys that are no longer served here.
    lost: BTreeSet<QueueId>,
    /// The queues with attempts that have left with a result and are still to be removed.
    delivering: BTreeSet<QueueId>,
    /// Databases that were flushed or swapped, or all of them, each with the first queue that is not yet ready.
    flushed: BTreeMap<Option<i32>, QueueId>,
    /// The next entry of `waiting_since` in a check of all queues.
    scan: Option<(MonotonicMicros, QueueId)>,
    slot_check: SlotCheck,
    /// The queues with waiters, by the binary logarithm of their number.
    by_length: BTreeMap<u32, BTreeSet<QueueId>>,
    /// The queues with waiters, by the time since which the first of them has been waiting.
    waiting_since: BTreeSet<(MonotonicMicros, QueueId)>,
    /// The queues with waiters whose locks are held, by the time of the grant, if known.
    held: BTreeSet<(UnixMicros, QueueId)>,
    /// The attempts that waited and whose places were given up.
    given_up: Vec<(MonotonicMicros, MonotonicMicros)>,
    last: u64,
}

impl<H> Default for Queues<H> {
    fn default() -> Self {
        Self::with(Marks::default())
    }
}

impl<H> Queues<H> {
    /// Creates empty queues. Names that other parts marked with the same `marks` are found without being hashed again.
    #[must_use]
    pub fn with(marks: Marks) -> Self {
        Self {
            index: ByName::default(),
            found: Cell::new(QueueId(0)),
            by_id: BTreeMap::new(),
            entries: BTreeMap::new(),
            clients: FxHashMap::default(),
            channels: Channels::default(),
            load: 0,
            notifiable: 0,
            queued: 0,
            barred: 0,
            attempts: BTreeMap::new(),
            marks,
            placed: MostPlaces { keys: 0, bytes: 0 },
            ends: BTreeSet::new(),
            dues: BTreeSet::new(),
            ready: BTreeSet::new(),
            later: BTreeSet::new(),
            lost: BTreeSet::new(),
            delivering: BTreeSet::new(),
            flushed: BTreeMap::new(),
            scan: None,
            slot_check: SlotCheck::default(),
            by_length: BTreeMap::new(),
            waiting_since: BTreeSet::new(),
            held: BTreeSet::new(),
            given_up: Vec::new(),
            last: 0,
        }
    }
}

impl<H> Queues<H> {
    /// Computes the marks of names.
    #[must_use]
    pub const fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Whether there are no waiters and no reserved places.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of waiters.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.clients.len().saturating_add(self.notifiable)
    }

    /// The number of blocked clients.
    #[must_use]
    pub fn blocked(&self) -> usize {
        self.clients.len()
    }

    /// How much they count towards the limit on blocked clients: see [`load`].
    #[must_use]
    pub const fn load(&self) -> usize {
        self.load
    }

    /// How many keys the other waiters wait for; a waiter for several keys counts once for each.
    #[must_use]
    pub const fn queued(&self) -> usize {
        self.queued
    }

    /// The number of reserved places and barred attempts.
    #[must_use]
    pub fn places(&self) -> usize {
        self.entries.len().saturating_sub(self.waiters())
    }

    /// The queue of a key, if it has one.
    #[must_use]
    pub fn queue(&self, key: KeyName<'_>) -> Option<QueueId> {
        self.find(key).map(|(id, _)| id)
    }

    fn queue_of(&self, key: KeyName<'_>) -> Option<&Queue> {
        self.find(key).map(|(_, queue)| queue)
    }

    /// The queue of a key. A dropped queue is not in `by_id`, and its number is never reused.
    fn find(&self, key: KeyName<'_>) -> Option<(QueueId, &Queue)> {
        let last = self.found.get();
        let is_it = |queue: &&Queue| queue.db == key.db && *queue.name == *key.name && !queue.is_lost;
        if let Some(queue) = self.by_id.get(&last).map(Box::as_ref).filter(is_it) {
            return Some((last, queue));
        }
        if self.index.is_empty() {
            return None;
        }
        let found = self.find_marked(key, self.marks.of(key.name))?;
        self.found.set(found.0);
        Some(found)
    }

    /// Like [`Self::find`], for a name whose mark is known.
    fn find_marked(&self, key: KeyName<'_>, mark: Mark) -> Option<(QueueId, &Queue)> {
        let id = *self.index.get(key, mark)?.1;
        Some((id, self.by_id.get(&id)?))
    }

    /// The queue of a key, if somebody waits in it.
    #[must_use]
    pub fn awaited_queue(&self, key: KeyName<'_>) -> Option<QueueId> {
        self.find(key).filter(|(_, queue)| queue.is_waited_for()).map(|(id, _)| id)
    }

    /// The database and key name of a queue.
    #[must_use]
    pub fn key(&self, queue: QueueId) -> Option<(i32, Rc<[u8]>)> {
        self.by_id.get(&queue).map(|queue| (queue.db, Rc::clone(&queue.name)))
    }

    /// The database and key names of a ticket.
    #[must_use]
    pub fn keys(&self, ticket: Ticket) -> Option<(i32, Keys)> {
        self.keys_of(&self.entries.get(&ticket)?.position)
    }

    fn keys_of(&self, position: &Position) -> Option<(i32, Keys)> {
        match position {
            Position::In(queue) => {
                let queue = self.by_id.get(queue)?;
                Some((queue.db, Keys::One(Rc::clone(&queue.name), queue.mark)))
            }
            Position::Parked { db, names, .. } => Some((*db, Keys::Several(Rc::clone(names)))),
        }
    }

    /// Owned keys with these names. A queue's name is shared.
    #[must_use]
    pub fn keys_named(&self, keys: KeyNames<'_>) -> Keys {
        match keys.names {
            [name] => match self.queue_of(KeyName { db: keys.db, name }) {
                Some(queue) => Keys::One(Rc::clone(&queue.name), queue.mark),
                None => Keys::One((*name).into(), self.marks.of(name)),
            },
            names => Keys::Several(Rc::new(Names::of(names, &self.marks))),
        }
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
