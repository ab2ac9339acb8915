//! Joining lines and leaving them.

use super::{
    Body, Cause, Entry, Joined, Line, LineId, MostPlaces, Names, Place, Queues, Stand, Ticket, Waiter, MOST_OF_AN_ID,
};
use crate::lock::record::Id;
use crate::lock::rules::Share;
use crate::lock::time::MonotonicMicros;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

impl<H> Queues<H> {
    /// A client begins to wait: with the ticket of its ID if that is for the same keys, else at the end. A waiter for
    /// several keys is parked in the line of `names[parked_at]`.
    pub fn join(&mut self, db: i32, names: &[&[u8]], parked_at: usize, waiter: Waiter<H>) -> Joined<H> {
        let (place, earlier, resumed) = self.take_place(db, names, waiter.id);
        let ticket = place.unwrap_or_else(|| Ticket(self.next_number()));
        self.clients.insert(waiter.client, ticket);
        self.ends.insert((waiter.until, ticket));
        let line = self.stand(db, names, Some(parked_at), ticket, Body::Waits(waiter));
        Joined { line, earlier, resumed }
    }

    /// Reserves a place for an attempt that does not wait: its old one if it has one, else at the end, within the
    /// limits of `most`. Returns the waiters with that ID, which no longer wait.
    pub fn keep_place(
        &mut self,
        db: i32,
        names: &[&[u8]],
        id: Id,
        until: MonotonicMicros,
        most: MostPlaces,
    ) -> Vec<Waiter<H>> {
        let (place, earlier, _) = self.take_place(db, names, Some(id));
        let ticket = place.unwrap_or_else(|| Ticket(self.next_number()));
        self.keep(db, names, ticket, Place { id, until }, most);
        earlier
    }

    /// Whether one more attempt for several keys may use this ID.
    #[must_use]
    pub fn takes_id(&self, db: i32, id: Id) -> bool {
        self.attempts.get(&(db, id)).is_none_or(|attempts| attempts.len() < MOST_OF_AN_ID)
    }

    /// Removes an ID from all of these keys. Returns its ticket if that was for exactly these keys, its waiters, and
    /// whether the ticket was a reserved place.
    fn take_place(&mut self, db: i32, names: &[&[u8]], id: Option<Id>) -> (Option<Ticket>, Vec<Waiter<H>>, bool) {
        let (mut place, mut earlier, mut resumed) = (None, Vec::new(), false);
        let Some(id) = id else { return (place, earlier, resumed) };
        let mut taken: Vec<(Ticket, bool)> = Vec::new();
        for name in names {
            let single = self.line_of(db, name).and_then(|line| line.ids.get(&id));
            taken.extend(single.map(|ticket| (*ticket, names.len() == 1)));
        }
        self.attempts_for(db, names, id, |ticket, own, numbers| {
            let common = numbers.count();
            if common > 0 {
                taken.push((ticket, common == names.len() && common == own.len()));
            }
        });
        for (ticket, is_same) in taken {
            let waiter = self.remove(ticket).and_then(Entry::into_waiter);
            if is_same {
                place = Some(ticket);
                resumed = waiter.is_none();
            }
            earlier.extend(waiter);
        }
        (place, earlier, resumed)
    }

    /// Removes an ID from all of these keys, because its attempt got them. Returns its waiters.
    pub fn forget_all(&mut self, db: i32, names: &[&[u8]], id: Id) -> Vec<Waiter<H>> {
        self.take_place(db, names, Some(id)).1
    }

    /// Restores the place of an attempt whose grant could not be delivered.
    pub fn restore_place(
        &mut self,
        db: i32,
        names: &[&[u8]],
        id: Id,
        ticket: Ticket,
        until: MonotonicMicros,
        most: MostPlaces,
    ) {
        let stands = self.own_tickets(db, names, id).iter().any(Option::is_some);
        if !stands && !self.entries.contains_key(&ticket) {
            self.keep(db, names, ticket, Place { id, until }, most);
        }
    }

    fn keep(&mut self, db: i32, names: &[&[u8]], ticket: Ticket, place: Place, most: MostPlaces) {
        let size = Self::size_of_place(names.iter().map(|name| name.len()));
        let keys = self.placed.keys.saturating_add(size.keys);
        let bytes = self.placed.bytes.saturating_add(size.bytes);
        let takes_id = names.len() == 1 || self.takes_id(db, place.id);
        if keys > most.keys || bytes > most.bytes || !takes_id {
            return;
        }
        self.placed = MostPlaces { keys, bytes };
        self.ends.insert((place.until, ticket));
        self.stand(db, names, None, ticket, Body::Keeps(place));
    }

