//! A cluster that is down because a slot has no master or most masters are gone: waits end within two seconds, even if
//! the server itself does not end them; new ones are refused; nothing is granted; afterwards the lock still belongs to
//! its holder.

use super::nodes::{slot_of, Node};
use super::waiters::{Waiters, MANY};
use super::{in_memory, Cluster};
use testkit::{until, Reply};

/// Whether a node considers the cluster down.
fn is_down(node: &Node) -> bool {
    node.field(&["CLUSTER", "INFO"], "cluster_state").is_some_and(|state| state == "fail")
}

fn assert_refuses(node: &Node, key: &str) {
    let mut conn = node.conn();
    for wait in ["0", "60000"] {
        let reply = conn.execute(&["LOCK.ACQUIRE", key, "PX", "60000", "WAIT", wait]);
        assert!(reply.error().starts_with("CLUSTERDOWN "), "{reply:?}");
    }
}

#[test]
fn an_unassigned_slot_ends_all_waits() {
    let cluster = in_memory();
    let key = "{covered}lock";
    let node = cluster.master_of(key);
    let token = node.conn().int(&["LOCK.ACQUIRE", key, "PX", "60000"]).to_string();
    let brief = "{covered}brief";
    let brief_token = node.conn().int(&["LOCK.ACQUIRE", brief, "PX", "60000"]).to_string();
    let (waiters, others) = (Waiters::of(node, key, MANY), Waiters::of(node, brief, 10));
    let hand_offs = node.number(&["INFO", "lock"], "lock_hand_offs");

    let other = (0..16_384).find(|slot| *slot != slot_of(node, key) && owns(node, *slot)).unwrap().to_string();
    // Both run in one iteration, so that the lease ends while nothing may be granted.
    let mut conn = node.conn();
    conn.send(&["LOCK.EXTEND", brief, &brief_token, "PX", "300"]);
    conn.send(&["CLUSTER", "DELSLOTS", &other]);
    assert_eq!((conn.read(), conn.read()), (Reply::Int(1), Reply::Status("OK".into())));
    let mut ends = waiters.end();
    let more = others.end();
    assert!(is_down(node));
    ends.unblocked += more.unblocked;
    ends.down += more.down;
    assert_eq!((ends.unblocked + ends.down, ends.moved, ends.closed), (MANY + 10, 0, 0));
    assert_refuses(node, key);
    assert_eq!(node.number(&["INFO", "lock"], "lock_hand_offs"), hand_offs);

    node.conn().ok(&["CLUSTER", "ADDSLOTS", &other]);
    until("the cluster is up", || (!is_down(node)).then_some(()));
    cluster.wait_until_healthy();
    assert_eq!(node.conn().int(&["LOCK.EXTEND", key, &token, "PX", "60000"]), 1);
    assert!(node.conn().execute(&["LOCK.ACQUIRE", key, "PX", "60000"]).is_nil());
    assert_eq!(node.conn().int(&["LOCK.RELEASE", key, &token]), 1);
    node.assert_sound();
}

/// Whether a slot has a master.
fn owns(node: &Node, slot: i64) -> bool {
    let slots = node.conn().execute(&["CLUSTER", "SLOTS"]);
    slots.list().iter().any(|range| {
        let range = range.list();
        (range[0].int()..=range[1].int()).contains(&slot) && range[2].list()[1].int() == i64::from(node.port)
    })
}

#[test]
fn a_master_without_a_majority_ends_all_waits() {
    let cluster = Cluster::start("appendonly no", "margin-ms 0");
    let key = "lock";
    let node = cluster.master_of(key);
    node.conn().int(&["LOCK.ACQUIRE", key, "PX", "60000"]);
    let waiters = Waiters::of(node, key, MANY);
    let replica = cluster.replica_of(node).port;
    for other in cluster.nodes.iter().filter(|other| other.port != node.port && other.port != replica) {
        other.signal("KILL");
    }
    until("the cluster is down", || is_down(node).then_some(()));
    let ends = waiters.end();
    assert_eq!((ends.unblocked + ends.down, ends.moved, ends.closed), (MANY, 0, 0));
    assert_refuses(node, key);
    node.assert_sound();
}
