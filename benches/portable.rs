//! The server's cost for a pair of acquire and release of `portable/lock.lua`, as functions and as a script, compared
//! with the two scripts that people use instead, and with LOCK.* on a server with the module. Measured as in the bench
//! pair. Then what a hand-off costs with few and with many attempts in the queue, and the memory of one attempt.

mod queue;

use crate::measure::{median, print_table, Call, Origin, Ratio};
use crate::pair::connection::{loaded, step, Stand, Step, COLUMNS, OK, ONE, TOKEN};
use crate::pair::work::{release, Contender, Workload, COMPARE_AND_DELETE, LEASE_MS};
use crate::pair::{CONNECTIONS, KEYS};
use testkit::{project_file, Conn, Reply, Server};

const ROUNDS: usize = 9;
const OPERATIONS: usize = 200_000;

/// How many times as much as the two scripts a pair may cost.
const AT_MOST: [(&str, f64); 2] = [("lock.lua by FCALL", 2.4), ("lock.lua by EVALSHA", 2.8)];

/// The baseline: SET NX PX within a script, and a script that compares and deletes. They provide neither a token nor a
/// takeover.
const SCRIPTS: &str = "the two usual scripts";
const SET_NX_PX: &str = "return redis.call('set',KEYS[1],ARGV[1],'NX','PX',ARGV[2])";

/// Margin and retention.
const TERMS: &str = "1000 60000";

pub fn measure(call: &Call) {
    let settings = call.settings(ROUNDS, OPERATIONS);
    let origin = Origin::of("portable", &Server::start(), &settings)
        .with("rounds", settings.rounds)
        .with("operations", format!("{} of each contender in each round", settings.operations))
        .with("on their way", format!("{CONNECTIONS} connections with {KEYS} commands each"))
        .printed();
    let mut rows = Vec::new();
    for (name, server) in
        [("without the module", Server::with().without_module().start()), ("with it", Server::start())]
    {
        let mut stand = Stand::new((server, None), CONNECTIONS, KEYS, settings.operations);
        let contenders = contenders(&mut stand.server.conn(), name == "with it");
        let mut workload = Workload { name, contenders };
        for round in 0..=settings.rounds {
            rows.extend(stand.round(round, &mut workload));
        }
        print(&workload, stand.operations);
    }
    origin.keep(COLUMNS, &rows);
    queue::measure(call);
}

/// The usual scripts first. On a server with the module, its functions call its commands.
fn contenders(conn: &mut Conn, has_module: bool) -> Vec<Contender> {
    let evalsha = |conn: &mut Conn, script: &str, args: &str, expect| {
        step(&format!("EVALSHA {} 1 KEY {args}", loaded(conn, script)), expect)
    };
    let set = evalsha(conn, SET_NX_PX, &format!("SECRET {LEASE_MS}"), OK);
    let compare_and_delete = evalsha(conn, COMPARE_AND_DELETE, "SECRET", ONE);
    let pair = |name, acquire: Step, release: Step| Contender::new(name, vec![], vec![acquire, release]);
    let mut all = vec![pair(SCRIPTS, set, compare_and_delete)];
    let library = project_file("portable/lock.lua");
    let script = library.split_once('\n').expect("a first line").1;
    // Redis before 7.0 has no functions.
    let has_functions = matches!(conn.execute(&["FUNCTION", "LOAD", "REPLACE", &library]), Reply::Text(_));
    let sha = loaded(conn, script);
    let mut lua = |name, acquire: String, release: String| {
        all.push(pair(name, step(&acquire, TOKEN), step(&release, ONE)));
    };
    for (keys, by_fcall, by_evalsha) in [
        ("1 KEY", "lock.lua by FCALL", "lock.lua by EVALSHA"),
        ("2 KEY QUEUE", "lock.lua by FCALL, with the queue", "lock.lua by EVALSHA, with the queue"),
    ] {
        let (acquire, release) = (format!("lock_acquire {TERMS} PX {LEASE_MS}"), format!("lock_release {TERMS} TOKEN"));
        let by_name = |call: &str| call.replacen(' ', &format!(" {keys} "), 1);
        if has_functions {
            lua(by_fcall, format!("FCALL {}", by_name(&acquire)), format!("FCALL {}", by_name(&release)));
        }
        lua(by_evalsha, format!("EVALSHA {sha} {keys} {acquire}"), format!("EVALSHA {sha} {keys} {release}"));
    }
    if has_module {
        all.push(pair("LOCK.*", step(&format!("LOCK.ACQUIRE KEY PX {LEASE_MS}"), TOKEN), release()));
    }
    all
}

/// Each contender's cost, and its ratio to the first, as the median of the rounds' ratios.
fn print(workload: &Workload, operations: usize) {
    let cpu = |contender: &Contender| contender.costs.iter().map(|cost| cost.cpu.as_secs_f64()).collect::<Vec<_>>();
    let usual = cpu(&workload.contenders[0]);
    let row = |contender: &Contender| {
        let costs = cpu(contender);
        let ratio = Ratio::of(&costs, &usual).expect("as many rounds of each");
        let micros = median(costs.iter().copied()) * 1e6 / operations as f64;
        let bound = AT_MOST.iter().find(|(name, _)| contender.name.starts_with(name)).map(|(_, bound)| *bound);
        let verdict = bound.map_or(String::new(), |bound| {
            format!("{} {bound:.1}", if ratio.median > bound { "missed" } else { "met" })
        });
        let rounds = format!("{:.2} to {:.2}", ratio.low, ratio.high);
        vec![contender.name.into(), format!("{micros:.2}"), format!("{:.2}", ratio.median), rounds, verdict]
    };
    println!("\nA server {}:\n", workload.name);
    let header = ["acquire and release with", "server CPU, µs", "times the usual", "in the rounds", "bound"];
    print_table(1, &header, &workload.contenders.iter().map(row).collect::<Vec<_>>());
}
