//! A hand-off is one transaction in the replication stream, in which the key never vanishes: after a release, from the
//! timer, when a session ends, and after a grant that was not received.

use super::Stream;
use crate::kinds::{acquire, acquire_all, Row};
use crate::waiting::{Locks, Waiter};
use testkit::{until, Conn, Server};

/// A server with its replication stream.
struct Watched {
    locks: Locks,
    stream: Stream,
}

impl Watched {
    /// The names of the commands since the last call.
    fn names(&mut self) -> Vec<String> {
        self.stream.take().iter().map(|command| command[0].to_uppercase()).collect()
    }
}

/// Runs an action on a server, and checks that a replica without the module is equal to it afterwards.
fn watched(row: &str, work: impl FnOnce(&mut Watched)) {
    let _row = Row::of(row);
    // A replica is served at once.
    let server = Server::with().args(&["--repl-diskless-sync-delay", "0"]).module_args(&["margin-ms", "0"]);
    let locks = Locks::on(server.start());
    let replica = Server::with().without_module().start();
    replica.replicate(&locks.server);
    let stream = Stream::of(&locks.server);
    let mut watched = Watched { locks, stream };
    work(&mut watched);
    watched.locks.server.wait_offset(&replica);
    let digest = |conn: &mut Conn| conn.text(&["DEBUG", "DIGEST"]);
    assert_eq!(digest(&mut replica.conn()), digest(&mut watched.locks.conn));
}

/// These hold `k`; a client with these options waits and gets it after them; these commands are replicated.
fn passes_on(holders: &[&[&str]], options: &[&str], expected: &[&str]) {
    watched(&format!("{holders:?}, {options:?}"), |watched| {
        for holder in holders {
            acquire(&mut watched.locks.conn, &[&["k"], *holder].concat());
        }
        let mut waiter = watched.locks.wait(options);
        watched.names();
        waiter.granted();
        assert_eq!(watched.names(), expected);
    });
}

#[test]
fn a_lock_whose_lease_expires_is_passed_on_as_one_change() {
    passes_on(&[&["PX", "600"]], &[], &["SET"]);
    passes_on(&[&["PX", "600"]], &["SHARED"], &["MULTI", "DEL", "ZADD", "PEXPIREAT", "EXEC"]);
    passes_on(
        &[&["EX", "60", "LIMIT", "2"], &["PX", "600", "LIMIT", "2"]],
        &["LIMIT", "2"],
        &["MULTI", "ZADD", "ZREM", "EXEC"],
    );
    passes_on(&[&["PX", "600", "SHARED"]], &[], &["SET"]);
}

#[test]
fn a_release_passes_the_lock_on_as_one_change() {
    watched("a limit", |watched| {
        let first = acquire(&mut watched.locks.conn, &["k", "EX", "60", "LIMIT", "2"]);
        let mut waiter = watched.locks.wait(&["LIMIT", "1"]);
        watched.names();
        watched.locks.release(first);
        waiter.granted();
        assert_eq!(watched.names(), ["MULTI", "ZADD", "ZREM", "PEXPIREAT", "EXEC"]);
    });
    watched("several keys", |watched| {
        let token = acquire_all(&mut watched.locks.conn, &["a", "b"], &["EX", "60"]);
        let mut waiter = watched.locks.wait_with(&["LOCK.MACQUIRE", "2", "b", "a", "EX", "60", "WAIT", "60000"]);
        watched.names();
        assert_eq!(watched.locks.conn.int(&["LOCK.MRELEASE", "2", "a", "b", &token]), 2);
        waiter.granted();
        assert_eq!(watched.names(), ["MULTI", "DEL", "DEL", "SET", "SET", "EXEC"]);
    });
}

#[test]
fn several_keys_with_a_shared_one_are_passed_on_at_once() {
    watched("the timer", |watched| {
        acquire(&mut watched.locks.conn, &["k", "PX", "600", "SHARED"]);
        acquire_all(&mut watched.locks.conn, &["l", "m"], &["PX", "600"]);
        let mut waiter =
            watched.locks.wait_with(&["LOCK.MACQUIRE", "3", "l", "k", "m", "PX", "30000", "WAIT", "60000"]);
        watched.names();
        waiter.granted();
        let names = watched.names();
        assert_eq!((names.first().unwrap().as_str(), names.last().unwrap().as_str()), ("MULTI", "EXEC"), "{names:?}");
        let count = |name: &str| names.iter().filter(|it| *it == name).count();
        assert_eq!((count("MULTI"), count("SET")), (1, 3), "{names:?}");
    });
}

#[test]
fn the_end_of_a_session_changes_one_of_several_holders() {
    watched("a session", |watched| {
        let mut dying = watched.locks.server.conn();
        let own = acquire(&mut dying, &["k", "EX", "60", "SHARED", "SESSION"]);
        acquire(&mut watched.locks.conn, &["k", "EX", "90", "SHARED"]);
        watched.names();
        drop(dying);
        until("it ends", || (watched.locks.conn.int(&["LOCK.CHECK", "k", &own]) == 0).then_some(()));
        assert_eq!(watched.names(), ["ZADD"]);
    });
}

#[test]
fn an_undelivered_shared_grant_is_passed_on_without_a_gap() {
    watched("a lost grant", |watched| {
        acquire(&mut watched.locks.conn, &["k", "EX", "60", "LIMIT", "2"]);
        let second = acquire(&mut watched.locks.conn, &["k", "EX", "60", "LIMIT", "2"]);
        let [mut dead, mut next]: [Waiter; 2] = [(); 2].map(|()| watched.locks.wait(&["LIMIT", "2"]));
        watched.names();
        let id = dead.id.clone();
        let kill = ["CLIENT", "KILL", "ID", &id];
        watched.locks.in_one_turn(&[&["MULTI"], &["LOCK.RELEASE", "k", &second], &kill, &["EXEC"]]);
        dead.closed();
        next.granted();
        assert_eq!(watched.locks.conn.int(&["ZCARD", "k"]), 2);
        let names = watched.names();
        let count = |name: &str| names.iter().filter(|it| *it == name).count();
        assert_eq!((count("MULTI"), count("DEL")), (count("EXEC"), 0), "{names:?}");
    });
}
