//! The contenders: their commands and expected replies.

use super::connection::{loaded, step, Expect, Step, DETAILS, NIL, OK, ONE, TOKEN};
use crate::bounds::list::{EXTEND, OURS, PAIR, REFUSED};
use crate::measure::Cost;
use testkit::{Conn, Reply};

/// The lease that all contenders ask for.
pub const LEASE_MS: &str = "30000";

/// The script from the documentation of SET for a safe release.
pub const COMPARE_AND_DELETE: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
/// The corresponding script for a longer lease.
const COMPARE_AND_PEXPIRE: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";

/// One way to do an operation.
pub struct Contender {
    pub name: &'static str,
    /// Sent once before the measurement.
    pub before: Vec<Step>,
    /// Repeated; together one operation.
    pub steps: Vec<Step>,
    /// For each measured round.
    pub costs: Vec<Cost>,
}

impl Contender {
    pub fn new(name: &'static str, before: Vec<Step>, steps: Vec<Step>) -> Self {
        Self { name, before, steps, costs: Vec::new() }
    }
}

/// An operation, done our way and in other ways.
pub struct Workload {
    pub name: &'static str,
    /// Ours is the first.
    pub contenders: Vec<Contender>,
}

/// A pair of acquire and release with our options, in one list with the plain pair.
pub fn with_options(conn: &mut Conn) -> Workload {
    let mut pair = pair(conn);
    for (name, options, expect) in [
        ("LOCK.* with ID", " ID ID#", TOKEN),
        ("LOCK.* with DETAILS", " DETAILS", DETAILS),
        ("LOCK.* with SESSION", " SESSION", TOKEN),
    ] {
        let acquire = step(&format!("LOCK.ACQUIRE KEY PX {LEASE_MS}{options}"), expect);
        pair.contenders.push(Contender::new(name, vec![], vec![acquire, release()]));
    }
    pair
}

fn acquire(expect: Expect) -> Step {
    step(&format!("LOCK.ACQUIRE KEY PX {LEASE_MS}"), expect)
}

pub fn release() -> Step {
    step("LOCK.RELEASE KEY TOKEN", ONE)
}

pub fn set(expect: Expect) -> Step {
    step(&format!("SET KEY SECRET NX PX {LEASE_MS}"), expect)
}

fn evalsha(conn: &mut Conn, script: &str, args: &str) -> Step {
    step(&format!("EVALSHA {} 1 KEY {args}", loaded(conn, script)), ONE)
}

/// Acquire and release. Another way to do it is one more contender.
pub fn pair(conn: &mut Conn) -> Workload {
    let set_and = |name, release| Contender::new(name, vec![], vec![set(OK), release]);
    let mut contenders = vec![
        Contender::new(OURS, vec![], vec![acquire(TOKEN), release()]),
        set_and("SET NX PX + EVALSHA", evalsha(conn, COMPARE_AND_DELETE, "SECRET")),
        set_and("SET NX PX + DEL", step("DEL KEY", ONE)),
        Contender::new("SETNX + DEL", vec![], vec![step("SETNX KEY 1763710031.482913", ONE), step("DEL KEY", ONE)]),
    ];
    // Recent servers can compare and delete natively.
    if knows(conn, "DELEX") {
        contenders.push(set_and("SET NX PX + DELEX IFEQ", step("DELEX KEY IFEQ SECRET", ONE)));
    }
    if knows(conn, "DELIFEQ") {
        contenders.push(set_and("SET NX PX + DELIFEQ", step("DELIFEQ KEY SECRET", ONE)));
    }
    Workload { name: PAIR, contenders }
}

/// Everything that is measured. Add another operation as another entry.
pub fn workloads(conn: &mut Conn) -> Vec<Workload> {
    let refused = Workload {
        name: REFUSED,
        contenders: vec![
            Contender::new(OURS, vec![acquire(TOKEN)], vec![acquire(NIL)]),
            Contender::new("SET NX PX", vec![set(OK)], vec![set(NIL)]),
        ],
    };
    let extended = step(&format!("LOCK.EXTEND KEY TOKEN PX {LEASE_MS}"), ONE);
    let compare_and_pexpire = evalsha(conn, COMPARE_AND_PEXPIRE, &format!("SECRET {LEASE_MS}"));
    let extend = Workload {
        name: EXTEND,
        contenders: vec![
            Contender::new(OURS, vec![acquire(TOKEN)], vec![extended]),
            Contender::new("EVALSHA (pexpire)", vec![set(OK)], vec![compare_and_pexpire]),
        ],
    };
    vec![pair(conn), refused, extend]
}

/// One command to be counted alone: the commands before and after it are not counted.
pub struct Command {
    pub name: &'static str,
    pub before: Vec<Step>,
    pub step: Step,
    pub after: Vec<Step>,
}

/// Every command of the pairs and the other operations.
pub fn commands(conn: &mut Conn) -> Vec<Command> {
    let (get, put) = (|| acquire(TOKEN), || set(OK));
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
    !matches!(conn.execute(&["COMMAND", "INFO", command]).list(), [] | [Reply::Nil])
}
