//! One attempt to get a lock: sent, waited for, and given up without leaving anything behind.
//!
//! It first asks without waiting, over the application's own connection. It joins the queue only if somebody else has
//! the lock. A single waiter blocks in pieces on one connection; several waiters use NOTIFY, or else block on a few
//! connections. Without the module, an attempt joins the script's queue with NOTIFY, or polls if it cannot (wait.rs).
//! An attempt for a session lock blocks on its session's connection from the start (sessions.rs). Each copy goes to the
//! module or the script, whichever is available at that moment (copy.rs).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::command::Command;
use crate::connection::Connection;
use crate::connections::Turn;
use crate::error::{Error, Kind};
use crate::failures::{Call, Failure, field, patient, text};
use crate::hold::{Got, Grant};
use crate::portable::Sending;
use crate::random::{part_of, random};
use crate::request::{Form, Request};
use crate::resources::Resources;
use crate::results::Stored;
use crate::sessions::Taken;
use crate::sync::{First, Signal, first};

/// How long a cancelled caller waits until its attempt is withdrawn. After that, the withdrawal continues in the
/// background.
const FAREWELL: Duration = Duration::from_millis(100);
const LARGEST_ID: u64 = 999_999_999_999_999_999;

pub(crate) struct Attempt {
    pub(crate) resources: Arc<Resources>,
    pub(crate) request: Arc<Request>,
    pub(crate) cancel: Arc<Signal>,
    pub(crate) id: u64,
    pub(crate) began: Duration,
    tries: u32,
    pub(crate) connection: Option<Arc<Connection>>,
    /// The session that the connection belongs to.
    pub(crate) session: Option<Taken>,
    /// The permit for one of the few connections.
    turn: Option<Turn>,
    /// The connection is the one for the manager's only wait: see blocking.rs.
    pub(crate) is_alone: bool,
    pub(crate) uses_connection: bool,
    /// The attempt may be in the queue, or have the lock.
    pub(crate) may_be_queued: bool,
    pub(crate) was_queued: bool,
    /// The attempt is in the script's queue.
    pub(crate) has_place: bool,
    /// The last copy went to the script.
    pub(crate) is_portable: bool,
    /// The script may still run a copy whose connection was closed.
    pub(crate) may_run: bool,
    pub(crate) no_notify: bool,
    /// How long to wait for a message, according to the script's last reply.
    pub(crate) asks_again: Option<Duration>,
    /// A call without a reply, on a connection that others use too. Its reply is awaited before anything else is sent.
    pub(crate) late: Option<Call>,
    /// Calls of this kind whose later copies took a different route. The server may still carry them out long after
    /// the attempt.
    pub(crate) overdue: Vec<Call>,
    /// The call that was in flight when the caller gave up.
    pub(crate) settling: Option<Call>,
    /// When the request that got the last reply was sent.
    pub(crate) sent: Duration,
    pub(crate) has_looked: bool,
    /// The result that was stored when the attempt began to wait for the script's queue.
    pub(crate) before: Option<Stored>,
}

/// The outcome of an ACQUIRE.
pub(crate) enum Asked {
    /// The attempt has ended.
    Got(Got<Grant>),
    /// Somebody else has the lock.
    Refused,
    /// The attempt is in the queue, or joins the script's once its manager has subscribed.
    Queued,
    /// This server, or this user, cannot use NOTIFY, or the script has no queue for this lock.
    NoNotify,
    /// The copy cannot block: the module is gone.
    Moved,
}

fn new_id() -> u64 {
    random().checked_rem(LARGEST_ID).unwrap_or(0).saturating_add(1)
}

impl Attempt {
    pub(crate) fn new(resources: Arc<Resources>, request: Arc<Request>, cancel: Arc<Signal>) -> Self {
        let (uses_connection, began) = (request.needs_connection(), resources.now());
        Self {
            resources,
            request,
            cancel,
            id: new_id(),
            began,
            tries: 0,
            connection: None,
            session: None,
            turn: None,
            is_alone: false,
            uses_connection,
            may_be_queued: false,
            was_queued: false,
            has_place: false,
            is_portable: false,
            may_run: false,
            no_notify: false,
            asks_again: None,
            late: None,
            overdue: Vec::new(),
            settling: None,
            sent: Duration::ZERO,
            has_looked: false,
            before: None,
        }
    }

