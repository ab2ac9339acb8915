//! LOCK.* commands that came from a master or an AOF, and were refused: only effects are replicated.

use std::cell::Cell;

/// How many refused commands are logged one by one.
const LOGGED: u64 = 10;

/// What came from a master or an AOF.
#[derive(Default)]
pub struct Listeners {
    /// LOCK.* commands that came from a master or an AOF.
    refused: Cell<u64>,
}

impl Listeners {
    /// Counts a LOCK.* command that came from a master or an AOF, and was refused. Returns the count, if it is to be
    /// logged: of many only fewer and fewer.
    pub fn refused(&self) -> Option<u64> {
        let count = self.refused.get().wrapping_add(1);
        self.refused.set(count);
        (count <= LOGGED || count.is_power_of_two()).then_some(count)
    }

    /// LOCK.* commands that were refused; for INFO.
    pub fn count_of_refused(&self) -> u64 {
        self.refused.get()
    }
}
