//! The clocks of both servers: they stand still during a step, and are set in between.

/// The true time is counted from here, in microseconds since 1970.
const START: u64 = 1_763_710_000_000_000;
/// What the clocks that are never set show then.
const BEGIN: u64 = 1_000_000;

/// Where all clocks stand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clocks {
    /// Microseconds since the beginning.
    pub now: u64,
    /// How far the wall clock is ahead.
    pub ahead: i64,
    /// For how long the machine was suspended.
    pub asleep: u64,
}

impl Clocks {
    pub fn wall(self) -> u64 {
        (START + self.now).saturating_add_signed(self.ahead)
    }

    /// Of the machine, suspended or not.
    pub const fn monotonic(self) -> u64 {
        BEGIN + self.now
    }

    /// Of the machine while it runs.
    pub const fn awake(self) -> u64 {
        BEGIN + self.now - self.asleep
    }

    /// The numbers of `clock_shim.c`.
    pub fn numbers(self) -> [i64; 4] {
        let ahead = i64::try_from(START - BEGIN).unwrap() + self.ahead;
        let asleep = i64::try_from(self.asleep).unwrap();
        [ahead, -asleep, 0, i64::try_from(self.monotonic()).unwrap()]
    }
}
