//! Locks for tokio. An attempt is given up when its future is dropped, and leaves nothing behind.

mod shared;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, FromRedisValue, RedisResult, Value};
use tokio::runtime::Handle;

use shared::{Ours, Theirs};

use crate::engine::Engine;
use crate::error::Error;
use crate::held::{Owner, held_methods, locks_methods};
use crate::hold::Hold;
use crate::leader::{Campaign, Leadership, Looks, Term};
use crate::options::{Options, lock_options};
use crate::request::{Form, Request, Sharing};
use crate::scope::{of_task, refuse_again};
use crate::server::{Opens, Router, Server, Servers};
use crate::sync::{First, Signal, first};

/// The locks of one connection: make one for each, and keep it. Its clones are the same. Others do not know what it holds:
/// within a scope of one, an attempt by another waits for its own caller.
#[derive(Clone)]
pub struct Locks {
    owner: Arc<Owner>,
}

impl fmt::Debug for Locks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Locks").finish_non_exhaustive()
    }
}

impl Locks {
    /// Locks over a connection of their own, opened at the first call: to the server of a `redis::Client`, to the master
    /// that a `SentinelClient` names, or to the servers of a [cluster](Servers::cluster).
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(servers: impl Into<Servers>) -> Self {
        Self::with_options(servers, Options::default())
    }

    /// As [`Locks::new`], with options.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn with_options(servers: impl Into<Servers>, options: Options) -> Self {
        let servers = servers.into();
        let own = servers.clone();
        Self::made(servers, options, Box::new(move |address| Arc::new(Ours::new(own.clone(), address))))
    }

    /// Locks over the connection of the application: a `MultiplexedConnection` or, as it connects again by itself, a
    /// `ConnectionManager`. The client says where waits go.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn with_connection<C>(client: &redis::Client, connection: C, options: Options) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        let theirs: Arc<dyn Server> = Arc::new(Theirs::new(connection));
        Self::made(client.into(), options, Box::new(move |_| Arc::clone(&theirs)))
    }

    /// Locks that make each call as the closure does: with a connection of a pool, or with the application's client of a
    /// cluster, which follows redirections itself. The servers say where waits go.
    ///
    /// ```no_run
    /// # async fn example(client: redis::Client, connection: redis::aio::MultiplexedConnection) {
    /// use serverlock::{Options, aio::Locks};
    ///
    /// let locks = Locks::with_calls(client, move |cmd| {
    ///     let mut connection = connection.clone();
    ///     async move { cmd.query_async(&mut connection).await }
    /// }, Options::new());
    /// # }
    /// ```
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn with_calls<F>(
        servers: impl Into<Servers>,
        call: impl Fn(Cmd) -> F + Send + Sync + 'static,
        options: Options,
    ) -> Self
    where
        F: Future<Output = RedisResult<Value>> + Send + 'static,
    {
        let theirs: Arc<dyn Server> = Arc::new(Theirs::by(call));
        Self::made(servers.into(), options, Box::new(move |_| Arc::clone(&theirs)))
    }

    fn made(servers: Servers, options: Options, opens: Opens) -> Self {
        let router = Arc::new(Router::new(servers, opens));
        Self { owner: Arc::new(Owner { engine: Engine::new(Handle::current(), router, options) }) }
    }

    locks_methods!(Lock, Leader);
}

/// A description of a lock: it holds nothing, and any number of tasks may use it. Each acquisition gives a [`Held`] of its
/// own.
#[derive(Clone)]
pub struct Lock {
    owner: Arc<Owner>,
    request: Arc<Request>,
}

impl fmt::Debug for Lock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Lock").field("request", &self.request).finish_non_exhaustive()
    }
}

/// What may go on in the background.
type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// An attempt, which goes on in the background when this is dropped, until it is given up properly.
struct Attempted<T: Send + 'static> {
    attempt: Option<Work<T>>,
    cancel: Arc<Signal>,
    handle: Handle,
    has_begun: bool,
}

impl<T: Send + 'static> Attempted<T> {
    fn new(engine: &Engine, cancel: Arc<Signal>, attempt: impl Future<Output = T> + Send + 'static) -> Self {
        Self { attempt: Some(Box::pin(attempt)), cancel, handle: engine.handle().clone(), has_begun: false }
    }
}

