//! Whether this server may grant locks now, across failovers: asks the pure rules of
//! [`crate::lock::grace`] and looks at the replicas.

use super::context::{log_warning, Context};
use super::{clock, settings, state};
use crate::lock::error::Error;
use crate::lock::grace::{Reign, Settings};
use crate::lock::time::{Micros, MonotonicMicros};

/// Whether a lock may be granted for that long.
///
/// # Errors
/// [`Error::Grace`], [`Error::NoReplicas`]
pub fn may_grant(context: &Context) -> Result<(), Error> {
    ask(context, Reign::may_grant)
}

/// Whether a lease may be set anew.
///
/// # Errors
/// [`Error::NoReplicas`]
pub fn may_extend(context: &Context) -> Result<(), Error> {
    ask(context, Reign::may_extend)
}

/// Whether a lease is short enough.
///
/// # Errors
/// [`Error::LeaseBeyondGrace`]
pub fn check_lease(context: &Context, lease: Micros) -> Result<(), Error> {
    if settings::failover_grace() == Micros(0) {
        return Ok(());
    }
    state::grace_settings(context).check(lease)
}

fn ask(
    context: &Context,
    question: impl FnOnce(&mut Reign, &Settings, MonotonicMicros) -> Result<(), Error>,
) -> Result<(), Error> {
    if settings::failover_grace() == Micros(0) {
        return Ok(());
    }
    let settings = state::grace_settings(context);
    state::with(|state| question(&mut state.reign, &settings, clock::monotonic()))?
}

/// The server runs: notices that it stood still, and whether its replicas have answered since.
pub fn run(context: &Context, now: MonotonicMicros) {
    let settings = state::grace_settings(context);
    let stalled = state::with(|state| state.reign.run(&settings, now));
    if stalled == Ok(true) {
        log_warning("the server stood still for longer than min-replicas-max-lag: no lease until its replicas answer");
    }
    let is_doubtful = state::with(|state| state.reign.is_doubtful());
    if is_doubtful == Ok(true) && replicas_have_answered(context, &settings) {
        let _ = state::with(|state| state.reign.confirm());
    }
}

/// Whether as many replicas as `min-replicas-to-write` have answered within the allowed lag. A lag
/// below zero is none: the clock was set.
fn replicas_have_answered(context: &Context, settings: &Settings) -> bool {
    let wanted = state::min_replicas(context);
    let max_lag_s = i64::try_from(settings.max_lag.as_ms() / 1_000).unwrap_or(i64::MAX);
    let mut good = 0_u64;
    for number in 0..MOST_REPLICAS {
        let Ok(field) = std::ffi::CString::new(format!("slave{number}")) else { break };
        let Some(replica) = context.server_info(c"replication", &field) else { break };
        let lag = replica.split(',').find_map(|part| part.strip_prefix("lag=")?.trim().parse::<i64>().ok());
        let is_online = replica.contains("state=online");
        if is_online && lag.is_some_and(|lag| (0..=max_lag_s).contains(&lag)) {
            good = good.saturating_add(1);
        }
    }
    good >= wanted
}

/// More replicas are not looked at.
const MOST_REPLICAS: u32 = 64;

/// This server is master from now on.
pub fn promoted() {
    let _ = state::with(|state| state.reign = Reign::begin(clock::monotonic()));
}
