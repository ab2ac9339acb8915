//! One timer of the server for everything that the module does later, set to the earliest.
//!
//! The server's timers run on the wall clock: after that is set back they are late. So what is due
//! is kept in monotonic time, and a timer that is overdue is made anew.

use super::api::api;
use super::callback::guarded;
use super::context::Context;
use super::{clock, serve, state};
use crate::lock::time::{Micros, MonotonicMicros};
use redis_module::raw;

/// A timer that has not fired yet.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    id: raw::RedisModuleTimerID,
    at: MonotonicMicros,
}

/// Makes sure that the timer fires in `delay` at the latest.
pub fn arm(context: &Context, delay: Micros) {
    let now = clock::monotonic();
    let at = now.after(delay);
    let armed = state::with(|state| state.timer).ok().flatten();
    match armed {
        Some(timer) if timer.at <= at => return,
        Some(timer) => stop(context, timer),
        None => {}
    }
    let period = i64::try_from(delay.as_ms_ceil()).unwrap_or(i64::MAX).min(MAX_PERIOD_MS);
    // SAFETY: the context is valid; the callback is static and takes no data.
    let id = unsafe { (api().create_timer)(context.as_ptr(), period, Some(fire), std::ptr::null_mut()) };
    let _ = state::with(|state| state.timer = Some(Timer { id, at }));
}

/// A day: a later deadline is looked at again then.
const MAX_PERIOD_MS: i64 = 86_400_000;

/// Stops the timer, for good: the module is unloaded. Redis 6.2 lets that happen while there is one,
/// and would call code that is gone.
pub fn stop_for_unload(context: &Context) {
    if let Ok(Some(timer)) = state::with(|state| state.timer) {
        stop(context, timer);
    }
}

/// Makes a timer anew that should have fired by now.
pub fn renew_if_late(context: &Context, now: MonotonicMicros) {
    const GRACE: Micros = Micros(100_000);
    if let Ok(Some(timer)) = state::with(|state| state.timer) {
        if timer.at.after(GRACE) < now {
            stop(context, timer);
            arm(context, Micros(0));
        }
    }
}

fn stop(context: &Context, timer: Timer) {
    // SAFETY: the context is valid; the server says so when it no longer knows the timer.
    unsafe { (api().stop_timer)(context.as_ptr(), timer.id, std::ptr::null_mut()) };
    let _ = state::with(|state| state.timer = None);
}

unsafe extern "C" fn fire(ctx: *mut raw::RedisModuleCtx, _data: *mut libc::c_void) {
    // SAFETY: the server's own context, good until this returns.
    let context = unsafe { Context::new(ctx) };
    guarded(|| {
        // It has fired: from here on there is none, and it must not be stopped.
        let _ = state::with(|state| state.timer = None);
        serve::turn(&context);
    });
}