    /// The size of a place. One for a single key uses the name in its line.
    fn size_of_place(names: impl ExactSizeIterator<Item = usize>) -> MostPlaces {
        let keys = names.len();
        MostPlaces { keys, bytes: if keys > 1 { names.sum() } else { 0 } }
    }

    /// Puts a ticket in the line of its key, or parks it in the line of one of its keys.
    fn stand(
        &mut self,
        db: i32,
        names: &[&[u8]],
        parked_at: Option<usize>,
        ticket: Ticket,
        body: Body<H>,
    ) -> Option<LineId> {
        let line = match names {
            [name] => Some(self.open(db, name)),
            names => parked_at.and_then(|at| names.get(at)).map(|name| self.open(db, name)),
        };
        let is_single = names.len() == 1;
        let (waits, id) = match &body {
            Body::Waits(waiter) => (true, waiter.id),
            Body::Keeps(place) => (false, Some(place.id)),
        };
        if let Some(line) = line.and_then(|line| self.lines.get_mut(&line)) {
            if let Some(id) = id.filter(|_| is_single) {
                line.ids.insert(id, ticket);
            }
            match (waits, is_single) {
                (false, _) => line.places.insert(ticket),
                (true, true) => line.single.insert(ticket),
                (true, false) => line.parked.insert(ticket),
            };
        }
        let stand = match line {
            Some(line) if is_single => Stand::In(line),
            line => {
                if let Some(id) = id {
                    self.attempts.entry((db, id)).or_default().push(ticket);
                }
                Stand::Parked { db, names: Rc::new(Names::of(names, &self.marks)), line }
            }
        };
        self.entries.insert(ticket, Entry { stand, body });
        line
    }

    /// Parks a waiter for several locks at the one with that index, which it cannot have. Returns the line.
    pub fn park(&mut self, ticket: Ticket, at: usize) -> Option<LineId> {
        let Some(Stand::Parked { db, names, line }) = self.entries.get(&ticket).map(|entry| entry.stand.clone()) else {
            return None;
        };
        let to = self.open(db, names.get(at)?);
        if line == Some(to) {
            return line;
        }
        self.lines.get_mut(&to)?.parked.insert(ticket);
        if let Some(Entry { stand: Stand::Parked { line, .. }, .. }) = self.entries.get_mut(&ticket) {
            *line = Some(to);
        }
        if let Some(from) = line {
            if let Some(line) = self.lines.get_mut(&from) {
                line.parked.remove(&ticket);
            }
            self.tidy(from);
        }
        Some(to)
    }

    /// Removes an ID from a key, and from the other keys of its attempt. Returns its ticket, and its waiter unless it
    /// only had a reserved place.
    pub fn forget(&mut self, db: i32, name: &[u8], id: Id) -> Option<(Ticket, Option<Waiter<H>>)> {
        let ticket = self.ticket(db, name, id)?;
        Some((ticket, self.remove(ticket).and_then(Entry::into_waiter)))
    }

    /// Removes the first waiter of a line.
    pub fn pop_head(&mut self, line: LineId) -> Option<(Ticket, Waiter<H>)> {
        let ticket = self.lines.get(&line)?.head()?;
        self.end_wait(ticket, None, MostPlaces { keys: 0, bytes: 0 }).map(|waiter| (ticket, waiter))
    }

    /// Removes a waiter because it was granted its lock or locks.
    pub fn serve(&mut self, ticket: Ticket) -> Option<Waiter<H>> {
        self.entries.get(&ticket)?.waiter()?;
        self.take_out(ticket, true).and_then(Entry::into_waiter)
    }

    /// A client no longer waits. If it sent an ID, its place is reserved until `kept_until`.
    pub fn leave(&mut self, client: u64, kept_until: Option<MonotonicMicros>, most: MostPlaces) -> Option<Waiter<H>> {
        let ticket = *self.clients.get(&client)?;
        self.end_wait(ticket, kept_until, most)
    }

