//! The queues of all locks: first come, first served.
//!
//! A line is the queue of one key. Every waiter and every reserved place has a ticket; tickets grow. Invariants,
//! checked by the tests:
//! - a client waits for one lock, or for several at once, and leaves exactly once;
//! - an ID has at most one ticket for a key, as a waiter or as a reserved place, and keeps it;
//! - a line exists only while it has a waiter or a place, and has a due time only while it has a waiter.
//!
//! A waiter for several locks is **parked** in the line of one key that it cannot have: one that is held, or for which
//! a waiter for that key alone came earlier. It cannot be granted while that lasts, so no other key needs to know of
//! it, as a SAT solver watches one literal of a clause. When that key comes free, the waiter is tried: it is granted
//! all of its keys, or moves to another one that it cannot have. It holds up nobody behind it except while the line is
//! ready: then the key is kept until the line has been served, in the same event-loop iteration. The rejected design
//! put it in the line of each of its keys: 200 waiters for the same 100 keys kept an idle server busy, and each wake-up
//! of any key had to inspect all of them.
//!
//! Lines whose locks come free together are served in the order of their first tickets.
//!
//! A hand-off touches the head of one line, whatever its length: O(log n) in map steps, no scan. `H` is whatever the
//! caller needs to answer a waiter; the queue never inspects it.
//!
//! ```
//! use redis_lock_core::engine::queue::{Cause, Handle, Queues, ReplyShape, Waiter};
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
//!     since: MonotonicMicros(0),
//!     until: MonotonicMicros(60_000_000),
//! };
//! let mut queues = Queues::default();
//! let line = queues.join(0, &[b"door"], 0, waiter(1, "alice")).line.ok_or("no line")?;
//! queues.join(0, &[b"door"], 0, waiter(2, "bob"));
//! assert!(queues.has_ahead(0, b"door", None), "a newcomer has to queue");
//!
//! // The lock comes free: the first in line is served.
//! queues.set_ready(line);
//! assert_eq!(queues.take_ready(), Some((line, Cause::Event)));
//! let (ticket, _) = queues.single_head(line).ok_or("nobody waits")?;
//! let alice = Handle::Blocked { handle: "alice", client: 1 };
//! assert_eq!(queues.serve(ticket).map(|served| served.handle), Some(alice));
//! assert_eq!(queues.head(line).and_then(|next| next.client()), Some(2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bars;
mod canonical;
mod channels;
mod leaving;
mod line;
mod look;
mod names;
mod ready;
mod removal;
mod singles;
mod stand;
mod top;
mod waiter;

pub use canonical::{Order, QueuesForm};
pub use channels::Channel;
pub use leaving::Ended;
pub use line::Cause;
pub use names::{Keys, Names};
pub use ready::{Next, Of, Vacancy, MOST_TRIED};
pub use top::{By, Crowd};
pub use waiter::{Gone, Handle, Joined, Narrows, Place, ReplyShape, Wait, Waiter};

use super::by_name::ByName;
use channels::Channels;
use line::{Body, Entry, Line, Stand};
use names::{Marks, Wanted};
use singles::Singles;

use crate::lock::record::Id;
use crate::lock::time::{MonotonicMicros, UnixMicros};
use rustc_hash::FxHashMap;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A position in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

impl Ticket {
    /// The smallest.
    pub(super) const FIRST: Self = Self(0);
    /// The largest.
    pub(super) const LAST: Self = Self(u64::MAX);
}

/// Identifies the line of one key; never reused for another line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineId(u64);

/// How many attempts with one ID may queue for several keys each. IDs are random, so only a mistake or an attack has
/// more than one.
const MOST_OF_AN_ID: usize = 64;

/// The limits of all reserved places together.
#[derive(Clone, Copy, Debug)]
pub struct MostPlaces {
    /// A place for several keys counts once for each.
    pub keys: usize,
    /// Bytes of key names in places for several keys.
    pub bytes: usize,
}

impl MostPlaces {
    /// No place is reserved.
    pub const NONE: Self = Self { keys: 0, bytes: 0 };
}

/// When a wait or a place ends, and its ticket.
pub type Deadline = (MonotonicMicros, Ticket);

