//! Whether locks may be granted or extended now: the rules of [`crate::lock::grace`] and the state they need.

#[cfg(feature = "model")]
mod canonical;

use super::queue::Deadline;
use crate::lock::clocks::{Clocks, Jumps, Reading};
use crate::lock::grace::{Answer, Group, Misconfiguration, Reign, Settings};
use crate::lock::record::Id;
use crate::lock::time::{Micros, MonotonicMicros, UnixMicros};
use crate::lock::token::Token;
use std::collections::VecDeque;

#[cfg(feature = "model")]
pub use canonical::GateForm;

/// The progress of a check of all waiters, in the order of their deadlines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Sweep<D = Deadline> {
    #[default]
    Done,
    Begins,
    GoesOn(D),
}

/// The state behind these decisions.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    /// When this server started or became the master, and whether it may have been replaced.
    pub(super) reign: Reign,
    /// The differences between the clocks at the last comparison.
    clocks: Clocks,
    /// The longest lease that a waiter may ask for; `None` means any.
    longest_lease: Option<Micros>,
    pub(super) sweep: Sweep,
    /// Whether the server was in its grace when that was last logged.
    is_in_grace: bool,
    /// How many commands had been refused before this grace began.
    refused_before: u64,
    /// The last misconfiguration logged.
    misconfiguration: Option<Misconfiguration>,
    /// When the settings were last checked against the replicas and the leases.
    checked: MonotonicMicros,
    /// The last grants to attempts with an ID while a grace is set.
    own: VecDeque<Token>,
}

/// The number of its own grants that a server remembers.
const OWN: usize = 10_000;

/// The beginning or end of a grace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraceChange {
    /// It has begun, and lasts this long.
    Begun(Micros),
    Ended {
        /// How many commands it refused.
        refused: u64,
    },
}

/// How often the settings are checked against the replicas and the leases.
const CHECK: Micros = Micros(1_000_000);

impl Gate {
    /// The server started or became master.
    pub fn begin_reign(&mut self, now: MonotonicMicros) {
        self.reign = Reign::begin(now);
        // The previous master may have ended this server's grants from an earlier reign.
        self.own.clear();
    }

    /// Notes a grant to an attempt with an ID, if a grace is set.
    #[inline]
    pub fn granted(&mut self, token: Token, id: Option<Id>) {
        if self.longest_lease.is_none() || id.is_none() || self.own.back() == Some(&token) {
            return;
        }
        if self.own.len() >= OWN {
            self.own.pop_front();
        }
        self.own.push_back(token);
    }

    /// Whether this server remembers granting this token. During a grace it confirms only such grants, because any
    /// other may have ended on the previous master.
    #[must_use]
    pub fn granted_here(&self, token: Token) -> bool {
        self.own.contains(&token)
    }

    /// Compares the clocks: a server may have been replaced if its machine was suspended or its clock was set.
    pub fn compare(&mut self, reading: &Reading) -> Jumps {
        let jumps = self.clocks.compare(reading);
        if !jumps.is_none() {
            self.reign.doubt();
        }
        jumps
    }

    /// The rules themselves.
    pub fn reign(&mut self) -> &mut Reign {
        &mut self.reign
    }

    /// Takes the replicas' answers; `None` if nothing is known about them.
    pub fn inspect(&mut self, settings: &Settings, replicas: Option<(u64, &[Answer])>, now: MonotonicMicros) {
        match replicas {
            Some((offset, answers)) => self.reign.inspect(settings, offset, answers, now),
            None => self.reign.doubt(),
        }
    }

    /// How much of the grace is left.
    #[must_use]
    pub fn grace_left(&self, settings: &Settings, now: MonotonicMicros) -> Micros {
        self.reign.grace_left(settings, now)
    }

    /// Whether a grace began or ended since the last call. `left`: how much of it is left; `refused`: how many commands
    /// were refused so far.
    pub fn grace_changed(&mut self, left: Micros, refused: u64) -> Option<GraceChange> {
        let is_in_grace = left > Micros(0);
        if std::mem::replace(&mut self.is_in_grace, is_in_grace) == is_in_grace {
            return None;
        }
        if is_in_grace {
            self.refused_before = refused;
            Some(GraceChange::Begun(left))
        } else {
            Some(GraceChange::Ended { refused: refused.wrapping_sub(self.refused_before) })
        }
    }

