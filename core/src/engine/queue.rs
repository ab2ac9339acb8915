//! Who waits for which lock, in which order: first come, first served.
//!
//! Every waiter and every reserved place has a ticket; tickets grow. Invariants, checked by the tests:
//! - a client waits for one lock, or for several at once, and leaves exactly once;
//! - an ID stands for a key at most once, as a waiter or as a reserved place, and keeps its ticket;
//! - a line exists only while somebody waits in it or has a place in it, and has a due time only while
//!   somebody waits.
//!
//! A waiter for several locks is **parked** in the line of one key that it cannot have: one that is held, or
//! for which a waiter for that key alone came earlier. It cannot be granted while that lasts, so no other key
//! needs to know of it, as a SAT solver watches one literal of a clause. When that key comes free it is tried,
//! and is granted all its keys or moves to another one that it cannot have. It holds up nobody behind it, but
//! while the line is ready: then the key is kept until the line was looked at, in the same event-loop iteration.
//! The rejected design had it in the line of each key: 200 waiters for the same 100 keys kept an idle server busy,
//! and each wake-up of any key had to look at all of them.
//!
//! Lines whose locks come free together are served in the order of their first tickets.
//!
//! A hand-off touches the head of one line, whatever its length: O(log n) in map steps, no scan.
//! `H` is whatever the caller needs to answer a waiter; the queue never looks at it.

mod canonical;
mod look;
mod names;
mod ready;
mod stand;

pub use canonical::{Order, QueuesForm};
pub use names::{Keys, Names};
pub use ready::{Cause, Next, Vacancy, MOST_TRIED};

use names::{Marks, Wanted};

use crate::lock::record::{Id, OwnerBuf};
use crate::lock::rules::{Request, Share};
use crate::lock::time::{Micros, MonotonicMicros, UnixMicros};
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// A place in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// The line of one key; never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineId(u64);

/// What the answer to a grant tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReplyShape {
    /// The token.
    #[default]
    Token,
    /// The token, and whom it succeeds: `DETAILS`.
    Details,
}

/// Somebody who waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiter<H> {
    /// How to answer.
    pub handle: H,
    /// The server's number of the client.
    pub client: u64,
    /// With how many others.
    pub share: Share,
    /// How long the grant is to be good.
    pub lease: Micros,
    /// The attempt.
    pub id: Option<Id>,
    /// A label.
    pub owner: Option<OwnerBuf>,
    /// What the answer tells.
    pub shape: ReplyShape,
    /// Whether the grant ends with the connection.
    pub session: bool,
    /// When it came.
    pub since: MonotonicMicros,
    /// When it has waited enough.
    pub until: MonotonicMicros,
}

impl<H> Waiter<H> {
    /// What it asks for.
    #[must_use]
    pub fn request(&self) -> Request<'_> {
        let owner = self.owner.as_ref().map(OwnerBuf::as_owner);
        Request { share: self.share, lease: self.lease, id: self.id, owner }
    }
}

/// What came of joining a line.
#[derive(Debug)]
pub struct Joined<H> {
    /// The line; of several, the first.
    pub line: Option<LineId>,
    /// The waiters with the same ID, who no longer wait: the newer one stands in their place.
    pub earlier: Vec<Waiter<H>>,
    /// A place that was kept was taken again.
    pub resumed: bool,
}

/// What a client waits for.
#[derive(Debug)]
pub struct Wait {
    /// Its place in all of the lines.
    pub ticket: Ticket,
    /// With how many others it would share.
    pub share: Share,
    /// Database of the keys.
    pub db: i32,
    /// The keys.
    pub keys: Keys,
}

/// How many holders those bear who stand in a line: see [`Queues::narrows`].
#[derive(Debug, Default)]
pub struct Narrows(Vec<(Ticket, u64)>);

impl Narrows {
    /// The fewest that one of those bears who stand ahead of a ticket, or in the whole line; `share`: the one
    /// who asks.
    #[must_use]
    pub fn before(&self, ticket: Option<Ticket>, share: Share) -> u64 {
        let ahead = self.0.partition_point(|(step, _)| ticket.is_none_or(|ticket| *step < ticket));
        let last = ahead.checked_sub(1).and_then(|at| self.0.get(at));
        last.map_or(share.most(), |(_, fewest)| share.most().min(*fewest))
    }
}

/// A place kept for a waiter that left.
#[derive(Clone, Copy, Debug)]
struct Place {
    id: Id,
    until: MonotonicMicros,
}

#[derive(Clone, Debug)]
enum Body<H> {
    Waits(Waiter<H>),
    Keeps(Place),
}

/// Where a ticket stands.
#[derive(Clone, Debug)]
enum Stand {
    /// In the line of its only key.
    In(LineId),
    /// It is for several keys: parked in the line of one of them, in none if it is a reserved place.
    Parked { db: i32, names: Rc<Names>, line: Option<LineId> },
}

/// What a ticket is for.
#[derive(Clone, Debug)]
struct Entry<H> {
    stand: Stand,
    body: Body<H>,
}

impl<H> Entry<H> {
    fn waiter(&self) -> Option<&Waiter<H>> {
        match &self.body {
            Body::Waits(waiter) => Some(waiter),
            Body::Keeps(_) => None,
        }
    }

    fn into_waiter(self) -> Option<Waiter<H>> {
        match self.body {
            Body::Waits(waiter) => Some(waiter),
            Body::Keeps(_) => None,
        }
    }

