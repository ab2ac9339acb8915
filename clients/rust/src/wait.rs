//! How an attempt stands in line, and what it does where there is none.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::attempt::{Asked, Attempt};
use crate::clock::{now, part_of};
use crate::engine::Engine;
use crate::error::Kind;
use crate::hold::Grant;
use crate::judge::{Fault, number};
use crate::request::Request;
use crate::subscription::News;
use crate::timer::patient;

const PIECE: Duration = Duration::from_secs(5);
const SOLO_PIECE: Duration = Duration::from_secs(2);
const CROWDED_PIECE: Duration = Duration::from_secs(1);
const RESEND: Duration = Duration::from_secs(5);
const RESEND_DOWN: Duration = Duration::from_secs(1);
/// A server whose clock runs a little ahead ends a wait a little early.
const SLACK: Duration = Duration::from_millis(100);

/// An attempt that hears messages, until this is dropped.
struct Registered {
    engine: Arc<Engine>,
    id: u64,
    news: Arc<News>,
}

impl Registered {
    fn new(engine: &Arc<Engine>, id: u64, request: &Request) -> Self {
        let news = engine.subscription.register(engine, id, request.key());
        Self { engine: Arc::clone(engine), id, news }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.engine.subscription.unregister(self.id);
    }
}

/// The only wait of its manager, until this is dropped.
struct Alone(Arc<Engine>);

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.solo.leave(&self.0);
    }
}

/// What became of one blocking call.
enum Piece {
    Granted(Grant),
    /// LOCK.CANCEL, or CLIENT UNBLOCK.
    Cancelled,
    Over,
}

impl Attempt {
    /// Stands in line without a connection, and claims the lock when the server says that it is granted. Nothing: it
    /// cannot be done here.
    pub(crate) async fn by_notify(&mut self) -> Result<Option<Grant>, Fault> {
        let engine = Arc::clone(&self.engine);
        engine.solo.end(&engine);
        let registered = Registered::new(&engine, self.id, &self.request);
        let news = &registered.news;
        let subscription = &engine.subscription;
        let is_refused = subscription.ready(news, RESEND_DOWN.min(self.left()), &self.cancel, &engine.closed).await;
        if is_refused {
            engine.notifies.store(false, Ordering::SeqCst);
            return Ok(None);
        }
        let mut heard = String::new();
        loop {
            let left = self.left();
            if left.is_zero() {
                return Err(self.timed_out());
            }
            news.forget();
            match self.ask(left, Some(subscription.channel()), engine.timeout).await? {
                Asked::Granted(grant) => return Ok(Some(grant)),
                Asked::NoNotify => return Ok(None),
                Asked::Standing => {
                    if heard == "granted" {
                        // Too late: the server passes this process over until it hears from it.
                        subscription.send_again();
                    }
                    heard = self.hear(news).await?;
                }
                Asked::Refused => {
                    self.may_stand = false;
                    if self.left() > SLACK {
                        return Err(self.refused());
                    }
                }
            }
        }
    }

    /// Returns when it is time to send it again, with the message that says so, if one does.
    async fn hear(&mut self, news: &News) -> Result<String, Fault> {
        let asked = now();
        loop {
            self.over()?;
            let span = if self.engine.subscription.is_up() { RESEND } else { RESEND_DOWN };
            let time = now();
            let left = asked.saturating_add(span).min(news.again_at()).saturating_sub(time).min(self.left());
            if left.is_zero() {
                return Ok(String::new());
            }
            let kind = news.next(left, &self.cancel, &self.engine.closed).await;
            match kind.as_str() {
                "" => {}
                "cancelled" => {
                    self.may_stand = false;
                    return Err(self.refused());
                }
                "timeout" if self.left() <= SLACK => {
                    self.may_stand = false;
                    return Err(self.timed_out());
                }
                _ => return Ok(kind),
            }
        }
    }

    /// Waits as the only attempt of the manager. Nothing: it is not, or no longer.
    pub(crate) async fn alone(&mut self) -> Result<Option<Grant>, Fault> {
        let engine = Arc::clone(&self.engine);
        let waits = !self.request.wait().is_zero() && !self.request.needs_line();
        if !waits || !engine.notifies.load(Ordering::SeqCst) || !engine.solo.enter(&engine) {
            return Ok(None);
        }
        let alone = Alone(Arc::clone(&engine));
        self.is_solo = true;
        let outcome = self.by_blocking().await;
        self.line = None; // it stays with the manager
        self.is_solo = false;
        drop(alone);
        outcome
    }

