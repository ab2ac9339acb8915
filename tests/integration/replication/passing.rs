//! A lock that passes on is one transaction in the replication stream, in which its key never vanishes: by a release,
//! by the timer, by the end of a session and by a grant that was not received.

use super::Stream;
use crate::kinds::{acquire, acquire_all, Row};
use crate::waiting::{Locks, Waiter};
use testkit::{until, Conn, Server};

/// A server with its replication stream.
struct Told {
    locks: Locks,
    stream: Stream,
}

impl Told {
    /// The names of the commands since the last call.
    fn names(&mut self) -> Vec<String> {
        self.stream.take().iter().map(|command| command[0].to_uppercase()).collect()
    }
}

/// Runs an action on a server, and checks that a replica without the module is equal to it afterwards.
fn told(row: &str, work: impl FnOnce(&mut Told)) {
    let _row = Row::of(row);
    // A replica is served at once.
    let server = Server::with().args(&["--repl-diskless-sync-delay", "0"]).module_args(&["margin-ms", "0"]);
    let locks = Locks::on(server.start());
    let replica = Server::with().without_module().start();
    replica.replicate(&locks.server);
    let stream = Stream::of(&locks.server);
    let mut told = Told { locks, stream };
    work(&mut told);
    told.locks.server.wait_offset(&replica);
    let digest = |conn: &mut Conn| conn.text(&["DEBUG", "DIGEST"]);
    assert_eq!(digest(&mut replica.conn()), digest(&mut told.locks.conn));
}

/// These hold `k`; a client waits with these options and gets it after them; these commands are replicated.
fn passes_on(holders: &[&[&str]], options: &[&str], expected: &[&str]) {
    told(&format!("{holders:?}, {options:?}"), |told| {
        for holder in holders {
            acquire(&mut told.locks.conn, &[&["k"], *holder].concat());
        }
        let mut waiter = told.locks.wait(options);
        told.names();
        waiter.granted();
        assert_eq!(told.names(), expected);
    });
}

#[test]
fn a_lease_that_runs_out_passes_on_as_one_change() {
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
fn a_release_passes_on_as_one_change() {
    told("a limit", |told| {
        let first = acquire(&mut told.locks.conn, &["k", "EX", "60", "LIMIT", "2"]);
        let mut waiter = told.locks.wait(&["LIMIT", "1"]);
        told.names();
        told.locks.release(first);
        waiter.granted();
        assert_eq!(told.names(), ["MULTI", "ZADD", "ZREM", "PEXPIREAT", "EXEC"]);
    });
    told("several keys", |told| {
        let token = acquire_all(&mut told.locks.conn, &["a", "b"], &["EX", "60"]);
        let mut waiter = told.locks.wait_with(&["LOCK.MACQUIRE", "2", "b", "a", "EX", "60", "WAIT", "60000"]);
        told.names();
        assert_eq!(told.locks.conn.int(&["LOCK.MRELEASE", "2", "a", "b", &token]), 2);
        waiter.granted();
        assert_eq!(told.names(), ["MULTI", "DEL", "DEL", "SET", "SET", "EXEC"]);
    });
}

#[test]
fn several_keys_of_which_one_has_several_holders_pass_on_as_one_change() {
    told("the timer", |told| {
        acquire(&mut told.locks.conn, &["k", "PX", "600", "SHARED"]);
        acquire_all(&mut told.locks.conn, &["l", "m"], &["PX", "600"]);
        let mut waiter = told.locks.wait_with(&["LOCK.MACQUIRE", "3", "l", "k", "m", "PX", "30000", "WAIT", "60000"]);
        told.names();
        waiter.granted();
        let names = told.names();
        assert_eq!((names.first().unwrap().as_str(), names.last().unwrap().as_str()), ("MULTI", "EXEC"), "{names:?}");
        let count = |name: &str| names.iter().filter(|it| *it == name).count();
        assert_eq!((count("MULTI"), count("SET")), (1, 3), "{names:?}");
    });
}

#[test]
fn the_end_of_a_session_changes_one_of_several_holders() {
    told("a session", |told| {
        let mut dying = told.locks.server.conn();
        let own = acquire(&mut dying, &["k", "EX", "60", "SHARED", "SESSION"]);
        acquire(&mut told.locks.conn, &["k", "EX", "90", "SHARED"]);
        told.names();
        drop(dying);
        until("it ends", || (told.locks.conn.int(&["LOCK.CHECK", "k", &own]) == 0).then_some(()));
        assert_eq!(told.names(), ["ZADD"]);
    });
}

#[test]
fn a_grant_among_several_that_nobody_received_passes_on_without_a_moment_in_which_the_key_is_gone() {
    told("a lost grant", |told| {
        acquire(&mut told.locks.conn, &["k", "EX", "60", "LIMIT", "2"]);
        let second = acquire(&mut told.locks.conn, &["k", "EX", "60", "LIMIT", "2"]);
        let [mut dead, mut next]: [Waiter; 2] = [(); 2].map(|()| told.locks.wait(&["LIMIT", "2"]));
        told.names();
        let id = dead.id.clone();
        let kill = ["CLIENT", "KILL", "ID", &id];
        told.locks.in_one_turn(&[&["MULTI"], &["LOCK.RELEASE", "k", &second], &kill, &["EXEC"]]);
        dead.closed();
        next.granted();
        assert_eq!(told.locks.conn.int(&["ZCARD", "k"]), 2);
        let names = told.names();
        let count = |name: &str| names.iter().filter(|it| *it == name).count();
        assert_eq!((count("MULTI"), count("DEL")), (count("EXEC"), 0), "{names:?}");
    });
}
