//! One hand-off with many waiters behind it, and a waiter's memory.
//!
//! This process has a connection for each waiter. The holder releases the lock and asks for it again in one write, and
//! the head of the queue gets it. So the queue keeps its length, and each hand-off takes two commands.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use super::Row;
use crate::bounds::list::{at_most, judged, HAND_OFF, OURS, SINGLE};
use crate::measure::callgrind::Callgrind;
use crate::measure::state::State;
use crate::measure::{info, median, print_table, Cost, ServerCpu, Settings};
use testkit::{until, Conn, Server};

const SIZES: [usize; 5] = [1, 10, 100, 1_000, 10_000];
/// Files that this process and a server need in addition to the waiters' connections.
const OTHER_FILES: usize = 200;
/// Hand-offs whose instructions are counted; under valgrind each takes fifty times longer.
const COUNTED: usize = 2_000;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Way {
    Lock,
    Queue,
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Lock => OURS,
            Way::Queue => "BLPOP + RPUSH",
        }
    }
}

pub(super) const WAYS: [Way; 2] = [Way::Lock, Way::Queue];

/// Connections: one holds a lock and all others wait for it.
pub(super) struct Crowd {
    way: Way,
    key: String,
    pub(super) conns: Vec<Conn>,
    holder: usize,
    token: String,
}

impl Crowd {
    /// Connections that do nothing yet: `waiters` and the holder.
    pub(super) fn new(server: &Server, way: Way, waiters: usize) -> Self {
        let mut conns: Vec<Conn> = (0..=waiters).map(|_| server.conn()).collect();
        for conn in &mut conns {
            assert_eq!(conn.text(&["PING"]), "PONG");
        }
        Self { way, key: format!("crowd:{}:{waiters}", way.name()), conns, holder: 0, token: String::new() }
    }

    pub(super) fn ask(&mut self, at: usize) {
        let key = &*self.key;
        match self.way {
            Way::Lock => self.conns[at].send(&["LOCK.ACQUIRE", key, "PX", "600000", "WAIT", "600000"]),
            Way::Queue => self.conns[at].send(&["BLPOP", key, "600"]),
        }
    }

    pub(super) fn granted(&mut self, at: usize) {
        let reply = self.conns[at].read();
        match self.way {
            Way::Lock => self.token = reply.int().to_string(),
            Way::Queue => assert_eq!(reply.list().len(), 2),
        }
        self.holder = at;
    }

    /// The first gets the lock.
    pub(super) fn take(&mut self, server: &Server) {
        if self.way == Way::Queue {
            server.conn().int(&["RPUSH", &self.key, "token"]);
        }
        self.ask(0);
        self.granted(0);
    }

    /// All of them ask, in order.
    fn line_up(&mut self, server: &Server) {
        let mut conn = server.conn();
        self.take(server);
        for at in 1..self.conns.len() {
            self.ask(at);
            // The server reads connections in the order in which it finds them, so few commands are sent at once.
            if at % 8 == 0 || at + 1 == self.conns.len() {
                until("they wait", || (blocked(&mut conn) >= at).then_some(()));
            }
        }
    }

    /// Hands the lock off this many times.
    fn pass(&mut self, times: usize) {
        for _ in 0..times {
            let at = self.holder;
            let key = &*self.key;
            let wire = match self.way {
                Way::Lock => {
                    let asks = ["LOCK.ACQUIRE", key, "PX", "600000", "WAIT", "600000"];
                    wire(&["LOCK.RELEASE", key, &self.token]) + &wire(&asks)
                }
                Way::Queue => wire(&["RPUSH", key, "token"]) + &wire(&["BLPOP", key, "600"]),
            };
            self.conns[at].send_bytes(wire.as_bytes());
            assert_eq!(self.conns[at].read().int(), 1);
            self.granted((at + 1) % self.conns.len());
        }
    }

    /// Ends all waits.
    pub(super) fn leave(self, server: &Server) {
        drop(self.conns);
        let mut conn = server.conn();
        until("all are gone", || (blocked(&mut conn) == 0).then_some(()));
        conn.ok(&["FLUSHALL"]);
    }
}

