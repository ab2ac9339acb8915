//! The cost of the loaded module for commands that have nothing to do with it.
//!
//! The same server binary without the module and with it, in three states: before the first client waits, after a
//! client has waited (keyspace events are on from then on), and after a client has used SESSION (the server reports
//! connections that end). It measures the server's CPU time per command. Every round starts new servers, because two
//! runs of the same binary differ by a few percent, depending on where it is loaded. A second server without the module
//! shows how much.

use crate::bounds::list::judged;
use crate::measure::{argument, median, print_table, sorted, turn, Call, Cost, Origin, Pipe, ServerCpu};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use testkit::{show, until, Server};

/// Connections that take turns, and commands in flight on each: together less than a server reads at once.
const CONNECTIONS: usize = 8;
const BATCH: usize = 100;

const ROUNDS: usize = 15;
const OPERATIONS: usize = 200_000;
/// A connection costs as much as this number of commands.
const COMMANDS_PER_CONNECTION: usize = 40;

/// The highest ratio to a server without the module, before the first client waits.
const AT_MOST: f64 = 1.03;

/// A server's state before it is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Without,
    /// The same, for comparison.
    WithoutAgain,
    Loaded,
    Waited,
    Session,
}

const STATES: [(State, &str); 5] = [
    (State::Without, "without the module"),
    (State::WithoutAgain, "without it, again"),
    (State::Loaded, "loaded, nobody has waited"),
    (State::Waited, "a client has waited"),
    (State::Session, "and one has had a SESSION"),
];

impl State {
    fn start(self) -> Server {
        let options = Server::with();
        if matches!(self, Self::Without | Self::WithoutAgain) {
            return options.without_module().start();
        }
        let server = options.start();
        let mut conn = server.conn();
        if matches!(self, Self::Waited | Self::Session) {
            conn.int(&["LOCK.ACQUIRE", "k", "EX", "60"]);
            assert!(server.conn().execute(&["LOCK.ACQUIRE", "k", "EX", "60", "WAIT", "1"]).is_nil());
        }
        if self == Self::Session {
            server.conn().int(&["LOCK.ACQUIRE", "session", "EX", "60", "SESSION"]);
            until("the session has ended", || {
                conn.text(&["INFO", "lock"]).contains("\r\nlock_sessions_ended:1\r\n").then_some(())
            });
        }
        conn.ok(&["FLUSHALL"]);
        server
    }
}

/// Commands that are measured in turn, on as many keys as there are operations; each batch is encoded.
struct Sweep {
    name: &'static str,
    batches: Vec<Vec<u8>>,
    reply: &'static str,
    /// Lines of the reply.
    lines: usize,
}

fn sweep(name: &'static str, operations: usize, behind_key: &[&str], reply: &'static str, lines: usize) -> Sweep {
    let batch = |first: usize| {
        let mut wire = Vec::new();
        for number in first..first + BATCH {
            wire.extend_from_slice(format!("*{}\r\n", 2 + behind_key.len()).as_bytes());
            wire.extend_from_slice(&argument(name.as_bytes()));
            wire.extend_from_slice(&argument(format!("bench:key:{number:08}").as_bytes()));
            for word in behind_key {
                wire.extend_from_slice(&argument(word.as_bytes()));
            }
        }
        wire
    };
    Sweep { name, batches: (0..operations).step_by(BATCH).map(batch).collect(), reply, lines }
}

fn sweeps(operations: usize) -> [Sweep; 4] {
    [
        sweep("SET", operations, &["3f2b8c1e-9d47-4a06-b5e2-000000000000"], "+OK", 1),
        sweep("GET", operations, &[], "$36", 2),
        sweep("EXPIRE", operations, &["1000"], ":1", 1),
        sweep("DEL", operations, &[], ":1", 1),
    ]
}

impl Sweep {
    /// Sends all batches, one connection after the other.
    fn run(&self, connections: &mut [Pipe]) {
        let read = |connection: &mut Pipe| {
            connection.replies(BATCH * self.lines, |line, reply| {
                // The second line of a bulk is the value.
                let is_right = line % self.lines == 1 || reply == self.reply.as_bytes();
                assert!(is_right, "{}: not {} but {}", self.name, self.reply, show(reply));
            });
        };
        let count = connections.len();
        for (number, batch) in self.batches.iter().enumerate() {
            let connection = &mut connections[number % count];
            if number >= count {
                read(connection);
            }
            connection.add(batch);
            connection.flush();
        }
        for number in self.batches.len().saturating_sub(count)..self.batches.len() {
            read(&mut connections[number % count]);
        }
    }
}

