//! While the server must not be written to outside of a command, or may not grant, neither those who share a lock
//! nor those who want several are granted any; afterwards the line goes on in its order.

use super::{acquire, acquire_all};
use crate::support::{temp_dir, until, Conn, Reply, Server};
use crate::waiting::{Locks, Waiter};
use std::fs;

/// An AOF makes a forbidden write fatal to the server.
fn with_aof() -> Locks {
    let args = ["--appendonly", "yes", "--repl-diskless-sync-delay", "0"];
    Locks::on(Server::with().args(&args).module_args(&["margin-ms", "0"]).start())
}

/// `k` is held by two for a moment; in line are one who bears two, one who wants `k` and `l`, two who share.
fn line(locks: &mut Locks, lease: &str) -> [Waiter; 4] {
    for _ in 0..2 {
        acquire(&mut locks.conn, &["k", "PX", lease, "SHARED"]);
    }
    let limited = locks.wait(&["LIMIT", "2", "DETAILS"]);
    let all = locks.wait_with(&["LOCK.MACQUIRE", "2", "k", "l", "PX", "30000", "WAIT", "30000"]);
    [limited, all, locks.wait(&["SHARED"]), locks.wait(&["SHARED"])]
}

/// All are served: those who share with the first, then the one who wants several.
fn serve(locks: &mut Locks, line: &mut [Waiter; 4]) {
    let [limited, all, readers @ ..] = line;
    let mut tokens = vec![limited.granted()];
    tokens.extend(readers.iter_mut().map(Waiter::granted));
    all.assert_waits();
    for token in tokens {
        locks.release(token);
    }
    let token = all.granted().to_string();
    assert_eq!(locks.conn.int(&["LOCK.MRELEASE", "2", "k", "l", &token]), 2);
    assert_eq!(locks.server.log().matches("crashed by signal").count(), 0);
}

#[test]
fn nothing_is_granted_while_clients_are_paused() {
    for mode in ["WRITE", "ALL"] {
        let mut locks = with_aof();
        let mut waiters = line(&mut locks, "2000");
        // In one turn, so that whatever is due comes when clients are paused already.
        locks.in_one_turn(&[&["DEL", "k"], &["CLIENT", "PAUSE", if mode == "ALL" { "600" } else { "60000" }, mode]]);
        if mode == "WRITE" {
            waiters[0].assert_waits();
            waiters[1].assert_waits();
            assert_eq!(locks.conn.int(&["EXISTS", "k", "l"]), 0);
            locks.conn.ok(&["CLIENT", "UNPAUSE"]);
        }
        serve(&mut locks, &mut waiters);
    }
}

#[test]
fn sessions_that_end_in_a_pause_end_after_it_for_all_keys() {
    let mut locks = with_aof();
    let mut dying = locks.server.conn();
    let shared = acquire(&mut dying, &["k", "EX", "60", "SHARED", "SESSION"]);
    let all = acquire_all(&mut dying, &["a", "b"], &["EX", "60", "SESSION"]);
    let id = dying.int(&["CLIENT", "ID"]).to_string();
    let mut waiter = locks.wait_with(&["LOCK.MACQUIRE", "3", "a", "b", "k", "EX", "60", "WAIT", "60000"]);
    locks.in_one_turn(&[&["CLIENT", "PAUSE", "60000", "WRITE"], &["CLIENT", "KILL", "ID", &id]]);
    waiter.assert_waits();
    assert!(locks.conn.int(&["LOCK.CHECK", "k", &shared]) > 0);
    assert!(locks.conn.int(&["LOCK.CHECK", "b", &all]) > 0);
    locks.conn.ok(&["CLIENT", "UNPAUSE"]);
    waiter.granted();
}

#[test]
fn short_of_good_replicas_nobody_is_granted_whatever_it_waits_for() {
    let mut locks = with_aof();
    // Longer than the module may take to know of the setting where the server does not tell.
    let mut waiters = line(&mut locks, "3000");
    locks.conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    for call in ["LOCK.ACQUIRE k PX 9 SHARED", "LOCK.ACQUIRE x PX 9 LIMIT 2", "LOCK.MACQUIRE 2 x y PX 9"] {
        let reply = locks.conn.call(&call.split(' ').collect::<Vec<_>>());
        assert!(reply.error().starts_with("NOREPLICAS "), "{call}: {reply:?}");
    }
    let is_over = |conn: &mut Conn| conn.call(&["LOCK.INFO", "k"]).field("state").text() == "expired";
    until("the leases are over", || is_over(&mut locks.conn).then_some(()));
    for waiter in &mut waiters {
        waiter.assert_waits();
    }
    let replica = Server::start();
    replica.replicate(&locks.server);
    serve(&mut locks, &mut waiters);
    locks.server.wait_offset(&replica);
    assert_eq!(replica.conn().text(&["DEBUG", "DIGEST"]), locks.conn.text(&["DEBUG", "DIGEST"]));
}

