//! A node of a cluster: its own reports about itself and its slots, and control over its process.

use super::read;
use crate::{server_args, server_binary, signal, until, Conn, Reply};
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub struct Node {
    pub port: u16,
    dir: PathBuf,
}

impl Node {
    pub fn new(port: u16, dir: PathBuf) -> Self {
        Self { port, dir }
    }

    pub fn conn(&self) -> Conn {
        Conn::to(self.port).expect("the node accepts")
    }

    /// A field of INFO or CLUSTER INFO; `None` if the field is missing, or the node is dead.
    pub fn field(&self, question: &[&str], field: &str) -> Option<String> {
        Conn::to(self.port).ok()?.try_execute(question).ok()?.line(field)
    }

    pub fn number(&self, question: &[&str], field: &str) -> Option<i64> {
        self.field(question, field)?.parse().ok()
    }

    /// Whether the node serves a key's slot: a replica redirects its client.
    pub fn serves(&self, key: &str) -> bool {
        Conn::to(self.port).is_ok_and(|mut conn| matches!(conn.try_execute(&["EXISTS", key]), Ok(Reply::Int(_))))
    }

    pub fn is_master(&self) -> bool {
        self.field(&["INFO", "replication"], "role").is_some_and(|role| role == "master")
    }

    /// The port of the master that this replica follows.
    pub fn master_port(&self) -> Option<u16> {
        self.field(&["INFO", "replication"], "master_port")?.parse().ok()
    }

    /// Up, without a known fault, and in sync.
    pub fn is_well(&self) -> bool {
        let is = |question: &[&str], field, value: &str| self.field(question, field).is_some_and(|is| is == value);
        let in_sync = if self.is_master() {
            self.field(&["INFO", "replication"], "slave0").is_some_and(|replica| replica.contains("state=online"))
        } else {
            is(&["INFO", "replication"], "master_link_status", "up")
        };
        let nodes = self.conn().text(&["CLUSTER", "NODES"]);
        in_sync && is(&["CLUSTER", "INFO"], "cluster_state", "ok") && !nodes.contains("fail") && !nodes.contains("->-")
    }

    /// The ports of all masters, as this node sees them.
    pub fn masters(&self) -> Vec<u16> {
        let nodes = self.conn().text(&["CLUSTER", "NODES"]);
        let masters = nodes.lines().filter(|line| line.split(' ').nth(2).is_some_and(|flags| flags.contains("master")));
        let port = |line: &str| line.split(' ').nth(1)?.split(['@', ',']).next()?.rsplit(':').next()?.parse().ok();
        let mut ports: Vec<u16> = masters.filter_map(port).collect();
        ports.sort_unstable();
        ports
    }

    /// The node's name in the cluster.
    pub fn name(&self) -> String {
        self.conn().text(&["CLUSTER", "MYID"])
    }

    /// Whether this is Valkey, and its major and minor version.
    pub fn version(&self) -> (bool, u32, u32) {
        self.conn().version()
    }

    pub fn log_tail(&self, lines: usize) -> String {
        let log = read(self.dir.join("log"));
        let all: Vec<&str> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Asserts that the node has not crashed and restarted, and that its module has not met an unexpected state.
    pub fn assert_sound(&self) {
        let log = read(self.dir.join("log"));
        for trouble in ["crashed by signal", "ASSERTION FAILED", "internal error", "panicked"] {
            assert!(!log.contains(trouble), "{trouble}, port {}:\n{}", self.port, self.log_tail(60));
        }
    }

    pub fn pid(&self) -> String {
        read(self.dir.join("pid")).trim().to_string()
    }

    /// Sends a signal by name, for example `KILL`, `STOP`, `CONT`.
    pub fn signal(&self, name: &str) {
        assert!(signal(self.pid(), name));
    }

    /// Starts the node again after it was killed. The script ends it with the others.
    pub fn start_again(&self) {
        let mut server = Command::new(server_binary())
            .arg(self.dir.join("redis.conf"))
            .args(server_args())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server binary can be run");
        until("the node is back", || {
            assert!(server.try_wait().unwrap().is_none(), "it ended:\n{}", self.log_tail(40));
            self.number(&["INFO", "server"], "process_id").filter(|pid| *pid == i64::from(server.id()))
        });
    }

    /// Sets the state of a slot on the node, for example `MIGRATING` and the name of another node.
    pub fn set_slot(&self, slot: i64, what: &[&str]) {
        self.conn().ok(&[&["CLUSTER", "SETSLOT", &slot.to_string()], what].concat());
    }
}

pub fn slot_of(node: &Node, key: &str) -> i64 {
    node.conn().int(&["CLUSTER", "KEYSLOT", key])
}

/// Moves a slot as operators do: announces the move on both sides, moves the keys, and informs all masters.
pub struct Move<'a> {
    pub from: &'a Node,
    pub to: &'a Node,
    pub slot: i64,
}

impl<'a> Move<'a> {
    /// The slot is migrating from one node and importing to the other; no key has moved yet.
    pub fn begin(from: &'a Node, to: &'a Node, key: &str) -> Self {
        let slot = slot_of(from, key);
        to.set_slot(slot, &["IMPORTING", &from.name()]);
        from.set_slot(slot, &["MIGRATING", &to.name()]);
        Self { from, to, slot }
    }

    /// The whole move.
    pub fn all(from: &'a Node, to: &'a Node, key: &str) {
        let moving = Self::begin(from, to, key);
        moving.migrate();
        moving.end();
    }

    /// Moves all keys of the slot.
    pub fn migrate(&self) {
        let mut conn = self.from.conn();
        loop {
            let keys = conn.execute(&["CLUSTER", "GETKEYSINSLOT", &self.slot.to_string(), "100"]);
            let keys: Vec<String> = keys.list().iter().map(Reply::text).collect();
            if keys.is_empty() {
                return;
            }
            let port = self.to.port.to_string();
            let command = ["MIGRATE", "127.0.0.1", &port, "", "0", "10000", "KEYS"].map(String::from);
            let reply = until("the target has a replica that answers", || {
                let reply = conn.execute(&[&command[..], &keys].concat());
                Some(reply).filter(|reply| !matches!(reply, Reply::Error(text) if text.contains("NOREPLICAS")))
            });
            // The key was deleted in the meantime.
            assert!(matches!(&reply, Reply::Status(text) if text == "OK" || text == "NOKEY"), "{reply:?}");
        }
    }

    /// The slot now belongs to the other node, and all masters know.
    pub fn end(&self) {
        let owner = self.to.name();
        for node in [self.to, self.from] {
            node.set_slot(self.slot, &["NODE", &owner]);
        }
    }
}