fn wire(words: &[&str]) -> String {
    let mut wire = format!("*{}\r\n", words.len());
    for word in words {
        let _ = write!(wire, "${}\r\n{word}\r\n", word.len());
    }
    wire
}

pub(super) fn blocked(conn: &mut Conn) -> usize {
    info(conn, "clients", "blocked_clients")
}

/// The numbers of waiters possible for one process on this system.
pub(super) fn sizes(settings: &Settings) -> Vec<usize> {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let limit = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(usize::MAX);
    let wanted = if settings.smoke { &SIZES[..1] } else { &SIZES[..] };
    let (fit, not): (Vec<usize>, Vec<usize>) = wanted.iter().partition(|size| **size + OTHER_FILES <= limit);
    if !not.is_empty() {
        eprintln!("skipped: {not:?} waiters: at most {limit} open files are allowed (ulimit -n)");
    }
    fit
}

/// The CPU time of a hand-off, by number of waiters.
pub fn measure(server: &Server, settings: &Settings) -> Vec<Row> {
    let sizes = sizes(settings);
    let mut cpu = ServerCpu::of(server);
    let mut rows = Vec::new();
    let mut costs: Vec<[Vec<f64>; 2]> = sizes.iter().map(|_| [Vec::new(), Vec::new()]).collect();
    for round in 1..=settings.rounds {
        for (size, costs) in sizes.iter().zip(&mut costs) {
            for place in 0..WAYS.len() {
                let at = (place + round) % WAYS.len();
                let mut crowd = Crowd::new(server, WAYS[at], *size);
                crowd.line_up(server);
                // One pass through the queue, or part of one, before counting starts.
                crowd.pass(settings.operations.min(1_000));
                let cost = Cost::of(&mut cpu, || crowd.pass(settings.operations));
                crowd.leave(server);
                costs[at].push(cost.cpu.as_secs_f64() * 1e6 / settings.operations as f64);
                let values = vec![
                    ("hand_offs", settings.operations as f64),
                    ("cpu_ns", cost.cpu.as_nanos() as f64),
                    ("wall_ns", cost.wall.as_nanos() as f64),
                ];
                let (contender, place) = (WAYS[at].name().into(), place + 1);
                rows.push(Row { part: "crowd", state: State::NoSink, clients: *size, contender, round, place, values });
            }
        }
        eprintln!("crowd: round {round} of {}", settings.rounds);
    }
    println!("\nOne hand-off with many waiters, server CPU in µs");
    print_by_size(&sizes, &costs, 1, None);
    rows
}

/// A table of the cost of a hand-off for ours and the ceiling, and the ratio of most to fewest waiters.
fn print_by_size(sizes: &[usize], costs: &[[Vec<f64>; 2]], decimals: usize, bounded: Option<State>) {
    let mut rows = Vec::new();
    let first = &costs[0];
    for (size, [ours, queue]) in sizes.iter().zip(costs) {
        let ratio = |of: &[f64], to: &[f64]| median(of.iter().zip(to).map(|(of, to)| of / to));
        let grown = ratio(ours, &first[0]);
        let bounded = bounded.filter(|_| *size == SIZES[SIZES.len() - 1]);
        let bound = bounded.and_then(|state| at_most(HAND_OFF, SINGLE, state, ""));
        let mut row = vec![
            size.to_string(),
            format!("{:.decimals$}", median(ours.iter().copied())),
            format!("{grown:.2}"),
            format!("{:.decimals$}", median(queue.iter().copied())),
            format!("{:.2}", ratio(queue, &first[1])),
            format!("{:.2}", ratio(ours, queue)),
        ];
        row.extend(judged(grown, bound));
        rows.push(row);
    }
    let header = [
        "waiters",
        "LOCK.*",
        "to the first",
        "BLPOP + RPUSH",
        "to the first",
        "LOCK.* / BLPOP",
        "to the first, at most",
        "verdict",
    ];
    print_table(1, &header, &rows);
}

