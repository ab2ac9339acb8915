//! What replicas and files have of several holders and several locks: effects, each change as one.

use super::{acquire, acquire_all};
use crate::replication::Stream;
use crate::support::{temp_dir, until, Conn, Reply, Server};

fn set_of(conn: &mut Conn, key: &str) -> Reply {
    conn.call(&["ZRANGE", key, "0", "-1", "WITHSCORES"])
}

fn names(commands: &[Vec<String>]) -> Vec<String> {
    commands.iter().map(|command| command[0].to_uppercase()).collect()
}

#[test]
fn effects_are_those_of_a_sorted_set_in_one_transaction() {
    let server = Server::start();
    let mut conn = server.conn();
    let mut stream = Stream::of(&server);
    stream.take();
    let first = acquire(&mut conn, &["k", "EX", "60", "LIMIT", "2"]);
    let told = stream.take();
    assert_eq!(names(&told), ["MULTI", "ZADD", "PEXPIREAT", "EXEC"]);
    let timestamp = conn.call(&["LOCK.INFO", "k"]).field("timestamp").text();
    assert_eq!(told[1][1..], ["k".to_string(), timestamp, first.clone()]);
    let second = acquire(&mut conn, &["k", "EX", "30", "LIMIT", "2"]);
    assert_eq!(names(&stream.take()), ["ZADD"], "the key ends with the last of them, as it did");
    assert!(conn.call(&["LOCK.ACQUIRE", "k", "EX", "60", "LIMIT", "2"]).is_nil());
    assert_eq!(names(&stream.take()), [""; 0]);
    conn.int(&["LOCK.EXTEND", "k", &second, "EX", "90"]);
    assert_eq!(names(&stream.take()), ["MULTI", "ZADD", "PEXPIREAT", "EXEC"]);
    conn.int(&["LOCK.RELEASE", "k", &second]);
    assert_eq!(names(&stream.take()), ["MULTI", "ZREM", "PEXPIREAT", "EXEC"]);
    // A hand-off is one change. Within one millisecond, the same lease would end with the first.
    let mut waiter = server.conn();
    waiter.send(&["LOCK.ACQUIRE", "k", "EX", "61", "WAIT", "60000", "LIMIT", "1"]);
    until("it waits", || (conn.call(&["LOCK.INFO", "k"]).field("waiters").int() == 1).then_some(()));
    conn.int(&["LOCK.RELEASE", "k", &first]);
    let third = waiter.read().int().to_string();
    assert_eq!(names(&stream.take()), ["MULTI", "ZADD", "ZREM", "PEXPIREAT", "EXEC"]);
    conn.int(&["LOCK.RELEASE", "k", &third]);
    assert_eq!(names(&stream.take()), ["ZREM"]);
}

#[test]
fn several_locks_are_replicated_as_one_change() {
    let server = Server::start();
    let mut conn = server.conn();
    let mut stream = Stream::of(&server);
    stream.take();
    let token = acquire_all(&mut conn, &["a", "b"], &["EX", "60"]);
    assert_eq!(names(&stream.take()), ["MULTI", "SET", "SET", "EXEC"]);
    conn.int(&["LOCK.MEXTEND", "2", "a", "b", &token, "EX", "70"]);
    assert_eq!(names(&stream.take()), ["MULTI", "SET", "SET", "EXEC"]);
    let mut waiter = server.conn();
    waiter.send(&["LOCK.MACQUIRE", "2", "b", "a", "EX", "60", "WAIT", "60000"]);
    until("it waits", || (conn.call(&["LOCK.INFO", "b"]).field("waiters").int() == 1).then_some(()));
    conn.int(&["LOCK.MRELEASE", "2", "a", "b", &token]);
    waiter.read().int();
    assert_eq!(names(&stream.take()), ["MULTI", "DEL", "DEL", "SET", "SET", "EXEC"]);
}

#[test]
fn a_replica_has_the_same_holders_and_tells_of_them() {
    let (master, replica) = (Server::start(), Server::start());
    replica.replicate(&master);
    let mut conn = master.conn();
    let tokens: Vec<String> =
        (0..40).map(|_| acquire(&mut conn, &["k", "EX", "60", "SHARED", "OWNER", "me"])).collect();
    conn.int(&["LOCK.EXTEND", "k", &tokens[20], "EX", "300"]);
    conn.int(&["LOCK.RELEASE", "k", &tokens[7]]);
    let all = acquire_all(&mut conn, &["a", "b"], &["EX", "60"]);
    master.wait_offset(&replica);
    let mut there = replica.conn();
    assert_eq!(set_of(&mut there, "k"), set_of(&mut conn, "k"));
    assert!(there.int(&["LOCK.CHECK", "k", &tokens[20]]) > 250_000);
    assert_eq!(there.int(&["LOCK.CHECK", "k", &tokens[7]]), 0);
    assert!(there.int(&["LOCK.CHECK", "b", &all]) > 0);
    // What changed in the middle, behind the back of the replica, is seen there.
    conn.int(&["LOCK.EXTEND", "k", &tokens[10], "EX", "200"]);
    master.wait_offset(&replica);
    assert!(there.int(&["LOCK.CHECK", "k", &tokens[10]]) > 150_000);
    for call in [&["LOCK.ACQUIRE", "k", "EX", "5", "SHARED"][..], &["LOCK.MACQUIRE", "1", "z", "EX", "5"]] {
        assert!(there.call(call).error().starts_with("READONLY "));
    }
    assert_eq!(there.call(&["LOCK.INFO", "k", "FULL"]).field("holders").list().len(), 39);
}

#[test]
fn holders_outlive_the_server_in_aof_and_rdb() {
    for (name, args) in [("AOF", &["--appendonly", "yes", "--appendfsync", "always"][..]), ("RDB", &[])] {
        let dir = temp_dir();
        let mut server = Server::with().dir(&dir).args(args).start();
        let mut conn = server.conn();
        let tokens: Vec<String> =
            (0..30).map(|_| acquire(&mut conn, &["k", "EX", "60", "LIMIT", "30", "ID", "7"])).collect();
        assert!(tokens.iter().all(|token| *token == tokens[0]), "one attempt");
        let tokens: Vec<String> = (0..29).map(|_| acquire(&mut conn, &["k", "EX", "60", "LIMIT", "30"])).collect();
        conn.int(&["LOCK.RELEASE", "k", &tokens[3]]);
        let all = acquire_all(&mut conn, &["a", "b"], &["EX", "60"]);
        let before = set_of(&mut conn, "k");
        conn.send(if name == "RDB" { &["SHUTDOWN", "SAVE"] } else { &["SHUTDOWN", "NOSAVE"] });
        server.wait_end();
        drop(server);
        let server = Server::with().dir(&dir).args(args).start();
        let mut conn = server.conn();
        assert_eq!(set_of(&mut conn, "k"), before, "{name}");
        assert!(conn.int(&["LOCK.CHECK", "k", &tokens[5]]) > 0, "{name}");
        assert_eq!(conn.int(&["LOCK.MEXTEND", "2", "a", "b", &all, "EX", "60"]), 1, "{name}");
        // One place is free, as before.
        let next = acquire(&mut conn, &["k", "EX", "60", "LIMIT", "30"]);
        assert!(next > tokens[28], "{name}: tokens grow");
        assert!(conn.call(&["LOCK.ACQUIRE", "k", "EX", "60", "LIMIT", "30"]).is_nil(), "{name}");
        drop(server);
        let _ = std::fs::remove_dir_all(&dir);
    }
}
