//! A replica becomes master, through each of the three FAILOVER commands or because its master died. Waiters on the old
//! master get an error and no lock; the lock is on the new master, and still belongs to its holder; a timer that grants
//! constantly does no harm; and work goes on. This is tested with and without an AOF.

use super::follower::{take_turns, Work};
use super::nodes::Node;
use super::waiters::{assert_is_intact, fail_over, Waiters, MANY};
use super::{in_memory, with_aof, Cluster, Turn};
use testkit::cluster::WAYS;
use testkit::{until, Conn, Reply};

/// Waits until the replica has all of its master's writes.
pub fn until_replicated(master: &Node) {
    let question = ["INFO", "replication"];
    until("the replica has everything", || {
        let replica = master.field(&question, "slave0")?;
        let offset = replica.split(',').find_map(|part| part.strip_prefix("offset="))?.to_string();
        (Some(offset) == master.field(&question, "master_repl_offset")).then_some(())
    });
}

fn failover_with_waiters(cluster: &Turn) {
    for (n, way) in WAYS.iter().enumerate() {
        let key = &format!("{{failover-{n}}}lock");
        let old = cluster.master_of(key);
        let mut holder = old.conn();
        let token = holder.int(&["LOCK.ACQUIRE", key, "PX", "60000", "OWNER", "holder"]).to_string();
        let value = holder.text(&["GET", key]);
        until_replicated(old);
        let (old, new) = fail_over(cluster, Waiters::of(old, key, MANY), key, way);
        assert_is_intact(new, key, (&token, &value));
        cluster.wait_until_healthy();
        old.assert_sound();
        new.assert_sound();
    }
}

#[test]
fn a_failover_ends_waits_and_holders_go_on() {
    failover_with_waiters(&in_memory());
}

#[test]
fn a_failover_ends_waits_and_holders_go_on_with_an_aof() {
    failover_with_waiters(&with_aof());
}

/// Leases of 1 to 20 ms that nobody releases, so that a timer grants throughout a failover.
fn failover_with_busy_timers(cluster: &Turn) {
    for way in WAYS {
        let old = cluster.master_of("{busy-timers}");
        let mut clients: Vec<Conn> = (0..60).map(|_| old.conn()).collect();
        for (n, client) in clients.iter_mut().enumerate() {
            let (key, lease) = (format!("{{busy-timers}}{}", n % 20), (n % 20 + 1).to_string());
            // Each sends two hundred commands, one after the other.
            for _ in 0..200 {
                client.send(&["LOCK.ACQUIRE", &key, "PX", &lease, "WAIT", "60000"]);
            }
        }
        let hand_offs = || old.number(&["INFO", "lock"], "lock_hand_offs").unwrap();
        let before = hand_offs();
        until("timers grant", || (hand_offs() > before + 200).then_some(()));
        let (old, new) = cluster.fail_over("{busy-timers}", way);
        // No two clients have the same token.
        let mut tokens: Vec<(usize, i64)> = Vec::new();
        for (n, client) in clients.iter_mut().enumerate() {
            while let Ok(reply) = client.try_read() {
                match reply {
                    Reply::Int(token) => tokens.push((n % 20, token)),
                    Reply::Error(text) => {
                        assert!(text.starts_with("UNBLOCKED ") || text.starts_with("MOVED "), "{way:?}: {text}");
                        break;
                    }
                    other => panic!("{way:?}: {other:?}"),
                }
            }
        }
        let granted = tokens.len();
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), granted, "{way:?}");
        cluster.wait_until_healthy();
        old.assert_sound();
        new.assert_sound();
        assert_eq!(digest(old), digest(new), "{way:?}");
    }
}

/// The keys of a node, once they no longer change.
fn digest(node: &Node) -> Vec<Option<String>> {
    let mut conn = node.conn();
    conn.ok(&["READONLY"]);
    let value = |n| match conn.execute(&["GET", &format!("{{busy-timers}}{n}")]) {
        Reply::Text(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        _ => None,
    };
    (0..20).map(value).collect()
}

#[test]
fn busy_timers_are_safe_in_a_failover() {
    failover_with_busy_timers(&in_memory());
}

#[test]
fn busy_timers_are_safe_in_a_failover_with_an_aof() {
    failover_with_busy_timers(&with_aof());
}

/// Clients take turns while masters change in several ways.
fn work_while_masters_change(lease_ms: u64, ways: &[&[&str]]) -> Work {
    let cluster = in_memory();
    let key = "{work}lock";
    let work = take_turns(&cluster, key, lease_ms, |work| {
        for way in ways {
            work.goes_on();
            cluster.fail_over(key, way);
            cluster.wait_until_healthy();
        }
        work.goes_on();
    });
    cluster.nodes.iter().for_each(Node::assert_sound);
    work
}

#[test]
fn a_planned_failover_keeps_every_lock_exclusive() {
    work_while_masters_change(60_000, &[WAYS[0], WAYS[0]]).assert_exclusive();
}

#[test]
fn a_replica_takes_over_expired_leases() {
    // The old master's last grant or release can be lost: then the lease ends the lock.
    work_while_masters_change(1_000, &[WAYS[1], WAYS[2]]);
}

#[test]
fn a_dead_masters_locks_are_on_its_replica() {
    // Its own cluster: Redis 8.10 can count the votes of an earlier failover and promote a node that did not win.
    let cluster = Cluster::start("appendonly yes", "margin-ms 0");
    let key = "{dies}lock";
    let (old, new) = (cluster.master_of(key), cluster.replica_of(cluster.master_of(key)));
    let token = old.conn().int(&["LOCK.ACQUIRE", key, "PX", "120000", "OWNER", "holder"]).to_string();
    let value = old.conn().text(&["GET", key]);
    until_replicated(old);
    let waiters = Waiters::of(old, key, MANY);
    old.signal("KILL");
    assert_eq!(waiters.end().closed, MANY);
    until("the replica is master", || new.is_master().then_some(()));
    assert_eq!(cluster.master_of(key).port, new.port);
    let mut conn = new.conn();
    assert_eq!(conn.text(&["GET", key]), value);
    let mut again = Waiters::of(new, key, 2);
    assert_eq!(conn.int(&["LOCK.EXTEND", key, &token, "PX", "60000"]), 1);

    old.start_again();
    cluster.wait_until_healthy();
    assert_eq!(old.master_port(), Some(new.port));
    assert_eq!(conn.int(&["LOCK.RELEASE", key, &token]), 1);
    let next = again.0[0].read().int();
    until_replicated(new);
    let mut read = old.conn();
    read.ok(&["READONLY"]);
    assert!(read.text(&["GET", key]).contains(&next.to_string()));
    new.assert_sound();
}
