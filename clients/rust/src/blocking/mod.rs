//! Locks for threads: each call returns when it is done. Waits and renewals run on one thread of the crate's own.

mod connections;
mod lane;
mod runtime;
mod theirs;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisResult, Value};

pub use connections::Connections;
use lane::Lane;
use runtime::block_on;
use theirs::Theirs;

use crate::Cancel;
use crate::engine::Engine;
use crate::error::Error;
use crate::held::{Owner, held_methods, locks_methods};
use crate::hold::Hold;
use crate::leader::{Campaign, Leadership, Looks, Term};
use crate::options::{Options, lock_options};
use crate::request::{Form, Request, Sharing};
use crate::scope::{OfThread, refuse_again};
use crate::server::{Opens, Router, Server, Servers};

/// The locks of one set of connections: make one for each, and keep it. Its clones are the same. Others do not know what it
/// holds: within a scope of one, an attempt by another waits for its own caller.
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
    /// Locks over the [`Connections`] that the application shares with them, or over connections of their own: to the
    /// server of a `redis::Client`, to the master that a `SentinelClient` names, or to a [cluster](crate::Servers::cluster).
    ///
    /// # Panics
    /// If the system lets no thread be started, as `std::thread::spawn` does.
    pub fn new(connections: impl Into<Connections>) -> Self {
        Self::with_options(connections, Options::default())
    }

    /// As [`Locks::new`], with options.
    ///
    /// # Panics
    /// As [`Locks::new`].
    pub fn with_options(connections: impl Into<Connections>, options: Options) -> Self {
        let connections = connections.into();
        let servers = connections.servers().clone();
        let opens = {
            let servers = servers.clone();
            move |address: Option<String>| -> Arc<dyn Server> {
                let connections = match address {
                    None => connections.clone(),
                    address => Connections::at(servers.clone(), address),
                };
                Arc::new(Lane::new(connections))
            }
        };
        Self::made(servers, options, Box::new(opens))
    }

    /// Locks that make each call as the closure does: with a connection of a pool, or with the application's client of a
    /// cluster, which follows redirections itself. The servers say where waits go.
    ///
    /// The closure runs on another thread, so that a call without a reply holds nobody up for longer than the time-out.
    /// That costs more than [`Connections`] do.
    ///
    /// ```no_run
    /// # fn example(client: redis::Client, connection: redis::Connection) {
    /// use std::sync::Mutex;
    ///
    /// use serverlock::{Locks, Options};
    ///
    /// let connection = Mutex::new(connection);
    /// let locks = Locks::with_calls(client, move |cmd| cmd.query(&mut *connection.lock().unwrap()), Options::new());
    /// # }
    /// ```
    ///
    /// # Panics
    /// As [`Locks::new`].
    pub fn with_calls(
        servers: impl Into<Servers>,
        call: impl Fn(&Cmd) -> RedisResult<Value> + Send + Sync + 'static,
        options: Options,
    ) -> Self {
        let servers = servers.into();
        let theirs: Arc<dyn Server> = Arc::new(Theirs::new(servers.clone(), call));
        Self::made(servers, options, Box::new(move |_| Arc::clone(&theirs)))
    }

    fn made(servers: Servers, options: Options, opens: Opens) -> Self {
        let router = Arc::new(Router::new(servers, opens));
        #[allow(clippy::expect_used)] // documented, and what std::thread::spawn does
        let handle = runtime::handle().expect("a thread can be started");
        Self { owner: Arc::new(Owner { engine: Engine::new(handle, router, options) }) }
    }

    locks_methods!(Lock, Leader);
}

/// A description of a lock: it holds nothing, and any number of threads may use it. Each acquisition gives a [`Held`] of
/// its own.
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

impl Lock {
    lock_options!();

    /// Fills [`Held::predecessor`].
    #[must_use]
    pub fn details(self) -> Self {
        self.with(|it| it.details = true)
    }

    /// Gets the lock, within [`wait`](Self::wait). It is given back when the [`Held`] is dropped.
    ///
    /// # Errors
    /// [`Refused`](crate::Kind::Refused) if somebody else has it, [`Timeout`](crate::Kind::Timeout) if so when the wait ended, and any
    /// other but `Lost`.
    pub fn acquire(&self) -> Result<Held, Error> {
        self.acquire_unless(&Cancel::new())
    }

    /// As [`acquire`](Self::acquire), until it is cancelled. Then it returns at once if it waits, and after the reply, or
    /// the time-out of one call, if it is in the middle of one.
    ///
    /// # Errors
    /// [`Cancelled`](crate::Kind::Cancelled), and those of `acquire`.
    pub fn acquire_unless(&self, cancel: &Cancel) -> Result<Held, Error> {
        let engine = &self.owner.engine;
        refuse_again(engine, &self.request)?;
        let attempt = engine.acquire(Arc::clone(&self.request), Arc::clone(&cancel.0));
        let hold = block_on(engine.handle(), attempt)?;
        Ok(Held { hold, owner: Arc::clone(&self.owner) })
    }

    /// Runs the work while the lock is held, then gives the lock back. Rust cannot stop a thread from outside: longer work
    /// calls [`Held::check`] before each step.
    ///
    /// # Errors
    /// That of the work; if it has none, [`Lost`](crate::Kind::Lost) if the lock was not held to the end. To ask for the same lock
    /// within the work is [`Misuse`](crate::Kind::Misuse).
    pub fn run<T, E: From<Error>>(&self, work: impl FnOnce(&Held) -> Result<T, E>) -> Result<T, E> {
        self.run_unless(&Cancel::new(), work)
    }

