//! The servers of a run.

pub mod cluster;
pub mod group;

use crate::clients::ask::Attempt;
use crate::clients::Client;
use crate::history::Share;
use crate::plan::Setup;
use crate::world::World;
use std::time::Duration;
use testkit::{Conn, Reply};

pub enum Site {
    /// One server, or a master and a replica.
    Group(group::Group),
    Cluster(cluster::Cluster),
}

impl Site {
    pub fn start(setup: Setup) -> Self {
        match setup {
            Setup::Cluster => Self::Cluster(cluster::start()),
            _ => Self::Group(group::Group::start(setup)),
        }
    }

    /// The servers' ports as clients see them.
    pub fn client_ports(&self) -> Vec<u16> {
        match self {
            Self::Group(group) => group.client_ports(),
            Self::Cluster(cluster) => cluster.nodes.iter().map(|node| node.port).collect(),
        }
    }

    /// The ports of all servers, bypassing the relays.
    pub fn ports(&self) -> Vec<u16> {
        match self {
            Self::Group(group) => group.members.iter().map(group::Member::port).collect(),
            Self::Cluster(cluster) => cluster.nodes.iter().map(|node| node.port).collect(),
        }
    }

    /// Sends a command to all servers that answer soon.
    pub fn send_all(&self, command: &[&str]) {
        for port in self.ports() {
            execute(port, command);
        }
    }

    /// The log lines that no server may write.
    pub fn troubles(&self) -> Vec<String> {
        let logs: Vec<String> = match self {
            Self::Group(group) => group.members.iter().map(group::Member::logs).collect(),
            Self::Cluster(cluster) => cluster.nodes.iter().map(|node| node.log_tail(usize::MAX)).collect(),
        };
        let is_trouble = |line: &&str| TROUBLES.iter().any(|trouble| line.contains(trouble));
        logs.iter().flat_map(|log| log.lines().filter(is_trouble).map(String::from).collect::<Vec<_>>()).collect()
    }

    /// Waits until all servers are up, have their roles, and their replicas are in sync.
    pub fn wait_until_healthy(&self) {
        match self {
            Self::Group(group) => group.wait_until_healthy(),
            Self::Cluster(cluster) => cluster.wait_until_healthy(),
        }
    }
}

/// Log marks of a server that crashed, or whose module met an unexpected state.
const TROUBLES: [&str; 5] = ["crashed by signal", "ASSERTION FAILED", "internal error", "panicked", "Guru Meditation"];

/// Sends a command to a server; `None` if it does not answer soon.
pub fn execute(port: u16, command: &[&str]) -> Option<Reply> {
    let mut conn = Conn::to(port).ok()?;
    conn.set_patience(Duration::from_millis(2_500));
    conn.try_execute(command).ok()
}

/// A field of INFO.
pub fn field(port: u16, section: &str, field: &str) -> Option<String> {
    execute(port, &["INFO", section])?.line(field)
}

/// After the last fault, each key can be locked again by a client that waits among the others.
pub fn assert_work_goes_on(world: &World, keys: &[String]) {
    let begin = world.now();
    for key in keys {
        let mut client = Client::new(world, 0, 0);
        let attempt = Attempt {
            keys: &[key.as_str()],
            share: Share::Alone,
            lease_ms: 1_000,
            wait_ms: 5_000,
            with_id: true,
            session: false,
            notified: false,
        };
        let granted = loop {
            match attempt.ask(&mut client) {
                None if world.now() - begin < 40_000_000 => {}
                ended => break ended,
            }
        };
        let token = granted.unwrap_or_else(|| {
            panic!("{key} can no longer be granted: {:?}", client.link.execute(&["GET", key.as_str()]))
        });
        client.link.execute(&["LOCK.RELEASE", key, &token.to_string()]);
    }
}
