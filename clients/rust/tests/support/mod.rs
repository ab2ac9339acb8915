//! A test's own server, on a free port, in its own folder. It is killed by its process ID.

#![allow(dead_code)] // no test uses all of this module

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const PATIENCE: Duration = Duration::from_secs(20);

pub struct Server {
    child: Child,
    pub port: u16,
    folder: PathBuf,
}

impl Server {
    /// A server with the module, which `SERVERLOCK_MODULE` names.
    pub fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self::start_at(port, &[])
    }

    fn start_at(port: u16, words: &[&str]) -> Self {
        let module = std::env::var("SERVERLOCK_MODULE").expect("SERVERLOCK_MODULE names the module");
        let folder = std::env::temp_dir().join(format!("serverlock-rust-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let binary = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
        let child = Command::new(binary)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--loadmodule", &module, "--dir"])
            .arg(&folder)
            .args(words)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { child, port, folder };
        until("the server answers", || server.client().get_connection().is_ok());
        server
    }

    /// Three masters without replicas, each with a third of the slots.
    pub fn start_cluster() -> [Self; 3] {
        let words = ["--cluster-enabled", "yes", "--cluster-node-timeout", "3000"];
        let nodes = [0, 1, 2].map(|_| Self::start_at(port_with_bus(), &words));
        for (number, node) in nodes.iter().enumerate() {
            node.call::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
            let slots = number * 16384 / 3..(number + 1) * 16384 / 3;
            let mut words = vec!["CLUSTER".to_owned(), "ADDSLOTS".to_owned()];
            words.extend(slots.map(|slot| slot.to_string()));
            node.call::<()>(&words.iter().map(String::as_str).collect::<Vec<_>>());
            if number > 0 {
                node.call::<()>(&["CLUSTER", "MEET", "127.0.0.1", &nodes[0].port.to_string()]);
            }
        }
        let is_whole = |node: &Self| {
            let slots: Vec<(i64, i64, redis::Value)> = node.call(&["CLUSTER", "SLOTS"]);
            let known: i64 = slots.iter().map(|(first, last, _)| last - first + 1).sum();
            known == 16384 && node.call::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
        };
        until("all slots are known", || nodes.iter().all(is_whole));
        nodes
    }

    pub fn client(&self) -> redis::Client {
        redis::Client::open(("127.0.0.1", self.port)).unwrap()
    }

    /// One command, over the test's own connection.
    pub fn call<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut connection = self.client().get_connection().unwrap();
        redis::cmd(words[0]).arg(&words[1..]).query(&mut connection).unwrap()
    }

    pub fn is_free(&self, key: &str) -> bool {
        self.info(key, "state") == "free"
    }

    /// A field of `LOCK.INFO`, as text.
    pub fn info(&self, key: &str, field: &str) -> String {
        let fields: Vec<redis::Value> = self.call(&["LOCK.INFO", key]);
        let text =
            |value: &redis::Value| redis::from_redis_value_ref::<Option<String>>(value).unwrap().unwrap_or_default();
        fields.chunks(2).find(|pair| text(&pair[0]) == field).map(|pair| text(&pair[1])).unwrap()
    }

    /// Whether the lock stays held for hours.
    pub fn is_kept(&self, key: &str) -> bool {
        self.info(key, "state") == "held" && self.info(key, "free-in-ms").parse::<u64>().unwrap() > 3_600_000
    }

    /// How often a command was called.
    pub fn calls(&self, command: &str) -> usize {
        let stats: String = self.call(&["INFO", "commandstats"]);
        let start = format!("cmdstat_{command}:calls=");
        let line = stats.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix(&start).map(str::to_owned));
        line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
    }

    /// How many connections it has accepted, this one included.
    pub fn accepted(&self) -> usize {
        let stats: String = self.call(&["INFO", "stats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        line.unwrap().parse().unwrap()
    }

    /// How many connections others have.
    pub fn connections(&self) -> usize {
        self.call::<String>(&["CLIENT", "LIST"]).lines().count() - 1
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The cluster bus uses the port plus 10,000. Both are below the ports that the system assigns to connections.
fn port_with_bus() -> u16 {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let start = u16::try_from(std::process::id() % 10_000).unwrap();
    let mut ports = std::iter::repeat_with(|| 10_000 + (start + NEXT.fetch_add(1, Ordering::SeqCst)) % 10_000);
    ports.find(|port| is_free(*port) && is_free(port + 10_000)).unwrap()
}

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A period with a tick that has just begun, of about a day.
pub fn period() -> Duration {
    Duration::from_secs(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 20_000)
}

/// Waits until the condition holds.
pub fn until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
