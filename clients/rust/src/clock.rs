//! A clock that is never set, and random numbers.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The time since this process first asked.
pub(crate) fn now() -> Duration {
    START.elapsed()
}

/// A random number: each hasher has a key of its own.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A random part of a span.
pub(crate) fn part_of(span: Duration) -> Duration {
    let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(random().checked_rem(nanos).unwrap_or(0))
}

/// Whole milliseconds, but never none: the server refuses a lease of 0.
pub(crate) fn milliseconds(span: Duration) -> i64 {
    let rounded = span.saturating_add(Duration::from_micros(500)).as_millis();
    i64::try_from(rounded).unwrap_or(i64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_rounded_but_never_to_nothing() {
        for (micros, ms) in [(0, 1), (1, 1), (1499, 1), (1500, 2), (2_000_000, 2000)] {
            assert_eq!(milliseconds(Duration::from_micros(micros)), ms, "{micros} us");
        }
        assert_eq!(milliseconds(Duration::MAX), i64::MAX);
    }

    #[test]
    fn random_numbers_differ() {
        let mut seen: Vec<u64> = (0..1000).map(|_| random()).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 1000);
        assert!(part_of(Duration::from_millis(5)) < Duration::from_millis(5));
    }
}
