//! Counts of events in a run, to show that it was not idle.

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub steps: u64,
    /// Event-loop iterations on all servers.
    pub iterations: u64,
    pub grants: u64,
    pub hand_offs: u64,
    pub refusals: u64,
    pub deadlocks: u64,
    pub time_outs: u64,
    pub sessions_ended: u64,
    pub undelivered: u64,
    pub promotions: u64,
    pub barred: u64,
    /// Commands of attempts that were cancelled.
    pub cancelled: u64,
    /// Grants to attempts without a connection, and how many of them were claimed.
    pub notified: u64,
    pub claims: u64,
    /// Results that blocked clients got.
    pub results: u64,
    /// Attempts whose channel had no subscriber.
    pub passed_over: u64,
    /// The run's time in microseconds.
    pub time: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.steps += other.steps;
        self.iterations += other.iterations;
        self.grants += other.grants;
        self.hand_offs += other.hand_offs;
        self.refusals += other.refusals;
        self.deadlocks += other.deadlocks;
        self.time_outs += other.time_outs;
        self.sessions_ended += other.sessions_ended;
        self.undelivered += other.undelivered;
        self.promotions += other.promotions;
        self.barred += other.barred;
        self.cancelled += other.cancelled;
        self.notified += other.notified;
        self.claims += other.claims;
        self.results += other.results;
        self.passed_over += other.passed_over;
        self.time += other.time;
    }
}
