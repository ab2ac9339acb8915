//! Points in time and spans as types, in microseconds, so that units cannot be confused.

/// Microseconds in a millisecond.
const PER_MS: u64 = 1_000;

/// A point in time on the wall clock: microseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMicros(pub u64);

/// A span of time in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

/// A point in time on a clock that is never set: microseconds since an arbitrary start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonotonicMicros(pub u64);

impl MonotonicMicros {
    /// This time plus a span.
    #[must_use]
    pub const fn after(self, span: Micros) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The span since an earlier point in time; zero if that is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }
}

impl Micros {
    /// A span of whole milliseconds; saturates.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(PER_MS))
    }

    /// Whole milliseconds, rounded down.
    #[must_use]
    pub const fn as_ms(self) -> u64 {
        self.0 / PER_MS
    }

    /// Whole milliseconds, rounded up.
    #[must_use]
    pub const fn as_ms_ceil(self) -> u64 {
        self.0.div_ceil(PER_MS)
    }
}

impl UnixMicros {
    /// 2001-09-09T01:46:40Z, the first second with ten digits: a clock before this counts as missing.
    pub const FIRST: Self = Self(1_000_000_000_000_000);
    /// 2250-01-01: after this, tokens would come close to 2^53 and timestamps to eleven digits.
    pub const LAST: Self = Self(8_835_955_200_000_000);

    /// Whether a lock can be granted at this time.
    #[must_use]
    pub fn is_plausible(self) -> bool {
        self >= Self::FIRST && self < Self::LAST
    }

    /// This time plus a span.
    #[must_use]
    pub const fn after(self, span: Micros) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// This time minus a span; 1970 at the earliest.
    #[must_use]
    pub const fn before(self, span: Micros) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// The span since an earlier point in time; zero if that is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }

    /// Unix time in seconds, as the nearest double.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "below 2^53 there is none")]
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Unix time in milliseconds, rounded up.
    #[must_use]
    pub const fn as_ms_ceil(self) -> u64 {
        self.0.div_ceil(PER_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_round_down_for_the_holder_and_up_for_the_others() {
        assert_eq!(Micros(1_999).as_ms(), 1);
        assert_eq!(Micros(1_001).as_ms_ceil(), 2);
        assert_eq!(Micros(1_000).as_ms_ceil(), 1);
        assert_eq!(UnixMicros(1_001).as_ms_ceil(), 2);
    }

    #[test]
    fn spans_never_wrap() {
        assert_eq!(UnixMicros(5).since(UnixMicros(7)), Micros(0));
        assert_eq!(UnixMicros(u64::MAX).after(Micros(1)), UnixMicros(u64::MAX));
        assert_eq!(UnixMicros(1).before(Micros(2)), UnixMicros(0));
        assert_eq!(Micros::from_ms(u64::MAX), Micros(u64::MAX));
    }

    #[test]
    fn a_server_without_a_clock_is_noticed() {
        assert!(!UnixMicros(999_999_999_999_999).is_plausible());
        assert!(UnixMicros::FIRST.is_plausible());
        assert!(!UnixMicros::LAST.is_plausible());
    }
}
