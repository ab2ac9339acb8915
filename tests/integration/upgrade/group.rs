//! A Sentinel group with the failover grace. Replicas are replaced without a refusal, if no failover is possible in the
//! meantime; after the single failover, grants are refused throughout the grace.

use super::{Build, ModuleFile};
use crate::sentinel::failovers::{judged, under_load};
use crate::sentinel::holders::Record;
use std::time::{Duration, Instant};
use testkit::sentinel::{until_long, Group, Plan};
use testkit::{env_number, until, watch, Conn, Reply};

/// The steps of docs/UPGRADING.md for a group with `lock.failover-grace-ms`.
struct Upgrade<'a> {
    group: &'a Group,
    file: &'a ModuleFile,
    record: &'a Record,
    grace: Duration,
}

/// Asks that server for a separate lock.
fn probe(conn: &mut Conn) -> Reply {
    let reply = conn.execute(&["LOCK.ACQUIRE", "probe", "PX", "500"]);
    if let Reply::Int(token) = reply {
        conn.execute(&["LOCK.RELEASE", "probe", &token.to_string()]);
    }
    reply
}

fn replicas(conn: &mut Conn) -> usize {
    conn.info("replication", "connected_slaves").unwrap().parse().unwrap()
}

fn needed(master: &mut Conn) -> usize {
    master.execute(&["CONFIG", "GET", "min-replicas-to-write"]).list()[1].text().parse().unwrap()
}

impl Upgrade<'_> {
    fn master(&self) -> usize {
        until_long("all agree on a master", || self.group.master())
    }

    fn replicas(&self) -> Vec<usize> {
        let master = self.master();
        (0..3).filter(|server| *server != master).collect()
    }

    fn set(&self, server: usize, name: &str, value: &str) {
        self.group.conn(server).ok(&["CONFIG", "SET", name, value]);
    }

    fn priority(&self, server: usize) -> String {
        self.group.conn(server).execute(&["CONFIG", "GET", "replica-priority"]).list()[1].text()
    }

    /// No sentinel promotes a replica of priority 0. The priority survives a restart. A busy machine can cause a
    /// failover in the meantime, so the replicas are not always the same.
    fn set_priorities(&self, priority: &str) {
        until_long("all sentinels know the replicas' priority", || {
            let replicas = self.replicas();
            for server in replicas.iter().filter(|server| self.priority(**server) != priority) {
                self.set(*server, "replica-priority", priority);
                self.group.conn(*server).ok(&["CONFIG", "REWRITE"]);
            }
            let known = |sentinel, server| self.group.replica_of_sentinel(sentinel, server, "slave-priority");
            let is_known =
                |server: &usize| (0..3).all(|sentinel| known(sentinel, *server).as_deref() == Some(priority));
            replicas.iter().all(is_known).then_some(())
        });
    }

    /// Ends a replica, which its service manager restarts. Returns the master's replies in the meantime.
    fn restart(&self, server: usize) -> Reply {
        let mut master = self.group.conn(self.master());
        let (pid, priority) = (self.group.pid(server), self.priority(server));
        let restarts = self.group.hold_restarts();
        self.group.signal(server, "TERM");
        until("it is gone", || (replicas(&mut master) == 1).then_some(()));
        let reply = until("an answer without it", || {
            let reply = probe(&mut master);
            assert_eq!(replicas(&mut master), 1, "the answer came without it: {reply:?}");
            // The load can hold the lock, or hold the server up so that the other replica has to answer first.
            let is_for_a_moment = reply.is_nil() || (needed(&mut master) == 1 && !matches!(reply, Reply::Int(_)));
            (!is_for_a_moment).then_some(reply)
        });
        drop(restarts);
        until_long("it is started again", || (self.group.pid(server) != pid).then_some(()));
        self.group.wait_until_complete();
        assert!(self.file.is_run_by(&self.group.pid(server)), "the server runs the installed file");
        assert_eq!(self.priority(server), priority, "no failover became possible through the restart");
        reply
    }

    /// Replaces two replicas, or a former master, without a refusal: no failover is possible in the meantime.
    fn replace_replicas(&self, servers: &[usize]) {
        let master = self.master();
        self.set_priorities("0");
        self.set(master, "min-replicas-to-write", "1");
        for server in servers {
            let reply = self.restart(*server);
            assert!(matches!(reply, Reply::Int(_)), "refused although one replica is enough: {reply:?}");
        }
        self.set(master, "min-replicas-to-write", "2");
        self.set_priorities("100");
    }

    /// Replaces all three servers.
    fn run(&self, build: Build) {
        self.file.install(build);
        let begin = Instant::now();
        self.replace_replicas(&self.replicas());
        let old = self.master();
        let (asked, refused) = (Instant::now(), self.record.counted("GRACE"));
        self.group.ask_for_failover();
        let next = self.group.until_replaced(old);
        // Sentinel does so too, usually ten seconds later; until then the new master has one replica too few.
        let port = self.group.fronts[next].port().to_string();
        let reply = self.group.conn(old).execute(&["REPLICAOF", "127.0.0.1", &port]).text();
        assert!(reply == "OK" || reply == "OK Already connected to specified master", "{reply}");
        self.group.wait_until_complete();
        let complete = asked.elapsed();
        let mut new = self.group.conn(self.master());
        until_long("it grants", || matches!(probe(&mut new), Reply::Int(_)).then_some(()));
        // On a slow machine the grace may end before the replicas are back. Until then, clients get NOREPLICAS instead.
        let has_shown = complete + Duration::from_secs(1) < self.grace;
        assert!(!has_shown || self.record.counted("GRACE") > refused, "no grace: complete after {complete:?}");
        println!("{build:?}: complete after {complete:.1?}; nothing was granted for at most {:.1?}", asked.elapsed());
        self.replace_replicas(&[old]);
        println!("{build:?}: all servers replaced after {:.1?}; so far {}", begin.elapsed(), self.record);
    }
}