/// Connects, gets one reply, and disconnects, again and again.
fn connect_and_leave(server: &Server, times: usize) {
    let mut answer = [0; 7];
    for _ in 0..times {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.write_all(b"PING\r\n").unwrap();
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"+PONG\r\n");
    }
    // Time for the server to notice the last disconnection.
    std::thread::sleep(Duration::from_millis(5));
}

const CONNECTION: &str = "connect, PING, disconnect";

/// The cost of one operation: for each state, for each round.
struct Operation {
    name: &'static str,
    times: usize,
    costs: [Vec<Cost>; STATES.len()],
}

pub fn measure(call: &Call) {
    let settings = call.settings(ROUNDS, OPERATIONS);
    let operations = settings.operations.next_multiple_of(CONNECTIONS * BATCH);
    let connections = (operations / COMMANDS_PER_CONNECTION).max(1);
    let sweeps = sweeps(operations);
    let mut measured: Vec<Operation> = sweeps
        .iter()
        .map(|sweep| (sweep.name, operations))
        .chain([(CONNECTION, connections)])
        .map(|(name, times)| Operation { name, times, costs: Default::default() })
        .collect();

    let server = Server::start();
    let origin = Origin::of("overhead", &server, &settings)
        .with("cpu time", ServerCpu::of(&server).source())
        .with("rounds", format!("{}, each with new servers", settings.rounds))
        .with("operations", format!("{operations} commands and {connections} connections in each state and round"))
        .with("on their way", format!("{CONNECTIONS} connections with {BATCH} commands each"))
        .printed();
    drop(server);

    let mut rows = Vec::new();
    // Round 0 warms up and is not counted, unless it is the only one.
    for round in usize::from(settings.smoke)..=settings.rounds {
        let servers: Vec<Server> = STATES.iter().map(|(state, _)| state.start()).collect();
        let mut cpus: Vec<ServerCpu> = servers.iter().map(ServerCpu::of).collect();
        let mut pipes: Vec<Vec<Pipe>> =
            servers.iter().map(|server| (0..CONNECTIONS).map(|_| Pipe::to(server)).collect()).collect();
        for (index, operation) in measured.iter_mut().enumerate() {
            for place in 0..STATES.len() {
                let at = turn(place, STATES.len(), round, round / 2);
                let cost = Cost::of(&mut cpus[at], || match sweeps.get(index) {
                    Some(sweep) => sweep.run(&mut pipes[at]),
                    None => connect_and_leave(&servers[at], connections),
                });
                if round > 0 {
                    operation.costs[at].push(cost);
                    rows.push(cost.row(operation.name, STATES[at].1, round, place, operation.times));
                }
            }
        }
        if round > 0 {
            eprintln!("round {round} of {}", settings.rounds);
        }
    }
    print_costs(&measured);
    origin.keep("operation,state,round,place,operations,cpu_ns,wall_ns", &rows);
}

/// Prints the median cost of one operation, its ratio to a server without the module (the median of the rounds'
/// ratios), and the range of the middle half of the ratios.
fn print_costs(measured: &[Operation]) {
    let mut rows = Vec::new();
    for Operation { name, times, costs } in measured {
        for (at, (state, label)) in STATES.iter().enumerate() {
            let cpu = |cost: &Cost| cost.cpu.as_secs_f64();
            let micros = median(costs[at].iter().map(cpu)) * 1e6 / *times as f64;
            let ratios = sorted(costs[at].iter().zip(&costs[0]).map(|(here, without)| cpu(here) / cpu(without)));
            let ratio = median(ratios.iter().copied());
            let quarter = ratios.len() / 4;
            let bound = (*state == State::Loaded).then_some(AT_MOST);
            let mut row = vec![
                (*name).into(),
                (*label).into(),
                format!("{micros:.3}"),
                format!("{ratio:.3}"),
                format!("{:.3} to {:.3}", ratios[quarter], ratios[ratios.len() - 1 - quarter]),
            ];
            row.extend(judged(ratio, bound));
            rows.push(row);
        }
    }
    let header = ["operation", "server", "server CPU, µs", "ratio", "middle half", "expected at most", "verdict"];
    print_table(2, &header, &rows);
}
