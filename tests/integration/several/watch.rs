//! WATCH and client-side caching of a lock with several holders, and of several keys: every change is seen, who
//! looks on changes nothing (`hostile` holds that of refusals).

use super::{acquire, acquire_all};
use crate::support::{until, Conn, Reply};
use crate::waiting::Locks;

/// One who watches keys in a transaction, and one who keeps in its memory what it reads of them.
struct Watchers {
    watch: Conn,
    cache: Conn,
}

impl Watchers {
    fn of(locks: &Locks) -> Self {
        let (watch, mut cache) = (locks.server.conn(), locks.server.conn());
        cache.call(&["HELLO", "3"]);
        cache.ok(&["CLIENT", "TRACKING", "ON"]);
        Self { watch, cache }
    }

    /// Looks at a key, does something, and tells whether both saw a change.
    fn sees(&mut self, key: &str, what: &str, step: impl FnOnce()) {
        self.watch.ok(&["WATCH", key]);
        assert!(!matches!(self.cache.call(&["LOCK.INFO", key]), Reply::Error(_)));
        step();
        self.watch.ok(&["MULTI"]);
        self.watch.call(&["PING"]);
        assert!(self.watch.call(&["EXEC"]).is_nil(), "{what} is a change");
        let pushed = self.cache.read();
        let named = Reply::List(vec![Reply::Text(key.into())]);
        assert_eq!(pushed.list()[1], named, "{what}: {pushed:?}");
    }
}

#[test]
fn every_change_of_one_of_several_holders_is_seen() {
    let mut locks = Locks::start();
    let mut watchers = Watchers::of(&locks);
    let mut conn = locks.server.conn();
    let (mut first, mut second) = (String::new(), String::new());
    watchers.sees("k", "the first", || first = acquire(&mut conn, &["k", "EX", "60", "SHARED", "ID", "5"]));
    watchers.sees("k", "another", || second = acquire(&mut conn, &["k", "EX", "60", "LIMIT", "2"]));
    watchers.sees("k", "a longer lease", || assert_eq!(conn.int(&["LOCK.EXTEND", "k", &second, "EX", "90"]), 1));
    watchers.sees("k", "the same attempt", || {
        acquire(&mut conn, &["k", "EX", "80", "SHARED", "ID", "5"]);
    });
    watchers.sees("k", "a release of one", || assert_eq!(conn.int(&["LOCK.RELEASE", "k", &first]), 1));
    // By hand-off, by the timer, and by the end of a session.
    let mut waiter = locks.wait(&["LIMIT", "1"]);
    watchers.sees("k", "a hand-off", || {
        assert_eq!(conn.int(&["LOCK.RELEASE", "k", &second]), 1);
        waiter.granted();
    });
    let mut brief = locks.server.conn();
    let mut timed = None;
    watchers.sees("k", "one with a session", || {
        timed = Some(acquire(&mut brief, &["k", "EX", "60", "SHARED", "SESSION"]));
    });
    watchers.sees("k", "the end of a session", || {
        drop(brief);
        until("it ends", || (conn.int(&["LOCK.CHECK", "k", timed.as_ref().unwrap()]) == 0).then_some(()));
    });
    watchers.sees("k", "another type", || {
        conn.int(&["DEL", "k"]);
    });
}

#[test]
fn every_change_of_several_keys_is_seen_in_each() {
    let locks = Locks::start();
    let mut watchers = Watchers::of(&locks);
    let mut conn = locks.server.conn();
    for key in ["a", "b"] {
        let mut token = String::new();
        watchers.sees(key, "MACQUIRE", || token = acquire_all(&mut conn, &["a", "b"], &["EX", "60"]));
        watchers.sees(key, "MEXTEND", || {
            assert_eq!(conn.int(&["LOCK.MEXTEND", "2", "a", "b", &token, "EX", "90"]), 1);
        });
        watchers.sees(key, "MRELEASE", || assert_eq!(conn.int(&["LOCK.MRELEASE", "2", "a", "b", &token]), 2));
    }
}

#[test]
fn a_wait_for_several_keys_and_a_look_at_all_locks_are_no_change() {
    let mut locks = Locks::start();
    let mut watchers = Watchers::of(&locks);
    locks.hold();
    acquire(&mut locks.conn, &["l", "EX", "60", "SHARED"]);
    watchers.watch.ok(&["WATCH", "k", "l", "m"]);
    for key in ["k", "l", "m"] {
        watchers.cache.call(&["LOCK.INFO", key]);
    }
    let waiter = locks.wait_with(&["LOCK.MACQUIRE", "3", "k", "l", "m", "EX", "60", "WAIT", "60000"]);
    locks.conn.call(&["LOCK.SCAN", "0", "COUNT", "1000"]);
    locks.conn.call(&["LOCK.INFO", "l", "FULL"]);
    drop(waiter);
    locks.until_waiters(0);
    watchers.watch.ok(&["MULTI"]);
    watchers.watch.call(&["PING"]);
    assert_eq!(watchers.watch.call(&["EXEC"]).list().len(), 1);
    assert_eq!(watchers.cache.text(&["PING"]), "PONG", "nothing was pushed before");
}
