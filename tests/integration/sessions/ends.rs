//! Every way in which a connection ends also ends its locks, with and without a waiter.

use super::{assert_succeeds, Holder, Scene, MARGIN_US};
use crate::kinds::{acquire, acquire_all, Row};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use testkit::{until, Conn, Reply, DEADLINE};

/// A way to end a holder's connection.
type Way = fn(&mut Scene, Holder);

const WAYS: [(&str, Way); 15] = [
    ("close", |_, holder| drop(holder)),
    ("reset", |_, mut holder| {
        // The connection is closed with an unread reply.
        holder.conn.send(&["PING"]);
        assert!(!holder.conn.no_reply_within(DEADLINE));
    }),
    ("half a command", |_, mut holder| holder.conn.send_bytes(b"*3\r\n$3\r\nSET\r\n$1\r\n")),
    ("not the protocol", |_, mut holder| {
        holder.conn.send_bytes(b"*1\r\nnonsense\r\n");
        assert!(matches!(holder.conn.try_read(), Ok(Reply::Error(_))));
        assert!(holder.conn.try_read().is_err());
    }),
    ("QUIT", |_, mut holder| {
        holder.conn.ok(&["QUIT"]);
        assert!(holder.conn.try_read().is_err());
    }),
    ("CLIENT KILL by another", |scene, holder| kill(scene, &holder)),
    ("CLIENT KILL by itself", |_, mut holder| {
        assert_eq!(holder.conn.int(&["CLIENT", "KILL", "ID", &holder.id, "SKIPME", "no"]), 1);
        assert!(holder.conn.try_read().is_err());
    }),
    ("in MULTI", |_, mut holder| {
        holder.conn.ok(&["MULTI"]);
        holder.conn.execute(&["SET", "never", "1"]);
    }),
    ("CLIENT KILL in MULTI", |scene, mut holder| {
        holder.conn.ok(&["MULTI"]);
        kill(scene, &holder);
    }),
    ("CLIENT KILL of itself in EXEC", |_, mut holder| {
        holder.conn.ok(&["MULTI"]);
        holder.conn.execute(&["CLIENT", "KILL", "ID", &holder.id, "SKIPME", "no"]);
        holder.conn.execute(&["PING"]);
        holder.conn.send(&["EXEC"]);
        while holder.conn.try_read().is_ok() {}
    }),
    ("during a LOCK.ACQUIRE wait", |scene, holder| {
        drop(block(scene, holder, &["LOCK.ACQUIRE", "other", "PX", "30000", "WAIT", "30000"]));
    }),
    ("CLIENT KILL during a LOCK.ACQUIRE wait", |scene, holder| {
        let holder = block(scene, holder, &["LOCK.ACQUIRE", "other", "PX", "30000", "WAIT", "30000", "ID", "7"]);
        kill(scene, &holder);
    }),
    ("during a BLPOP wait", |scene, holder| drop(block(scene, holder, &["BLPOP", "list", "0"]))),
    ("CLIENT KILL during a BLPOP wait", |scene, holder| {
        let holder = block(scene, holder, &["BLPOP", "list", "0"]);
        kill(scene, &holder);
    }),
    ("output buffer limit", |scene, mut holder| {
        let set = |scene: &mut Scene, limit| {
            scene.locks.conn.ok(&["CONFIG", "SET", "client-output-buffer-limit", limit]);
        };
        set(scene, "normal 100000 0 0");
        // A script creates the value, because Redis 8.6 does not count one that it sends directly from storage.
        holder.conn.send(&["EVAL", "return string.rep('x', 8000000)", "0"]);
        scene.until_gone(&holder.id);
        set(scene, "normal 0 0 0");
    }),
];

/// The holder blocks on a command.
fn block(scene: &mut Scene, holder: Holder, args: &[&str]) -> Holder {
    let Holder { conn, id, token } = holder;
    let waiter = scene.locks.wait_on(conn, args);
    Holder { conn: waiter.conn, id, token }
}

fn kill(scene: &mut Scene, holder: &Holder) {
    assert_eq!(scene.locks.conn.int(&["CLIENT", "KILL", "ID", &holder.id]), 1);
}

