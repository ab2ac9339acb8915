//! How a lock is given back, and how replicas and disks confirm that it was granted.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use crate::attempt::Attempt;
use crate::clock::now;
use crate::engine::Engine;
use crate::error::{Error, Kind};
use crate::hold::{Ended, Hold};
use crate::judge::{Fault, number};

impl Engine {
    /// Gives back what has just ended. The error is of kind lost unless it was held to the end.
    pub(crate) async fn release(self: &Arc<Self>, hold: &Arc<Hold>, ended: Ended) -> Result<(), Error> {
        if self.is_inherited() {
            return ended.lost.map_or(Ok(()), Err);
        }
        self.timer.forget();
        let mut outcome = Ok(false);
        if !ended.is_gone {
            let left = hold.granted.saturating_add(hold.request.settings.at_least).saturating_sub(now());
            outcome = if left.is_zero() || ended.lost.is_some() {
                self.release_now(hold).await
            } else {
                self.release_later(hold, left).await
            };
        }
        if let Some(line) = &hold.line {
            line.close().await;
        }
        let was_held = matches!(outcome, Ok(true)) && ended.lost.is_none();
        self.tell_release(hold, was_held);
        outcome?;
        match ended.lost {
            Some(lost) => Err(lost),
            None if was_held => Ok(()),
            None => Err(Error::new(Kind::Lost, &hold.request.name, "lost: its grant was over before it was released")),
        }
    }

    fn release_words(&self, hold: &Hold) -> Cmd {
        if hold.is_portable() {
            return self.portable.release(&hold.request, hold.token);
        }
        hold.request.release(hold.token)
    }

    /// Sends it until it is answered, for as long as a call may take; then in the background, until the lease ends.
    async fn release_now(self: &Arc<Self>, hold: &Arc<Hold>) -> Result<bool, Error> {
        let lost_at = hold.lost_at();
        let end = now().saturating_add(self.timeout).min(lost_at);
        let mut tries = 1_u32;
        let mut late = None;
        loop {
            let call = late
                .take()
                .unwrap_or_else(|| self.router.call(hold.request.key(), self.release_words(hold), self.timeout));
            let fault = match call.await {
                Ok(reply) if hold.request.was_held(&reply) => return Ok(true),
                // Sent twice, it may find its own work done.
                Ok(reply) => return Ok(reply == Value::Int(0) && tries > 1 && now() < lost_at),
                Err(fault) => fault,
            };
            if self.missed(hold, &fault) {
                continue;
            }
            if !fault.may_pass() {
                return Err(fault.typed(&hold.request.name));
            }
            if now() >= end {
                warn_of_release(hold, &fault);
                self.owe_release(hold, hold.lease_ends());
                return Ok(now() < lost_at);
            }
            if let Fault::Late(call) = fault {
                late = Some(call);
                continue;
            }
            let span = Duration::from_millis(20).saturating_mul(tries).min(Duration::from_millis(200));
            tokio::time::sleep(span).await;
            tries = tries.saturating_add(1);
        }
    }

    fn owe_release(self: &Arc<Self>, hold: &Arc<Hold>, until: Duration) {
        let hold = Arc::clone(hold);
        self.owe(until, move |engine| {
            let hold = Arc::clone(&hold);
            async move {
                let reply = engine.router.call(hold.request.key(), engine.release_words(&hold), engine.timeout).await;
                reply.map(|_| ()).inspect_err(|fault| _ = engine.missed(&hold, fault))
            }
        });
    }

    /// Cuts the lease to what is left of `at_least`, and releases when that is over.
    async fn release_later(self: &Arc<Self>, hold: &Arc<Hold>, left: Duration) -> Result<bool, Error> {
        let (lost_at, lease_ends) = (hold.lost_at(), hold.lease_ends());
        let reply = self.sent(hold, hold.request.key(), || self.extend_words(hold, left)).await;
        let until = match &reply {
            Err(fault) if !fault.may_pass() => None,
            Err(fault) => {
                warn_of_release(hold, fault);
                Some(lease_ends)
            }
            Ok(_) => Some(now().saturating_add(left).saturating_add(Duration::from_secs(1))),
        };
        if let Some(until) = until {
            let (engine, hold) = (Arc::clone(self), Arc::clone(hold));
            self.spawn(async move {
                tokio::time::sleep(left).await;
                engine.owe_release(&hold, until);
            });
        }
        match reply {
            Ok(reply) => Ok(number(&reply) == Some(1)),
            Err(_) if until.is_some() => Ok(now() < lost_at),
            Err(fault) => Err(fault.typed(&hold.request.name)),
        }
    }
}

fn warn_of_release(hold: &Hold, fault: &Fault) {
    log::warn!("serverlock: the lock {} is released in the background: {}", hold.request.name, fault.text());
}

impl Attempt {
    /// Fails unless enough replicas, or disks, have the grant.
    pub(crate) async fn confirm(&mut self) -> Result<(), Fault> {
        let settings = self.request.settings.clone();
        let replicas = i64::from(settings.replicas);
        if replicas > 0 {
            let reply = self.confirmed(&["WAIT"], settings.replicas).await?;
            let have = number(&reply).unwrap_or(0);
            if have < replicas {
                let reason = format!("{have} of {replicas} replicas have the grant; it was given back");
                return Err(self.error(Kind::Unavailable, reason));
            }
        }
        if settings.fsync {
            let reply = self.confirmed(&["WAITAOF", "1"], settings.replicas).await?;
            let have = match &reply {
                Value::Array(counts) => counts.iter().filter_map(number).fold(0, i64::saturating_add),
                _ => 0,
            };
            let want = replicas.saturating_add(1);
            if have < want {
                let reason = format!("{have} of {want} servers wrote the grant to disk; it was given back");
                return Err(self.error(Kind::Unavailable, reason));
            }
        }
        Ok(())
    }

    /// A server that cannot confirm, because it has no WAITAOF or no AOF, is of no use for this lock.
    async fn confirmed(&mut self, words: &[&str], replicas: u32) -> Result<Value, Fault> {
        let Some(line) = self.line.clone() else { return Err(Fault::broken("the connection of the grant is gone")) };
        let within = self.request.settings.within;
        let mut cmd = Cmd::new();
        cmd.arg(words).arg(replicas).arg(crate::clock::milliseconds(within));
        let timeout = within.saturating_add(self.engine.timeout);
        line.call(&cmd, timeout, &self.cancel).await.map_err(|fault| match fault.code() {
            Some("ERR") => self.error(Kind::Unavailable, format!("the grant cannot be confirmed: {}", fault.text())),
            _ => fault,
        })
    }
}
