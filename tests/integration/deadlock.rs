//! DEADLOCK: a wait that would close a cycle of clients, each of which waits for the next one's SESSION lock, is
//! refused at once and changes nothing; no other wait is refused.

mod bounds;
mod kinds;

use crate::kinds::Row;
use crate::waiting::{Locks, Waiter};
use testkit::{until, Conn, Reply};

const LEASE: [&str; 2] = ["PX", "600000"];
const WAIT: [&str; 2] = ["WAIT", "600000"];

/// Clients with a connection each; client `n` can take lock `k<n>`.
struct Clients {
    locks: Locks,
    all: Vec<Waiter>,
}

impl Clients {
    fn start(count: usize) -> Self {
        Self::on(Locks::start(), count)
    }

    fn on(mut locks: Locks, count: usize) -> Self {
        let all = (0..count).map(|_| client(&mut locks)).collect();
        Clients { locks, all }
    }

    fn take(&mut self, client: usize, options: &[&str]) -> i64 {
        self.all[client].conn.int(&[&["LOCK.ACQUIRE", &format!("k{client}")], &LEASE[..], options].concat())
    }

    fn send(&mut self, client: usize, lock: usize, options: &[&str]) {
        self.all[client].conn.send(&[&["LOCK.ACQUIRE", &format!("k{lock}")], &LEASE[..], &WAIT, options].concat());
    }

    /// The client starts waiting for a lock, at this place in its queue.
    fn waits(&mut self, client: usize, lock: usize, place: i64) {
        self.send(client, lock, &[]);
        until("it waits", || (self.waiters(lock) == place).then_some(()));
    }

    fn waiters(&mut self, lock: usize) -> i64 {
        self.locks.conn.lock(&format!("k{lock}"), "waiters").int()
    }

    /// The client gets DEADLOCK, and can continue.
    fn deadlocks(&mut self, client: usize, lock: usize) {
        let before = (self.waiters(lock), self.locks.conn.text(&["DEBUG", "DIGEST"]));
        self.send(client, lock, &[]);
        self.all[client].failed("DEADLOCK");
        assert_eq!((self.waiters(lock), self.locks.conn.text(&["DEBUG", "DIGEST"])), before);
    }

    fn release(&mut self, lock: usize, token: i64) {
        assert_eq!(self.locks.conn.int(&["LOCK.RELEASE", &format!("k{lock}"), &token.to_string()]), 1);
    }
}

fn client(locks: &mut Locks) -> Waiter {
    let mut conn = locks.server.conn();
    let id = conn.int(&["CLIENT", "ID"]).to_string();
    Waiter { conn, id }
}

/// The wait that would close a cycle is refused; the others go on.
fn assert_cycle(count: usize) {
    // A busy machine may need more than the 2 ms of the default edges.
    let mut clients = Clients::on(Locks::with(&["deadlock-edges", "1000000"]), count);
    let tokens: Vec<i64> = (0..count).map(|n| clients.take(n, &["SESSION"])).collect();
    for n in 0..count - 1 {
        clients.waits(n, n + 1, 1);
    }
    let last = count - 1;
    clients.deadlocks(last, 0);
    // Again, with another waiter ahead.
    let mut ahead = clients.locks.wait_with(&[&["LOCK.ACQUIRE", "k0"], &LEASE[..], &WAIT].concat());
    clients.deadlocks(last, 0);
    // All are served in turn.
    for n in (0..last).rev() {
        clients.release(n + 1, tokens[n + 1]);
        clients.all[n].granted();
    }
    clients.release(0, tokens[0]);
    ahead.granted();
}

#[test]
fn cycles_of_any_length_are_refused() {
    for count in [1, 2, 3, 10, 1_000] {
        let _row = Row::of(count);
        assert_cycle(count);
    }
}

