//! How long attempts waited: cumulative histograms of the waits that ended with the lock and of the others.
//!
//! An attempt counts once, when its wait has ended for good: an interrupted wait counts from the first command, and
//! has not ended while the place is reserved. A wait that ends in the middle of a command is noted and counted at the
//! end of the entry from the server, which reads the clock once for all of them.

use crate::lock::time::{Micros, MonotonicMicros};

/// The upper bounds of the buckets, in milliseconds. One more bucket holds the rest.
pub const BOUNDS_MS: [u64; 15] =
    [1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 60_000, 300_000, 600_000, 1_800_000, 3_600_000];

/// A histogram of wait times.
#[derive(Clone, Copy, Debug, Default)]
pub struct Histogram {
    buckets: [u64; BOUNDS_MS.len()],
    count: u64,
    sum: Micros,
}

impl Histogram {
    fn add(&mut self, took: Micros) {
        // A wait that took even slightly longer than a bound is above it.
        let at = BOUNDS_MS.partition_point(|bound| *bound < took.as_ms_ceil());
        if let Some(bucket) = self.buckets.get_mut(at) {
            *bucket = bucket.wrapping_add(1);
        }
        self.count = self.count.wrapping_add(1);
        self.sum = Micros(self.sum.0.saturating_add(took.0));
    }

    /// Each bound, and how many waits did not take longer.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut count = 0_u64;
        BOUNDS_MS.iter().zip(&self.buckets).map(move |(bound, bucket)| {
            count = count.wrapping_add(*bucket);
            (*bound, count)
        })
    }

    /// How many waits there were.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// How long they took in total.
    #[must_use]
    pub const fn sum(&self) -> Micros {
        self.sum
    }
}

/// All of a server's waits since the last reset.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    granted: Histogram,
    failed: Histogram,
    /// The start times of the waits that have ended in this entry, and whether they ended well.
    ended: Vec<(MonotonicMicros, bool)>,
}

impl Waits {
    /// The attempts that got their lock, or its holder's result.
    #[must_use]
    pub const fn granted(&self) -> &Histogram {
        &self.granted
    }

    /// The attempts that did not: they timed out, were cancelled or unblocked, or lost their connection.
    #[must_use]
    pub const fn failed(&self) -> &Histogram {
        &self.failed
    }

    /// Counts an attempt that got its lock.
    pub(super) fn has_got_it(&mut self, waited: Micros) {
        self.granted.add(waited);
    }

    /// Counts an attempt that ended without its lock.
    pub(super) fn has_failed(&mut self, waited: Micros) {
        self.failed.add(waited);
    }

    /// Notes that an attempt that has waited since `since` ended now without its lock.
    pub(super) fn has_ended(&mut self, since: MonotonicMicros) {
        self.ended.push((since, false));
    }

    /// Notes that an attempt that has waited since `since` now got the holder's result.
    pub(super) fn has_ended_well(&mut self, since: MonotonicMicros) {
        self.ended.push((since, true));
    }

    /// Whether all waits that have ended are counted.
    #[must_use]
    pub fn are_settled(&self) -> bool {
        self.ended.is_empty()
    }

    /// Counts the waits that have ended in this entry.
    pub fn settle(&mut self, now: MonotonicMicros) {
        for (since, is_well) in self.ended.drain(..) {
            let histogram = if is_well { &mut self.granted } else { &mut self.failed };
            histogram.add(now.since(since));
        }
    }

    /// Resets all counts.
    pub fn reset(&mut self) {
        *self = Self { ended: std::mem::take(&mut self.ended), ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_counts_in_every_bucket_whose_bound_it_does_not_exceed() {
        let mut waits = Waits::default();
        for us in [0, 1_000, 1_001, 59_999_999, 60_000_000, 60_000_001, 3_600_000_000, 3_600_000_001] {
            waits.has_got_it(Micros(us));
        }
        let counts: Vec<u64> = waits.granted().cumulative().map(|(_, count)| count).collect();
        assert_eq!(counts, [2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 5, 6, 6, 6, 7]);
        assert_eq!((waits.granted().count(), waits.failed().count()), (8, 0));
        assert_eq!(waits.granted().sum(), Micros(7_380_002_002));
    }

    #[test]
    fn a_wait_that_ended_in_a_command_counts_at_its_end_despite_a_reset() {
        let mut waits = Waits::default();
        waits.has_ended(MonotonicMicros(1_000));
        assert!(!waits.are_settled());
        waits.has_got_it(Micros(1));
        waits.reset();
        waits.settle(MonotonicMicros(6_000));
        assert!(waits.are_settled());
        assert_eq!((waits.granted().count(), waits.failed().count(), waits.failed().sum()), (0, 1, Micros(5_000)));
    }
}
