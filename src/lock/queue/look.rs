//! Who waits where.

use super::{Entry, Line, LineId, Narrows, Queues, Ticket, Wait, Waiter};
use crate::lock::record::Id;
use crate::lock::time::{MonotonicMicros, UnixMicros};
use std::ops::Bound;
use std::rc::Rc;

impl<H> Queues<H> {
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
}
