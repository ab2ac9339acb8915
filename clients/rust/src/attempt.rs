//! One try to get a lock: sent, waited for, and given up without leaving anything behind.
//!
//! It asks without waiting first, over the application's own connection. Only if somebody else has the lock, it stands in
//! line: alone by blocking in pieces on one line, beside others by NOTIFY, else by blocking on one of a few lines, else by
//! polling with the portable script (wait.rs).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{Cmd, Value};

use crate::clock::{now, part_of, random};
use crate::engine::Engine;
use crate::error::{Error, Kind};
use crate::hold::{Grant, Predecessor};
use crate::judge::{Call, Fault, Reply, number, text};
use crate::line::Line;
use crate::lines::Turn;
use crate::request::Request;
use crate::sync::{First, Signal, first};
use crate::timer::patient;

/// How long a cancelled caller waits for its attempt to be given up at the server. It goes on in the background.
const FAREWELL: Duration = Duration::from_millis(100);
const LARGEST_ID: u64 = 999_999_999_999_999_999;

pub(crate) struct Attempt {
    pub(crate) engine: Arc<Engine>,
    pub(crate) request: Arc<Request>,
    pub(crate) cancel: Arc<Signal>,
    pub(crate) id: u64,
    pub(crate) began: Duration,
    tries: u32,
    pub(crate) line: Option<Arc<Line>>,
    /// That to one of the few lines.
    turn: Option<Turn>,
    /// The line is that of the only wait.
    pub(crate) is_solo: bool,
    pub(crate) uses_line: bool,
    /// The server may know of it.
    pub(crate) may_stand: bool,
    pub(crate) stood: bool,
    pub(crate) is_portable: bool,
    pub(crate) no_notify: bool,
    /// A call without a reply, on a connection that others use too. Its reply is awaited before anything else is sent.
    late: Option<Call>,
    /// The call that was on its way when the caller gave up.
    settling: Option<Call>,
    /// When the request was sent that was answered last.
    pub(crate) sent: Duration,
}

/// What an ACQUIRE came to.
pub(crate) enum Asked {
    Granted(Grant),
    /// Somebody else has it.
    Refused,
    /// It stands in line.
    Standing,
    /// This server, or this user, cannot wait by NOTIFY.
    NoNotify,
}

impl Attempt {
    pub(crate) fn new(engine: Arc<Engine>, request: Arc<Request>, cancel: Arc<Signal>) -> Self {
        let uses_line = request.needs_line();
        Self {
            engine,
            request,
            cancel,
            id: random().checked_rem(LARGEST_ID).unwrap_or(0).saturating_add(1),
            began: now(),
            tries: 0,
            line: None,
            turn: None,
            is_solo: false,
            uses_line,
            may_stand: false,
            stood: false,
            is_portable: false,
            no_notify: false,
            late: None,
            settling: None,
            sent: Duration::ZERO,
        }
    }

    /// The grant, or the error as users get it.
    pub(crate) async fn run(mut self) -> Result<Grant, Error> {
        match self.whole().await {
            Ok(mut grant) => {
                if self.request.settings.session {
                    grant.line = self.line.take();
                }
                Box::pin(self.give_back_line()).await;
                Ok(grant)
            }
            Err(fault) => {
                Box::pin(self.abandon(!fault.is_broken())).await;
                let fault = match fault {
                    Fault::Ours(error) => Fault::Ours(error),
                    _ if self.cancel.is_fired() => Fault::GivenUp,
                    fault => fault,
                };
                Err(self.failure(fault))
            }
        }
    }

    /// The error as users get it. Where the server was changing for all of the wait, that has ended.
    fn failure(&self, fault: Fault) -> Error {
        let is_over = matches!(fault, Fault::Said(_)) && fault.may_pass() && !self.request.wait().is_zero();
        let (text, name) = (fault.text(), &self.request.name);
        let error = fault.typed(name);
        if !is_over {
            return error;
        }
        let waited = now().saturating_sub(self.began);
        Error::new(Kind::Timeout, name, format!("not granted within {waited:.0?}: {text}")).because_of(error)
    }

    async fn whole(&mut self) -> Result<Grant, Fault> {
        self.over()?;
        let grant = self.get().await?;
        if self.request.must_be_confirmed() {
            Box::pin(self.confirm()).await?;
        }
        self.over()?;
        Ok(grant)
    }

    // What a free lock does not need is boxed, so that what it needs is small.

