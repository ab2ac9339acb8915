//! Looks after what no timer and no event tells: locks that others changed in silence, and steps of the clock.

use super::context::{log_warning, Context};
use super::stats::Counter;
use super::{clock, failover, state, timer, waiting};
use crate::broken::{self, Mutant};
use crate::lock::time::{Micros, MonotonicMicros};

/// How often every lock that is waited for is looked at: who changed it may have told nobody.
const LOOK_AT_ALL: Micros = Micros(900_000);
/// So many are looked at in every tick, where nobody tells of keys that come free.
const FEW_WAITERS: usize = 1_000;

/// Called by the server some ten times a second: what there is to look after.
pub fn tick(context: &Context) {
    let now = clock::monotonic();
    watch_clock(now);
    failover::run(context, now);
    let looks = state::with(|state| {
        state.kept.tick();
        if state.queues.is_empty() && !state.has_work() {
            return None;
        }
        let always = !state.can_be_listened_to() && state.queues.waiters() <= FEW_WAITERS;
        let looks = (always || now.since(state.looked_at_all) >= LOOK_AT_ALL) && !broken::is(Mutant::NoLook);
        if looks {
            state.looked_at_all = now;
            state.queues.look_again();
        }
        Some(looks)
    });
    match looks {
        Ok(Some(true)) => waiting::schedule(context),
        Ok(Some(false)) => timer::renew_if_late(context, now),
        _ => {}
    }
}

/// Logs and counts steps of the wall clock: leases are counted by it.
fn watch_clock(now: MonotonicMicros) {
    /// What a clock that is kept in time by small corrections never reaches between two looks.
    const STEP_US: u64 = 500_000;
    let ahead = clock::now().0.wrapping_sub(now.0);
    let step = state::with(|state| {
        let before = state.wall_ahead.replace(ahead)?;
        let step = ahead.wrapping_sub(before).cast_signed();
        (step.unsigned_abs() >= STEP_US).then(|| {
            state.stats.add(Counter::ClockSteps);
            state.reign.doubt();
            step
        })
    });
    if let Ok(Some(step)) = step {
        log_warning(&format!("the wall clock was set by {} ms: leases end by so much earlier or later", step / 1_000));
    }
}
