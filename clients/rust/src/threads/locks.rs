//! The manager.

use std::fmt;
use std::sync::Arc;

use redis::{Cmd, RedisResult, Value};

use super::calls::Theirs;
use super::leader::Leader;
use super::lock::Lock;
use super::once::Once;
use super::pipeline::Pipeline;
use super::pool::Connections;
use super::runtime;
use super::session::Session;
use super::single_flight::SingleFlight;
use crate::engine::Engine;
use crate::held::{Owner, locks_methods};
use crate::options::Options;
use crate::request::{Form, Request, Sharing};
use crate::route::{Opens, Router, Server, Servers};

/// The locks of one set of connections: create one `Locks` for each set, and keep it. Clones share its state. Different
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
    /// Locks over the [`Connections`] that the application shares with them, or over their own connections: to a
    /// `redis::Client`'s server, to the master that a `SentinelClient` names, or to a
    /// [cluster](crate::Servers::cluster).
    ///
    /// # Panics
    /// If the system cannot start a thread, as `std::thread::spawn` does.
    pub fn new(connections: impl Into<Connections>) -> Self {
        Self::with_options(connections, Options::default())
    }

    /// Like [`Locks::new`], with options.
    ///
    /// # Panics
    /// Like [`Locks::new`].
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
                Arc::new(Pipeline::new(connections))
            }
        };
        Self::build(servers, options, Box::new(opens))
    }

    /// Locks that send each command through the closure: with a connection from a pool, or with the application's
    /// cluster client, which follows redirections itself. Waits use connections to `servers`.
    ///
    /// The closure runs on another thread, so that a call without a reply never delays a caller beyond the time-out.
    /// That costs more than [`Connections`].
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
    /// Like [`Locks::new`].
    pub fn with_calls(
        servers: impl Into<Servers>,
        call: impl Fn(&Cmd) -> RedisResult<Value> + Send + Sync + 'static,
        options: Options,
    ) -> Self {
        let servers = servers.into();
        let theirs: Arc<dyn Server> = Arc::new(Theirs::new(servers.clone(), call));
        Self::build(servers, options, Box::new(move |_| Arc::clone(&theirs)))
    }

    pub(crate) fn build(servers: Servers, options: Options, opens: Opens) -> Self {
        let router = Arc::new(Router::new(servers, opens));
        #[allow(clippy::expect_used)] // documented, and what std::thread::spawn does
        let handle = runtime::handle().expect("a thread can be started");
        Self { owner: Arc::new(Owner { engine: Engine::new(handle, router, options) }) }
    }

    locks_methods!(Lock, Leader, Once, SingleFlight, Session);
}