fn is_grace(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with("GRACE "))
}

/// A server that had these holders before it started, in its grace.
fn in_grace(args: &[&str], grace: &str, work: impl FnOnce(&mut Locks, &str, &str)) {
    let dir = temp_dir();
    let mut server = Server::with().dir(&dir).start();
    let mut conn = server.conn();
    let shared = acquire(&mut conn, &["k", "EX", "600", "SHARED"]);
    acquire(&mut conn, &["k", "EX", "600", "SHARED"]);
    let all = acquire_all(&mut conn, &["a", "b"], &["EX", "600"]);
    conn.send(&["SHUTDOWN", "SAVE"]);
    server.wait_end();
    drop(server);
    let mut locks = Locks::on(Server::with().dir(&dir).args(args).module_args(&["failover-grace-ms", grace]).start());
    work(&mut locks, &shared, &all);
    drop(locks);
    let _ = fs::remove_dir_all(&dir);
}

#[test]
fn in_the_grace_nobody_is_granted_and_those_who_hold_go_on() {
    in_grace(&[], "60000", |locks, shared, all| {
        let conn = &mut locks.conn;
        for call in [
            "LOCK.ACQUIRE free EX 5 SHARED",
            "LOCK.ACQUIRE free EX 5 LIMIT 3 DETAILS",
            "LOCK.MACQUIRE 2 free other EX 5",
        ] {
            let reply = conn.call(&call.split(' ').collect::<Vec<_>>());
            assert!(is_grace(&reply), "{call}: {reply:?}");
        }
        assert_eq!(conn.int(&["EXISTS", "free", "other"]), 0);
        assert!(conn.call(&["LOCK.MACQUIRE", "2", "free", "a", "EX", "5"]).is_nil(), "one of them is held");
        // A lease that the grace does not cover.
        for call in [
            vec!["LOCK.ACQUIRE", "free", "EX", "59", "SHARED", "WAIT", "1000"],
            vec!["LOCK.MACQUIRE", "2", "free", "a", "EX", "59"],
            vec!["LOCK.MEXTEND", "2", "a", "b", all, "EX", "59"],
            vec!["LOCK.EXTEND", "k", shared, "EX", "59"],
        ] {
            let reply = conn.call(&call);
            assert!(reply.error().starts_with("GRACE lease is longer than "), "{call:?}: {reply:?}");
        }
        assert_eq!(conn.int(&["LOCK.MEXTEND", "2", "a", "b", all, "EX", "5"]), 1);
        assert_eq!(conn.int(&["LOCK.EXTEND", "k", shared, "EX", "5"]), 1);
        assert_eq!(conn.int(&["LOCK.MRELEASE", "2", "a", "b", all]), 2);
        assert_eq!(conn.int(&["LOCK.RELEASE", "k", shared]), 1);
        assert_eq!(conn.int(&["ZCARD", "k"]), 1);
    });
}

#[test]
fn in_the_grace_who_could_share_is_told_why_it_may_not() {
    in_grace(&[], "60000", |locks, _, _| {
        for call in ["LOCK.ACQUIRE k EX 5 SHARED", "LOCK.ACQUIRE k EX 5 LIMIT 3"] {
            let reply = locks.conn.call(&call.split(' ').collect::<Vec<_>>());
            assert!(is_grace(&reply), "{call}: {reply:?}");
        }
        // Whom others keep out is told of them.
        for call in ["LOCK.ACQUIRE k EX 5", "LOCK.ACQUIRE k EX 5 LIMIT 2"] {
            assert!(locks.conn.call(&call.split(' ').collect::<Vec<_>>()).is_nil(), "{call}");
        }
    });
}

#[test]
fn after_the_grace_those_who_waited_in_it_are_served() {
    in_grace(&["--min-replicas-max-lag", "1"], "6000", |locks, shared, all| {
        let mut sharing = locks.wait_with(&["LOCK.ACQUIRE", "k", "PX", "900", "WAIT", "60000", "SHARED"]);
        let mut several = locks.wait_with(&["LOCK.MACQUIRE", "3", "a", "b", "c", "PX", "900", "WAIT", "60000"]);
        locks.conn.int(&["LOCK.MRELEASE", "2", "a", "b", all]);
        locks.conn.int(&["LOCK.RELEASE", "k", shared]);
        sharing.assert_waits();
        several.assert_waits();
        assert!(locks.info("lock", "lock_grace_left_ms") > 0);
        for waiter in [&mut sharing, &mut several] {
            waiter.conn.set_patience(std::time::Duration::from_secs(60));
            waiter.granted();
        }
        assert_eq!(locks.info("lock", "lock_grace_left_ms"), 0);
    });
}
