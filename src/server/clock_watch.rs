//! Compares the clocks: leases run by the wall clock, and a machine that was suspended may have been replaced.

use super::context::{log_warning, Context};
use super::stats::Counter;
use super::{clock, state, timer};
use crate::lock::time::MonotonicMicros;

/// Logs and counts steps of the wall clock and suspends of the machine since the last look. After either a server with
/// a failover grace cannot tell whether it is still the master. The time on the clock that is never set.
pub fn compare(context: &Context) -> MonotonicMicros {
    let reading = clock::all();
    let jumps = state::with(|state| {
        let jumps = state.clocks.compare(&reading);
        if jumps.step_us.is_some() {
            state.stats.add(Counter::ClockSteps);
        }
        if !jumps.is_none() {
            state.reign.doubt();
        }
        jumps
    });
    let jumps = jumps.unwrap_or_default();
    if jumps.is_timer_off {
        timer::stop(context);
    }
    if let Some(suspended) = jumps.suspended {
        let ms = suspended.as_ms();
        log_warning(&format!(
            "the machine was suspended for {ms} ms: leases ran on, and waits that ended are answered now"
        ));
    }
    if let Some(step_us) = jumps.step_us {
        let ms = step_us / 1_000;
        log_warning(&format!("the wall clock was set by {ms} ms: leases end by so much earlier or later"));
    }
    reading.monotonic
}
