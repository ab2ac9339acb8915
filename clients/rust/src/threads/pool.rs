//! The application's connections: a small pool that it shares with its locks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Connection, ConnectionLike, RedisResult};

use crate::route::Servers;
use crate::sync::locked;

/// A pool of connections that the application shares with its locks. It keeps as many open as were ever in use at
/// once.
///
/// ```no_run
/// use serverlock::{Connections, Locks};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let connections = Connections::new(redis::Client::open("redis://localhost")?);
/// let locks = Locks::new(connections.clone());
/// let length: usize = connections.with(|connection| redis::cmd("STRLEN").arg("report").query(connection))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Connections {
    shared: Arc<Shared>,
}

struct Shared {
    servers: Servers,
    address: Option<String>,
    timeout: Duration,
    idle: Mutex<Vec<Kept>>,
}

/// A connection and its time-out.
pub(crate) struct Kept {
    pub(crate) connection: Connection,
    timeout: Option<Duration>,
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Connections").field("servers", &self.shared.servers).finish_non_exhaustive()
    }
}

impl<S: Into<Servers>> From<S> for Connections {
    fn from(servers: S) -> Self {
        Self::new(servers)
    }
}

impl Connections {
    /// Does not connect yet. `servers` is a `redis::Client`, a `SentinelClient` or [`Servers`].
    pub fn new(servers: impl Into<Servers>) -> Self {
        Self::at(servers.into(), None)
    }

    pub(crate) fn at(servers: Servers, address: Option<String>) -> Self {
        let shared = Shared { servers, address, timeout: Duration::from_secs(5), idle: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn servers(&self) -> &Servers {
        &self.shared.servers
    }

    /// Lends one of the connections to the work, and closes it if the work fails without an error reply. Each reply may
    /// take up to 5 seconds.
    ///
    /// # Errors
    /// The work's error, or that of connecting.
    pub fn with<T>(&self, work: impl FnOnce(&mut Connection) -> RedisResult<T>) -> RedisResult<T> {
        let mut kept = self.take(self.shared.timeout)?;
        let done = work(&mut kept.connection);
        if done.as_ref().is_ok() || done.as_ref().is_err_and(|error| error.code().is_some()) {
            self.give_back(kept);
        }
        done
    }

    /// Takes a connection whose reads and writes time out after `timeout`.
    pub(crate) fn take(&self, timeout: Duration) -> RedisResult<Kept> {
        let idle = locked(&self.shared.idle).pop();
        let mut kept = match idle {
            Some(kept) => kept,
            None => self.open(timeout)?,
        };
        if kept.timeout != Some(timeout) {
            kept.connection.set_read_timeout(Some(timeout))?;
            kept.connection.set_write_timeout(Some(timeout))?;
            kept.timeout = Some(timeout);
        }
        Ok(kept)
    }

    fn open(&self, timeout: Duration) -> RedisResult<Kept> {
        let client = self.shared.servers.client(self.shared.address.as_deref())?;
        let connection = client.get_connection_with_timeout(timeout)?;
        Ok(Kept { connection, timeout: None })
    }

    pub(crate) fn give_back(&self, kept: Kept) {
        if kept.connection.is_open() {
            locked(&self.shared.idle).push(kept);
        }
    }

    /// Closes the idle connections after one was lost, because the others are equally old, and lead to the same server.
    pub(crate) fn drop_idle(&self) {
        let idle = std::mem::take(&mut *locked(&self.shared.idle));
        drop(idle);
    }
}
