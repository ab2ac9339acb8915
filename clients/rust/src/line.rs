//! A connection of the manager's own: for waiting, for sessions, and where the application has none to share. Its end is
//! noticed at once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ProtocolVersion, PushInfo, PushKind, Value};

use crate::judge::{Fault, Reply, fault, read, text};
use crate::sync::{First, Signal, first, locked};

/// What hears messages.
type Heard = Box<dyn Fn(&str) + Send + Sync>;

pub(crate) struct Line {
    connection: Mutex<Option<MultiplexedConnection>>,
    /// Calls let go of the connection.
    closing: Signal,
    ended: Arc<Signal>,
    heard: Arc<Mutex<Option<Heard>>>,
}

/// The library drops what hears messages when the connection has ended, whoever ended it.
struct End(Arc<Signal>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.fire();
    }
}

impl Line {
    /// Opens one that hears messages and notices its end.
    pub(crate) async fn open(client: &Client, timeout: Duration) -> Result<Arc<Self>, Fault> {
        let info = client.get_connection_info();
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.clone().set_redis_settings(settings)).map_err(fault)?;
        let ended = Arc::new(Signal::default());
        let heard = Arc::new(Mutex::new(None::<Heard>));
        let (end, hears) = (End(Arc::clone(&ended)), Arc::clone(&heard));
        let config = AsyncConnectionConfig::new().set_push_sender(move |push: PushInfo| {
            let _ = &end;
            if let (PushKind::Message, Some(message)) = (&push.kind, push.data.get(1))
                && let Some(heard) = locked(&hears).as_ref()
            {
                heard(&text(message));
            }
            Ok::<(), ()>(())
        });
        Self::connected(&client, config, timeout, ended, heard).await
    }

    #[cfg(feature = "tokio")]
    /// Opens one as the client would: its protocol may know neither messages nor ends.
    pub(crate) async fn plain(client: &Client, timeout: Duration) -> Result<Arc<Self>, Fault> {
        Self::connected(client, AsyncConnectionConfig::new(), timeout, Arc::default(), Arc::default()).await
    }

    async fn connected(
        client: &Client,
        config: AsyncConnectionConfig,
        timeout: Duration,
        ended: Arc<Signal>,
        heard: Arc<Mutex<Option<Heard>>>,
    ) -> Result<Arc<Self>, Fault> {
        let config = config.set_connection_timeout(Some(timeout)).set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config).await.map_err(fault)?;
        Ok(Arc::new(Self { connection: Mutex::new(Some(connection)), closing: Signal::default(), ended, heard }))
    }

    /// One exchange. Without a reply in time, and when the caller gives up, the line is closed.
    pub(crate) async fn call(&self, cmd: &Cmd, timeout: Duration, cancel: &Signal) -> Reply {
        let Some(connection) = self.shared() else { return Err(Fault::broken("the connection has ended")) };
        let exchange = async move {
            let mut connection = connection;
            connection.send_packed_command(cmd).await
        };
        let reply = tokio::time::timeout(timeout, exchange);
        let outcome = first(reply, first(self.closing.wait(), cancel.wait())).await;
        let (closes, fault) = match outcome {
            First::Left(Ok(reply)) => match read(reply) {
                Err(fault) if fault.is_broken() => (true, fault),
                reply => return reply,
            },
            First::Left(Err(_)) => (true, Fault::no_reply(timeout)),
            First::Right(First::Left(())) => (false, Fault::broken("the connection was closed")),
            First::Right(First::Right(())) => (true, Fault::GivenUp),
        };
        if closes {
            self.close().await;
        }
        Err(fault)
    }

    /// Passes messages on from now on, in the order in which they come.
    pub(crate) async fn subscribe(
        &self,
        channel: &str,
        timeout: Duration,
        heard: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<(), Fault> {
        *locked(&self.heard) = Some(Box::new(heard));
        let Some(mut connection) = self.shared() else { return Err(Fault::broken("the connection has ended")) };
        match first(tokio::time::timeout(timeout, connection.subscribe(channel)), self.closing.wait()).await {
            First::Left(Ok(reply)) => read(reply.map(|()| Value::Nil)).map(|_| ()),
            First::Left(Err(_)) => Err(Fault::no_reply(timeout)),
            First::Right(()) => Err(Fault::broken("the connection was closed")),
        }
    }

    pub(crate) fn shared(&self) -> Option<MultiplexedConnection> {
        locked(&self.connection).clone().filter(|_| self.is_open())
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.ended.is_fired() && !self.closing.is_fired()
    }

    /// Returns when the connection has ended.
    pub(crate) async fn ended(&self) {
        self.ended.wait().await;
    }

    /// Lets go of the connection, which ends soon.
    pub(crate) fn close_soon(&self) {
        let connection = locked(&self.connection).take();
        self.closing.fire();
        drop(connection);
    }

    /// Returns when the connection is closed: nothing that was sent before gets a reply any more.
    pub(crate) async fn close(&self) {
        self.close_soon();
        // The library ends it when the last call has let go of it. One that hears nothing cannot tell when that is.
        if Arc::strong_count(&self.ended) > 1 {
            let _ = tokio::time::timeout(Duration::from_secs(1), self.ended.wait()).await;
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.closing.fire();
    }
}
