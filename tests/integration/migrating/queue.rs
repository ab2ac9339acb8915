//! Which client gets a lock that a library and the queue of LOCK.* both want.

use std::collections::VecDeque;
use std::time::Duration;

use super::library::{library, Client};
use testkit::{skipped, until, Conn, Server};

const LEASE_S: u64 = 60;

/// Two clients of a library, on a server that raises events for deletions.
fn two(server: &Server, name: &str) -> Option<(Client, Client)> {
    if !reports_deletions(&mut server.conn()) {
        return None;
    }
    let library = library(name);
    let both = library.start(server).and_then(|one| Ok((one, library.start(server)?)));
    both.map_err(|why| skipped(name, &why)).ok()
}

/// Whether the module gets an event as soon as a key is deleted. On Valkey 8.1.0 to 9.1.1 keyspace events are off, and
/// it scans ten times a second.
fn reports_deletions(conn: &mut Conn) -> bool {
    let Some(version) = conn.info("server", "valkey_version") else { return true };
    let version: Vec<u32> = version.split('.').map(|part| part.parse().unwrap()).collect();
    let reports = !(vec![8, 1, 0]..=vec![9, 1, 1]).contains(&version);
    if !reports {
        skipped("who is first after a deletion", "this server does not report it at once");
    }
    reports
}

/// A client in the key's queue.
fn waiter(server: &Server, key: &str) -> Conn {
    server.waiter(&["LOCK.ACQUIRE", key, "EX", "60", "WAIT", "20000"])
}

#[test]
fn a_polling_library_starves_beside_a_full_queue() {
    let server = &Server::start();
    let name = "redis-py 8.1.0";
    let mut polls = match library(name).start(server) {
        Ok(client) => client,
        Err(why) => return skipped(name, &why),
    };
    let mut conn = server.conn();
    let mut token = conn.int(&["LOCK.ACQUIRE", "a", "EX", "60"]);
    let mut queue: VecDeque<Conn> = (0..3).map(|_| waiter(server, "a")).collect();
    polls.start("take", "a", LEASE_S);
    until("it has polled often", || {
        assert_eq!(conn.int(&["LOCK.RELEASE", "a", &token.to_string()]), 1);
        let mut next = queue.pop_front().unwrap();
        token = next.read().int();
        // The client goes back to the end of the queue, in which others are still waiting.
        next.send(&["LOCK.ACQUIRE", "a", "EX", "60", "WAIT", "20000"]);
        conn.until_waiters("a", 3);
        queue.push_back(next);
        (conn.calls("set") > 15).then_some(())
    });
    assert!(polls.no_answer_within(Duration::from_millis(1)), "the library got the lock");
    for mut last in queue {
        assert_eq!(conn.int(&["LOCK.RELEASE", "a", &token.to_string()]), 1);
        token = last.read().int();
    }
    assert_eq!(conn.int(&["LOCK.RELEASE", "a", &token.to_string()]), 1);
    assert_eq!(polls.answer(), "held", "the queue is empty");
}

#[test]
fn a_waiter_goes_before_pollers() {
    let server = &Server::start();
    let mut conn = server.conn();
    let Some((mut holds, mut polls)) = two(server, "redis-py 8.1.0") else { return };
    assert_eq!(holds.ask("try", "a", LEASE_S), "held");
    polls.start("take", "a", LEASE_S);
    until("it polls", || (conn.calls("set") > 2).then_some(()));
    let mut waits = waiter(server, "a");
    assert_eq!(holds.ask("release", "a", LEASE_S), "done");
    let token = waits.read().int().to_string();
    assert!(polls.no_answer_within(Duration::from_millis(300)), "the library got the lock");
    assert_eq!(conn.int(&["LOCK.RELEASE", "a", &token]), 1);
    assert_eq!(polls.answer(), "held");
}

#[test]
fn python_redis_lock_waiters_need_their_signal() {
    let server = &Server::start();
    let mut conn = server.conn();
    let Some((mut holds, mut blocks)) = two(server, "python-redis-lock") else { return };
    assert_eq!(holds.ask("try", "a", LEASE_S), "held");
    blocks.start("take", "a", LEASE_S);
    let blocked = |conn: &mut Conn| conn.text(&["INFO", "clients"]).contains("blocked_clients:1\r");
    until("the library blocks", || blocked(&mut conn).then_some(()));
    let mut waits = waiter(server, "lock:a");
    // The release wakes the library's own waiter, but the queue gets the lock before that waiter asks again.
    assert_eq!(holds.ask("release", "a", LEASE_S), "done");
    let token = waits.read().int().to_string();
    until("the library blocks again", || blocked(&mut conn).then_some(()));

    assert_eq!(conn.int(&["LOCK.RELEASE", "lock:a", &token]), 1);
    assert_eq!(conn.int(&["EXISTS", "lock:a"]), 0);
    assert!(blocks.no_answer_within(Duration::from_millis(500)), "the library got the lock");
    assert_eq!(conn.int(&["LPUSH", "lock-signal:a", "1"]), 1);
    assert_eq!(blocks.answer(), "held");
}
