//! `lock.failover-grace-ms` in a cluster, the same on all nodes, with `min-replicas-to-write` equal to the number of
//! replicas: no lock has two holders at once, however a replica becomes master. Without the grace, locks can have two.
//!
//! `LOCK_FAILOVERS=n` makes the masters change n times in the long test; the default is once.

use super::failover::until_replicated;
use super::follower::Follower;
use super::nodes::Node;
use super::Cluster;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};
use testkit::relay::Relay;
use testkit::{env_number, until, watch, Reply, SetAtEnd};

/// The longest lease for the grace, which covers it, the margin, the replica's lag and two seconds.
const LEASE: Duration = Duration::from_secs(2);
const LEASE_MS: &str = "2000";
const WITH_GRACE: &str = "margin-ms 500 failover-grace-ms 5500";
const WITHOUT_GRACE: &str = "margin-ms 500";

/// A cluster whose masters write, and grant, only while they have their replica.
fn start(module_args: &str) -> Cluster {
    let cluster = Cluster::start("appendonly no\nmin-replicas-to-write 1\nmin-replicas-max-lag 1", module_args);
    for key in cluster.a_key_for_each_master("start") {
        cluster.master_of(&key).conn().until_granted(&["LOCK.ACQUIRE", &key, "PX", "1", "WAIT", "500"]);
    }
    cluster
}

/// Makes a master's replica read from it through a relay.
fn relay_replication(master: &Node, replica: &Node) -> Relay {
    let relay = Relay::to(master.port);
    master.conn().ok(&["CONFIG", "SET", "cluster-announce-port", &relay.port().to_string()]);
    until("the replica has found the relay", || (replica.master_port() == Some(relay.port())).then_some(()));
    until("the replica is in sync", || replica.is_well().then_some(()));
    until_replicated(master);
    relay
}

