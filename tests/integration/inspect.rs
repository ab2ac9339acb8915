//! LOCK.INFO and LOCK.TOP: holders and waiters, since when and for how long, and the longest queues.
//!
//! `inspect/holder.rs` tests a holder's connection, `inspect/order.rs` LOCK.TOP's orders.

mod bytes;
mod holder;
mod order;
mod scan;

use crate::waiting::{Locks, Waiter, QUIET};
use testkit::{until, Conn, Reply, Server};

/// A client's address, as the server lists it.
pub fn address(conn: &mut Conn, id: &str) -> String {
    let list = conn.text(&["CLIENT", "LIST", "ID", id]);
    let address = list.split(' ').find_map(|field| field.strip_prefix("addr=")).map(String::from);
    address.unwrap_or_else(|| panic!("no address: {list}"))
}

/// A client waits for `key` in the database that `conn` has selected.
fn wait_for(locks: &mut Locks, conn: Conn, key: &str) -> Waiter {
    locks.wait_on(conn, &["LOCK.ACQUIRE", key, "PX", "30000", "WAIT", "30000"])
}

fn wait(locks: &mut Locks, key: &str) -> Waiter {
    let conn = locks.server.conn();
    wait_for(locks, conn, key)
}

/// Database, key and waiters of each row.
fn rows(top: &Reply) -> Vec<(i64, String, i64)> {
    let row = |row: &Reply| (row.field("db").int(), row.field("key").text(), row.field("waiters").int());
    top.list().iter().map(row).collect()
}

fn row(db: i64, key: &str, waiters: i64) -> (i64, String, i64) {
    (db, key.into(), waiters)
}

#[test]
fn info_shows_the_number_and_age_of_waiters() {
    let mut locks = Locks::start();
    let token = locks.hold();
    assert!(locks.conn.lock("k", "oldest-wait-ms").is_nil());
    let mut first = wait(&mut locks, "k");
    first.assert_waits();
    let second = wait(&mut locks, "k");
    let info = locks.conn.execute(&["LOCK.INFO", "k"]);
    assert_eq!(info.field("waiters").int(), 2);
    let oldest = info.field("oldest-wait-ms").int();
    let quiet = i64::try_from(QUIET.as_millis()).unwrap();
    assert!((quiet..quiet + 10_000).contains(&oldest), "{oldest}");
    // The rows agree with the reply, and with the clients' numbers on the server.
    let full = locks.conn.execute(&["LOCK.INFO", "k", "FULL"]);
    let queue = full.field("queue");
    let ids: Vec<String> = queue.list().iter().map(|row| row.field("client").int().to_string()).collect();
    assert_eq!(ids, [&first.id, &second.id].map(Clone::clone));
    let waited = |n: usize| queue.list()[n].field("waited-ms").int();
    assert!(waited(0) >= oldest && waited(1) < waited(0), "{queue:?}");
    for row in queue.list() {
        let whole = row.field("waited-ms").int() + row.field("left-ms").int();
        assert!((29_999..=30_001).contains(&whole), "{row:?}");
    }
    locks.release(token);
    let granted = first.granted();
    assert_eq!(locks.waiters(), 1);
    let info = locks.conn.execute(&["LOCK.INFO", "k"]);
    assert_eq!(info.field("token").int(), granted);
    assert!(info.field("oldest-wait-ms").int() < oldest + 10_000);
}

#[test]
fn info_shows_waiters_of_a_foreign_value_only() {
    let mut locks = Locks::start();
    locks.conn.ok(&["SET", "k", "foreign", "PX", "30000"]);
    let waiter = wait(&mut locks, "k");
    let info = locks.conn.execute(&["LOCK.INFO", "k", "FULL"]);
    assert_eq!(info.field("state").text(), "foreign");
    assert!((1..=30_000).contains(&info.field("free-in-ms").int()));
    for field in ["token", "id", "owner", "timestamp", "held-ms", "lease-ms", "overdue-ms", "session"] {
        assert!(info.field(field).is_nil(), "{field}: {info:?}");
    }
    assert_eq!(info.field("queue").list()[0].field("client").int().to_string(), waiter.id);
    // The key becomes another type within one iteration, so that nobody is served in the meantime.
    locks.in_one_turn(&[&["MULTI"], &["DEL", "k"], &["RPUSH", "k", "a"], &["EXEC"]]);
    for options in [&[][..], &["FULL"]] {
        let reply = locks.conn.execute(&[&["LOCK.INFO", "k"], options].concat());
        assert!(reply.error().starts_with("WRONGTYPE "), "{reply:?}");
    }
    let top = locks.conn.execute(&["LOCK.TOP"]);
    assert_eq!(rows(&top), [row(0, "k", 1)]);
    assert!(top.list()[0].field("owner").is_nil() && top.list()[0].field("held-ms").is_nil());
}

