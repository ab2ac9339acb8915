//! The settings for safety across failover: the longest lease they allow, and any misconfiguration.

use crate::lock::error::Error;
use crate::lock::time::{Micros, UnixMicros};

/// The time that a failover may take beyond all settings: one second because lags are whole seconds, 50 ms between
/// checks of the replicas, and the rest for turns of the event loop.
const RESERVE: Micros = Micros(2_000_000);
const RESERVE_FOR_TURNS: Micros = Micros(900_000);
/// The shortest margin that is safe: the event loop of a healthy server never stalls for longer.
pub const LEAST_MARGIN: Micros = Micros(500_000);

/// Settings of the module and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `lock.failover-grace-ms`; zero: no safety across failover.
    pub grace: Micros,
    /// `lock.margin-ms`
    pub margin: Micros,
    /// `min-replicas-max-lag`
    pub max_lag: Micros,
    /// `min-replicas-to-write`
    pub wanted: u64,
}

impl Settings {
    /// Safety across failover is off.
    pub const OFF: Self = Self { grace: Micros(0), margin: Micros(0), max_lag: Micros(0), wanted: 0 };

    /// The longest lease that is sure to have expired when a new master's grace ends.
    #[must_use]
    pub const fn longest_lease(&self) -> Option<Micros> {
        if self.grace.0 == 0 {
            return None;
        }
        let taken = self.margin.0.saturating_add(self.max_lag.0).saturating_add(RESERVE.0);
        Some(Micros(self.grace.0.saturating_sub(taken)))
    }

    /// The longest turn of the event loop that goes unnoticed. After such a turn, replica answers that waited to be
    /// read look two turns younger than they are: the turn in which they arrived and the turn in which they are read.
    /// The result of a check at the start of a turn also stays in force until the turn ends. The margin and its part of
    /// [`RESERVE`] cover these three turns.
    pub(super) fn longest_stall(&self) -> Micros {
        let margin = self.margin.max(LEAST_MARGIN);
        let two = margin.min(self.max_lag).0 / 2;
        let three = margin.0.saturating_add(RESERVE_FOR_TURNS.0) / 3;
        Micros(two.min(three))
    }

    /// Whether a lease may be granted.
    ///
    /// # Errors
    /// [`Error::LeaseBeyondGrace`]
    pub fn check(&self, lease: Micros) -> Result<(), Error> {
        match self.longest_lease() {
            Some(longest) if lease > longest => Err(Error::LeaseBeyondGrace(longest.as_ms())),
            _ => Ok(()),
        }
    }

    /// Why these settings do not work.
    #[must_use]
    pub fn misconfiguration(&self, group: &Group, now: UnixMicros) -> Option<Misconfiguration> {
        let longest = self.longest_lease()?;
        let covered = Micros(longest.0.saturating_add(self.margin.0));
        match longest {
            Micros(0) => Some(Misconfiguration::NoLease),
            _ if self.wanted == 0 => Some(Misconfiguration::NoReplicas),
            _ if self.wanted < group.connected => Some(Misconfiguration::TooFewReplicas),
            _ if self.margin < LEAST_MARGIN => Some(Misconfiguration::ShortMargin),
            _ if group.latest.since(now) > covered => Some(Misconfiguration::LongLease),
            _ => None,
        }
    }
}

/// The state of the replication group that the settings are checked against.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// How many replicas are connected.
    pub connected: u64,
    /// The latest timestamp that this server wrote.
    pub latest: UnixMicros,
}

/// Why two clients can hold a lock at once after a failover, or no client can have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Misconfiguration {
    /// The grace is too short for any lease.
    NoLease,
    /// `min-replicas-to-write` is not set.
    NoReplicas,
    /// There are more replicas than `min-replicas-to-write`.
    TooFewReplicas,
    /// The margin is shorter than [`LEAST_MARGIN`].
    ShortMargin,
    /// A lease granted earlier outlasts the grace.
    LongLease,
}

