//! Whether locks may be granted or extended now, and the upkeep that this needs. It costs nothing without a failover
//! grace.

use super::edge::{Edge, Level};
use super::entry::Entry;
use crate::engine::budget::Budget;
use crate::engine::counters::Counter;
use crate::engine::gate::GraceChange;
use crate::engine::{Clock, KeyName};
use crate::lock::error::Error;
use crate::lock::grace::{Group, Settings};
use crate::lock::time::{Micros, MonotonicMicros};

impl<E: Edge> Entry<'_, E> {
    /// For a command that asks for a lock: checks the lease, and returns whether the lock may be granted.
    pub(super) fn gate(&mut self, lease: Micros) -> Result<Result<(), Error>, Error> {
        let Some(settings) = self.edge.grace() else { return Ok(Ok(())) };
        settings.check(lease)?;
        Ok(self.may_grant_under(&settings))
    }

    /// Whether a lease is short enough.
    pub(super) fn check_lease(&mut self, lease: Micros) -> Result<(), Error> {
        self.edge.grace().map_or(Ok(()), |settings| settings.check(lease))
    }

    /// Whether a lock may be granted.
    pub(super) fn may_grant(&mut self) -> Result<(), Error> {
        let settings = self.edge.grace();
        settings.map_or(Ok(()), |settings| self.may_grant_under(&settings))
    }

    fn may_grant_under(&mut self, settings: &Settings) -> Result<(), Error> {
        let now = self.compare_clocks();
        self.engine().gate().reign().may_grant(settings, now)
    }

    /// Whether a lease may be extended.
    pub(super) fn may_extend(&mut self) -> Result<(), Error> {
        let Some(settings) = self.edge.grace() else { return Ok(()) };
        let now = self.compare_clocks();
        self.engine().gate().reign().may_extend(&settings, now)
    }

    /// Logs and counts wall clock steps and machine suspends since the last comparison. Returns the monotonic time.
    /// Every gate check compares the clocks instead of leaving it to the next tick: a suspended machine can wake up in
    /// the middle of anything.
    pub(super) fn compare_clocks(&mut self) -> MonotonicMicros {
        let reading = self.edge.reading();
        let jumps = {
            let mut engine = self.engine();
            let jumps = engine.gate().compare(&reading);
            if jumps.step_us.is_some() {
                engine.count(Counter::ClockSteps);
            }
            jumps
        };
        if jumps.is_timer_off {
            self.stop_timer();
        }
        if let Some(suspended) = jumps.suspended {
            let ms = suspended.as_ms();
            let text = format!(
                "the machine was suspended for {ms} ms: leases kept running, and waits that ended are answered now"
            );
            self.edge.log(Level::Warning, &text);
        }
        if let Some(step_us) = jumps.step_us {
            let ms = step_us / 1_000;
            let text = format!("the wall clock was set by {ms} ms: leases end earlier or later by that much");
            self.edge.log(Level::Warning, &text);
        }
        reading.monotonic
    }

    /// For a command that passes a lock on: whether the lock may be granted. First ends waits for leases that are too
    /// long.
    pub(super) fn may_grant_in_queue(&mut self, key: KeyName<'_>, budget: &mut Budget) -> bool {
        let Some(settings) = self.edge.grace() else { return true };
        let may_grant = self.may_grant_under(&settings).is_ok();
        let queue = self.engine().awaited_queue(key);
        queue.is_none_or(|queue| self.engine().end_leases_beyond_grace(queue, &settings, budget)) && may_grant
    }

    /// Continues a check of all waiters, which begins when a grace is set or shortened.
    pub(super) fn sweep_leases(&mut self, budget: &mut Budget) {
        let is_sweeping = self.engine().gate().is_sweeping();
        let settings = if is_sweeping { self.edge.grace() } else { None };
        if let Some(settings) = settings {
            self.engine().sweep_leases(&settings, budget);
        }
    }

    /// Runs on every tick: checks whether the server stalled, and whether its replicas have answered since.
    pub(super) fn maintain_gate(&mut self, now: MonotonicMicros) {
        self.log_grace(now);
        let settings = self.edge.grace();
        let longest = settings.and_then(|settings| settings.longest_lease());
        let (is_off, is_late) = {
            let mut engine = self.engine();
            let gate = engine.gate();
            gate.set_longest_lease(longest);
            (settings.is_none() && !gate.is_misconfigured(), gate.has_to_check(now))
        };
        if is_off {
            return;
        }
        if is_late {
            self.check_settings();
        }
        let Some(settings) = settings else { return };
        let (stalled, has_to_inspect) = {
            let mut engine = self.engine();
            let reign = engine.gate().reign();
            (reign.begin_turn(&settings, now), reign.has_to_inspect(&settings, now))
        };
        if stalled {
            self.edge.log(
                Level::Warning,
                "the server stalled: no lease until its replicas have acknowledged what is replicated from now on",
            );
        }
        if has_to_inspect {
            let replication = self.edge.replication();
            let replicas = replication.as_ref().map(|replication| (replication.offset, replication.answers.as_slice()));
            self.engine().gate().inspect(&settings, replicas, now);
        }
    }

    /// Reads the settings and logs any misconfiguration once.
    pub fn check_settings(&mut self) {
        let settings = self.edge.grace().unwrap_or(Settings::OFF);
        let longest = settings.longest_lease();
        // This is not left to the next tick, because a briefly raised grace would admit waits for longer leases.
        self.engine().gate().set_longest_lease(longest);
        let connected = if longest.is_some() { self.edge.replicas() } else { 0 };
        let clock = self.edge.clock();
        let misconfiguration = {
            let mut engine = self.engine();
            let group = Group { connected, latest: engine.latest() };
            engine.gate().new_misconfiguration(&settings, &group, (clock.now(), clock.monotonic()))
        };
        if let Some(misconfiguration) = misconfiguration {
            self.edge.log(Level::Warning, misconfiguration.text());
        }
    }

    /// Logs that a grace, during which this server grants nothing, began or ended since the last tick, and what it
    /// refused.
    fn log_grace(&mut self, now: MonotonicMicros) {
        let is_replica = self.edge.is_replica();
        let settings = self.edge.grace().filter(|_| !is_replica);
        let (change, waiters) = {
            let mut engine = self.engine();
            let refused = engine.counters().get(Counter::GraceRefusals);
            let left = settings.map_or(Micros(0), |settings| engine.gate_ref().grace_left(&settings, now));
            (engine.gate().grace_changed(left, refused), engine.queues().waiters())
        };
        let text = match change {
            None => return,
            Some(GraceChange::Begun(left)) => {
                format!("a grace has begun: no lock is granted for the next {} ms", left.as_ms())
            }
            Some(GraceChange::Ended { refused }) if is_replica => {
                format!("the grace has ended: this server is a replica now. Calls refused with GRACE: {refused}")
            }
            Some(GraceChange::Ended { refused }) => format!(
                "the grace has ended: locks are granted. Calls refused with GRACE: {refused}, attempts that wait: \
                 {waiters}"
            ),
        };
        self.edge.log(Level::Notice, &text);
    }

    /// Counts a command that the grace refused for a lock that nobody held. Returns its error.
    pub(super) fn refused_by_gate(&mut self, error: Error) -> Error {
        if matches!(error, Error::Grace(_)) {
            self.engine().count(Counter::GraceRefusals);
        }
        error
    }
}
