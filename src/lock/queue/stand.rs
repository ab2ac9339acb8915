//! Standing in lines, and leaving them.

use super::{Body, Entry, Joined, Line, LineId, OneOrMore, Place, Queues, Ticket, Waiter};
use crate::lock::record::Id;
use crate::lock::rules::Share;
use crate::lock::time::MonotonicMicros;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

impl<H> Queues<H> {
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
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Entry<H>> {
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
}
