//! How a lock is released.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use crate::command::Command;
use crate::engine::Engine;
use crate::error::{Error, Kind};
use crate::failures::{Failure, number};
use crate::hold::{Ended, Hold};
use crate::portable::Sending;
use crate::results::Bytes;
use crate::watch::End;

impl Engine {
    /// Releases the lock of a hold that has just ended. Fails as lost unless it was held to the end.
    pub(crate) async fn release(self: &Arc<Self>, hold: &Arc<Hold>, ended: Ended) -> Result<(), Error> {
        self.release_with(hold, ended, None).await
    }

    /// The same, and passes a result on to all that wait for it.
    pub(crate) async fn release_with(
        self: &Arc<Self>,
        hold: &Arc<Hold>,
        ended: Ended,
        result: Option<Bytes>,
    ) -> Result<(), Error> {
        if self.resources.is_inherited() {
            return ended.lost.map_or(Ok(()), Err);
        }
        self.timer.forget();
        let mut outcome = Ok(false);
        if !ended.is_gone {
            let left = hold.granted.saturating_add(hold.request.settings.at_least).saturating_sub(hold.now());
            outcome = if left.is_zero() || ended.lost.is_some() {
                self.release_now(hold, result).await
            } else {
                self.release_later(hold, left).await
            };
        }
        hold.leave_session();
        self.ended(hold, outcome, ended.lost)
    }

    /// Reports the end of a hold. `outcome` is whether the server had the grant to the end.
    pub(crate) fn ended(&self, hold: &Hold, outcome: Result<bool, Error>, lost: Option<Error>) -> Result<(), Error> {
        let was_held = matches!(outcome, Ok(true)) && lost.is_none();
        self.notify_release(hold, was_held);
        hold.end_watch(was_held);
        outcome?;
        match lost {
            Some(lost) => Err(lost),
            None if was_held => Ok(()),
            None => Err(Error::new(Kind::Lost, &hold.request.name, "lost: its grant had ended before it was released")),
        }
    }

    /// Releases the lock of a hold in the background, if it has not ended.
    pub(crate) fn give_up(self: &Arc<Self>, hold: &Arc<Hold>) {
        if hold.end().is_some() {
            hold.end_watch(true);
            self.timer.forget();
            self.owe_release(hold, hold.lease_ends(), None);
        }
    }

    /// Sends the release until it gets a reply, for at most one call's time-out; after that, in the background until
    /// the lease ends.
    async fn release_now(self: &Arc<Self>, hold: &Arc<Hold>, result: Option<Bytes>) -> Result<bool, Error> {
        let (reach, lost_at) = (&self.resources.reach, hold.lost_at());
        let end = hold.now().saturating_add(reach.timeout).min(lost_at);
        let (mut tries, mut late) = (1_u32, None);
        let mut passed = result.as_ref().map(|it| it.as_slice());
        let mut sending = hold.releasing(passed).await;
        loop {
            let call = late.take().unwrap_or_else(|| reach.router.call(sending.key(), sending.cmd(), reach.timeout));
            let Some(reply) = sending.read(call.await) else { continue };
            let failure = match reply {
                Ok(reply) if hold.request.was_held(&reply) => return Ok(true),
                // A second RELEASE may find that the first was carried out.
                Ok(reply) => return Ok(reply == Value::Int(0) && tries > 1 && hold.now() < lost_at),
                Err(failure) => failure,
            };
            let is_too_long = passed.is_some() && failure.is_result_too_long();
            if is_too_long || hold.missed(&failure) {
                passed = passed.filter(|_| !is_too_long);
                sending = hold.releasing(passed).await;
                continue;
            }
            if !failure.is_transient() {
                return Err(failure.typed(&hold.request.name));
            }
            if hold.now() >= end {
                warn_of_release(hold, &failure);
                self.owe_release(hold, hold.lease_ends(), passed.and(result.clone()));
                return Ok(hold.now() < lost_at);
            }
            sending = hold.releasing(passed).await;
            if let Failure::Late(call) = failure {
                if reach.router.passes_late_replies() {
                    tries = tries.saturating_add(1);
                } else {
                    late = Some(call);
                }
                continue;
            }
            let span = Duration::from_millis(20).saturating_mul(tries).min(Duration::from_millis(200));
            reach.clock.sleep(span).await;
            tries = tries.saturating_add(1);
        }
    }

    fn owe_release(self: &Arc<Self>, hold: &Arc<Hold>, until: Duration, result: Option<Bytes>) {
        let hold = Arc::clone(hold);
        self.resources.owe(until, move |resources| {
            let (hold, result) = (Arc::clone(&hold), result.clone());
            async move {
                let mut passed = result.as_ref().map(|it| it.as_slice());
                loop {
                    let sending = hold.releasing(passed).await;
                    match resources.send(sending, resources.reach.timeout, Duration::ZERO).await {
                        Err(failure) if passed.is_some() && failure.is_result_too_long() => passed = None,
                        reply => return reply.map(|_| ()).inspect_err(|failure| _ = hold.missed(failure)),
                    }
                }
            }
        });
    }

    /// Shortens the lease to what is left of `at_least`, and releases the lock after that.
    async fn release_later(self: &Arc<Self>, hold: &Arc<Hold>, left: Duration) -> Result<bool, Error> {
        let (lost_at, lease_ends) = (hold.lost_at(), hold.lease_ends());
        let reply = hold.send(Command::Extend { token: hold.token, lease: left }).await;
        let until = match &reply {
            Err(failure) if !failure.is_transient() => None,
            Err(failure) => {
                warn_of_release(hold, failure);
                Some(lease_ends)
            }
            Ok(_) => Some(hold.now().saturating_add(left).saturating_add(Duration::from_secs(1))),
        };
        if let Some(until) = until {
            let (engine, hold) = (Arc::clone(self), Arc::clone(hold));
            self.resources.reach.spawn(async move {
                hold.resources.reach.clock.sleep(left).await;
                engine.owe_release(&hold, until, None);
            });
        }
        match reply {
            Ok(reply) => Ok(number(&reply) == Some(1)),
            Err(_) if until.is_some() => Ok(hold.now() < lost_at),
            Err(failure) => Err(failure.typed(&hold.request.name)),
        }
    }
}

impl Hold {
    /// A release that passes a result on. The script cannot do that, so the result is stored first, unless the lock is
    /// lost.
    async fn releasing<'a>(&'a self, result: Option<&'a [u8]>) -> Sending<'a> {
        let sending = self.sending(Command::Release { token: self.token, result });
        if let (true, Some(value)) = (sending.is_script() && self.now() < self.lost_at(), result) {
            self.resources.store(&self.request, self.token, value).await;
        }
        sending
    }

    /// Call this when the hold has been released. `was_held`: to the end.
    fn end_watch(&self, was_held: bool) {
        let Some(watching) = self.watching.get() else { return };
        if was_held {
            watching.ended(End::Released, None);
        } else {
            let lost = "lost: its grant had ended before it was released";
            watching.ended(End::Lost, Some(&Error::new(Kind::Lost, &self.request.name, lost)));
        }
    }
}

fn warn_of_release(hold: &Hold, failure: &Failure) {
    log::warn!("serverlock: the lock {} is released in the background: {}", hold.request.name, failure.text());
}
