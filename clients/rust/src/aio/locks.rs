//! The manager.

use std::fmt;
use std::sync::Arc;

use redis::aio::ConnectionLike;
use redis::{Cmd, RedisResult, Value};
use tokio::runtime::Handle;

use super::leader::Leader;
use super::lock::Lock;
use super::once::Once;
use super::session::Session;
use super::shared::{Asks, Ours, Theirs};
use super::single_flight::SingleFlight;
use crate::engine::Engine;
use crate::held::{Owner, locks_methods};
use crate::options::Options;
use crate::request::{Form, Request, Sharing};
use crate::route::{Opens, Router, Server, Servers};

/// The locks of one connection: create one `Locks` for each connection, and keep it. Clones share its state. Different
/// `Locks` do not see each other's holds: within a scope of one, an attempt through another waits for its own caller.
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
    /// Locks over their own connection, opened at the first call: to a `redis::Client`'s server, to the master that a
    /// `SentinelClient` names, or to the servers of a [cluster](Servers::cluster).
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(servers: impl Into<Servers>) -> Self {
        Self::with_options(servers, Options::default())
    }

    /// Like [`Locks::new`], with options.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn with_options(servers: impl Into<Servers>, options: Options) -> Self {
        let servers = servers.into();
        let own = servers.clone();
        Self::build(servers, options, Box::new(move |address| Arc::new(Ours::new(own.clone(), address))))
    }

    /// Locks over the application's connection: a `MultiplexedConnection`, or a `ConnectionManager`, which reconnects
    /// on its own. Waits use connections that the client opens.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn with_connection<C>(client: &redis::Client, connection: C, options: Options) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self::over(client.into(), Theirs::asks(connection), options)
    }

    /// Locks that send each command through the closure: with a connection from a pool, or with the application's
    /// cluster client, which follows redirections itself. Waits use connections to `servers`.
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
    /// Outside a tokio runtime.
    pub fn with_calls<F>(
        servers: impl Into<Servers>,
        call: impl Fn(Cmd) -> F + Send + Sync + 'static,
        options: Options,
    ) -> Self
    where
        F: Future<Output = RedisResult<Value>> + Send + 'static,
    {
        Self::over(servers.into(), Theirs::asks_by(call), options)
    }

    fn over(servers: Servers, asks: Asks, options: Options) -> Self {
        let spare = servers.clone();
        let opens = move |address| -> Arc<dyn Server> { Arc::new(Theirs::new(asks.clone(), spare.clone(), address)) };
        Self::build(servers, options, Box::new(opens))
    }

    pub(crate) fn build(servers: Servers, options: Options, opens: Opens) -> Self {
        let router = Arc::new(Router::new(servers, opens));
        Self { owner: Arc::new(Owner { engine: Engine::new(Handle::current(), router, options) }) }
    }

    locks_methods!(Lock, Leader, Once, SingleFlight, Session);
}
