//! Moments of a run, and the time that the server's clock showed at each of them.
//!
//! A [`Moment`] is in microseconds since the run began, on the machine's monotonic clock, independent of any server.
//! The machine's wall clock, which all servers use, differs from it by a constant; the clock of a server with a stepped
//! clock also differs by the value in its shim. So a token, which is its grant's time on the server's wall clock, is a
//! moment too.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since the run began.
pub type Moment = i64;

/// Unix time in microseconds.
pub type Unix = i64;

/// More than the difference between the two clocks that comes from reading them one after the other.
pub const SLACK: i64 = 2_000;

/// A duration in microseconds.
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap()
}

/// Reads the clocks.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    begin: Instant,
    unix_at_begin: Unix,
}

impl Watch {
    pub fn start() -> Self {
        // The wall clock between two readings of the other: the closest of some tries.
        let read = |_| {
            let before = Instant::now();
            let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            (before.elapsed(), Self { begin: before, unix_at_begin: micros(unix) })
        };
        (0..100).map(read).min_by_key(|(took, _)| *took).unwrap().1
    }

    pub fn now(&self) -> Moment {
        micros(self.begin.elapsed())
    }

    /// The machine's wall clock at a moment, as long as nobody sets it.
    pub fn unix(&self, at: Moment) -> Unix {
        self.unix_at_begin + at
    }

    /// By how much the machine's wall clock has been set since the run began.
    pub fn was_set_by(&self) -> i64 {
        let now = Self::start();
        now.unix_at_begin - micros(now.begin - self.begin) - self.unix_at_begin
    }
}

/// A server's wall clock is `offset` ahead of the machine's from some moment in that span on.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub from: Moment,
    pub until: Moment,
    pub offset: i64,
}

/// The wall clock of the servers of a run.
#[derive(Clone, Debug)]
pub struct Clock {
    pub watch: Watch,
    /// In their order.
    pub steps: Vec<Step>,
}

impl Clock {
    /// How far it was ahead of the machine's between two moments: least and most.
    fn offsets(&self, from: Moment, until: Moment) -> (i64, i64) {
        let mut before = 0;
        let mut seen = Vec::new();
        for step in &self.steps {
            if step.until > from && step.from < until {
                seen.push(step.offset);
            }
            if step.until <= from {
                before = step.offset;
            }
        }
        seen.push(before);
        (*seen.iter().min().unwrap(), *seen.iter().max().unwrap())
    }

    /// The earliest time that it showed between two moments.
    pub fn least(&self, from: Moment, until: Moment) -> Unix {
        self.watch.unix(from) + self.offsets(from, until).0
    }

    /// Whether it was set at some time between two moments.
    pub fn was_stepped(&self, from: Moment, until: Moment) -> bool {
        let (least, most) = self.offsets(from, until);
        least != most
    }

    /// Whether it has shown a later time before: tokens are then ahead of it.
    fn is_behind(&self, at: Moment) -> bool {
        let now = at + self.offsets(at, at).0;
        let mut ahead = 0;
        for step in self.steps.iter().filter(|step| step.from < at) {
            if step.from + ahead > now {
                return true;
            }
            ahead = step.offset;
        }
        false
    }

    /// The moment at which it showed a time, for a grant within a span; `None` if that is not certain.
    pub fn moment_of(&self, time: Unix, from: Moment, until: Moment) -> Option<Moment> {
        if self.was_stepped(from, until) || self.is_behind(from) {
            return None;
        }
        let at = time - self.watch.unix(0) - self.offsets(from, until).0;
        (from - SLACK..=until + SLACK).contains(&at).then(|| at.clamp(from, until))
    }

    /// The first moment, not before `from`, at which it may have shown that time.
    pub fn first_at(&self, time: Unix, from: Moment) -> Moment {
        let without = time - self.watch.unix(0);
        let mut offset = self.offsets(from, from).1;
        for step in self.steps.iter().filter(|step| step.until > from) {
            let reached = (without - offset).max(from);
            if reached < step.from {
                return reached;
            }
            // While the clock is being set, it may show either.
            offset = step.offset;
            if without - offset <= step.from {
                return step.from.max(from);
            }
        }
        (without - offset).max(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(steps: &[(Moment, i64)]) -> Clock {
        let steps = steps.iter().map(|(at, offset)| Step { from: *at, until: at + 10, offset: *offset });
        Clock { watch: Watch::start(), steps: steps.collect() }
    }

    #[test]
    fn a_clock_step_moves_when_a_time_is_reached() {
        let time = |clock: &Clock, at| clock.watch.unix(at);
        let steady = clock(&[]);
        assert_eq!(steady.first_at(time(&steady, 5_000), 100), 5_000);
        assert_eq!(steady.first_at(time(&steady, 50), 100), 100);
        let ahead = clock(&[(1_000, 2_000)]);
        assert_eq!(ahead.first_at(time(&ahead, 5_000), 100), 3_000);
        assert_eq!(ahead.first_at(time(&ahead, 2_500), 100), 1_000);
        assert_eq!(ahead.first_at(time(&ahead, 900), 100), 900);
        let back = clock(&[(1_000, -2_000)]);
        assert_eq!(back.first_at(time(&back, 5_000), 100), 7_000);
        let there_and_back = clock(&[(1_000, 2_000), (2_000, 0)]);
        assert_eq!(there_and_back.first_at(time(&there_and_back, 5_000), 100), 5_000);
        assert_eq!(there_and_back.first_at(time(&there_and_back, 3_500), 100), 1_500);
    }

    #[test]
    fn a_token_is_the_time_unless_the_clock_lags() {
        let clock = clock(&[(100_000, 50_000), (200_000, 0)]);
        let unix = |at| clock.watch.unix(at);
        assert_eq!(clock.moment_of(unix(50_000), 40_000, 60_000), Some(50_000));
        assert_eq!(clock.moment_of(unix(150_000 + 50_000), 140_000, 160_000), Some(150_000));
        assert_eq!(clock.moment_of(unix(150_000), 90_000, 160_000), None);
        assert_eq!(clock.moment_of(unix(220_000), 210_000, 230_000), None);
        assert_eq!(clock.moment_of(unix(270_000), 260_000, 280_000), Some(270_000));
    }
}
