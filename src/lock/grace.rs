//! Safety across failover: when a server may grant locks at all.
//!
//! A server that has just started or become master may not know of locks that were granted before,
//! so it grants none for as long as such a lock can last. A master that has stood still, or whose
//! clock was set, may have been replaced meanwhile, so it grants none until its replicas have
//! answered it since.

use super::error::Error;
use super::time::{Micros, MonotonicMicros, UnixMicros};
use crate::broken::{self, Mutant};

/// What the failover may take on top of all settings: lags are whole seconds, so one second; a look
/// at them every 50 ms at most; and the rest for turns of the loop.
const RESERVE: Micros = Micros(2_000_000);
const RESERVE_FOR_TURNS: Micros = Micros(900_000);
/// How often the replicas are looked at.
pub const LOOK_AT_REPLICAS: Micros = Micros(50_000);

/// The margin has to be as long as this: the loop of a server that is well stands still for less.
pub const LEAST_MARGIN: Micros = Micros(500_000);

/// Settings of the module and of the server.
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
    /// The longest lease that is over when the grace of a new master is.
    #[must_use]
    pub const fn longest_lease(&self) -> Option<Micros> {
        if self.grace.0 == 0 {
            return None;
        }
        let taken = self.margin.0.saturating_add(self.max_lag.0).saturating_add(RESERVE.0);
        Some(Micros(self.grace.0.saturating_sub(taken)))
    }

    /// A longer turn of the loop is noticed. After shorter ones the answers of replicas that waited to
    /// be read look younger than they are, by two turns: one in which they came, one in which they are
    /// read; and what was found when a turn began holds to its end. The margin and what [`RESERVE`] has
    /// for it make up for the three.
    fn longest_stall(&self) -> Micros {
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
}

/// What the settings are held against.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// How many replicas are connected.
    pub connected: u64,
    /// The latest timestamp that this server wrote.
    pub latest: UnixMicros,
}

/// Why two clients can have a lock at once after a failover, or nobody can have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The longest lease is none.
    NoLease,
    /// `min-replicas-to-write` is not set.
    NoReplicas,
    /// There are more replicas than `min-replicas-to-write`.
    TooFewReplicas,
    /// The margin is shorter than [`LEAST_MARGIN`].
    ShortMargin,
    /// A lease that was granted before outlasts the grace.
    LongLease,
}

impl Fault {
    /// What an operator is told.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::NoLease => "lock.failover-grace-ms is too short for any lease: no lock is granted",
            Self::NoReplicas => {
                "lock.failover-grace-ms without min-replicas-to-write: if there are replicas, a master that was replaced still grants"
            }
            Self::TooFewReplicas => {
                "lock.failover-grace-ms with a min-replicas-to-write below the number of replicas: \
                 a master that was replaced still grants"
            }
            Self::ShortMargin => {
                "lock.failover-grace-ms with a lock.margin-ms below 500: a short stall is not made up for"
            }
            Self::LongLease => {
                "lock.failover-grace-ms is too short for a lease that was granted before: \
                 after a failover now it may be granted again before it ends"
            }
        }
    }
}

impl Settings {
    /// What is wrong with them.
    #[must_use]
    pub fn fault(&self, group: &Group, now: UnixMicros) -> Option<Fault> {
        let longest = self.longest_lease()?;
        let covered = Micros(longest.0.saturating_add(self.margin.0));
        match longest {
            Micros(0) => Some(Fault::NoLease),
            _ if self.wanted == 0 => Some(Fault::NoReplicas),
            _ if self.wanted < group.connected => Some(Fault::TooFewReplicas),
            _ if self.margin < LEAST_MARGIN => Some(Fault::ShortMargin),
            _ if group.latest.since(now) > covered => Some(Fault::LongLease),
            _ => None,
        }
    }
}

/// Whether a master may have been replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Doubt {
    #[default]
    None,
    /// It stood still, or its clock was set, and its replicas were not looked at since.
    New,
    /// As above, and its replication offset was that when they were looked at first.
    Since(u64),
}

/// What a replica has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Up to which offset it has everything.
    pub offset: u64,
    /// Seconds since its answer was read; below zero if the clock was set.
    pub lag_s: i64,
}

/// What a server knows of its own reign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reign {
    /// When it started or became master.
    pub since: MonotonicMicros,
    /// When the present turn of its loop began.
    seen: MonotonicMicros,
    doubt: Doubt,
    /// Enough replicas had answered of late when they were last looked at.
    is_followed: bool,
    /// When that was.
    looked: MonotonicMicros,
}

impl Reign {
    /// The server has started, or become master.
    #[must_use]
    pub const fn begin(now: MonotonicMicros) -> Self {
        Self { since: now, seen: now, doubt: Doubt::None, is_followed: false, looked: MonotonicMicros(0) }
    }

