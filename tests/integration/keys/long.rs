//! The most and longest names that one attempt can have: the work for all of them in one iteration of the event loop
//! takes less than 5 ms. One more byte is refused.

use std::time::Duration;
use testkit::{bound, until, Conn, Iterations, Reply, Server};

const LONGEST: Duration = Duration::from_millis(5);
const KEYS: usize = 1_024;
const LENGTH: usize = 256;

fn names() -> Vec<String> {
    (0..KEYS).map(|key| format!("{key:0LENGTH$}")).collect()
}

fn call(command: &str, rest: &[&str]) -> Vec<String> {
    let head = [command.to_string(), KEYS.to_string()];
    head.into_iter().chain(names()).chain(rest.iter().map(ToString::to_string)).collect()
}

fn take(conn: &mut Conn) -> String {
    conn.int(&call("LOCK.MACQUIRE", &["EX", "600"])).to_string()
}

/// A client that waits for all of them.
fn waiter(server: &Server) -> Conn {
    let (mut waiter, mut conn) = (server.conn(), server.conn());
    waiter.send(&call("LOCK.MACQUIRE", &["EX", "600", "WAIT", "600000"]));
    until("it waits", || (conn.info("lock", "lock_waiters")? == "1").then_some(()));
    waiter
}

fn assert_short(what: &str, measure: impl Fn(&Server, &Iterations, &mut Conn)) {
    bound::cpu(what, LONGEST, || {
        let (server, iterations) = Iterations::start(Server::with())?;
        measure(&server, &iterations, &mut server.conn());
        Some(iterations.longest())
    });
}

#[test]
fn names_that_are_too_long_together_are_refused() {
    let server = Server::start();
    let mut conn = server.conn();
    let mut longer = call("LOCK.MACQUIRE", &["EX", "600"]);
    longer[KEYS + 1].push('x');
    assert_eq!(conn.execute(&longer).error(), "ERR keys 1 to 1024 total more than 262144 bytes");
    assert_eq!(conn.int(&["DBSIZE"]), 0);
    // A release may name any keys.
    let token = take(&mut conn);
    longer[0] = "LOCK.MRELEASE".into();
    longer.truncate(KEYS + 2);
    longer.push(token);
    assert_eq!(conn.execute(&longer), Reply::Int(1_023));
}

#[test]
fn commands_with_the_longest_names_are_short() {
    assert_short("LOCK.MACQUIRE of 256 kB of names", |_, iterations, conn| {
        iterations.reset();
        take(conn);
    });
    assert_short("LOCK.MEXTEND of 256 kB of names", |_, iterations, conn| {
        let token = take(conn);
        iterations.reset();
        assert_eq!(conn.int(&call("LOCK.MEXTEND", &[&token, "EX", "600"])), 1);
    });
    assert_short("LOCK.MRELEASE of 256 kB of names", |_, iterations, conn| {
        let token = take(conn);
        iterations.reset();
        assert_eq!(conn.int(&call("LOCK.MRELEASE", &[&token])), 1_024);
    });
}

#[test]
fn waits_for_the_longest_names_are_served_in_short_turns() {
    assert_short("a wait for 256 kB of names that its own session holds", |_, iterations, conn| {
        conn.int(&call("LOCK.MACQUIRE", &["EX", "600", "SESSION"]));
        iterations.reset();
        conn.execute(&call("LOCK.MACQUIRE", &["EX", "600", "WAIT", "1"]));
    });
    assert_short("LOCK.MRELEASE with a wait for 256 kB of names", |server, iterations, conn| {
        let token = take(conn);
        let mut waiter = waiter(server);
        iterations.reset();
        assert_eq!(conn.int(&call("LOCK.MRELEASE", &[&token])), 1_024);
        waiter.read().int();
    });
    assert_short("FLUSHALL with a wait for 256 kB of names", |server, iterations, conn| {
        take(conn);
        let mut waiter = waiter(server);
        iterations.reset();
        conn.ok(&["FLUSHALL"]);
        waiter.read().int();
    });
}
