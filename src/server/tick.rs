//! Looks after what no timer and no event tells: locks that others changed in silence, and steps of the clock.

use super::context::{log_warning, Context};
use super::stats::Counter;
use super::{clock, failover, leases, state, timer};
use crate::broken::{self, Mutant};
use crate::lock::time::{Micros, MonotonicMicros};

/// How often every lock that is waited for is looked at: who changed it may have told nobody.
const LOOK_AT_ALL: Micros = Micros(900_000);
/// So many are looked at in every tick, where nobody tells of keys that come free.
const FEW_WAITERS: usize = 1_000;

/// Called by the server some ten times a second: what there is to look after.
pub fn tick(context: &Context) {
    let now = clock::monotonic();
    watch_clock(context, now);
    failover::run(context, now);
    leases::look(context);
    timer::stop_if_late(context, now);
    let _ = state::with(|state| {
        state.kept.tick();
        let always = !state.can_be_listened_to() && state.queues.waiters() <= FEW_WAITERS;
        let looks = (always || now.since(state.looked_at_all) >= LOOK_AT_ALL) && !broken::is(Mutant::NoLook);
        if looks {
            state.looked_at_all = now;
            state.queues.look_again();
        }
    });
}

/// Logs and counts steps of the wall clock: leases are counted by it.
fn watch_clock(context: &Context, now: MonotonicMicros) {
    /// What a clock that is kept in time by small corrections never reaches between two looks.
    const STEP_US: u64 = 500_000;
    /// By so much a lock may come free late: the timer was set by the clock as it was.
    const SLEW_US: u64 = 5_000;
    let ahead = clock::now().0.wrapping_sub(now.0);
    let step = state::with(|state| {
        let before = state.wall_ahead.replace(ahead)?;
        Some(ahead.wrapping_sub(before).cast_signed())
    });
    let Ok(Some(step)) = step else { return };
    if step.unsigned_abs() >= SLEW_US {
        timer::stop(context);
    }
    if step.unsigned_abs() >= STEP_US {
        let _ = state::with(|state| {
            state.stats.add(Counter::ClockSteps);
            state.reign.doubt();
        });
        log_warning(&format!("the wall clock was set by {} ms: leases end by so much earlier or later", step / 1_000));
    }
}
