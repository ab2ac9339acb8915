//! The server's wall clock, and clocks that are never set, in microseconds.
//!
//! `CLOCK_MONOTONIC` stops while the machine is suspended; leases do not stop, nor do waits. So the monotonic clock is
//! `CLOCK_BOOTTIME`, which counts that time, and `CLOCK_MONOTONIC` serves only to detect a suspend.

use crate::engine;
use crate::lock::clocks::Reading;
use crate::lock::time::{MonotonicMicros, UnixMicros};
use crate::server::api::api;

/// The clocks, read on demand.
#[derive(Clone, Copy, Debug)]
pub struct ServerClock;

impl engine::Clock for ServerClock {
    fn now(self) -> UnixMicros {
        now()
    }

    fn monotonic(self) -> MonotonicMicros {
        monotonic()
    }
}

/// Now: from the server if it gives microseconds (7.2 and later), otherwise from the system's clock, which is the same.
#[must_use]
pub fn now() -> UnixMicros {
    if let Some(microseconds) = api().microseconds {
        // SAFETY: takes nothing, reads the clock.
        return UnixMicros(u64::try_from(unsafe { microseconds() }).unwrap_or(0));
    }
    let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
    // SAFETY: `time` is valid for a write; the time zone argument may be null.
    unsafe { libc::gettimeofday(&raw mut time, std::ptr::null_mut()) };
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    UnixMicros(part(time.tv_sec).saturating_mul(1_000_000).saturating_add(part(time.tv_usec)))
}

/// The time of the running command: read by the server when it began, if the server gives that (7.2 and later),
/// otherwise now. With that, a transaction or a script is one point in time.
#[must_use]
pub fn of_command() -> UnixMicros {
    match api().cached_microseconds {
        // SAFETY: takes nothing, reads a variable of the server.
        Some(cached) => UnixMicros(u64::try_from(unsafe { cached() }).unwrap_or(0)),
        None => now(),
    }
}

/// Now, on a clock that is never set and runs on during suspend: measures waits.
#[must_use]
pub fn monotonic() -> MonotonicMicros {
    read(libc::CLOCK_BOOTTIME).unwrap_or_else(awake)
}

/// Now, on a clock that is never set and stops during suspend.
fn awake() -> MonotonicMicros {
    read(libc::CLOCK_MONOTONIC).unwrap_or(MonotonicMicros(0))
}

/// The CPU time of the main thread: how much of it something takes, whatever else the machine does.
#[must_use]
pub fn cpu() -> MonotonicMicros {
    read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(MonotonicMicros(0))
}

/// All clocks, to be compared.
#[must_use]
pub fn all() -> Reading {
    // The order matters: see `Reading`.
    Reading { wall: now(), monotonic: monotonic(), awake: awake() }
}

/// A clock of the system; `None` if there is no such clock.
fn read(clock: libc::clockid_t) -> Option<MonotonicMicros> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for a write.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    Some(MonotonicMicros(part(time.tv_sec).saturating_mul(1_000_000).saturating_add(part(time.tv_nsec) / 1_000)))
}
