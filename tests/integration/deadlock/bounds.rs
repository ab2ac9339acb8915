//! A deadlock search takes less than 3 ms of server time, whatever the clients wait for. It ends at the default
//! `lock.deadlock-edges`, and the wait then begins unchecked.

use super::{LEASE, WAIT};
use std::time::Duration;
use testkit::{bound, until, Conn, Iterations, Server};

const SESSIONS: usize = 2_400;
const BOUND: Duration = Duration::from_millis(3);

/// Connections that hold and wait, and the command that the last one sends.
struct Graph {
    conns: Vec<Conn>,
    asks: Vec<String>,
}

fn acquire(key: &str, options: &[&str]) -> Vec<String> {
    [&["LOCK.ACQUIRE", key], &LEASE[..], options].concat().into_iter().map(Into::into).collect()
}

fn begin(conn: &mut Conn, call: &[String]) {
    conn.send(&call.iter().map(String::as_str).collect::<Vec<_>>());
}

/// Sends each connection's waiting command, and waits until all of them wait.
fn all_wait(server: &Server, waits: Vec<(&mut Conn, Vec<String>)>) {
    let count = waits.len();
    for (conn, call) in waits {
        begin(conn, &call);
    }
    let mut conn = server.conn();
    until("all wait", || (crate::metrics::number(&mut conn, "waiters") == i64::try_from(count).unwrap()).then_some(()));
}

/// Each client holds a lock and waits for the next one's; the last closes the cycle if `is_closed`.
fn ring(server: &Server, size: usize, is_closed: bool) -> Graph {
    let name = |n: usize| format!("{n:0size$}");
    let mut conns: Vec<Conn> = (0..SESSIONS).map(|_| server.conn()).collect();
    for (n, conn) in conns.iter_mut().enumerate() {
        begin(conn, &acquire(&name(n), &["SESSION"]));
    }
    for conn in &mut conns {
        assert!(conn.read().int() > 0);
    }
    let last = if is_closed { SESSIONS - 1 } else { SESSIONS - 2 };
    let waits = conns.iter_mut().take(last).enumerate().map(|(n, conn)| (conn, acquire(&name(n + 1), &WAIT)));
    all_wait(server, waits.collect());
    Graph { conns, asks: acquire(&name(0), &["WAIT", "1"]) }
}

/// Three locks with 3,300 holders each, most of them without a session, none of them in memory; a cycle goes through
/// all three.
fn sets(server: &Server, _: usize, _: bool) -> Graph {
    let others = "for n = 1, 3300 do redis.call('LOCK.ACQUIRE', KEYS[1], 'PX', 600000, 'SHARED', 'OWNER', 'owner-of-a-usual-length') end";
    let mut conns: Vec<Conn> = (0..4).map(|_| server.conn()).collect();
    for (n, conn) in conns.iter_mut().enumerate() {
        let share: &[&str] = if n == 3 { &[] } else { &["SHARED"] };
        conn.int(&[&["LOCK.ACQUIRE", &format!("k{n}"), "SESSION"], &LEASE[..], share].concat());
        if n < 3 {
            assert!(conn.execute(&["EVAL", others, "1", &format!("k{n}")]).is_nil());
        }
    }
    let waits = conns.iter_mut().take(3).enumerate().map(|(n, conn)| (conn, acquire(&format!("k{}", n + 1), &WAIT)));
    all_wait(server, waits.collect());
    let mut conn = server.conn();
    conn.ok(&["SELECT", "9"]);
    conn.ok(&["FLUSHDB"]);
    Graph { conns, asks: acquire("k0", &["WAIT", "1"]) }
}

/// Locks that other sessions hold, each with many waiters that would share it.
fn queues(server: &Server, _: usize, _: bool) -> Graph {
    let mut conns: Vec<Conn> = (0..SESSIONS + 2).map(|_| server.conn()).collect();
    let [first, second] = ["first", "second"];
    let (holders, others) = conns.split_at_mut(2);
    holders[0].int(&[&["LOCK.ACQUIRE", first, "SESSION", "SHARED"], &LEASE[..]].concat());
    holders[1].int(&[&["LOCK.ACQUIRE", second, "SESSION"], &LEASE[..]].concat());
    server.conn().int(&[&["LOCK.ACQUIRE", first, "LIMIT", "2"], &LEASE[..]].concat());
    let others = others.iter_mut().map(|conn| (conn, acquire(first, &["LIMIT", "2", WAIT[0], WAIT[1]])));
    let mut waits = vec![(&mut holders[0], acquire(second, &WAIT))];
    waits.extend(others);
    all_wait(server, waits);
    // The holder of the second lock asks.
    let asks = conns.swap_remove(1);
    conns.push(asks);
    Graph { conns, asks: acquire(first, &["LIMIT", "2", "WAIT", "1"]) }
}

#[test]
fn no_search_keeps_the_server_from_anything_else() {
    type Make = fn(&Server, usize, bool) -> Graph;
    let kinds: [(&str, Make, usize, bool); 6] = [
        ("a ring with short names", ring, 8, true),
        ("a ring with names of 4 KB", ring, 4_096, true),
        ("a chain with short names", ring, 8, false),
        ("a chain with names of 4 KB", ring, 4_096, false),
        ("locks with many holders", sets, 0, true),
        ("a lock with a long queue", queues, 0, true),
    ];
    for (kind, make, size, is_closed) in kinds {
        bound::cpu(kind, BOUND, || {
            let (server, iterations) = Iterations::start(Server::with())?;
            let mut graph = make(&server, size, is_closed);
            iterations.reset();
            let last = graph.conns.last_mut().unwrap();
            begin(last, &graph.asks);
            last.read();
            Some(iterations.longest())
        });
    }
}
