//! Many holders of one lock: kept in memory from one command to the next, and right whoever changes the set.

use super::{acquire, acquire_all};
use crate::support::{Reply, Server};

const COUNT: usize = 1_000;

#[test]
fn a_thousand_holders_are_told_apart() {
    let server = Server::start();
    let mut conn = server.conn();
    let limit = COUNT.to_string();
    let tokens: Vec<String> = (0..COUNT).map(|_| acquire(&mut conn, &["k", "EX", "600", "LIMIT", &limit])).collect();
    assert!(conn.call(&["LOCK.ACQUIRE", "k", "EX", "600", "LIMIT", &limit]).is_nil());
    for token in tokens.iter().step_by(3) {
        assert_eq!(conn.int(&["LOCK.RELEASE", "k", token]), 1);
        assert_eq!(conn.int(&["LOCK.EXTEND", "k", token, "EX", "60"]), 0);
    }
    for (at, token) in tokens.iter().enumerate() {
        assert_eq!(conn.int(&["LOCK.CHECK", "k", token]) > 0, at % 3 != 0);
    }
    let left = COUNT - COUNT.div_ceil(3);
    assert_eq!(conn.int(&["ZCARD", "k"]), i64::try_from(left).unwrap());
    // At most a thousand are shown.
    assert_eq!(conn.call(&["LOCK.INFO", "k", "FULL"]).field("holders").list().len(), left);
}

#[test]
fn a_set_that_others_changed_is_read_anew() {
    let server = Server::start();
    let mut conn = server.conn();
    let tokens: Vec<String> = (0..50).map(|_| acquire(&mut conn, &["k", "EX", "600", "LIMIT", "50"])).collect();
    let member = tokens[49].clone();
    assert_eq!(conn.int(&["ZREM", "k", &member]), 1);
    assert_eq!(conn.int(&["LOCK.CHECK", "k", &tokens[49]]), 0);
    let again = acquire(&mut conn, &["k", "EX", "600", "LIMIT", "50"]);
    assert!(again > tokens[49]);
    let dump = conn.call(&["DUMP", "k"]);
    let Reply::Text(dump) = dump else { panic!("{dump:?}") };
    assert_eq!(conn.int(&["DEL", "k"]), 1);
    assert_eq!(conn.int(&["LOCK.CHECK", "k", &tokens[5]]), 0);
    acquire(&mut conn, &["k", "EX", "600"]);
    let args: [&[u8]; 5] = [b"RESTORE", b"k", b"0", &dump, b"REPLACE"];
    assert_eq!(conn.call(&args), Reply::Status("OK".into()));
    assert!(conn.int(&["LOCK.CHECK", "k", &tokens[5]]) > 0);
    // A member that is none of ours.
    assert_eq!(conn.int(&["ZADD", "k", "1", "mine"]), 1);
    assert!(conn.call(&["LOCK.CHECK", "k", &tokens[5]]).error().starts_with("WRONGTYPE "));
    conn.int(&["ZREM", "k", "mine"]);
    conn.ok(&["SELECT", "1"]);
    let elsewhere = acquire(&mut conn, &["k", "EX", "600", "SHARED"]);
    conn.ok(&["SWAPDB", "0", "1"]);
    assert!(conn.int(&["LOCK.CHECK", "k", &tokens[5]]) > 0);
    assert_eq!(conn.int(&["LOCK.CHECK", "k", &elsewhere]), 0);
}

#[test]
fn overdue_holders_are_forgotten_when_their_retention_is_over() {
    let server = Server::with().module_args(&["margin-ms", "0", "retention-ms", "0"]).start();
    let mut conn = server.conn();
    for _ in 0..100 {
        acquire(&mut conn, &["k", "PX", "1", "SHARED"]);
    }
    std::thread::sleep(std::time::Duration::from_millis(20));
    for _ in 0..20 {
        acquire(&mut conn, &["k", "EX", "60", "SHARED"]);
    }
    assert_eq!(conn.int(&["ZCARD", "k"]), 20);
}

#[test]
fn a_set_of_three_is_in_the_form_for_many_and_of_nobody_else() {
    let server = Server::start();
    let mut conn = server.conn();
    let mut tokens = Vec::new();
    for is_tree in [false, false, true, true] {
        tokens.push(acquire(&mut conn, &["k", "EX", "600", "SHARED"]));
        if tokens.len() > 1 {
            assert_eq!(conn.text(&["OBJECT", "ENCODING", "k"]) == "skiplist", is_tree, "{} holders", tokens.len());
        }
        let members: Vec<String> = conn.call(&["ZRANGE", "k", "0", "-1"]).list().iter().map(Reply::text).collect();
        assert_eq!(members, tokens);
    }
}

#[test]
fn as_many_keys_as_a_command_may_have_are_one_grant() {
    const MOST: usize = 1_024;
    let server = Server::start();
    let mut conn = server.conn();
    let names: Vec<String> = (0..=MOST).map(|n| format!("k{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let token = acquire_all(&mut conn, &names[..MOST], &["EX", "600", "ID", "7"]);
    assert_eq!(conn.int(&["DBSIZE"]), 1_024);
    assert_eq!(acquire_all(&mut conn, &names[..MOST], &["EX", "600", "ID", "7"]), token);
    let count = MOST.to_string();
    let extend = [&["LOCK.MEXTEND", &count], &names[..MOST], &[&token, "EX", "700"]].concat();
    assert_eq!(conn.int(&extend), 1);
    // One more is one too many; the last one twice is found.
    let more = (MOST + 1).to_string();
    let reply = conn.call(&[&["LOCK.MACQUIRE", &more], &names[..], &["EX", "5"]].concat());
    assert!(reply.error().starts_with("ERR numkeys "), "{reply:?}");
    let twice = [&["LOCK.MRELEASE", &count], &names[..MOST - 1], &["k5", &token]].concat();
    assert_eq!(conn.call(&twice).error(), "ERR key 1024 is the same as key 6");
    // One of them held by another is enough to refuse all.
    assert_eq!(conn.int(&["LOCK.RELEASE", "k1000", &token]), 1);
    assert_eq!(conn.int(&extend), 0);
    assert_eq!(conn.int(&[&["LOCK.MRELEASE", &count], &names[..MOST], &[&token]].concat()), 1_023);
    assert_eq!(conn.int(&["DBSIZE"]), 0);
}

#[test]
fn a_set_of_the_same_length_that_takes_the_place_of_another_is_read_anew() {
    let server = Server::start();
    let mut conn = server.conn();
    let share =
        |conn: &mut _, key| -> Vec<String> { (0..4).map(|_| acquire(conn, &[key, "EX", "600", "SHARED"])).collect() };
    let (before, others) = (share(&mut conn, "k"), share(&mut conn, "other"));
    conn.ok(&["RENAME", "other", "k"]);
    for (gone, there) in before.iter().zip(&others) {
        assert_eq!(conn.int(&["LOCK.CHECK", "k", gone]), 0);
        assert!(conn.int(&["LOCK.CHECK", "k", there]) > 0);
        assert_eq!(conn.int(&["LOCK.RELEASE", "k", gone]), 0);
    }
    assert_eq!(conn.int(&["ZCARD", "k"]), 4);
}
