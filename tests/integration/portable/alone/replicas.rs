//! Replicas get the effects of a call, so they need neither the library nor the script; a replica with the library can
//! check locks, and a new master continues where the old one stopped.

use super::{client, load, Way};
use crate::replication::Stream;
use testkit::{skipped, Conn, Reply, Server};

/// Every kind of write, called one way: take, extend, take over, release.
fn writes(conn: &mut Conn, way: &Way) {
    let token = way.execute(conn, "LOCK.ACQUIRE a PX 60000 ID 7 OWNER alice").int();
    assert!(way.execute(conn, "LOCK.ACQUIRE a PX 60000").is_nil());
    assert_eq!(way.execute(conn, &format!("LOCK.EXTEND a {token} EX 600")), Reply::Int(1));
    conn.ok(&["SET", "b", "1763710031.482913"]);
    assert_eq!(way.execute(conn, "LOCK.RECOVER b PX 60000").list().len(), 4);
    let token = way.execute(conn, "LOCK.ACQUIRE c PX 60000").int();
    assert_eq!(way.execute(conn, &format!("LOCK.RELEASE c {token}")), Reply::Int(1));
}

#[test]
fn a_replica_without_library_and_script_gets_the_same_keys() {
    let master = Server::with().without_module().args(&["--repl-diskless-sync-delay", "0"]).start();
    let replica = Server::with().without_module().args(&["--replica-read-only", "no"]).start();
    replica.replicate(&master);
    let (mut conn, mut there) = (master.conn(), replica.conn());
    for way in load(&mut conn) {
        if !conn.is_before_7() {
            master.wait_offset(&replica);
            there.ok(&["FUNCTION", "FLUSH"]);
        }
        there.ok(&["SCRIPT", "FLUSH"]);
        writes(&mut conn, &way);
        master.wait_offset(&replica);
        assert_eq!(there.text(&["DEBUG", "DIGEST"]), conn.text(&["DEBUG", "DIGEST"]), "{way:?}");
        conn.ok(&["FLUSHALL"]);
    }
}

#[test]
fn only_effects_of_writes_are_replicated() {
    let server = Server::with().without_module().args(&["--repl-diskless-sync-delay", "0"]).start();
    let mut conn = server.conn();
    let ways = load(&mut conn);
    let mut stream = Stream::of(&server);
    for way in ways {
        writes(&mut conn, &way);
        let commands: Vec<Vec<String>> = stream.take();
        let of = |key: &str| commands.iter().filter(|words| words.get(1).is_some_and(|word| word == key)).count();
        let names = ["MULTI", "EXEC", "SELECT", "SET", "PEXPIREAT", "DEL"];
        assert!(commands.iter().all(|words| names.contains(&&*words[0].to_uppercase())), "{way:?}: {commands:?}");
        // One of the two for `b` is this test's own SET; before 6.2 each write of a lock has a PEXPIREAT.
        let writes = if conn.version() < (false, 6, 2) { [4, 3, 3] } else { [2, 2, 2] };
        assert_eq!([of("a"), of("b"), of("c")], writes, "{way:?}: {commands:?}");
        let is_plain = |words: &[String]| words.iter().all(|word| !["NX", "XX", "GET"].contains(&&**word));
        assert!(commands.iter().all(|words| is_plain(words)), "no command has a condition: {commands:?}");
        for command in ["LOCK.ACQUIRE a PX 1", "LOCK.RECOVER a PX 1", "LOCK.EXTEND a 7 PX 1", "LOCK.RELEASE a 7"] {
            way.execute(&mut conn, command);
        }
        assert_eq!(stream.take(), Vec::<Vec<String>>::new(), "{way:?}");
        conn.ok(&["FLUSHALL"]);
        stream.take();
    }
}

#[test]
fn a_new_master_knows_the_holder_and_has_the_library() {
    let master = Server::with().without_module().args(&["--repl-diskless-sync-delay", "0"]).start();
    let replica = Server::with().without_module().start();
    replica.replicate(&master);
    let (mut conn, mut there) = (master.conn(), replica.conn());
    let ways = load(&mut conn);
    let tokens: Vec<i64> =
        ways.iter().map(|way| way.execute(&mut conn, &format!("LOCK.ACQUIRE {} PX 60000", key(way))).int()).collect();
    master.wait_offset(&replica);
    if !conn.is_before_7() {
        // From 7.0 on each server has its own scripts; a client loads the script when it gets NOSCRIPT.
        assert!(ways[0].execute(&mut there, "LOCK.CHECK script 7").error().starts_with("NOSCRIPT"));
        there.text(&["SCRIPT", "LOAD", &client::script()]);
    }
    for (way, token) in ways.iter().zip(&tokens) {
        let left = way.execute(&mut there, &format!("LOCK.CHECK {} {token}", key(way))).int();
        assert!((50_000..=60_000).contains(&left), "{way:?}: {left}");
    }
    there.ok(&["REPLICAOF", "NO", "ONE"]);
    for (way, token) in ways.iter().zip(&tokens) {
        assert!(way.execute(&mut there, &format!("LOCK.ACQUIRE {} PX 1000", key(way))).is_nil());
        assert_eq!(way.execute(&mut there, &format!("LOCK.RELEASE {} {token}", key(way))), Reply::Int(1));
        assert!(way.execute(&mut there, &format!("LOCK.ACQUIRE {} PX 1000", key(way))).int() > *token);
    }
}

fn key(way: &Way) -> &'static str {
    match way {
        Way::Function => "function",
        Way::Script(_) => "script",
    }
}

#[test]
fn the_script_asks_old_servers_to_replicate_effects() {
    let (server, mut conn, ways) = super::start();
    if !conn.is_before_7() {
        skipped("scripts that are replicated as they are", "7.0 and later replicate effects only");
        return;
    }
    conn.ok(&["DEBUG", "LUA-ALWAYS-REPLICATE-COMMANDS", "0"]);
    let mut stream = Stream::of(&server);
    writes(&mut conn, &ways[0]);
    assert!(stream.take().iter().all(|words| !words[0].to_uppercase().starts_with("EVAL")));
}
