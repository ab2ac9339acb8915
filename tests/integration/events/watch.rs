//! WATCH and client-side caching: every kind of change to a lock is noticed, and waiting or inspecting changes nothing
//! (`hostile` checks that for refusals).

use crate::kinds::{acquire, Kind, Row, KINDS};
use crate::waiting::Locks;
use testkit::{until, Conn, Reply};

/// A client that watches keys for a transaction, and a client that caches its reads.
struct Watchers {
    watch: Conn,
    cache: Conn,
}

impl Watchers {
    fn of(locks: &Locks) -> Self {
        let (watch, mut cache) = (locks.server.conn(), locks.server.conn());
        cache.execute(&["HELLO", "3"]);
        cache.ok(&["CLIENT", "TRACKING", "ON"]);
        Self { watch, cache }
    }

    /// Reads a key, runs an action, and returns whether both clients noticed a change.
    fn sees(&mut self, key: &str, what: &str, step: impl FnOnce()) {
        self.watch.ok(&["WATCH", key]);
        assert!(!matches!(self.cache.execute(&["LOCK.INFO", key]), Reply::Error(_)));
        step();
        self.watch.ok(&["MULTI"]);
        self.watch.execute(&["PING"]);
        assert!(self.watch.execute(&["EXEC"]).is_nil(), "{what} is a change");
        let pushed = self.cache.read();
        let named = Reply::List(vec![Reply::Text(key.into())]);
        assert_eq!(pushed.list()[1], named, "{what}: {pushed:?}");
    }
}

#[test]
fn every_change_is_seen() {
    for (kind, key) in KINDS.into_iter().flat_map(|kind| kind.keys().iter().map(move |key| (kind, *key))) {
        let _row = Row::of((kind, key));
        let mut locks = Locks::start();
        let mut watchers = Watchers::of(&locks);
        let mut conn = locks.server.conn();
        let mut first = String::new();
        watchers.sees(key, "a grant", || first = kind.take(&mut conn, &["EX", "60", "ID", "5"]));
        watchers.sees(key, "a longer lease", || {
            assert_eq!(conn.int(&kind.command("EXTEND", &[&first, "EX", "70"])), 1);
        });
        watchers.sees(key, "the same attempt", || assert_eq!(kind.take(&mut conn, &["EX", "80", "ID", "5"]), first));
        if matches!(kind, Kind::Shared | Kind::Limit) {
            let mut second = String::new();
            watchers.sees(key, "another holder", || second = kind.take(&mut conn, &["EX", "60"]));
            watchers.sees(key, "a release of one", || kind.release(&mut conn, &second));
        }
        let mut waiter = locks.wait_with(&["LOCK.ACQUIRE", key, "EX", "60", "WAIT", "60000"]);
        watchers.sees(key, "a hand-off", || {
            kind.release(&mut conn, &first);
            waiter.granted();
        });
        watchers.sees(key, "a deletion", || assert_eq!(conn.int(&["DEL", key]), 1));
        let mut brief = locks.server.conn();
        let mut token = String::new();
        watchers.sees(key, "one with a session", || token = kind.take(&mut brief, &["EX", "60", "SESSION"]));
        watchers.sees(key, "the end of a session", || {
            drop(brief);
            until("it ends", || (conn.int(&["LOCK.CHECK", key, &token]) == 0).then_some(()));
        });
    }
}

#[test]
fn waits_and_inspections_change_no_key() {
    let mut locks = Locks::start();
    let mut watchers = Watchers::of(&locks);
    locks.hold();
    acquire(&mut locks.conn, &["l", "EX", "60", "SHARED"]);
    watchers.watch.ok(&["WATCH", "k", "l", "m"]);
    for key in ["k", "l", "m"] {
        watchers.cache.execute(&["LOCK.INFO", key]);
    }
    let waiter = locks.wait_with(&["LOCK.MACQUIRE", "3", "k", "l", "m", "EX", "60", "WAIT", "60000"]);
    let mut stream = crate::replication::Stream::of(&locks.server);
    locks.conn.execute(&["LOCK.SCAN", "0", "COUNT", "1000"]);
    locks.conn.execute(&["LOCK.INFO", "l", "FULL"]);
    locks.conn.execute(&["LOCK.TOP"]);
    drop(waiter);
    locks.until_waiters(0);
    assert_eq!(stream.take(), Vec::<Vec<String>>::new());
    watchers.watch.ok(&["MULTI"]);
    watchers.watch.execute(&["PING"]);
    assert_eq!(watchers.watch.execute(&["EXEC"]).list().len(), 1);
    assert_eq!(watchers.cache.text(&["PING"]), "PONG", "nothing was pushed before");
}
