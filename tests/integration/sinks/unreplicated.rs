//! Without an AOF or replica, a change is only counted. A new sink gets all changes in a snapshot, followed by the
//! stream.

use super::{unreplicated, until_no_sink, write};
use crate::kinds::Row;
use crate::replication::Stream;
use std::fs;
use testkit::{encoded, temp_dir, until, Conn, Reply, Server};

/// One tick each second: a sink that only the tick can detect is detected late.
const SLOW: [&str; 6] = ["--hz", "1", "--dynamic-hz", "no", "--repl-diskless-sync-delay", "0"];

/// Changes of each kind and their effects. TOKEN is the last token in a reply.
const CHANGES: [(&[&str], i64); 13] = [
    (&["LOCK.ACQUIRE", "k", "PX", "60000"], 1),
    (&["LOCK.EXTEND", "k", "TOKEN", "PX", "70000"], 1),
    (&["LOCK.ACQUIRE", "k", "PX", "60000"], 0),
    (&["LOCK.RELEASE", "k", "TOKEN"], 1),
    (&["LOCK.ACQUIRE", "s", "PX", "60000", "SHARED"], 2),
    (&["LOCK.ACQUIRE", "s", "PX", "50000", "SHARED"], 1),
    (&["LOCK.EXTEND", "s", "TOKEN", "PX", "90000"], 2),
    (&["LOCK.RELEASE", "s", "TOKEN"], 2),
    (&["LOCK.MACQUIRE", "3", "a", "b", "c", "PX", "60000"], 3),
    (&["LOCK.MEXTEND", "3", "a", "b", "c", "TOKEN", "PX", "80000"], 3),
    (&["LOCK.MRELEASE", "3", "a", "b", "c", "TOKEN"], 1),
    (&["LOCK.ACQUIRE", "i", "PX", "60000", "ID", "7"], 1),
    (&["LOCK.CANCEL", "i", "7"], 1),
];

/// Applies all changes. Returns by how much each raised the server's dirty counter.
fn dirt(conn: &mut Conn) -> Vec<i64> {
    let mut token = String::new();
    let dirty =
        |conn: &mut Conn| -> i64 { conn.info("persistence", "rdb_changes_since_last_save").unwrap().parse().unwrap() };
    let mut change = |command: &[&str]| {
        let before = dirty(conn);
        let command: Vec<&str> = command.iter().map(|word| if *word == "TOKEN" { &token } else { *word }).collect();
        match conn.execute(&command) {
            Reply::Int(number) if number > 1 => token = number.to_string(),
            Reply::Error(text) => panic!("{command:?}: {text}"),
            _ => {}
        }
        dirty(conn) - before
    };
    CHANGES.iter().map(|(command, _)| change(command)).collect()
}

#[test]
fn an_unreplicated_write_counts_for_the_save_points() {
    let (with_aof, mut conn) = Server::with().args(&["--appendonly", "yes"]).connected();
    let expected: Vec<i64> = CHANGES.iter().map(|(_, effects)| *effects).collect();
    assert_eq!(dirt(&mut conn), expected);
    assert_eq!(unreplicated(&mut conn), 0);
    drop(with_aof);
    let (_server, mut conn) = Server::with().args(&SLOW).connected();
    if until_no_sink(&mut conn) {
        let before = unreplicated(&mut conn);
        assert_eq!(dirt(&mut conn), expected);
        assert_eq!(unreplicated(&mut conn) - before, u64::try_from(expected.iter().sum::<i64>()).unwrap());
    }
}

