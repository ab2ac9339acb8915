//! How an attempt waits: in the module's or the script's queue, or by polling.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::attempt::{Asked, Attempt};
use crate::blocking::Blocking;
use crate::command::Command;
use crate::failures::{Failure, number, patient};
use crate::hold::{Got, Grant};
use crate::random::until_next_poll;
use crate::request::Request;
use crate::subscription::{Subscription, Updates};

const PIECE: Duration = Duration::from_secs(5);
const ALONE_PIECE: Duration = Duration::from_secs(2);
const CROWDED_PIECE: Duration = Duration::from_secs(1);
const RESEND: Duration = Duration::from_secs(5);
const RESEND_DOWN: Duration = Duration::from_secs(1);
/// A server whose clock runs a little fast ends a wait a little early.
const SLACK: Duration = Duration::from_millis(100);

/// An attempt that receives messages, until this is dropped.
struct Registered {
    subscription: Arc<Subscription>,
    id: u64,
    updates: Arc<Updates>,
}

impl Registered {
    fn new(subscription: &Arc<Subscription>, id: u64, request: &Request) -> Self {
        let updates = subscription.register(id, request.key());
        Self { subscription: Arc::clone(subscription), id, updates }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.subscription.unregister(self.id);
    }
}

/// A manager's only wait, until this is dropped.
struct Alone(Arc<Blocking>);

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// The outcome of one blocking call.
enum Piece {
    Got(Got<Grant>),
    /// LOCK.CANCEL, or CLIENT UNBLOCK.
    Cancelled,
    Over,
    Moved,
}

impl Attempt {
    /// Waits in the queue without a connection, and claims the lock when it is notified of the grant. Returns `None` if
    /// the server or this user cannot use NOTIFY.
    pub(crate) async fn by_notify(&mut self) -> Result<Option<Got<Grant>>, Failure> {
        let resources = Arc::clone(&self.resources);
        resources.blocking.end();
        let registered = Registered::new(&resources.subscription, self.id, &self.request);
        let updates = &registered.updates;
        let subscription = &resources.subscription;
        subscription.ready(updates, RESEND_DOWN.min(self.left()), &self.cancel, &resources.reach.closed).await;
        let mut message = String::new();
        loop {
            // The subscription was refused from the start, or after the user lost the permission.
            if subscription.is_refused() {
                resources.notifies.store(false, Ordering::SeqCst);
                self.leave_queue().await;
                return Ok(None);
            }
            let left = self.left();
            if left.is_zero() {
                return Err(self.timed_out());
            }
            updates.forget();
            match self.ask(left, Some(subscription.channel()), resources.reach.timeout).await? {
                Asked::Got(got) => return Ok(Some(got)),
                Asked::NoNotify | Asked::Moved => return Ok(None),
                Asked::Queued => {
                    if message == "granted" {
                        // The claim came too late: the server skips this process's channel until it sends a command.
                        subscription.send_again();
                    }
                    message = self.await_message(updates).await?;
                }
                Asked::Refused => {
                    self.may_be_queued = false;
                    if self.left() > SLACK {
                        return Err(self.refused());
                    }
                }
            }
        }
    }

    /// Returns when it is time to send a copy, with the message that caused it, if there is one.
    async fn await_message(&mut self, updates: &Updates) -> Result<String, Failure> {
        let asked = self.now();
        loop {
            self.over()?;
            if self.resources.subscription.is_refused() {
                return Ok(String::new());
            }
            let is_up = self.resources.subscription.is_up();
            let asks_again = self.asks_again.unwrap_or(RESEND);
            let span = if is_up { asks_again } else { asks_again.min(RESEND_DOWN) };
            let time = self.now();
            let left = asked.saturating_add(span).min(updates.again_at()).saturating_sub(time).min(self.left());
            if left.is_zero() {
                return Ok(String::new());
            }
            let reach = &self.resources.reach;
            let kind = updates.next(&reach.clock, left, &self.cancel, &reach.closed).await;
            match kind.as_str() {
                "" => {}
                "cancelled" => {
                    self.may_be_queued = false;
                    return Err(self.refused());
                }
                "timeout" if self.left() <= SLACK => {
                    self.may_be_queued = false;
                    return Err(self.timed_out());
                }
                _ => return Ok(kind),
            }
        }
    }

    /// Waits as the manager's only waiter. Returns `None` if others are waiting too.
    pub(crate) async fn alone(&mut self) -> Result<Option<Got<Grant>>, Failure> {
        let resources = Arc::clone(&self.resources);
        let waits = !self.request.wait().is_zero() && !self.request.needs_connection();
        let may_block = waits && !resources.is_portable() && resources.notifies.load(Ordering::SeqCst);
        if !may_block || !resources.blocking.enter() {
            return Ok(None);
        }
        let alone = Alone(Arc::clone(&resources.blocking));
        self.is_alone = true;
        let outcome = self.by_blocking().await;
        self.connection = None; // the connection stays with the manager
        self.is_alone = false;
        drop(alone);
        outcome
    }

