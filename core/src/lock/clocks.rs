//! Compares a machine's clocks to find out whether the wall clock was set and whether the machine was suspended.
//!
//! There are three clocks: the wall clock, a monotonic clock that counts suspended time, and a monotonic clock that
//! does not.

use super::time::{Micros, MonotonicMicros, UnixMicros};

/// The smallest move that counts as a step. Slewing never moves a clock by this much between two comparisons.
const STEP_US: u64 = 500_000;
/// The smallest move after which timers are set again: a lock may become free this much too late.
const SLEW_US: u64 = 5_000;
/// A shorter suspend is treated as a long event-loop iteration, whose duration includes it.
const SUSPEND: Micros = Micros(10_000);

/// The clocks, read in this order. Time between the last two reads can hide a suspend until the next comparison, but
/// never looks like one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The wall clock.
    pub wall: UnixMicros,
    /// The clock that is never set.
    pub monotonic: MonotonicMicros,
    /// A monotonic clock that stops during a suspend, with its own start.
    pub awake: MonotonicMicros,
}

/// What has happened to the clocks between two comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Jumps {
    /// How far the wall clock was set forward or back, in microseconds.
    pub step_us: Option<i64>,
    /// How long the machine was suspended.
    pub suspended: Option<Micros>,
    /// Whether a timer set earlier from the wall clock would be off.
    pub is_timer_off: bool,
}

impl Jumps {
    /// Whether there was neither a step nor a suspend.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.step_us.is_none() && self.suspended.is_none()
    }
}

/// The differences between the clocks at the last reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Clocks {
    last: Option<Last>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Last {
    /// How far the wall clock was ahead of the monotonic one.
    ahead_us: u64,
    /// The minimum time that the machine has spent suspended.
    suspended: Micros,
}

impl Clocks {
    /// Compares the clocks with the previous reading and remembers them.
    pub fn compare(&mut self, now: &Reading) -> Jumps {
        let ahead_us = now.wall.0.wrapping_sub(now.monotonic.0);
        let suspended = now.monotonic.since(now.awake);
        let Some(before) = self.last else {
            self.last = Some(Last { ahead_us, suspended });
            return Jumps::default();
        };
        self.last = Some(Last { ahead_us, suspended: suspended.max(before.suspended) });
        let step_us = ahead_us.wrapping_sub(before.ahead_us).cast_signed();
        let more = Micros(suspended.0.saturating_sub(before.suspended.0));
        Jumps {
            step_us: (step_us.unsigned_abs() >= STEP_US).then_some(step_us),
            suspended: (more >= SUSPEND).then_some(more),
            is_timer_off: step_us.unsigned_abs() >= SLEW_US || more >= SUSPEND,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    const START: Reading = Reading {
        wall: UnixMicros(1_763_710_000 * SECOND),
        monotonic: MonotonicMicros(90 * SECOND),
        awake: MonotonicMicros(50 * SECOND),
    };

    /// The same clocks later, each advanced by its number of microseconds.
    fn later(reading: Reading, [wall, monotonic, awake]: [u64; 3]) -> Reading {
        Reading {
            wall: UnixMicros(reading.wall.0 + wall),
            monotonic: reading.monotonic.after(Micros(monotonic)),
            awake: reading.awake.after(Micros(awake)),
        }
    }

    /// The jumps that are found when the clocks have advanced by `moves`.
    fn seen(moves: [u64; 3]) -> Jumps {
        let mut clocks = Clocks::default();
        assert!(clocks.compare(&START).is_none(), "the first reading is compared with nothing");
        clocks.compare(&later(START, moves))
    }

    #[test]
    fn clocks_that_run_together_show_no_jump() {
        for moves in [[0, 0, 0], [SECOND; 3], [3_600 * SECOND; 3], [SECOND + 499_999, SECOND, SECOND]] {
            assert!(seen(moves).is_none(), "{moves:?}");
        }
    }

    #[test]
    fn a_suspend_is_not_a_step_of_the_wall_clock() {
        let jumps = seen([60 * SECOND, 60 * SECOND, SECOND]);
        assert_eq!(jumps, Jumps { step_us: None, suspended: Some(Micros(59 * SECOND)), is_timer_off: true });
        assert_eq!(seen([10_000, 10_000, 0]).suspended, Some(Micros(10_000)));
        assert_eq!(seen([9_999, 9_999, 0]).suspended, None);
    }

    #[test]
    fn a_step_is_not_a_suspend() {
        assert_eq!(seen([3 * SECOND, SECOND, SECOND]).step_us, Some(2_000_000));
        assert_eq!(seen([0, 500_000, 500_000]), Jumps { step_us: Some(-500_000), suspended: None, is_timer_off: true });
        let slew = seen([SECOND + 5_000, SECOND, SECOND]);
        assert_eq!(slew, Jumps { step_us: None, suspended: None, is_timer_off: true });
        assert!(!seen([SECOND + 4_999, SECOND, SECOND]).is_timer_off);
    }

    #[test]
    fn a_step_and_a_suspend_at_once_are_distinguished() {
        let jumps = seen([64 * SECOND, 61 * SECOND, SECOND]);
        assert_eq!(jumps, Jumps { step_us: Some(3_000_000), suspended: Some(Micros(60 * SECOND)), is_timer_off: true });
    }

    #[test]
    fn time_between_two_readings_may_hide_a_suspend_once_and_never_fakes_one() {
        let mut clocks = Clocks::default();
        clocks.compare(&START);
        // The process stalled for two seconds before it read the last clock.
        let late = later(START, [SECOND, SECOND, 3 * SECOND]);
        assert!(clocks.compare(&late).is_none());
        let next = later(START, [4 * SECOND; 3]);
        assert!(clocks.compare(&next).is_none(), "the clocks differ by as much as before");
        let hidden = later(next, [SECOND, SECOND, SECOND]);
        assert!(clocks.compare(&hidden).is_none());
        let shown = later(hidden, [3 * SECOND, 3 * SECOND, 0]);
        assert_eq!(clocks.compare(&shown).suspended, Some(Micros(3 * SECOND)));
        assert!(clocks.compare(&shown).is_none(), "it is reported once");
    }
}