    /// Removes the next waiter whose wait is over at `now`, if there is one; its place is reserved as in
    /// [`Queues::leave`]. Reserved places whose time is over are dropped on the way.
    pub fn time_out(
        &mut self,
        now: MonotonicMicros,
        kept_until: Option<MonotonicMicros>,
        most: MostPlaces,
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

    fn end_wait(&mut self, ticket: Ticket, kept_until: Option<MonotonicMicros>, most: MostPlaces) -> Option<Waiter<H>> {
        self.entries.get(&ticket)?.waiter()?;
        let (db, keys) = self.keys(ticket)?;
        let waiter = self.remove(ticket)?.into_waiter()?;
        if let (Some(id), Some(until)) = (waiter.id, kept_until) {
            let names: Vec<&[u8]> = keys.iter().collect();
            self.keep(db, &names, ticket, Place { id, until }, most);
        }
        Some(waiter)
    }

    /// Empties a line, reserved places included. Returns the waiters.
    pub fn dissolve(&mut self, line: LineId) -> Vec<Waiter<H>> {
        let tickets: Vec<Ticket> = self
            .lines
            .get(&line)
            .map(|line| line.single.union(&line.parked).chain(&line.places).copied().collect())
            .unwrap_or_default();
        tickets.into_iter().filter_map(|ticket| self.remove(ticket)?.into_waiter()).collect()
    }

    /// Empties all lines. Returns the waiters, in order.
    pub fn dissolve_all(&mut self) -> Vec<Waiter<H>> {
        let mut tickets: Vec<Ticket> = self.entries.keys().copied().collect();
        tickets.sort_unstable();
        tickets.into_iter().filter_map(|ticket| self.remove(ticket)?.into_waiter()).collect()
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Entry<H>> {
        self.take_out(ticket, false)
    }

    /// Removes a ticket; `granted`: because its lock was granted.
    fn take_out(&mut self, ticket: Ticket, granted: bool) -> Option<Entry<H>> {
        let entry = self.entries.remove(&ticket)?;
        let id = entry.id();
        let until = match &entry.body {
            Body::Waits(waiter) => {
                self.clients.remove(&waiter.client);
                waiter.until
            }
            Body::Keeps(place) => {
                let size = match &entry.stand {
                    Stand::In(_) => MostPlaces { keys: 1, bytes: 0 },
                    Stand::Parked { names, .. } => MostPlaces { keys: names.len(), bytes: names.size() },
                };
                self.placed.keys = self.placed.keys.saturating_sub(size.keys);
                self.placed.bytes = self.placed.bytes.saturating_sub(size.bytes);
                place.until
            }
        };
        self.ends.remove(&(until, ticket));
        match &entry.stand {
            Stand::In(line) => self.leave_line(*line, ticket, id, granted),
            Stand::Parked { db, line, .. } => {
                if let Some(id) = id {
                    self.forget_attempt(*db, id, ticket);
                }
                if let Some(line) = line {
                    self.leave_line(*line, ticket, None, granted);
                }
            }
        }
        if self.entries.is_empty() {
            self.shrink();
        }
        Some(entry)
    }

    fn forget_attempt(&mut self, db: i32, id: Id, ticket: Ticket) {
        if let Some(attempts) = self.attempts.get_mut(&(db, id)) {
            attempts.retain(|own| *own != ticket);
            if attempts.is_empty() {
                self.attempts.remove(&(db, id));
            }
        }
    }

    fn leave_line(&mut self, id: LineId, ticket: Ticket, attempt: Option<Id>, granted: bool) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        if let Some(attempt) = attempt {
            line.ids.remove(&attempt);
        }
        let was_first = line.single.first() == Some(&ticket);
        if !line.single.remove(&ticket) && !line.parked.remove(&ticket) {
            line.places.remove(&ticket);
        }
        // The one that left may have held up parked waiters.
        let frees_parked = was_first && !granted && !line.parked.is_empty();
        // The next in line may allow more holders than the one that left.
        let next = line.single.first().filter(|_| was_first);
        let shares = next.and_then(|next| self.entries.get(next)?.waiter()).map(|next| next.share);
        if frees_parked || shares.is_some_and(|share| share != Share::Alone) {
            self.set_ready(id);
        }
        self.tidy(id);
    }

    /// Drops what a line no longer needs.
    fn tidy(&mut self, id: LineId) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        if line.is_waited_for() {
            return;
        }
        line.evicted_until = None;
        line.last_end = None;
        self.later.remove(&id);
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
        }
    }

    /// Returns the memory that a crowd used: maps keep theirs when they become empty.
    fn shrink(&mut self) {
        const FEW: usize = 1_024;
        if self.entries.capacity().max(self.lines.capacity()) > FEW {
            self.index.shrink_to_fit();
            self.lines.shrink_to_fit();
            self.entries.shrink_to_fit();
            self.clients.shrink_to_fit();
            self.attempts.shrink_to_fit();
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
            parked: BTreeSet::new(),
            places: BTreeSet::new(),
            ids: HashMap::new(),
            due: None,
            last_end: None,
            evicted_until: None,
            ready: None,
            cause: Cause::Event,
            tried: 0,
        };
        self.lines.insert(id, line);
        self.found.set(id);
        id
    }

    fn next_number(&mut self) -> u64 {
        self.last = self.last.saturating_add(1);
        self.last
    }
}
