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

use super::record::{Id, OwnerBuf};
use super::rules::{Request, Share};
use super::time::{Micros, MonotonicMicros, UnixMicros};
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
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

    /// Whether somebody waits ahead of the attempt `id`, or of a newcomer.
    #[must_use]
    pub fn has_ahead(&self, db: i32, name: &[u8], id: Option<Id>) -> bool {
        let Some(line) = self.line_of(db, name) else { return false };
        Self::is_behind(line, id.and_then(|id| line.ids.get(&id)).copied())
    }

    /// Whether the lock of a line is somebody else's who waits, not that of a ticket, or of a newcomer.
    fn is_behind(line: &Line, own: Option<Ticket>) -> bool {
        Self::is_ahead(line.single.first(), own)
            || (line.is_news && line.ready.is_some() && Self::is_ahead(line.several.first(), own))
    }

    fn is_ahead(first: Option<&Ticket>, own: Option<Ticket>) -> bool {
        first.is_some_and(|first| own.is_none_or(|own| *first < own))
    }

    /// Whether somebody who waits for one lock comes before a waiter in the line of any of its keys.
    #[must_use]
    pub fn is_held_up(&self, ticket: Ticket, now: UnixMicros) -> bool {
        self.entries.get(&ticket).is_some_and(|entry| {
            let mut lines = entry.lines.as_slice().iter().filter_map(|line| self.lines.get(line));
            lines.any(|line| {
                let is_evicted = line.evicted_until.is_some_and(|until| until > now);
                is_evicted || Self::is_ahead(line.single.first(), Some(ticket))
            })
        })
    }

    /// Whether an attempt waits for a key; a kept place is no waiting.
    #[must_use]
    pub fn is_waiting(&self, db: i32, name: &[u8], id: Id) -> bool {
        let ticket = self.ticket(db, name, id).and_then(|ticket| self.entries.get(&ticket));
        ticket.is_some_and(|entry| entry.waiter().is_some())
    }

    /// The place of an attempt in the line of a key.
    #[must_use]
    pub fn ticket(&self, db: i32, name: &[u8], id: Id) -> Option<Ticket> {
        self.line_of(db, name)?.ids.get(&id).copied()
    }

    /// How many wait for a key, and since when the one that came first.
    #[must_use]
    pub fn length(&self, db: i32, name: &[u8]) -> (usize, Option<MonotonicMicros>) {
        self.line_of(db, name).map_or((0, None), |line| (line.waiters(), self.since(line)))
    }

    fn since(&self, line: &Line) -> Option<MonotonicMicros> {
        self.entries.get(&line.head()?)?.waiter().map(|waiter| waiter.since)
    }

    /// What a client waits for.
    #[must_use]
    pub fn waits_for(&self, client: u64) -> Option<Wait> {
        let ticket = *self.clients.get(&client)?;
        let share = self.entries.get(&ticket)?.waiter()?.share;
        let (db, names) = self.keys(ticket)?;
        Some(Wait { ticket, share, db, names })
    }

    /// Where in a line the fewest changes that one of those bears who wait for this lock alone, from the head to
    /// there.
    #[must_use]
    pub fn narrows(&self, db: i32, name: &[u8]) -> Narrows {
        let mut steps: Vec<(Ticket, u64)> = Vec::new();
        for ticket in self.line_of(db, name).into_iter().flat_map(|line| &line.single) {
            let fewest = steps.last().map_or(u64::MAX, |(_, fewest)| *fewest);
            if fewest <= 1 {
                break;
            }
            let most = self.waiter(*ticket).map_or(fewest, |waiter| waiter.share.most());
            if most < fewest {
                steps.push((*ticket, most));
            }
        }
        Narrows(steps)
    }

    /// Those who wait for a key, in order.
    pub fn waiting(&self, db: i32, name: &[u8]) -> impl Iterator<Item = &Waiter<H>> {
        let line = self.line_of(db, name).into_iter();
        let tickets = line.flat_map(|line| line.single.union(&line.several));
        tickets.filter_map(|ticket| self.entries.get(ticket).and_then(Entry::waiter))
    }

    /// The keys that most wait for, at most `most`, with how many and since when the first: most
    /// waiters first, then those that wait longest.
    #[must_use]
    pub fn longest(&self, most: usize) -> Vec<(i32, Rc<[u8]>, usize, MonotonicMicros)> {
        let mut lines: Vec<_> = self
            .lines
            .values()
            .filter_map(|line| Some((line.db, Rc::clone(&line.name), line.waiters(), self.since(line)?)))
            .collect();
        let order = |line: &(i32, Rc<[u8]>, usize, MonotonicMicros)| (std::cmp::Reverse(line.2), line.3);
        if lines.len() > most {
            lines.select_nth_unstable_by_key(most, order);
            lines.truncate(most);
        }
        lines.sort_unstable_by_key(order);
        lines
    }

    /// Who waits with a ticket.
    #[must_use]
    pub fn waiter(&self, ticket: Ticket) -> Option<&Waiter<H>> {
        self.entries.get(&ticket)?.waiter()
    }

    /// The first who waits in a line.
    #[must_use]
    pub fn head(&self, line: LineId) -> Option<&Waiter<H>> {
        self.entries.get(&self.lines.get(&line)?.head()?)?.waiter()
    }

    /// The first who waits in a line, if it waits for this lock alone.
    #[must_use]
    pub fn single_head(&self, line: LineId) -> Option<(Ticket, &Waiter<H>)> {
        let line = self.lines.get(&line)?;
        let head = line.head().filter(|head| line.single.contains(head))?;
        Some((head, self.entries.get(&head)?.waiter()?))
    }

    /// The next who waits in a line behind a ticket; with `only_single`, for this lock alone. Whether it
    /// waits for others besides.
    #[must_use]
    pub fn next(&self, line: LineId, behind: Option<Ticket>, only_single: bool) -> Option<(Ticket, &Waiter<H>, bool)> {
        let line = self.lines.get(&line)?;
        let from = (behind.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let single = line.single.range(from).next();
        let several = if only_single { None } else { line.several.range(from).next() };
        let (ticket, is_several) = match (single, several) {
            (Some(single), Some(several)) => (*single.min(several), several < single),
            (Some(single), None) => (*single, false),
            (None, several) => (*several?, true),
        };
        Some((ticket, self.entries.get(&ticket)?.waiter()?, is_several))
    }

    /// Somebody begins to wait: in the place of its ID if that stands for the same keys, else at the end.
    pub fn join(&mut self, db: i32, names: &[&[u8]], waiter: Waiter<H>) -> Joined<H> {
        let (place, earlier, resumed) = self.take_place(db, names, waiter.id);
        let ticket = place.unwrap_or_else(|| Ticket(self.next_number()));
        self.clients.insert(waiter.client, ticket);
        self.ends.insert((waiter.until, ticket));
        let line = self.stand(db, names, ticket, Body::Waits(waiter));
        Joined { line, earlier, resumed }
    }

    /// Keeps a place for an attempt that does not wait: its old one if it has one, else at the end.
    /// At most `most` places are kept. The waiters with that ID, who no longer wait, are given back.
    pub fn keep_place(
        &mut self,
        db: i32,
        names: &[&[u8]],
        id: Id,
        until: MonotonicMicros,
        most: usize,
    ) -> Vec<Waiter<H>> {
        let (place, earlier, _) = self.take_place(db, names, Some(id));
        let ticket = place.unwrap_or_else(|| Ticket(self.next_number()));
        if self.places() < most {
            self.keep(db, names, ticket, Place { id, until });
        }
        earlier
    }

    /// Takes an ID out of all of these lines: the place that it had if it stood for these keys, the
    /// waiters that it had, and whether the place was only kept.
    fn take_place(&mut self, db: i32, names: &[&[u8]], id: Option<Id>) -> (Option<Ticket>, Vec<Waiter<H>>, bool) {
        let (mut place, mut earlier, mut resumed) = (None, Vec::new(), false);
        let Some(id) = id else { return (place, earlier, resumed) };
        for name in names {
            let Some(ticket) = self.ticket(db, name, id) else { continue };
            let lines = self.entries.get(&ticket).map_or(0, |entry| entry.lines.as_slice().len());
            let is_same = lines == names.len()
                && (lines == 1 || names.iter().all(|name| self.ticket(db, name, id) == Some(ticket)));
            let waiter = self.remove(ticket).and_then(Entry::into_waiter);
            if is_same {
                place = Some(ticket);
                resumed = waiter.is_none();
            }
            earlier.extend(waiter);
        }
        (place, earlier, resumed)
    }

    /// Gives an attempt whose grant could not be delivered the place back that it had.
    pub fn restore_place(&mut self, db: i32, names: &[&[u8]], id: Id, ticket: Ticket, until: MonotonicMicros) {
        let stands = names.iter().any(|name| self.ticket(db, name, id).is_some());
        if !stands && !self.entries.contains_key(&ticket) {
            self.keep(db, names, ticket, Place { id, until });
        }
    }

    fn keep(&mut self, db: i32, names: &[&[u8]], ticket: Ticket, place: Place) {
        self.ends.insert((place.until, ticket));
        self.stand(db, names, ticket, Body::Keeps(place));
    }

    /// Puts a ticket in the lines of these keys.
    fn stand(&mut self, db: i32, names: &[&[u8]], ticket: Ticket, body: Body<H>) -> Option<LineId> {
        let lines = match names {
            [name] => OneOrMore::One(self.open(db, name)),
            names => OneOrMore::More(names.iter().map(|name| self.open(db, name)).collect()),
        };
        let (waits, id) = match &body {
            Body::Waits(waiter) => (true, waiter.id),
            Body::Keeps(place) => (false, Some(place.id)),
        };
        for line in lines.as_slice() {
            let Some(line) = self.lines.get_mut(line) else { continue };
            if let Some(id) = id {
                line.ids.insert(id, ticket);
            }
            match (&lines, waits) {
                (_, false) => line.places.insert(ticket),
                (OneOrMore::One(_), true) => line.single.insert(ticket),
                (OneOrMore::More(_), true) => line.several.insert(ticket),
            };
        }
        let first = lines.as_slice().first().copied();
        self.entries.insert(ticket, Entry { lines, body });
        first
    }

    /// Takes an ID out of a line, and out of those of the other keys that it wanted: its ticket, and its
    /// waiter unless it only kept a place.
    pub fn forget(&mut self, db: i32, name: &[u8], id: Id) -> Option<(Ticket, Option<Waiter<H>>)> {
        let ticket = self.ticket(db, name, id)?;
        Some((ticket, self.remove(ticket).and_then(Entry::into_waiter)))
    }

    /// Takes the first who waits out of a line.
    pub fn pop_head(&mut self, line: LineId) -> Option<(Ticket, Waiter<H>)> {
        let ticket = self.lines.get(&line)?.head()?;
        self.serve(ticket).map(|waiter| (ticket, waiter))
    }

    /// Takes one who waits out of its lines.
    pub fn serve(&mut self, ticket: Ticket) -> Option<Waiter<H>> {
        self.entries.get(&ticket)?.waiter()?;
        self.remove(ticket).and_then(Entry::into_waiter)
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
            if self.entries.get(&ticket).is_some_and(|entry| entry.waiter().is_some()) {
                return self.end_wait(ticket, kept_until, most);
            }
            self.remove(ticket);
        }
        None
    }

    fn end_wait(&mut self, ticket: Ticket, kept_until: Option<MonotonicMicros>, most: usize) -> Option<Waiter<H>> {
        let (db, names) = self.keys(ticket)?;
        let waiter = self.remove(ticket)?.into_waiter()?;
        if let (Some(id), Some(until)) = (waiter.id, kept_until) {
            if self.places() < most {
                let place = Place { id, until };
                match &names {
                    OneOrMore::One(name) => self.keep(db, &[name], ticket, place),
                    OneOrMore::More(names) => {
                        let names: Vec<&[u8]> = names.iter().map(AsRef::as_ref).collect();
                        self.keep(db, &names, ticket, place);
                    }
                }
            }
        }
        Some(waiter)
    }

    /// Takes everybody out of a line, places included; those who waited.
    pub fn dissolve(&mut self, line: LineId) -> Vec<Waiter<H>> {
        let tickets: Vec<Ticket> = self
            .lines
            .get(&line)
            .map(|line| line.single.union(&line.several).chain(&line.places).copied().collect())
            .unwrap_or_default();
        tickets.into_iter().filter_map(|ticket| self.remove(ticket)?.into_waiter()).collect()
    }

    /// Takes everybody out of all lines; those who waited.
    pub fn dissolve_all(&mut self) -> Vec<Waiter<H>> {
        let lines: Vec<LineId> = self.lines.keys().copied().collect();
        lines.into_iter().flat_map(|line| self.dissolve(line)).collect()
    }

    /// Takes a ticket out of everything.
    fn remove(&mut self, ticket: Ticket) -> Option<Entry<H>> {
        let entry = self.entries.remove(&ticket)?;
        let (id, until) = match &entry.body {
            Body::Waits(waiter) => {
                self.clients.remove(&waiter.client);
                (waiter.id, waiter.until)
            }
            Body::Keeps(place) => (Some(place.id), place.until),
        };
        self.ends.remove(&(until, ticket));
        for line in entry.lines.as_slice() {
            self.leave_line(*line, ticket, id);
        }
        Some(entry)
    }

    fn leave_line(&mut self, id: LineId, ticket: Ticket, attempt: Option<Id>) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        if let Some(attempt) = attempt {
            line.ids.remove(&attempt);
        }
        let was_first = line.single.first() == Some(&ticket);
        if !line.single.remove(&ticket) && !line.several.remove(&ticket) {
            line.places.remove(&ticket);
        }
        // Who stands behind one that left may bear more holders than that did.
        let next = line.single.first().filter(|_| was_first);
        let shares = next.and_then(|next| self.entries.get(next)?.waiter()).map(|next| next.share);
        if shares.is_some_and(|share| share != Share::Alone) {
            self.set_ready(id);
        }
        self.tidy(id);
    }

    /// Gives up what a line no longer needs.
    fn tidy(&mut self, id: LineId) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        if line.is_waited_for() {
            return;
        }
        line.evicted_until = None;
        line.last_end = None;
        line.behind = None;
        if let Some(ready) = line.ready.take() {
            self.ready.remove(&(ready, id));
        }
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
        if self.entries.capacity() > FEW {
            self.index.shrink_to_fit();
            self.lines.shrink_to_fit();
            self.entries.shrink_to_fit();
            self.clients.shrink_to_fit();
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
            single: BTreeSet::new(),
            several: BTreeSet::new(),
            places: BTreeSet::new(),
            ids: HashMap::new(),
            due: None,
            last_end: None,
            evicted_until: None,
            ready: None,
            behind: None,
            is_news: false,
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
        if line.due == due || !line.is_waited_for() {
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

    /// The lock of a line may come free by itself as early as that.
    pub fn set_due_by(&mut self, id: LineId, due: UnixMicros) {
        let known = self.lines.get(&id).and_then(|line| line.due);
        self.set_due(id, Some(known.map_or(due, |known| known.min(due))));
    }

    /// Notes when the last holder of the lock of a line ends; `None`: nobody knows.
    pub fn set_last_end(&mut self, id: LineId, end: Option<UnixMicros>) {
        if let Some(line) = self.lines.get_mut(&id) {
            line.last_end = end;
        }
    }

    /// One of several holders ends then.
    pub fn set_last_end_after(&mut self, id: LineId, end: UnixMicros) {
        if let Some(line) = self.lines.get_mut(&id) {
            line.last_end = line.last_end.max(Some(end));
        }
    }

    /// The key of a line was evicted: its lock stays taken until the last holder ends that was seen.
    pub fn evicted(&mut self, id: LineId) {
        if let Some(line) = self.lines.get_mut(&id) {
            line.evicted_until = line.last_end.max(line.due);
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
        let Some(head) = self.lines.get(&id).and_then(Line::head) else { return false };
        let was_ready = self.set_ready_from(id, Some(head), None);
        if let Some(line) = self.lines.get_mut(&id) {
            line.is_news = true;
        }
        !was_ready
    }

    /// The lock of a line may still be had by those behind a ticket: they are looked at in their turn, those
    /// of other lines with earlier tickets before them.
    pub fn go_on(&mut self, id: LineId, behind: Option<Ticket>) {
        let is_ready = self.lines.get(&id).is_none_or(|line| line.ready.is_some());
        if !is_ready {
            let next = self.next(id, behind, false).map(|(ticket, ..)| ticket).or(behind);
            self.set_ready_from(id, next, behind);
        }
    }

    /// Whether it was ready.
    fn set_ready_from(&mut self, id: LineId, from: Option<Ticket>, behind: Option<Ticket>) -> bool {
        let Some(line) = self.lines.get_mut(&id) else { return false };
        let before = std::mem::replace(&mut line.ready, from);
        line.behind = behind;
        if let Some(before) = before {
            self.ready.remove(&(before, id));
        }
        if let Some(from) = from {
            self.ready.insert((from, id));
        }
        before.is_some()
    }

    /// All locks of a database, or of all of them, may have come free.
    pub fn set_all_ready(&mut self, db: Option<i32>) {
        let wanted = |line: &Line| db.is_none_or(|db| db == line.db);
        let mut lines: Vec<LineId> = self.lines.iter().filter(|(_, line)| wanted(line)).map(|(id, _)| *id).collect();
        lines.sort_unstable();
        for line in lines {
            self.set_ready(line);
        }
    }

    /// All lines are to be looked at again: who changed a key may have told nobody.
    pub fn look_again(&mut self) {
        let waited = self.lines.iter().filter(|(_, line)| line.ready.is_none());
        let heads: Vec<_> = waited.filter_map(|(id, line)| Some((*id, line.head()?))).collect();
        for (id, head) in heads {
            self.set_ready_from(id, Some(head), None);
            if let Some(line) = self.lines.get_mut(&id) {
                line.is_news = false;
            }
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

    /// A line whose lock may have come free, and behind whom to look: that with the earliest ticket.
    pub fn take_ready(&mut self) -> Option<(LineId, Option<Ticket>)> {
        let (_, id) = *self.ready.first()?;
        let behind = self.lines.get(&id)?.behind;
        self.set_ready_from(id, None, None);
        Some((id, behind))
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
