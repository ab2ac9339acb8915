//! Counts events, so that a run that does nothing is noticed.

/// A run's counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub steps: usize,
    /// Steps that made sense at their point in the run.
    pub done: usize,
    pub grants: usize,
    pub hand_offs: usize,
    /// Waits that ended.
    pub time_outs: usize,
    pub errors: usize,
    /// Connections that ended with an undelivered reply.
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
