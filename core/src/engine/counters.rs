//! Event counts since the module was loaded, for INFO.

use std::ffi::CStr;

/// Declares the counters in the order of INFO, each with its field name.
macro_rules! counters {
    ($($(#[$doc:meta])* $counter:ident => $name:literal,)*) => {
        /// A counted event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Counter {
            $($(#[$doc])* $counter,)*
        }

        impl Counter {
            /// All counters, with their field names in INFO.
            pub const ALL: &'static [(&'static CStr, Self)] = &[$(($name, Self::$counter),)*];
        }
    };
}

counters! {
    /// Locks granted, in any way.
    Grants => c"grants",
    /// Callers that did not get the lock at once.
    Refusals => c"refusals",
    /// Grants of expired locks.
    Recoveries => c"recoveries",
    /// Leases extended by LOCK.EXTEND or by the holder's ID.
    Extends => c"extends",
    /// Locks released in time.
    Releases => c"releases",
    /// Locks released after their timestamp.
    LateReleases => c"late_releases",
    /// Releases and extensions by a holder after its lease, but within the margin.
    Overruns => c"overruns",
    /// LOCK.RELEASE and LOCK.EXTEND with an ended grant's token.
    StaleTokens => c"stale_tokens",
    /// Grants to waiters.
    HandOffs => c"hand_offs",
    /// Grants to waiters that did not reach their client.
    Undelivered => c"undelivered_grants",
    /// Grants that their attempts claimed.
    Claims => c"claims",
    /// Grants that were not claimed in time.
    Unclaimed => c"unclaimed",
    /// Attempts that left the queue because their channels had no subscriber.
    NoSubscriber => c"unheard",
    /// Attempts that got the holder's result instead of its lock.
    Results => c"results",
    /// Waits that timed out.
    TimeOuts => c"wait_timeouts",
    /// Attempts ended by LOCK.CANCEL.
    Cancels => c"cancels",
    /// Waits that resumed a reserved place.
    PlacesResumed => c"places_resumed",
    /// Waits refused because they would have closed a cycle.
    Deadlocks => c"deadlocks",
    /// Waits that began unchecked: finding out whether they close a cycle would have taken too long.
    DeadlocksUnchecked => c"deadlocks_unchecked",
    /// Locks that ended with their connection.
    SessionsEnded => c"sessions_ended",
    /// Callers that met a foreign value.
    ForeignMet => c"foreign_values_met",
    /// Steps of the wall clock.
    ClockSteps => c"clock_steps",
    /// Locks that became free without an event, found by the scan of all queues.
    MissedWakeups => c"missed_wakeups",
    /// Timers set again because the server was late with them.
    LateTimers => c"late_timers",
    /// Commands for unheld locks, refused because of the failover grace.
    GraceRefusals => c"grace_refusals",
    /// Number of times that work was postponed because the server did not let the module write.
    Postponed => c"postponed",
}

/// The count of each event.
#[derive(Clone, Debug)]
pub struct Counters([u64; Counter::ALL.len()]);

impl Default for Counters {
    fn default() -> Self {
        Self([0; Counter::ALL.len()])
    }
}

impl Counters {
    /// Counts one event.
    pub fn add(&mut self, counter: Counter) {
        if let Some(count) = self.0.get_mut(counter as usize) {
            *count = count.wrapping_add(1);
        }
    }

    /// An event's count.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.0.get(counter as usize).copied().unwrap_or(0)
    }
}
