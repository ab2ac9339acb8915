//! Counts what happened, so that a run that does nothing is noticed.

/// What came about.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub steps: usize,
    /// Those that made sense where a run had come to.
    pub done: usize,
    pub grants: usize,
    pub hand_offs: usize,
    /// Waits that were over.
    pub time_outs: usize,
    pub errors: usize,
    /// Connections that ended with an answer on its way to them.
    pub lost: usize,
    /// Keys whose native expiry had passed.
    pub expired: usize,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.steps += other.steps;
        self.done += other.done;
        self.grants += other.grants;
        self.hand_offs += other.hand_offs;
        self.time_outs += other.time_outs;
        self.errors += other.errors;
        self.lost += other.lost;
        self.expired += other.expired;
    }
}