    /// The grant or the result, or the error that the user gets.
    pub(crate) async fn run(mut self) -> Result<Got<Grant>, Error> {
        match self.whole().await {
            Ok(Got::Result(value)) => {
                Box::pin(self.abandon(true)).await;
                Ok(Got::Result(value))
            }
            Ok(Got::Lock(mut grant)) => {
                grant.session = self.session.take();
                if grant.session.is_some() {
                    self.connection = None;
                }
                grant.overdue = std::mem::take(&mut self.overdue);
                grant.id = self.id;
                Box::pin(self.give_back_connection()).await;
                Ok(Got::Lock(grant))
            }
            Err(failure) => {
                Box::pin(self.abandon(!failure.is_connection_lost())).await;
                let failure = match failure {
                    Failure::Ours(error) => Failure::Ours(error),
                    _ if self.cancel.is_fired() => Failure::GivenUp,
                    failure => failure,
                };
                Err(self.failure(failure))
            }
        }
    }

    /// The error that the user gets: a time-out if the server kept returning temporary errors until the wait ended.
    fn failure(&self, failure: Failure) -> Error {
        let is_over = matches!(failure, Failure::Reply(_)) && failure.is_transient() && !self.request.wait().is_zero();
        let (text, name) = (failure.text(), &self.request.name);
        let error = failure.typed(name);
        if !is_over {
            return error;
        }
        let waited = self.now().saturating_sub(self.began);
        Error::new(Kind::Timeout, name, format!("not granted within {waited:.0?}: {text}")).because_of(error)
    }

    async fn whole(&mut self) -> Result<Got<Grant>, Failure> {
        self.over()?;
        let grant = match self.get().await? {
            Got::Lock(grant) => grant,
            result @ Got::Result(_) => return Ok(result),
        };
        if self.before.is_some()
            && let Some(value) = Box::pin(self.stored_meanwhile()).await
        {
            return Ok(Got::Result(value));
        }
        if self.request.must_be_confirmed() {
            Box::pin(self.confirm()).await?;
        }
        self.over()?;
        Ok(Got::Lock(grant))
    }

    // The futures that a free lock does not need are boxed, to keep the others small.

    async fn get(&mut self) -> Result<Got<Grant>, Failure> {
        loop {
            if let Some(got) = self.tried().await? {
                return Ok(got);
            }
        }
    }

    /// Returns `None` if the module was loaded or unloaded meanwhile, so there is now another way.
    async fn tried(&mut self) -> Result<Option<Got<Grant>>, Failure> {
        if self.resources.blocking.is_ready()
            && let Some(got) = Box::pin(self.alone()).await?
        {
            return Ok(Some(got));
        }
        let waits = !self.request.wait().is_zero();
        // The server must see the wait on the connection that has the session's locks.
        if waits
            && self.request.settings.session
            && !self.resources.is_portable()
            && let Some(got) = Box::pin(self.by_blocking()).await?
        {
            return Ok(Some(got));
        }
        if waits
            && self.resources.subscription.is_up()
            && self.may_notify()
            && let Some(got) = Box::pin(self.by_notify()).await?
        {
            return Ok(Some(got));
        }
        // The server keeps no result for the place of an attempt whose last copy had no RESULT.
        if !(self.may_be_queued && self.request.wants_result())
            && let Asked::Got(got) = self.ask(Duration::ZERO, None, self.resources.reach.timeout).await?
        {
            return Ok(Some(got));
        }
        if self.left().is_zero() {
            return Err(if waits { self.timed_out() } else { Box::pin(self.not_granted()).await });
        }
        if let Some(got) = Box::pin(self.alone()).await? {
            return Ok(Some(got));
        }
        if self.may_notify()
            && let Some(got) = Box::pin(self.by_notify()).await?
        {
            return Ok(Some(got));
        }
        if self.is_portable {
            return Box::pin(self.poll()).await;
        }
        Box::pin(self.by_blocking()).await
    }

    /// Whether the attempt can wait for messages.
    pub(crate) fn may_notify(&self) -> bool {
        let resources = &self.resources;
        resources.notifies.load(Ordering::SeqCst)
            && !self.no_notify
            && !self.request.settings.session
            && (!resources.is_portable() || resources.portable.has_queue(&self.request))
    }

    pub(crate) fn now(&self) -> Duration {
        self.resources.now()
    }

    pub(crate) fn left(&self) -> Duration {
        self.request.wait().saturating_sub(self.now().saturating_sub(self.began))
    }

    /// Fails if the attempt's caller or manager is done.
    pub(crate) fn over(&self) -> Result<(), Failure> {
        if self.cancel.is_fired() {
            return Err(Failure::GivenUp);
        }
        if self.resources.reach.closed.is_fired() {
            return Err(self.error(Kind::Misuse, "its Locks are closed"));
        }
        Ok(())
    }

    pub(crate) fn error(&self, kind: Kind, reason: impl Into<String>) -> Failure {
        Failure::Ours(Error::new(kind, &self.request.name, reason))
    }

