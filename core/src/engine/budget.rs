//! How much extra work an event-loop iteration or a command does before the server gets its turn.
//!
//! All work on what other commands and clients left behind draws on one budget, and continues in the next iteration
//! once the budget is spent. The budget counts keys and the bytes of their names, since one grant can have 256 kB of
//! them. It is checked before each piece of work, so it may be exceeded by the keys of one waiter or one grant.

use super::clock::Clock;
use super::names::Keys;
use crate::lock::time::{Micros, MonotonicMicros};

/// The work that may still be done before the server gets its turn.
#[derive(Clone, Debug)]
pub struct Budget {
    /// How many keys may be read or written.
    most: usize,
    spent: usize,
    /// The time that the work may take, counted from the first time check.
    time: Micros,
    until: Option<MonotonicMicros>,
}

impl Budget {
    /// For one event-loop iteration, on top of other work: about a millisecond, unless messages take longer. The server
    /// compares each message's channel with all subscribed patterns. Only work that writes, and can send messages,
    /// checks the time; the rest counts keys.
    pub const ITERATION: Self = Self { most: 2_048, spent: 0, time: Micros(2_000), until: None };
    /// For the work that a command sets off, on top of its own.
    pub const COMMAND: Self = Self { most: 256, spent: 0, time: Micros(1_000), until: None };
    /// For all events that the server reports between two runs of the timer.
    pub const EVENTS: Self = Self { most: 256, spent: 0, time: Micros(1_000), until: None };
    /// For the answers that leave at once.
    pub const ANSWERS: Self = Self { most: 256, spent: 0, time: Micros(1_000), until: None };
    /// The share of an iteration for one kind of work, so that no kind starves another.
    pub const PART: usize = 256;
    /// How many bytes of names or results cost as much as a key.
    pub const BYTES: usize = 4_096;

    /// A budget for this many keys.
    #[must_use]
    pub const fn of(keys: usize) -> Self {
        Self { most: keys, ..Self::ITERATION }
    }

    /// Whether more keys may be read or written.
    #[must_use]
    pub const fn has_left(&self) -> bool {
        self.spent < self.most
    }

    /// Whether more keys may be read or written, and time is left.
    pub fn is_left(&mut self, clock: impl Clock) -> bool {
        let now = clock.monotonic();
        self.has_left() && now < *self.until.get_or_insert(now.after(self.time))
    }

    /// Counts keys that were read or written.
    pub const fn spend(&mut self, keys: usize) {
        self.spent = self.spent.saturating_add(keys);
    }

    /// Counts keys whose names were hashed, copied, compared or freed.
    pub const fn spend_names(&mut self, keys: usize, bytes: usize) {
        self.spend(keys.saturating_add(bytes / Self::BYTES));
    }

    /// Counts one waiter that was moved or freed, with its names.
    pub fn spend_on_waiter(&mut self, keys: &Keys) {
        self.spend_names(1, keys.size());
    }

    /// Counts each of these keys, because it was inspected.
    pub fn spend_on_each(&mut self, keys: &Keys) {
        self.spend_names(keys.len(), keys.size());
    }

    /// Does one kind of work with a part of the remaining budget.
    pub fn part<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let most = self.most.saturating_sub(self.spent).min(Self::PART);
        let mut part = Self { most, spent: 0, time: self.time, until: self.until };
        let done = work(&mut part);
        self.spend(part.spent);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_spends_from_the_whole_even_beyond_its_own_share() {
        let mut budget = Budget::of(1_000);
        budget.part(|part| {
            part.spend(Budget::PART - 1);
            assert!(part.has_left());
            part.spend_names(1, 0);
            assert!(!part.has_left());
        });
        assert!(budget.has_left());
        budget.part(|part| part.spend_names(700, 44 * Budget::BYTES));
        assert!(!budget.has_left());
        budget.part(|part| assert!(!part.has_left()));
    }
}
