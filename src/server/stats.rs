//! What has happened since the module was loaded, for INFO.

use super::state;
use crate::lock::rules::{Release, State};
use crate::lock::time::Micros;
use hdrhistogram::Histogram;

/// Counters, in the order of INFO.
#[derive(Clone, Copy, Debug)]
pub enum Counter {
    /// Locks granted, in whatever way.
    Grants,
    /// Callers that did not get the lock at once.
    Refusals,
    /// Grants of an expired lock.
    Recoveries,
    /// Leases set anew, by LOCK.EXTEND or by the ID of the holder.
    Extends,
    /// Locks given back in time.
    Releases,
    /// Locks given back after their timestamp.
    LateReleases,
    /// LOCK.RELEASE and LOCK.EXTEND of a grant that was over.
    StaleTokens,
    /// Grants to one who waited.
    HandOffs,
    /// Of those, grants that did not reach their client.
    Undelivered,
    /// Waits whose time was over.
    TimeOuts,
    /// Attempts ended by LOCK.CANCEL.
    Cancels,
    /// Waits that went on in a place that was kept.
    PlacesResumed,
    /// Waits that would have closed a circle.
    Deadlocks,
    /// Waits that began although there was too much to inspect to tell whether they close a circle.
    DeadlocksUnchecked,
    /// Locks that ended with their connection.
    SessionsEnded,
    /// Callers that met a foreign value.
    ForeignMet,
    /// Steps of the wall clock.
    ClockSteps,
    /// Locks that had come free without an event, found by the scan of all lines.
    MissedWakeups,
    /// Timers that were set anew because the server was late with them.
    LateTimers,
    /// Times when work was put off because the server did not let the module write.
    Postponed,
}

impl Counter {
    /// All of them, with their names in INFO.
    pub const ALL: [(&'static std::ffi::CStr, Self); 20] = [
        (c"grants", Self::Grants),
        (c"refusals", Self::Refusals),
        (c"recoveries", Self::Recoveries),
        (c"extends", Self::Extends),
        (c"releases", Self::Releases),
        (c"late_releases", Self::LateReleases),
        (c"stale_tokens", Self::StaleTokens),
        (c"hand_offs", Self::HandOffs),
        (c"undelivered_grants", Self::Undelivered),
        (c"wait_timeouts", Self::TimeOuts),
        (c"cancels", Self::Cancels),
        (c"places_resumed", Self::PlacesResumed),
        (c"deadlocks", Self::Deadlocks),
        (c"deadlocks_unchecked", Self::DeadlocksUnchecked),
        (c"sessions_ended", Self::SessionsEnded),
        (c"foreign_values_met", Self::ForeignMet),
        (c"clock_steps", Self::ClockSteps),
        (c"missed_wakeups", Self::MissedWakeups),
        (c"late_timers", Self::LateTimers),
        (c"postponed", Self::Postponed),
    ];
}

/// What has happened.
pub struct Stats {
    counters: [u64; Counter::ALL.len()],
    /// How long those waited who got the lock, in µs.
    pub waits: Spans,
    /// How long locks were held that were given back, in µs.
    pub holds: Spans,
}

/// A day in µs: what takes longer counts as a day.
const LONGEST_US: u64 = 86_400_000_000;

impl Default for Stats {
    fn default() -> Self {
        Self { counters: [0; Counter::ALL.len()], waits: Spans::new(), holds: Spans::new() }
    }
}

impl Stats {
    /// One more.
    pub fn add(&mut self, counter: Counter) {
        if let Some(count) = self.counters.get_mut(counter as usize) {
            *count = count.wrapping_add(1);
        }
    }

    /// Gives back the memory of all that was recorded: the module is unloaded.
    pub fn unload(&mut self) {
        self.waits = Spans(None);
        self.holds = Spans(None);
    }

    /// How many.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.counters.get(counter as usize).copied().unwrap_or(0)
    }
}

/// Counts one more.
pub fn add(counter: Counter) {
    let _ = state::with(|state| state.stats.add(counter));
}

/// A caller did not get the lock.
pub fn refused(lock: State<'_>) {
    let _ = state::with(|state| {
        state.stats.add(Counter::Refusals);
        if lock == State::Foreign {
            state.stats.add(Counter::ForeignMet);
        }
    });
}

/// What became of a release.
pub fn released(release: Release) {
    add(match release {
        Release::InTime => Counter::Releases,
        Release::Late => Counter::LateReleases,
        Release::Over => Counter::StaleTokens,
    });
}

/// How long something took, each time.
pub struct Spans(Option<Histogram<u64>>);

impl Spans {
    /// Two significant digits up to a day: some 20 KB.
    fn new() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST_US, 2).ok())
    }

    /// One more.
    pub fn record(&mut self, span: Micros) {
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(span.0.clamp(1, LONGEST_US));
        }
    }

    /// What so many percent of them did not exceed, in µs; nothing where there was none.
    #[must_use]
    pub fn percentile_us(&self, percent: f64) -> Option<u64> {
        let histogram = self.0.as_ref().filter(|histogram| !histogram.is_empty())?;
        Some(histogram.value_at_percentile(percent))
    }
}
