//! What a lock costs the server: LOCK.* against what people use instead, on one server in one run.
//!
//! Measured is the CPU time of the server per operation, with enough commands on their way that the server is what
//! limits. ACQUIRE replies the token that RELEASE needs, so the commands of one step go out for many keys at once,
//! their replies are read, then those of the next step; the peers are measured in the same way. Several lanes do so
//! in turn: while one is read, the server works for the others. README.md in this folder tells the rest.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::cast_precision_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod common;
#[path = "../tests/support/mod.rs"]
mod support;

use common::{argument, median, print_table, sorted, verdict, Cost, Origin, Pipe, ServerCpu, Settings};
use support::{show, Conn, Reply, Server};

/// Connections that take turns.
const LANES: usize = 8;
/// Keys of a lane, each of its own. All commands of a step fit into the 16 kB that a server reads at once.
const KEYS: usize = 100;

const ROUNDS: usize = 9;
const OPERATIONS: usize = 400_000;

/// What everybody asks for.
const LEASE_MS: &str = "30000";

/// The script that the documentation of SET gives for a safe release.
const COMPARE_AND_DELETE: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
/// The same for a longer lease.
const COMPARE_AND_PEXPIRE: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";

/// A key that is locked and unlocked. What goes into commands is kept as it goes over the wire: the client has to be
/// faster than the server.
struct Lock {
    key: Vec<u8>,
    /// What a client of SET NX PX stores: 36 bytes, as a UUID has.
    secret: Vec<u8>,
    /// What LOCK.ACQUIRE replied last.
    token: Vec<u8>,
}

/// A part of a command.
#[derive(Clone)]
enum Part {
    /// As it goes over the wire.
    Fixed(Vec<u8>),
    Key,
    Secret,
    Token,
}

/// The reply that a command has to get.
#[derive(Clone, Copy)]
enum Expect {
    /// A token, which is kept for the next steps.
    Token,
    Line(&'static str),
}

/// One command, sent for all keys.
#[derive(Clone)]
struct Step {
    parts: Vec<Part>,
    expect: Expect,
}

/// `KEY`, `SECRET` and `TOKEN` stand for those of the lock; the other words are as they are.
fn step(command: &str, expect: Expect) -> Step {
    let words: Vec<&str> = command.split(' ').collect();
    let mut parts = vec![Part::Fixed(format!("*{}\r\n", words.len()).into_bytes())];
    parts.extend(words.iter().map(|word| match *word {
        "KEY" => Part::Key,
        "SECRET" => Part::Secret,
        "TOKEN" => Part::Token,
        text => Part::Fixed(argument(text.as_bytes())),
    }));
    Step { parts, expect }
}

/// One way to do an operation.
struct Contender {
    name: &'static str,
    /// Done once before it is measured.
    before: Vec<Step>,
    /// Done again and again; together one operation.
    steps: Vec<Step>,
    /// Ours is to cost the server at most so many times as much as this.
    at_most: Option<f64>,
    /// For each measured round.
    costs: Vec<Cost>,
}

impl Contender {
    fn new(name: &'static str, before: Vec<Step>, steps: Vec<Step>) -> Self {
        Self { name, before, steps, at_most: None, costs: Vec::new() }
    }

