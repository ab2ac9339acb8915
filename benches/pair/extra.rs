//! The same pair of commands on a server that has more to do: persistence, a replica, many other keys, many clients
//! that wait for each reply, threads; and with more options of LOCK.*. No bounds: it only shows the cost.

use super::connection::{Stand, COLUMNS};
use super::work::{pair, with_options, Workload};
use super::{tables, CONNECTIONS, KEYS};
use crate::measure::state::State;
use crate::measure::{Call, Origin, Pipe};
use std::fmt::Write as _;
use testkit::Server;

const ROUNDS: usize = 7;
const OPERATIONS: usize = 50_000;

const OTHER_KEYS: usize = 1_000_000;
const CLIENTS: usize = 50;

/// A server in a state other than the plain one.
struct Configuration {
    name: &'static str,
    args: &'static [&'static str],
    has_replica: bool,
    other_keys: usize,
    /// Connections, and commands in flight on each.
    connections: (usize, usize),
}

const PLAIN: Configuration = Configuration {
    name: "nothing else",
    args: &[],
    has_replica: false,
    other_keys: 0,
    connections: (CONNECTIONS, KEYS),
};

const CONFIGURATIONS: [Configuration; 6] = [
    PLAIN,
    Configuration { name: "AOF, everysec", args: &["--appendonly", "yes", "--appendfsync", "everysec"], ..PLAIN },
    Configuration { name: "one replica", has_replica: true, ..PLAIN },
    Configuration { name: "1,000,000 other keys", other_keys: OTHER_KEYS, ..PLAIN },
    Configuration { name: "50 connections, no pipeline", connections: (CLIENTS, 1), ..PLAIN },
    Configuration { name: "io-threads 4", args: &["--io-threads", "4"], ..PLAIN },
];

/// Measures all configurations, each on a server of its own.
pub fn measure(call: &Call) {
    let settings = call.settings(ROUNDS, OPERATIONS);
    let origin = Origin::of("extra", &Server::start(), &settings)
        .with("rounds", settings.rounds)
        .with("operations", format!("{} of each contender in each round", settings.operations))
        .with("on their way", format!("{CONNECTIONS} connections with {KEYS} commands each, unless it says otherwise"))
        .printed();
    let mut rows = Vec::new();
    let mut measured: Vec<Workload> = Vec::new();
    for configuration in &CONFIGURATIONS {
        let server = Server::with().args(configuration.args).start();
        fill(&server, configuration.other_keys);
        let replica = configuration.has_replica.then(|| {
            let replica = Server::with().without_module().start();
            replica.replicate(&server);
            replica
        });
        let mut conn = server.conn();
        let mut workload = if configuration.name == PLAIN.name { with_options(&mut conn) } else { pair(&mut conn) };
        workload.name = configuration.name;
        let mut stand = Stand::new(
            (server, replica),
            configuration.connections.0,
            configuration.connections.1,
            settings.operations,
        );
        for round in 0..=settings.rounds {
            rows.extend(stand.round(round, &mut workload));
        }
        eprintln!("{}: done", configuration.name);
        measured.push(workload);
    }
    tables::print(&measured, settings.operations, State::NoSink, origin.server());
    origin.keep(COLUMNS, &rows);
}

/// Sets this many keys, which are not used later.
fn fill(server: &Server, keys: usize) {
    const AT_ONCE: usize = 1_000;
    let mut pipe = Pipe::to(server);
    for first in (0..keys).step_by(AT_ONCE) {
        let mut wire = String::new();
        for number in first..first + AT_ONCE {
            let _ = write!(wire, "*3\r\n$3\r\nSET\r\n$16\r\nother:{number:010}\r\n$5\r\nvalue\r\n");
        }
        pipe.add(wire.as_bytes());
        pipe.flush();
        pipe.replies(AT_ONCE, |_, reply| assert_eq!(reply, b"+OK"));
    }
}
