//! Who waits for which lock, in which order: first come, first served.
//!
//! Every waiter and every kept place has a ticket; tickets grow. Invariants, checked by the tests:
//! - a client waits for at most one lock, and leaves exactly once;
//! - an ID stands in a line at most once, as a waiter or as a kept place, and keeps its ticket;
//! - a line exists only while somebody waits or keeps a place in it, and has a due time only while
//!   somebody waits.
//!
//! A hand-off touches the head of one line, whatever its length: O(log n) in map steps, no scan.
//! `H` is whatever the caller needs to answer a waiter; the queue never looks at it.

use super::record::{Id, OwnerBuf};
use super::rules::Request;
use super::time::{Micros, MonotonicMicros, UnixMicros};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;

/// A place in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// The line of one key; never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineId(u64);

/// Somebody who waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter<H> {
    /// How to answer.
    pub handle: H,
    /// The server's number of the client.
    pub client: u64,
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
        Request { lease: self.lease, id: self.id, owner: self.owner.as_ref().map(OwnerBuf::as_owner) }
    }
}

/// What came of joining a line.
#[derive(Debug)]
pub struct Joined<H> {
    /// The line.
    pub line: LineId,
    /// The waiter with the same ID, which no longer waits: the newer one stands in its place.
    pub earlier: Option<Waiter<H>>,
    /// A place that was kept was taken again.
    pub resumed: bool,
}

/// A place kept for a waiter that left.
#[derive(Clone, Copy, Debug)]
struct Place {
    id: Id,
    until: MonotonicMicros,
}

/// The line of one key.
#[derive(Debug)]
struct Line<H> {
    db: i32,
    name: Rc<[u8]>,
    waiters: BTreeMap<Ticket, Waiter<H>>,
    places: BTreeMap<Ticket, Place>,
    /// The IDs of both.
    ids: HashMap<Id, Ticket>,
    /// When the lock comes free by itself, as far as is known.
    due: Option<UnixMicros>,
    /// The key was evicted while it was held until then.
    evicted_until: Option<UnixMicros>,
    is_ready: bool,
}

/// All lines of a server.
#[derive(Debug)]
pub struct Queues<H> {
    /// Names and IDs come from clients, so those maps hash them with a key; the numbers in the others
    /// are our own or the server's.
    index: FxHashMap<i32, HashMap<Rc<[u8]>, LineId>>,
    lines: FxHashMap<LineId, Line<H>>,
    tickets: FxHashMap<Ticket, LineId>,
    clients: FxHashMap<u64, Ticket>,
    /// When waits and places end.
    ends: BTreeSet<(MonotonicMicros, Ticket)>,
    /// When locks with waiters come free by themselves.
    dues: BTreeSet<(UnixMicros, LineId)>,
    /// Lines whose lock may have come free.
    ready: VecDeque<LineId>,
    last: u64,
}

