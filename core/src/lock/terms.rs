//! The settings that the rules need: the margin, and when a lock granted now expires.

use super::error::Error;
use super::time::{Micros, UnixMicros};

/// Settings that the rules need.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How much longer than the lease everybody else waits: the classic pattern's "+ 1".
    pub margin: Micros,
}

impl Terms {
    /// `now + lease + margin`: when a lock granted now expires.
    ///
    /// # Errors
    /// [`Error::Clock`]: the clock is out of range.
    pub(super) fn timestamp(self, now: UnixMicros, lease: Micros) -> Result<UnixMicros, Error> {
        if !now.is_plausible() {
            return Err(Error::Clock);
        }
        Ok(now.after(lease).after(self.margin))
    }
}
