//! Runs a body once for each tick, in one of the processes that ask. The lock itself records that a tick has run: it is
//! kept until the tick's window ends.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::error::{Error, Kind};
use crate::hold::Hold;
use crate::keep::LATE_EXTEND;
use crate::request::{Form, Request, Sharing, TEN_YEARS};
use crate::server_clock::{Estimate, MOST_DOUBT, USUAL_MARGIN};
use crate::sync::Signal;
use crate::ticks::{LEAST_PERIOD, default_lease, is_recovery, tick_at, window_ends};

/// A long lease that ends earlier than it should by more than `MOST_EARLY`, or later by more than `MOST_LATE`, is
/// corrected.
const MOST_EARLY: Duration = Duration::from_millis(2);
const MOST_LATE: Duration = Duration::from_millis(100);
/// After this time, two clocks may have drifted so far apart that the server's is read again when a body ends.
const DRIFTS: Duration = Duration::from_secs(600);
const MILLISECOND: Duration = Duration::from_millis(1);
/// A long lease is at least this long until the tick of its grant is known: that may be the next one.
const LEAST_LONG: Duration = Duration::from_secs(1);

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
    let mut request = Request::new(vec![key.to_vec()], default_lease(period), Form::Tick, Sharing::Alone);
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
    fn long_request(&self, now: Duration, estimate: Estimate, margin: Duration) -> Arc<Request> {
        let tick = tick_at(estimate.server_at(now), self.period);
        let run = Run { tick, period: self.period, is_recovery: false, estimate, margin, is_long: true };
        let mut request = self.request.as_ref().clone();
        request.lease = run.lease_ends().saturating_sub(now).max(LEAST_LONG);
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
    let estimate = engine.unless_over(name, &cancel, reading).await?;
    let request = if schedule.reruns {
        Arc::clone(&schedule.request)
    } else {
        schedule.long_request(engine.resources.now(), estimate, clock.margin())
    };
    let hold = match engine.acquire(request, Arc::clone(&cancel)).await {
        Err(error) if error.kind() == Kind::Refused => return Ok(None),
        hold => hold?,
    };
    match engine.unless_over(name, &cancel, begun(engine, &hold, &schedule, estimate)).await {
        Ok(run) => Ok(Some((hold, run))),
        Err(error) => {
            engine.give_up(&hold);
            Err(error)
        }
    }
}

/// Determines the tick of a grant.
async fn begun(engine: &Arc<Engine>, hold: &Arc<Hold>, schedule: &Schedule, estimate: Estimate) -> Result<Run, Error> {
    let period = schedule.period;
    let margin =
        if hold.is_portable() { USUAL_MARGIN } else { engine.resources.clock.read_margin(hold.request.key()).await };
    // The server granted it between two moments. If a kept lease had to end first, its window has ended by the later
    // of the two.
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
        let sent = hold.now();
        engine.extend(hold, due.saturating_sub(sent).max(MILLISECOND)).await?;
        took = hold.now().saturating_sub(sent);
    }
    Ok(())
}