#[test]
fn a_cycle_across_databases_is_refused_and_keeps_the_selection() {
    let mut clients = Clients::start(2);
    clients.all[0].conn.ok(&["SELECT", "3"]);
    clients.all[1].conn.ok(&["SELECT", "5"]);
    clients.take(0, &["SESSION"]);
    clients.take(1, &["SESSION"]);
    clients.all[0].conn.ok(&["SELECT", "5"]);
    clients.send(0, 1, &[]);
    let id = clients.all[0].id.clone();
    until("it waits", || clients.locks.is_blocked(&id).then_some(()));
    clients.all[1].conn.ok(&["SELECT", "3"]);
    clients.all[1].conn.ok(&["SET", "here", "3"]);
    clients.send(1, 0, &[]);
    clients.all[1].failed("DEADLOCK");
    assert_eq!(clients.all[1].conn.text(&["GET", "here"]), "3");
}

#[test]
fn the_holders_own_id_does_not_wait() {
    let mut clients = Clients::start(1);
    let token = clients.take(0, &["SESSION", "ID", "7"]);
    clients.send(0, 0, &["SESSION", "ID", "7"]);
    assert_eq!(clients.all[0].granted(), token);
    clients.send(0, 0, &["SESSION", "ID", "8"]);
    clients.all[0].failed("DEADLOCK");
    assert_eq!(clients.locks.conn.int(&["LOCK.CANCEL", "k0", "8"]), 0, "it keeps no place");
}

#[test]
fn holders_without_session_close_no_cycle() {
    for sessions in [[false, false, false], [true, false, true], [false, true, true], [true, true, false]] {
        let mut clients = Clients::start(3);
        for (n, session) in sessions.into_iter().enumerate() {
            clients.take(n, if session { &["SESSION"] } else { &[] });
        }
        for n in 0..3 {
            clients.waits(n, (n + 1) % 3, 1);
        }
    }
}

#[test]
fn a_command_that_does_not_wait_is_refused_with_nil() {
    let mut clients = Clients::start(2);
    let token = clients.take(0, &["SESSION"]);
    clients.take(1, &["SESSION"]);
    clients.waits(0, 1, 1);
    let conn = &mut clients.all[1].conn;
    assert!(conn.execute(&["LOCK.ACQUIRE", "k0", "PX", "1000"]).is_nil());
    assert!(conn.execute(&["LOCK.ACQUIRE", "k0", "PX", "1000", "WAIT", "0", "SESSION"]).is_nil());
    assert!(conn.execute(&["LOCK.RECOVER", "k0", "PX", "1000", "SESSION"]).is_nil());
    conn.ok(&["MULTI"]);
    conn.execute(&["LOCK.ACQUIRE", "k0", "PX", "1000", "WAIT", "600000"]);
    assert_eq!(conn.execute(&["EXEC"]), Reply::List(vec![Reply::Nil]));
    clients.release(0, token);
}

/// Client 0 holds `k0`, client 1 holds `k1`, and client 0 waits for `k1`.
fn half_a_cycle() -> (Clients, i64) {
    let mut clients = Clients::start(2);
    let token = clients.take(0, &["SESSION", "ID", "7"]);
    clients.take(1, &["SESSION"]);
    clients.waits(0, 1, 1);
    (clients, token)
}

#[test]
fn a_lost_lock_closes_no_cycle() {
    let changes: [fn(&mut Clients, i64); 5] = [
        |clients, _| clients.locks.conn.ok(&["SET", "k0", "foreign"]),
        |clients, token| {
            clients.release(0, token);
            clients.locks.conn.int(&["LOCK.ACQUIRE", "k0", "PX", "600000"]);
        },
        |clients, _| {
            clients.locks.conn.int(&["DEL", "k0"]);
            clients.locks.conn.int(&["RPUSH", "k0", "a"]);
            clients.locks.conn.int(&["DEL", "k0"]);
            clients.locks.conn.ok(&["SET", "k0", "4102444800"]);
        },
        // Bound to no connection.
        |clients, token| {
            assert_eq!(clients.locks.conn.int(&["LOCK.ACQUIRE", "k0", "PX", "600000", "ID", "7"]), token);
        },
        // Bound to another connection.
        |clients, token| {
            let again = ["LOCK.ACQUIRE", "k0", "PX", "600000", "ID", "7", "SESSION"];
            assert_eq!(clients.locks.conn.int(&again), token);
        },
    ];
    for change in changes {
        let (mut clients, token) = half_a_cycle();
        clients.deadlocks(1, 0);
        change(&mut clients, token);
        clients.waits(1, 0, 1);
    }
}