    async fn get(&mut self) -> Result<Grant, Fault> {
        loop {
            self.is_portable = self.engine.is_portable();
            if self.is_portable {
                if let Some(grant) = Box::pin(self.poll()).await? {
                    return Ok(grant);
                }
                continue; // it may be loaded by now
            }
            let may_stand = self.may_stand;
            match self.by_module().await {
                Err(fault) if fault.is_unknown_command() && self.engine.miss_module(&fault) => {
                    self.may_stand = may_stand;
                }
                outcome => return outcome,
            }
        }
    }

    async fn by_module(&mut self) -> Result<Grant, Fault> {
        if self.engine.solo.is_ready()
            && let Some(grant) = Box::pin(self.alone()).await?
        {
            return Ok(grant);
        }
        let waits = !self.request.wait().is_zero();
        if waits
            && self.engine.subscription.is_up()
            && self.engine.notifies.load(Ordering::SeqCst)
            && let Some(grant) = Box::pin(self.by_notify()).await?
        {
            return Ok(grant);
        }
        if let Asked::Granted(grant) = self.ask(Duration::ZERO, None, self.engine.timeout).await? {
            return Ok(grant);
        }
        if self.left().is_zero() {
            self.may_stand = false; // its place holds nobody up
            return Err(if waits { self.timed_out() } else { self.refused() });
        }
        if let Some(grant) = Box::pin(self.alone()).await? {
            return Ok(grant);
        }
        if self.engine.notifies.load(Ordering::SeqCst)
            && !self.no_notify
            && let Some(grant) = Box::pin(self.by_notify()).await?
        {
            return Ok(grant);
        }
        match Box::pin(self.by_blocking()).await? {
            Some(grant) => Ok(grant),
            None => Err(self.timed_out()),
        }
    }

    pub(crate) fn left(&self) -> Duration {
        self.request.wait().saturating_sub(now().saturating_sub(self.began))
    }

    /// The error of an attempt that nobody waits for any more.
    pub(crate) fn over(&self) -> Result<(), Fault> {
        if self.cancel.is_fired() {
            return Err(Fault::GivenUp);
        }
        if self.engine.closed.is_fired() {
            return Err(self.error(Kind::Misuse, "its Locks are closed"));
        }
        Ok(())
    }

    pub(crate) fn error(&self, kind: Kind, reason: impl Into<String>) -> Fault {
        Fault::Ours(Error::new(kind, &self.request.name, reason))
    }

    pub(crate) fn refused(&self) -> Fault {
        self.error(Kind::Refused, "somebody else has it")
    }

    pub(crate) fn timed_out(&self) -> Fault {
        let waited = now().saturating_sub(self.began);
        self.error(Kind::Timeout, format!("somebody else still had it after {waited:.1?}"))
    }

    /// Sends it, and again after errors that may pass.
    pub(crate) async fn ask(
        &mut self,
        wait: Duration,
        channel: Option<&str>,
        timeout: Duration,
    ) -> Result<Asked, Fault> {
        let mut wait = wait;
        loop {
            let fault = match self.exchange(self.request.acquire(self.id, wait, channel), timeout).await {
                Ok(reply) => {
                    self.tries = 0;
                    return self.read(&reply);
                }
                Err(fault) => fault,
            };
            let is_refused = matches!(fault.code(), Some("ERR" | "NOPERM")) && !fault.is_unknown_command();
            if channel.is_some() && is_refused && !self.engine.notify_works.load(Ordering::SeqCst) {
                self.no_notify = true;
                return Ok(Asked::NoNotify);
            }
            Box::pin(self.pause_after(fault)).await?;
            if !wait.is_zero() {
                wait = wait.min(self.left()).max(Duration::from_millis(1));
            }
        }
    }

    pub(crate) fn read(&mut self, reply: &Value) -> Result<Asked, Fault> {
        let (token, predecessor) = match reply {
            Value::Nil => return Ok(Asked::Refused),
            Value::Int(token) => (*token, None),
            Value::Array(details) if details.len() == 4 => {
                (details.first().and_then(number).unwrap_or(0), Predecessor::read(details))
            }
            reply if text(reply) == "WAITING" => {
                self.stood = true;
                self.engine.notify_works.store(true, Ordering::SeqCst);
                return Ok(Asked::Standing);
            }
            _ => (0, None),
        };
        if token <= 0 {
            return Err(self.error(Kind::Argument, format!("the server answered {reply:?}")));
        }
        let grant = Grant { token, sent: self.sent, predecessor, is_portable: self.is_portable, line: None };
        Ok(Asked::Granted(grant))
    }

