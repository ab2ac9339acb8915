//! Several holders and several keys over a restart in the middle of their leases: from the AOF as it was written,
//! from one that was rewritten, from the RDB; and what a server without the module reads.

use super::{acquire, acquire_all};
use crate::support::{expire_at_ms, temp_dir, until, Conn, Reply, Server};
use std::fs;

const AOF: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

fn set_of(conn: &mut Conn, key: &str) -> (Reply, i64) {
    (conn.call(&["ZRANGE", key, "0", "-1", "WITHSCORES"]), expire_at_ms(conn, key))
}

/// Holders of all kinds, one of them ended by the restart; then the same server anew.
fn over_a_restart(args: &[&str], before_the_end: impl Fn(&mut Conn)) {
    let dir = temp_dir();
    let start = || Server::with().dir(&dir).args(args).module_args(&["margin-ms", "0"]).start();
    let server = start();
    let mut conn = server.conn();
    let long = acquire(&mut conn, &["k", "EX", "600", "LIMIT", "3", "ID", "7", "OWNER", "alice"]);
    let short = acquire(&mut conn, &["k", "PX", "300", "LIMIT", "3", "OWNER", "bob"]);
    let bob = format!("{short} bob");
    let third = acquire(&mut conn, &["k", "EX", "60", "SHARED"]);
    let all = acquire_all(&mut conn, &["a", "b"], &["EX", "600", "ID", "8"]);
    let brief = acquire(&mut conn, &["brief", "PX", "300", "SHARED"]);
    let before = set_of(&mut conn, "k");
    before_the_end(&mut conn);
    server.signal("KILL");
    drop(server);

    let server = start();
    let mut conn = server.conn();
    assert_eq!(set_of(&mut conn, "k"), before);
    assert!(conn.int(&["LOCK.CHECK", "k", &long]) > 500_000);
    assert_eq!(acquire(&mut conn, &["k", "EX", "600", "LIMIT", "3", "ID", "7"]), long, "the same attempt");
    assert_eq!(acquire_all(&mut conn, &["b", "a"], &["EX", "600", "ID", "8"]), all);
    // The limit still holds, until the short lease is over.
    let details = until("its place is free", || {
        let reply = conn.call(&["LOCK.ACQUIRE", "k", "EX", "60", "LIMIT", "3", "DETAILS"]);
        assert_eq!(reply.is_nil(), conn.int(&["ZCARD", "k"]) == 3 && conn.call(&["ZSCORE", "k", &bob]) != Reply::Nil);
        (!reply.is_nil()).then_some(reply)
    });
    assert_eq!(details.list()[2..], [Reply::Int(short.parse().unwrap()), Reply::Text(b"bob".to_vec())]);
    let next = details.list()[0].int().to_string();
    assert!(next > all, "tokens grow");
    assert!(conn.call(&["LOCK.ACQUIRE", "k", "EX", "60", "LIMIT", "3"]).is_nil());
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &short]), 0);
    assert_eq!(conn.int(&["LOCK.MEXTEND", "2", "a", "b", &all, "EX", "5"]), 1);
    for token in [&long, &third, &next] {
        assert_eq!(conn.int(&["LOCK.RELEASE", "k", token]), 1);
    }
    until("it is expired", || (conn.call(&["LOCK.INFO", "brief"]).field("state").text() == "expired").then_some(()));
    let details = conn.call(&["LOCK.RECOVER", "brief", "EX", "5"]);
    assert_eq!(details.list()[2].int().to_string(), brief);
    drop(server);
    let _ = fs::remove_dir_all(&dir);
}

#[test]
fn from_the_aof_as_it_was_written() {
    over_a_restart(AOF, |_| {});
}

#[test]
fn from_an_aof_that_was_rewritten_and_written_on() {
    over_a_restart(AOF, |conn| {
        conn.call(&["BGREWRITEAOF"]);
        until("it is rewritten", || {
            let info = conn.text(&["INFO", "persistence"]);
            let is_done = ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0", "aof_last_bgrewrite_status:ok"];
            is_done.iter().all(|line| info.contains(line)).then_some(())
        });
        let token = acquire(conn, &["after", "EX", "60", "SHARED"]);
        assert_eq!(conn.int(&["LOCK.RELEASE", "after", &token]), 1);
    });
}

#[test]
fn from_an_aof_without_a_preamble() {
    let plain = ["--appendonly", "yes", "--appendfsync", "always", "--aof-use-rdb-preamble", "no"];
    over_a_restart(&plain, |conn| {
        conn.call(&["BGREWRITEAOF"]);
        until("it is rewritten", || {
            let info = conn.text(&["INFO", "persistence"]);
            let is_done = ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0", "aof_last_bgrewrite_status:ok"];
            is_done.iter().all(|line| info.contains(line)).then_some(())
        });
    });
}

#[test]
fn from_the_rdb() {
    over_a_restart(&[], |conn| conn.ok(&["SAVE"]));
}

#[test]
fn a_reload_in_the_middle_frees_no_place_and_the_line_goes_on() {
    for command in ["RELOAD", "LOADAOF"] {
        let server = Server::with().args(AOF).module_args(&["margin-ms", "0"]).start();
        let mut locks = crate::waiting::Locks::on(server);
        let tokens: Vec<String> = (0..5).map(|_| acquire(&mut locks.conn, &["k", "EX", "60", "LIMIT", "5"])).collect();
        let mut limited = locks.wait(&["LIMIT", "5"]);
        let mut all = locks.wait_with(&["LOCK.MACQUIRE", "2", "k", "l", "EX", "60", "WAIT", "60000"]);
        locks.conn.ok(&["DEBUG", command]);
        limited.assert_waits();
        all.assert_waits();
        for token in &tokens {
            locks.release(token);
        }
        let token = limited.granted();
        all.assert_waits();
        locks.release(token);
        all.granted();
    }
}

#[test]
fn a_server_without_the_module_reads_and_keeps_the_holders() {
    let dir = temp_dir();
    let start = |options: crate::support::Options| options.dir(&dir).args(AOF).start();
    let server = start(Server::with());
    let mut conn = server.conn();
    let token = acquire(&mut conn, &["k", "EX", "600", "SHARED", "OWNER", "alice"]);
    acquire(&mut conn, &["k", "EX", "300", "SHARED", "ID", "9"]);
    let before = set_of(&mut conn, "k");
    drop(server);
    let plain = start(Server::with().without_module());
    assert_eq!(set_of(&mut plain.conn(), "k"), before);
    drop(plain);
    let server = start(Server::with());
    let mut conn = server.conn();
    assert_eq!(set_of(&mut conn, "k"), before);
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &token]), 1);
    drop(server);
    let _ = fs::remove_dir_all(&dir);
}
