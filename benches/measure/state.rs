//! The two states in which everything is measured: a server without an AOF and a replica, and a server with both. The
//! cost of a change depends on them more than on the machine, so each contender runs in both.

use super::info;
use super::runs::Row;
use std::thread;
use testkit::{until, Options, Server};

/// A server's replication sinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The defaults of the benches.
    NoSink,
    /// `appendonly yes`, `appendfsync everysec`, and one replica.
    AofAndReplica,
}

/// The column of the raw files.
pub const COLUMN: &str = "state";

impl State {
    pub const ALL: [Self; 2] = [Self::NoSink, Self::AofAndReplica];

    /// As written in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoSink => "no AOF, no replica",
            Self::AofAndReplica => "AOF and replica",
        }
    }

    /// As written in raw files, where the first state keeps its earlier name.
    pub const fn in_raw_files(self) -> &'static str {
        match self {
            Self::NoSink => "nobody listens",
            Self::AofAndReplica => self.name(),
        }
    }

    /// Whether a row was measured in this state; older runs had only one.
    pub fn is_of(self, row: &Row) -> bool {
        row.get(COLUMN).map_or(Self::NoSink.in_raw_files(), String::as_str) == self.in_raw_files()
    }

    /// The options of a server in this state.
    pub fn options(self, options: Options) -> Options {
        match self {
            Self::NoSink => options,
            // Rewritten between measurements only: see `settle`.
            Self::AofAndReplica => options.args(&[
                "--appendonly",
                "yes",
                "--appendfsync",
                "everysec",
                "--auto-aof-rewrite-percentage",
                "0",
            ]),
        }
    }

    /// Starts a server in this state, with its replica.
    pub fn start(self) -> (Server, Option<Server>) {
        let server = self.options(Server::with()).start();
        let replica = (self == Self::AofAndReplica).then(|| {
            let replica = Server::with().without_module().start();
            replica.replicate(&server);
            replica
        });
        (server, replica)
    }

    /// After a measurement: waits for the replica, for which the server would otherwise buffer more and more, and
    /// rewrites a large AOF. Otherwise the next contender would pay for both.
    pub fn settle(self, server: &Server, replica: Option<&Server>) {
        const LARGE: u64 = 256 << 20;
        if let Some(replica) = replica {
            server.wait_offset(replica);
        }
        let mut conn = server.conn();
        if self == Self::AofAndReplica && info::<u64>(&mut conn, "persistence", "aof_current_size") > LARGE {
            conn.execute(&["BGREWRITEAOF"]);
            until("the AOF is rewritten", || {
                (info::<u64>(&mut conn, "persistence", "aof_current_size") < LARGE).then_some(())
            });
        }
    }

    /// A replica for a server whose instructions are counted: it reads everything and never replies, since replies
    /// would depend on the clock.
    pub fn attach_silent_replica(self, server: &Server) {
        if self == Self::AofAndReplica {
            let stream = server.replication_stream();
            thread::spawn(move || stream.drain());
        }
    }
}
