//! The server's clocks.

use crate::lock::time::{MonotonicMicros, UnixMicros};

/// Reads the time on demand, because reading it costs more than most decisions.
pub trait Clock: Copy {
    /// The wall clock.
    fn now(self) -> UnixMicros;
    /// The monotonic clock, which is never set.
    fn monotonic(self) -> MonotonicMicros;
    /// The CPU time of the server's main thread, which stands still while the machine does something else.
    fn cpu(self) -> MonotonicMicros {
        self.monotonic()
    }
}
