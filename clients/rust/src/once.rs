//! Runs a body once for each tick, in one of the processes that ask. The lock itself records that a tick has run: it is
//! kept until the tick's window ends.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::now;
use crate::engine::Engine;
use crate::error::{Error, Kind};
use crate::failures::Failure;
use crate::hold::Hold;
use crate::keep::LATE_EXTEND;
use crate::request::{Form, Request, Sharing, TEN_YEARS};
use crate::server_clock::{Estimate, MOST_DOUBT, USUAL_MARGIN};
use crate::sync::{First, Signal, first};
use crate::ticks::{LEAST_PERIOD, default_lease, is_recovery, tick_at, window_ends};

/// A long lease that ends earlier than it should by more than `MOST_EARLY`, or later by more than `MOST_LATE`, is
/// corrected.
const MOST_EARLY: Duration = Duration::from_millis(2);
const MOST_LATE: Duration = Duration::from_millis(100);
/// After this time, two clocks may have drifted so far apart that the server's is read again when a body ends.
const DRIFTS: Duration = Duration::from_secs(600);
const MILLISECOND: Duration = Duration::from_millis(1);

/// What became of a call for a tick, with what the body returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<T> {
    /// The body ran here.
    Ran(T),
    /// Another process is running the tick, or has run it.
    Elsewhere,
    /// The lease of a process that ran expired within this tick's window, perhaps in the middle of its work, and the
    /// body ran here.
    Recovered(T),
}

impl<T> Outcome<T> {
    /// What the body returned; `None` if it ran elsewhere.
    pub fn value(self) -> Option<T> {
        match self {
            Self::Ran(value) | Self::Recovered(value) => Some(value),
            Self::Elsewhere => None,
        }
    }

    /// A stable word for logs and metrics: `ran`, `elsewhere` or `recovered`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Ran(_) => "ran",
            Self::Elsewhere => "elsewhere",
            Self::Recovered(_) => "recovered",
        }
    }
}

/// The request of a schedule without options.
pub(crate) fn request_of(key: &[u8], period: Duration) -> Request {
    let mut request = Request::new(vec![key.to_vec()], default_lease(period), Form::One, Sharing::Alone);
    request.settings.details = true;
    request
}

/// What a caller asked for.
pub(crate) struct Schedule {
    pub(crate) request: Arc<Request>,
    pub(crate) period: Duration,
    /// Whether a tick runs again if its process dies.
    pub(crate) reruns: bool,
}

impl Schedule {
    fn check(&self) -> Result<(), Error> {
        let wrong = |reason: String| Err(Error::new(Kind::Argument, &self.request.name, reason));
        let (period, lease) = (self.period, self.request.lease);
        if !(LEAST_PERIOD..=TEN_YEARS).contains(&period) {
            return wrong(format!("period is {period:?}, not between {LEAST_PERIOD:?} and {TEN_YEARS:?}"));
        }
        self.request.check()?;
        if lease > period / 2 {
            return wrong(format!("lease is {lease:?}, longer than half of the period"));
        }
        Ok(())
    }

    /// A request whose lease lasts until the end of the window from the start.
    fn long_request(&self, estimate: Estimate, margin: Duration) -> Arc<Request> {
        let tick = tick_at(estimate.server_at(now()), self.period);
        let run = Run { tick, period: self.period, is_recovery: false, estimate, margin, is_long: true };
        let mut request = self.request.as_ref().clone();
        request.lease = run.lease_ends().saturating_sub(now()).max(MILLISECOND);
        request.settings.max_hold = Some(Duration::ZERO); // it is never renewed
        Arc::new(request)
    }
}

/// The tick that a hold runs.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) tick: u64,
    period: Duration,
    /// Whether the lease of a process that ran expired within this window.
    pub(crate) is_recovery: bool,
    estimate: Estimate,
    margin: Duration,
    /// From the start, the lease lasts until the end of the window.
    is_long: bool,
}

impl Run {
    /// When the lease must end, by the local clock, so that the server lets others in at the end of the window. If the
    /// estimate of the server's clock is wrong, others may get in a little later, but not earlier.
    fn lease_ends(&self) -> Duration {
        let server = window_ends(self.tick, self.period).saturating_add(self.estimate.doubt.min(MOST_DOUBT));
        self.estimate.local_at(server).saturating_sub(self.margin)
    }
}

