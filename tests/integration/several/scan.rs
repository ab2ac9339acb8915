//! LOCK.SCAN over many locks: whatever is there all the time is told of at least once, in its database, on a
//! replica, in transactions and scripts too; it changes nothing.

use super::acquire;
use crate::support::{Conn, Reply, Server};
use std::collections::BTreeSet;

/// All keys that a whole scan tells of; between its steps something happens.
fn scan(conn: &mut Conn, options: &[&str], mut between: impl FnMut(usize)) -> Vec<Vec<u8>> {
    let (mut cursor, mut keys) = ("0".to_string(), Vec::new());
    for step in 0.. {
        let reply = conn.call(&[&["LOCK.SCAN", &cursor], options].concat());
        for row in reply.list()[1].list() {
            let Reply::Text(key) = row.field("key") else { panic!("{row:?}") };
            keys.push(key);
        }
        cursor = reply.list()[0].text();
        if cursor == "0" {
            break;
        }
        between(step);
    }
    keys
}

#[test]
fn what_is_there_all_the_time_is_told_of_while_others_come_and_go() {
    const LOCKS: usize = 2_000;
    let server = Server::start();
    let (mut conn, mut other) = (server.conn(), server.conn());
    let mut expected = BTreeSet::new();
    for n in 0..LOCKS {
        let key = format!("lock{n}");
        let share: &[&str] = if n % 3 == 0 { &["SHARED"] } else { &[] };
        acquire(&mut conn, &[&[&key, "EX", "600"], share].concat());
        expected.insert(key.into_bytes());
    }
    let found = scan(&mut conn, &["COUNT", "37"], |step| {
        // The table of keys grows and shrinks meanwhile.
        for n in 0..100 {
            let key = format!("passing{}", step * 100 + n);
            other.ok(&["SET", &key, "1"]);
            if step % 2 == 1 {
                other.int(&["DEL", &format!("passing{}", (step - 1) * 100 + n)]);
            }
        }
    });
    let found: BTreeSet<Vec<u8>> = found.into_iter().collect();
    assert_eq!(found, expected);
}

#[test]
fn keys_are_bytes_and_patterns_are_those_of_scan() {
    let server = Server::start();
    let mut conn = server.conn();
    let names: [&[u8]; 5] = [b"", b"\0", b"a\r\nb", b"\xff\xfe", b"[x]*"];
    for name in names {
        assert!(conn.call(&[&b"LOCK.ACQUIRE"[..], name, b"EX", b"600"]).int() > 0);
    }
    let found: BTreeSet<Vec<u8>> = scan(&mut conn, &["COUNT", "1000"], |_| {}).into_iter().collect();
    assert_eq!(found, names.map(<[u8]>::to_vec).into());
    assert_eq!(scan(&mut conn, &["MATCH", r"\[x\]\*", "COUNT", "1000"], |_| {}), [b"[x]*".to_vec()]);
    assert_eq!(scan(&mut conn, &["MATCH", "", "COUNT", "1000"], |_| {}), [b"".to_vec()]);
    assert_eq!(scan(&mut conn, &["MATCH", "nobody*"], |_| {}), [[0_u8; 0]; 0]);
    let all: Vec<&str> = vec!["MATCH", "*", "STATE", "held", "COUNT", "1000"];
    assert_eq!(scan(&mut conn, &all, |_| {}).len(), 5);
}

#[test]
fn it_can_be_asked_in_a_transaction_a_script_and_a_replica() {
    let server = Server::with().args(&["--repl-diskless-sync-delay", "0"]).start();
    let replica = Server::start();
    replica.replicate(&server);
    let mut conn = server.conn();
    acquire(&mut conn, &["here", "EX", "600", "SHARED"]);
    conn.ok(&["SELECT", "7"]);
    acquire(&mut conn, &["there", "EX", "600"]);
    let keys =
        |reply: &Reply| -> Vec<String> { reply.list()[1].list().iter().map(|row| row.field("key").text()).collect() };
    let call = ["LOCK.SCAN", "0", "COUNT", "1000"];
    assert_eq!(keys(&conn.call(&call)), ["there"]);
    conn.ok(&["MULTI"]);
    conn.call(&call);
    conn.call(&["SELECT", "0"]);
    conn.call(&call);
    let reply = conn.call(&["EXEC"]);
    assert_eq!((keys(&reply.list()[0]), keys(&reply.list()[2])), (vec!["there".into()], vec!["here".into()]));
    let script = "redis.call('SELECT', 7) return redis.call('LOCK.SCAN', '0', 'COUNT', 1000)";
    assert_eq!(keys(&conn.call(&["EVAL", script, "0"])), ["there"]);
    server.wait_offset(&replica);
    let mut read = replica.conn();
    assert_eq!(keys(&read.call(&call)), ["here"]);
    let row = read.call(&call).list()[1].list()[0].clone();
    assert_eq!(row.field("holders").int(), 1);
}

#[test]
fn without_memory_it_answers_and_several_locks_are_not_granted() {
    let server = Server::start();
    let mut conn = server.conn();
    let shared = acquire(&mut conn, &["k", "EX", "600", "SHARED"]);
    let all = super::acquire_all(&mut conn, &["a", "b"], &["EX", "600"]);
    conn.ok(&["CONFIG", "SET", "maxmemory", "1"]);
    for call in ["LOCK.ACQUIRE k EX 5 SHARED", "LOCK.ACQUIRE x EX 5 LIMIT 2", "LOCK.MACQUIRE 2 x y EX 5"] {
        let reply = conn.call(&call.split(' ').collect::<Vec<_>>());
        assert!(reply.error().starts_with("OOM "), "{call}: {reply:?}");
    }
    assert_eq!(scan(&mut conn, &["COUNT", "1000"], |_| {}).len(), 3);
    // Those who hold go on.
    assert_eq!(conn.int(&["LOCK.EXTEND", "k", &shared, "EX", "500"]), 1);
    assert_eq!(conn.int(&["LOCK.MEXTEND", "2", "a", "b", &all, "EX", "500"]), 1);
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &shared]), 1);
    assert_eq!(conn.int(&["LOCK.MRELEASE", "2", "a", "b", &all]), 2);
    conn.ok(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(conn.int(&["DBSIZE"]), 0);
}