    fn at_most(self, bound: f64) -> Self {
        Self { at_most: Some(bound), ..self }
    }
}

/// An operation, done in our way and in others.
struct Workload {
    name: &'static str,
    /// Ours is the first.
    contenders: Vec<Contender>,
}

/// Everything that is measured. Another operation is another entry here.
fn workloads(conn: &mut Conn) -> Vec<Workload> {
    let mut evalsha = |script: &str, args: &str| {
        let sha = conn.text(&["SCRIPT", "LOAD", script]);
        step(&format!("EVALSHA {sha} 1 KEY {args}"), Expect::Line(":1"))
    };
    let compare_and_delete = evalsha(COMPARE_AND_DELETE, "SECRET");
    let compare_and_pexpire = evalsha(COMPARE_AND_PEXPIRE, &format!("SECRET {LEASE_MS}"));

    let acquire = |expect| step(&format!("LOCK.ACQUIRE KEY PX {LEASE_MS}"), expect);
    let set = |expect| step(&format!("SET KEY SECRET NX PX {LEASE_MS}"), expect);
    let (granted, ok, one, nil) = (Expect::Token, Expect::Line("+OK"), Expect::Line(":1"), Expect::Line("$-1"));

    let set_and = |name, release| Contender::new(name, vec![], vec![set(ok), release]);
    let mut pair = Workload {
        name: "acquire and release",
        contenders: vec![
            Contender::new("LOCK.*", vec![], vec![acquire(granted), step("LOCK.RELEASE KEY TOKEN", one)]),
            set_and("SET NX PX + EVALSHA", compare_and_delete).at_most(0.75),
            set_and("SET NX PX + DEL", step("DEL KEY", one)),
            Contender::new("SETNX + DEL", vec![], vec![step("SETNX KEY 1763710031.482913", one), step("DEL KEY", one)]),
        ],
    };
    // Servers of late can compare and delete by themselves.
    if knows(conn, "DELEX") {
        pair.contenders.push(set_and("SET NX PX + DELEX IFEQ", step("DELEX KEY IFEQ SECRET", one)));
    }
    if knows(conn, "DELIFEQ") {
        pair.contenders.push(set_and("SET NX PX + DELIFEQ", step("DELIFEQ KEY SECRET", one)));
    }

    let refused = Workload {
        name: "acquire, refused",
        contenders: vec![
            Contender::new("LOCK.*", vec![acquire(granted)], vec![acquire(nil)]),
            Contender::new("SET NX PX", vec![set(ok)], vec![set(nil)]),
        ],
    };

    let extended = step(&format!("LOCK.EXTEND KEY TOKEN PX {LEASE_MS}"), one);
    let extend = Workload {
        name: "extend",
        contenders: vec![
            Contender::new("LOCK.*", vec![acquire(granted)], vec![extended]),
            Contender::new("EVALSHA (pexpire)", vec![set(ok)], vec![compare_and_pexpire]),
        ],
    };

    vec![pair, refused, extend]
}

fn knows(conn: &mut Conn, command: &str) -> bool {
    !matches!(conn.call(&["COMMAND", "INFO", command]).list(), [] | [Reply::Nil])
}

/// A connection with keys of its own.
struct Lane {
    pipe: Pipe,
    locks: Vec<Lock>,
}

impl Lane {
    fn new(server: &Server, number: usize) -> Self {
        let lock = |index: usize| Lock {
            key: argument(format!("bench:lock:{number}:{index:04}").as_bytes()),
            secret: argument(format!("3f2b8c1e-9d47-4a06-b5e2-{number:04}{index:08}").as_bytes()),
            token: Vec::new(),
        };
        Self { pipe: Pipe::to(server), locks: (0..KEYS).map(lock).collect() }
    }

    fn send(&mut self, step: &Step) {
        for lock in &self.locks {
            for part in &step.parts {
                self.pipe.add(match part {
                    Part::Fixed(bytes) => bytes,
                    Part::Key => &lock.key,
                    Part::Secret => &lock.secret,
                    Part::Token => &lock.token,
                });
            }
        }
        self.pipe.flush();
    }