    pub(crate) fn refused(&self) -> Failure {
        self.error(Kind::Refused, "somebody else has it")
    }

    /// The error of an attempt without a wait. After a RECOVER, it says whether the lock is free.
    async fn not_granted(&mut self) -> Failure {
        if self.request.form == Form::Recovery && self.is_free().await {
            return self.error(Kind::Refused, "there is nothing to recover: the lock is free");
        }
        self.refused()
    }

    /// Whether the server replies that the lock is free. It may not allow this user to ask.
    async fn is_free(&mut self) -> bool {
        let (resources, request) = (Arc::clone(&self.resources), Arc::clone(&self.request));
        let sending = if self.is_portable {
            Sending::to_script(&resources.portable, &request, Command::Info)
        } else {
            Sending::to_module(&request, Command::Info)
        };
        let asked = first(resources.send(sending, resources.reach.timeout, Duration::ZERO), self.cancel.wait()).await;
        let First::Left(Ok(info)) = asked else { return false };
        field(&info, "state").is_some_and(|state| text(state) == "free")
    }

    pub(crate) fn timed_out(&self) -> Failure {
        let waited = self.now().saturating_sub(self.began);
        self.error(Kind::Timeout, format!("somebody else still had it after {waited:.1?}"))
    }

    /// Sends a copy, and further copies after transient errors.
    pub(crate) async fn ask(
        &mut self,
        wait: Duration,
        channel: Option<&str>,
        timeout: Duration,
    ) -> Result<Asked, Failure> {
        let resources = Arc::clone(&self.resources);
        let blocks = !wait.is_zero() && channel.is_none();
        let (mut wait, mut is_early) = (wait, false);
        loop {
            if self.late.is_none() {
                self.is_portable = resources.is_portable() && (blocks || !resources.asks_for_module());
                is_early = channel.is_some() && !self.may_join();
            }
            if self.is_portable && blocks {
                return Ok(Asked::Moved);
            }
            if self.is_portable && channel.is_some() && !resources.portable.has_queue(&self.request) {
                return Ok(Asked::NoNotify);
            }
            let before = self.may_be_queued;
            let span = if is_early { Duration::ZERO } else { wait };
            let failure = match self.copy(Command::Acquire { id: self.id, wait: span, channel }, timeout).await {
                Ok(reply) => {
                    self.tries = 0;
                    let asked = self.read(&reply, !span.is_zero())?;
                    if self.is_portable && self.request.wants_result() && !matches!(asked, Asked::Got(_)) {
                        Box::pin(self.look()).await;
                    }
                    if is_early && matches!(asked, Asked::Refused) {
                        self.asks_again = None; // until the subscription is up
                        return Ok(Asked::Queued);
                    }
                    return Ok(asked);
                }
                Err(failure) => failure,
            };
            if !self.is_portable && failure.is_unknown_command() && resources.missed_module(&failure) {
                self.may_be_queued = before;
                continue;
            }
            let is_refused = matches!(failure.code(), Some("ERR" | "NOPERM")) && !failure.is_unknown_command();
            let may_be_notify = channel.is_some() && !self.is_portable;
            if may_be_notify && is_refused && !resources.notify_works.load(Ordering::SeqCst) {
                self.no_notify = true;
                return Ok(Asked::NoNotify);
            }
            Box::pin(self.pause_after(failure)).await?;
            if !wait.is_zero() {
                wait = wait.min(self.left()).max(Duration::from_millis(1));
            }
        }
    }

    /// Waits a little before the next copy, or returns the error if there is no next copy. The previous copy has a
    /// reply, or its connection is closed.
    pub(crate) async fn pause_after(&mut self, failure: Failure) -> Result<(), Failure> {
        if matches!(failure, Failure::Ours(_) | Failure::GivenUp) || failure.is_unknown_command() {
            return Err(failure);
        }
        self.tries = self.tries.saturating_add(1);
        self.leave_connection(failure.code()).await;
        if self.resources.reach.router.is_cluster() && (self.uses_connection || failure.is_connection_lost()) {
            let _ = self.resources.reach.router.refresh(self.resources.reach.timeout).await;
        }
        if !failure.is_transient() {
            if !failure.is_connection_lost() && !self.was_queued && self.tries == 1 {
                self.may_be_queued = self.may_run; // an error reply means that nothing has changed
            }
            return Err(failure);
        }
        if self.left().is_zero() && self.tries >= 2 {
            return Err(failure);
        }
        let mut span = Duration::from_millis(10);
        if !self.request.wait().is_zero() {
            let longest = span.saturating_mul(1 << self.tries.min(6)).min(Duration::from_millis(500));
            span = (longest / 2).saturating_add(part_of(longest / 2)).min(self.left());
        }
        self.pause(span).await;
        self.over()
    }

