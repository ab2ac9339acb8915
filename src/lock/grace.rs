//! Safety across failover: when a server may grant locks at all.
//!
//! A server that has just started or become master may not know of locks that were granted before,
//! so it grants none for as long as such a lock can last. A master that has stood still, or whose
//! clock was set, may have been replaced meanwhile, so it grants none until its replicas have
//! answered it since.

use super::error::Error;
use super::time::{Micros, MonotonicMicros};

/// What the failover may take on top of all settings.
const RESERVE: Micros = Micros(2_000_000);

/// Settings, all of them spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `lock.failover-grace-ms`; zero: no safety across failover.
    pub grace: Micros,
    /// `lock.margin-ms`
    pub margin: Micros,
    /// `min-replicas-max-lag`
    pub max_lag: Micros,
}

impl Settings {
    /// The longest lease that is over when the grace of a new master is.
    #[must_use]
    pub const fn longest_lease(&self) -> Option<Micros> {
        if self.grace.0 == 0 {
            return None;
        }
        let taken = self.margin.0.saturating_add(self.max_lag.0).saturating_add(RESERVE.0);
        Some(Micros(self.grace.0.saturating_sub(taken)))
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
}

/// What a server knows of its own reign.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reign {
    /// When it started or became master.
    pub since: MonotonicMicros,
    /// When it was last seen to be running.
    seen: MonotonicMicros,
    /// It may have been replaced, since it was seen running last.
    is_doubtful: bool,
}

impl Reign {
    /// The server has started, or become master.
    #[must_use]
    pub const fn begin(now: MonotonicMicros) -> Self {
        Self { since: now, seen: now, is_doubtful: false }
    }

    /// What is left of the grace.
    #[must_use]
    pub const fn grace_left(&self, settings: &Settings, now: MonotonicMicros) -> Micros {
        self.since.after(settings.grace).since(now)
    }

    /// The loop of the server runs at `now`: whether that is after a stall.
    pub fn run(&mut self, settings: &Settings, now: MonotonicMicros) -> bool {
        let stalled = settings.grace.0 > 0 && now.since(self.seen) > settings.max_lag;
        self.seen = now;
        if stalled {
            self.is_doubtful = true;
        }
        stalled
    }

    /// The clock was set: the lag of replicas is counted by it.
    pub fn doubt(&mut self) {
        self.is_doubtful = true;
    }

    /// Whether the replicas have to be looked at.
    #[must_use]
    pub const fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    /// Enough replicas have answered since.
    pub fn confirm(&mut self) {
        self.is_doubtful = false;
    }

    /// Whether a lease may be set anew at `now`.
    ///
    /// # Errors
    /// [`Error::NoReplicas`]
    pub fn may_extend(&mut self, settings: &Settings, now: MonotonicMicros) -> Result<(), Error> {
        if settings.grace.0 == 0 {
            return Ok(());
        }
        self.run(settings, now);
        if self.is_doubtful {
            return Err(Error::NoReplicas);
        }
        Ok(())
    }

    /// Whether a lock may be granted at `now`.
    ///
    /// # Errors
    /// [`Error::NoReplicas`], [`Error::Grace`]
    pub fn may_grant(&mut self, settings: &Settings, now: MonotonicMicros) -> Result<(), Error> {
        self.may_extend(settings, now)?;
        match self.grace_left(settings, now) {
            Micros(0) => Ok(()),
            left => Err(Error::Grace(left.as_ms_ceil())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings =
        Settings { grace: Micros(60_000_000), margin: Micros(1_000_000), max_lag: Micros(10_000_000) };
    const START: MonotonicMicros = MonotonicMicros(5_000_000);

    fn at(seconds: u64) -> MonotonicMicros {
        START.after(Micros(seconds * 1_000_000))
    }

    #[test]
    fn a_new_master_grants_nothing_until_its_grace_is_over() {
        let mut reign = Reign::begin(START);
        assert_eq!(reign.may_grant(&SETTINGS, at(1)), Err(Error::Grace(59_000)));
        assert_eq!(reign.may_extend(&SETTINGS, at(1)), Ok(()));
        for second in 2..=60 {
            reign.run(&SETTINGS, at(second));
        }
        assert_eq!(reign.may_grant(&SETTINGS, at(60)), Ok(()));
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
    fn a_master_that_stood_still_grants_nothing_until_its_replicas_have_answered() {
        let settings = Settings { grace: Micros(1), ..SETTINGS };
        let mut reign = Reign::begin(START);
        assert_eq!(reign.may_grant(&settings, at(10)), Ok(()));
        assert_eq!(reign.may_grant(&settings, at(21)), Err(Error::NoReplicas));
        assert_eq!(reign.may_extend(&settings, at(22)), Err(Error::NoReplicas));
        reign.confirm();
        assert_eq!(reign.may_grant(&settings, at(23)), Ok(()));
        reign.doubt();
        assert_eq!(reign.may_grant(&settings, at(23)), Err(Error::NoReplicas));
    }

    #[test]
    fn without_a_grace_nothing_is_refused() {
        let settings = Settings { grace: Micros(0), ..SETTINGS };
        let mut reign = Reign::begin(START);
        assert_eq!(settings.check(Micros(u64::MAX)), Ok(()));
        assert_eq!(reign.may_grant(&settings, at(100)), Ok(()));
    }
}
