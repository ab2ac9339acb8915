//! Waiting without a connection in a cluster: sharded channels have to hash to the key's slot; others reach every node
//! over the bus. When the slot moves or its master is replaced, attempts are notified, and are sent again to the new
//! owner.

use super::nodes::{slot_of, Move, Node};
use super::{in_memory, Cluster};
use crate::notify::{can_publish, waiting, Subscriber};
use crate::waiting::no_reply_within;
use std::time::Duration;
use testkit::{until, Conn, Reply};

/// A cluster for a test, if modules can publish on it.
fn cluster() -> Option<super::Turn> {
    let cluster = in_memory();
    can_publish(&mut cluster.nodes[0].conn()).then_some(cluster)
}

fn subscribe(node: &Node, command: &str, channel: &str) -> Subscriber {
    Subscriber::on(node.conn(), command, channel)
}

fn hold(node: &Node, key: &str) -> String {
    node.conn().int(&["LOCK.ACQUIRE", key, "PX", "60000"]).to_string()
}

fn ask(conn: &mut Conn, key: &str, id: &str, option: &str, channel: &str) -> Reply {
    conn.execute(&["LOCK.ACQUIRE", key, "PX", "60000", "WAIT", "60000", "ID", id, option, channel])
}

fn release(node: &Node, key: &str, token: &dyn ToString) {
    assert_eq!(node.conn().int(&["LOCK.RELEASE", key, &token.to_string()]), 1);
}

fn queued(node: &Node) -> Option<i64> {
    node.number(&["INFO", "lock"], "lock_queued")
}

#[test]
fn a_sharded_channel_needs_the_slot_of_the_key() {
    let Some(cluster) = cluster() else { return };
    let (key, other) = ("{notify}lock", "{notify}more");
    let node = cluster.master_of(key);
    let mut conn = node.conn();
    for state in ["free", "held"] {
        assert_eq!(conn.state(key), state);
        let offset = conn.info("replication", "master_repl_offset");
        for channel in ["lock", "notify}", "{another}notify", "{}notify"] {
            for command in [&["LOCK.ACQUIRE", key][..], &["LOCK.MACQUIRE", "2", key, other]] {
                let args = [command, &["PX", "60000", "WAIT", "60000", "ID", "7", "SNOTIFY", channel]].concat();
                assert_eq!(
                    conn.execute(&args).error(),
                    "ERR channel does not hash to the slot of the key",
                    "{channel}"
                );
            }
        }
        assert_eq!((conn.state(key).as_str(), queued(node)), (state, Some(0)));
        assert_eq!(conn.info("replication", "master_repl_offset"), offset);
        if state == "free" {
            hold(node, key);
        }
    }
    let token = conn.lock(key, "token").int();
    let mut subscriber = subscribe(node, "SSUBSCRIBE", "notify");
    let mut tagged = subscribe(node, "SSUBSCRIBE", "{notify}:channel");
    assert_eq!(ask(&mut conn, key, "7", "SNOTIFY", "notify"), waiting());
    assert_eq!(ask(&mut conn, key, "8", "SNOTIFY", "{notify}:channel"), waiting());
    release(node, key, &token);
    subscriber.gets(&format!("granted 7 {key}"));
    let token = conn.int(&["LOCK.ACQUIRE", key, "PX", "60000", "ID", "7"]);
    release(node, key, &token);
    tagged.gets(&format!("granted 8 {key}"));
    let token = conn.int(&["LOCK.ACQUIRE", key, "PX", "60000", "ID", "8"]);
    release(node, key, &token);
    node.assert_sound();
}

#[test]
fn a_sharded_message_reaches_the_replicas_of_the_shard() {
    let Some(cluster) = cluster() else { return };
    let key = "{shard}lock";
    let node = cluster.master_of(key);
    let replica = cluster.replica_of(node);
    let mut there = subscribe(replica, "SSUBSCRIBE", "shard");
    // The bus loses messages while a link between two nodes is being established.
    until("the bus carries messages to the replica", || {
        node.conn().int(&["SPUBLISH", "shard", "probe"]);
        (!no_reply_within(&mut there.conn, Duration::from_millis(200))).then_some(())
    });
    // Without this, the channel has no subscriber on the master; the attempt is served because it has just been sent.
    let token = hold(node, key);
    let mut conn = node.conn();
    assert_eq!(ask(&mut conn, key, "7", "SNOTIFY", "shard"), waiting());
    release(node, key, &token);
    let received = std::iter::from_fn(|| Some(there.next())).find(|message| message != "probe");
    assert_eq!(received, Some(format!("granted 7 {key}")));
    let token = conn.int(&["LOCK.ACQUIRE", key, "PX", "60000", "ID", "7"]);
    release(node, key, &token);
}