/// All lines of a server.
#[derive(Clone, Debug)]
pub struct Queues<H> {
    index: ByName<LineId>,
    /// The line that was found last: one command asks for the same line several times, and hashing a name costs more
    /// than comparing two.
    found: Cell<LineId>,
    /// Trees where there can be a million: a hash map of that size stops the server while it grows.
    lines: BTreeMap<LineId, Box<Line>>,
    entries: BTreeMap<Ticket, Box<Entry<H>>>,
    /// The waiters that the server keeps blocked.
    clients: FxHashMap<u64, Ticket>,
    /// The others, by their channels.
    channels: Channels,
    /// How many waiters are told on a channel.
    told: usize,
    /// How many keys they wait for.
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
    /// When locks with waiters come free by themselves.
    dues: BTreeSet<(UnixMicros, LineId)>,
    /// The lines whose lock may have come free, each with its first ticket to be served.
    ready: BTreeSet<(Ticket, LineId)>,
    /// Lines to continue with in the next event-loop iteration.
    later: BTreeSet<LineId>,
    /// The lines of keys that are no longer served here.
    lost: BTreeSet<LineId>,
    /// Databases that were flushed or swapped, or all of them: the lines from there on are still to be made ready.
    flushed: BTreeMap<Option<i32>, LineId>,
    /// How far a check of all lines has come.
    scan: Option<LineId>,
    /// The lines with waiters, by the binary logarithm of their number.
    crowds: BTreeMap<u32, BTreeSet<LineId>>,
    /// The lines with waiters, by the time since when the first of them has waited.
    waiting_since: BTreeSet<(MonotonicMicros, LineId)>,
    /// The lines with waiters whose lock is held, by the time of the grant, as far as it is known.
    held: BTreeSet<(UnixMicros, LineId)>,
    /// The attempts that waited and whose places were given up.
    given_up: Vec<(MonotonicMicros, MonotonicMicros)>,
    last: u64,
}

impl<H> Default for Queues<H> {
    fn default() -> Self {
        Self {
            index: ByName::default(),
            found: Cell::new(LineId(0)),
            lines: BTreeMap::new(),
            entries: BTreeMap::new(),
            clients: FxHashMap::default(),
            channels: Channels::default(),
            told: 0,
            queued: 0,
            barred: 0,
            attempts: BTreeMap::new(),
            marks: Marks::default(),
            placed: MostPlaces { keys: 0, bytes: 0 },
            ends: BTreeSet::new(),
            dues: BTreeSet::new(),
            ready: BTreeSet::new(),
            later: BTreeSet::new(),
            lost: BTreeSet::new(),
            flushed: BTreeMap::new(),
            scan: None,
            crowds: BTreeMap::new(),
            waiting_since: BTreeSet::new(),
            held: BTreeSet::new(),
            given_up: Vec::new(),
            last: 0,
        }
    }
}

impl<H> Queues<H> {
    /// Whether there are no waiters and no reserved places.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of waiters.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.clients.len().saturating_add(self.told)
    }

    /// How many of them the server keeps blocked.
    #[must_use]
    pub fn blocked(&self) -> usize {
        self.clients.len()
    }

    /// How many keys the others wait for: one for several keys counts once for each.
    #[must_use]
    pub const fn queued(&self) -> usize {
        self.queued
    }

    /// The number of reserved places and barred attempts.
    #[must_use]
    pub fn places(&self) -> usize {
        self.entries.len().saturating_sub(self.waiters())
    }

    /// The line of a key, if it has one.
    #[must_use]
    pub fn line(&self, db: i32, name: &[u8]) -> Option<LineId> {
        self.find(db, name).map(|(id, _)| id)
    }

    fn line_of(&self, db: i32, name: &[u8]) -> Option<&Line> {
        self.find(db, name).map(|(_, line)| line)
    }

    /// The line of a key. A line that was dropped is not in `lines`, and its number is never used again.
    fn find(&self, db: i32, name: &[u8]) -> Option<(LineId, &Line)> {
        let last = self.found.get();
        let is_it = |line: &&Line| line.db == db && *line.name == *name && !line.is_lost;
        if let Some(line) = self.lines.get(&last).map(Box::as_ref).filter(is_it) {
            return Some((last, line));
        }
        let id = *self.index.get(db, name)?.1;
        let line = self.lines.get(&id)?;
        self.found.set(id);
        Some((id, line))
    }

    /// The line of a key, if somebody waits in it.
    #[must_use]
    pub fn waited_line(&self, db: i32, name: &[u8]) -> Option<LineId> {
        self.find(db, name).filter(|(_, line)| line.is_waited_for()).map(|(id, _)| id)
    }

    /// The database and key name of a line.
    #[must_use]
    pub fn key(&self, line: LineId) -> Option<(i32, Rc<[u8]>)> {
        self.lines.get(&line).map(|line| (line.db, Rc::clone(&line.name)))
    }

    /// The database and key names of a ticket.
    #[must_use]
    pub fn keys(&self, ticket: Ticket) -> Option<(i32, Keys)> {
        self.keys_of(&self.entries.get(&ticket)?.stand)
    }

    fn keys_of(&self, stand: &Stand) -> Option<(i32, Keys)> {
        match stand {
            Stand::In(line) => self.key(*line).map(|(db, name)| (db, Keys::One(name))),
            Stand::Parked { db, names, .. } => Some((*db, Keys::Several(Rc::clone(names)))),
        }
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