    fn read(&mut self, step: &Step) {
        let locks = &mut self.locks;
        self.pipe.replies(KEYS, |index, reply| match step.expect {
            Expect::Token => {
                let token = reply.strip_prefix(b":").unwrap_or_else(|| panic!("not a token: {}", show(reply)));
                locks[index].token = argument(token);
            }
            Expect::Line(line) => assert!(reply == line.as_bytes(), "not {line} but {}", show(reply)),
        });
    }
}

/// Does `steps` again and again in all lanes; each lane has a step on its way at any time.
fn run(lanes: &mut [Lane], steps: &[Step], times: usize) {
    let mut pending: Option<&Step> = None;
    for step in std::iter::repeat_n(steps, times).flatten() {
        for lane in &mut *lanes {
            if let Some(pending) = pending {
                lane.read(pending);
            }
            lane.send(step);
        }
        pending = Some(step);
    }
    if let Some(pending) = pending {
        for lane in lanes {
            lane.read(pending);
        }
    }
}

fn main() {
    let settings = Settings::read(ROUNDS, OPERATIONS);
    let server = Server::start();
    let mut origin = Origin::of("pair", &server);
    let mut cpu = ServerCpu::of(&server);
    let mut conn = server.conn();
    let mut workloads = workloads(&mut conn);
    let mut lanes: Vec<Lane> = (0..LANES).map(|number| Lane::new(&server, number)).collect();
    let times = settings.operations.div_ceil(LANES * KEYS);
    let operations = times * LANES * KEYS;
    origin.add("cpu time", cpu.source());
    origin.add("rounds", settings.rounds);
    origin.add("operations", format!("{operations} of each contender in each round"));
    origin.add("on their way", format!("{LANES} connections with {KEYS} commands each"));
    origin.print();

    let mut rows = Vec::new();
    // Round 0 warms up and is not counted, except when there is no other.
    for round in usize::from(settings.smoke)..=settings.rounds {
        for Workload { name, contenders } in &mut workloads {
            let count = contenders.len();
            for place in 0..count {
                // Who comes first changes from round to round, and so does the direction.
                let turn = (place + round / 2) % count;
                let contender = &mut contenders[if round % 2 == 0 { turn } else { count - 1 - turn }];
                run(&mut lanes, &contender.before, 1);
                let cost = Cost::of(&mut cpu, || run(&mut lanes, &contender.steps, times));
                conn.ok(&["FLUSHALL"]);
                if round > 0 {
                    contender.costs.push(cost);
                    rows.push(format!(
                        "\"{name}\",{},{round},{},{operations},{},{}",
                        contender.name,
                        place + 1,
                        cost.cpu.as_nanos(),
                        cost.wall.as_nanos()
                    ));
                }
            }
        }
        if round > 0 {
            eprintln!("round {round} of {}", settings.rounds);
        }
    }

    print_costs(&workloads, operations);
    print_ratios(&workloads);
    if !settings.smoke {
        let path = origin.write_raw("operation,contender,round,place,operations,cpu_ns,wall_ns", &rows);
        println!("raw rounds: {}", path.display());
    }
}

/// What one operation costs, in the median of the rounds.
fn print_costs(workloads: &[Workload], operations: usize) {
    let mut rows = Vec::new();
    for workload in workloads {
        for contender in &workload.contenders {
            let middle = |of: fn(&Cost) -> f64| median(contender.costs.iter().map(of));
            let micros = |seconds: f64| format!("{:.3}", seconds * 1e6 / operations as f64);
            rows.push(vec![
                workload.name.into(),
                contender.name.into(),
                micros(middle(|cost| cost.cpu.as_secs_f64())),
                micros(middle(|cost| cost.wall.as_secs_f64())),
                format!("{:.0} %", 100.0 * middle(Cost::busy)),
            ]);
        }
    }
    let header = ["operation", "done with", "server CPU, µs", "wall, µs", "server busy"];
    print_table(2, &header, &rows);
}

/// Ours against each peer, as the median of the rounds' ratios. Rounds are compared with themselves, so that what slows down a whole round (other work on
/// the machine, a lower clock of the CPU) slows down both sides.
fn print_ratios(workloads: &[Workload]) {
    let mut rows = Vec::new();
    for Workload { name, contenders } in workloads {
        let (ours, peers) = contenders.split_first().expect("ours is the first");
        for peer in peers {
            let ratios = |of: fn(&Cost) -> f64| {
                sorted(ours.costs.iter().zip(&peer.costs).map(|(our, their)| of(our) / of(their)))
            };
            let cpu = ratios(|cost| cost.cpu.as_secs_f64());
            let ratio = median(cpu.iter().copied());
            rows.push(vec![
                (*name).into(),
                peer.name.into(),
                format!("{ratio:.2}"),
                format!("{:.2} to {:.2}", cpu[0], cpu[cpu.len() - 1]),
                format!("{:.2}", median(ratios(|cost| cost.wall.as_secs_f64()))),
                peer.at_most.map_or("-".into(), |bound| format!("{bound:.2}")),
                verdict(ratio, peer.at_most).into(),
            ]);
        }
    }
    let header = ["LOCK.*", "against", "server CPU", "in the rounds", "wall", "expected at most", "verdict"];
    print_table(2, &header, &rows);
}
