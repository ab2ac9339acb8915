//! The ways in which a replication sink attaches to a server, and leaves.

use super::content::until_aof_is_complete;
use super::load::Load;
use super::server;
use std::sync::atomic::Ordering;
use std::time::Duration;
use testkit::dice::Dice;
use testkit::{encoded, until, Conn, Server};

/// How a sink attaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// A replica that is sent a file.
    Disk,
    /// A replica that is sent the data over its connection.
    Diskless,
    /// Like `Diskless`, after a delay in which the backlog exists and nobody reads it.
    Delayed,
    /// A replica with two connections (Valkey 8, Redis 8).
    TwoChannels,
    /// A replica while a BGSAVE runs.
    DuringSave,
    /// A replica during an AOF rewrite, after which the AOF is turned off again.
    DuringRewrite,
    /// Two replicas; the first leaves during its data transfer.
    OneLeaves,
    /// A replica that is cut off, and resumes.
    Continues,
    /// A replica that becomes the master by FAILOVER.
    Failover,
    /// A replica that is promoted, and then follows again.
    Promoted,
    Aof,
    /// The AOF while a BGSAVE runs: it is rewritten later.
    AofDuringSave,
    /// The AOF, on, off and on again.
    AofTwice,
    /// The AOF, turned on within a transaction between two locks, while a replica waits for its data.
    AofInTransaction,
    /// A replica and the AOF at once.
    Both,
    /// A BGSAVE alone, and then a replica.
    SaveFirst,
}

impl Way {
    pub const ALL: [Self; 16] = [
        Self::Disk,
        Self::Diskless,
        Self::Delayed,
        Self::TwoChannels,
        Self::DuringSave,
        Self::DuringRewrite,
        Self::OneLeaves,
        Self::Continues,
        Self::Failover,
        Self::Promoted,
        Self::Aof,
        Self::AofDuringSave,
        Self::AofTwice,
        Self::AofInTransaction,
        Self::Both,
        Self::SaveFirst,
    ];
}

/// The setting for two connections, of Valkey and of Redis.
const TWO_CHANNELS: [&str; 2] = ["dual-channel-replication-enabled", "repl-rdb-channel"];

/// The servers of a round.
pub struct Scene<'a> {
    pub master: &'a Server,
    pub replicas: Vec<Server>,
    pub load: &'a Load,
    pub dice: Dice,
}