/// Begins to run the current tick. `None`: another process is running it, or has run it.
pub(crate) async fn begin(
    engine: &Arc<Engine>,
    schedule: Schedule,
    cancel: Arc<Signal>,
) -> Result<Option<(Arc<Hold>, Run)>, Error> {
    schedule.check()?;
    engine.admit(&schedule.request)?;
    let (name, clock) = (&schedule.request.name, &engine.resources.clock);
    let reading = async { clock.read(schedule.request.key()).await.map_err(|failure| failure.typed(name)) };
    let estimate = unless_over(engine, name, &cancel, reading).await?;
    let request =
        if schedule.reruns { Arc::clone(&schedule.request) } else { schedule.long_request(estimate, clock.margin()) };
    let hold = match engine.acquire(request, Arc::clone(&cancel)).await {
        Err(error) if error.kind() == Kind::Refused => return Ok(None),
        hold => hold?,
    };
    match unless_over(engine, name, &cancel, begun(engine, &hold, &schedule, estimate)).await {
        Ok(run) => Ok(Some((hold, run))),
        Err(error) => {
            engine.give_up(&hold);
            Err(error)
        }
    }
}

/// Fails at once if the caller has given up, or the manager is closed.
async fn unless_over<T>(
    engine: &Engine,
    name: &Arc<str>,
    cancel: &Signal,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let closed = &engine.resources.reach.closed;
    match first(first(cancel.wait(), closed.wait()), work).await {
        First::Left(First::Left(())) => Err(Failure::GivenUp.typed(name)),
        First::Left(First::Right(())) => Err(Error::new(Kind::Misuse, name, "its Locks are closed")),
        First::Right(done) if cancel.is_fired() => done.and(Err(Failure::GivenUp.typed(name))),
        First::Right(done) => done,
    }
}

/// Determines the tick of a grant.
async fn begun(engine: &Arc<Engine>, hold: &Arc<Hold>, schedule: &Schedule, estimate: Estimate) -> Result<Run, Error> {
    let period = schedule.period;
    let margin =
        if hold.is_portable() { USUAL_MARGIN } else { engine.resources.clock.read_margin(hold.request.key()).await };
    // The server granted it between two moments. If a kept lease had to end first, its window has ended by the later.
    let tick = tick_at(estimate.server_at(hold.granted), period);
    let granted = estimate.server_at(hold.requested).saturating_sub(estimate.doubt);
    let is_recovery =
        hold.predecessor.as_ref().is_some_and(|it| is_recovery(granted.saturating_sub(it.overdue), tick, period));
    let run = Run { tick, period, is_recovery, estimate, margin, is_long: !schedule.reruns };
    if run.is_long {
        correct(engine, hold, &run).await?;
    }
    Ok(run)
}

/// Sets the end of a long lease again if it is off because of the tick or the margin, or because the server may have
/// counted it from too late a moment.
async fn correct(engine: &Arc<Engine>, hold: &Arc<Hold>, run: &Run) -> Result<(), Error> {
    let mut took = hold.granted.saturating_sub(hold.requested);
    for _ in 0..3 {
        let (ends, due) = (hold.lease_ends(), run.lease_ends());
        let is_exact = ends.saturating_add(MOST_EARLY) >= due && ends <= due.saturating_add(MOST_LATE);
        if is_exact && took <= LATE_EXTEND {
            break;
        }
        let sent = now();
        engine.extend(hold, due.saturating_sub(sent).max(MILLISECOND)).await?;
        took = now().saturating_sub(sent);
    }
    Ok(())
}

/// Ends the hold of a body that succeeded: nobody else will run its tick. Fails as lost unless it was held to the end.
pub(crate) async fn finish(engine: &Arc<Engine>, hold: &Arc<Hold>, mut run: Run) -> Result<(), Error> {
    let is_stale = now() > run.estimate.asked.saturating_add(DRIFTS) || !run.estimate.is_good();
    if !run.is_long
        && is_stale
        && hold.check().is_ok()
        && let Ok(estimate) = engine.resources.clock.read(hold.request.key()).await
    {
        run.estimate = estimate;
    }
    engine.keep(hold, run.lease_ends(), run.is_long).await
}

/// The parts of `once` that are the same in both forms, on a type with the fields `held: Held` and `run: Run`.
macro_rules! held_once_methods {
    () => {
        /// The number of the tick: how many periods after the beginning of 1970 it begins, by the server's clock.
        #[must_use]
        pub fn tick(&self) -> u64 {
            self.run.tick
        }

        /// Whether the lease of a process that ran expired within this tick's window: its work may be half done.
        #[must_use]
        pub fn recovered(&self) -> bool {
            self.run.is_recovery
        }

        fn outcome<T>(&self) -> impl FnOnce(T) -> $crate::Outcome<T> + use<T> {
            if self.run.is_recovery { $crate::Outcome::Recovered } else { $crate::Outcome::Ran }
        }
    };
}

pub(crate) use held_once_methods;
