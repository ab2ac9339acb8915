//! SESSION: when the connection that got a lock ends, in whatever way, the lock expires a margin later, replicas get
//! the change, and waiters are served then; never earlier, and never if the lock then belongs to another client.

mod ends;
mod holds;
mod late;
pub mod many;
mod rebound;
mod refused;
mod served;

use crate::replication::Stream;
use crate::waiting::{Locks, Waiter};
use testkit::{server_time_us, timestamp_us, until, Conn, Reply, Server};

/// The margin of these servers, short enough to wait for.
const MARGIN_MS: i64 = 200;
const MARGIN_US: i64 = MARGIN_MS * 1000;

/// A server, its replication stream, and a connection to control it.
struct Scene {
    locks: Locks,
    stream: Stream,
    /// The stream since the last [`Scene::forget`].
    sent: Vec<Vec<String>>,
    margin_us: i64,
}

/// A client that holds a lock with SESSION.
struct Holder {
    conn: Conn,
    id: String,
    token: i64,
}

impl Scene {
    fn start() -> Self {
        Self::with_margin(MARGIN_MS)
    }

    /// Starts a server with a different margin, for events that must happen within it.
    fn with_margin(margin_ms: i64) -> Self {
        let server = Server::with().module_args(&["margin-ms", &margin_ms.to_string()]).start();
        let stream = Stream::of(&server);
        Scene { locks: Locks::on(server), stream, sent: Vec::new(), margin_us: margin_ms * 1000 }
    }

    /// A client takes `k` for half a minute, with SESSION.
    fn hold(&mut self) -> Holder {
        self.hold_with(&["LOCK.ACQUIRE", "k", "PX", "30000", "SESSION", "OWNER", "first"])
    }

    fn hold_with(&mut self, args: &[&str]) -> Holder {
        let mut conn = self.locks.server.conn();
        let id = conn.int(&["CLIENT", "ID"]).to_string();
        let token = conn.int(args);
        Holder { conn, id, token }
    }

    /// A client waits for `k`.
    fn wait(&mut self) -> Waiter {
        self.locks.wait(&["DETAILS"])
    }

    fn value(&mut self, key: &str) -> String {
        self.locks.conn.text(&["GET", key])
    }

    fn now_us(&mut self) -> i64 {
        server_time_us(&mut self.locks.conn)
    }

    /// The connection in the field `session` of LOCK.INFO.
    fn session(&mut self, key: &str) -> Option<String> {
        match self.locks.conn.lock(key, "session") {
            Reply::Nil => None,
            client => Some(client.int().to_string()),
        }
    }

    fn forget(&mut self) {
        self.stream.take();
        self.sent.clear();
    }

    /// The values that were replicated for `key`, in order.
    fn sent_for(&mut self, key: &str) -> Vec<Vec<String>> {
        let news = self.stream.take();
        self.sent.extend(news);
        self.sent.iter().filter(|command| command[0] == "SET" && command[1] == key).cloned().collect()
    }

    /// Waits until the server no longer knows a client.
    fn until_gone(&mut self, id: &str) {
        let conn = &mut self.locks.conn;
        until("the client is gone", || {
            let list = conn.text(&["CLIENT", "LIST", "ID", id]);
            list.trim().is_empty().then_some(())
        });
    }

    /// Ends a connection and waits until the server has handled it completely: the lock `zz`, taken last on it, has
    /// ended.
    fn end(&mut self, mut conn: Conn) {
        conn.int(&["LOCK.ACQUIRE", "zz", "PX", "30000", "SESSION"]);
        let before = self.value("zz");
        drop(conn);
        until("the connection has ended", || (self.value("zz") != before).then_some(()));
        assert_eq!(self.locks.conn.int(&["DEL", "zz"]), 1);
    }

    /// Waits until the end of `k`'s connection, between `from` and now, has been replicated: the same grant, with
    /// an absolute timestamp a margin later. Returns the timestamp.
    fn until_ended(&mut self, token: i64, from: i64) -> i64 {
        let sent = until("the end of the session is replicated", || self.sent_for("k").into_iter().next());
        let to = self.now_us();
        let timestamp = timestamp_us(&sent[2]);
        assert_eq!(token_of(&sent[2]), token, "{sent:?}");
        assert!((from + self.margin_us..=to + self.margin_us).contains(&timestamp), "{sent:?}, {from} to {to}");
        assert_eq!(sent[3..], ["PXAT".to_string(), expiry_ms(timestamp).to_string()], "{sent:?}");
        timestamp
    }
}

/// The token in the module's value.
fn token_of(value: &str) -> i64 {
    value[17..33].parse().unwrap()
}

/// The native expiry that goes with a timestamp: the default retention after it, rounded up.
fn expiry_ms(timestamp: i64) -> i64 {
    (timestamp + 999) / 1000 + 60_000
}

/// Asserts that the next holder was served at `timestamp`, not before, with the first as its predecessor.
fn assert_succeeds(waiter: &mut Waiter, token: i64, timestamp: i64) {
    let details = waiter.answer();
    let details = details.list();
    assert!(details[0].int() >= timestamp, "{} us early", timestamp - details[0].int());
    assert!((0..5_000).contains(&details[1].int()), "overdue: {details:?}");
    assert_eq!(details[2..], [Reply::Int(token), Reply::Text(b"first".into())]);
}