#[test]
fn a_session_is_shown_while_its_grant_holds() {
    let mut locks = Locks::start();
    let mut holder = locks.server.conn();
    let id = holder.execute(&["CLIENT", "ID"]);
    let token = holder.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "SESSION"]).to_string();
    let session = |locks: &mut Locks| locks.conn.lock("k", "session");
    assert_eq!(session(&mut locks), id);
    assert_eq!(locks.conn.int(&["LOCK.EXTEND", "k", &token, "PX", "1"]), 1);
    until("the lock has expired", || (locks.conn.state("k") == "expired").then_some(()));
    assert!(session(&mut locks).is_nil(), "an expired lock has no session");
    locks.hold();
    assert!(session(&mut locks).is_nil(), "another grant has no session");
}

#[test]
fn at_most_a_thousand_rows_are_shown() {
    let mut locks = Locks::start();
    locks.hold();
    let mut waiters: Vec<Conn> = (0..1_003).map(|_| locks.server.conn()).collect();
    for waiter in &mut waiters {
        waiter.send(&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000"]);
    }
    locks.until_waiters(1_003);
    let queue = locks.conn.execute(&["LOCK.INFO", "k", "FULL"]).field("queue");
    assert_eq!(queue.list().len(), 1_000);
    let waited: Vec<i64> = queue.list().iter().map(|row| row.field("waited-ms").int()).collect();
    assert!(waited.windows(2).all(|pair| pair[0] >= pair[1]), "in order");
    assert_eq!(rows(&locks.conn.execute(&["LOCK.TOP"])), [row(0, "k", 1_003)]);
}

/// A client can choose a name of several megabytes.
#[test]
fn long_client_names_are_shown_in_the_first_rows_only() {
    let mut locks = Locks::start();
    locks.hold();
    let name = "n".repeat(50_000);
    let _waiters = [(); 5].map(|()| {
        let mut conn = locks.server.conn();
        conn.ok(&["CLIENT", "SETNAME", &name]);
        wait_for(&mut locks, conn, "k")
    });
    let queue = locks.conn.execute(&["LOCK.INFO", "k", "FULL"]).field("queue");
    let shown = queue.list().iter().map(|row| match row.field("name") {
        Reply::Text(name) => name.len(),
        _ => 0,
    });
    let expected = if locks.conn.is_before_7() { [0; 5] } else { [50_000, 50_000, 50_000, 0, 0] };
    assert_eq!(shown.collect::<Vec<usize>>(), expected);
}

#[test]
fn top_sorts_by_length_then_wait() {
    let mut locks = Locks::start();
    assert_eq!(locks.conn.execute(&["LOCK.TOP"]), Reply::List(Vec::new()));
    let mut waiters = Vec::new();
    for (key, count) in [("one", 1), ("three", 3), ("two", 2), ("late", 2)] {
        locks.conn.int(&["LOCK.ACQUIRE", key, "PX", "30000", "OWNER", key]);
        for _ in 0..count {
            waiters.push(wait(&mut locks, key));
        }
    }
    locks.conn.int(&["LOCK.ACQUIRE", "alone", "PX", "30000"]);
    let top = locks.conn.execute(&["LOCK.TOP"]);
    let expected = [row(0, "three", 3), row(0, "two", 2), row(0, "late", 2), row(0, "one", 1)];
    assert_eq!(rows(&top), expected);
    for row in top.list() {
        assert_eq!(row.field("owner"), row.field("key"));
        assert!((0..10_000).contains(&row.field("held-ms").int()));
        assert!(row.field("oldest-wait-ms").int() <= row.field("held-ms").int() + 1, "{row:?}");
    }
    for count in 1..=4 {
        let top = locks.conn.execute(&["LOCK.TOP", "COUNT", &count.to_string()]);
        assert_eq!(rows(&top), expected[..count]);
    }
    // A client that has left is no longer counted; its reserved place is not a waiter.
    let kept = locks.conn.execute(&["LOCK.ACQUIRE", "one", "PX", "30000", "ID", "7"]);
    assert!(kept.is_nil());
    drop(waiters);
    until("nobody waits", || (locks.conn.execute(&["LOCK.TOP"]) == Reply::List(Vec::new())).then_some(()));
}

#[test]
fn top_shows_ten_by_default() {
    let mut locks = Locks::start();
    let mut waiters = Vec::new();
    for n in 0..12 {
        let key = format!("k{n}");
        locks.conn.ok(&["SET", &key, "foreign"]);
        waiters.push(wait(&mut locks, &key));
    }
    for (options, count) in [(&[][..], 10), (&["COUNT", "11"], 11), (&["COUNT", "1000"], 12), (&["COUNT", "1"], 1)] {
        let top = locks.conn.execute(&[&["LOCK.TOP"], options].concat());
        assert_eq!(top.list().len(), count, "{options:?}");
        assert_eq!(top.list()[0].field("key").text(), "k0", "the one that waits longest");
    }
    for wrong in ["0", "-1", "1001", "99999999999999999999", "18446744073709551617", "many", ""] {
        let reply = locks.conn.execute(&["LOCK.TOP", "COUNT", wrong]);
        assert_eq!(reply.error(), "ERR count is not a whole number between 1 and 1000", "{wrong}");
    }
}

#[test]
fn top_reads_every_database_and_keeps_the_selection() {
    let mut locks = Locks::start();
    let mut waiters = Vec::new();
    for (db, count) in [("2", 1), ("9", 3), ("0", 2)] {
        let mut conn = locks.server.conn();
        conn.ok(&["SELECT", db]);
        conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "OWNER", &format!("of-{db}")]);
        for _ in 0..count {
            let mut conn = locks.server.conn();
            conn.ok(&["SELECT", db]);
            waiters.push(wait_for(&mut locks, conn, "k"));
        }
    }
    locks.conn.ok(&["SELECT", "4"]);
    locks.conn.ok(&["SET", "here", "4"]);
    let top = locks.conn.execute(&["LOCK.TOP"]);
    assert_eq!(rows(&top), [row(9, "k", 3), row(0, "k", 2), row(2, "k", 1)]);
    for row in top.list() {
        assert_eq!(row.field("owner").text(), format!("of-{}", row.field("db").int()));
    }
    assert_eq!(locks.conn.text(&["GET", "here"]), "4");
    // In a transaction and in a script too.
    locks.conn.ok(&["MULTI"]);
    locks.conn.execute(&["LOCK.TOP"]);
    locks.conn.execute(&["GET", "here"]);
    assert_eq!(locks.conn.execute(&["EXEC"]).list()[1].text(), "4");
    let script = "redis.call('LOCK.TOP') return redis.call('GET', KEYS[1])";
    assert_eq!(locks.conn.text(&["EVAL", script, "1", "here"]), "4");
    assert_eq!(locks.conn.text(&["GET", "here"]), "4");
}

#[test]
fn a_replica_shows_locks_but_no_waiters() {
    let (mut locks, replica) = (Locks::start(), Server::start());
    replica.replicate(&locks.server);
    let mut holder = locks.server.conn();
    holder.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "SESSION", "OWNER", "boss"]);
    let _waiter = wait(&mut locks, "k");
    locks.server.wait_offset(&replica);
    let mut read = replica.conn();
    let info = read.execute(&["LOCK.INFO", "k", "FULL"]);
    assert_eq!(info.field("state").text(), "held");
    assert_eq!(info.field("owner").text(), "boss");
    for field in ["session", "waiters", "oldest-wait-ms", "queue"] {
        assert!(info.field(field).is_nil(), "{field}: {info:?}");
    }
    assert_eq!(read.execute(&["LOCK.TOP"]), Reply::List(Vec::new()));
    // A server that was a master until now has no waiters either.
    locks.conn.ok(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_eq!(locks.conn.execute(&["LOCK.TOP"]), Reply::List(Vec::new()));
    let info = locks.conn.execute(&["LOCK.INFO", "k", "FULL"]);
    for field in ["session", "waiters", "oldest-wait-ms", "queue"] {
        assert!(info.field(field).is_nil(), "{field}: {info:?}");
    }
}
