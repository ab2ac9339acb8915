//! When the module has to run next.

use crate::engine::Engine;
use crate::lock::time::{MonotonicMicros, UnixMicros};

/// When the module has to run next, on both clocks; never if neither is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wake {
    /// The end of a wait or of a reserved place, or pending work: [`Wake::AT_ONCE`] if it can be done now.
    pub end: Option<MonotonicMicros>,
    /// When a lock with waiters becomes free on its own.
    pub due: Option<UnixMicros>,
}

impl Wake {
    /// The due time of work that can be done now.
    pub const AT_ONCE: MonotonicMicros = MonotonicMicros(0);

    /// Whether there is nothing to wake up for.
    #[must_use]
    pub fn is_never(self) -> bool {
        self == Self::default()
    }

    /// Whether a timer that was set for this fires in time for `other`, whatever the clocks do.
    #[must_use]
    pub fn is_in_time_for(self, other: Self) -> bool {
        let end = other.end.is_none_or(|end| self.end.is_some_and(|own| own <= end));
        let due = other.due.is_none_or(|due| self.due.is_some_and(|own| own <= due));
        self.end == Some(Self::AT_ONCE) || (end && due)
    }
}

impl<H> Engine<H> {
    /// When the module has to run next.
    #[must_use]
    pub fn wake(&self) -> Wake {
        let ready = self.queues.has_ready().then_some(self.postponed);
        let has_rest = self.outstanding.lost() > 0 || !self.ended.is_empty();
        let rest = has_rest.then(|| self.postponed.max(self.rest_postponed));
        let has_more = self.has_leaving() || self.queues.is_checking_slots();
        let now = (self.gate.is_sweeping() || !self.outbox.is_empty() || has_more).then_some(None);
        let work = [ready, rest, now].into_iter().flatten().map(|postponed| postponed.unwrap_or(Wake::AT_ONCE));
        let deadline = self.claims.next_deadline().map(|deadline| deadline.unwrap_or(Wake::AT_ONCE));
        let kept = self.kept.next_end();
        let end = self.queues.next_end().into_iter().chain(deadline).chain(work).chain(kept).min();
        Wake { end, due: self.queues.next_due() }
    }
}
