//! Many clients that wait for a lock on a node, and how their waits end.

use super::nodes::Node;
use super::Cluster;
use std::time::Duration;
use testkit::{until, Conn, Reply};

/// The usual number of waiters.
pub const MANY: usize = 100;

pub struct Waiters(pub Vec<Conn>);

/// How the waits ended.
#[derive(Debug, Default, PartialEq)]
pub struct Ends {
    /// An error with this code.
    pub unblocked: usize,
    pub moved: usize,
    pub down: usize,
    /// The server closed the connection without a reply.
    pub closed: usize,
}

impl Waiters {
    /// Queues clients for a key, one after the other, because I/O threads may swap the commands of two clients. Every
    /// other one has SESSION, every third an ID.
    pub fn of(node: &Node, key: &str, count: usize) -> Self {
        let before = waiting(node, key);
        let conns = (0..count).map(|n| {
            let mut conn = node.conn();
            let earlier = before + i64::try_from(n).unwrap();
            let id = (earlier + 1000).to_string();
            let mut command = vec!["LOCK.ACQUIRE", key, "PX", "60000", "WAIT", "120000"];
            if n % 2 == 0 {
                command.push("SESSION");
            }
            if n % 3 == 0 {
                command.extend(["ID", &id]);
            }
            conn.send(&command);
            until("it waits", || (waiting(node, key) > earlier).then_some(()));
            conn
        });
        Self(conns.collect())
    }

    /// Asserts that no waiter has a reply.
    pub fn assert_wait(&mut self) {
        for conn in self.0.iter_mut().take(3) {
            assert!(conn.no_reply_within(Duration::from_millis(100)), "{:?}", conn.try_read());
        }
    }

    /// Asserts that all waits end without the lock, long before they time out: a connection waits 60 s for a reply.
    pub fn end(self) -> Ends {
        let mut ends = Ends::default();
        for mut conn in self.0 {
            match conn.try_read() {
                Ok(Reply::Error(text)) if text.starts_with("UNBLOCKED ") => ends.unblocked += 1,
                Ok(Reply::Error(text)) if text.starts_with("MOVED ") => ends.moved += 1,
                Ok(Reply::Error(text)) if text.starts_with("CLUSTERDOWN ") => ends.down += 1,
                Err(error) if is_closed(&error) => ends.closed += 1,
                other => panic!("{ends:?}, and then {other:?}"),
            }
        }
        ends
    }
}

/// A failover ends all waits on the old master, none of them with the lock. Returns the old and the new master.
pub fn fail_over<'a>(cluster: &'a Cluster, waiters: Waiters, key: &str, way: &[&str]) -> (&'a Node, &'a Node) {
    let count = waiters.0.len();
    let (old, new) = cluster.fail_over(key, way);
    let ends = waiters.end();
    assert_eq!((ends.unblocked + ends.moved + ends.closed, ends.down), (count, 0), "{way:?}: {ends:?}");
    assert_eq!(old.number(&["INFO", "lock"], "lock_waiters"), Some(0), "{way:?}");
    (old, new)
}

/// The lock is intact: its holder can extend it, and its release serves the next client that has queued again.
pub fn assert_is_intact(node: &Node, key: &str, (token, value): (&str, &str)) {
    let mut conn = node.conn();
    assert_eq!(conn.text(&["GET", key]), value);
    let mut again = Waiters::of(node, key, 3);
    assert_eq!(conn.int(&["LOCK.EXTEND", key, token, "PX", "70000"]), 1);
    assert_eq!(conn.int(&["LOCK.RELEASE", key, token]), 1);
    assert!(again.0[0].read().int() > token.parse().unwrap());
}

/// Waits until a server no longer serves a key's slot, and asserts that it then tells its waiters within a few turns of
/// its event loop: each command of this client takes at least one. The check of all queues comes only about once a
/// second, in which even a busy machine serves more commands than that.
pub fn assert_told_at_once(conn: &mut Conn, key: &str) {
    const TURNS: usize = 20;
    until("the slot has left", || {
        let reply = conn.execute(&["EXISTS", key]);
        let gone = ["MOVED ", "CLUSTERDOWN "];
        matches!(&reply, Reply::Error(text) if gone.iter().any(|code| text.starts_with(code))).then_some(())
    });
    let waiters = (0..TURNS).map(|_| conn.info("lock", "lock_waiters"));
    let told = waiters.take_while(|waiters| waiters.as_deref() != Some("0")).count();
    assert!(told < TURNS, "the waiters of {key} were not told within {TURNS} turns");
}

fn is_closed(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// The number of clients that wait for a key.
pub fn waiting(node: &Node, key: &str) -> i64 {
    node.conn().waiters(key)
}
