//! One server, or a master and a replica, each behind a relay for clients and one for its replica.

use super::{execute, field};
use crate::plan::Setup;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::Instant;
use testkit::clock::Clocks;
use testkit::relay::Relay;
use testkit::{temp_dir, until, Options, Reply, Server};

/// The same on all servers, and long enough to cover the leases.
pub const GRACE_MS: &str = "6000";
/// The longest lease that this grace covers: it is shorter by the margin, the lag of a replica and two seconds.
pub const LEASE_UNDER_GRACE_MS: u64 = 2_000;

pub struct Member {
    server: Mutex<Option<Server>>,
    options: Options,
    dir: PathBuf,
    /// `None` if clocks cannot be moved.
    clocks: Option<Clocks>,
    /// How long the machine was suspended, in microseconds.
    suspended_us: AtomicI64,
    pub clients: Relay,
    pub replica: Relay,
}

pub struct Group {
    setup: Setup,
    pub members: Vec<Member>,
    /// The index of the master.
    pub master: AtomicUsize,
}

impl Group {
    pub fn start(setup: Setup) -> Self {
        let count = if setup.is_pair() { 2 } else { 1 };
        let members = (0..count).map(|_| Member::start(options(setup), Clocks::new(&[0; 3])));
        let group = Self { setup, members: members.collect(), master: AtomicUsize::new(0) };
        if setup.is_pair() {
            group.follow(1, 0);
        }
        group.wait_until_healthy();
        group
    }

    pub fn setup(&self) -> Setup {
        self.setup
    }

    pub fn client_ports(&self) -> Vec<u16> {
        let mut ports: Vec<u16> = self.members.iter().map(|member| member.clients.port()).collect();
        let master = self.master.load(Ordering::SeqCst);
        ports.rotate_left(master);
        ports
    }

    pub fn master(&self) -> &Member {
        &self.members[self.master.load(Ordering::SeqCst)]
    }

    /// One member replicates another, through its relay.
    pub fn follow(&self, replica: usize, master: usize) {
        let port = self.members[master].replica.port().to_string();
        let replica = &self.members[replica];
        until("it accepts the order to replicate", || {
            let reply = execute(replica.port(), &["REPLICAOF", "127.0.0.1", &port])?;
            matches!(&reply, Reply::Status(text) if text.starts_with("OK")).then_some(())
        });
        self.master.store(master, Ordering::SeqCst);
    }

    pub fn wait_until_healthy(&self) {
        for (at, member) in self.members.iter().enumerate() {
            let port = member.port();
            let is_master = at == self.master.load(Ordering::SeqCst);
            until("the group is well", || {
                let is = |name, value: &str| field(port, "replication", name).filter(|is| is == value);
                if !is_master {
                    return is("master_link_status", "up").map(|_| ());
                }
                is("role", "master")?;
                let wanted = if self.setup.is_pair() { "1" } else { "0" };
                is("connected_slaves", wanted).map(|_| ())
            });
        }
    }

    /// Sets all servers' clocks this far ahead of the machine's. Returns whether that is possible.
    pub fn set_clock(&self, ahead_us: i64) -> bool {
        let set = |clocks: &Clocks| clocks.set(0, &[ahead_us]);
        self.members.iter().all(|member| member.clocks.as_ref().map(set).is_some())
    }
}

fn options(setup: Setup) -> Options {
    if setup == Setup::Script {
        let settings = ["--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "volatile-lru"];
        return Server::with().without_module().args(&settings);
    }
    let margin = setup.margin_ms().to_string();
    let options = Server::with().module_args(&["margin-ms", &margin, "retention-ms", "400", "claim-ms", "300"]);
    let options = match setup {
        Setup::Always => {
            options.args(&["--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "volatile-lru"])
        }
        Setup::Everysec => options.args(&["--appendonly", "yes", "--appendfsync", "everysec"]),
        Setup::Bare => options.args(&["--min-replicas-max-lag", "1"]),
        _ => options.args(&["--min-replicas-max-lag", "1"]).module_args(&["failover-grace-ms", GRACE_MS]),
    };
    if setup.is_pair() {
        let settings =
            ["--min-replicas-to-write", "1", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"];
        options.args(&settings)
    } else {
        options
    }
}

impl Member {
    fn start(options: Options, clocks: Option<Clocks>) -> Self {
        let dir = temp_dir();
        let options = clocks.iter().fold(options.dir(&dir), |options, clocks| clocks.of(options));
        let server = options.clone().start();
        let (clients, replica) = (Relay::to(server.port()), Relay::to(server.port()));
        let suspended_us = AtomicI64::new(0);
        Self { server: Mutex::new(Some(server)), options, dir, clocks, suspended_us, clients, replica }
    }

    pub fn port(&self) -> u16 {
        self.server.lock().unwrap().as_ref().map_or(0, Server::port)
    }

    pub fn signal(&self, name: &str) {
        if let Some(server) = self.server.lock().unwrap().as_ref() {
            server.signal(name);
        }
    }

    /// Stops the server while `meanwhile` runs. With `is_suspend` its `CLOCK_MONOTONIC` stops too, if it can be moved,
    /// as on a suspended machine.
    pub fn stop_while(&self, is_suspend: bool, meanwhile: impl FnOnce()) {
        self.signal("STOP");
        let begin = Instant::now();
        meanwhile();
        if let (true, Some(clocks)) = (is_suspend, &self.clocks) {
            let for_us = i64::try_from(begin.elapsed().as_micros()).unwrap();
            let all_us = self.suspended_us.fetch_add(for_us, Ordering::SeqCst) + for_us;
            clocks.set(1, &[-all_us]);
        }
        self.signal("CONT");
    }

    /// kill -9
    pub fn kill(&self) {
        // Dropping it kills the server by its process id; its directory stays.
        drop(self.server.lock().unwrap().take());
    }

    /// Restarts it with what is on disk.
    pub fn start_again(&self) {
        let server = self.options.clone().start();
        for relay in [&self.clients, &self.replica] {
            relay.lead_to(server.port());
        }
        *self.server.lock().unwrap() = Some(server);
    }

    /// The logs of all its servers so far.
    pub fn logs(&self) -> String {
        let files = fs::read_dir(&self.dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let logs = files.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
        logs.map(|path| fs::read_to_string(path).unwrap_or_default()).collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for member in &self.members {
            member.kill();
            let _ = fs::remove_dir_all(&member.dir);
        }
    }
}
