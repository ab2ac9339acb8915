//! Waiting without a connection: an attempt queues under its ID, is notified on a channel when it is granted the lock,
//! and claims it by sending its command again. The tests check what clients see: replies, messages and keys.

mod asking;
mod atomic;
mod cancel;
mod claiming;
mod dead;
mod failover;
mod grace;
mod guards;
mod input;
mod inspect;
mod kinds;
mod limits;
mod messages;
mod rights;
mod session;
mod stall;
mod stream;
mod unclaimed;

use crate::waiting::{no_reply_within, Locks, QUIET};
use testkit::{skipped, until, Conn, Reply, Server};

/// The attempts' channel.
pub const CHANNEL: &str = "c";

/// A subscriber to a channel.
pub struct Subscriber {
    pub conn: Conn,
}

impl Subscriber {
    pub fn of(server: &Server, channel: &str) -> Self {
        Self::on(server.conn(), "SUBSCRIBE", channel)
    }

    pub fn on(mut conn: Conn, subscribe: &str, channel: &str) -> Self {
        let reply = conn.execute(&[subscribe, channel]);
        assert_eq!(reply.list()[2], Reply::Int(1), "{reply:?}");
        Self { conn }
    }

    /// The next message.
    #[track_caller]
    pub fn next(&mut self) -> String {
        let message = self.conn.read();
        message.list().last().expect("a message").text()
    }

    #[track_caller]
    pub fn gets(&mut self, message: &str) {
        assert_eq!(self.next(), message);
    }

    /// Asserts that no message arrives.
    #[track_caller]
    pub fn gets_nothing(&mut self) {
        assert!(no_reply_within(&mut self.conn, QUIET), "{:?}", self.conn.try_read());
    }
}

/// A server with locks, and a subscriber to [`CHANNEL`].
pub struct Queue {
    pub locks: Locks,
    pub subscriber: Subscriber,
}

impl Queue {
    /// Starts a server without a margin. `None` if a module cannot publish.
    pub fn start() -> Option<Self> {
        Self::with(&[])
    }

    pub fn with(module_args: &[&str]) -> Option<Self> {
        Self::on(Server::with().module_args(&["margin-ms", "0"]).module_args(module_args).start())
    }

    pub fn on(server: Server) -> Option<Self> {
        let locks = Locks::on(server);
        if !can_publish(&mut locks.server.conn()) {
            return None;
        }
        let subscriber = Subscriber::of(&locks.server, CHANNEL);
        Some(Self { locks, subscriber })
    }

    /// Sends a command on the control connection.
    pub fn execute(&mut self, args: &[&str]) -> Reply {
        self.locks.conn.execute(args)
    }

    /// An attempt asks for `k` for 30 s, and waits for up to 30 s.
    #[track_caller]
    pub fn ask(&mut self, id: &str) {
        self.ask_with(&["LOCK.ACQUIRE", "k"], id, &[]);
    }

    /// Like `ask`, with another command and more options. The attempt queues.
    #[track_caller]
    pub fn ask_with(&mut self, command: &[&str], id: &str, more: &[&str]) {
        let channel: &[&str] =
            if more.iter().any(|word| word.ends_with("NOTIFY")) { &[] } else { &["NOTIFY", CHANNEL] };
        let reply = self.execute(&[command, &["PX", "30000", "WAIT", "30000", "ID", id], channel, more].concat());
        assert_eq!(reply, waiting(), "{command:?} {id} {more:?}");
    }

    /// The attempt claims `k`. Returns the token.
    #[track_caller]
    pub fn claim(&mut self, id: &str) -> i64 {
        self.locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", id])
    }

    /// The attempt is notified, claims `k`, and releases it.
    #[track_caller]
    pub fn takes_its_turn(&mut self, id: &str) {
        self.subscriber.gets(&format!("granted {id} k"));
        let token = self.claim(id);
        self.locks.release(token);
    }

    /// A client takes `k`, and its lease ends after `ask` has run. Returns the token.
    pub fn hold_until(&mut self, options: &[&str], ask: impl FnOnce(&mut Self)) -> i64 {
        let token = self.locks.conn.int(&[&["LOCK.ACQUIRE", "k", "PX", "30000"], options].concat());
        ask(self);
        assert_eq!(self.execute(&["LOCK.EXTEND", "k", &token.to_string(), "PX", "20"]).int(), 1);
        token
    }

    /// The value of `k`.
    pub fn value(&mut self) -> String {
        self.locks.conn.text(&["GET", "k"])
    }

    pub fn info(&mut self, field: &str) -> i64 {
        self.locks.info("lock", field)
    }
}

/// The reply to an attempt in the queue.
pub fn waiting() -> Reply {
    Reply::Status("WAITING".into())
}

/// Whether a module can publish (7.0). If not, prints a message.
pub fn can_publish(conn: &mut Conn) -> bool {
    let can = !conn.is_before_7();
    if !can {
        skipped("waiting without a connection", "a module cannot publish on this server");
    }
    can
}

/// Waits until this much time has passed on the server.
pub fn pass(conn: &mut Conn, time_ms: i64) {
    let end = testkit::server_time_us(conn) + time_ms * 1000;
    until("the time has passed", || (testkit::server_time_us(conn) > end).then_some(()));
}