    /// What is left of the grace.
    #[must_use]
    pub const fn grace_left(&self, settings: &Settings, now: MonotonicMicros) -> Micros {
        self.since.after(settings.grace).since(now)
    }

    /// A new turn of the server's loop begins at `now`: whether that is after a stall.
    pub fn begin_turn(&mut self, settings: &Settings, now: MonotonicMicros) -> bool {
        let stalled = self.notice_stall(settings, now);
        self.seen = now;
        stalled
    }

    /// Whether the turn has lasted too long. A long turn can be made of many short commands, so this
    /// is counted from the begin of the turn: only there are answers of replicas read.
    pub fn notice_stall(&mut self, settings: &Settings, now: MonotonicMicros) -> bool {
        let stalled = settings.grace.0 > 0 && now.since(self.seen) > settings.longest_stall();
        if stalled {
            self.doubt = Doubt::New;
        }
        stalled
    }

    /// The clock was set, by which the lag of replicas is counted, or nothing is known of them.
    pub fn doubt(&mut self) {
        self.doubt = Doubt::New;
    }

    /// Whether it is in doubt.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.doubt != Doubt::None
    }

    /// Whether the replicas have to be looked at, at the latest when a turn begins. The server counts
    /// its good replicas too, but every so many turns, however long they take.
    #[must_use]
    pub fn has_to_look(&self, settings: &Settings, now: MonotonicMicros) -> bool {
        self.is_doubtful() || (settings.wanted > 0 && now.since(self.looked) >= LOOK_AT_REPLICAS)
    }

    /// Looks at the replicas: whether as many as are wanted have answered of late. Ends the doubt when
    /// as many have answered what was sent since it began. An answer that was sent before can be read
    /// later and then looks new, but it does not know of what was replicated later.
    pub fn look(&mut self, settings: &Settings, offset: u64, answers: &[Answer], now: MonotonicMicros) {
        let max_lag_s = i64::try_from(settings.max_lag.as_ms() / 1_000).unwrap_or(i64::MAX);
        let is_enough = |from: u64| {
            let is_good = |answer: &&Answer| answer.offset >= from && (0..=max_lag_s).contains(&answer.lag_s);
            let good = answers.iter().filter(is_good).count();
            u64::try_from(good).is_ok_and(|good| good >= settings.wanted)
        };
        self.looked = now;
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

    /// Whether a lease may be set anew at `now`.
    ///
    /// # Errors
    /// [`Error::NoReplicas`]
    pub fn may_extend(&mut self, settings: &Settings, now: MonotonicMicros) -> Result<(), Error> {
        if settings.grace.0 == 0 {
            return Ok(());
        }
        self.notice_stall(settings, now);
        let is_in_doubt = self.is_doubtful() && !broken::is(Mutant::NoDoubt);
        if is_in_doubt || (settings.wanted > 0 && !self.is_followed) {
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
            _ if broken::is(Mutant::NoGrace) => Ok(()),
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
        reign.look(settings, 7, &[Answer { offset: 7, lag_s: 0 }; 2], START);
        reign
    }

    #[test]
    fn a_master_grants_only_while_enough_replicas_answer() {
        let settings = Settings { grace: Micros(1), wanted: 2, ..SETTINGS };
        let soon = START.after(Micros(1));
        assert_eq!(Reign::begin(START).may_grant(&settings, soon), Err(Error::NoReplicas), "not looked at yet");
        let mut reign = followed(&settings);
        assert_eq!(reign.may_grant(&settings, soon), Ok(()));
        for late in [&[Answer { offset: 9, lag_s: 0 }][..], &[Answer { offset: 9, lag_s: 11 }; 2], &[]] {
            reign.look(&settings, 9, late, soon);
            assert_eq!(reign.may_grant(&settings, soon), Err(Error::NoReplicas), "{late:?}");
            assert!(!reign.is_doubtful(), "it is no longer in doubt than that");
        }
        // It is enough that they follow: an offset of long ago says that nobody wrote.
        reign.look(&settings, 9, &[Answer { offset: 7, lag_s: 10 }; 2], soon);
        assert_eq!(reign.may_extend(&settings, soon), Ok(()));
        assert!(!reign.has_to_look(&settings, START.after(Micros(50_000))));
        assert!(reign.has_to_look(&settings, START.after(Micros(50_001))));
    }

    #[test]
    fn the_three_longest_turns_are_made_up_for() {
        for margin_ms in [0, 500, 1_000, 1_800, 5_000, 60_000] {
            let margin = Micros::from_ms(margin_ms);
            let settings = Settings { margin, max_lag: Micros(u64::MAX), ..SETTINGS };
            let spared = margin.max(LEAST_MARGIN).0 + RESERVE.0 - 1_000_000 - LOOK_AT_REPLICAS.0;
            assert!(3 * settings.longest_stall().0 <= spared, "{margin_ms}");
        }
    }

    #[test]
    fn a_new_master_grants_nothing_until_its_grace_is_over() {
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
    fn a_lease_ends_before_the_grace_of_a_new_master() {
        assert_eq!(SETTINGS.longest_lease(), Some(Micros(47_000_000)));
        assert_eq!(SETTINGS.check(Micros(47_000_000)), Ok(()));
        assert_eq!(SETTINGS.check(Micros(47_000_001)), Err(Error::LeaseBeyondGrace(47_000)));
        let too_short = Settings { grace: Micros(5_000_000), ..SETTINGS };
        assert_eq!(too_short.check(Micros(1)), Err(Error::LeaseBeyondGrace(0)));
    }

    #[test]
    fn a_master_that_stood_still_grants_nothing_until_its_replicas_have_answered() {
        let settings = Settings { grace: Micros(1), wanted: 2, ..SETTINGS };
        let mut reign = followed(&settings);
        assert_eq!(reign.may_grant(&settings, START.after(Micros(1))), Ok(()));
        assert_eq!(reign.may_grant(&settings, at(3)), Err(Error::NoReplicas));
        assert_eq!(reign.may_extend(&settings, at(4)), Err(Error::NoReplicas));
        let answer = |offset, lag_s| Answer { offset, lag_s };
        // Answers of before, however new they look.
        reign.look(&settings, 70, &[answer(70, 0), answer(70, 0)], at(4));
        reign.look(&settings, 70, &[answer(70, 0), answer(70, 0)], at(4));
        assert!(reign.is_doubtful());
        // Answers that are too old, of too few, or from the future.
        for answers in [&[answer(84, 11)][..], &[answer(84, 0), answer(70, 0)], &[answer(84, -1), answer(84, 0)]] {
            reign.look(&settings, 84, answers, at(4));
            assert!(reign.is_doubtful(), "{answers:?}");
        }
        reign.begin_turn(&settings, at(4));
        reign.look(&settings, 84, &[], at(4));
        reign.look(&settings, 90, &[answer(90, 0), answer(85, 10)], at(4));
        assert_eq!(reign.may_grant(&settings, at(4)), Ok(()));
        reign.doubt();
        assert_eq!(reign.may_grant(&settings, at(4)), Err(Error::NoReplicas));
    }

    #[test]
    fn a_doubt_that_comes_in_a_doubt_begins_anew() {
        let settings = Settings { wanted: 1, ..SETTINGS };
        let mut reign = Reign::begin(START);
        reign.doubt();
        reign.look(&settings, 70, &[], START);
        reign.doubt();
        reign.look(&settings, 90, &[Answer { offset: 80, lag_s: 0 }], START);
        assert!(reign.is_doubtful());
    }

    #[test]
    fn a_turn_of_half_the_margin_is_made_up_for() {
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
    fn a_turn_that_is_long_by_many_short_commands_is_a_stall() {
        let settings = Settings { grace: Micros(1), ..SETTINGS };
        let mut reign = Reign::begin(START);
        for tenths in 1..=5 {
            assert_eq!(reign.may_grant(&settings, START.after(Micros(tenths * 100_000))), Ok(()));
        }
        assert_eq!(reign.may_grant(&settings, START.after(Micros(600_000))), Err(Error::NoReplicas));
    }

    #[test]
    fn settings_that_cannot_work_are_found() {
        let now = UnixMicros(1_763_710_000_000_000);
        let (set, good) =
            (Settings { wanted: 2, ..SETTINGS }, Group { connected: 2, latest: now.after(Micros(48_000_000)) });
        assert_eq!(set.fault(&good, now), None);
        assert_eq!(Settings { wanted: 3, ..set }.fault(&good, now), None);
        for (settings, group, fault) in [
            (Settings { grace: Micros(13_000_000), ..set }, good, Fault::NoLease),
            (SETTINGS, good, Fault::NoReplicas),
            (set, Group { connected: 3, ..good }, Fault::TooFewReplicas),
            (Settings { margin: Micros(499_999), ..set }, good, Fault::ShortMargin),
            (set, Group { latest: good.latest.after(Micros(1)), ..good }, Fault::LongLease),
        ] {
            assert_eq!(settings.fault(&group, now), Some(fault), "{settings:?} {group:?}");
            assert_eq!(Settings { grace: Micros(0), ..settings }.fault(&group, now), None);
        }
    }

    #[test]
    fn without_a_grace_nothing_is_refused() {
        let settings = Settings { grace: Micros(0), ..SETTINGS };
        let mut reign = Reign::begin(START);
        assert_eq!(settings.check(Micros(u64::MAX)), Ok(()));
        assert_eq!(reign.may_grant(&settings, at(100)), Ok(()));
    }
}