    /// Waits in pieces, because there are few connections and a lost reply is noticed after one piece. Returns `None`
    /// if the attempt is no longer alone, or the module is gone.
    pub(crate) async fn by_blocking(&mut self) -> Result<Option<Got<Grant>>, Failure> {
        while !self.left().is_zero() {
            if self.is_alone && self.resources.blocking.has_ended() {
                return Ok(None);
            }
            match self.one_piece().await {
                Ok(Piece::Got(Got::Lock(mut grant))) => {
                    if self.count_anew(&mut grant).await? {
                        return Ok(Some(Got::Lock(grant)));
                    }
                }
                Ok(Piece::Got(result)) => return Ok(Some(result)),
                Ok(Piece::Cancelled) => {
                    self.over()?; // fails if we cancelled it ourselves
                    self.may_be_queued = false;
                    return Err(self.refused());
                }
                Ok(Piece::Over) => {}
                Ok(Piece::Moved) => return Ok(None),
                Err(failure) if failure.is_connection_lost() => self.pause_after(failure).await?,
                Err(failure) => return Err(failure),
            }
        }
        Err(self.timed_out())
    }

    async fn one_piece(&mut self) -> Result<Piece, Failure> {
        self.uses_connection = true;
        let outcome = self.piece().await;
        self.uses_connection = self.request.needs_connection();
        if let (true, None, Some(connection)) = (self.cancel.is_fired(), &self.session, &self.connection) {
            connection.close().await;
        }
        if !self.uses_connection {
            self.give_back_connection().await;
        }
        outcome
    }

    async fn piece(&mut self) -> Result<Piece, Failure> {
        if self.connection.is_none() {
            self.take_connection().await?;
        }
        #[cfg(feature = "blocking")]
        if self.connection.as_ref().is_some_and(|connection| connection.blocks()) {
            return self.piece_of_thread().await;
        }
        self.asked_piece().await
    }

    /// Only the server can interrupt this thread, so it is asked to end the attempt when the caller or the manager is
    /// done. A CANCEL that arrives before its ACQUIRE blocks the ID.
    #[cfg(feature = "blocking")]
    async fn piece_of_thread(&mut self) -> Result<Piece, Failure> {
        let (resources, request, id) = (Arc::downgrade(&self.resources), Arc::clone(&self.request), self.id);
        let act: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
            let Some(resources) = resources.upgrade() else { return };
            let request = Arc::clone(&request);
            resources.reach.clone().spawn(async move { resources.cancel(&request, id, false, true, false).await });
        });
        let (cancel, resources) = (Arc::clone(&self.cancel), Arc::clone(&self.resources));
        let _cancel = cancel.when_fired(&act);
        let _closed = resources.reach.closed.when_fired(&act);
        self.asked_piece().await
    }

    async fn asked_piece(&mut self) -> Result<Piece, Failure> {
        let longest = match (self.is_alone, self.resources.connections.is_crowded()) {
            (true, _) => ALONE_PIECE,
            (false, true) if self.session.is_none() => CROWDED_PIECE,
            _ => PIECE,
        };
        let span = self.left().min(longest).max(Duration::from_millis(1));
        let began = self.now();
        let asked = self.ask(span, None, span.saturating_add(self.resources.reach.timeout)).await?;
        if matches!(asked, Asked::Moved) {
            return Ok(Piece::Moved);
        }
        if self.no_notify {
            self.resources.notifies.store(false, Ordering::SeqCst); // only the plain form works here
        }
        self.was_queued = true;
        if let Asked::Got(got) = asked {
            return Ok(Piece::Got(got));
        }
        let is_early = self.now().saturating_add(SLACK) < began.saturating_add(span) && self.left() > SLACK;
        Ok(if is_early { Piece::Cancelled } else { Piece::Over })
    }

    /// The grant may be as old as the call. If the call took long, an EXTEND starts a new lease. Returns whether the
    /// lock is still held.
    async fn count_anew(&mut self, grant: &mut Grant) -> Result<bool, Failure> {
        while self.now() >= grant.sent.saturating_add(self.request.lease / 3) {
            let sent = self.now();
            let command = Command::Extend { token: grant.token, lease: self.request.lease };
            let (reach, cmd) = (&self.resources.reach, command.words(&self.request));
            let call = reach.router.call(self.request.key(), cmd, reach.timeout);
            match patient(&reach.clock, call, sent.saturating_add(reach.timeout)).await {
                Ok(reply) => {
                    grant.sent = sent;
                    return Ok(number(&reply) == Some(1));
                }
                Err(failure) => self.pause_after(failure).await?,
            }
        }
        Ok(true)
    }

    /// Polls the script, if it has no queue for this lock, or the user cannot wait for messages. Returns `None` if
    /// there is now a better way.
    pub(crate) async fn poll(&mut self) -> Result<Option<Got<Grant>>, Failure> {
        while !self.left().is_zero() {
            self.pause(until_next_poll().min(self.left())).await;
            match self.ask(Duration::ZERO, None, self.resources.reach.timeout).await? {
                Asked::Got(got) => return Ok(Some(got)),
                _ if !self.is_portable || self.may_notify() => return Ok(None),
                _ => {}
            }
        }
        Err(self.timed_out())
    }
}