#[test]
fn a_group_upgrades_and_downgrades_under_load() {
    watch::allow(Duration::from_secs(600));
    let (begin, seed) = (Instant::now(), env_number("LOCK_SEED").unwrap_or(1));
    let file = ModuleFile::new();
    let safe = Plan::SAFE.on_request();
    let plan = Plan { grace_ms: env_number("LOCK_UPGRADE_GRACE_MS").unwrap_or(safe.grace_ms), ..safe };
    let group = Group::with_module(plan, &file.path());
    let record = under_load(&group, plan, seed, |record| {
        let grace = Duration::from_millis(plan.grace_ms);
        let upgrade = Upgrade { group: &group, file: &file, record, grace };
        upgrade.run(Build::New);
        upgrade.run(Build::Old);
    });
    let (found, line) = judged(&record, begin, seed);
    assert!(found.is_empty(), "{line}");
}

/// The case that the page warns about.
#[test]
fn grants_are_refused_during_a_plain_replica_restart() {
    let file = ModuleFile::new();
    let group = Group::with_module(Plan::SAFE.on_request(), &file.path());
    let record = Record::default();
    let grace = Duration::from_millis(Plan::SAFE.grace_ms);
    let upgrade = Upgrade { group: &group, file: &file, record: &record, grace };
    let mut master = group.conn(upgrade.master());
    until_long("it grants", || matches!(probe(&mut master), Reply::Int(_)).then_some(()));
    let reply = upgrade.restart(upgrade.replicas()[0]);
    assert!(reply.error().starts_with("NOREPLICAS"), "{reply:?}");
    // The server refuses anything that could write, even for a held lock.
    let token = until_long("it grants again", || match master.execute(&["LOCK.ACQUIRE", "held", "PX", "2000"]) {
        Reply::Int(token) => Some(token.to_string()),
        _ => None,
    });
    let _restarts = group.hold_restarts();
    group.signal(upgrade.replicas()[0], "KILL");
    until("it is gone", || (replicas(&mut master) == 1).then_some(()));
    for call in [&["LOCK.EXTEND", "held", &token, "PX", "2000"][..], &["LOCK.RELEASE", "held", &token]] {
        let reply = master.execute(call);
        assert!(reply.error().starts_with("NOREPLICAS"), "{call:?}: {reply:?}");
    }
}
