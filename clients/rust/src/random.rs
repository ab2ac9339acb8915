//! Random numbers, for IDs and pauses.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Each hasher has its own random key.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A random part of a span.
pub(crate) fn part_of(span: Duration) -> Duration {
    let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(random().checked_rem(nanos).unwrap_or(0))
}

/// The pause between polls; random, so that attempts poll at different times.
pub(crate) fn until_next_poll() -> Duration {
    Duration::from_millis(50).saturating_add(part_of(Duration::from_millis(100)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_differ() {
        let mut seen: Vec<u64> = (0..1000).map(|_| random()).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 1000);
        assert!(part_of(Duration::from_millis(5)) < Duration::from_millis(5));
    }
}
