//! What is replicated where no command runs: grants by the timer and the ends of sessions are each one transaction,
//! in which the key never vanishes.

use super::{acquire, acquire_all};
use crate::replication::Stream;
use crate::support::{until, Conn, Server};
use crate::waiting::Locks;

fn names(commands: &[Vec<String>]) -> Vec<String> {
    commands.iter().map(|command| command[0].to_uppercase()).collect()
}

/// A server with a replica that has what it has in the end.
struct Watched {
    locks: Locks,
    replica: Server,
    stream: Stream,
}

impl Watched {
    fn start() -> Self {
        // A replica is served at once.
        let server = Server::with().args(&["--repl-diskless-sync-delay", "0"]).module_args(&["margin-ms", "0"]);
        let locks = Locks::on(server.start());
        let replica = Server::with().without_module().start();
        replica.replicate(&locks.server);
        let stream = Stream::of(&locks.server);
        Self { locks, replica, stream }
    }

    fn told(&mut self) -> Vec<String> {
        names(&self.stream.take())
    }

    fn end(mut self) {
        self.locks.server.wait_offset(&self.replica);
        let digest = |conn: &mut Conn| conn.text(&["DEBUG", "DIGEST"]);
        assert_eq!(digest(&mut self.replica.conn()), digest(&mut self.locks.conn));
    }
}

#[test]
fn a_lease_that_runs_out_among_several() {
    let mut all = Watched::start();
    acquire(&mut all.locks.conn, &["k", "EX", "60", "LIMIT", "2"]);
    acquire(&mut all.locks.conn, &["k", "PX", "300", "LIMIT", "2"]);
    let mut waiter = all.locks.wait(&["LIMIT", "2"]);
    all.told();
    waiter.granted();
    assert_eq!(all.told(), ["MULTI", "ZADD", "ZREM", "EXEC"]);
    all.end();
}

#[test]
fn an_expired_string_that_becomes_a_set_and_back() {
    let mut all = Watched::start();
    all.locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", "300"]);
    let mut shared = all.locks.wait_with(&["LOCK.ACQUIRE", "k", "PX", "500", "WAIT", "60000", "SHARED"]);
    let mut alone = all.locks.wait(&[]);
    all.told();
    shared.granted();
    let told = all.stream.take();
    assert_eq!(names(&told), ["MULTI", "DEL", "ZADD", "PEXPIREAT", "EXEC"]);
    alone.granted();
    let told = all.told();
    assert!(told == ["SET"] || told == ["MULTI", "DEL", "SET", "EXEC"], "{told:?}");
    assert_eq!(all.locks.conn.text(&["TYPE", "k"]), "string");
    all.end();
}

#[test]
fn several_keys_of_which_one_is_a_set() {
    let mut all = Watched::start();
    acquire(&mut all.locks.conn, &["k", "PX", "300", "SHARED"]);
    acquire_all(&mut all.locks.conn, &["l", "m"], &["PX", "300"]);
    let mut waiter = all.locks.wait_with(&["LOCK.MACQUIRE", "3", "l", "k", "m", "PX", "30000", "WAIT", "60000"]);
    all.told();
    waiter.granted();
    let told = all.told();
    assert_eq!((told.first().unwrap().as_str(), told.last().unwrap().as_str()), ("MULTI", "EXEC"), "{told:?}");
    assert_eq!(told.iter().filter(|name| *name == "MULTI").count(), 1, "all of them are one change: {told:?}");
    assert_eq!(told.iter().filter(|name| *name == "SET").count(), 3, "{told:?}");
    all.end();
}

#[test]
fn the_end_of_sessions_among_several() {
    let mut all = Watched::start();
    let mut dying = all.locks.server.conn();
    let own = acquire(&mut dying, &["k", "EX", "60", "SHARED", "SESSION"]);
    acquire(&mut all.locks.conn, &["k", "EX", "90", "SHARED"]);
    all.told();
    drop(dying);
    until("it ends", || (all.locks.conn.int(&["LOCK.CHECK", "k", &own]) == 0).then_some(()));
    assert_eq!(all.told(), ["ZADD"]);
    all.end();
}

#[test]
fn a_grant_among_several_that_nobody_received() {
    let mut all = Watched::start();
    acquire(&mut all.locks.conn, &["k", "EX", "60", "LIMIT", "2"]);
    let second = acquire(&mut all.locks.conn, &["k", "EX", "60", "LIMIT", "2"]);
    let mut dead = all.locks.wait(&["LIMIT", "2"]);
    let mut next = all.locks.wait(&["LIMIT", "2"]);
    all.told();
    let id = dead.id.clone();
    all.locks.in_one_turn(&[&["MULTI"], &["LOCK.RELEASE", "k", &second], &["CLIENT", "KILL", "ID", &id], &["EXEC"]]);
    dead.closed();
    next.granted();
    assert_eq!(all.locks.conn.int(&["ZCARD", "k"]), 2);
    let told = all.told();
    assert_eq!(told.iter().filter(|name| *name == "MULTI").count(), told.iter().filter(|name| *name == "EXEC").count());
    assert!(!told.contains(&"DEL".to_string()), "{told:?}");
    all.end();
}
