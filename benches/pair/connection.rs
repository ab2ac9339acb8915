//! How operations are sent: for many keys at once, over several connections in turn.

use super::work::Workload;
use crate::measure::state::State;
use crate::measure::{argument, turn, Cost, Pipe, ServerCpu};
use std::ops::Range;
use testkit::{show, Conn, Server};

/// The number of keys in a command for several.
pub const MANY: usize = 10;

/// A key that is locked and unlocked. All parts of commands are kept encoded, because the client has to be faster than
/// the server.
struct Lock {
    key: Vec<u8>,
    /// The second key of the calls of lock.lua.
    queue: Vec<u8>,
    /// For commands that lock several at once.
    keys: Vec<Vec<u8>>,
    /// The value of SET NX PX: 36 bytes, like a UUID.
    secret: Vec<u8>,
    /// The last reply of LOCK.ACQUIRE.
    token: Vec<u8>,
    /// The number of an attempt.
    id: Vec<u8>,
}

/// A part of a command.
#[derive(Clone)]
pub enum Part {
    /// Bytes as sent.
    Fixed(Vec<u8>),
    Key,
    Queue,
    Keys,
    /// The key at this index.
    OneOfKeys(usize),
    Secret,
    Token,
    Id,
}

/// The expected reply of a command, line by line; `None` is a token, which is kept for the next steps.
pub type Expect = &'static [Option<&'static str>];

pub const TOKEN: Expect = &[None];
/// The token with empty details.
pub const DETAILS: Expect = &[Some("*4"), None, Some("$-1"), Some("$-1"), Some("$-1")];
pub const OK: Expect = &[Some("+OK")];
pub const ONE: Expect = &[Some(":1")];
pub const ZERO: Expect = &[Some(":0")];
pub const TEN: Expect = &[Some(":10")];
pub const NIL: Expect = &[Some("$-1")];
/// A transaction of [`MANY`] commands that reply OK.
pub const TRANSACTION: Expect = &{
    let mut lines = [Some("+OK"); 2 * MANY + 2];
    let mut at = 1;
    while at <= MANY {
        lines[at] = Some("+QUEUED");
        at += 1;
    }
    lines[at] = Some("*10");
    lines
};

/// One command, sent for all keys.
#[derive(Clone)]
pub struct Step {
    pub parts: Vec<Part>,
    expect: Expect,
}

/// `KEY`, `QUEUE`, `KEYS`, `SECRET`, `TOKEN` and `ID#` stand for the lock's own values; the other words are literal.
pub fn step(command: &str, expect: Expect) -> Step {
    let words: Vec<&str> = command.split(' ').collect();
    let count: usize = words.iter().map(|word| if *word == "KEYS" { MANY } else { 1 }).sum();
    let mut parts = vec![Part::Fixed(format!("*{count}\r\n").into_bytes())];
    parts.extend(words.iter().map(|word| match *word {
        "KEY" => Part::Key,
        "QUEUE" => Part::Queue,
        "KEYS" => Part::Keys,
        "SECRET" => Part::Secret,
        "TOKEN" => Part::Token,
        "ID#" => Part::Id,
        text => Part::Fixed(argument(text.as_bytes())),
    }));
    Step { parts, expect }
}

/// The name of a script that the server keeps.
pub fn loaded(conn: &mut Conn, script: &str) -> String {
    conn.text(&["SCRIPT", "LOAD", script])
}

/// A connection with keys of its own.
pub struct Connection {
    pipe: Pipe,
    locks: Vec<Lock>,
}

impl Connection {
    pub fn new(server: &Server, number: usize, keys: usize) -> Self {
        let key = |index: usize| format!("bench:lock:{number}:{index:04}");
        let lock = |index: usize| Lock {
            key: argument(key(index).as_bytes()),
            queue: argument(format!("{0}:queue:{{{0}}}", key(index)).as_bytes()),
            keys: (0..MANY).map(|nth| argument(format!("bench:{nth}:{number}:{index:04}").as_bytes())).collect(),
            secret: argument(format!("3f2b8c1e-9d47-4a06-b5e2-{number:04}{index:08}").as_bytes()),
            token: Vec::new(),
            id: argument(format!("7{number:06}{index:012}").as_bytes()),
        };
        Self { pipe: Pipe::to(server), locks: (0..keys).map(lock).collect() }
    }

    /// Sends a step for some of the keys.
    fn send(&mut self, step: &Step, keys: Range<usize>) {
        for lock in &self.locks[keys] {
            for part in &step.parts {
                self.pipe.add(match part {
                    Part::Fixed(bytes) => bytes,
                    Part::Key => &lock.key,
                    Part::Queue => &lock.queue,
                    Part::Keys => {
                        lock.keys.iter().for_each(|key| self.pipe.add(key));
                        continue;
                    }
                    Part::OneOfKeys(nth) => &lock.keys[*nth],
                    Part::Secret => &lock.secret,
                    Part::Token => &lock.token,
                    Part::Id => &lock.id,
                });
            }
        }
        self.pipe.flush();
    }

