//! Sends commands to one server over one connection that all tasks share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::sync::oneshot;

use crate::connection::Connection;
use crate::failures::{Call, Failure, Reply, in_time, read};
use crate::route::{Server, Servers};
use crate::sync::{First, Signal, first, locked};

/// Sends one command over the application's connection.
pub(crate) type Asks = Arc<dyn Fn(Cmd) -> Call + Send + Sync>;

/// The application's connections. They cannot be closed here, so a late reply is awaited. While a reply is overdue, the
/// network may be dropping all packets, and other calls use a spare connection.
pub(crate) struct Theirs {
    asks: Asks,
    spare: Arc<Ours>,
    /// How many replies are overdue.
    overdue: Arc<AtomicUsize>,
    /// Fires when this is dropped: late replies are no longer awaited.
    ended: Arc<Signal>,
}

impl Theirs {
    pub(crate) fn asks<C: ConnectionLike + Clone + Send + Sync + 'static>(connection: C) -> Asks {
        Arc::new(move |cmd: Cmd| -> Call {
            let mut connection = connection.clone();
            Box::pin(async move { read(connection.req_packed_command(&cmd).await) })
        })
    }

    pub(crate) fn asks_by<F>(run: impl Fn(Cmd) -> F + Send + Sync + 'static) -> Asks
    where
        F: Future<Output = RedisResult<Value>> + Send + 'static,
    {
        Arc::new(move |cmd: Cmd| -> Call {
            let running = run(cmd);
            Box::pin(async move { read(running.await) })
        })
    }

    pub(crate) fn new(asks: Asks, servers: Servers, address: Option<String>) -> Self {
        let spare = Arc::new(Ours::new(servers, address));
        Self { asks, spare, overdue: Arc::default(), ended: Arc::default() }
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        self.ended.fire();
    }
}

impl Server for Theirs {
    fn call(&self, cmd: Cmd, is_asking: bool, timeout: Duration) -> Call {
        if self.overdue.load(Ordering::SeqCst) > 0 {
            return self.spare.call(cmd, is_asking, timeout);
        }
        let (mut call, spare) = ((self.asks)(cmd), Arc::clone(&self.spare));
        let (overdue, ended) = (Arc::clone(&self.overdue), Arc::clone(&self.ended));
        Box::pin(async move {
            if let Ok(reply) = tokio::time::timeout(timeout, &mut call).await {
                return reply;
            }
            // A task awaits the reply, so that it counts as overdue even if its caller is gone.
            overdue.fetch_add(1, Ordering::SeqCst);
            let (done, late) = oneshot::channel();
            tokio::spawn(async move {
                if let First::Left(reply) = first(call, ended.wait()).await {
                    let _ = done.send(reply);
                }
                if overdue.fetch_sub(1, Ordering::SeqCst) == 1 {
                    spare.let_go();
                }
            });
            let late = async move { late.await.unwrap_or_else(|_| Err(Failure::broken("the manager has ended"))) };
            Err(Failure::Late(in_time(Box::pin(late), timeout)))
        })
    }

    fn narrow(&self, _: Box<dyn FnOnce() + Send>) -> bool {
        true
    }

    fn widen(&self) {}

    fn passes_late_replies(&self) -> bool {
        true
    }
}

/// The manager's own connection, opened at the first call, and again after it has ended.
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

    /// Lets go of the connection, which then ends with the last call that uses it.
    fn let_go(&self) {
        drop(locked(&self.state.connection).take());
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
        // The server is no longer the master. The next connection may lead to the new master.
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
    /// One exchange right after an ASKING: nothing can come between them.
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
