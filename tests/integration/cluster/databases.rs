//! A cluster with several databases (Valkey 9): locks of one name in two databases have nothing to do with each other,
//! and when their slot moves, the waiters in all databases get an error.

use super::migrate::migrate;
use super::nodes::{slot_of, Node};
use super::Cluster;
use testkit::{until, Conn, Reply, Server};

/// `None`, with a message, where a cluster has only one database.
fn with_databases() -> Option<Cluster> {
    let (valkey, major, _) = Server::start().conn().version();
    if !valkey || major < 9 {
        eprintln!("skipped: several databases in a cluster: this needs Valkey 9");
        return None;
    }
    Some(Cluster::start("appendonly no\ncluster-databases 16", ""))
}

fn database(node: &Node, number: &str) -> Conn {
    let mut conn = node.conn();
    conn.ok(&["SELECT", number]);
    conn
}

#[test]
fn each_database_of_a_cluster_has_its_own_locks() {
    let Some(cluster) = with_databases() else { return };
    let key = "{databases}lock";
    let (from, to) = (cluster.master_of(key), cluster.other_master(key));
    let [mut plain, mut third, mut fourth] = ["0", "3", "4"].map(|number| database(from, number));
    let ask = ["LOCK.ACQUIRE", key, "PX", "60000"];
    let token = third.int(&ask).to_string();
    fourth.int(&ask);
    assert_eq!(plain.state(key), "free");

    let mut waiters = ["3", "4"].map(|number| {
        let mut conn = database(from, number);
        conn.send(&["LOCK.ACQUIRE", key, "PX", "60000", "WAIT", "60000"]);
        conn
    });
    until("both wait", || (from.number(&["INFO", "lock"], "lock_waiters") == Some(2)).then_some(()));
    assert_eq!(third.int(&["LOCK.RELEASE", key, &token]), 1);
    let token = waiters[0].read().int().to_string();
    assert_eq!(fourth.lock(key, "waiters"), Reply::Int(1), "a release reaches only its own database");

    let [mut again, _] = ["3", "0"].map(|number| database(from, number));
    again.send(&["LOCK.ACQUIRE", key, "PX", "60000", "WAIT", "60000"]);
    until("both wait", || (from.number(&["INFO", "lock"], "lock_waiters") == Some(2)).then_some(()));
    migrate(from, to, slot_of(from, key));
    for waiter in [&mut again, &mut waiters[1]] {
        let said = waiter.read();
        let said = said.error();
        assert!(said.starts_with("MOVED ") || said.starts_with("UNBLOCKED "), "{said}");
    }
    assert_eq!(database(to, "3").int(&["LOCK.RELEASE", key, &token]), 1, "the lock moved with its slot");
    from.assert_sound();
    to.assert_sound();
}
