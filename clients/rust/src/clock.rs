//! A manager's clock: the system's, which keeps running while the machine is suspended, or one that a test of an
//! application moves.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::{First, first};

/// The system's timers stop while the machine is suspended.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The system's clock by default. Clones are the same clock.
#[derive(Clone, Default)]
pub(crate) struct Clock(Option<Arc<dyn Time>>);

/// Time that somebody moves.
pub(crate) trait Time: Send + Sync {
    fn now(&self) -> Duration;
    fn sleep(self: Arc<Self>, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;
    /// Some work begins. The work that it causes begins before it ends.
    fn begin(&self);
    fn end(&self);
    /// A call of the application has returned.
    fn returned(&self);
}

impl fmt::Debug for Clock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Clock")
    }
}

impl Clock {
    /// A clock that somebody moves.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn of(time: Arc<dyn Time>) -> Self {
        Self(Some(time))
    }

    pub(crate) fn moved(&self) -> Option<Arc<dyn Time>> {
        self.0.clone()
    }

    /// The time since some earlier moment. Time during a suspend counts, because the server's clock keeps running.
    pub(crate) fn now(&self) -> Duration {
        self.0.as_ref().map_or_else(system, |time| time.now())
    }

    pub(crate) async fn sleep(&self, span: Duration) {
        match &self.0 {
            None => tokio::time::sleep(span).await,
            Some(time) => Arc::clone(time).sleep(span).await,
        }
    }

    /// The work's outcome; `None` if it takes longer.
    pub(crate) async fn timeout<F: Future>(&self, span: Duration, work: F) -> Option<F::Output> {
        match first(work, self.sleep(span)).await {
            First::Left(done) => Some(done),
            First::Right(()) => None,
        }
    }

    /// Returns at that time, or when the work is done, and sometimes earlier.
    pub(crate) async fn until(&self, at: Duration, work: impl Future) {
        let left = at.saturating_sub(self.now());
        self.timeout(if self.0.is_none() { left.min(LONGEST_SLEEP) } else { left }, work).await;
    }
}

#[cfg(not(test))]
fn system() -> Duration {
    read()
}

#[cfg(test)]
use tests::now as system;

/// The system's clock for this.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn read() -> Duration {
    // The call fails only on kernels before 2.6.39, on which Rust does not run.
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}

/// The time since this process first asked. `Instant` may stop during a suspend, so this counts the larger of the times
/// that have passed on it and on the wall clock.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn read() -> Duration {
    use std::sync::{LazyLock, Mutex};
    use std::time::{Instant, SystemTime};

    static START: LazyLock<(Instant, SystemTime)> = LazyLock::new(|| (Instant::now(), SystemTime::now()));
    static CLOCK: Mutex<Larger> = Mutex::new(Larger::new());
    let mut clock = crate::sync::locked(&CLOCK);
    let (instant, wall) = *START;
    let wall = match SystemTime::now().duration_since(wall) {
        Ok(passed) => i128::try_from(passed.as_nanos()).unwrap_or(i128::MAX),
        Err(before) => i128::try_from(before.duration().as_nanos()).map_or(i128::MIN, |nanos| nanos.saturating_neg()),
    };
    clock.at(instant.elapsed(), wall)
}

/// Adds up the larger of the times that have passed on two clocks. Setting the wall clock back never lengthens a lease.
#[cfg(any(test, not(any(target_os = "linux", target_os = "android"))))]
struct Larger {
    /// How many nanoseconds the wall clock is ahead, and how much time the other one has missed.
    ahead: i128,
    missed: Duration,
}

#[cfg(any(test, not(any(target_os = "linux", target_os = "android"))))]
impl Larger {
    /// The two clocks are not read at quite the same moment.
    const JITTER: i128 = 10_000_000;

    const fn new() -> Self {
        Self { ahead: 0, missed: Duration::ZERO }
    }

    fn at(&mut self, monotonic: Duration, wall: i128) -> Duration {
        let ahead = wall.saturating_sub(i128::try_from(monotonic.as_nanos()).unwrap_or(i128::MAX));
        let more = ahead.saturating_sub(self.ahead);
        if more > Self::JITTER {
            self.missed = self.missed.saturating_add(Duration::from_nanos(u64::try_from(more).unwrap_or(u64::MAX)));
        }
        if !(0..=Self::JITTER).contains(&more) {
            self.ahead = ahead;
        }
        monotonic.saturating_add(self.missed)
    }
}

/// Whole milliseconds, but never 0: the server rejects a lease of 0.
pub(crate) fn milliseconds(span: Duration) -> i64 {
    let rounded = span.saturating_add(Duration::from_micros(500)).as_millis();
    i64::try_from(rounded).unwrap_or(i64::MAX).max(1)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static STOPPED: Cell<Option<Duration>> = const { Cell::new(None) };
    }

    pub(crate) fn now() -> Duration {
        STOPPED.get().unwrap_or_else(read)
    }

    /// From now on, this thread's clock stands still, except for this.
    pub(crate) fn advance(span: Duration) {
        STOPPED.set(Some(now().saturating_add(span)));
    }

    #[test]
    fn milliseconds_are_rounded_but_never_to_zero() {
        for (micros, ms) in [(0, 1), (1, 1), (1499, 1), (1500, 2), (2_000_000, 2000)] {
            assert_eq!(milliseconds(Duration::from_micros(micros)), ms, "{micros} us");
        }
        assert_eq!(milliseconds(Duration::MAX), i64::MAX);
    }

    #[test]
    fn the_larger_advance_of_two_clocks_counts() {
        let (mut clock, mut monotonic, mut wall) = (Larger::new(), Duration::ZERO, 0_i128);
        let mut before = clock.at(monotonic, wall);
        for (what, more, more_wall, passed) in [
            ("both run", 3, 3, 3),
            ("a suspend", 1, 60, 60),
            ("both run", 2, 2, 2),
            ("a step backwards", 1, -3600, 1),
            ("a suspend after it", 0, 30, 30),
            ("a step forwards", 1, 100, 100),
            ("nothing", 0, 0, 0),
        ] {
            monotonic += Duration::from_secs(more);
            wall += more_wall * 1_000_000_000;
            let read = clock.at(monotonic, wall);
            assert_eq!(read.checked_sub(before), Some(Duration::from_secs(passed)), "{what}");
            before = read;
        }
    }

    #[test]
    fn the_clock_runs() {
        let clock = Clock::default();
        let before = clock.now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(clock.now() >= before + Duration::from_millis(2));
    }

    struct Stopped;

    impl Time for Stopped {
        fn now(&self) -> Duration {
            Duration::from_secs(7)
        }

        fn sleep(self: Arc<Self>, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
            let is_over = span.is_zero();
            Box::pin(async move {
                if !is_over {
                    std::future::pending::<()>().await;
                }
            })
        }

        fn begin(&self) {}
        fn end(&self) {}
        fn returned(&self) {}
    }

    #[tokio::test]
    async fn waits_are_counted_on_the_clock() {
        let (clock, span) = (Clock::of(Arc::new(Stopped)), Duration::from_nanos(1));
        assert_eq!(clock.now(), Duration::from_secs(7));
        assert_eq!(clock.timeout(Duration::ZERO, std::future::pending::<()>()).await, None);
        let work = async {
            Clock::default().sleep(Duration::from_millis(2)).await;
            7
        };
        assert_eq!(clock.timeout(span, work).await, Some(7), "no time passes");
        assert_eq!(Clock::default().timeout(span, std::future::pending::<()>()).await, None);
        Clock::default().until(Duration::ZERO, std::future::pending::<()>()).await;
    }
}