    /// Whether it is time to check the settings against the replicas and the leases.
    #[must_use]
    pub fn has_to_check(&self, now: MonotonicMicros) -> bool {
        now.since(self.checked) >= CHECK
    }

    /// A misconfiguration that was not there at the last check.
    pub fn new_misconfiguration(
        &mut self,
        settings: &Settings,
        group: &Group,
        now: (UnixMicros, MonotonicMicros),
    ) -> Option<Misconfiguration> {
        self.checked = now.1;
        let misconfiguration = settings.misconfiguration(group, now.0);
        let before = std::mem::replace(&mut self.misconfiguration, misconfiguration);
        misconfiguration.filter(|_| misconfiguration != before)
    }

    /// Whether the settings are wrong.
    #[must_use]
    pub const fn is_misconfigured(&self) -> bool {
        self.misconfiguration.is_some()
    }

    /// Sets the longest lease that may be granted. If it is set for the first time or becomes shorter, all waiters are
    /// checked.
    pub fn set_longest_lease(&mut self, limit: Option<Micros>) {
        let is_shorter = limit.is_some_and(|limit| self.longest_lease.is_none_or(|known| limit < known));
        self.longest_lease = limit;
        if limit.is_none() {
            self.sweep = Sweep::Done;
        } else if is_shorter {
            self.sweep = Sweep::Begins;
        }
    }

    /// Whether waiters are being checked.
    #[must_use]
    pub const fn is_sweeping(&self) -> bool {
        !matches!(self.sweep, Sweep::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = Micros(1_000_000);
    const START: MonotonicMicros = MonotonicMicros(5_000_000);

    #[test]
    fn waiters_are_checked_again_only_if_the_longest_lease_shrinks() {
        let mut gate = Gate::default();
        for (longest, is_sweeping) in [
            (None, false),
            (Some(9), true),
            (Some(9), false),
            (Some(10), false),
            (Some(9), true),
            (None, false),
            (Some(9), true),
        ] {
            gate.sweep = Sweep::Done;
            gate.set_longest_lease(longest.map(Micros));
            assert_eq!(gate.is_sweeping(), is_sweeping, "{longest:?}");
        }
        // A running check continues, and ends when there is nothing to check.
        gate.set_longest_lease(Some(Micros(9)));
        assert!(gate.is_sweeping());
        gate.set_longest_lease(None);
        assert!(!gate.is_sweeping());
    }

    #[test]
    fn settings_are_checked_against_the_replicas_once_a_second() {
        let settings = Settings { grace: Micros(60_000_000), margin: SECOND, max_lag: SECOND, wanted: 0 };
        let group = Group { connected: 0, latest: UnixMicros(0) };
        let mut gate = Gate::default();
        assert!(!gate.is_misconfigured());
        assert_eq!(
            gate.new_misconfiguration(&settings, &group, (UnixMicros(0), START)),
            Some(Misconfiguration::NoReplicas)
        );
        assert!(gate.is_misconfigured());
        assert!(!gate.has_to_check(START.after(Micros(999_999))));
        assert!(gate.has_to_check(START.after(SECOND)));
        assert_eq!(gate.new_misconfiguration(&settings, &group, (UnixMicros(0), START)), None, "it is known");
        assert_eq!(gate.new_misconfiguration(&Settings::OFF, &group, (UnixMicros(0), START)), None);
        assert!(!gate.is_misconfigured());
    }

    #[test]
    fn the_last_grants_of_this_server_are_remembered() {
        let mut gate = Gate::default();
        gate.set_longest_lease(Some(Micros(9)));
        let token = |number: usize| Token::new(number as u64).unwrap();
        (1..=OWN + 1).for_each(|number| gate.granted(token(number), Some(Id::FIRST)));
        assert_eq!([1, 2, OWN + 1].map(|number| gate.granted_here(token(number))), [false, true, true]);
    }
}
