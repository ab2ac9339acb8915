//! Safety across failover: when a server may grant locks.
//!
//! A server that has just started or become master may not know about locks granted earlier. It grants none until any
//! such lock has expired. A master that stalled, or whose clock was set, may have been replaced without noticing. It
//! grants none until its replicas have answered again.

mod settings;

pub use settings::{Group, Misconfiguration, Settings, LEAST_MARGIN};

use super::error::Error;
use super::time::{Micros, MonotonicMicros};

/// How often the replicas are checked.
pub const INSPECT_EVERY: Micros = Micros(50_000);

/// Whether a master may have been replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Doubt {
    #[default]
    None,
    /// It stalled, or its clock was set, and its replicas have not been checked since.
    New,
    /// The same; the value is the master's replication offset at the first check since then.
    Since(u64),
}

/// A replica's last answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The replication offset that the replica has reached.
    pub offset: u64,
    /// Seconds since the answer was read; negative if the clock was set.
    pub lag_s: i64,
}

/// A server's term as master, and whether the server may have been replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reign {
    /// When it started or became master.
    pub since: MonotonicMicros,
    /// When the current turn of the event loop began.
    seen: MonotonicMicros,
    doubt: Doubt,
    /// Whether enough replicas had answered recently at the last check.
    is_followed: bool,
    /// When the last check was.
    inspected: MonotonicMicros,
}

impl Reign {
    /// Begins when the server starts or becomes master.
    #[must_use]
    pub const fn begin(now: MonotonicMicros) -> Self {
        Self { since: now, seen: now, doubt: Doubt::None, is_followed: false, inspected: MonotonicMicros(0) }
    }

    /// How much of the grace is left.
    #[must_use]
    pub const fn grace_left(&self, settings: &Settings, now: MonotonicMicros) -> Micros {
        self.since.after(settings.grace).since(now)
    }

    /// Notes that a new turn of the event loop begins at `now`. Returns whether the server stalled before it.
    pub fn begin_turn(&mut self, settings: &Settings, now: MonotonicMicros) -> bool {
        let stalled = self.notice_stall(settings, now);
        self.seen = now;
        stalled
    }

    /// Whether the turn has lasted too long. A long turn can consist of many short commands, so it is timed from its
    /// beginning: replicas' answers are read only there.
    pub fn notice_stall(&mut self, settings: &Settings, now: MonotonicMicros) -> bool {
        let stalled = settings.grace.0 > 0 && now.since(self.seen) > settings.longest_stall();
        if stalled {
            self.doubt = Doubt::New;
        }
        stalled
    }

    /// Raises a doubt: the clock that measures the replicas' lag was set, or nothing is known about the replicas.
    pub fn doubt(&mut self) {
        self.doubt = Doubt::New;
    }

