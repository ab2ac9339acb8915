//! A dedicated connection, for waits, for sessions, and for an application that has no connection to share. It notices
//! at once when it ends.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ProtocolVersion, PushInfo, PushKind, Value};

use crate::clock::Clock;
use crate::failures::{Failure, Reply, failure, read, text};
use crate::sync::{First, Signal, first, locked};

/// Called with messages.
type Receiver = Box<dyn Fn(&str) + Send + Sync>;

pub(crate) struct Connection {
    stream: Mutex<Option<MultiplexedConnection>>,
    /// A connection used instead of `stream`, on which the calling thread itself blocks.
    #[cfg(feature = "blocking")]
    blocks: Option<Mutex<Option<Blocking>>>,
    /// Makes calls let go of the connection.
    closing: Arc<Signal>,
    clock: Clock,
    ended: Arc<Signal>,
    receiver: Arc<Mutex<Option<Receiver>>>,
}

#[cfg(feature = "blocking")]
struct Blocking {
    connection: redis::Connection,
    timeout: Duration,
}

/// The library drops the receiver of messages once the connection has ended, whichever side ended it.
struct End(Arc<Signal>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.fire();
    }
}

impl Connection {
    /// Opens a connection that receives messages and notices when it ends.
    pub(crate) async fn open(client: &Client, timeout: Duration) -> Result<Arc<Self>, Failure> {
        let info = client.get_connection_info();
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.clone().set_redis_settings(settings)).map_err(failure)?;
        let (config, opened) = Self::receiving();
        opened.connected(&client, config, timeout).await
    }

    /// A connection over a stream to a server in memory.
    #[cfg(feature = "testing")]
    pub(crate) async fn over<S>(stream: S, clock: Clock) -> Result<Arc<Self>, Failure>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let (config, mut opened) = Self::receiving();
        let (settings, config) = (
            redis::RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3),
            config.set_response_timeout(None),
        );
        let connecting = MultiplexedConnection::new_with_config(&settings, stream, config);
        let (connection, driver) = connecting.await.map_err(failure)?;
        let closing = Arc::clone(&opened.closing);
        tokio::spawn(clock.followed(async move { _ = first(driver, closing.wait()).await }));
        (opened.stream, opened.clock) = (Mutex::new(Some(connection)), clock);
        Ok(Arc::new(opened))
    }

    /// A connection that is opened with these settings receives messages, and notices when it ends.
    fn receiving() -> (AsyncConnectionConfig, Self) {
        let opened = Self::empty();
        let (end, receives) = (End(Arc::clone(&opened.ended)), Arc::clone(&opened.receiver));
        let config = AsyncConnectionConfig::new().set_push_sender(move |push: PushInfo| {
            let _ = &end;
            if let (PushKind::Message, Some(message)) = (&push.kind, push.data.get(1))
                && let Some(receiver) = locked(&receives).as_ref()
            {
                receiver(&text(message));
            }
            Ok::<(), ()>(())
        });
        (config, opened)
    }

    #[cfg(feature = "tokio")]
    /// Opens a connection as the client would: its protocol may report neither messages nor the connection's end.
    pub(crate) async fn plain(client: &Client, timeout: Duration) -> Result<Arc<Self>, Failure> {
        Self::empty().connected(client, AsyncConnectionConfig::new(), timeout).await
    }

    async fn connected(
        mut self,
        client: &Client,
        config: AsyncConnectionConfig,
        timeout: Duration,
    ) -> Result<Arc<Self>, Failure> {
        let config = config.set_connection_timeout(Some(timeout)).set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config).await.map_err(failure)?;
        self.stream = Mutex::new(Some(connection));
        Ok(Arc::new(self))
    }

    fn empty() -> Self {
        Self {
            stream: Mutex::default(),
            #[cfg(feature = "blocking")]
            blocks: None,
            closing: Arc::default(),
            clock: Clock::default(),
            ended: Arc::default(),
            receiver: Arc::default(),
        }
    }

    /// Opens a connection for a thread's wait: the thread blocks on it and gets the reply without another thread in
    /// between. It neither receives messages nor notices when it ends.
    #[cfg(feature = "blocking")]
    pub(crate) fn blocking(client: &Client, timeout: Duration) -> Result<Arc<Self>, Failure> {
        let connection = client.get_connection_with_timeout(timeout).map_err(failure)?;
        let blocking = Blocking { connection, timeout: Duration::ZERO };
        Ok(Arc::new(Self { blocks: Some(Mutex::new(Some(blocking))), ..Self::empty() }))
    }

    /// Whether calls on this connection cannot be interrupted.
    #[cfg(feature = "blocking")]
    pub(crate) fn blocks(&self) -> bool {
        self.blocks.is_some()
    }

    #[cfg(feature = "blocking")]
    fn block(&self, slot: &Mutex<Option<Blocking>>, cmd: &Cmd, timeout: Duration) -> Reply {
        let Some(mut blocking) = locked(slot).take() else { return Err(Failure::broken("the connection has ended")) };
        let reply = blocking.call(cmd, timeout);
        match &reply {
            Err(failure) if failure.is_connection_lost() => self.closing.fire(),
            _ if self.is_open() => *locked(slot) = Some(blocking),
            _ => {}
        }
        reply
    }

    /// One exchange. The connection is closed if no reply comes in time, or the caller gives up.
    pub(crate) async fn call(&self, cmd: &Cmd, timeout: Duration, cancel: &Signal) -> Reply {
        #[cfg(feature = "blocking")]
        if let Some(slot) = &self.blocks {
            return self.block(slot, cmd, timeout);
        }
        let Some(connection) = self.shared() else { return Err(Failure::broken("the connection has ended")) };
        let exchange = async move {
            let mut connection = connection;
            connection.send_packed_command(cmd).await
        };
        let outcome =
            first(first(exchange, self.clock.sleep(timeout)), first(self.closing.wait(), cancel.wait())).await;
        let (closes, failure) = match outcome {
            First::Left(First::Left(reply)) => match read(reply) {
                Err(failure) if failure.is_connection_lost() => (true, failure),
                reply => return reply,
            },
            First::Left(First::Right(())) => (true, Failure::no_reply(timeout)),
            First::Right(First::Left(())) => (false, Failure::broken("the connection was closed")),
            First::Right(First::Right(())) => (true, Failure::GivenUp),
        };
        if closes {
            self.close().await;
        }
        Err(failure)
    }

    /// Subscribes to the channel. From then on, the receiver is called with its messages, in order of arrival.
    pub(crate) async fn subscribe(
        &self,
        channel: &str,
        timeout: Duration,
        receiver: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<(), Failure> {
        *locked(&self.receiver) = Some(Box::new(receiver));
        let Some(mut connection) = self.shared() else { return Err(Failure::broken("the connection has ended")) };
        match first(self.clock.timeout(timeout, connection.subscribe(channel)), self.closing.wait()).await {
            First::Left(Some(reply)) => read(reply.map(|()| Value::Nil)).map(|_| ()),
            First::Left(None) => Err(Failure::no_reply(timeout)),
            First::Right(()) => Err(Failure::broken("the connection was closed")),
        }
    }

    pub(crate) fn shared(&self) -> Option<MultiplexedConnection> {
        locked(&self.stream).clone().filter(|_| self.is_open())
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.ended.is_fired() && !self.closing.is_fired()
    }

    /// Returns when the connection has ended.
    pub(crate) async fn ended(&self) {
        self.ended.wait().await;
    }

    /// Lets go of the connection, which will end soon.
    pub(crate) fn close_soon(&self) {
        let connection = locked(&self.stream).take();
        self.closing.fire();
        drop(connection);
        #[cfg(feature = "blocking")]
        if let Some(slot) = &self.blocks {
            drop(locked(slot).take()); // a connection in use is dropped with its reply
        }
    }

    /// Returns when the connection is closed: nothing that was sent before can still get a reply.
    pub(crate) async fn close(&self) {
        self.close_soon();
        // The library closes it once the last call has let go of it. Without a receiver of messages, that goes
        // unnoticed.
        if Arc::strong_count(&self.ended) > 1 {
            self.clock.timeout(Duration::from_secs(1), self.ended.wait()).await;
        }
    }
}

#[cfg(feature = "blocking")]
impl Blocking {
    fn call(&mut self, cmd: &Cmd, timeout: Duration) -> Reply {
        if self.timeout != timeout {
            self.connection.set_read_timeout(Some(timeout)).map_err(failure)?;
            self.connection.set_write_timeout(Some(timeout)).map_err(failure)?;
            self.timeout = timeout;
        }
        read(redis::ConnectionLike::req_command(&mut self.connection, cmd))
            .map_err(|failure| if failure.is_late() { Failure::no_reply(timeout) } else { failure })
    }
}