/// Grants twenty locks that never reach the replica, which then takes over. Returns how many of them the replica grants
/// again while their holders are still working.
fn locks_with_two_holders(module_args: &str, lease: Duration) -> usize {
    let lease_ms = lease.as_millis().to_string();
    let cluster = start(module_args);
    let old = cluster.master_of("{lost}");
    let new = cluster.replica_of(old);
    let relay = relay_replication(old, new);
    old.conn().until_granted(&["LOCK.ACQUIRE", "{lost}", "PX", "1", "WAIT", "500"]);
    let keys: Vec<String> = (0..20).map(|n| format!("{{lost}}{n}")).collect();
    let mut holder = old.conn();

    relay.cut();
    // The master grants until it notices that the replica is unreachable; the holder counts its lease from here.
    let since = Instant::now();
    for key in &keys {
        holder.send(&["LOCK.ACQUIRE", key, "PX", &lease_ms]);
    }
    for key in &keys {
        assert!(matches!(holder.read(), Reply::Int(_)), "{key}");
    }
    new.conn().ok(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
    until("the replica is master", || new.is_master().then_some(()));
    // The old master has to follow the new one before the new one may write.
    let mut conn = new.conn();
    let mut doubles = 0;
    for key in &keys {
        conn.until_granted(&["LOCK.ACQUIRE", key, "PX", "1"]);
        doubles += usize::from(since.elapsed() < lease);
    }
    new.assert_sound();
    doubles
}

#[test]
fn a_failover_without_a_grace_can_double_holders() {
    let doubles = locks_with_two_holders(WITHOUT_GRACE, Duration::from_secs(15));
    println!("{doubles} of 20 locks had two holders at once");
    assert!(doubles > 0, "this is what the grace is for");
}

#[test]
fn the_grace_outlasts_locks_lost_in_a_failover() {
    assert_eq!(locks_with_two_holders(WITH_GRACE, LEASE), 0);
}

/// A period in which a client was sure to hold a lock.
#[derive(Clone, Copy, Debug)]
struct Hold {
    from: Instant,
    until: Instant,
}

/// A lock that several clients use.
struct Work {
    key: String,
    holds: Mutex<Vec<Hold>>,
    /// Nobody takes the lock while this is set.
    rest: AtomicBool,
    /// The next holder keeps the lock for its whole lease while this is set.
    keep: AtomicBool,
    kept: AtomicUsize,
}

impl Work {
    fn on(key: String) -> Self {
        let no = || AtomicBool::new(false);
        Self { key, holds: Mutex::new(Vec::new()), rest: no(), keep: no(), kept: AtomicUsize::new(0) }
    }

    /// Takes and releases the lock until `stop`: from the queue if `waits`, otherwise by polling.
    fn go_on(&self, cluster: &Cluster, waits: bool, stop: &AtomicBool) {
        let mut client = Follower::of(cluster);
        while !stop.load(Ordering::SeqCst) {
            let rest = self.rest.load(Ordering::SeqCst);
            let Some((token, sent)) = (!rest).then(|| take(&mut client, &self.key, waits)).flatten() else {
                thread::sleep(Duration::from_millis(10));
                continue;
            };
            let from = Instant::now();
            if self.keep.load(Ordering::SeqCst) {
                self.kept.fetch_add(1, Ordering::SeqCst);
                thread::sleep(LEASE);
            } else {
                thread::sleep(Duration::from_millis(30));
            }
            let until = Instant::now().min(sent + LEASE);
            if from < until {
                self.holds.lock().unwrap().push(Hold { from, until });
            }
            client.execute(&["LOCK.RELEASE", &self.key, &token]);
        }
    }

    /// Waits until somebody gets the lock.
    fn until_taken(&self) {
        let now = Instant::now();
        until(&format!("{} is granted", self.key), || {
            self.holds.lock().unwrap().last().filter(|hold| hold.from > now).map(|_| ())
        });
    }

    fn assert_one_holder_at_a_time(self) {
        let mut holds = self.holds.into_inner().unwrap();
        assert!(holds.len() > 10, "{}: {}", self.key, holds.len());
        holds.sort_by_key(|hold| hold.from);
        for pair in holds.windows(2) {
            assert!(pair[0].until <= pair[1].from, "{} had two holders: {pair:?}", self.key);
        }
    }
}

/// The token, and the latest possible start of its lease.
fn take(client: &mut Follower, key: &str, waits: bool) -> Option<(String, Instant)> {
    let mut sent = Instant::now();
    let wait = if waits { "700" } else { "0" };
    let token = match client.execute(&["LOCK.ACQUIRE", key, "PX", LEASE_MS, "WAIT", wait]) {
        Some(Reply::Int(token)) => token.to_string(),
        _ => return None,
    };
    if waits {
        // The lease runs from the grant, which happened at some point during the wait.
        sent = Instant::now();
        let reply = client.execute(&["LOCK.EXTEND", key, &token, "PX", LEASE_MS]);
        if reply != Some(Reply::Int(1)) {
            return None;
        }
    }
    Some((token, sent))
}

#[test]
fn a_grace_keeps_locks_exclusive_across_failovers() {
    let rounds = env_number("LOCK_FAILOVERS").unwrap_or(1);
    watch::allow(Duration::from_secs(60 * rounds));
    let cluster = start(WITH_GRACE);
    let works: Vec<Work> = cluster.a_key_for_each_master("busy").into_iter().map(Work::on).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for work in &works {
            for waits in [true, false, true, false] {
                let (cluster, stop) = (&cluster, &stop);
                scope.spawn(move || work.go_on(cluster, waits, stop));
            }
        }
        let _stop = SetAtEnd(&stop);
        for _ in 0..rounds {
            change_all_masters(&cluster, &works);
            works.iter().for_each(Work::until_taken);
            cluster.wait_until_healthy();
        }
    });
    works.into_iter().for_each(Work::assert_one_holder_at_a_time);
    cluster.nodes.iter().for_each(Node::assert_sound);
}

/// One master is killed, one is replaced with FORCE, one with TAKEOVER while its replica is cut off from it.
fn change_all_masters(cluster: &Cluster, works: &[Work]) {
    let killed = cluster.master_of(&works[0].key);
    let next = cluster.replica_of(killed);
    let cut_off = cluster.master_of(&works[2].key);
    let new = cluster.replica_of(cut_off);
    let relay = relay_replication(cut_off, new);
    cluster.fail_over(&works[1].key, &["FORCE"]);
    killed.signal("KILL");
    works[2].until_taken();
    // The last thing the replica hears is that the lock is free; then a client takes it for its whole lease.
    works[2].rest.store(true, Ordering::SeqCst);
    let mut conn = cut_off.conn();
    until("it is free", || (conn.state(&works[2].key) == "free").then_some(()));
    until_replicated(cut_off);
    relay.cut();
    let kept = works[2].kept.load(Ordering::SeqCst);
    works[2].keep.store(true, Ordering::SeqCst);
    works[2].rest.store(false, Ordering::SeqCst);
    until("it is granted and kept", || (works[2].kept.load(Ordering::SeqCst) > kept).then_some(()));
    new.conn().ok(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
    works[2].keep.store(false, Ordering::SeqCst);
    until("all have changed", || (new.is_master() && !cut_off.is_master() && next.is_master()).then_some(()));
    cut_off.conn().ok(&["CONFIG", "SET", "cluster-announce-port", &cut_off.port.to_string()]);
    killed.start_again();
}