#[test]
fn a_lock_that_lapsed_or_is_deleted_is_granted_instead() {
    let (mut clients, _) = half_a_cycle();
    clients.locks.conn.int(&["DEL", "k0"]);
    clients.send(1, 0, &[]);
    clients.all[1].granted();

    let (mut clients, token) = half_a_cycle();
    assert_eq!(clients.locks.conn.int(&["LOCK.EXTEND", "k0", &token.to_string(), "PX", "1"]), 1);
    until("the lock has lapsed", || {
        let state = clients.locks.conn.lock("k0", "state");
        (state.text() == "expired").then_some(())
    });
    clients.send(1, 0, &[]);
    assert!(clients.all[1].granted() > token);
}

/// How the first of two clients leaves the queue: its options, and the action.
type Opening = (&'static str, &'static [&'static str], fn(&mut Clients));

#[test]
fn a_wait_that_ended_closes_no_cycle() {
    let opens: [Opening; 2] = [
        ("its time", &["WAIT", "400"], |_| {}),
        ("LOCK.CANCEL", &["WAIT", "600000", "ID", "9"], |clients| {
            assert_eq!(clients.locks.conn.int(&["LOCK.CANCEL", "k1", "9"]), 1);
        }),
    ];
    for (name, wait, opens) in opens {
        let _row = Row::of(name);
        let mut clients = Clients::start(2);
        clients.take(0, &["SESSION"]);
        clients.take(1, &["SESSION"]);
        clients.all[0].conn.send(&[&["LOCK.ACQUIRE", "k1"], &LEASE[..], wait].concat());
        until("it waits", || (clients.waiters(1) == 1).then_some(()));
        clients.deadlocks(1, 0);
        opens(&mut clients);
        clients.all[0].refused();
        clients.waits(1, 0, 1);
        // Now the other wait would close the cycle.
        clients.deadlocks(0, 1);
    }
    let (mut clients, _) = half_a_cycle();
    clients.deadlocks(1, 0);
    let id = clients.all[0].id.clone();
    assert_eq!(clients.all[1].conn.int(&["CLIENT", "KILL", "ID", &id]), 1);
    clients.send(1, 0, &[]);
    clients.all[1].granted();
}

#[test]
fn a_handed_off_session_lock_closes_a_cycle() {
    let mut clients = Clients::start(2);
    let token = clients.locks.conn.int(&["LOCK.ACQUIRE", "k0", "PX", "600000"]);
    clients.send(0, 0, &["SESSION"]);
    until("it waits", || (clients.waiters(0) == 1).then_some(()));
    clients.take(1, &["SESSION"]);
    // Nobody holds k0 with SESSION yet.
    clients.waits(1, 0, 2);
    clients.release(0, token);
    clients.all[0].granted();
    clients.deadlocks(0, 1);
}

#[test]
fn a_long_chain_without_a_cycle_is_allowed() {
    let mut clients = Clients::start(300);
    for n in 0..300 {
        clients.take(n, &["SESSION"]);
    }
    for n in 0..299 {
        clients.waits(n, n + 1, 1);
    }
    let stranger: &mut Conn = &mut clients.locks.server.conn();
    stranger.send(&["LOCK.ACQUIRE", "k0", "PX", "600000", "WAIT", "600000", "SESSION"]);
    until("it waits", || (clients.waiters(0) == 1).then_some(()));
}
