//! Looks after what no timer and no event tells: locks that others changed in silence, steps of the clock, suspends.

use super::context::Context;
use super::{clock_watch, failover, leases, state, timer};
use crate::broken::{self, Mutant};
use crate::lock::time::Micros;

/// How often every lock that is waited for is looked at: who changed it may have told nobody.
const LOOK_AT_ALL: Micros = Micros(900_000);
/// So many are looked at in every tick, where nobody tells of keys that come free.
const FEW_WAITERS: usize = 1_000;

/// Called by the server some ten times a second: what there is to look after.
pub fn tick(context: &Context) {
    let now = clock_watch::compare(context);
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