#[test]
fn a_plain_channel_in_a_cluster_counts_as_subscribed() {
    let Some(cluster) = cluster() else { return };
    let key = "{bus}lock";
    let node = cluster.master_of(key);
    let mut conn = node.conn();
    conn.ok(&["CONFIG", "SET", "lock.claim-ms", "300"]);
    let mut everywhere: Vec<Subscriber> = cluster
        .nodes
        .iter()
        .filter(|other| other.port != node.port)
        .map(|node| subscribe(node, "SUBSCRIBE", "any"))
        .collect();
    let token = hold(node, key);
    assert_eq!(ask(&mut conn, key, "7", "NOTIFY", "any"), waiting());
    // Old enough to be skipped if the channel had no subscriber here.
    crate::notify::pass(&mut conn, 350);
    release(node, key, &token);
    for subscriber in &mut everywhere {
        subscriber.gets(&format!("granted 7 {key}"));
    }
    let claim = ["LOCK.ACQUIRE", key, "PX", "60000", "ID", "7"];
    // On a busy machine the claim may be too late for the first grant.
    let token = until("the claim", || match conn.execute(&claim) {
        Reply::Int(token) => Some(token),
        _ => None,
    });
    assert_eq!(node.number(&["INFO", "lock"], "lock_unheard"), Some(0));
    release(node, key, &token);
    conn.ok(&["CONFIG", "SET", "lock.claim-ms", "2000"]);
}

/// Waiting attempts, and a notified but unclaimed one, are sent again to their slot's new master.
fn go_on_after(cluster: &Cluster, tag: &str, change: impl FnOnce(&str)) {
    let (key, unclaimed) = (format!("{{{tag}}}lock"), format!("{{{tag}}}unclaimed"));
    let old = cluster.master_of(&key);
    let mut subscriber = subscribe(old, "SUBSCRIBE", tag);
    let mut conn = old.conn();
    let token = hold(old, &key);
    for (id, option) in [("1", "NOTIFY"), ("2", "SNOTIFY"), ("3", "NOTIFY")] {
        assert_eq!(ask(&mut conn, &key, id, option, tag), waiting());
    }
    let given = hold(old, &unclaimed);
    assert_eq!(ask(&mut conn, &unclaimed, "4", "NOTIFY", tag), waiting());
    release(old, &unclaimed, &given);
    subscriber.gets(&format!("granted 4 {unclaimed}"));
    let granted = conn.lock(&unclaimed, "token").int();
    super::failover::until_replicated(old);

    change(&key);
    // Best effort: a replica and a node without the slot publish too.
    for id in ["1", "3"] {
        subscriber.gets(&format!("unblocked {id} {key}"));
    }
    until("nobody waits there", || (queued(old) == Some(0)).then_some(()));
    let new = cluster.master_of(&key);
    assert_ne!(new.port, old.port);
    let mut conn = new.conn();
    let reply = ask(&mut old.conn(), &key, "1", "NOTIFY", tag);
    assert!(reply.error().starts_with("MOVED "), "{reply:?}");
    // On a separate channel: the bus may still carry the old master's messages.
    let again = &format!("{{{tag}}}again");
    let mut subscriber = subscribe(new, "SUBSCRIBE", again);
    let mut sharded = subscribe(new, "SSUBSCRIBE", again);
    for (id, option) in [("2", "SNOTIFY"), ("1", "NOTIFY")] {
        assert_eq!(ask(&mut conn, &key, id, option, again), waiting());
    }
    // Nobody can claim the other grant: it ends like that of a predecessor that never released.
    let mut grant = ask(&mut conn, &unclaimed, "4", "NOTIFY", again);
    if grant == waiting() {
        subscriber.gets(&format!("granted 4 {unclaimed}"));
        grant = ask(&mut conn, &unclaimed, "4", "NOTIFY", again);
    }
    assert!(grant.int() > granted, "{grant:?}");
    release(new, &unclaimed, &grant.int());
    // The new queue has the order in which they arrived at the new master.
    release(new, &key, &token);
    sharded.gets(&format!("granted 2 {key}"));
    let token = conn.int(&["LOCK.ACQUIRE", &key, "PX", "60000", "ID", "2"]);
    release(new, &key, &token);
    subscriber.gets(&format!("granted 1 {key}"));
    let token = conn.int(&["LOCK.ACQUIRE", &key, "PX", "60000", "ID", "1"]);
    release(new, &key, &token);
    assert_eq!(conn.int(&["LOCK.CANCEL", &key, "3"]), 0);
    for node in [old, new] {
        assert_eq!(queued(node), Some(0));
        node.assert_sound();
    }
}

#[test]
fn a_slot_move_notifies_attempts_which_go_on() {
    let Some(cluster) = cluster() else { return };
    go_on_after(&cluster, "notify-slot", |key| {
        let (from, to) = (cluster.master_of(key), cluster.other_master(key));
        Move::all(from, to, key);
        assert_eq!(slot_of(from, key), slot_of(to, key));
    });
}

#[test]
fn a_failover_notifies_attempts_which_go_on() {
    let Some(cluster) = cluster() else { return };
    go_on_after(&cluster, "notify-failover", |key| {
        cluster.fail_over(key, &[]);
    });
    cluster.wait_until_healthy();
}
