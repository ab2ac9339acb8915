//! A lock that is held.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::line::{Error, Line};

/// A lock that is held; dropped, it is given back.
pub struct Guard {
    token: Option<i64>,
    renewal: Option<JoinHandle<Line>>,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    released: Condvar,
}

struct State {
    until: Instant,
    lost: Option<Error>,
    is_released: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the lock was released, within this time.
    fn is_released_within(&self, time: Duration) -> bool {
        let waited = self.released.wait_timeout_while(self.lock(), time, |state| !state.is_released);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_released
    }
}

impl Guard {
    pub(super) fn new(line: Line, until: Instant) -> Self {
        let state = Mutex::new(State { until, lost: None, is_released: false });
        let shared = Arc::new(Shared { state, released: Condvar::new() });
        let (token, renewed) = (line.token(), Arc::clone(&shared));
        Self { token, renewal: Some(thread::spawn(move || renew(line, &renewed))), shared }
    }

    /// The fencing token; none under the fallback.
    #[must_use]
    pub fn token(&self) -> Option<i64> {
        self.token
    }

    /// How much of the lease is left, by the clock of this side.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.shared.lock().until.saturating_duration_since(Instant::now())
    }

    /// # Errors
    /// [`Error::Lost`] unless the lock is held for certain.
    pub fn check(&self) -> Result<(), Error> {
        let state = self.shared.lock();
        match &state.lost {
            Some(lost) => Err(lost.clone()),
            None if state.until <= Instant::now() => Err(Error::Lost("the lease of the lock is over".into())),
            None => Ok(()),
        }
    }

    /// Gives the lock back.
    ///
    /// # Errors
    /// [`Error::Lost`] if it was not held until now.
    pub fn release(mut self) -> Result<(), Error> {
        self.give_back()
    }

    fn give_back(&mut self) -> Result<(), Error> {
        let Some(renewal) = self.renewal.take() else { return Ok(()) };
        self.shared.lock().is_released = true;
        self.shared.released.notify_all();
        let Ok(mut line) = renewal.join() else { return Err(Error::Lost("its renewal panicked".into())) };
        let (end, mut resent) = (Instant::now() + line.options().timeout, false);
        loop {
            let reply = line.exchange("RELEASE", Duration::ZERO);
            if let Some(lost) = &self.shared.lock().lost {
                return Err(lost.clone());
            }
            match reply {
                Ok(Some(1)) => return Ok(()),
                // Sent again, it finds the lock released already.
                Ok(Some(0)) if resent && self.check().is_ok() => return Ok(()),
                Ok(_) => return Err(line.lost("it was over before it was released")),
                Err(error) if error.may_pass() && (!resent || Instant::now() < end) => {
                    resent = true;
                    line.disconnect();
                    thread::sleep(Duration::from_millis(50));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.give_back();
    }
}

/// Renews the lease until the lock is released or lost; gives the line back.
fn renew(mut line: Line, shared: &Shared) -> Line {
    let lease = line.options().lease;
    let (mut pause, mut cause) = (lease / 3, String::from("no time was left"));
    let lost = loop {
        if shared.is_released_within(pause) {
            return line;
        }
        let sent = Instant::now();
        let rest = shared.lock().until.saturating_duration_since(sent + lease / 10);
        if rest.is_zero() {
            break line.lost(&format!("its lease was not renewed: {cause}"));
        }
        match line.exchange_within(rest.min(line.options().timeout), "EXTEND", Duration::ZERO) {
            Ok(Some(1)) => {
                shared.lock().until = sent + lease;
                pause = lease / 3;
            }
            Ok(_) => break line.lost("it was taken away"),
            Err(error) if error.is_broken() && line.options().session => {
                break line.lost(&format!("its session has ended: {error}"));
            }
            Err(error) => {
                if error.is_broken() {
                    line.disconnect();
                }
                pause = (lease / 20).min(rest.saturating_sub(sent.elapsed()));
                cause = error.to_string();
            }
        }
    };
    shared.lock().lost = Some(lost.clone());
    (line.options().on_lost)(&lost);
    line
}