/// The instructions of a hand-off, by number of waiters, if valgrind is installed.
pub fn measure_instructions(state: State, settings: &Settings) -> Vec<Row> {
    if settings.smoke {
        return Vec::new();
    }
    match count_instructions(state, settings) {
        Ok(rows) => rows,
        Err(why) => {
            eprintln!("skipped: instructions: {why}");
            Vec::new()
        }
    }
}

fn count_instructions(state: State, settings: &Settings) -> Result<Vec<Row>, String> {
    let options = Server::with().args(&["--maxclients", "10100"]).module_args(&["max-waiters", "20000"]);
    let mut callgrind = Callgrind::start(state, options)?;
    let sizes = sizes(settings);
    let mut rows = Vec::new();
    let mut costs: Vec<[Vec<f64>; 2]> = Vec::new();
    for size in &sizes {
        let mut of_size = [Vec::new(), Vec::new()];
        for (at, way) in WAYS.iter().enumerate() {
            let mut crowd = Crowd::new(&callgrind.server, *way, *size);
            crowd.line_up(&callgrind.server);
            crowd.pass(100);
            let instructions = callgrind.count(|| crowd.pass(COUNTED))?;
            of_size[at].push(instructions / COUNTED as f64);
            crowd.leave(&callgrind.server);
            let values = vec![("hand_offs", COUNTED as f64), ("instructions", instructions)];
            let (contender, place) = (way.name().into(), at + 1);
            rows.push(Row { part: "instructions", state, clients: *size, contender, round: 1, place, values });
        }
        costs.push(of_size);
        eprintln!("instructions: {size} waiters, {}", state.name());
    }
    println!("\nOne hand-off with many waiters, server instructions, {}", state.name());
    print_by_size(&sizes, &costs, 0, Some(state));
    Ok(rows)
}

/// The memory of a waiter, each way on its own server, so that no freed memory is reused.
pub fn measure_memory(settings: &Settings) -> Vec<Row> {
    let Some(size) = sizes(settings).pop() else { return Vec::new() };
    let mut rows = Vec::new();
    let mut table = Vec::new();
    for (at, way) in WAYS.iter().enumerate() {
        let args = ["--maxclients", "10100"];
        let server = Server::with().args(&args).module_args(&["max-waiters", "20000"]).start();
        let mut conn = server.conn();
        let empty = memory(&server, &mut conn);
        let mut crowd = Crowd::new(&server, *way, size);
        let idle = memory(&server, &mut conn);
        crowd.line_up(&server);
        let waiting = memory(&server, &mut conn);
        // The server reclaims the buffers of clients that are idle for two seconds, bit by bit.
        std::thread::sleep(Duration::from_secs(if settings.smoke { 0 } else { 4 }));
        let settled = memory(&server, &mut conn);
        let each = |now: (f64, f64)| ((now.0 - empty.0) / size as f64, (now.1 - empty.1) / size as f64);
        let (idle, waiting, settled) = (each(idle), each(waiting), each(settled));
        let kb = |bytes: f64| format!("{:.1}", bytes / 1024.0);
        let cells = [idle.0, waiting.0, settled.0, idle.1, waiting.1, settled.1];
        table.push([way.name().to_string()].into_iter().chain(cells.map(kb)).collect());
        for (part, values) in
            [("used_memory", [idle.0, waiting.0, settled.0]), ("resident memory", [idle.1, waiting.1, settled.1])]
        {
            let names = ["idle_bytes", "waiting_bytes", "settled_bytes"];
            let values = names.into_iter().zip(values).collect();
            let state = State::NoSink;
            rows.push(Row {
                part,
                state,
                clients: size,
                contender: way.name().into(),
                round: 1,
                place: at + 1,
                values,
            });
        }
    }
    println!("\nServer memory for each of {size} waiters, including its connection, in kB");
    let header = [
        "waits with",
        "connection alone",
        "waiting",
        "4 s later",
        "resident: connection alone",
        "waiting",
        "4 s later",
    ];
    print_table(1, &header, &table);
    rows
}

/// `used_memory` and what is resident, in bytes.
fn memory(server: &Server, conn: &mut Conn) -> (f64, f64) {
    let used = info(conn, "memory", "used_memory");
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(f64::NAN);
    (used, resident * 1024.0)
}