    fn read(&mut self, step: &Step, keys: Range<usize>) {
        let locks = &mut self.locks[keys];
        let count = locks.len();
        let mut token = |index: usize, reply: &[u8]| {
            let token = reply.strip_prefix(b":").unwrap_or_else(|| panic!("not a token: {}", show(reply)));
            locks[index].token = argument(token);
        };
        let right = |line: &str, reply: &[u8]| assert!(reply == line.as_bytes(), "not {line} but {}", show(reply));
        let lines = step.expect;
        self.pipe.replies(count * lines.len(), |at, reply| match lines[at % lines.len()] {
            Some(line) => right(line, reply),
            None => token(at / lines.len(), reply),
        });
    }

    /// Performs a step for the first `keys` keys, [`AT_ONCE`] at a time, and nothing else in the meantime.
    pub fn pass(&mut self, step: &Step, keys: usize) {
        for first in (0..keys).step_by(AT_ONCE) {
            let part = first..(first + AT_ONCE).min(keys);
            self.send(step, part.clone());
            self.read(step, part);
        }
    }

    fn all(&self) -> Range<usize> {
        0..self.locks.len()
    }
}

/// Commands that fit into the 16 kB that a server reads at once.
pub const AT_ONCE: usize = 100;

/// Repeats `steps` on all connections; each connection has a step in flight at any time.
fn run(connections: &mut [Connection], steps: &[Step], times: usize) {
    let mut pending: Option<&Step> = None;
    for step in std::iter::repeat_n(steps, times).flatten() {
        for connection in &mut *connections {
            if let Some(pending) = pending {
                connection.read(pending, connection.all());
            }
            connection.send(step, connection.all());
        }
        pending = Some(step);
    }
    if let Some(pending) = pending {
        for connection in connections {
            connection.read(pending, connection.all());
        }
    }
}

/// The columns of the raw file, as [`Cost::row`] fills them.
pub const COLUMNS: &str = "operation,contender,round,place,operations,cpu_ns,wall_ns,state";

/// A server and the connections over which it is measured.
pub struct Stand {
    pub server: Server,
    pub cpu: ServerCpu,
    /// The operations of one measurement: whole steps of all connections.
    pub operations: usize,
    /// The replication sinks of the server.
    state: State,
    replica: Option<Server>,
    connections: Vec<Connection>,
    times: usize,
}

impl Stand {
    /// With `connections` connections of `keys` keys; a measurement has at least `operations`.
    pub fn new(
        (server, replica): (Server, Option<Server>),
        connections: usize,
        keys: usize,
        operations: usize,
    ) -> Self {
        let times = operations.div_ceil(connections * keys);
        let (cpu, operations) = (ServerCpu::of(&server), times * connections * keys);
        let connections = (0..connections).map(|number| Connection::new(&server, number, keys)).collect();
        Self { server, cpu, operations, state: State::NoSink, replica, connections, times }
    }

    /// On a server in that state.
    pub fn in_state(state: State, connections: usize, keys: usize, operations: usize) -> Self {
        Self { state, ..Self::new(state.start(), connections, keys, operations) }
    }

    /// Measures all contenders of a workload in turn. Returns the lines for the raw file. Round 0 warms up and is not
    /// counted.
    pub fn round(&mut self, round: usize, workload: &mut Workload) -> Vec<String> {
        let Workload { name, contenders } = workload;
        let count = contenders.len();
        let mut rows = Vec::new();
        for place in 0..count {
            let contender = &mut contenders[turn(place, count, round, round / 2)];
            let Self { server, cpu, connections, times, operations, state, replica } = self;
            run(connections, &contender.before, 1);
            let cost = Cost::of(cpu, || run(connections, &contender.steps, *times));
            if !contender.before.is_empty() {
                server.conn().ok(&["FLUSHALL"]);
            }
            state.settle(server, replica.as_ref());
            if round > 0 {
                contender.costs.push(cost);
                rows.push(
                    cost.row(name, contender.name, round, place, *operations) + &format!(",{}", state.in_raw_files()),
                );
            }
        }
        rows
    }
}

/// A state's workloads with their costs, and the number of operations in a measurement.
pub type Measured = (State, usize, Vec<Workload>);

/// Runs this many rounds of all workloads, each in both states, side by side. Returns the lines for the raw file, and
/// the workloads with their costs in each state.
pub fn side_by_side(
    rounds: usize,
    (connections, keys, operations): (usize, usize, usize),
    workloads: impl Fn(&mut Conn) -> Vec<Workload>,
) -> (Vec<String>, Vec<Measured>) {
    let mut stands: Vec<(Stand, Vec<Workload>)> = State::ALL
        .iter()
        .map(|state| {
            let stand = Stand::in_state(*state, connections, keys, operations);
            let workloads = workloads(&mut stand.server.conn());
            (stand, workloads)
        })
        .collect();
    let mut rows = Vec::new();
    for round in 0..=rounds {
        for at in 0..stands[0].1.len() {
            for (stand, workloads) in &mut stands {
                rows.extend(stand.round(round, &mut workloads[at]));
            }
        }
        eprintln!("round {round} of {rounds}");
    }
    (rows, stands.into_iter().map(|(stand, workloads)| (stand.state, stand.operations, workloads)).collect())
}
