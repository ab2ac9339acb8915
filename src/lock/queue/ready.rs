//! When locks that are waited for come free, and whose turn it is then.

use super::{Line, LineId, Queues, Ticket};
use crate::lock::time::{MonotonicMicros, UnixMicros};

impl<H> Queues<H> {
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