impl Misconfiguration {
    /// The text for the operator.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::NoLease => "lock.failover-grace-ms is too short for any lease: no lock is granted",
            Self::NoReplicas => {
                "lock.failover-grace-ms without min-replicas-to-write: \
                 if there are replicas, a master that was replaced keeps granting locks"
            }
            Self::TooFewReplicas => {
                "lock.failover-grace-ms with a min-replicas-to-write below the number of replicas: \
                 a master that was replaced keeps granting locks"
            }
            Self::ShortMargin => "lock.failover-grace-ms with a lock.margin-ms below 500: a short stall is not covered",
            Self::LongLease => {
                "lock.failover-grace-ms is too short for a lease that was already granted: \
                 after a failover the lock may be granted again before that lease ends"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::INSPECT_EVERY;
    use super::*;

    const SETTINGS: Settings =
        Settings { grace: Micros(60_000_000), margin: Micros(1_000_000), max_lag: Micros(10_000_000), wanted: 0 };

    #[test]
    fn the_margin_and_the_reserve_cover_the_three_longest_turns() {
        for margin_ms in [0, 500, 1_000, 1_800, 5_000, 60_000] {
            let margin = Micros::from_ms(margin_ms);
            let settings = Settings { margin, max_lag: Micros(u64::MAX), ..SETTINGS };
            let spared = margin.max(LEAST_MARGIN).0 + RESERVE.0 - 1_000_000 - INSPECT_EVERY.0;
            assert!(3 * settings.longest_stall().0 <= spared, "{margin_ms}");
        }
    }

    #[test]
    fn a_lease_ends_before_the_grace_of_a_new_master() {
        assert_eq!(SETTINGS.longest_lease(), Some(Micros(47_000_000)));
        assert_eq!(SETTINGS.check(Micros(47_000_000)), Ok(()));
        assert_eq!(SETTINGS.check(Micros(47_000_001)), Err(Error::LeaseBeyondGrace(47_000)));
        let too_short = Settings { grace: Micros(5_000_000), ..SETTINGS };
        assert_eq!(too_short.check(Micros(1)), Err(Error::LeaseBeyondGrace(0)));
    }

    #[test]
    fn settings_that_cannot_work_are_found() {
        let now = UnixMicros(1_763_710_000_000_000);
        let (set, good) =
            (Settings { wanted: 2, ..SETTINGS }, Group { connected: 2, latest: now.after(Micros(48_000_000)) });
        assert_eq!(set.misconfiguration(&good, now), None);
        assert_eq!(Settings { wanted: 3, ..set }.misconfiguration(&good, now), None);
        let short = Settings { margin: LEAST_MARGIN, grace: Micros(59_500_000), ..set };
        assert_eq!(short.misconfiguration(&Group { latest: now, ..good }, now), None);
        for (settings, group, misconfiguration) in [
            (Settings { grace: Micros(13_000_000), ..set }, good, Misconfiguration::NoLease),
            (SETTINGS, good, Misconfiguration::NoReplicas),
            (set, Group { connected: 3, ..good }, Misconfiguration::TooFewReplicas),
            (Settings { margin: Micros(499_999), ..set }, good, Misconfiguration::ShortMargin),
            (set, Group { latest: good.latest.after(Micros(1)), ..good }, Misconfiguration::LongLease),
        ] {
            assert_eq!(settings.misconfiguration(&group, now), Some(misconfiguration), "{settings:?} {group:?}");
            assert_eq!(Settings { grace: Micros(0), ..settings }.misconfiguration(&group, now), None);
        }
    }

    #[test]
    fn a_text_begins_with_the_setting_to_change() {
        for each in [
            Misconfiguration::NoLease,
            Misconfiguration::NoReplicas,
            Misconfiguration::TooFewReplicas,
            Misconfiguration::ShortMargin,
            Misconfiguration::LongLease,
        ] {
            assert!(each.text().starts_with("lock.failover-grace-ms "), "{}", each.text());
        }
    }
}
