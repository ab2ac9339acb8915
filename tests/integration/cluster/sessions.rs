//! SESSION in a cluster: a connection that ends before its master is replaced ends its lock on the new master too; a
//! connection that ends later ends nothing there, and the lease bounds the lock. The same applies to a slot that moves,
//! and to a server that is restarted.

use super::failover::until_replicated;
use super::nodes::Move;
use super::{in_memory, Cluster};
use std::fs;
use testkit::{temp_dir, until, Conn, Reply, Server};

/// Takes a lock with SESSION for a minute.
fn session(conn: &mut Conn, key: &str) -> String {
    conn.int(&["LOCK.ACQUIRE", key, "PX", "60000", "SESSION"]).to_string()
}

/// Two connections take a lock each; only one of them ends before `change` moves the locks to another master.
fn sessions_through(cluster: &Cluster, tag: &str, change: impl FnOnce(&str)) {
    let (early, late) = (format!("{{{tag}}}early"), format!("{{{tag}}}late"));
    let old = cluster.master_of(&early);
    let (mut ends_before, mut ends_after) = (old.conn(), old.conn());
    let token = session(&mut ends_before, &early);
    let late_token = session(&mut ends_after, &late);
    assert_eq!(old.number(&["INFO", "lock"], "lock_sessions"), Some(2));
    drop(ends_before);
    until("its lock has expired", || (old.conn().state(&early) == "expired").then_some(()));
    until_replicated(old);
    change(&early);

    let mut conn = cluster.master_of(&early).conn();
    assert_eq!(conn.state(&early), "expired");
    let details = conn.execute(&["LOCK.ACQUIRE", &early, "PX", "1000", "DETAILS"]);
    assert_eq!(details.list()[2].int().to_string(), token, "its successor sees the earlier grant");
    assert_eq!(conn.state(&late), "held");
    assert!(conn.lock(&late, "session").is_nil());
    drop(ends_after);
    until("the old master has no session", || {
        (old.number(&["INFO", "lock"], "lock_sessions") == Some(0)).then_some(())
    });
    cluster.wait_until_healthy();
    assert_eq!(conn.state(&late), "held", "the lease bounds it");
    assert_eq!(conn.int(&["LOCK.RELEASE", &late, &late_token]), 1);
    old.assert_sound();
}

#[test]
fn an_ended_session_stays_ended_after_a_failover() {
    let cluster = in_memory();
    sessions_through(&cluster, "session-failover", |key| {
        let (old, _) = cluster.fail_over(key, &[]);
        assert_eq!(old.number(&["INFO", "lock"], "lock_sessions"), Some(0), "a replica ends no lock");
    });
}

#[test]
fn a_session_does_not_move_with_its_slot() {
    let cluster = in_memory();
    sessions_through(&cluster, "session-slot", |key| {
        Move::all(cluster.master_of(key), cluster.other_master(key), key);
    });
}

#[test]
fn an_id_renews_its_session_at_the_new_master() {
    let cluster = in_memory();
    let key = "{session-again}lock";
    let take = ["LOCK.ACQUIRE", key, "PX", "60000", "SESSION", "ID", "7"];
    let mut holder = cluster.master_of(key).conn();
    let token = holder.int(&take);
    until_replicated(cluster.master_of(key));
    let (_, new) = cluster.fail_over(key, &[]);
    let mut there = new.conn();
    assert_eq!(there.int(&take), token, "the same grant");
    // The end of the old connection no longer matters; the end of the new one does.
    drop(holder);
    assert_eq!(new.conn().state(key), "held");
    drop(there);
    until("it ends with the new connection", || (new.conn().state(key) == "expired").then_some(()));
}

#[test]
fn a_restart_ends_a_session_and_keeps_its_lock() {
    for (name, settings) in [("AOF", ["--appendonly", "yes"]), ("RDB", ["--save", "900 1"])] {
        let dir = temp_dir();
        let start = || Server::with().args(&settings).module_args(&["margin-ms", "0"]).dir(&dir).start();
        let mut server = start();
        let mut holder = server.conn();
        let token = session(&mut holder, "k");
        // Connections that a SHUTDOWN closes end no lock: their holders may still be working.
        server.conn().send(&["SHUTDOWN", "SAVE"]);
        server.wait_end();
        assert!(matches!(holder.try_read(), Err(_) | Ok(Reply::Error(_))));
        let server = start();
        let mut conn = server.conn();
        assert_eq!(conn.state("k"), "held", "{name}");
        assert!(conn.lock("k", "session").is_nil(), "{name}");
        let mut waiter = server.waiter(&["LOCK.ACQUIRE", "k", "PX", "1000", "WAIT", "60000", "SESSION"]);
        assert_eq!(conn.int(&["LOCK.RELEASE", "k", &token]), 1, "{name}");
        assert!(waiter.read().int() > token.parse().unwrap(), "{name}");
        drop(server);
        fs::remove_dir_all(&dir).unwrap();
    }
}