impl Scene<'_> {
    /// Attaches a sink.
    pub fn begin(&mut self, way: Way) {
        let mut conn = self.master.conn();
        let diskless = if matches!(way, Way::Disk | Way::DuringSave) { "no" } else { "yes" };
        set(&mut conn, "repl-diskless-sync", diskless);
        let delay = if matches!(way, Way::Delayed | Way::AofInTransaction) { "1" } else { "0" };
        set(&mut conn, "repl-diskless-sync-delay", delay);
        self.two_channels(&mut conn, way == Way::TwoChannels);
        match way {
            Way::Disk | Way::Diskless | Way::Delayed | Way::TwoChannels => self.attach(),
            Way::DuringSave => {
                save_slowly(&mut conn);
                self.attach();
            }
            Way::SaveFirst => {
                save_slowly(&mut conn);
                self.wait_a_little();
                until_aof_is_complete(&mut conn);
                self.wait_a_little();
                self.attach();
            }
            Way::DuringRewrite => {
                set(&mut conn, "rdb-key-save-delay", "1000");
                conn.execute(&["BGREWRITEAOF"]);
                self.attach();
                set(&mut conn, "rdb-key-save-delay", "0");
            }
            Way::OneLeaves => {
                set(&mut conn, "rdb-key-save-delay", "1000");
                self.attach();
                self.attach();
                self.wait_a_little();
                drop(self.replicas.remove(0));
                set(&mut conn, "rdb-key-save-delay", "0");
            }
            Way::Continues => {
                self.attach();
                self.until_in_sync();
                conn.execute(&["CLIENT", "KILL", "TYPE", "replica"]);
                self.wait_a_little();
            }
            Way::Failover => {
                self.attach();
                self.until_in_sync();
                self.fail_over();
            }
            Way::Promoted => {
                self.attach();
                self.until_in_sync();
                let mut replica = self.replicas[0].conn();
                replica.ok(&["REPLICAOF", "NO", "ONE"]);
                // It has its own writes, which are lost when it follows again.
                replica.execute(&["LOCK.ACQUIRE", "own", "PX", "60000"]);
                self.wait_a_little();
                self.follow(&self.replicas[0]);
            }
            Way::Aof => set(&mut conn, "appendonly", "yes"),
            Way::AofDuringSave => {
                save_slowly(&mut conn);
                set(&mut conn, "appendonly", "yes");
            }
            Way::AofTwice => {
                for value in ["yes", "no", "yes"] {
                    set(&mut conn, "appendonly", value);
                    self.wait_a_little();
                }
            }
            Way::AofInTransaction => self.turn_aof_on_within(&mut conn),
            Way::Both => {
                self.attach();
                set(&mut conn, "appendonly", "yes");
            }
        }
    }

    /// Turns dual-channel replication on or off, if the server has it.
    fn two_channels(&self, conn: &mut Conn, are_on: bool) {
        let value = if are_on { "yes" } else { "no" };
        for name in TWO_CHANNELS {
            conn.execute(&["CONFIG", "SET", name, value]);
            for replica in &self.replicas {
                replica.conn().execute(&["CONFIG", "SET", name, value]);
            }
        }
    }

    /// A new replica, which begins to synchronize.
    fn attach(&mut self) {
        let replica = server(&[]).start();
        self.replicas.push(replica);
        let mut conn = self.master.conn();
        let are_two = TWO_CHANNELS
            .iter()
            .any(|name| matches!(conn.execute(&["CONFIG", "GET", name]).list(), [_, value] if value.text() == "yes"));
        self.two_channels(&mut conn, are_two);
        if let Some(replica) = self.replicas.last() {
            self.follow(replica);
        }
    }

    fn follow(&self, replica: &Server) {
        replica.conn().ok(&["REPLICAOF", "127.0.0.1", &self.master.port().to_string()]);
    }

    /// Waits until the replicas are linked.
    pub fn until_in_sync(&self) {
        for replica in &self.replicas {
            let mut conn = replica.conn();
            until("the replica is in sync", || {
                let info = conn.execute(&["INFO", "replication"]);
                let is_up = info.line("master_link_status")? == "up" && info.line("role")? == "slave";
                is_up.then_some(())
            });
        }
    }

    /// Asserts, from the master's log, that the way was really taken.
    pub fn assert_it_was(&self, way: Way) {
        let mut conn = self.master.conn();
        let has_two = TWO_CHANNELS.iter().any(|name| !conn.execute(&["CONFIG", "GET", name]).list().is_empty());
        let said = match way {
            Way::Disk => "target: disk",
            Way::Diskless => "sockets",
            Way::Delayed => "Delay next BGSAVE",
            Way::TwoChannels if has_two => "channel",
            Way::AofDuringSave => "already another background operation",
            _ => return,
        };
        let log = self.master.log();
        assert!(log.contains(said), "{way:?}: the log does not say '{said}'\n{log}");
    }

    pub fn wait_a_little(&mut self) {
        std::thread::sleep(Duration::from_millis(self.dice.between(0, 150)));
    }

    fn fail_over(&mut self) {
        self.master.conn().ok(&["FAILOVER"]);
        let mut replica = self.replicas[0].conn();
        until("the roles are exchanged", || (replica.info("replication", "role")? == "master").then_some(()));
        self.load.port.store(self.replicas[0].port(), Ordering::Relaxed);
    }

    /// A replica waits for its data, the backlog exists, and a transaction turns the AOF on between two locks. All of
    /// it happens in one iteration, so no tick comes between.
    fn turn_aof_on_within(&mut self, conn: &mut Conn) {
        let mut bare = self.master.conn();
        bare.send_bytes(
            &[&["REPLCONF", "capa", "eof"][..], &["PSYNC", "?", "-1"]]
                .iter()
                .flat_map(|line| encoded(line))
                .collect::<Vec<u8>>(),
        );
        let lines: [&[&str]; 6] = [
            &["LOCK.ACQUIRE", "before", "PX", "60000"],
            &["MULTI"],
            &["LOCK.ACQUIRE", "within:1", "PX", "60000"],
            &["CONFIG", "SET", "appendonly", "yes"],
            &["LOCK.ACQUIRE", "within:2", "PX", "60000"],
            &["EXEC"],
        ];
        conn.send_bytes(&lines.iter().flat_map(|line| encoded(line)).collect::<Vec<u8>>());
        for _ in lines {
            conn.read();
        }
    }
}

/// A BGSAVE that takes some time.
fn save_slowly(conn: &mut Conn) {
    set(conn, "rdb-key-save-delay", "2000");
    conn.execute(&["BGSAVE"]);
    set(conn, "rdb-key-save-delay", "0");
}

pub fn set(conn: &mut Conn, name: &str, value: &str) {
    conn.ok(&["CONFIG", "SET", name, value]);
}
