//! A cluster from `scripts/cluster.sh`: started on free ports, inspected, and stopped.

use crate::watch::{watch, Watched};
use crate::{module, root, server_binary, six_free_ports, temp_dir, until, until_within, DEADLINE};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

pub mod nodes;

use nodes::Node;

/// Three masters and three replicas.
pub struct Cluster {
    script: Child,
    /// Kept open: the script would end if nobody read its output.
    _said: BufReader<ChildStdout>,
    /// A shared cluster is watched while a test uses it.
    watched: Option<Watched>,
    pub nodes: Vec<Node>,
}

/// The variants of CLUSTER FAILOVER.
pub const WAYS: [&[&str]; 3] = [&[], &["FORCE"], &["TAKEOVER"]];

/// An attempt to fail over is considered failed after this long.
const ASK_AGAIN: Duration = Duration::from_secs(6);

/// Settings for all nodes, so that they notice failures soon.
const SETTINGS: &str = "cluster-node-timeout 2000\nsave \"\"";

impl Cluster {
    pub fn start(settings: &str, module_args: &str) -> Self {
        Self::with_module(settings, module_args, module())
    }

    /// A cluster whose nodes load this module.
    pub fn with_module(settings: &str, module_args: &str, module: &Path) -> Self {
        let mut said = String::new();
        // A port that was free can be taken by another test a moment later, and busy nodes may fail to join.
        for _ in 0..5 {
            match Self::try_start(settings, module_args, module) {
                Ok(cluster) => return cluster,
                Err(why) => said = why,
            }
            if !["Address already in use", "was not created"].iter().any(|again| said.contains(again)) {
                break;
            }
        }
        panic!("{said}")
    }

    fn try_start(settings: &str, module_args: &str, module: &Path) -> Result<Self, String> {
        // The script creates it, and removes it.
        let dir = temp_dir();
        fs::remove_dir(&dir).unwrap();
        let port = six_free_ports();
        let mut script = Command::new(root().join("scripts/cluster.sh"))
            .env("CLUSTER_PORT", port.to_string())
            .env("CLUSTER_DIR", &dir)
            .env("CLUSTER_SETTINGS", format!("{SETTINGS}\n{settings}"))
            .env("CLUSTER_MODULE_ARGS", module_args)
            .env("CLUSTER_UNTIL_EOF", "1")
            .env("LOCK_MODULE", module)
            .env("REDIS_SERVER", server_binary())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the script runs");
        let watched = watch(script.id(), "TERM");
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
        Ok(Self { script, _said: said, watched: Some(watched), nodes })
    }

    /// Marks the cluster as used by one test, until `rests` is called.
    pub fn works(&mut self) {
        self.watched = Some(watch(self.script.id(), "TERM"));
    }

    /// Marks the cluster as unused.
    pub fn rests(&mut self) {
        self.watched = None;
    }

    /// The master that serves a key, as soon as there is exactly one.
    pub fn master_of(&self, key: &str) -> &Node {
        until("one master serves the key", || {
            let mut serving = self.nodes.iter().filter(|node| node.serves(key));
            let first = serving.next()?;
            serving.next().is_none().then_some(first)
        })
    }

    /// A master that does not serve the key, as soon as there is one.
    pub fn other_master(&self, key: &str) -> &Node {
        until("there is another master", || self.nodes.iter().find(|node| node.is_master() && !node.serves(key)))
    }

    /// The replica of a master, as soon as it has one.
    pub fn replica_of(&self, master: &Node) -> &Node {
        until("it has a replica", || self.nodes.iter().find(|node| node.master_port() == Some(master.port)))
    }

    /// Makes the replica of a key's master the new master. Returns the old master and the new one.
    pub fn fail_over(&self, key: &str, way: &[&str]) -> (&Node, &Node) {
        let old = self.master_of(key);
        let new = self.replica_of(old);
        let mut asked: Option<Instant> = None;
        until("the replica is master, the master a replica", || {
            // The other masters rarely vote again for a replica of the same master, so it is asked again.
            if asked.is_none_or(|asked| asked.elapsed() > ASK_AGAIN) && !new.is_master() {
                asked = Some(Instant::now());
                new.conn().execute(&[&["CLUSTER", "FAILOVER"], way].concat());
            }
            (new.is_master() && !old.is_master()).then_some(())
        });
        (old, new)
    }

    /// Waits until all nodes are up, agree, and have their replicas in sync.
    pub fn wait_until_healthy(&self) {
        // An election takes seconds on a busy machine, and one that fails is tried again after twice the node timeout.
        until_within(2 * DEADLINE, "the cluster is well", || {
            let masters: Vec<u16> = self.nodes.iter().filter(|node| node.is_master()).map(|node| node.port).collect();
            let agree = |node: &Node| node.is_well() && node.masters() == masters;
            self.nodes.iter().all(agree).then_some(())
        });
    }

    /// One key for each master, by the current slots.
    pub fn a_key_for_each_master(&self, prefix: &str) -> Vec<String> {
        let masters = self.nodes.iter().filter(|node| node.is_master());
        masters.map(|node| (0..1000).map(|n| format!("{prefix}{n}")).find(|key| node.serves(key)).unwrap()).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_logs();
        }
        // This ends the script's input. A stalled server would not end.
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}

impl Cluster {
    pub fn print_logs(&self) {
        for node in &self.nodes {
            eprintln!("--- log of the node on port {}:\n{}", node.port, node.log_tail(25));
        }
    }
}

/// The content of a node's file, for tests that read its log.
fn read(path: PathBuf) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
