//! Server commands that the module cannot call: removed by rename-command, or refused by another module.

use crate::waiting::Locks;
use testkit::{shared_object, skipped, Conn, Reply, Server};

#[test]
fn a_missing_server_command_stops_the_load() {
    for (command, name) in [
        ("SET", ""),
        ("set", "xset"),
        ("DEL", ""),
        ("ZADD", ""),
        ("ZREM", "other"),
        ("PEXPIREAT", ""),
        ("PERSIST", ""),
        ("EXISTS", ""),
    ] {
        let Err(log) = Server::with().args(&["--rename-command", command, name]).try_start() else {
            panic!("a server started without {command}")
        };
        let said: Vec<_> = log.lines().filter(|line| line.contains("the module is not loaded")).collect();
        let upper = command.to_ascii_uppercase();
        assert!(said.len() == 1 && said[0].contains(&upper) && said[0].contains("rename-command"), "{command}:\n{log}");
    }
}

#[test]
fn the_module_works_without_commands_that_it_does_not_need() {
    let away = ["FLUSHALL", "FLUSHDB", "KEYS", "CONFIG", "DEBUG", "RENAME", "UNLINK", "GETSET", "EXPIRE"];
    let args: Vec<&str> = away.iter().flat_map(|command| ["--rename-command", command, ""]).collect();
    let (_server, mut conn) = Server::with().args(&args).module_args(&["failover-grace-ms", "1"]).connected();
    assert!(conn.execute(&["CONFIG", "GET", "maxclients"]).error().starts_with("ERR unknown command"));
    assert!(conn.execute(&["LOCK.ACQUIRE", "k", "EX", "5"]).error().starts_with("GRACE lease is longer"));
    let (_server, mut conn) = Server::with().args(&args).connected();
    let token = conn.int(&["LOCK.ACQUIRE", "k", "EX", "5"]).to_string();
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &token]), 1);
}

/// A server with a second module that refuses to change the key `a-refused`.
fn refusing() -> Option<Locks> {
    let Some(filter) = shared_object("refuse_filter") else {
        skipped("refused locks", "there is no C compiler to build a module that refuses commands");
        return None;
    };
    let mut locks = Locks::on(Server::with().module_args(&["margin-ms", "0"]).start());
    locks.conn.ok(&["MODULE", "LOAD", filter.to_str().unwrap()]);
    assert!(matches!(locks.conn.execute(&["SET", "a-refused", "1"]), Reply::Error(_)), "the filter refuses the write");
    Some(locks)
}

/// A client that waits for a lock.
fn waiter(locks: &Locks, key: &str) -> Conn {
    locks.server.waiter(&["LOCK.ACQUIRE", key, "PX", "60000", "WAIT", "60000"])
}

fn refusals_logged(locks: &Locks) -> usize {
    locks.server.log().matches("the server refuses to run SET for the module").count()
}

#[test]
fn an_unwritable_lock_delays_no_other_and_is_logged_once() {
    let Some(mut locks) = refusing() else { return };
    for key in ["a-refused", "b-fine"] {
        locks.conn.int(&["LOCK.ACQUIRE", key, "PX", "1000"]);
    }
    // The waiter that cannot be served came first.
    let mut stuck = waiter(&locks, "a-refused");
    let mut fine = waiter(&locks, "b-fine");
    fine.read().int();
    for key in ["c-fine", "d-fine"] {
        locks.conn.int(&["LOCK.ACQUIRE", key, "PX", "1000"]);
    }
    for mut others in ["c-fine", "d-fine"].map(|key| waiter(&locks, key)) {
        others.read().int();
    }
    assert!(stuck.no_reply_within(std::time::Duration::from_millis(100)));
    assert_eq!(refusals_logged(&locks), 1, "{}", locks.server.log_tail(20));
    // Once the server allows the write, the queue moves on.
    locks.conn.ok(&["MODULE", "UNLOAD", "refuse"]);
    stuck.read().int();
}

#[test]
fn an_unwritable_session_end_delays_no_other() {
    let Some(mut locks) = refusing() else { return };
    let mut sessions = locks.server.conn();
    for key in ["a-refused", "b-fine", "c-fine"] {
        sessions.int(&["LOCK.ACQUIRE", key, "PX", "600000", "SESSION"]);
    }
    drop(sessions);
    for key in ["b-fine", "c-fine"] {
        acquire(&mut locks, key);
    }
    assert_eq!(refusals_logged(&locks), 1, "{}", locks.server.log_tail(20));
    locks.conn.ok(&["MODULE", "UNLOAD", "refuse"]);
    acquire(&mut locks, "a-refused");
}

#[test]
fn a_stuck_lost_grant_delays_no_other() {
    let Some(mut locks) = refusing() else { return };
    let mut dead = Vec::new();
    let mut commands: Vec<Vec<String>> = Vec::new();
    for key in ["a-refused", "b-fine", "c-fine"] {
        let token = locks.conn.int(&["LOCK.ACQUIRE", key, "PX", "600000"]).to_string();
        let mut conn = locks.server.conn();
        let id = conn.int(&["CLIENT", "ID"]).to_string();
        conn.send(&["LOCK.ACQUIRE", key, "PX", "600000", "WAIT", "60000"]);
        locks.conn.until_waiters(key, 1);
        commands.push(["LOCK.RELEASE", key, &token].map(String::from).to_vec());
        commands.push(["CLIENT", "KILL", "ID", &id].map(String::from).to_vec());
        dead.push(conn);
    }
    // All in one iteration: the release grants the lock to the client, which is dead before the reply leaves.
    let commands: Vec<Vec<&str>> = commands.iter().map(|words| words.iter().map(String::as_str).collect()).collect();
    let commands: Vec<&[&str]> = commands.iter().map(Vec::as_slice).collect();
    assert!(locks.in_one_turn(&commands).iter().all(|reply| *reply == Reply::Int(1)));
    for key in ["b-fine", "c-fine"] {
        acquire(&mut locks, key);
    }
    locks.conn.ok(&["MODULE", "UNLOAD", "refuse"]);
    acquire(&mut locks, "a-refused");
}

/// A client that asks for an abandoned lock gets it, at once or soon.
fn acquire(locks: &mut Locks, key: &str) {
    locks.conn.int(&["LOCK.ACQUIRE", key, "PX", "600000", "WAIT", "10000"]);
}
