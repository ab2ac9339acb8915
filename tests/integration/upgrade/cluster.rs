//! A cluster: each master's replica first, then CLUSTER FAILOVER, which hands over everything. No lock has two holders.

use super::{Build, ModuleFile};
use crate::sentinel::holders::{double_holders, Hold};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::thread::{self, sleep};
use std::time::Duration;
use testkit::cluster::nodes::Node;
use testkit::cluster::Cluster;
use testkit::{until, watch, Conn, Reply, SetAtEnd};

const LEASE_MS: u64 = 300;
const CLIENTS: usize = 3;

#[derive(Default)]
struct Load {
    holds: Mutex<Vec<Hold>>,
    stop: AtomicBool,
}

impl Load {
    /// Takes and releases a lock, over and over, on the node that serves it.
    fn run(&self, cluster: &Cluster, client: usize, lock: usize, key: &str) {
        while !self.stop.load(Ordering::SeqCst) {
            let node = cluster.nodes.iter().find(|node| node.serves(key));
            let conn = node.and_then(|node| Conn::to(node.port).ok());
            if let (Some(node), Some(mut conn)) = (node, conn) {
                while self.hold_once(&mut conn, client, lock, key, node.port).is_some() {}
            }
            sleep(Duration::from_millis(10));
        }
    }

    fn hold_once(&self, conn: &mut Conn, client: usize, lock: usize, key: &str, port: u16) -> Option<()> {
        if self.stop.load(Ordering::SeqCst) {
            return None;
        }
        let lease = LEASE_MS.to_string();
        let Ok(Reply::Int(token)) = conn.try_execute(&["LOCK.ACQUIRE", key, "PX", &lease, "WAIT", "400"]) else {
            return None;
        };
        let from = u64::try_from(token).unwrap();
        sleep(Duration::from_millis(from % 20));
        // The token is the time of the grant; the hold ends when the release is sent.
        let to = (from + LEASE_MS * 1_000).min(crate::sentinel::holders::now_us());
        self.holds.lock().unwrap().push(Hold { client, lock, from, to, server: usize::from(port) });
        conn.try_execute(&["LOCK.RELEASE", key, &token.to_string()]).ok().map(|_| ())
    }

    fn grants(&self) -> usize {
        self.holds.lock().unwrap().len()
    }
}

fn restart(cluster: &Cluster, node: &Node, file: &ModuleFile) {
    let pid = node.pid();
    node.signal("TERM");
    // A process that nobody waited for still exists, without a command line.
    let command_line = || std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    until("it has ended", || command_line().is_empty().then_some(()));
    node.start_again();
    cluster.wait_until_healthy();
    assert!(file.is_run_by(&node.pid()), "the node runs the installed file");
}

fn upgrade(cluster: &Cluster, file: &ModuleFile, build: Build, keys: &[String], load: &Load) {
    file.install(build);
    for key in keys {
        restart(cluster, cluster.replica_of(cluster.master_of(key)), file);
        let (old, new) = cluster.fail_over(key, &[]);
        restart(cluster, old, file);
        let before = load.grants();
        until("locks are granted", || (load.grants() > before + 6).then_some(()));
        new.assert_sound();
    }
    for node in &cluster.nodes {
        assert!(file.is_run_by(&node.pid()), "{} was left out", node.port);
    }
}

/// The longest time between two grants of the same lock.
fn longest_gap(holds: &[Hold], locks: usize) -> Duration {
    let of = |lock: usize| {
        let mut grants: Vec<u64> = holds.iter().filter(|hold| hold.lock == lock).map(|hold| hold.from).collect();
        grants.sort_unstable();
        grants.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
    };
    Duration::from_micros((0..locks).map(of).max().unwrap_or(0))
}

#[test]
fn a_cluster_is_upgraded_and_downgraded_under_load() {
    watch::allow(Duration::from_secs(600));
    let file = ModuleFile::new();
    let cluster = Cluster::with_module("appendonly no", "margin-ms 0", &file.path());
    let keys = cluster.a_key_for_each_master("upgrade");
    let load = Load::default();
    thread::scope(|scope| {
        let _stop = SetAtEnd(&load.stop);
        for (lock, key) in keys.iter().enumerate() {
            for client in 0..CLIENTS {
                let (load, cluster) = (&load, &cluster);
                scope.spawn(move || load.run(cluster, lock * CLIENTS + client, lock, key));
            }
        }
        upgrade(&cluster, &file, Build::New, &keys, &load);
        upgrade(&cluster, &file, Build::Old, &keys, &load);
    });
    let holds = load.holds.into_inner().unwrap();
    let found = double_holders(&holds);
    println!("{} grants, at most {:?} without one", holds.len(), longest_gap(&holds, keys.len()));
    assert!(found.is_empty(), "{} of {} grants: {:?}", found.len(), holds.len(), &found[..found.len().min(5)]);
}

/// A master's reply to a client that asks for a lock while its only replica restarts.
fn while_away(cluster: &Cluster, replica: &Node, key: &str) -> Reply {
    let mut master = cluster.master_of(key).conn();
    replica.signal("TERM");
    until("it is gone", || (master.info("replication", "connected_slaves").as_deref() == Some("0")).then_some(()));
    let reply = master.execute(&["LOCK.ACQUIRE", key, "PX", "1"]);
    replica.start_again();
    let link = || replica.conn().info("replication", "master_link_status");
    until("it is in sync again", || (link().as_deref() == Some("up")).then_some(()));
    reply
}

#[test]
fn a_replica_restarts_without_refusals_as_documented() {
    let cluster = Cluster::start("appendonly no\nmin-replicas-to-write 1\nmin-replicas-max-lag 2", "margin-ms 0");
    let keys = cluster.a_key_for_each_master("upgrade");
    let key = keys[0].as_str();
    let master = cluster.master_of(key);
    let replica = cluster.replica_of(master);
    let mut conn = master.conn();
    let needs = |conn: &mut Conn, count: &str| conn.ok(&["CONFIG", "SET", "min-replicas-to-write", count]);
    let no_failover = |word: &str| {
        let mut conn = replica.conn();
        conn.ok(&["CONFIG", "SET", "cluster-replica-no-failover", word]);
        conn.ok(&["CONFIG", "REWRITE"]);
    };
    assert!(while_away(&cluster, replica, key).error().starts_with("NOREPLICAS"));

    no_failover("yes");
    needs(&mut conn, "0");
    assert!(matches!(while_away(&cluster, replica, key), Reply::Int(_)));
    let setting = replica.conn().execute(&["CONFIG", "GET", "cluster-replica-no-failover"]);
    assert_eq!(setting.list()[1].text(), "yes", "no failover became possible through the restart");
    needs(&mut conn, "1");
    no_failover("no");
    let (_, new) = cluster.fail_over(key, &[]);
    assert_eq!(new.port, replica.port);
    cluster.wait_until_healthy();
    until("the new master grants", || {
        matches!(new.conn().execute(&["LOCK.ACQUIRE", key, "PX", "1"]), Reply::Int(_)).then_some(())
    });
}
