//! How long an expired lock or holder stays in its key for recovery.

use super::time::UnixMicros;

/// How long an expired holder stays in a set if the retention is unlimited.
const HOLDER_STAYS_MS: u64 = 60_000;
/// The minimum time that an unclaimed grant stays in its key.
const UNCLAIMED_STAYS_MS: u64 = 60_000;

/// How long an expired lock stays in its key for recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// Without limit: the key has no native expiry.
    Forever,
    /// For this many milliseconds after its timestamp.
    Ms(u64),
}

impl Retention {
    /// The native expiry of a key with this timestamp: Unix time in ms, rounded up.
    #[must_use]
    pub const fn expire_at_ms(self, timestamp: UnixMicros) -> Option<u64> {
        match self {
            Self::Forever => None,
            Self::Ms(ms) => Some(timestamp.as_ms_ceil().saturating_add(ms)),
        }
    }

    /// The retention for a grant that has not been claimed yet. Its claim may be waiting in the socket of a stalled
    /// server, and must still find the grant. The server removes the grant itself, unless the grant ends before that.
    #[must_use]
    pub const fn unclaimed(self) -> Self {
        match self {
            Self::Ms(ms) if ms < UNCLAIMED_STAYS_MS => Self::Ms(UNCLAIMED_STAYS_MS),
            _ => self,
        }
    }

    /// When an expired holder leaves its set, in Unix milliseconds, whatever the key's native expiry. It is always
    /// limited, because each grant can add a holder.
    #[must_use]
    pub const fn holder_stays_until_ms(self, timestamp: UnixMicros) -> u64 {
        let ms = match self {
            Self::Forever => HOLDER_STAYS_MS,
            Self::Ms(ms) => ms,
        };
        timestamp.as_ms_ceil().saturating_add(ms)
    }
}