    /// As [`run`](Self::run), but the attempt can be given up from outside. A lock that is held does not depend on it.
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`Cancelled`](crate::Kind::Cancelled).
    pub fn run_unless<T, E: From<Error>>(
        &self,
        cancel: &Cancel,
        work: impl FnOnce(&Held) -> Result<T, E>,
    ) -> Result<T, E> {
        let held = self.acquire_unless(cancel)?;
        let scope = OfThread::enter(&held.hold);
        let done = work(&held);
        drop(scope);
        let released = held.release();
        let value = done?;
        released?;
        Ok(value)
    }
}

/// A lock that is held, until it is released, dropped or lost. There is never a second one for a grant. Its drop gives
/// the lock back, as [`Held::release`] does, but tells nobody whether it was held to the end.
///
/// It cannot be copied, nor used after its release:
///
/// ```compile_fail,E0599
/// fn copy(held: &serverlock::Held) -> serverlock::Held {
///     held.clone()
/// }
/// ```
///
/// ```compile_fail,E0382
/// fn twice(held: serverlock::Held) {
///     let _ = held.release();
///     let _ = held.release();
/// }
/// ```
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

    /// Gives the lock back.
    ///
    /// It takes at most the time-out of one call. What cannot be given back by then is given back in the background, and
    /// ends with its lease at the latest.
    ///
    /// # Errors
    /// [`Lost`](crate::Kind::Lost) unless the lock was held to the end.
    pub fn release(self) -> Result<(), Error> {
        self.end().unwrap_or(Ok(()))
    }

    fn end(&self) -> Option<Result<(), Error>> {
        let ended = self.hold.end()?;
        Some(block_on(self.owner.engine.handle(), self.owner.engine.release(&self.hold, ended)))
    }

    /// Sets a new lease, counted from now. Renewal does so by itself with the lease of the lock.
    ///
    /// # Errors
    /// [`Lost`](crate::Kind::Lost), [`Argument`](crate::Kind::Argument), or that the server did not answer.
    pub fn extend(&self, lease: Duration) -> Result<(), Error> {
        block_on(self.owner.engine.handle(), self.owner.engine.extend(&self.hold, lease))
    }

    /// Asks the server whether the lock is held, and gives the time that is left.
    ///
    /// # Errors
    /// [`Lost`](crate::Kind::Lost), or that the server did not answer.
    pub fn verify(&self) -> Result<Duration, Error> {
        block_on(self.owner.engine.handle(), self.owner.engine.verify(&self.hold))
    }

    /// Runs one command on the server of the lock, only if the lock is held there at that moment. The first argument of
    /// the command is its key; in a cluster it must be in the slot of the lock.
    ///
    /// # Errors
    /// [`Lost`](crate::Kind::Lost), that of the command as [`Argument`](crate::Kind::Argument), or that the server did not answer.
    pub fn fenced<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        let value = block_on(self.owner.engine.handle(), self.owner.engine.fenced(&self.hold, command))?;
        crate::converted(&self.hold, value)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.end() {
            log::debug!("serverlock: {error}");
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

    /// Campaigns until [`stop`](Self::stop). Each time that it is elected it calls `lead`, which has to return when the
    /// [`Term`] is over: it looks at [`Term::is_over`] before each step, or waits in [`Leader::wait`]. Others are elected
    /// once `lead` has returned, or the lease has ended.
    ///
    /// # Errors
    /// What no campaign can pass: [`Argument`](crate::Kind::Argument) or [`Misuse`](crate::Kind::Misuse).
    pub fn run(&self, mut lead: impl FnMut(&Term)) -> Result<(), Error> {
        let (owner, request) = (&self.lock.owner, &self.lock.request);
        let handle = owner.engine.handle();
        while let Some(hold) = block_on(handle, self.campaign.elected(&owner.engine, request))? {
            let held = Held { hold, owner: Arc::clone(owner) };
            let term = self.campaign.begin(&held.hold);
            lead(&term);
            let has_resigned = held.check().is_ok();
            self.campaign.end();
            if let Err(error) = held.release() {
                log::debug!("serverlock: {error}");
            }
            if has_resigned {
                block_on(handle, self.campaign.pause(request));
            }
        }
        Ok(())
    }

    /// Waits until a term is over.
    pub fn wait(&self, term: &Term) {
        block_on(self.lock.owner.engine.handle(), term.over());
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

    /// Yields who leads, first the current leader, then each change; `None` while nobody does. It looks every third of the
    /// lease, and ends when the locks are closed.
    #[must_use]
    pub fn observe(&self) -> Observer {
        Observer { looks: Looks::new(&self.lock.owner.engine, &self.lock.request), owner: Arc::clone(&self.lock.owner) }
    }
}

/// Yields who leads.
pub struct Observer {
    looks: Looks,
    owner: Arc<Owner>,
}

impl fmt::Debug for Observer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Observer").finish_non_exhaustive()
    }
}

impl Iterator for Observer {
    type Item = Option<Leadership>;

    fn next(&mut self) -> Option<Self::Item> {
        block_on(self.owner.engine.handle(), self.looks.next())
    }
}