/// Ends a holder of `k` in one way, and checks what happens to the lock.
fn assert_ends(scene: &mut Scene, way: Way, contended: bool) {
    let holder = scene.hold();
    let token = holder.token;
    let mut waiter = contended.then(|| scene.wait());
    assert_eq!(scene.session("k"), Some(holder.id.clone()));
    scene.forget();
    let from = scene.now_us();
    way(scene, holder);
    let timestamp = scene.until_ended(token, from);
    assert_eq!(scene.session("k"), None);
    if let Some(waiter) = &mut waiter {
        assert_succeeds(waiter, token, timestamp);
        assert_eq!(scene.sent_for("k").len(), 2, "the end, and the new grant: {:?}", scene.sent);
    } else {
        assert_eq!(scene.sent_for("k").len(), 1, "{:?}", scene.sent);
        let sent = scene.sent_for("k")[0][2].clone();
        assert_eq!(scene.value("k"), sent);
    }
    scene.locks.conn.ok(&["SET", "other", "taken"]);
    assert_eq!(scene.locks.conn.int(&["DEL", "k"]), 1);
    assert!(scene.sent.iter().all(|command| command[1] != "never"));
}

/// It also grants the lock to the first waiter.
#[test]
fn every_end_of_a_connection_ends_its_lock() {
    let mut scene = Scene::start();
    scene.locks.conn.ok(&["SET", "other", "taken"]);
    for ((name, way), contended) in WAYS.into_iter().flat_map(|way| [(way, false), (way, true)]) {
        let _row = Row::of((name, contended));
        assert_ends(&mut scene, way, contended);
    }
}

/// The socket of a holder of `k`, for operations that [`Conn`] does not have.
fn raw_holder(scene: &Scene) -> (TcpStream, i64) {
    let mut socket = TcpStream::connect(("127.0.0.1", scene.locks.server.port())).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    socket.write_all(b"LOCK.ACQUIRE k PX 30000 SESSION OWNER first\r\n").unwrap();
    let mut line = [0; 19];
    socket.read_exact(&mut line).unwrap();
    let token = String::from_utf8_lossy(&line[1..17]).parse().unwrap();
    (socket, token)
}

#[test]
fn a_socket_that_is_shut_down_ends_its_lock() {
    let mut scene = Scene::start();
    for (how, contended) in [(Shutdown::Write, false), (Shutdown::Both, false), (Shutdown::Write, true)] {
        let (socket, token) = raw_holder(&scene);
        let waiter = contended.then(|| scene.wait());
        scene.forget();
        let from = scene.now_us();
        socket.shutdown(how).unwrap();
        let timestamp = scene.until_ended(token, from);
        if let Some(mut waiter) = waiter {
            assert_succeeds(&mut waiter, token, timestamp);
        }
        scene.locks.conn.int(&["DEL", "k"]);
    }
}

#[test]
fn an_idle_connection_that_the_server_closes_ends_its_lock() {
    let mut scene = Scene::start();
    let holder = scene.hold();
    let mut waiter = scene.wait();
    scene.forget();
    let from = scene.now_us();
    scene.locks.conn.ok(&["CONFIG", "SET", "timeout", "1"]);
    // The inspecting connections must not be idle in the meantime.
    until("the end is replicated", || {
        scene.now_us();
        scene.sent_for("k").first().map(|_| ())
    });
    let timestamp = scene.until_ended(holder.token, from);
    scene.locks.conn.ok(&["CONFIG", "SET", "timeout", "0"]);
    assert!(timestamp >= from + MARGIN_US);
    assert_succeeds(&mut waiter, holder.token, timestamp);
}

#[test]
fn a_connection_ends_its_locks_in_every_database() {
    let mut scene = Scene::start();
    let mut conn = scene.locks.server.conn();
    let keys: Vec<(String, String)> = (0..40).map(|n| ((n % 4).to_string(), format!("k{n}"))).collect();
    for (db, key) in &keys {
        conn.ok(&["SELECT", db]);
        conn.int(&["LOCK.ACQUIRE", key, "PX", "30000", "SESSION"]);
    }
    drop(conn);
    for (db, key) in &keys {
        scene.locks.conn.ok(&["SELECT", db]);
        until("the lock has expired", || {
            let info = scene.locks.conn.execute(&["LOCK.INFO", key]);
            (info.field("state").text() == "expired").then_some(())
        });
    }
}

