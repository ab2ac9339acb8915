//! The clocks of the server.

use crate::lock::time::{MonotonicMicros, UnixMicros};

/// Reads the time on demand, because that costs more than most decisions.
pub trait Clock: Copy {
    /// The wall clock.
    fn now(self) -> UnixMicros;
    /// A clock that is never set.
    fn monotonic(self) -> MonotonicMicros;
}
