//! One timer of the server for everything that the module does later, set to the earliest.
//!
//! [`finish`] sets it at the end of every call from the server, and nothing else does. The server's timers run on the
//! wall clock: after that is set back they are late. So the timer remembers when it is due in monotonic time, and one
//! that is overdue is set anew.

use super::api::api;
use super::callback::entry;
use super::context::Context;
use super::stats::Counter;
use super::{clock, serve, state};
use crate::lock::time::{Micros, MonotonicMicros, UnixMicros};
use redis_module::raw;

/// When the module has to run next, on both clocks; nothing in neither: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wake {
    /// The end of a wait or of a reserved place, or work that is waiting: at once for [`MonotonicMicros`] 0.
    pub end: Option<MonotonicMicros>,
    /// A lock that is waited for comes free by itself.
    pub due: Option<UnixMicros>,
}

impl Wake {
    fn is_never(self) -> bool {
        self == Self::default()
    }

    /// Whether a timer that was set for this fires in time for `other`, whatever the clocks say.
    fn is_in_time_for(self, other: Self) -> bool {
        let end = other.end.is_none_or(|end| self.end.is_some_and(|own| own <= end));
        let due = other.due.is_none_or(|due| self.due.is_some_and(|own| own <= due));
        self.end == Some(AT_ONCE) || (end && due)
    }
}

/// The end of everything that is to be done now.
pub const AT_ONCE: MonotonicMicros = MonotonicMicros(0);

/// A timer that has not fired yet.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    id: raw::RedisModuleTimerID,
    wake: Wake,
    at: MonotonicMicros,
}

/// Sets the timer to what is due next, or stops it: the server is not unloaded while there is one. The clocks are read
/// only when it has to be set; one that fires too early does no harm.
pub fn finish(context: &Context) {
    let Ok((timer, wake)) = state::with(|state| (state.timer, state.wake())) else { return };
    match timer {
        None if wake.is_never() => {}
        Some(timer) if !wake.is_never() && timer.wake.is_in_time_for(wake) => {}
        timer => {
            if timer.is_some() {
                stop(context);
            }
            if !wake.is_never() {
                set(context, wake);
            }
        }
    }
}

fn set(context: &Context, wake: Wake) {
    let now = clock::monotonic();
    let end = wake.end.map(|end| end.since(now));
    let due = wake.due.map(|due| due.since(clock::now()));
    let delay = end.into_iter().chain(due).min().unwrap_or(Micros(0));
    let period = i64::try_from(delay.as_ms_ceil()).unwrap_or(i64::MAX).min(MAX_PERIOD_MS);
    // SAFETY: the context is valid; the callback is static and takes no data.
    let id = unsafe { (api().create_timer)(context.as_ptr(), period, Some(fire), std::ptr::null_mut()) };
    let _ = state::with(|state| state.timer = Some(Timer { id, wake, at: now.after(delay) }));
}

/// A day: a later deadline is looked at again then.
const MAX_PERIOD_MS: i64 = 86_400_000;

/// Stops the timer; unless the module is unloaded, it is set anew when the call ends. Redis 6.2 unloads a module that
/// has one, and would call code that is gone.
pub fn stop(context: &Context) {
    if let Ok(Some(timer)) = state::with(|state| state.timer) {
        // SAFETY: the context is valid; the server says so when it no longer knows the timer.
        unsafe { (api().stop_timer)(context.as_ptr(), timer.id, std::ptr::null_mut()) };
        let _ = state::with(|state| state.timer = None);
    }
}

/// Stops a timer that should have fired by now, to be set anew.
pub fn stop_if_late(context: &Context, now: MonotonicMicros) {
    const LATE: Micros = Micros(100_000);
    if let Ok(Some(timer)) = state::with(|state| state.timer) {
        if timer.at.after(LATE) < now {
            stop(context);
            let _ = state::with(|state| state.stats.add(Counter::LateTimers));
        }
    }
}

unsafe extern "C" fn fire(ctx: *mut raw::RedisModuleCtx, _data: *mut libc::c_void) {
    // SAFETY: the server's own context, good until this returns.
    let context = unsafe { Context::new(ctx) };
    entry(&context, || {
        // It has fired: from here on there is none, and it must not be stopped.
        let _ = state::with(|state| state.timer = None);
        serve::turn(&context);
    });
}
