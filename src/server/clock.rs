//! The server's wall clock and the monotonic clocks, in microseconds.
//!
//! `CLOCK_MONOTONIC` stops while a Linux machine is suspended, but leases and waits do not. So the monotonic clock is
//! `CLOCK_BOOTTIME`, which counts suspended time, and `CLOCK_MONOTONIC` serves only to detect a suspend. On macOS,
//! `CLOCK_MONOTONIC_RAW` counts suspended time (it is `mach_continuous_time`), and `CLOCK_UPTIME_RAW` does not.

use crate::engine;
use crate::lock::clocks::Reading;
use crate::lock::time::{MonotonicMicros, UnixMicros};
use crate::server::api::api;

#[cfg(not(target_vendor = "apple"))]
use libc::{CLOCK_BOOTTIME as CONTINUOUS, CLOCK_MONOTONIC as AWAKE};
#[cfg(target_vendor = "apple")]
use libc::{CLOCK_MONOTONIC_RAW as CONTINUOUS, CLOCK_UPTIME_RAW as AWAKE};

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

    fn cpu(self) -> MonotonicMicros {
        cpu()
    }
}

/// Now: from the server if it provides microseconds (7.2 and later), otherwise from the system's clock, which is the
/// same.
#[must_use]
pub fn now() -> UnixMicros {
    if let Some(microseconds) = api().microseconds {
        // SAFETY: takes nothing, reads the clock.
        return UnixMicros(u64::try_from(unsafe { microseconds() }).unwrap_or(0));
    }
    let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
    // SAFETY: `time` is valid for a write; the time zone argument may be null.
    unsafe { libc::gettimeofday(&raw mut time, std::ptr::null_mut()) };
    UnixMicros(part(time.tv_sec).saturating_mul(1_000_000).saturating_add(part(time.tv_usec)))
}

/// The running command's time: the server's reading from when the command began, if available (7.2 and later),
/// otherwise now. With the former, a transaction or a script is one point in time.
#[must_use]
pub fn of_command() -> UnixMicros {
    match api().cached_microseconds {
        // SAFETY: takes nothing, reads a server variable.
        Some(cached) => UnixMicros(u64::try_from(unsafe { cached() }).unwrap_or(0)),
        None => now(),
    }
}

/// Now, on a monotonic clock that keeps running during a suspend: measures waits.
#[must_use]
pub fn monotonic() -> MonotonicMicros {
    read(CONTINUOUS).unwrap_or_else(awake)
}

/// Now, on a monotonic clock that stops during a suspend.
fn awake() -> MonotonicMicros {
    read(AWAKE).unwrap_or(MonotonicMicros(0))
}

/// The main thread's CPU time: measures how much of it something takes, whatever else the machine does.
#[must_use]
pub fn cpu() -> MonotonicMicros {
    read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(MonotonicMicros(0))
}

/// Reads all clocks, for comparison.
#[must_use]
pub fn all() -> Reading {
    // The order matters: see `Reading`.
    Reading { wall: now(), monotonic: monotonic(), awake: awake() }
}

/// A part of a time, whose type depends on the platform.
fn part(value: impl TryInto<u64>) -> u64 {
    value.try_into().unwrap_or(0)
}

/// Reads a system clock; `None` if there is no such clock.
fn read(clock: libc::clockid_t) -> Option<MonotonicMicros> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for a write.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    Some(MonotonicMicros(part(time.tv_sec).saturating_mul(1_000_000).saturating_add(part(time.tv_nsec) / 1_000)))
}