impl<H> Default for Queues<H> {
    fn default() -> Self {
        Self {
            index: FxHashMap::default(),
            lines: FxHashMap::default(),
            tickets: FxHashMap::default(),
            clients: FxHashMap::default(),
            ends: BTreeSet::new(),
            dues: BTreeSet::new(),
            ready: VecDeque::new(),
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
        self.tickets.len().saturating_sub(self.clients.len())
    }

    /// The line of a key, if it has one.
    #[must_use]
    pub fn line(&self, db: i32, name: &[u8]) -> Option<LineId> {
        self.index.get(&db)?.get(name).copied()
    }

    /// The line of a key, if somebody waits in it.
    #[must_use]
    pub fn waited_line(&self, db: i32, name: &[u8]) -> Option<LineId> {
        self.line(db, name).filter(|line| self.head(*line).is_some())
    }

    /// Database and name of the key of a line.
    #[must_use]
    pub fn key(&self, line: LineId) -> Option<(i32, Rc<[u8]>)> {
        self.lines.get(&line).map(|line| (line.db, Rc::clone(&line.name)))
    }

    /// Whether somebody waits ahead of the attempt `id`, or of a newcomer.
    #[must_use]
    pub fn has_ahead(&self, db: i32, name: &[u8], id: Option<Id>) -> bool {
        let Some(line) = self.line(db, name).and_then(|line| self.lines.get(&line)) else {
            return false;
        };
        let own = id.and_then(|id| line.ids.get(&id));
        match (line.waiters.first_key_value(), own) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some((first, _)), Some(own)) => first < own,
        }
    }

    /// Whether an attempt waits for a key; a kept place is no waiting.
    #[must_use]
    pub fn is_waiting(&self, db: i32, name: &[u8], id: Id) -> bool {
        self.line(db, name)
            .and_then(|line| self.lines.get(&line))
            .is_some_and(|line| line.ids.get(&id).is_some_and(|ticket| line.waiters.contains_key(ticket)))
    }

    /// How many wait for a key, and since when the one that came first.
    #[must_use]
    pub fn length(&self, db: i32, name: &[u8]) -> (usize, Option<MonotonicMicros>) {
        self.line(db, name)
            .and_then(|line| self.lines.get(&line))
            .map_or((0, None), |line| (line.waiters.len(), line.waiters.values().next().map(|waiter| waiter.since)))
    }

    /// The key that a client waits for.
    #[must_use]
    pub fn waits_for(&self, client: u64) -> Option<(i32, Rc<[u8]>)> {
        let line = self.tickets.get(self.clients.get(&client)?)?;
        self.key(*line)
    }

    /// Those who wait for a key, in order.
    pub fn waiting(&self, db: i32, name: &[u8]) -> impl Iterator<Item = &Waiter<H>> {
        self.line(db, name).and_then(|line| self.lines.get(&line)).into_iter().flat_map(|line| line.waiters.values())
    }

    /// The keys that most wait for, at most `most`, with how many and since when the first: most
    /// waiters first, then those that wait longest.
    #[must_use]
    pub fn longest(&self, most: usize) -> Vec<(i32, Rc<[u8]>, usize, MonotonicMicros)> {
        let mut lines: Vec<_> = self
            .lines
            .values()
            .filter_map(|line| {
                let first = line.waiters.values().next()?;
                Some((line.db, Rc::clone(&line.name), line.waiters.len(), first.since))
            })
            .collect();
        let order = |line: &(i32, Rc<[u8]>, usize, MonotonicMicros)| (std::cmp::Reverse(line.2), line.3);
        if lines.len() > most {
            lines.select_nth_unstable_by_key(most, order);
            lines.truncate(most);
        }
        lines.sort_unstable_by_key(order);
        lines
    }

    /// The first who waits in a line.
    #[must_use]
    pub fn head(&self, line: LineId) -> Option<&Waiter<H>> {
        self.lines.get(&line)?.waiters.values().next()
    }

    /// Somebody begins to wait: in the place of its ID if that stands in the line, else at the end.
    pub fn join(&mut self, db: i32, name: &[u8], waiter: Waiter<H>) -> Joined<H> {
        let (ticket, resumed, earlier) = match waiter.id.and_then(|id| self.forget(db, name, id)) {
            Some((ticket, earlier)) => (ticket, earlier.is_none(), earlier),
            None => (Ticket(self.next_number()), false, None),
        };
        let id = self.open(db, name);
        self.tickets.insert(ticket, id);
        self.clients.insert(waiter.client, ticket);
        self.ends.insert((waiter.until, ticket));
        if let Some(line) = self.lines.get_mut(&id) {
            if let Some(attempt) = waiter.id {
                line.ids.insert(attempt, ticket);
            }
            line.waiters.insert(ticket, waiter);
        }
        Joined { line: id, earlier, resumed }
    }

    /// Keeps a place for an attempt that does not wait: its old one if it has one, else at the end.
    /// At most `most` places are kept. The waiter with that ID, which no longer waits, is given back.
    pub fn keep_place(
        &mut self,
        db: i32,
        name: &[u8],
        id: Id,
        until: MonotonicMicros,
        most: usize,
    ) -> Option<Waiter<H>> {
        let (ticket, earlier) = match self.forget(db, name, id) {
            Some((ticket, earlier)) => (ticket, earlier),
            None => (Ticket(self.next_number()), None),
        };
        if self.places() < most {
            self.keep(db, name, ticket, Place { id, until });
        }
        earlier
    }

    /// Gives an attempt whose grant could not be delivered the place back that it had.
    pub fn restore_place(&mut self, db: i32, name: &[u8], id: Id, ticket: Ticket, until: MonotonicMicros) {
        let stands =
            self.line(db, name).and_then(|line| self.lines.get(&line)).is_some_and(|line| line.ids.contains_key(&id));
        if !stands && !self.tickets.contains_key(&ticket) {
            self.keep(db, name, ticket, Place { id, until });
        }
    }

    fn keep(&mut self, db: i32, name: &[u8], ticket: Ticket, place: Place) {
        let id = self.open(db, name);
        self.tickets.insert(ticket, id);
        self.ends.insert((place.until, ticket));
        if let Some(line) = self.lines.get_mut(&id) {
            line.ids.insert(place.id, ticket);
            line.places.insert(ticket, place);
        }
    }

    /// Takes an ID out of a line: its ticket, and its waiter unless it only kept a place.
    pub fn forget(&mut self, db: i32, name: &[u8], id: Id) -> Option<(Ticket, Option<Waiter<H>>)> {
        let line = self.line(db, name)?;
        let ticket = *self.lines.get(&line)?.ids.get(&id)?;
        Some((ticket, self.remove(ticket)))
    }

    /// Takes the first who waits out of a line.
    pub fn pop_head(&mut self, line: LineId) -> Option<(Ticket, Waiter<H>)> {
        let ticket = *self.lines.get(&line)?.waiters.first_key_value()?.0;
        self.remove(ticket).map(|waiter| (ticket, waiter))
    }

    /// A client no longer waits. If it gave an ID, its place is kept until then.
    pub fn leave(&mut self, client: u64, kept_until: Option<MonotonicMicros>, most: usize) -> Option<Waiter<H>> {
        let ticket = *self.clients.get(&client)?;
        self.end_wait(ticket, kept_until, most)
    }

    /// The next waiter whose time is over at `now`, if there is one; its place is kept as in
    /// [`Queues::leave`]. Places whose time is over are given up on the way.
    pub fn time_out(
        &mut self,
        now: MonotonicMicros,
        kept_until: Option<MonotonicMicros>,
        most: usize,
    ) -> Option<Waiter<H>> {
        while let Some((end, ticket)) = self.ends.first().copied() {
            if end > now {
                return None;
            }
            let waits = self
                .tickets
                .get(&ticket)
                .and_then(|line| self.lines.get(line))
                .is_some_and(|line| line.waiters.contains_key(&ticket));
            if waits {
                return self.end_wait(ticket, kept_until, most);
            }
            self.remove(ticket);
        }
        None
    }

    fn end_wait(&mut self, ticket: Ticket, kept_until: Option<MonotonicMicros>, most: usize) -> Option<Waiter<H>> {
        let (db, name) = self.tickets.get(&ticket).and_then(|line| self.key(*line))?;
        let waiter = self.remove(ticket)?;
        if let (Some(id), Some(until)) = (waiter.id, kept_until) {
            if self.places() < most {
                self.keep(db, &name, ticket, Place { id, until });
            }
        }
        Some(waiter)
    }

    /// Takes everybody out of a line, places included; those who waited.
    pub fn dissolve(&mut self, line: LineId) -> Vec<Waiter<H>> {
        let tickets: Vec<Ticket> = self
            .lines
            .get(&line)
            .map(|line| line.waiters.keys().chain(line.places.keys()).copied().collect())
            .unwrap_or_default();
        tickets.into_iter().filter_map(|ticket| self.remove(ticket)).collect()
    }

    /// Takes everybody out of all lines; those who waited.
    pub fn dissolve_all(&mut self) -> Vec<Waiter<H>> {
        let lines: Vec<LineId> = self.lines.keys().copied().collect();
        lines.into_iter().flat_map(|line| self.dissolve(line)).collect()
    }

    /// Takes a ticket out of everything.
    fn remove(&mut self, ticket: Ticket) -> Option<Waiter<H>> {
        let id = self.tickets.remove(&ticket)?;
        let line = self.lines.get_mut(&id)?;
        let waiter = line.waiters.remove(&ticket);
        let place = line.places.remove(&ticket);
        let attempt = waiter.as_ref().map_or_else(|| place.map(|place| place.id), |waiter| waiter.id);
        if let Some(attempt) = attempt {
            line.ids.remove(&attempt);
        }
        if let Some(until) = waiter.as_ref().map(|waiter| waiter.until).or(place.map(|place| place.until)) {
            self.ends.remove(&(until, ticket));
        }
        if let Some(waiter) = &waiter {
            self.clients.remove(&waiter.client);
        }
        self.tidy(id);
        waiter
    }

    /// Gives up what a line no longer needs.
    fn tidy(&mut self, id: LineId) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        if !line.waiters.is_empty() {
            return;
        }
        line.evicted_until = None;
        if let Some(due) = line.due.take() {
            self.dues.remove(&(due, id));
        }
        if line.places.is_empty() {
            if let Some(names) = self.index.get_mut(&line.db) {
                names.remove(&line.name);
                if names.is_empty() {
                    self.index.remove(&line.db);
                }
            }
            self.lines.remove(&id);
            if self.lines.is_empty() {
                self.shrink();
            }
        }
    }

    /// Gives back the room that a crowd took: maps keep theirs when they become empty.
    fn shrink(&mut self) {
        const FEW: usize = 1_024;
        if self.tickets.capacity() > FEW || self.ready.capacity() > FEW {
            self.index.shrink_to_fit();
            self.lines.shrink_to_fit();
            self.tickets.shrink_to_fit();
            self.clients.shrink_to_fit();
            self.ready.shrink_to_fit();
        }
    }

    fn open(&mut self, db: i32, name: &[u8]) -> LineId {
        if let Some(line) = self.line(db, name) {
            return line;
        }
        let id = LineId(self.next_number());
        let name: Rc<[u8]> = name.into();
        self.index.entry(db).or_default().insert(Rc::clone(&name), id);
        let line = Line {
            db,
            name,
            waiters: BTreeMap::new(),
            places: BTreeMap::new(),
            ids: HashMap::new(),
            due: None,
            evicted_until: None,
            is_ready: false,
        };
        self.lines.insert(id, line);
        id
    }

    fn next_number(&mut self) -> u64 {
        self.last = self.last.saturating_add(1);
        self.last
    }

    /// Notes when the lock of a line comes free by itself; `None`: nobody knows.
    pub fn set_due(&mut self, id: LineId, due: Option<UnixMicros>) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        if line.due == due || line.waiters.is_empty() {
            return;
        }
        if let Some(due) = line.due {
            self.dues.remove(&(due, id));
        }
        if let Some(due) = due {
            self.dues.insert((due, id));
        }
        line.due = due;
    }

    /// The key of a line was evicted: its lock stays taken until the time last seen.
    pub fn evicted(&mut self, id: LineId) {
        if let Some(line) = self.lines.get_mut(&id) {
            line.evicted_until = line.due;
        }
    }

    /// The key of a line was seen: an earlier eviction no longer matters.
    pub fn seen(&mut self, id: LineId) {
        if let Some(line) = self.lines.get_mut(&id) {
            line.evicted_until = None;
        }
    }

    /// Until when the absent key of a line counts as taken, because it was evicted.
    #[must_use]
    pub fn evicted_until(&self, id: LineId) -> Option<UnixMicros> {
        self.lines.get(&id)?.evicted_until
    }

    /// The lock of a line may have come free: whether that is news.
    pub fn set_ready(&mut self, id: LineId) -> bool {
        match self.lines.get_mut(&id) {
            Some(line) if !line.is_ready && !line.waiters.is_empty() => {
                line.is_ready = true;
                self.ready.push_back(id);
                true
            }
            _ => false,
        }
    }

    /// All locks of a database, or of all of them, may have come free.
    pub fn set_all_ready(&mut self, db: Option<i32>) {
        let wanted = |line: &Line<H>| db.is_none_or(|db| db == line.db);
        let mut lines: Vec<LineId> = self.lines.iter().filter(|(_, line)| wanted(line)).map(|(id, _)| *id).collect();
        lines.sort_unstable();
        for line in lines {
            self.set_ready(line);
        }
    }

    /// Lines whose lock is due at `now` become ready.
    pub fn set_due_ready(&mut self, now: UnixMicros) {
        while let Some((due, line)) = self.dues.first().copied() {
            if due > now {
                return;
            }
            self.set_due(line, None);
            self.set_ready(line);
        }
    }

    /// A line whose lock may have come free, each once.
    pub fn take_ready(&mut self) -> Option<LineId> {
        while let Some(id) = self.ready.pop_front() {
            if let Some(line) = self.lines.get_mut(&id) {
                line.is_ready = false;
                if !line.waiters.is_empty() {
                    return Some(id);
                }
            }
        }
        None
    }

    /// Whether a line is ready.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When the next wait or place ends.
    #[must_use]
    pub fn next_end(&self) -> Option<MonotonicMicros> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// When the next lock with waiters comes free by itself.
    #[must_use]
    pub fn next_due(&self) -> Option<UnixMicros> {
        self.dues.first().map(|(due, _)| *due)
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