    /// Waits in pieces: lines are few, and a reply that is lost is noticed after one. Nothing: it is not alone any more.
    pub(crate) async fn by_blocking(&mut self) -> Result<Option<Grant>, Fault> {
        while !self.left().is_zero() {
            if self.is_solo && self.engine.solo.has_ended() {
                return Ok(None);
            }
            match self.one_piece().await {
                Ok(Piece::Granted(mut grant)) => {
                    if self.count_anew(&mut grant).await? {
                        return Ok(Some(grant));
                    }
                }
                Ok(Piece::Cancelled) => {
                    self.over()?; // by ourselves
                    self.may_stand = false;
                    return Err(self.refused());
                }
                Ok(Piece::Over) => {}
                Err(fault) if fault.is_broken() => self.pause_after(fault).await?,
                Err(fault) => return Err(fault),
            }
        }
        Err(self.timed_out())
    }

    async fn one_piece(&mut self) -> Result<Piece, Fault> {
        self.uses_line = true;
        let outcome = self.piece().await;
        self.uses_line = self.request.needs_line();
        if let (true, Some(line)) = (self.cancel.is_fired(), &self.line) {
            line.close().await;
        }
        if !self.uses_line {
            self.give_back_line().await;
        }
        outcome
    }

    async fn piece(&mut self) -> Result<Piece, Fault> {
        if self.line.is_none() {
            self.take_line().await?;
        }
        #[cfg(feature = "blocking")]
        if self.line.as_ref().is_some_and(|line| line.blocks()) {
            return self.piece_of_thread().await;
        }
        self.asked_piece().await
    }

    /// Nothing can interrupt this thread but the server: when the caller or the manager is done, it is asked to end the
    /// attempt. A CANCEL that comes before its ACQUIRE blocks the ID.
    #[cfg(feature = "blocking")]
    async fn piece_of_thread(&mut self) -> Result<Piece, Fault> {
        let (engine, request, id) = (Arc::downgrade(&self.engine), Arc::clone(&self.request), self.id);
        let act: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
            let Some(engine) = engine.upgrade() else { return };
            let request = Arc::clone(&request);
            engine.handle().clone().spawn(async move { engine.cancel(&request, id, false, true).await });
        });
        let (cancel, engine) = (Arc::clone(&self.cancel), Arc::clone(&self.engine));
        let _cancel = cancel.when_fired(&act);
        let _closed = engine.closed.when_fired(&act);
        self.asked_piece().await
    }

    async fn asked_piece(&mut self) -> Result<Piece, Fault> {
        let longest = match (self.is_solo, self.engine.lines.is_crowded()) {
            (true, _) => SOLO_PIECE,
            (false, true) => CROWDED_PIECE,
            (false, false) => PIECE,
        };
        let span = self.left().min(longest).max(Duration::from_millis(1));
        let began = now();
        let asked = self.ask(span, None, span.saturating_add(self.engine.timeout)).await?;
        if self.no_notify {
            self.engine.notifies.store(false, Ordering::SeqCst); // the plain form is what works here
        }
        self.stood = true;
        if let Asked::Granted(grant) = asked {
            return Ok(Piece::Granted(grant));
        }
        let is_early = now().saturating_add(SLACK) < began.saturating_add(span) && self.left() > SLACK;
        Ok(if is_early { Piece::Cancelled } else { Piece::Over })
    }

    /// The grant may be as old as the call. If that is long, its lease counts from an EXTEND. Says whether the grant
    /// still stands.
    async fn count_anew(&mut self, grant: &mut Grant) -> Result<bool, Fault> {
        while now() >= grant.sent.saturating_add(self.request.lease / 3) {
            let sent = now();
            let cmd = self.request.extend(grant.token, self.request.lease);
            let call = self.engine.router.call(self.request.key(), cmd, self.engine.timeout);
            match patient(call, sent.saturating_add(self.engine.timeout)).await {
                Ok(reply) => {
                    grant.sent = sent;
                    return Ok(number(&reply) == Some(1));
                }
                Err(fault) => self.pause_after(fault).await?,
            }
        }
        Ok(true)
    }

    /// Asks by script, where the module is not loaded. Nothing: that was not asked for lately.
    pub(crate) async fn poll(&mut self) -> Result<Option<Grant>, Fault> {
        if let Some(what) = self.request.needs_module() {
            return Err(self.error(Kind::Unavailable, format!("{what} needs the module, which is not loaded")));
        }
        while self.engine.is_portable() {
            let reply = match self.acquire_by_script().await {
                Ok(reply) => reply,
                Err(fault) => {
                    self.pause_after(fault).await?;
                    continue;
                }
            };
            if let Asked::Granted(grant) = self.read(&reply)? {
                return Ok(Some(grant));
            }
            self.may_stand = false;
            if self.left().is_zero() {
                let waits = !self.request.wait().is_zero();
                return Err(if waits { self.timed_out() } else { self.refused() });
            }
            let span = Duration::from_millis(50).saturating_add(part_of(Duration::from_millis(100)));
            self.pause(span.min(self.left())).await;
        }
        Ok(None)
    }
}