    fn id(&self) -> Option<Id> {
        match &self.body {
            Body::Waits(waiter) => waiter.id,
            Body::Keeps(place) => Some(place.id),
        }
    }
}

/// The line of one key.
#[derive(Clone, Debug)]
struct Line {
    db: i32,
    name: Rc<[u8]>,
    /// Those who wait for this lock alone.
    single: BTreeSet<Ticket>,
    /// Those who wait for several locks and cannot have this one.
    parked: BTreeSet<Ticket>,
    places: BTreeSet<Ticket>,
    /// The IDs of `single` and `places`.
    ids: HashMap<Id, Ticket>,
    /// When the lock comes free by itself, as far as is known.
    due: Option<UnixMicros>,
    /// When the last holder that was seen ends.
    last_end: Option<UnixMicros>,
    /// The key was evicted while it was held until then.
    evicted_until: Option<UnixMicros>,
    /// It is to be looked at, in the order of this ticket.
    ready: Option<Ticket>,
    /// Why.
    cause: Cause,
    /// How many of those parked here were tried since its lock may have come free.
    tried: usize,
}

impl Line {
    fn head(&self) -> Option<Ticket> {
        match (self.single.first(), self.parked.first()) {
            (Some(single), Some(parked)) => Some(*single.min(parked)),
            (single, parked) => single.or(parked).copied(),
        }
    }

    fn waiters(&self) -> usize {
        self.single.len().saturating_add(self.parked.len())
    }

    fn is_waited_for(&self) -> bool {
        !(self.single.is_empty() && self.parked.is_empty())
    }
}

/// How many attempts with one ID may stand for several keys each: IDs are random, so that only a mistake or an
/// attack has more than one.
const MOST_OF_AN_ID: usize = 64;

/// What reserved places may take in all.
#[derive(Clone, Copy, Debug)]
pub struct MostPlaces {
    /// A place for several keys counts once for each.
    pub keys: usize,
    /// Bytes of key names in places for several keys.
    pub bytes: usize,
}

/// When a wait or a place ends, and which.
pub type Deadline = (MonotonicMicros, Ticket);

/// All lines of a server.
#[derive(Clone, Debug)]
pub struct Queues<H> {
    /// Names and IDs come from clients, so those maps hash them with a key; the numbers in the others
    /// are our own or the server's.
    index: FxHashMap<i32, HashMap<Rc<[u8]>, LineId>>,
    lines: FxHashMap<LineId, Line>,
    entries: FxHashMap<Ticket, Entry<H>>,
    clients: FxHashMap<u64, Ticket>,
    /// The attempts for several keys with an ID.
    attempts: HashMap<(i32, Id), Vec<Ticket>>,
    marks: Marks,
    /// What reserved places take.
    placed: MostPlaces,
    /// When waits and places end.
    ends: BTreeSet<Deadline>,
    /// When locks with waiters come free by themselves.
    dues: BTreeSet<(UnixMicros, LineId)>,
    /// Lines whose lock may have come free, each with the first in it who is to be looked at.
    ready: BTreeSet<(Ticket, LineId)>,
    /// Lines to go on with in the next event-loop iteration.
    later: BTreeSet<LineId>,
    last: u64,
}

impl<H> Default for Queues<H> {
    fn default() -> Self {
        Self {
            index: FxHashMap::default(),
            lines: FxHashMap::default(),
            entries: FxHashMap::default(),
            clients: FxHashMap::default(),
            attempts: HashMap::new(),
            marks: Marks::default(),
            placed: MostPlaces { keys: 0, bytes: 0 },
            ends: BTreeSet::new(),
            dues: BTreeSet::new(),
            ready: BTreeSet::new(),
            later: BTreeSet::new(),
            last: 0,
        }
    }
}

impl<H> Queues<H> {
    /// Whether nobody waits or has a place.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many wait.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.clients.len()
    }

    /// How many places are kept.
    #[must_use]
    pub fn places(&self) -> usize {
        self.entries.len().saturating_sub(self.clients.len())
    }

    /// The line of a key, if it has one.
    #[must_use]
    pub fn line(&self, db: i32, name: &[u8]) -> Option<LineId> {
        self.index.get(&db)?.get(name).copied()
    }

    fn line_of(&self, db: i32, name: &[u8]) -> Option<&Line> {
        self.lines.get(&self.line(db, name)?)
    }

    /// The line of a key, if somebody waits in it.
    #[must_use]
    pub fn waited_line(&self, db: i32, name: &[u8]) -> Option<LineId> {
        self.line(db, name).filter(|line| self.lines.get(line).is_some_and(Line::is_waited_for))
    }

    /// Database and name of the key of a line.
    #[must_use]
    pub fn key(&self, line: LineId) -> Option<(i32, Rc<[u8]>)> {
        self.lines.get(&line).map(|line| (line.db, Rc::clone(&line.name)))
    }

    /// Database and names of the keys of a ticket.
    #[must_use]
    pub fn keys(&self, ticket: Ticket) -> Option<(i32, Keys)> {
        match &self.entries.get(&ticket)?.stand {
            Stand::In(line) => self.key(*line).map(|(db, name)| (db, Keys::One(name))),
            Stand::Parked { db, names, .. } => Some((*db, Keys::Several(Rc::clone(names)))),
        }
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
