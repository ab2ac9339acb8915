//! A hand-off in the queue of `portable/lock.lua`: the holder releases, the first attempt is notified and claims, and a
//! new attempt joins at the end. One command at a time, as clients send them. Also the memory of an attempt.

use super::TERMS;
use crate::measure::{info, median, print_table, turn, Call, Cost, Origin, Ratio, ServerCpu};
use std::collections::VecDeque;
use testkit::{project_file, Conn, Reply, Server};

const ROUNDS: usize = 7;
/// Hand-offs of each contender in a round.
const OPERATIONS: usize = 2_000;
const FEW: usize = 10;
const MANY: usize = 10_000;
/// How many times as much a hand-off may cost with [`MANY`] attempts as with [`FEW`].
const AT_MOST: f64 = 1.5;
const BYTES_AT_MOST: f64 = 250.0;

const COLUMNS: &str = "way,attempts,round,place,operations,cpu_ns,wall_ns,bytes_each";

/// A lock with a queue that never gets shorter.
struct Hot {
    server: Server,
    conn: Conn,
    subscriber: Conn,
    way: &'static str,
    /// What precedes the function's name.
    call: Vec<String>,
    attempts: usize,
    bytes_each: f64,
    token: i64,
    /// The IDs in the queue, in order.
    queue: VecDeque<u64>,
    next: u64,
    costs: Vec<Cost>,
}

const KEY: &str = "bench:hot";
const QUEUE: &str = "bench:hot:queue:{bench:hot}";
const CHANNEL: &str = "serverlock:bench-worker-7";

impl Hot {
    /// None: this server has no functions.
    fn new(way: &'static str, attempts: usize) -> Option<Self> {
        let (server, mut conn) = Server::with().without_module().connected();
        let library = project_file("portable/lock.lua");
        let call = if way == "FCALL" {
            matches!(conn.execute(&["FUNCTION", "LOAD", &library]), Reply::Text(_)).then(|| vec![way.to_string()])?
        } else {
            let script = library.split_once('\n').expect("a first line").1;
            vec![way.to_string(), conn.text(&["SCRIPT", "LOAD", script])]
        };
        let mut subscriber = server.conn();
        subscriber.execute(&["SUBSCRIBE", CHANNEL]);
        let (queue, costs) = (VecDeque::new(), Vec::new());
        let mut hot =
            Self { server, conn, subscriber, way, call, attempts, bytes_each: 0.0, token: 0, queue, next: 0, costs };
        hot.token = hot.ask(0).int();
        let before: f64 = info(&mut hot.conn, "memory", "used_memory");
        (0..attempts).for_each(|_| hot.join());
        let after: f64 = info(&mut hot.conn, "memory", "used_memory");
        hot.bytes_each = (after - before) / attempts as f64;
        Some(hot)
    }

    fn send(&mut self, function: &str, rest: &[&str]) -> Reply {
        let mut words: Vec<&str> = self.call.iter().map(String::as_str).collect();
        let terms = TERMS.split(' ');
        if self.way == "FCALL" {
            words.push(function);
        }
        words.extend(["2", KEY, QUEUE]);
        if self.way != "FCALL" {
            words.push(function);
        }
        words.extend(terms.chain(rest.iter().copied()));
        self.conn.execute(&words)
    }

    fn ask(&mut self, id: u64) -> Reply {
        let id = (1_000_000_000_000 + id).to_string();
        let rest = ["PX", "600000", "WAIT", "3600000", "ID", &id, "NOTIFY", CHANNEL];
        self.send("lock_acquire", &rest)
    }

    /// A new attempt joins the queue.
    fn join(&mut self) {
        self.next += 1;
        let reply = self.ask(self.next);
        assert_eq!(reply.list()[0].text(), "WAITING");
        self.queue.push_back(self.next);
    }

    fn hand_off(&mut self) {
        let token = self.token.to_string();
        assert_eq!(self.send("lock_release", &[&token]), Reply::Int(1));
        let first = self.queue.pop_front().expect("an attempt");
        let message = self.subscriber.read().list()[2].text();
        assert_eq!(message, format!("granted {} {KEY}", 1_000_000_000_000 + first));
        self.token = self.ask(first).int();
        self.join();
    }
}

pub fn measure(call: &Call) {
    let mut settings = call.settings(ROUNDS, OPERATIONS);
    // BENCH_OPS counts pipelined commands, which are much quicker.
    settings.operations = settings.operations.min(OPERATIONS);
    let many = if call.smoke { FEW } else { MANY };
    let ways = ["FCALL", "EVALSHA"].into_iter();
    let mut stands: Vec<Hot> =
        ways.flat_map(|way| [FEW, many].map(|attempts| Hot::new(way, attempts))).flatten().collect();
    let origin = Origin::of("portable-queue", &stands[0].server, &settings)
        .with("rounds", settings.rounds)
        .with(
            "operations",
            format!("{} hand-offs of each contender in each round, one command at a time", settings.operations),
        )
        .with("CPU time", ServerCpu::of(&stands[0].server).source());
    let mut rows = Vec::new();
    for round in 0..=settings.rounds {
        for place in 0..stands.len() {
            let count = stands.len();
            let hot = &mut stands[turn(place, count, round, round)];
            let mut cpu = ServerCpu::of(&hot.server);
            let cost = Cost::of(&mut cpu, || (0..settings.operations).for_each(|_| hot.hand_off()));
            // The first round only warms up.
            if round > 0 {
                hot.costs.push(cost);
                let (cpu, wall) = (cost.cpu.as_nanos(), cost.wall.as_nanos());
                let Hot { way, attempts, bytes_each, .. } = hot;
                let operations = settings.operations;
                rows.push(format!("{way},{attempts},{round},{},{operations},{cpu},{wall},{bytes_each:.0}", place + 1));
            }
        }
    }
    print(&stands, settings.operations);
    origin.keep(COLUMNS, &rows);
}

fn print(stands: &[Hot], operations: usize) {
    let cpu = |hot: &Hot| hot.costs.iter().map(|cost| cost.cpu.as_secs_f64()).collect::<Vec<_>>();
    let row = |hot: &Hot| {
        let few = stands.iter().find(|other| other.way == hot.way).expect("the first of each way");
        let ratio = Ratio::of(&cpu(hot), &cpu(few)).expect("as many rounds of each");
        let micros = median(cpu(hot)) * 1e6 / operations as f64;
        let is_met = ratio.median <= AT_MOST && (hot.attempts < MANY || hot.bytes_each <= BYTES_AT_MOST);
        vec![
            hot.way.to_string(),
            hot.attempts.to_string(),
            format!("{micros:.1}"),
            format!("{:.2}", ratio.median),
            if hot.attempts >= MANY { format!("{:.0}", hot.bytes_each) } else { String::new() },
            if is_met { "met" } else { "missed" }.to_string(),
        ]
    };
    println!("\nA hand-off in the queue: at most {AT_MOST} times, at most {BYTES_AT_MOST} bytes:\n");
    let header = ["by", "attempts", "server CPU, µs", "times the first", "bytes of each", "bounds"];
    print_table(1, &header, &stands.iter().map(row).collect::<Vec<_>>());
}
