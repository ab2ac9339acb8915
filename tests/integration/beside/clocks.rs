//! The clocks of both servers: they stop during a step, and are set between steps.

/// The start of true time, in microseconds since 1970.
const START: u64 = 1_763_710_000_000_000;
/// The reading of the monotonic clocks at that moment.
const BEGIN: u64 = 1_000_000;

/// The readings of all clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clocks {
    /// Microseconds since the start.
    pub now: u64,
    /// The wall clock's lead over true time.
    pub ahead: i64,
    /// How long the machine was suspended.
    pub asleep: u64,
}

impl Clocks {
    pub fn wall(self) -> u64 {
        (START + self.now).saturating_add_signed(self.ahead)
    }

    /// The boot clock, which counts suspended time.
    pub const fn monotonic(self) -> u64 {
        BEGIN + self.now
    }

    /// The monotonic clock, which stops while the machine is suspended.
    pub const fn awake(self) -> u64 {
        BEGIN + self.now - self.asleep
    }

    /// The clock numbers of `clock_shim.c`.
    pub fn numbers(self) -> [i64; 4] {
        let ahead = i64::try_from(START - BEGIN).unwrap() + self.ahead;
        let asleep = i64::try_from(self.asleep).unwrap();
        [ahead, -asleep, 0, i64::try_from(self.monotonic()).unwrap()]
    }
}