    /// One exchange. While the reply to the one before may still come, that is awaited instead.
    pub(crate) async fn exchange(&mut self, cmd: Cmd, timeout: Duration) -> Reply {
        self.over()?;
        if self.uses_line && !self.line.as_ref().is_some_and(|line| line.is_open()) {
            Box::pin(self.take_line()).await?;
        }
        self.may_stand = true;
        if let Some(line) = &self.line {
            self.sent = now();
            return Box::pin(line.call(&cmd, timeout, &self.cancel)).await;
        }
        let mut call = if let Some(call) = self.late.take() {
            call
        } else {
            self.sent = now();
            self.engine.router.call(self.request.key(), cmd, timeout)
        };
        match first(&mut call, self.cancel.wait()).await {
            First::Left(Err(Fault::Late(call))) => {
                self.late = Some(call);
                Err(Fault::no_reply(timeout))
            }
            First::Left(reply) => reply,
            First::Right(()) => {
                self.settling = Some(call);
                Err(Fault::GivenUp)
            }
        }
    }

    /// Waits a little before the next copy, or gives the error if there is to be none. The connection of the copy before
    /// is closed, or has answered.
    pub(crate) async fn pause_after(&mut self, fault: Fault) -> Result<(), Fault> {
        if matches!(fault, Fault::Ours(_) | Fault::GivenUp) || fault.is_unknown_command() {
            return Err(fault);
        }
        self.tries = self.tries.saturating_add(1);
        if let Some(line) = self.line.clone() {
            line.close().await; // it may lead to a server that does not have the key any more
        }
        if self.engine.router.is_cluster() && (self.uses_line || fault.is_broken()) {
            let _ = self.engine.router.refresh(self.engine.timeout).await;
        }
        if !fault.may_pass() {
            if !fault.is_broken() && !self.stood && self.tries == 1 {
                self.may_stand = false; // after an error nothing has changed
            }
            return Err(fault);
        }
        if self.left().is_zero() && self.tries >= 2 {
            return Err(fault);
        }
        let mut span = Duration::from_millis(10);
        if !self.request.wait().is_zero() {
            let longest = span.saturating_mul(1 << self.tries.min(6)).min(Duration::from_millis(500));
            span = (longest / 2).saturating_add(part_of(longest / 2)).min(self.left());
        }
        self.pause(span).await;
        self.over()
    }

    /// Waits, unless the caller or the manager is done.
    pub(crate) async fn pause(&mut self, span: Duration) {
        let over = first(self.cancel.wait(), self.engine.closed.wait());
        let _ = tokio::time::timeout(span, over).await;
    }

    /// Takes a line for the whole attempt: its own for a session, one of the few for WAIT.
    pub(crate) async fn take_line(&mut self) -> Result<(), Fault> {
        self.give_back_line().await;
        let engine = Arc::clone(&self.engine);
        if self.is_solo {
            self.line = Some(engine.solo.take(&engine, self.request.key()).await?);
            return Ok(());
        }
        if self.request.settings.session {
            self.line = Some(engine.router.dial(self.request.key(), engine.timeout).await?);
            return Ok(());
        }
        let waits = !self.request.wait().is_zero();
        let patience = if waits { self.left() } else { engine.timeout };
        let Some(turn) = engine.lines.turn(&engine, patience, &self.cancel).await else {
            self.over()?;
            return Err(if waits {
                self.timed_out()
            } else {
                Fault::broken(format!("no connection came free within {patience:?}"))
            });
        };
        self.line = Some(engine.lines.line(&engine, self.request.key()).await?);
        self.turn = Some(turn);
        Ok(())
    }

    pub(crate) async fn give_back_line(&mut self) {
        let Some(line) = self.line.take() else { return };
        if self.turn.is_some() {
            self.engine.lines.give_back(&self.engine, line).await;
            self.turn = None;
        } else if !self.is_solo {
            line.close().await;
        }
    }

    /// Leaves the line, and gives back what was granted without its being known.
    async fn abandon(&mut self, is_reachable: bool) {
        let has_given_up = self.cancel.is_fired();
        if let (true, Some(line)) = (has_given_up, self.line.clone()) {
            line.close().await; // a reply that is on its way must not be read as that to another call
        }
        self.give_back_line().await;
        if !self.may_stand {
            return;
        }
        let (engine, request) = (Arc::clone(&self.engine), Arc::clone(&self.request));
        let (id, is_portable) = (self.id, self.is_portable);
        let settling = self.settling.take().or(self.late.take());
        let takes_long = settling.is_some() && !has_given_up;
        let done = self.engine.spawn(async move {
            if let Some(call) = settling {
                let end = now().saturating_add(request.lease).saturating_add(engine.timeout);
                let _ = patient(call, end).await;
            }
            engine.cancel(&request, id, is_portable, is_reachable).await;
        });
        if has_given_up {
            let _ = tokio::time::timeout(FAREWELL, done).await;
        } else if !takes_long {
            let _ = done.await;
        }
    }
}
