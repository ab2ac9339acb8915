//! Sends commands to one server over one connection that all tasks share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};

use crate::connection::Connection;
use crate::failures::{Call, Failure, Reply, in_time, read};
use crate::route::{Server, Servers};
use crate::sync::{Signal, locked};

/// Sends one command over the connection of the application.
type Asks = Box<dyn Fn(Cmd) -> Call + Send + Sync>;

/// The connections of the application. They cannot be closed from here: a reply that is late is awaited.
pub(crate) struct Theirs {
    asks: Asks,
}

impl Theirs {
    pub(crate) fn new<C: ConnectionLike + Clone + Send + Sync + 'static>(connection: C) -> Self {
        let asks = move |cmd: Cmd| -> Call {
            let mut connection = connection.clone();
            Box::pin(async move { read(connection.req_packed_command(&cmd).await) })
        };
        Self { asks: Box::new(asks) }
    }

    pub(crate) fn by<F>(run: impl Fn(Cmd) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = RedisResult<Value>> + Send + 'static,
    {
        let asks = move |cmd: Cmd| -> Call {
            let running = run(cmd);
            Box::pin(async move { read(running.await) })
        };
        Self { asks: Box::new(asks) }
    }
}

impl Server for Theirs {
    fn call(&self, cmd: Cmd, _: bool, timeout: Duration) -> Call {
        in_time((self.asks)(cmd), timeout)
    }

    fn narrow(&self, _: Box<dyn FnOnce() + Send>) -> bool {
        true
    }

    fn widen(&self) {}
}

/// A connection of the manager's own, opened at the first call, and again when it has ended.
pub(crate) struct Ours {
    state: Arc<State>,
}

struct State {
    servers: Servers,
    address: Option<String>,
    connection: Mutex<Option<Arc<Connection>>>,
    opening: tokio::sync::Mutex<()>,
}

impl Ours {
    pub(crate) fn new(servers: Servers, address: Option<String>) -> Self {
        let state = State { servers, address, connection: Mutex::default(), opening: tokio::sync::Mutex::default() };
        Self { state: Arc::new(state) }
    }
}

impl State {
    fn kept(&self) -> Option<Arc<Connection>> {
        locked(&self.connection).clone().filter(|connection| connection.is_open())
    }

    async fn connection(&self, timeout: Duration) -> Result<Arc<Connection>, Failure> {
        if let Some(kept) = self.kept() {
            return Ok(kept);
        }
        let _opening = self.opening.lock().await;
        if let Some(kept) = self.kept() {
            return Ok(kept);
        }
        let client = self.servers.find(self.address.as_deref()).await?;
        let made = Connection::plain(&client, timeout).await?;
        *locked(&self.connection) = Some(Arc::clone(&made));
        Ok(made)
    }

    async fn call(&self, cmd: Cmd, is_asking: bool, timeout: Duration) -> Reply {
        let within = tokio::time::timeout(timeout, self.connection(timeout)).await;
        let connection = within.map_err(|_| Failure::no_reply(timeout))??;
        let reply = if is_asking {
            connection.asking(&cmd, timeout).await
        } else {
            connection.call(&cmd, timeout, &Signal::default()).await
        };
        // A server that is no longer the master: the next connection may lead to the one that is.
        if matches!(&reply, Err(failure) if failure.code() == Some("READONLY")) {
            connection.close().await;
        }
        reply
    }
}

impl Server for Ours {
    fn call(&self, cmd: Cmd, is_asking: bool, timeout: Duration) -> Call {
        let state = Arc::clone(&self.state);
        Box::pin(async move { state.call(cmd, is_asking, timeout).await })
    }

    fn narrow(&self, _: Box<dyn FnOnce() + Send>) -> bool {
        true
    }

    fn widen(&self) {}
}

impl Connection {
    /// One exchange with an ASKING before it, which nothing can come between.
    async fn asking(&self, cmd: &Cmd, timeout: Duration) -> Reply {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("ASKING").ignore().add_command(cmd.clone());
        let Some(mut connection) = self.shared() else { return Err(Failure::broken("the connection has ended")) };
        let sent = connection.send_packed_commands(&pipeline, 0, 2);
        if let Ok(replies) = tokio::time::timeout(timeout, sent).await {
            read(replies.and_then(last))
        } else {
            self.close().await;
            Err(Failure::no_reply(timeout))
        }
    }
}

fn last(replies: Vec<Value>) -> RedisResult<Value> {
    let none = || RedisError::from((redis::ErrorKind::UnexpectedReturnType, "ASKING was not answered"));
    replies.into_iter().next_back().ok_or_else(none)
}