#[test]
fn every_sink_gets_every_write() {
    let rows: [(&str, &[&str]); 2] =
        [("an AOF", &["--appendonly", "yes"]), ("a cluster", &["--cluster-enabled", "yes"])];
    for (name, args) in rows {
        let _row = Row::of(name);
        let (_server, mut conn) = Server::with().args(args).connected();
        if name == "a cluster" {
            conn.ok(&[&["CLUSTER", "ADDSLOTS"][..], &slots().iter().map(String::as_str).collect::<Vec<_>>()].concat());
            until("the cluster serves", || (conn.info("cluster", "cluster_enabled")? == "1").then_some(()));
            until("the slots are served", || {
                matches!(conn.execute(&["LOCK.ACQUIRE", "up", "PX", "1"]), Reply::Int(_)).then_some(())
            });
        }
        for _ in 0..30 {
            write(&mut conn);
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(unreplicated(&mut conn), 0);
    }
    let _row = Row::of("a backlog without a replica");
    let (server, mut conn) = Server::with().args(&["--repl-diskless-sync-delay", "0"]).connected();
    drop(server.replication_stream());
    until("the replica has left", || (conn.info("replication", "connected_slaves")? == "0").then_some(()));
    for _ in 0..30 {
        write(&mut conn);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(unreplicated(&mut conn), 0);
}

fn slots() -> Vec<String> {
    (0..16_384).map(|slot| slot.to_string()).collect()
}

#[test]
fn a_new_replica_gets_the_very_next_write() {
    let (server, mut conn) = Server::with().args(&SLOW).connected();
    if !until_no_sink(&mut conn) {
        return;
    }
    let feed = server.sent(&["SYNC"]);
    // The server has forked by now. The child will end, and the next tick will happen, some time later. While the child
    // runs, one of the server's flags shows that, too.
    until("the replica is connected", || (conn.info("replication", "connected_slaves")? == "1").then_some(()));
    hears_of_every_change(&server, &mut conn, feed.after_rdb());
}

/// Asserts that each change is now in the replication stream, but not as a LOCK.* command.
fn hears_of_every_change(server: &Server, conn: &mut Conn, feed: Conn) {
    let before = unreplicated(conn);
    dirt(conn);
    let commands = Stream::over(feed, server).take();
    let count = |name: &str| commands.iter().filter(|command| command[0].eq_ignore_ascii_case(name)).count();
    assert!(commands.iter().all(|command| !command[0].to_uppercase().starts_with("LOCK.")), "{commands:?}");
    assert_eq!((count("SET"), count("ZADD"), count("DEL")), (9, 3, 3), "{commands:?}");
    assert_eq!(unreplicated(conn), before);
}

#[test]
fn a_diskless_replica_gets_the_next_write() {
    let (server, mut conn) = Server::with().args(&SLOW).args(&["--repl-diskless-sync", "yes"]).connected();
    if !until_no_sink(&mut conn) {
        return;
    }
    let mut feed = server.conn();
    feed.ok(&["REPLCONF", "capa", "eof"]);
    feed.send(&["PSYNC", "?", "-1"]);
    let mut feed = feed.after_rdb();
    // The server ends the child between two ticks, so only the fork reveals that there is a sink.
    until("the child is gone", || {
        feed.send(&["REPLCONF", "ACK", "0"]);
        (conn.info("persistence", "rdb_bgsave_in_progress")? == "0").then_some(())
    });
    hears_of_every_change(&server, &mut conn, feed);
}

#[test]
fn an_aof_that_is_turned_on_has_every_write() {
    let dir = temp_dir();
    let options = Server::with().dir(&dir).args(&SLOW);
    let (mut server, mut conn) = options.clone().connected();
    if !until_no_sink(&mut conn) {
        return;
    }
    let early = conn.int(&["LOCK.ACQUIRE", "early", "PX", "600000"]).to_string();
    // All commands are sent in one packet, so that no tick comes between them.
    let late: [&[&str]; 3] = [
        &["CONFIG", "SET", "appendonly", "yes"],
        &["LOCK.ACQUIRE", "late", "PX", "600000"],
        &["LOCK.ACQUIRE", "shared", "PX", "600000", "SHARED"],
    ];
    conn.send_bytes(&late.iter().flat_map(|command| encoded(command)).collect::<Vec<u8>>());
    let replies: Vec<Reply> = late.iter().map(|_| conn.read()).collect();
    until("the AOF is written", || {
        let info = conn.execute(&["INFO", "persistence"]);
        let is = |name: &str, value: &str| info.line(name).as_deref() == Some(value);
        (is("aof_enabled", "1") && is("aof_rewrite_in_progress", "0") && is("aof_rewrite_scheduled", "0")).then_some(())
    });
    conn.send(&["SHUTDOWN", "NOSAVE"]);
    server.wait_end();
    drop(server);
    let (server, mut conn) = options.args(&["--appendonly", "yes"]).connected();
    for (key, token) in
        [("early", &early), ("late", &replies[1].int().to_string()), ("shared", &replies[2].int().to_string())]
    {
        assert!(conn.int(&["LOCK.CHECK", key, token]) > 0, "{key}");
    }
    assert_eq!(conn.info("lock", "lock_replicated_refused").unwrap(), "0", "{}", server.log_tail(20));
    drop(server);
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn writes_of_transactions_and_scripts_are_always_replicated() {
    let (_server, mut conn) = Server::with().args(&SLOW).connected();
    if !until_no_sink(&mut conn) {
        return;
    }
    let before = unreplicated(&mut conn);
    conn.ok(&["MULTI"]);
    conn.execute(&["LOCK.ACQUIRE", "a", "PX", "60000"]);
    assert!(conn.execute(&["EXEC"]).list()[0].int() > 0);
    conn.int(&["EVAL", "return redis.call('LOCK.ACQUIRE', KEYS[1], 'PX', 60000)", "1", "b"]);
    assert_eq!(unreplicated(&mut conn), before);
    conn.int(&["LOCK.ACQUIRE", "c", "PX", "60000"]);
    assert_eq!(unreplicated(&mut conn), before + 1, "a plain write is not replicated before the next tick");
}

#[test]
fn an_idle_server_is_not_asked_about_sinks() {
    let (_server, mut conn) = Server::connected();
    if !until_no_sink(&mut conn) {
        return;
    }
    // Without a write since the last tick nothing is known, so the next write is replicated.
    until("a write is replicated", || {
        std::thread::sleep(std::time::Duration::from_millis(250));
        let before = unreplicated(&mut conn);
        conn.int(&["LOCK.ACQUIRE", "idle", "PX", "1"]);
        let is_replicated = unreplicated(&mut conn) == before;
        conn.execute(&["DEL", "idle"]);
        is_replicated.then_some(())
    });
    assert!(until_no_sink(&mut conn), "writes in a row are unreplicated again");
}