impl<T: Send + 'static> Future for Attempted<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.has_begun = true;
        let Some(attempt) = &mut self.attempt else { return Poll::Pending };
        let done = attempt.as_mut().poll(context);
        if done.is_ready() {
            self.attempt = None;
        }
        done
    }
}

impl<T: Send + 'static> Drop for Attempted<T> {
    fn drop(&mut self) {
        if let Some(attempt) = self.attempt.take().filter(|_| self.has_begun) {
            self.cancel.fire();
            self.handle.spawn(attempt); // a grant that comes all the same is dropped, and so given back
        }
    }
}

impl Lock {
    lock_options!();

    /// Fills [`Held::predecessor`].
    #[must_use]
    pub fn details(self) -> Self {
        self.with(|it| it.details = true)
    }

    /// Gets the lock, within [`wait`](Self::wait). It is given back when the [`Held`] is dropped. To drop this future gives
    /// the attempt up.
    ///
    /// # Errors
    /// [`Refused`](crate::Kind::Refused) if somebody else has it, [`Timeout`](crate::Kind::Timeout) if so when the wait
    /// ended, and any other but `Lost`.
    pub async fn acquire(&self) -> Result<Held, Error> {
        refuse_again(&self.owner.engine, &self.request)?;
        let (owner, request, cancel) = (Arc::clone(&self.owner), Arc::clone(&self.request), Arc::<Signal>::default());
        let given_up = Arc::clone(&cancel);
        let attempt = async move {
            let hold = owner.engine.acquire(request, given_up).await?;
            Ok(Held { hold, owner })
        };
        Attempted::new(&self.owner.engine, cancel, attempt).await
    }

    /// Runs the work while the lock is held, then gives the lock back. If the lock is lost, the work is dropped where it
    /// awaits something.
    ///
    /// # Errors
    /// That of the work; if it has none, or was dropped, [`Lost`](crate::Kind::Lost) if the lock was not held to the end.
    /// To ask for the same lock within the work is [`Misuse`](crate::Kind::Misuse).
    pub async fn run<T, E: From<Error>>(&self, work: impl AsyncFnOnce(&Held) -> Result<T, E>) -> Result<T, E> {
        let held = self.acquire().await?;
        let done = {
            let work = of_task(&held.hold, work(&held));
            match first(work, held.hold.over.wait()).await {
                First::Left(done) => Some(done),
                First::Right(()) => None,
            }
        };
        let released = held.release().await;
        let Some(done) = done else {
            released?;
            // It was lost, so this is not reached.
            return Err(Error::new(crate::Kind::Lost, &self.request.name, "lost").into());
        };
        let value = done?;
        released?;
        Ok(value)
    }
}

/// A lock that is held, until it is released, dropped or lost. There is never a second one for a grant. Its drop gives the
/// lock back in the background; if the runtime ends first, the lock ends with its lease.
#[must_use = "the lock is given back when this is dropped"]
pub struct Held {
    hold: Arc<Hold>,
    owner: Arc<Owner>,
}

impl fmt::Debug for Held {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Held").field("key", &self.key()).field("token", &self.token()).finish_non_exhaustive()
    }
}

impl Held {
    held_methods!();

    /// Waits until the lock is lost, and gives the error that [`Held::check`] gives from then on.
    pub async fn lost(&self) -> Error {
        self.watch().over().await
    }

    /// Gives the lock back. To drop this future does not stop it.
    ///
    /// It takes at most the time-out of one call. What cannot be given back by then is given back in the background, and
    /// ends with its lease at the latest.
    ///
    /// # Errors
    /// [`Lost`](crate::Kind::Lost) unless the lock was held to the end.
    pub async fn release(self) -> Result<(), Error> {
        let Some(ended) = self.hold.end() else { return Ok(()) };
        let (hold, owner) = (Arc::clone(&self.hold), Arc::clone(&self.owner));
        let mut release = Released {
            work: Some(Box::pin(async move { owner.engine.release(&hold, ended).await })),
            handle: self.owner.engine.handle().clone(),
        };
        std::future::poll_fn(move |context| release.poll(context)).await
    }

