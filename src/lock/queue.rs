//! Who waits for which lock, in which order: first come, first served.
//!
//! Every waiter and every kept place has a ticket; tickets grow. Whoever wants several locks at once
//! stands with one ticket in the line of each. Invariants, checked by the tests:
//! - a client waits for one lock, or for several at once, and leaves exactly once;
//! - an ID stands in a line at most once, as a waiter or as a kept place, and keeps its ticket;
//! - a line exists only while somebody waits or keeps a place in it, and has a due time only while
//!   somebody waits.
//!
//! Who waits for several locks reserves none: it holds up nobody behind it, but where the line has
//! not been looked at since its lock may have come free.
//!
//! Lines whose locks come free together are looked at as one: in the order of tickets across all of them.
//!
//! A hand-off touches the head of one line, whatever its length: O(log n) in map steps, no scan.
//! `H` is whatever the caller needs to answer a waiter; the queue never looks at it.

mod look;
mod ready;
mod stand;

use super::record::{Id, OwnerBuf};
use super::rules::{Request, Share};
use super::time::{Micros, MonotonicMicros, UnixMicros};
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// A place in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// The line of one key; never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineId(u64);

/// One, as nearly always, or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OneOrMore<T> {
    /// One.
    One(T),
    /// Several.
    More(Rc<[T]>),
}

impl<T> OneOrMore<T> {
    /// All of them.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::More(more) => more,
        }
    }
}

/// Somebody who waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Whether the answer tells of the predecessor.
    pub details: bool,
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
    pub names: OneOrMore<Rc<[u8]>>,
}

/// How many holders those bear who stand in a line: see [`Queues::narrows`].
#[derive(Debug)]
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

#[derive(Debug)]
enum Body<H> {
    Waits(Waiter<H>),
    Keeps(Place),
}

/// What a ticket is for.
#[derive(Debug)]
struct Entry<H> {
    lines: OneOrMore<LineId>,
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
}

/// The line of one key.
#[derive(Debug)]
struct Line {
    db: i32,
    name: Rc<[u8]>,
    /// Those who wait for this lock alone.
    single: BTreeSet<Ticket>,
    /// Those who wait for others besides.
    several: BTreeSet<Ticket>,
    places: BTreeSet<Ticket>,
    /// The IDs of all of them.
    ids: HashMap<Id, Ticket>,
    /// When the lock comes free by itself, as far as is known.
    due: Option<UnixMicros>,
    /// When the last holder that was seen ends.
    last_end: Option<UnixMicros>,
    /// The key was evicted while it was held until then.
    evicted_until: Option<UnixMicros>,
    /// It is to be looked at, from this ticket on, and behind that one.
    ready: Option<Ticket>,
    behind: Option<Ticket>,
    /// Because its lock may have come free, not because it is time to look again.
    is_news: bool,
}

impl Line {
    fn head(&self) -> Option<Ticket> {
        match (self.single.first(), self.several.first()) {
            (Some(single), Some(several)) => Some(*single.min(several)),
            (single, several) => single.or(several).copied(),
        }
    }

    fn waiters(&self) -> usize {
        self.single.len().saturating_add(self.several.len())
    }

    fn is_waited_for(&self) -> bool {
        !(self.single.is_empty() && self.several.is_empty())
    }
}

/// All lines of a server.
#[derive(Debug)]
pub struct Queues<H> {
    /// Names and IDs come from clients, so those maps hash them with a key; the numbers in the others
    /// are our own or the server's.
    index: FxHashMap<i32, HashMap<Rc<[u8]>, LineId>>,
    lines: FxHashMap<LineId, Line>,
    entries: FxHashMap<Ticket, Entry<H>>,
    clients: FxHashMap<u64, Ticket>,
    /// When waits and places end.
    ends: BTreeSet<(MonotonicMicros, Ticket)>,
    /// When locks with waiters come free by themselves.
    dues: BTreeSet<(UnixMicros, LineId)>,
    /// Lines whose lock may have come free, each with the first in it who is to be looked at.
    ready: BTreeSet<(Ticket, LineId)>,
    last: u64,
}

impl<H> Default for Queues<H> {
    fn default() -> Self {
        Self {
            index: FxHashMap::default(),
            lines: FxHashMap::default(),
            entries: FxHashMap::default(),
            clients: FxHashMap::default(),
            ends: BTreeSet::new(),
            dues: BTreeSet::new(),
            ready: BTreeSet::new(),
            last: 0,
        }
    }
}

impl<H> Queues<H> {
    /// Whether nobody waits or keeps a place.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
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
    pub fn keys(&self, ticket: Ticket) -> Option<(i32, OneOrMore<Rc<[u8]>>)> {
        let lines = &self.entries.get(&ticket)?.lines;
        match lines {
            OneOrMore::One(line) => self.key(*line).map(|(db, name)| (db, OneOrMore::One(name))),
            OneOrMore::More(lines) => {
                let db = self.lines.get(lines.first()?)?.db;
                let names: Option<Rc<[_]>> =
                    lines.iter().map(|line| self.lines.get(line).map(|line| Rc::clone(&line.name))).collect();
                names.map(|names| (db, OneOrMore::More(names)))
            }
        }
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
