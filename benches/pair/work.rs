//! The contenders: what each sends, what it has to be answered, and how it is sent.
#![allow(dead_code)]

use crate::common::bounds::{EXTEND, PAIR, REFUSED};
use crate::common::{argument, Cost, Pipe, ServerCpu};
use crate::support::{show, Conn, Reply, Server};
use std::ops::Range;

/// Our side, as it is called in the raw files.
pub const OURS: &str = "LOCK.*";

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
    /// The number of an attempt.
    id: Vec<u8>,
}

/// A part of a command.
#[derive(Clone)]
enum Part {
    /// As it goes over the wire.
    Fixed(Vec<u8>),
    Key,
    Secret,
    Token,
    Id,
}

/// The reply that a command has to get.
#[derive(Clone, Copy)]
enum Expect {
    /// A token, which is kept for the next steps.
    Token,
    /// The same, in an array with details of which there are none.
    Details,
    Line(&'static str),
}

/// One command, sent for all keys.
#[derive(Clone)]
pub struct Step {
    parts: Vec<Part>,
    expect: Expect,
}

/// `KEY`, `SECRET`, `TOKEN` and `ID#` stand for those of the lock; the other words are as they are.
fn step(command: &str, expect: Expect) -> Step {
    let words: Vec<&str> = command.split(' ').collect();
    let mut parts = vec![Part::Fixed(format!("*{}\r\n", words.len()).into_bytes())];
    parts.extend(words.iter().map(|word| match *word {
        "KEY" => Part::Key,
        "SECRET" => Part::Secret,
        "TOKEN" => Part::Token,
        "ID#" => Part::Id,
        text => Part::Fixed(argument(text.as_bytes())),
    }));
    Step { parts, expect }
}

/// One way to do an operation.
pub struct Contender {
    pub name: &'static str,
    /// Done once before it is measured.
    pub before: Vec<Step>,
    /// Done again and again; together one operation.
    pub steps: Vec<Step>,
    /// For each measured round.
    pub costs: Vec<Cost>,
}

impl Contender {
    fn new(name: &'static str, before: Vec<Step>, steps: Vec<Step>) -> Self {
        Self { name, before, steps, costs: Vec::new() }
    }
}

/// An operation, done in our way and in others.
pub struct Workload {
    pub name: &'static str,
    /// Ours is the first.
    pub contenders: Vec<Contender>,
}

/// A pair of acquire and release with options of ours, beside the plain one, all in one list.
pub fn with_options(conn: &mut Conn) -> Workload {
    let mut pair = pair(conn);
    for (name, options, expect) in [
        ("LOCK.* with ID", " ID ID#", Expect::Token),
        ("LOCK.* with DETAILS", " DETAILS", Expect::Details),
        ("LOCK.* with SESSION", " SESSION", Expect::Token),
    ] {
        let acquire = step(&format!("LOCK.ACQUIRE KEY PX {LEASE_MS}{options}"), expect);
        pair.contenders.push(Contender::new(name, vec![], vec![acquire, release()]));
    }
    pair
}

fn acquire(expect: Expect) -> Step {
    step(&format!("LOCK.ACQUIRE KEY PX {LEASE_MS}"), expect)
}

fn release() -> Step {
    step("LOCK.RELEASE KEY TOKEN", ONE)
}

fn set(expect: Expect) -> Step {
    step(&format!("SET KEY SECRET NX PX {LEASE_MS}"), expect)
}

fn evalsha(conn: &mut Conn, script: &str, args: &str) -> Step {
    let sha = conn.text(&["SCRIPT", "LOAD", script]);
    step(&format!("EVALSHA {sha} 1 KEY {args}"), ONE)
}

const OK: Expect = Expect::Line("+OK");
const ONE: Expect = Expect::Line(":1");
const NIL: Expect = Expect::Line("$-1");

/// Acquire and release. Another way to do it is one more contender.
pub fn pair(conn: &mut Conn) -> Workload {
    let set_and = |name, release| Contender::new(name, vec![], vec![set(OK), release]);
    let mut contenders = vec![
        Contender::new(OURS, vec![], vec![acquire(Expect::Token), release()]),
        set_and("SET NX PX + EVALSHA", evalsha(conn, COMPARE_AND_DELETE, "SECRET")),
        set_and("SET NX PX + DEL", step("DEL KEY", ONE)),
        Contender::new("SETNX + DEL", vec![], vec![step("SETNX KEY 1763710031.482913", ONE), step("DEL KEY", ONE)]),
    ];
    // Servers of late can compare and delete by themselves.
    if knows(conn, "DELEX") {
        contenders.push(set_and("SET NX PX + DELEX IFEQ", step("DELEX KEY IFEQ SECRET", ONE)));
    }
    if knows(conn, "DELIFEQ") {
        contenders.push(set_and("SET NX PX + DELIFEQ", step("DELIFEQ KEY SECRET", ONE)));
    }
    Workload { name: PAIR, contenders }
}

/// Everything that is measured. Another operation is another entry here.
pub fn workloads(conn: &mut Conn) -> Vec<Workload> {
    let refused = Workload {
        name: REFUSED,
        contenders: vec![
            Contender::new(OURS, vec![acquire(Expect::Token)], vec![acquire(NIL)]),
            Contender::new("SET NX PX", vec![set(OK)], vec![set(NIL)]),
        ],
    };
    let extended = step(&format!("LOCK.EXTEND KEY TOKEN PX {LEASE_MS}"), ONE);
    let compare_and_pexpire = evalsha(conn, COMPARE_AND_PEXPIRE, &format!("SECRET {LEASE_MS}"));
    let extend = Workload {
        name: EXTEND,
        contenders: vec![
            Contender::new(OURS, vec![acquire(Expect::Token)], vec![extended]),
            Contender::new("EVALSHA (pexpire)", vec![set(OK)], vec![compare_and_pexpire]),
        ],
    };
    vec![pair(conn), refused, extend]
}

/// One command to be counted by itself: what goes before it and after it does not count.
pub struct Command {
    pub name: &'static str,
    pub before: Vec<Step>,
    pub step: Step,
    pub after: Vec<Step>,
}

/// Every command of the pairs and the other operations.
pub fn commands(conn: &mut Conn) -> Vec<Command> {
    let (get, put) = (|| acquire(Expect::Token), || set(OK));
    let delete = || step("DEL KEY", ONE);
    let command = |name, before, step, after| Command { name, before, step, after };
    let extended = step(&format!("LOCK.EXTEND KEY TOKEN PX {LEASE_MS}"), ONE);
    let compare_and_delete = evalsha(conn, COMPARE_AND_DELETE, "SECRET");
    let compare_and_pexpire = evalsha(conn, COMPARE_AND_PEXPIRE, &format!("SECRET {LEASE_MS}"));
    let mut all = vec![
        command("LOCK.ACQUIRE", vec![], get(), vec![release()]),
        command("LOCK.RELEASE", vec![get()], release(), vec![]),
        command("LOCK.ACQUIRE refused", vec![get()], acquire(NIL), vec![release()]),
        command("LOCK.EXTEND", vec![get()], extended, vec![release()]),
        command("SET NX PX", vec![], put(), vec![delete()]),
        command("SET NX PX refused", vec![put()], set(NIL), vec![delete()]),
        command("DEL", vec![put()], delete(), vec![]),
        command("EVALSHA (del)", vec![put()], compare_and_delete, vec![]),
        command("EVALSHA (pexpire)", vec![put()], compare_and_pexpire, vec![delete()]),
    ];
    if knows(conn, "DELEX") {
        all.push(command("DELEX IFEQ", vec![put()], step("DELEX KEY IFEQ SECRET", ONE), vec![]));
    }
    if knows(conn, "DELIFEQ") {
        all.push(command("DELIFEQ", vec![put()], step("DELIFEQ KEY SECRET", ONE), vec![]));
    }
    all
}

fn knows(conn: &mut Conn, command: &str) -> bool {
    !matches!(conn.call(&["COMMAND", "INFO", command]).list(), [] | [Reply::Nil])
}

/// A connection with keys of its own.
pub struct Lane {
    pipe: Pipe,
    locks: Vec<Lock>,
}

impl Lane {
    pub fn new(server: &Server, number: usize, keys: usize) -> Self {
        let lock = |index: usize| Lock {
            key: argument(format!("bench:lock:{number}:{index:04}").as_bytes()),
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
        match step.expect {
            Expect::Token => self.pipe.replies(count, token),
            Expect::Line(line) => self.pipe.replies(count, |_, reply| right(line, reply)),
            Expect::Details => {
                self.pipe.replies(count * DETAILS.len(), |at, reply| match DETAILS[at % DETAILS.len()] {
                    Some(line) => right(line, reply),
                    None => token(at / DETAILS.len(), reply),
                });
            }
        }
    }

    /// Does a step for the first `keys` keys, [`AT_ONCE`] at a time, nothing else meanwhile.
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

/// The lines of a reply with details of which there are none; the one that is left out is the token.
const DETAILS: [Option<&str>; 5] = [Some("*4"), None, Some("$-1"), Some("$-1"), Some("$-1")];

/// Does `steps` again and again in all lanes; each lane has a step on its way at any time.
fn run(lanes: &mut [Lane], steps: &[Step], times: usize) {
    let mut pending: Option<&Step> = None;
    for step in std::iter::repeat_n(steps, times).flatten() {
        for lane in &mut *lanes {
            if let Some(pending) = pending {
                lane.read(pending, lane.all());
            }
            lane.send(step, lane.all());
        }
        pending = Some(step);
    }
    if let Some(pending) = pending {
        for lane in lanes {
            lane.read(pending, lane.all());
        }
    }
}

/// A server and the connections over which it is measured.
pub struct Stand {
    pub server: Server,
    pub cpu: ServerCpu,
    /// What one measurement does, whole steps of all lanes.
    pub operations: usize,
    lanes: Vec<Lane>,
    times: usize,
}

impl Stand {
    /// With so many lanes of so many keys; at least `operations`.
    pub fn new(server: Server, lanes: usize, keys: usize, operations: usize) -> Self {
        let times = operations.div_ceil(lanes * keys);
        let (cpu, operations) = (ServerCpu::of(&server), times * lanes * keys);
        let lanes = (0..lanes).map(|number| Lane::new(&server, number, keys)).collect();
        Self { server, cpu, operations, lanes, times }
    }

    /// All contenders of a workload, one after the other; the lines for the raw file. Round 0 warms up and is not
    /// counted.
    pub fn round(&mut self, round: usize, workload: &mut Workload) -> Vec<String> {
        let Workload { name, contenders } = workload;
        let count = contenders.len();
        let mut rows = Vec::new();
        for place in 0..count {
            // Who comes first changes from round to round, and so does the direction.
            let turn = (place + round / 2) % count;
            let contender = &mut contenders[if round.is_multiple_of(2) { turn } else { count - 1 - turn }];
            let Self { server, cpu, lanes, times, operations } = self;
            run(lanes, &contender.before, 1);
            let cost = Cost::of(cpu, || run(lanes, &contender.steps, *times));
            if !contender.before.is_empty() {
                server.conn().ok(&["FLUSHALL"]);
            }
            if round > 0 {
                contender.costs.push(cost);
                let (contender, place) = (contender.name, place + 1);
                let (cpu, wall) = (cost.cpu.as_nanos(), cost.wall.as_nanos());
                rows.push(format!("\"{name}\",{contender},{round},{place},{operations},{cpu},{wall}"));
            }
        }
        rows
    }
}