    /// Sets a new lease, counted from now. Renewal does so by itself with the lease of the lock.
    ///
    /// # Errors
    /// [`Lost`](crate::Kind::Lost), [`Argument`](crate::Kind::Argument), or that the server did not answer.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.owner.engine.extend(&self.hold, lease).await
    }

    /// Asks the server whether the lock is held, and gives the time that is left.
    ///
    /// # Errors
    /// [`Lost`](crate::Kind::Lost), or that the server did not answer.
    pub async fn verify(&self) -> Result<Duration, Error> {
        self.owner.engine.verify(&self.hold).await
    }

    /// Runs one command on the server of the lock, only if the lock is held there at that moment. The first argument of
    /// the command is its key; in a cluster it must be in the slot of the lock.
    ///
    /// # Errors
    /// [`Lost`](crate::Kind::Lost), that of the command as [`Argument`](crate::Kind::Argument), or that the server did not
    /// answer.
    pub async fn fenced<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        let value = self.owner.engine.fenced(&self.hold, command).await?;
        crate::converted(&self.hold, value)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(ended) = self.hold.end() else { return };
        let (hold, owner) = (Arc::clone(&self.hold), Arc::clone(&self.owner));
        self.owner.engine.spawn(async move { owner.engine.release(&hold, ended).await });
    }
}

/// A release, which goes on in the background when this is dropped.
struct Released {
    work: Option<Work<Result<(), Error>>>,
    handle: Handle,
}

impl Released {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let done = work.as_mut().poll(context);
        if done.is_ready() {
            self.work = None;
        }
        done
    }
}

impl Drop for Released {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.handle.spawn(work);
        }
    }
}

/// Campaigns for a key. Its clones are the same campaign.
#[derive(Clone, Debug)]
pub struct Leader {
    lock: Lock,
    campaign: Arc<Campaign>,
}

impl Leader {
    fn new(lock: Lock) -> Self {
        Self { lock, campaign: Arc::default() }
    }

    /// What others see of the leader, 1 to 128 visible ASCII characters.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.lock = self.lock.owner(owner);
        self
    }

    /// The leadership ends with a connection of its own, one second after it.
    #[must_use]
    pub fn session(mut self) -> Self {
        self.lock = self.lock.session();
        self
    }

    /// Campaigns until [`stop`](Self::stop), or until this future is dropped, which stops the campaign too. Each time that it is elected it calls `lead`,
    /// which has to return when the [`Term`] is over. Others are elected once `lead` has returned, or the lease has ended.
    ///
    /// # Errors
    /// What no campaign can pass: [`Argument`](crate::Kind::Argument) or [`Misuse`](crate::Kind::Misuse).
    pub async fn run<F: Future<Output = ()>>(&self, mut lead: impl FnMut(Term) -> F) -> Result<(), Error> {
        let (engine, request) = (&self.lock.owner.engine, &self.lock.request);
        loop {
            let (owner, campaign, wanted) =
                (Arc::clone(&self.lock.owner), Arc::clone(&self.campaign), Arc::clone(request));
            let attempt = async move {
                let hold = campaign.elected(&owner.engine, &wanted).await?;
                Ok::<_, Error>(hold.map(|hold| Held { hold, owner }))
            };
            let Some(held) = Attempted::new(engine, self.campaign.stopped(), attempt).await? else { return Ok(()) };
            lead(self.campaign.begin(&held.hold)).await;
            let has_resigned = held.check().is_ok();
            self.campaign.end();
            if let Err(error) = held.release().await {
                log::debug!("serverlock: {error}");
            }
            if has_resigned {
                self.campaign.pause(request).await;
            }
        }
    }

    /// The token, while this leads.
    #[must_use]
    pub fn token(&self) -> Option<i64> {
        self.campaign.token()
    }

    /// Steps down, and campaigns again after others had their turn.
    pub fn resign(&self) {
        self.campaign.resign();
    }

    /// Steps down, and ends [`run`](Self::run).
    pub fn stop(&self) {
        self.campaign.stop();
    }

    /// Yields who leads, first the current leader, then each change. It looks every third of the lease.
    #[must_use]
    pub fn observe(&self) -> Observer {
        Observer {
            looks: Looks::new(&self.lock.owner.engine, &self.lock.request),
            _owner: Arc::clone(&self.lock.owner),
        }
    }
}

/// Yields who leads.
pub struct Observer {
    looks: Looks,
    _owner: Arc<Owner>,
}

impl fmt::Debug for Observer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Observer").finish_non_exhaustive()
    }
}

impl Observer {
    /// The next change: `Some(None)` when nobody leads, `None` when the locks are closed.
    pub async fn next(&mut self) -> Option<Option<Leadership>> {
        self.looks.next().await
    }
}
