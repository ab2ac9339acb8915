//! A master, two replicas and three sentinels, started by `scripts/sentinel.sh`.
//!
//! Servers and sentinels reach each server through its [`Relay`], so that it can be cut off.

use crate::program::end_within;
use crate::relay::Relay;
use crate::watch::{watch, Watched};
use crate::{
    module, root, server_binary, signal, six_free_ports, temp_dir, until, until_within, Conn, Reply, DEADLINE,
};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The options of a group.
#[derive(Clone, Copy)]
pub struct Plan {
    pub grace_ms: u64,
    pub min_replicas: u64,
    /// The longest lease that its clients request.
    pub lease_ms: u64,
    /// How long a server is unreachable before it counts as down.
    pub down_after_ms: u64,
}

impl Plan {
    /// Everything that locks need to stay safe across a failover. The longest lease is 6 s less the margin of 1 s,
    /// max-lag of 1 s, and 2 s.
    pub const SAFE: Self = Self { grace_ms: 6_000, min_replicas: 2, lease_ms: 2_000, down_after_ms: 700 };
    /// The group that most tests use.
    pub const UNSAFE: Self = Self { grace_ms: 0, min_replicas: 0, lease_ms: 2_000, down_after_ms: 700 };

    /// For a test that asks for its failovers: another one must not happen because the machine is busy for a second.
    pub const fn on_request(self) -> Self {
        Self { down_after_ms: 10_000, ..self }
    }
}

pub struct Group {
    script: Child,
    dir: PathBuf,
    servers: [u16; 3],
    sentinels: [u16; 3],
    pub fronts: [Relay; 3],
    _watched: Watched,
}

impl Group {
    pub fn start(plan: Plan) -> Self {
        Self::with_module(plan, module())
    }

    /// A group whose servers load this module.
    pub fn with_module(plan: Plan, module: &Path) -> Self {
        // Ports that were free can be taken by another test a moment later.
        (0..5).find_map(|_| Self::try_start(plan, module)).expect("a group of servers starts")
    }

    fn try_start(plan: Plan, module: &Path) -> Option<Self> {
        let root = root();
        let first = six_free_ports();
        let fronts = [0, 1, 2].map(|server| Relay::to(first + server));
        let announced = fronts.iter().map(|front| front.port().to_string()).collect::<Vec<_>>().join(" ");
        let dir = temp_dir().join("sentinel");
        let mut script = Command::new(root.join("scripts/sentinel.sh"))
            .env("REDIS_SERVER", server_binary())
            .env("LOCK_MODULE", module)
            .env("PORT", first.to_string())
            .env("SENTINEL_DIR", &dir)
            .env("ANNOUNCE", announced)
            .env("GRACE_MS", plan.grace_ms.to_string())
            .env("MAX_LAG_S", "1")
            .env("MIN_REPLICAS", plan.min_replicas.to_string())
            .env("RESTART_S", "2")
            .env("DOWN_AFTER_MS", plan.down_after_ms.to_string())
            .env("APPENDONLY", "no")
            .env("QUICK", "1")
            .env("OWNER_PID", std::process::id().to_string())
            .current_dir(root)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the script can be run");
        let watched = watch(script.id(), "TERM");
        let mut said = BufReader::new(script.stdout.take().unwrap()).lines();
        let ready = said.by_ref().map_while(Result::ok).find_map(|line| line.strip_prefix("ready ").map(String::from));
        // The script must not end just because nobody reads its output.
        std::thread::spawn(move || said.map_while(Result::ok).count());
        let group = |ports: &str| {
            let ports: Vec<u16> = ports.split_whitespace().map(|port| port.parse().unwrap()).collect();
            (ports == (first..first + 6).collect::<Vec<_>>()).then(|| [ports[0], ports[1], ports[2]])?;
            Some(([ports[0], ports[1], ports[2]], [ports[3], ports[4], ports[5]]))
        };
        let Some((servers, sentinels)) = ready.as_deref().and_then(group) else {
            end(&mut script);
            let mut why = String::new();
            let _ = script.stderr.take().map(|mut err| err.read_to_string(&mut why));
            eprintln!("not ready ({ready:?}): {why}");
            return None;
        };
        Some(Self { script, dir, servers, sentinels, fronts, _watched: watched })
    }

    pub fn sentinel_port(&self, sentinel: usize) -> u16 {
        self.sentinels[sentinel]
    }

    /// A direct connection to a server, even while it is cut off.
    pub fn conn(&self, server: usize) -> Conn {
        until("the server accepts", || Conn::to(self.servers[server]).ok())
    }

    /// Like `conn`, if the server accepts.
    pub fn try_conn(&self, server: usize) -> Option<Conn> {
        Conn::to(self.servers[server]).ok()
    }

