//! Whether this server may grant locks now, across failovers: asks the pure rules of
//! [`crate::lock::grace`] and looks at the replicas.

use super::context::{log_notice, log_warning, Context, ServerInfo};
use super::{clock, clock_watch, serve, settings, state};
use crate::broken::{self, Mutant};
use crate::lock::error::Error;
use crate::lock::grace::{Answer, Group, Reign, Settings};
use crate::lock::time::{Micros, MonotonicMicros};
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};

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
    // Not left to the next tick: a machine that was suspended wakes up in the middle of anything.
    let now = if broken::is(Mutant::SleepsThrough) { clock::monotonic() } else { clock_watch::compare(context) };
    state::with(|state| question(&mut state.reign, &settings, now))?
}

fn begin_turn(settings: &Settings, now: MonotonicMicros) {
    if state::with(|state| state.reign.begin_turn(settings, now)) == Ok(true) {
        log_warning("the server stood still: no lease until its replicas have answered what is replicated from now on");
    }
}

/// How often the settings are held against the replicas and the leases.
const LOOK_FOR_FAULT: Micros = Micros(1_000_000);

/// Finds what is wrong with the settings, and logs it once.
pub fn look_for_fault(context: &Context) {
    let settings = state::grace_settings(context);
    let connected = || context.server_info(c"replication", c"connected_slaves")?.trim().parse().ok();
    let connected = if settings.longest_lease().is_some() { connected().unwrap_or(0) } else { 0 };
    let now = clock::monotonic();
    let found = state::with(|state| {
        state.looked_at_grace = now;
        let group = Group { connected, latest: state.latest };
        let fault = settings.fault(&group, clock::now());
        let before = std::mem::replace(&mut state.grace_fault, fault);
        fault.filter(|_| fault != before)
    });
    if let Ok(Some(fault)) = found {
        log_warning(fault.text());
    }
}

/// Logs that a grace began or ended since the last look, in which time this server granted nothing.
fn log_grace(context: &Context) {
    let is_replica = context.is_replica();
    let change = state::with(|state| {
        let left = if is_replica { Micros(0) } else { state.grace_left() };
        let is_on = left > Micros(0);
        (std::mem::replace(&mut state.grace_is_on, is_on) != is_on).then_some(left)
    });
    match change {
        Ok(Some(Micros(0))) if is_replica => {}
        Ok(Some(Micros(0))) => log_notice("the grace has ended: locks are granted"),
        Ok(Some(left)) => {
            log_notice(&format!("a grace has begun: no lock is granted for the next {} ms", left.as_ms()));
        }
        _ => {}
    }
}

/// The server runs: notices that it stood still, and whether its replicas have answered since.
pub fn run(context: &Context, now: MonotonicMicros) {
    look_at_role(context);
    log_grace(context);
    let (is_off, is_late) = state::with(|state| {
        let is_off = settings::failover_grace() == Micros(0) && state.grace_fault.is_none();
        (is_off, now.since(state.looked_at_grace) >= LOOK_FOR_FAULT)
    })
    .unwrap_or((true, false));
    if is_off {
        return;
    }
    if is_late {
        look_for_fault(context);
    }
    let settings = state::grace_settings(context);
    begin_turn(&settings, now);
    if state::with(|state| state.reign.has_to_look(&settings, now)) != Ok(true) {
        return;
    }
    let replication = context.server_section(c"replication");
    let offset = replication.as_ref().and_then(|info| info.field(c"master_repl_offset")?.trim().parse().ok());
    let answers = replication.as_ref().map(answers).unwrap_or_default();
    let _ = state::with(|state| match offset {
        Some(offset) => state.reign.look(&settings, offset, &answers, now),
        // Nothing can be told of the replicas.
        None => state.reign.doubt(),
    });
}

/// What the replicas have answered.
fn answers(replication: &ServerInfo<'_>) -> Vec<Answer> {
    let number = |number: u32| CString::new(format!("slave{number}")).ok();
    let replica = |field: CString| replication.field(&field);
    let answer = |text: String| {
        let value = |name| text.split(',').find_map(|part| part.strip_prefix(name))?.trim().parse::<i64>().ok();
        let offset = u64::try_from(value("offset=")?).ok()?;
        text.contains("state=online").then_some(Answer { offset, lag_s: value("lag=")? })
    };
    (0..MOST_REPLICAS).map_while(|at| number(at).and_then(replica)).filter_map(answer).collect()
}

/// More replicas are not looked at.
const MOST_REPLICAS: u32 = 64;

/// Whether this server is a replica: asked by every command that writes, for which the server's own answer takes long.
static IS_REPLICA: AtomicBool = AtomicBool::new(false);

/// Whether this server is a replica.
#[must_use]
pub fn is_replica() -> bool {
    IS_REPLICA.load(Ordering::Relaxed) && !broken::is(Mutant::ReplicaGrants)
}

/// Asks the server for its role.
pub fn look_at_role(context: &Context) {
    IS_REPLICA.store(context.is_replica(), Ordering::Relaxed);
}

/// This server is a replica from now on: all waits and sessions end.
pub fn demoted() {
    IS_REPLICA.store(true, Ordering::Relaxed);
    serve::end_all(Error::Demoted);
}

/// This server is master from now on.
pub fn promoted() {
    IS_REPLICA.store(false, Ordering::Relaxed);
    let _ = state::with(|state| {
        state.kept.clear();
        state.reign = Reign::begin(clock::monotonic());
    });
}