/// Ends the hold of a body that succeeded: nobody else will run its tick. Fails as lost unless it was held to the end.
pub(crate) async fn finish(engine: &Arc<Engine>, hold: &Arc<Hold>, mut run: Run) -> Result<(), Error> {
    let is_stale = hold.now() > run.estimate.asked.saturating_add(DRIFTS) || !run.estimate.is_good();
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    use redis::Value;
    use tokio::sync::Notify;

    use super::*;
    use crate::clock::tests::{advance, now};
    use crate::debts::LATE_COPY;
    use crate::failures::Failure;
    use crate::server_clock::tests::{DAY, FakeServer, START, eventually, fails, refuses};
    use crate::sync::locked;

    const HOUR: Duration = Duration::from_secs(3600);

    fn scheduled(lease: Duration, reruns: bool) -> Schedule {
        let mut request = request_of(b"a", DAY);
        request.lease = lease;
        Schedule { request: Arc::new(request), period: DAY, reruns }
    }

    async fn begins(engine: &Arc<Engine>, schedule: Schedule) -> (Arc<Hold>, Run) {
        begin(engine, schedule, Arc::default()).await.unwrap().unwrap()
    }

    /// Runs a body that does nothing.
    async fn runs(engine: &Arc<Engine>, lease: Duration) -> Result<(), Error> {
        let (hold, run) = begins(engine, scheduled(lease, true)).await;
        finish(engine, &hold, run).await
    }

    #[test]
    fn the_lease_ends_a_margin_before_half_way_on_the_local_clock() {
        let run = |doubt| {
            let estimate = Estimate::of(START, Duration::from_secs(1000), doubt);
            let (period, margin) = (LEAST_PERIOD, Duration::from_millis(1500));
            let tick = tick_at(START, period);
            Run { tick, period, is_recovery: false, estimate, margin, is_long: false }.lease_ends()
        };
        for (doubt, later) in [(0, 0), (100, 100), (250, 250), (5000, 250)] {
            let ends = run(Duration::from_millis(doubt));
            assert_eq!(ends, Duration::from_millis(1_003_500 + later), "a doubt of {doubt} ms");
        }
    }

    #[tokio::test]
    async fn bad_arguments_are_named() {
        let server = FakeServer::new();
        let engine = server.engine();
        let ms = Duration::from_millis;
        for (text, period, lease) in [
            ("period is 9.999s", ms(9999), None),
            ("period is 0ns", Duration::ZERO, None),
            ("period is", TEN_YEARS + MILLISECOND, None),
            ("lease is 5.001s", ms(10_000), Some(ms(5001))),
            ("lease is 31s", ms(60_000), Some(ms(31_000))),
            ("lease is 0ns", ms(60_000), Some(Duration::ZERO)),
        ] {
            let mut request = request_of(b"job", period);
            request.lease = lease.unwrap_or(request.lease);
            let schedule = Schedule { request: Arc::new(request), period, reruns: true };
            let error = begin(&engine, schedule, Arc::default()).await.err().unwrap();
            assert_eq!(error.kind(), Kind::Argument);
            assert!(error.to_string().starts_with(&format!("the lock \"job\": {text}")), "{error}");
        }
        engine.close();
        let error = begin(&engine, scheduled(HOUR, true), Arc::default()).await.err().unwrap();
        assert_eq!((error.kind(), server.count("TIME")), (Kind::Misuse, 0));
    }

    #[tokio::test]
    async fn a_tick_that_has_run_is_kept_until_its_window_ends() {
        for margin in [0, 1, 7] {
            let server = FakeServer::new();
            server.set_margin(Duration::from_secs(margin));
            let engine = server.engine();
            let (hold, run) = begins(&engine, scheduled(default_lease(DAY), true)).await;
            assert_eq!((run.tick, run.is_recovery, server.is_kept()), (20_833, false, false));
            hold.check().unwrap();
            finish(&engine, &hold, run).await.unwrap();
            assert!(server.is_kept() && server.count("LOCK.RELEASE") == 0, "with a margin of {margin} s");
            assert!(hold.lost().is_none() && hold.check().unwrap_err().is_lost(), "it was released");
            let acquire = &server.sent("LOCK.ACQUIRE")[0];
            assert!(acquire.starts_with("LOCK.ACQUIRE a PX 10000 ID ") && acquire.ends_with(" DETAILS"), "{acquire}");
        }
    }

    #[tokio::test]
    async fn a_tick_that_runs_elsewhere_is_none() {
        let server = FakeServer::new();
        server.instead(|_, words| words.starts_with("LOCK.ACQUIRE").then(|| Box::pin(async { Ok(Value::Nil) }) as _));
        assert!(begin(&server.engine(), scheduled(HOUR, true), Arc::default()).await.unwrap().is_none());
        assert_eq!(server.count("LOCK.INFO"), 0);
    }

    #[tokio::test]
    async fn a_predecessor_that_died_in_this_window_is_recovered() {
        let half = i64::try_from((DAY / 2).as_millis()).unwrap();
        for (overdue, is_recovery) in [(500, true), (half - 2000, true), (half - 1000, false), (half, false)] {
            let server = FakeServer::new();
            server.instead(move |_, words| {
                let details = vec![Value::Int(7), Value::Int(overdue), Value::Int(3), Value::BulkString("bob".into())];
                words.starts_with("LOCK.ACQUIRE").then(|| Box::pin(async { Ok(Value::Array(details)) }) as _)
            });
            let (_, run) = begins(&server.engine(), scheduled(HOUR, true)).await;
            assert_eq!(run.is_recovery, is_recovery, "{overdue} ms after the end of the lease");
        }
    }

    #[tokio::test]
    async fn without_rerun_the_lease_is_long_from_the_start() {
        for (margin, corrections) in [(1, 0), (9, 1)] {
            let server = FakeServer::new();
            server.set_margin(Duration::from_secs(margin)); // unknown until the first grant
            let engine = server.engine();
            let (hold, run) = begins(&engine, scheduled(HOUR, false)).await;
            assert!(server.is_kept(), "with a margin of {margin} s");
            advance(DAY / 4);
            assert!(hold.due().is_some_and(|due| !due.renews), "it is never renewed");
            finish(&engine, &hold, run).await.unwrap();
            assert_eq!((server.count("LOCK.EXTEND"), server.is_kept()), (corrections, true));
        }
    }

    #[tokio::test]
    async fn a_long_lease_from_a_slow_request_is_corrected() {
        let (server, slow) = (FakeServer::new(), AtomicU32::new(2));
        server.instead(move |_, words| {
            let is_grant = words.starts_with("LOCK.ACQUIRE") || words.starts_with("LOCK.EXTEND");
            if is_grant && slow.load(Ordering::SeqCst) > 0 {
                slow.fetch_sub(1, Ordering::SeqCst);
                advance(Duration::from_secs(3));
            }
            None
        });
        let (hold, _) = begins(&server.engine(), scheduled(HOUR, false)).await;
        assert!(server.is_kept() && server.count("LOCK.EXTEND") == 2);
        hold.check().unwrap();
    }

    #[tokio::test]
    async fn a_long_lease_of_a_grant_in_the_next_window_lasts_until_its_end() {
        let server = FakeServer::new();
        server.set_ahead((DAY / 2).saturating_sub(Duration::from_millis(200)));
        server.instead(|_, words| {
            if words.starts_with("LOCK.ACQUIRE") {
                advance(Duration::from_millis(500));
            }
            None
        });
        let (hold, run) = begins(&server.engine(), scheduled(HOUR, false)).await;
        assert!(run.tick == 20_834 && server.is_kept_until(START + DAY + DAY / 2));
        hold.check().unwrap();
    }

    #[tokio::test]
    async fn a_caller_that_gives_up_before_its_body_holds_nothing() {
        for (command, closes) in [("TIME", false), ("LOCK.ACQUIRE", false), ("LOCK.INFO", false), ("LOCK.INFO", true)] {
            let (server, cancel) = (FakeServer::new(), Arc::<Signal>::default());
            let engine = server.engine();
            let over = if closes { Arc::clone(&engine.resources.reach.closed) } else { Arc::clone(&cancel) };
            server.instead(move |_, words| {
                if words.starts_with(command) {
                    over.fire();
                }
                None
            });
            let error = begin(&engine, scheduled(HOUR, true), cancel).await.err().unwrap();
            assert_eq!(error.kind(), if closes { Kind::Misuse } else { Kind::Cancelled }, "{command}: {error}");
            let ends = usize::from(command != "TIME");
            let has_ended = || server.count("LOCK.RELEASE") + server.count("LOCK.CANCEL") == ends;
            eventually("nothing is held", has_ended).await;
        }
    }

    #[tokio::test]
    async fn the_time_is_read_again_after_a_long_body() {
        let second = Duration::from_secs(1);
        for (takes, fails, is_kept) in [
            (DRIFTS.saturating_sub(second), false, false),
            (DRIFTS + second, false, true),
            (DRIFTS + second, true, false),
        ] {
            let server = FakeServer::new();
            let engine = server.engine();
            let (hold, run) = begins(&engine, scheduled(HOUR, true)).await;
            advance(takes);
            server.set_ahead(second * 20); // its clock has drifted, or was set
            if fails {
                server.instead(|_, words| (words == "TIME").then(|| refuses("ERR no")));
            }
            finish(&engine, &hold, run).await.unwrap();
            assert_eq!((server.is_kept(), server.count("LOCK.EXTEND")), (is_kept, 1), "after {takes:?}");
        }
    }

    #[tokio::test]
    async fn the_time_is_read_again_after_a_slow_reply() {
        let server = FakeServer::new();
        let engine = server.engine();
        let (hold, mut run) = begins(&engine, scheduled(HOUR, true)).await;
        run.estimate = Estimate::of(START + HOUR, now(), Duration::from_secs(1));
        finish(&engine, &hold, run).await.unwrap();
        assert!(server.is_kept());
    }

    #[tokio::test]
    async fn a_renewal_in_flight_cannot_shorten_the_lease() {
        for is_confirmed in [true, false] {
            let server = FakeServer::new();
            let engine = server.engine();
            let (hold, run) = begins(&engine, scheduled(HOUR, true)).await;
            let renewal = hold.extending(now(), HOUR).unwrap();
            let (at, kept) = (Arc::clone(&engine), Arc::clone(&hold));
            let finishing = tokio::spawn(async move { finish(&at, &kept, run).await });
            eventually("the hold has ended", || hold.is_over()).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(server.count("LOCK.EXTEND"), 0);
            if is_confirmed {
                renewal.done();
            } else {
                drop(renewal); // the server may still run it, so a last copy is sent
            }
            finishing.await.unwrap().unwrap();
            assert!(server.is_kept());
            let copies = if is_confirmed { 1 } else { 2 };
            eventually("the last copy is sent", || server.count("LOCK.EXTEND") == copies).await;
            assert!(server.is_kept());
        }
    }

    #[tokio::test]
    async fn no_extend_is_sent_once_a_hold_has_ended() {
        let server = FakeServer::new();
        let engine = server.engine();
        let (hold, _) = begins(&engine, scheduled(HOUR, true)).await;
        engine.give_up(&hold);
        assert!(hold.extending(now(), HOUR).is_none());
        assert!(engine.extend(&hold, HOUR).await.unwrap_err().is_lost());
        eventually("it is released", || server.count("LOCK.RELEASE") == 1).await;
        assert_eq!(server.count("LOCK.EXTEND"), 0);
    }

    #[tokio::test]
    async fn a_slow_extend_is_sent_again_at_most_twice() {
        for (slow, sent) in [(0, 1), (1, 2), (2, 3), (9, 3)] {
            let (server, left) = (FakeServer::new(), AtomicU32::new(slow));
            server.instead(move |_, words| {
                if words.starts_with("LOCK.EXTEND") && left.load(Ordering::SeqCst) > 0 {
                    left.fetch_sub(1, Ordering::SeqCst);
                    advance(Duration::from_secs(1));
                }
                None
            });
            runs(&server.engine(), HOUR).await.unwrap();
            assert_eq!((server.count("LOCK.EXTEND"), server.is_kept()), (sent, slow < 3), "{slow} are slow");
        }
    }

    #[tokio::test]
    async fn a_lost_reply_to_the_last_extend_is_followed_by_a_late_copy() {
        let (server, lost) = (FakeServer::new(), AtomicU32::new(1));
        server.instead(move |server, words| {
            if !words.starts_with("LOCK.EXTEND") || lost.swap(0, Ordering::SeqCst) == 0 {
                return None;
            }
            server.usual(words);
            Some(fails(Failure::broken("the connection has ended")))
        });
        runs(&server.engine(), HOUR).await.unwrap();
        assert!(server.is_kept() && server.count("LOCK.EXTEND") == 2);
        advance(LATE_COPY);
        eventually("the last copy is sent", || server.count("LOCK.EXTEND") == 3).await;
        assert!(server.is_kept() && server.count("LOCK.RELEASE") == 0);
    }

    #[tokio::test]
    async fn a_tick_is_kept_in_the_background_on_a_busy_server() {
        let (server, busy) = (FakeServer::new(), Arc::new(AtomicU32::new(1)));
        let is_busy = Arc::clone(&busy);
        server.instead(move |_, words| {
            if !words.starts_with("LOCK.EXTEND") || is_busy.load(Ordering::SeqCst) == 0 {
                return None;
            }
            advance(Duration::from_secs(2));
            Some(refuses("BUSY running a script"))
        });
        runs(&server.engine(), HOUR).await.unwrap();
        assert!(!server.is_kept() && server.count("LOCK.EXTEND") >= 3);
        busy.store(0, Ordering::SeqCst);
        eventually("it is kept", || server.is_kept()).await;
    }

    /// The server runs an EXTEND long after it was sent, so its lease ends too late.
    #[tokio::test]
    async fn a_late_extend_does_not_lengthen_the_lease() {
        for passes in [true, false] {
            let (server, gate) = (FakeServer::new(), Arc::new(Notify::new()));
            if passes {
                server.pass_late_replies();
            }
            let (late, opens) = (Mutex::new(1), Arc::clone(&gate));
            server.instead(move |server, words| {
                if !words.starts_with("LOCK.EXTEND") || std::mem::take(&mut *locked(&late)) == 0 {
                    return None;
                }
                advance(Duration::from_secs(60)); // longer than a call's time-out
                let (gate, server, words) = (Arc::clone(&opens), server.clone(), words.to_owned());
                let late = async move {
                    gate.notified().await;
                    Ok(server.usual(&words))
                };
                Some(fails(Failure::Late(Box::pin(late))))
            });
            let engine = server.engine();
            runs(&engine, HOUR).await.unwrap();
            if passes {
                eventually("another copy is sent", || server.is_kept()).await;
            } else {
                tokio::time::sleep(Duration::from_millis(300)).await;
                assert_eq!(server.count("LOCK.EXTEND"), 1, "a copy is still in flight");
            }
            let before = server.count("LOCK.EXTEND");
            gate.notify_one();
            eventually("it is kept again", || server.count("LOCK.EXTEND") == before + 1 && server.is_kept()).await;
        }
    }

    #[tokio::test]
    async fn an_error_that_is_not_retried_ends_the_keep() {
        let server = FakeServer::new();
        let grace = "GRACE lease is longer than the grace";
        server.instead(|_, words| words.starts_with("LOCK.EXTEND").then(|| refuses(grace)));
        let error = runs(&server.engine(), HOUR).await.unwrap_err();
        assert_eq!((error.kind(), server.count("LOCK.RELEASE")), (Kind::Unavailable, 0));
    }

    #[tokio::test]
    async fn a_grant_that_is_over_at_the_end_of_the_body_is_a_loss() {
        let server = FakeServer::new();
        server.instead(|_, words| words.starts_with("LOCK.EXTEND").then(|| Box::pin(async { Ok(Value::Int(0)) }) as _));
        assert!(runs(&server.engine(), HOUR).await.unwrap_err().is_lost());
        assert_eq!(server.count("LOCK.RELEASE"), 0);
    }

    #[tokio::test]
    async fn a_lock_whose_window_is_over_is_released() {
        let server = FakeServer::new();
        let engine = server.engine();
        let (hold, run) = begins(&engine, scheduled(DAY / 2, true)).await;
        server.set_ahead(DAY / 2);
        advance(DRIFTS + Duration::from_secs(1));
        finish(&engine, &hold, run).await.unwrap();
        assert_eq!((server.count("LOCK.RELEASE"), server.count("LOCK.EXTEND")), (1, 0));
    }

    #[tokio::test]
    async fn a_closed_manager_keeps_the_tick() {
        let server = FakeServer::new();
        let engine = server.engine();
        let (hold, run) = begins(&engine, scheduled(HOUR, true)).await;
        engine.close();
        finish(&engine, &hold, run).await.unwrap();
        assert!(server.is_kept() && server.count("LOCK.RELEASE") == 0);
    }
}