    /// The master according to a sentinel: its index among the servers.
    pub fn master_of(&self, sentinel: usize) -> Option<usize> {
        let mut conn = Conn::to(self.sentinel_port(sentinel)).ok()?;
        let reply = conn.try_execute(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "locks"]).ok()?;
        let Reply::List(address) = reply else { return None };
        let port: u16 = address.get(1)?.text().parse().ok()?;
        self.fronts.iter().position(|front| front.port() == port)
    }

    /// The master on which all sentinels agree.
    pub fn master(&self) -> Option<usize> {
        let master = self.master_of(0)?;
        (1..3).all(|sentinel| self.master_of(sentinel) == Some(master)).then_some(master)
    }

    /// A sentinel's view of a replica.
    pub fn replica_of_sentinel(&self, sentinel: usize, server: usize, field: &str) -> Option<String> {
        let mut conn = Conn::to(self.sentinels[sentinel]).ok()?;
        let reply = conn.try_execute(&["SENTINEL", "REPLICAS", "locks"]).ok()?;
        let port = self.fronts[server].port().to_string();
        let words = |replica: &Reply| replica.list().iter().map(Reply::text).collect::<Vec<_>>();
        let of =
            |words: &[String], name: &str| words.chunks(2).find(|pair| pair[0] == name).map(|pair| pair[1].clone());
        let replica = reply.list().iter().map(words).find(|words| of(words, "port").as_ref() == Some(&port))?;
        of(&replica, field)
    }

    /// Whether that server reports that it is a master.
    pub fn reigns(&self, server: usize) -> bool {
        self.replication(server).is_some_and(|info| info.contains("role:master"))
    }

    /// Whether the master on which all agree sees all its replicas.
    pub fn is_whole(&self) -> bool {
        let info = self.master().and_then(|master| self.replication(master)).unwrap_or_default();
        info.contains("role:master") && info.matches("state=online").count() == 2
    }

    fn replication(&self, server: usize) -> Option<String> {
        match self.try_conn(server)?.try_execute(&["INFO", "replication"]) {
            Ok(Reply::Text(info)) => Some(String::from_utf8_lossy(&info).into_owned()),
            _ => None,
        }
    }

    /// The process of a server.
    pub fn pid(&self, server: usize) -> String {
        let file = self.dir.join(self.servers[server].to_string()).join("pid");
        until("the server runs", || fs::read_to_string(&file).ok().filter(|pid| !pid.is_empty())).trim().into()
    }

    /// Sends a signal by name.
    pub fn signal(&self, server: usize, name: &str) {
        assert!(signal(self.pid(server), name));
    }

    /// No server that ends is restarted until this is dropped.
    pub fn hold_restarts(&self) -> HeldRestarts {
        assert!(signal(self.script.id(), "STOP"));
        HeldRestarts(self.script.id())
    }

    /// Asks a sentinel to fail over, until it agrees to.
    pub fn ask_for_failover(&self) {
        until_long("a sentinel accepts the order", || {
            (0..3).find(|sentinel| {
                let mut conn = Conn::to(self.sentinel_port(*sentinel)).unwrap();
                conn.execute(&["SENTINEL", "FAILOVER", "locks"]) == Reply::Status("OK".into())
            })
        });
    }

    /// Waits until a server other than `old` is the master.
    pub fn until_replaced(&self, old: usize) -> usize {
        until_long("a replica is promoted", || self.master().filter(|new| *new != old && self.reigns(*new)))
    }

    pub fn wait_until_complete(&self) {
        until_long("all replicas answer the master", || self.is_whole().then_some(()));
    }

    /// The last lines of each server's log.
    pub fn logs(&self) -> String {
        let mut logs = String::new();
        for port in self.servers.iter().chain(&self.sentinels) {
            let log = fs::read_to_string(self.dir.join(port.to_string()).join("log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let _ = writeln!(logs, "--- {port}\n{}", lines[lines.len().saturating_sub(25)..].join("\n"));
        }
        logs
    }
}

/// Restarts that wait.
pub struct HeldRestarts(u32);

impl Drop for HeldRestarts {
    fn drop(&mut self) {
        signal(self.0, "CONT");
    }
}

/// Like [`until`], for things that take sentinels longer.
pub fn until_long<T>(what: &str, done: impl FnMut() -> Option<T>) -> T {
    until_within(DEADLINE * 3, what, done)
}

/// Asks the script to stop what it started, and waits for it.
fn end(script: &mut Child) {
    signal(script.id(), "TERM");
    end_within(script, DEADLINE);
}

impl Drop for Group {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        end(&mut self.script);
        let _ = self.dir.parent().map(fs::remove_dir_all);
    }
}