#[test]
fn locks_from_transactions_and_recover_end_too() {
    let mut scene = Scene::start();
    let takes: [fn(&mut Conn) -> i64; 2] = [
        |conn| {
            conn.ok(&["MULTI"]);
            conn.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "SESSION"]);
            conn.execute(&["EXEC"]).list()[0].int()
        },
        |conn| {
            conn.ok(&["SET", "k", "1700000000"]);
            conn.execute(&["LOCK.RECOVER", "k", "PX", "30000", "SESSION"]).list()[0].int()
        },
    ];
    for take in takes {
        let mut conn = scene.locks.server.conn();
        let token = take(&mut conn);
        scene.forget();
        let from = scene.now_us();
        drop(conn);
        scene.until_ended(token, from);
        scene.locks.conn.int(&["DEL", "k"]);
    }
}

/// When a grant ends, in microseconds; the score is a double, exact to one microsecond.
#[allow(clippy::cast_possible_truncation)]
fn end_of(conn: &mut Conn, key: &str, token: &str) -> i64 {
    let seconds = match conn.execute(&["ZSCORE", key, token]) {
        Reply::Text(score) => String::from_utf8(score).unwrap(),
        _ => conn.lock(key, "timestamp").text(),
    };
    (seconds.parse::<f64>().unwrap() * 1e6).round() as i64
}

#[test]
fn a_connection_ends_only_its_own_shared_and_several_locks() {
    // The rest of a session's lease is visible until it expires.
    let mut scene = Scene::with_margin(60_000);
    let mut dying = scene.locks.server.conn();
    let other = acquire(&mut scene.locks.conn, &["shared", "EX", "400", "SHARED"]);
    let shared = acquire(&mut dying, &["shared", "EX", "600", "SHARED", "SESSION"]);
    let limited = acquire(&mut dying, &["limited", "EX", "600", "LIMIT", "2", "SESSION"]);
    let short = acquire(&mut dying, &["shared", "PX", "1", "SHARED", "SESSION"]);
    let all = acquire_all(&mut dying, &["a", "b", "c"], &["EX", "600", "SESSION"]);
    let unbound = acquire(&mut dying, &["shared", "EX", "500", "SHARED"]);
    let last = acquire(&mut scene.locks.conn, &["shared", "EX", "500", "SHARED"]);
    let conn = &mut scene.locks.conn;
    // A grant that ends before its connection is left alone.
    until("the short lease has expired", || (conn.int(&["LOCK.CHECK", "shared", &short]) == 0).then_some(()));
    std::thread::sleep(std::time::Duration::from_millis(5));
    let others = [&unbound, &other, &last, &short];
    let kept = others.map(|token| end_of(conn, "shared", token));
    drop(dying);
    let own = [("shared", &shared), ("limited", &limited), ("a", &all), ("b", &all), ("c", &all)];
    until("they have ended", || {
        own.iter().all(|(key, token)| conn.int(&["LOCK.CHECK", key, token]) == 0).then_some(())
    });
    // The time of the end plus the margin, for each of them.
    let ends = own.map(|(key, token)| end_of(conn, key, token));
    assert_eq!(ends, [ends[0]; 5]);
    assert_eq!(others.map(|token| end_of(conn, "shared", token)), kept, "nobody else's");
    // The tokens still release: in time, as long as the margin lasts.
    assert_eq!(conn.int(&["LOCK.MRELEASE", "3", "a", "b", "c", &all]), 3);
    assert_eq!(conn.int(&["LOCK.RELEASE", "shared", &shared]), 1);
    assert_eq!(conn.int(&["LOCK.RELEASE", "limited", &limited]), 1);
    assert_eq!(scene.locks.info("lock", "lock_sessions"), 0);
}
