//! How a lock outlives its hold: it is kept until the window of its tick ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::Value;

use crate::command::Command;
use crate::debts::LATE_COPY;
use crate::engine::Engine;
use crate::error::Error;
use crate::failures::{Failure, Reply, number};
use crate::hold::Hold;

/// The lease of an EXTEND is counted from when the server runs it, so one that takes longer is sent again.
pub(crate) const LATE_EXTEND: Duration = Duration::from_millis(250);

impl Engine {
    /// Ends a hold whose lock stays until then, by the lease clock, or releases it if that time has passed. Fails as
    /// lost unless it was held to the end.
    ///
    /// `is_long`: the lease already lasts until then.
    pub(crate) async fn keep(self: &Arc<Self>, hold: &Arc<Hold>, until: Duration, is_long: bool) -> Result<(), Error> {
        let Some(ended) = hold.end() else { return Ok(()) };
        if self.resources.is_inherited() || ended.lost.is_some() || hold.now() >= until {
            return self.release(hold, ended).await;
        }
        self.timer.forget();
        let outcome = if is_long { Ok(true) } else { self.keep_now(hold, until).await };
        self.ended(hold, outcome, None)
    }

    /// Tries for at most one call's time-out; after that, in the background until the window ends.
    async fn keep_now(&self, hold: &Arc<Hold>, until: Duration) -> Result<bool, Error> {
        let clock = &self.resources.reach.clock;
        let end = clock.now().saturating_add(self.resources.reach.timeout);
        // A renewal that the server runs after this EXTEND would shorten the lease.
        let is_sure = hold.settled(end).await;
        let mut tries = 1_u32;
        loop {
            let failure = match hold.extend_until(until).await {
                Ok(reply) => {
                    let is_held = number(&reply) == Some(1);
                    if is_held && (tries > 1 || !is_sure) {
                        hold.owe_late_keep(until);
                    }
                    return Ok(is_held);
                }
                Err(failure) => failure,
            };
            if !failure.is_transient() {
                return Err(failure.typed(&hold.request.name));
            }
            if clock.now() >= end || matches!(failure, Failure::Late(_)) {
                let (name, why) = (&hold.request.name, failure.text());
                log::warn!("serverlock: the lock {name} is kept for its period in the background: {why}");
                if hold.outlast(failure, until) {
                    hold.owe_keep(until);
                }
                if !is_sure {
                    hold.owe_late_keep(until);
                }
                return Ok(true);
            }
            let span = Duration::from_millis(20).saturating_mul(tries).min(Duration::from_millis(200));
            clock.sleep(span).await;
            tries = tries.saturating_add(1);
        }
    }
}

impl Hold {
    /// Waits until no EXTEND is in flight, but not beyond `end`. Returns whether the server can no longer run one.
    async fn settled(&self, end: Duration) -> bool {
        while self.is_changing() && self.now() < end {
            self.resources.reach.clock.sleep(Duration::from_millis(5)).await;
        }
        !self.is_changing() && self.failed_at().is_none_or(|at| self.now() >= at.saturating_add(LATE_COPY))
    }

    /// Sets a lease that ends then. An EXTEND that took a long time is sent again, at most twice.
    async fn extend_until(&self, until: Duration) -> Reply {
        let mut tries = 1_u32;
        loop {
            let sent = self.now();
            let lease = rounded_up(until.saturating_sub(sent));
            let reply = self.send(Command::Extend { token: self.token, lease }).await?;
            if reply != Value::Int(1) || self.now() <= sent.saturating_add(LATE_EXTEND) || tries >= 3 {
                return Ok(reply);
            }
            tries = tries.saturating_add(1);
        }
    }

    /// Keeps the lock in the background.
    fn owe_keep(self: &Arc<Self>, until: Duration) {
        if self.now() >= until {
            return;
        }
        let debt = self.keeping(until);
        self.resources.owe(until, move |_| debt());
    }

    /// Keeps the lock in the background once the server can no longer run an earlier EXTEND.
    fn owe_late_keep(self: &Arc<Self>, until: Duration) {
        let debt = self.keeping(until);
        self.resources.owe_late(until, move |_| debt());
    }

    fn keeping(self: &Arc<Self>, until: Duration) -> impl Fn() -> Keeping + Send + 'static {
        let (hold, is_unsure) = (Arc::clone(self), Arc::new(AtomicBool::new(false)));
        move || -> Keeping {
            let (hold, is_unsure) = (Arc::clone(&hold), Arc::clone(&is_unsure));
            Box::pin(async move { hold.keep_once(until, &is_unsure).await })
        }
    }

    /// `is_unsure`: the server may still run an earlier EXTEND of this debt.
    async fn keep_once(self: &Arc<Self>, until: Duration, is_unsure: &AtomicBool) -> Result<(), Failure> {
        let name = &self.request.name;
        match self.extend_until(until).await {
            Ok(reply) if number(&reply) == Some(1) => {
                if is_unsure.load(Ordering::SeqCst) {
                    self.owe_late_keep(until);
                }
            }
            Ok(_) => log::warn!("serverlock: the lock {name} ended before it could be kept for its period"),
            Err(failure) if failure.is_transient() => {
                is_unsure.fetch_or(failure.is_connection_lost(), Ordering::SeqCst);
                let text = failure.text();
                if self.outlast(failure, until) {
                    return Err(Failure::broken(text));
                }
            }
            Err(failure) => {
                let why = failure.text();
                log::warn!("serverlock: the lock {name} could not be kept for its period: {why}");
            }
        }
        Ok(())
    }

    /// If the reply is late, waits for it in the background, and then keeps the lock, because that EXTEND set too long
    /// a lease. Returns whether another copy may be sent before that.
    fn outlast(self: &Arc<Self>, failure: Failure, until: Duration) -> bool {
        let Failure::Late(late) = failure else { return true };
        let (hold, reach) = (Arc::clone(self), self.resources.reach.clone());
        reach.clone().spawn(async move {
            reach.outlast(late).await;
            hold.owe_keep(until);
        });
        self.resources.reach.router.passes_late_replies()
    }
}

type Keeping = std::pin::Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// To whole milliseconds, so that the lease does not end too early.
fn rounded_up(lease: Duration) -> Duration {
    let least = Duration::from_millis(1);
    let ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
    let whole = Duration::from_millis(ms);
    (if whole < lease { whole.saturating_add(least) } else { whole }).max(least)
}