    /// Whether this server may have been replaced.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.doubt != Doubt::None
    }

    /// Whether the replicas have to be checked, no later than at the start of a turn. The server counts its good
    /// replicas too, but only every few turns, however long those take.
    #[must_use]
    pub fn has_to_inspect(&self, settings: &Settings, now: MonotonicMicros) -> bool {
        self.is_doubtful() || (settings.wanted > 0 && now.since(self.inspected) >= INSPECT_EVERY)
    }

    /// Checks the replicas: notes whether enough of them have answered recently. The doubt ends when enough of them
    /// have acknowledged data that was sent after it began. An answer sent earlier may be read late and then look new,
    /// but it does not cover the later data.
    pub fn inspect(&mut self, settings: &Settings, offset: u64, answers: &[Answer], now: MonotonicMicros) {
        let max_lag_s = i64::try_from(settings.max_lag.as_ms() / 1_000).unwrap_or(i64::MAX);
        let is_enough = |from: u64| {
            let is_good = |answer: &&Answer| answer.offset >= from && (0..=max_lag_s).contains(&answer.lag_s);
            let good = answers.iter().filter(is_good).count();
            u64::try_from(good).is_ok_and(|good| good >= settings.wanted)
        };
        self.inspected = now;
        self.is_followed = is_enough(0);
        let begin = match self.doubt {
            Doubt::None => return,
            Doubt::New => {
                self.doubt = Doubt::Since(offset);
                offset
            }
            Doubt::Since(begin) => begin,
        };
        if is_enough(begin.saturating_add(1)) {
            self.doubt = Doubt::None;
        }
    }

    /// Whether a lease may be extended at `now`.
    ///
    /// # Errors
    /// [`Error::NoReplicas`]
    pub fn may_extend(&mut self, settings: &Settings, now: MonotonicMicros) -> Result<(), Error> {
        if settings.grace.0 == 0 {
            return Ok(());
        }
        self.notice_stall(settings, now);
        if self.is_doubtful() || (settings.wanted > 0 && !self.is_followed) {
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
        Settings { grace: Micros(60_000_000), margin: Micros(1_000_000), max_lag: Micros(10_000_000), wanted: 0 };
    const START: MonotonicMicros = MonotonicMicros(5_000_000);

    fn at(seconds: u64) -> MonotonicMicros {
        START.after(Micros(seconds * 1_000_000))
    }

    /// A master whose two replicas have just answered.
    fn followed(settings: &Settings) -> Reign {
        let mut reign = Reign::begin(START);
        reign.inspect(settings, 7, &[Answer { offset: 7, lag_s: 0 }; 2], START);
        reign
    }

    #[test]
    fn a_master_grants_only_while_enough_replicas_answer() {
        let settings = Settings { grace: Micros(1), wanted: 2, ..SETTINGS };
        let soon = START.after(Micros(1));
        assert_eq!(Reign::begin(START).may_grant(&settings, soon), Err(Error::NoReplicas), "not checked yet");
        let mut reign = followed(&settings);
        assert_eq!(reign.may_grant(&settings, soon), Ok(()));
        for late in [&[Answer { offset: 9, lag_s: 0 }][..], &[Answer { offset: 9, lag_s: 11 }; 2], &[]] {
            reign.inspect(&settings, 9, late, soon);
            assert_eq!(reign.may_grant(&settings, soon), Err(Error::NoReplicas), "{late:?}");
            assert!(!reign.is_doubtful(), "it is in doubt no longer than that");
        }
        // It is enough that they follow: an old offset means that there were no writes.
        reign.inspect(&settings, 9, &[Answer { offset: 7, lag_s: 10 }; 2], soon);
        assert_eq!(reign.may_extend(&settings, soon), Ok(()));
        assert!(!reign.has_to_inspect(&settings, START.after(Micros(50_000))));
        assert!(reign.has_to_inspect(&settings, START.after(Micros(50_001))));
        assert!(!reign.has_to_inspect(&SETTINGS, at(9)), "replicas that are not required are not checked");
    }

    #[test]
    fn a_new_master_grants_nothing_until_its_grace_ends() {
        let mut reign = Reign::begin(START);
        let soon = START.after(Micros(100_000));
        assert_eq!(reign.may_grant(&SETTINGS, soon), Err(Error::Grace(59_900)));
        assert_eq!(reign.may_extend(&SETTINGS, soon), Ok(()));
        for tenths in 2..=600 {
            reign.begin_turn(&SETTINGS, START.after(Micros(tenths * 100_000)));
        }
        assert_eq!(reign.may_grant(&SETTINGS, at(60)), Ok(()));
    }

    #[test]
    fn a_master_grants_nothing_after_a_stall_until_its_replicas_answer() {
        let settings = Settings { grace: Micros(1), wanted: 2, ..SETTINGS };
        let mut reign = followed(&settings);
        assert_eq!(reign.may_grant(&settings, START.after(Micros(1))), Ok(()));
        assert_eq!(reign.may_grant(&settings, at(3)), Err(Error::NoReplicas));
        assert_eq!(reign.may_extend(&settings, at(4)), Err(Error::NoReplicas));
        let answer = |offset, lag_s| Answer { offset, lag_s };
        // Answers sent before the doubt, however new they look.
        reign.inspect(&settings, 70, &[answer(70, 0), answer(70, 0)], at(4));
        reign.inspect(&settings, 70, &[answer(70, 0), answer(70, 0)], at(4));
        assert!(reign.is_doubtful());
        // Answers that are too old, from too few replicas, or from the future.
        for answers in [&[answer(84, 11)][..], &[answer(84, 0), answer(70, 0)], &[answer(84, -1), answer(84, 0)]] {
            reign.inspect(&settings, 84, answers, at(4));
            assert!(reign.is_doubtful(), "{answers:?}");
        }
        reign.begin_turn(&settings, at(4));
        reign.inspect(&settings, 84, &[], at(4));
        reign.inspect(&settings, 90, &[answer(90, 0), answer(85, 10)], at(4));
        assert_eq!(reign.may_grant(&settings, at(4)), Ok(()));
        reign.doubt();
        assert_eq!(reign.may_grant(&settings, at(4)), Err(Error::NoReplicas));
    }

    #[test]
    fn a_new_doubt_restarts_the_current_one() {
        let settings = Settings { wanted: 1, ..SETTINGS };
        let mut reign = Reign::begin(START);
        reign.doubt();
        reign.inspect(&settings, 70, &[], START);
        reign.doubt();
        reign.inspect(&settings, 90, &[Answer { offset: 80, lag_s: 0 }], START);
        assert!(reign.is_doubtful());
    }

    #[test]
    fn a_turn_of_half_the_margin_is_not_a_stall() {
        let half = START.after(Micros(500_000));
        let mut reign = Reign::begin(START);
        assert!(!reign.begin_turn(&SETTINGS, half));
        assert!(!reign.begin_turn(&SETTINGS, half.after(Micros(500_000))));
        assert!(reign.begin_turn(&SETTINGS, half.after(Micros(1_000_001))));
        let short_lag = Settings { max_lag: Micros(200_000), ..SETTINGS };
        assert!(!Reign::begin(START).begin_turn(&short_lag, START.after(Micros(100_000))));
        assert!(Reign::begin(START).begin_turn(&short_lag, START.after(Micros(100_001))));
    }

    #[test]
    fn a_turn_that_many_short_commands_make_long_is_a_stall() {
        let settings = Settings { grace: Micros(1), ..SETTINGS };
        let mut reign = Reign::begin(START);
        for tenths in 1..=5 {
            assert_eq!(reign.may_grant(&settings, START.after(Micros(tenths * 100_000))), Ok(()));
        }
        assert_eq!(reign.may_grant(&settings, START.after(Micros(600_000))), Err(Error::NoReplicas));
    }

    #[test]
    fn without_a_grace_nothing_is_refused() {
        let settings = Settings { grace: Micros(0), ..SETTINGS };
        let mut reign = Reign::begin(START);
        assert_eq!(settings.check(Micros(u64::MAX)), Ok(()));
        assert_eq!(reign.may_grant(&settings, at(100)), Ok(()));
        assert!(!reign.begin_turn(&settings, at(200)), "and no stall is noticed");
    }
}
