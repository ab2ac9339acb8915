//! Waiting for a lock: every way to free a lock wakes the first in the queue, every end of a wait happens exactly once,
//! IDs keep their places, and a grant whose reply was lost is passed on.

mod answers;
mod ends;
mod frees;
mod lost;
mod neighbours;
mod places;
mod unreported;

use crate::kinds::Kind;
use std::time::Duration;
use testkit::{encoded, until, Conn, Reply, Server};

/// Long enough to see that no other client gets a reply: every due timer of the module has fired, but the periodic scan
/// has not covered every lock.
pub const QUIET: Duration = Duration::from_millis(150);

/// A server with locks, and a connection to control it.
pub struct Locks {
    pub server: Server,
    pub conn: Conn,
}

impl Locks {
    /// Without a margin, so that a lease ends exactly on time, and with more module settings. Settings are module
    /// arguments, because 6.2 has no others.
    pub fn with(module_args: &[&str]) -> Self {
        Self::on(Server::with().module_args(&["margin-ms", "0"]).module_args(module_args).start())
    }

    pub fn start() -> Self {
        Self::with(&[])
    }

    pub fn on(server: Server) -> Self {
        let conn = server.conn();
        Locks { server, conn }
    }

    /// Takes `k` for half a minute. Returns its token.
    pub fn hold(&mut self) -> String {
        self.conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]).to_string()
    }

    /// A client starts waiting for `k`, with more options.
    pub fn wait(&mut self, options: &[&str]) -> Waiter {
        self.wait_with(&[&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000"], options].concat())
    }

    /// A client starts waiting for a lock of a kind.
    pub fn wait_as(&mut self, kind: Kind, options: &[&str]) -> Waiter {
        self.wait_with(&kind.acquire(&[&["PX", "30000", "WAIT", "30000"], options].concat()))
    }

    /// A client sends a command that must block.
    pub fn wait_with(&mut self, args: &[&str]) -> Waiter {
        let conn = self.server.conn();
        self.wait_on(conn, args)
    }

    /// Like `wait_with`, on a given connection.
    pub fn wait_on(&mut self, conn: Conn, args: &[&str]) -> Waiter {
        let mut waiter = Waiter::of(conn);
        let id = waiter.id.clone();
        waiter.conn.send_and_wait(args, || self.is_blocked(&id));
        waiter
    }

    /// Whether the server keeps a client blocked.
    pub fn is_blocked(&mut self, id: &str) -> bool {
        let list = self.conn.text(&["CLIENT", "LIST", "ID", id]);
        list.split(' ').any(|field| field.strip_prefix("flags=").is_some_and(|flags| flags.contains('b')))
    }

    pub fn waiters(&mut self) -> i64 {
        self.conn.waiters("k")
    }

    pub fn until_waiters(&mut self, count: i64) {
        until(&format!("{count} wait"), || (self.waiters() == count).then_some(()));
    }

    /// Asserts that a grant is valid: the holder has lease left, and nobody else took the lock.
    pub fn assert_holds(&mut self, token: i64) {
        assert!(self.conn.int(&["LOCK.CHECK", "k", &token.to_string()]) > 0, "the grant {token} has ended");
    }

    /// Releases `k`.
    pub fn release(&mut self, token: impl std::fmt::Display) {
        assert_eq!(self.conn.int(&["LOCK.RELEASE", "k", &token.to_string()]), 1);
    }

    /// Sends commands in one write, so that they run in one iteration. Returns the replies.
    pub fn in_one_turn(&mut self, commands: &[&[&str]]) -> Vec<Reply> {
        let mut bytes = Vec::new();
        for command in commands {
            bytes.extend(encoded(command));
        }
        self.conn.send_bytes(&bytes);
        commands.iter().map(|_| self.conn.read()).collect()
    }

    /// A number in a section of INFO.
    pub fn info(&mut self, section: &str, field: &str) -> i64 {
        self.conn.info(section, field).unwrap_or_else(|| panic!("no field {field}")).parse().unwrap()
    }

    /// Asserts that every freed lock was granted through an event: the scan of all queues found nothing. Not on servers
    /// where keyspace events are off.
    pub fn assert_no_missed_wakeups(&mut self) {
        if self.conn.has_key_events() {
            assert_eq!(self.info("lock", "lock_missed_wakeups"), 0);
        }
    }
}

/// Whether no reply arrives within `time`. Polled repeatedly, because a signal can interrupt the wait; a reply that has
/// arrived is seen each time.
pub fn no_reply_within(conn: &mut Conn, time: Duration) -> bool {
    (0..3).any(|_| conn.no_reply_within(time))
}

/// A client that waits.
pub struct Waiter {
    pub conn: Conn,
    /// The server's number of the client.
    pub id: String,
}

impl Waiter {
    fn of(mut conn: Conn) -> Self {
        let id = conn.int(&["CLIENT", "ID"]).to_string();
        Waiter { conn, id }
    }

    /// Its only reply.
    pub fn answer(&mut self) -> Reply {
        let reply = self.conn.read();
        // A second reply would precede that of PING.
        assert_eq!(self.conn.text(&["PING"]), "PONG", "after {reply:?}");
        reply
    }

    /// Its token, alone or as the first of the details.
    pub fn granted(&mut self) -> i64 {
        match self.answer() {
            Reply::List(details) => details[0].int(),
            reply => reply.int(),
        }
    }

    /// Asserts that it got nil.
    pub fn refused(&mut self) {
        let reply = self.answer();
        assert!(reply.is_nil(), "{reply:?}");
    }

    /// Asserts that its wait ended with this error code.
    pub fn failed(&mut self, code: &str) {
        let reply = self.answer();
        assert!(reply.error().starts_with(&format!("{code} ")), "{reply:?}");
    }

    /// Asserts that the server closed its connection without a reply.
    pub fn closed(&mut self) {
        let reply = self.conn.try_read();
        assert!(reply.is_err(), "{reply:?}");
    }

    /// The server was demoted: it reports that itself, and may then close the connection.
    pub fn demoted(&mut self) {
        if let Ok(reply) = self.conn.try_read() {
            assert!(reply.error().starts_with("UNBLOCKED "), "{reply:?}");
        }
    }

    /// Asserts that it gets no reply.
    pub fn assert_waits(&mut self) {
        assert!(no_reply_within(&mut self.conn, QUIET), "{:?}", self.conn.try_read());
    }
}
