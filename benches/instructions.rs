//! How many instructions a server needs for one command, counted by callgrind: LOCK.* against what people use instead.
//!
//! Unlike CPU time, the result is repeatable to a fraction of a percent. All of the server's work is counted: reading,
//! dispatch, the command, replication, the reply. Each command is sent N and 2N times, 100 at once over one connection;
//! the difference, divided by N, is one command. So no symbols are needed, and one-time work cancels out. Everything is
//! measured twice, on two servers, to show how repeatable it is. Without valgrind, the bench is skipped.

use crate::measure::callgrind::Callgrind;
use crate::measure::state::{State, COLUMN};
use crate::measure::{median, print_table, root, Call, Origin, Settings};
use crate::pair::connection::Connection;
use crate::pair::work::{commands, Command};
use crate::several;
use std::path::PathBuf;
use std::process;
use testkit::Server;

/// N.
const OPERATIONS: usize = 2_000;
/// Permanent keys, as a multiple of N: more than any command creates.
const OTHERS: usize = 25;
/// How many times each command is counted on a server: the median excludes rare work.
const REPEATS: usize = 3;
/// The number of servers.
const RUNS: usize = 2;
/// The permitted difference between two runs, in percent.
const REPEATABLE: f64 = 0.1;

pub fn measure(call: &Call) {
    let settings = call.settings(RUNS, OPERATIONS);
    if settings.smoke {
        return;
    }
    if let Err(why) = count(&settings) {
        eprintln!("skipped: instructions: {why}");
    }
}

fn count(settings: &Settings) -> Result<(), String> {
    let origin = Origin::of("instructions", &Server::start(), settings)
        .with("runs", RUNS)
        .with("commands", format!("{0} and {1} of each in each run", settings.operations, 2 * settings.operations));
    let mut rows = Vec::new();
    let same_again = SameAgain::compiled()?;
    for state in State::ALL {
        let counted = count_in(state, &same_again, settings)?;
        print(state, &counted);
        for (name, runs) in counted {
            rows.extend(runs.iter().zip(1..).map(|(instructions, run)| {
                format!("\"{name}\",{run},{},{instructions:.1},{}", settings.operations, state.in_raw_files())
            }));
        }
    }
    origin.printed().keep(&format!("command,run,commands,instructions,{COLUMN}"), &rows);
    Ok(())
}

/// Every command with its instructions in each run, in one state.
fn count_in(
    state: State,
    same_again: &SameAgain,
    settings: &Settings,
) -> Result<Vec<(&'static str, Vec<f64>)>, String> {
    let mut counted: Vec<(&'static str, Vec<f64>)> = Vec::new();
    for run in 0..RUNS {
        // If ticks cannot be paused, there is one per second. In slow motion any command could enter the slow log.
        let slow_motion = ["--hz", "1", "--slowlog-log-slower-than", "-1"];
        // By default the allocator returns memory after some time.
        let keep = "dirty_decay_ms:-1,muzzy_decay_ms:-1";
        let options = Server::with().args(&slow_motion).env("MALLOC_CONF", keep).env("JE_MALLOC_CONF", keep);
        let options = options.preload(&same_again.path);
        let mut server = Callgrind::start(state, options)?;
        let of_run = count_all(&mut server, settings.operations)?;
        for (at, (name, instructions)) in of_run.into_iter().enumerate() {
            if run == 0 {
                counted.push((name, Vec::new()));
            }
            counted[at].1.push(instructions);
        }
        eprintln!("{}: run {} of {RUNS}", state.name(), run + 1);
    }
    Ok(counted)
}

fn print(state: State, counted: &[(&'static str, Vec<f64>)]) {
    println!("\n{}:", state.name());
    let mut table = Vec::new();
    for (name, runs) in counted {
        let apart = 100.0 * (runs[0] - runs[1]).abs() / runs[0];
        let mut row = vec![(*name).to_string()];
        row.extend(runs.iter().map(|instructions| format!("{instructions:.0}")));
        row.push(format!("{apart:.2} %"));
        row.push(if apart <= REPEATABLE { "yes".into() } else { "no".into() });
        table.push(row);
    }
    let repeatable = format!("within {REPEATABLE} %");
    print_table(1, &["one command", "instructions", "again", "apart", &repeatable], &table);
}

/// A library that makes servers start identically each time; removed when dropped.
struct SameAgain {
    path: PathBuf,
}

impl SameAgain {
    fn compiled() -> Result<Self, String> {
        let source = root().join("benches/instructions/same_again.c");
        let path = std::env::temp_dir().join(format!("same_again-{}.so", std::process::id()));
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let mut command = process::Command::new(compiler);
        let status = command.args(["-shared", "-fPIC", "-O2", "-o"]).arg(&path).arg(source).status();
        match status {
            Ok(status) if status.success() => Ok(Self { path }),
            Ok(status) => Err(format!("the C compiler: {status}")),
            Err(error) => Err(format!("there is no C compiler: {error}")),
        }
    }
}

impl Drop for SameAgain {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Every command, on one server.
fn count_all(callgrind: &mut Callgrind, operations: usize) -> Result<Vec<(&'static str, f64)>, String> {
    let mut conn = callgrind.server.conn();
    let mut commands = commands(&mut conn);
    commands.extend(several::work::commands(&mut conn));
    // With these the tables of keys and of expiries never shrink, so that no command pays for regrowing them.
    for number in 0..OTHERS * operations {
        conn.ok(&["SET", &format!("other:{number}"), "value", "EX", "100000"]);
    }
    let mut connection = Connection::new(&callgrind.server, 0, 2 * operations);
    let mut counted = Vec::new();
    for Command { name, before, step, after } in &commands {
        // A command that needs a lot of preparation is sent less often.
        let operations = if before.len() > 2 { operations.div_ceil(10) } else { operations };
        let mut pass = |keys: usize, count: &mut dyn FnMut(&mut dyn FnMut())| {
            for step in before {
                connection.pass(step, keys);
            }
            count(&mut || connection.pass(step, keys));
            for step in after {
                connection.pass(step, keys);
            }
        };
        // The first pass is not counted: after it the tables of keys have their final size.
        pass(2 * operations, &mut |work| work());
        let mut each = Vec::new();
        for _ in 0..REPEATS {
            let mut counts = Vec::new();
            for keys in [operations, 2 * operations] {
                pass(keys, &mut |work| counts.push(callgrind.count(work)));
            }
            let counts = counts.into_iter().collect::<Result<Vec<f64>, String>>()?;
            each.push((counts[1] - counts[0]) / operations as f64);
        }
        counted.push((*name, median(each)));
    }
    Ok(counted)
}