    /// The key may have moved to another server. A session's connection may have other locks.
    async fn leave_connection(&mut self, code: Option<&str>) {
        let Some(connection) = self.connection.clone() else { return };
        match (self.session.is_some(), code) {
            (false, _) | (true, Some("READONLY" | "MASTERDOWN" | "LOADING" | "UNBLOCKED")) => connection.close().await,
            (true, Some("MOVED" | "ASK" | "CLUSTERDOWN" | "TRYAGAIN")) => self.give_back_connection().await,
            _ => {}
        }
    }

    /// Waits, unless the caller or the manager is done.
    pub(crate) async fn pause(&mut self, span: Duration) {
        let over = first(self.cancel.wait(), self.resources.reach.closed.wait());
        self.resources.reach.clock.timeout(span, over).await;
    }

    /// Takes a dedicated connection for the whole attempt: that of its session, or one of the shared few.
    pub(crate) async fn take_connection(&mut self) -> Result<(), Failure> {
        self.give_back_connection().await;
        let resources = Arc::clone(&self.resources);
        if self.is_alone {
            self.connection = Some(resources.blocking.take(self.request.key()).await?);
            return Ok(());
        }
        if self.request.settings.session {
            let group = self.request.settings.group.clone().unwrap_or_default();
            let session = resources.sessions.take(&group, self.request.key()).await?;
            self.connection = Some(Arc::clone(session.connection()));
            self.session = Some(session);
            return self.over(); // a manager that is being closed closes only connections in use
        }
        let waits = !self.request.wait().is_zero();
        let patience = if waits { self.left() } else { resources.reach.timeout };
        let Some(turn) = resources.connections.turn(patience, &self.cancel).await else {
            self.over()?;
            return Err(if waits {
                self.timed_out()
            } else {
                Failure::broken(format!("no connection came free within {patience:?}"))
            });
        };
        self.connection = Some(resources.connections.connection(self.request.key()).await?);
        self.turn = Some(turn);
        Ok(())
    }

    pub(crate) async fn give_back_connection(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        if self.session.take().is_some() {
            return;
        }
        if self.turn.is_some() {
            self.resources.connections.give_back(connection).await;
            self.turn = None;
        } else if !self.is_alone {
            connection.close().await;
        }
    }

    /// Gives up the place in the script's queue, in the background. A late cancel must not release a lock that the
    /// attempt gets by polling, so the attempt continues with a new ID. A place in the module's queue is kept.
    pub(crate) async fn leave_queue(&mut self) {
        if !self.is_portable || !self.may_be_queued {
            return;
        }
        let (resources, id) = (Arc::clone(&self.resources), std::mem::replace(&mut self.id, new_id()));
        for late in self.overdue.drain(..).chain(self.late.take()) {
            resources.settle_late(&self.request, late, id, true, || false);
        }
        resources.cancel(&self.request, id, true, false, self.may_run).await;
        (self.may_be_queued, self.was_queued, self.has_place, self.may_run) = (false, false, false, false);
    }

    /// Leaves the queue, and releases a grant whose reply was lost.
    async fn abandon(&mut self, is_reachable: bool) {
        let has_given_up = self.cancel.is_fired();
        if let Some(session) = self.session.take() {
            self.connection = None;
            if let Some(call) = self.settling.take() {
                self.resources.reach.spawn(async move {
                    let _ = call.await; // LOCK.CANCEL has ended the wait, or the grant
                    drop(session);
                });
            }
        } else if let (true, Some(connection)) = (has_given_up, self.connection.clone()) {
            connection.close().await; // a reply in flight must not be read as the reply to another call
        }
        self.give_back_connection().await;
        if !self.may_be_queued {
            return;
        }
        let (resources, request) = (Arc::clone(&self.resources), Arc::clone(&self.request));
        let (id, is_portable, mut may_run) = (self.id, self.is_portable, self.may_run);
        for late in self.overdue.drain(..) {
            resources.settle_late(&request, late, id, is_portable, || false);
        }
        let settling = self.settling.take().or(self.late.take());
        let takes_long = settling.is_some() && !has_given_up;
        let done = self.resources.reach.spawn(async move {
            if let Some(call) = settling {
                let end = resources.now().saturating_add(request.lease).saturating_add(resources.reach.timeout);
                let reply = patient(&resources.reach.clock, call, end).await;
                may_run |= is_portable && reply.is_err_and(|failure| failure.is_connection_lost());
            }
            resources.cancel(&request, id, is_portable, is_reachable, may_run).await;
        });
        if has_given_up {
            self.resources.reach.clock.timeout(FAREWELL, done).await;
        } else if !takes_long {
            let _ = done.await;
        }
    }
}
