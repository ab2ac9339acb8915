//! A cluster of `scripts/cluster.sh`, with a failover grace.

use super::group::GRACE_MS;
use crate::support::{module, server_binary, temp_dir, until};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

#[allow(dead_code)]
#[path = "../../integration/cluster/nodes.rs"]
pub mod nodes;

use nodes::Node;

pub struct Cluster {
    script: Child,
    /// Kept open: the script would end if nobody read what it says.
    _said: BufReader<ChildStdout>,
    pub nodes: Vec<Node>,
}

const SETTINGS: &str = "cluster-node-timeout 2000\nsave \"\"\nappendonly no\nmin-replicas-to-write 1\n\
    min-replicas-max-lag 1\nrepl-ping-replica-period 1";

impl Cluster {
    pub fn start() -> Self {
        // A port that was free can be taken by another a moment later.
        for _ in 0..5 {
            match Self::try_start() {
                Err(said) if said.contains("Address already in use") => {}
                result => return result.unwrap_or_else(|said| panic!("{said}")),
            }
        }
        panic!("no free ports")
    }

    fn try_start() -> Result<Self, String> {
        // The script makes it, and removes it.
        let dir = temp_dir();
        fs::remove_dir(&dir).unwrap();
        let port = free_ports();
        let mut script = Command::new(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scripts/cluster.sh"))
            .env("CLUSTER_PORT", port.to_string())
            .env("CLUSTER_DIR", &dir)
            .env("CLUSTER_SETTINGS", SETTINGS)
            .env("CLUSTER_MODULE_ARGS", format!("margin-ms 1000 retention-ms 400 failover-grace-ms {GRACE_MS}"))
            .env("CLUSTER_UNTIL_EOF", "1")
            .env("LOCK_MODULE", module())
            .env("REDIS_SERVER", server_binary())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the script runs");
        let mut said = BufReader::new(script.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("cluster ready:") {
            line.clear();
            if said.read_line(&mut line).unwrap() == 0 {
                let output = script.wait_with_output().unwrap();
                return Err(String::from_utf8_lossy(&output.stderr).into_owned());
            }
        }
        let nodes = (port..port + 6).map(|port| Node::new(port, dir.join(port.to_string()))).collect();
        let cluster = Self { script, _said: said, nodes };
        cluster.until_well();
        Ok(cluster)
    }

    /// The master that serves a key, as soon as there is exactly one.
    pub fn master_of(&self, key: &str) -> &Node {
        until("one master serves the key", || {
            let mut serving = self.nodes.iter().filter(|node| node.serves(key));
            let first = serving.next()?;
            serving.next().is_none().then_some(first)
        })
    }

    /// A master that does not serve the key.
    pub fn other_master(&self, key: &str) -> &Node {
        until("there is another master", || self.nodes.iter().find(|node| node.is_master() && !node.serves(key)))
    }

    pub fn replica_of(&self, master: &Node) -> &Node {
        until("it has a replica", || self.nodes.iter().find(|node| node.master_port() == Some(master.port)))
    }

    /// Waits until all nodes are up, agree, and have their replicas in sync.
    pub fn until_well(&self) {
        until("the cluster is well", || {
            let masters: Vec<u16> = self.nodes.iter().filter(|node| node.is_master()).map(|node| node.port).collect();
            let agree = |node: &Node| node.is_well() && node.masters() == masters;
            self.nodes.iter().all(agree).then_some(())
        });
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Its input ends. A server that stands still would not.
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}

/// The first of six ports that were free a moment ago, as those of the cluster's own traffic: below those that the
/// system gives to whoever asks for any, and above those of the other tests.
fn free_ports() -> u16 {
    let is_free = |port| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    let mut first = 18_000 + u16::try_from(std::process::id() % 500).unwrap() * 6;
    while !(first..first + 6).all(|port| is_free(port) && is_free(port + 10_000)) {
        first = if first > 21_000 { 18_000 } else { first + 6 };
    }
    first
}

/// What nodes.rs reads files with.
fn read(path: PathBuf) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
