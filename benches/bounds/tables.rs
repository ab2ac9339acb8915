//! The tables in the READMEs, from the newest raw runs.

use super::list::{BOUNDS, OURS, PAIR};
use super::{commands, Outcome};
use crate::measure::runs::{cpu_us, number, servers, Row, Run};
use crate::measure::state::State;
use crate::measure::{markdown, median, Ratio};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The server of the single-server tables.
const MAIN: &str = "redis-7.0.15";

const START: &str = "<!-- table: ";
const END: &str = "<!-- end of table -->";

/// Fills every table in a file.
pub fn fill(path: &Path) {
    let text = fs::read_to_string(path).unwrap();
    let mut out = String::new();
    let mut rest = &*text;
    let mut filled = 0;
    while let Some((before, after)) = rest.split_once(START) {
        let (name, after) = after.split_once(" -->\n").unwrap_or_else(|| panic!("{START} has no end"));
        let (_, after) = after.split_once(END).unwrap_or_else(|| panic!("the table {name} has no end"));
        out += before;
        let _ = write!(out, "{START}{name} -->\n\n{}\n{END}", table(name));
        rest = after;
        filled += 1;
    }
    out += rest;
    fs::write(path, out).unwrap();
    println!("{}: {filled} tables", path.display());
}

fn table(name: &str) -> String {
    match name {
        "bounds" => bounds(),
        "main hot lock" => main_hot(),
        "main pair" => main_pair(),
        "pair" | "several" => ways(name),
        "instructions" => instructions(),
        "memory" => memory(),
        "memory of others" => memory_of_others(),
        "extra" => extra(),
        "crowd" => crowd(),
        "hot lock" => hot(),
        "queued" => queued(),
        "overhead" => overhead(),
        "runs" => runs(),
        other => panic!("no table is called {other}"),
    }
}

/// One row for each bound, one column for each server: server CPU, followed by the instructions if they were counted;
/// missed bounds in bold.
fn bounds() -> String {
    let servers = measured();
    let mut header = vec!["LOCK.*", "against", "state", "at most"];
    header.extend(servers.iter().map(String::as_str));
    let rows = BOUNDS.iter().map(|bound| {
        let mut row: Vec<String> = vec![bound.operation.into(), bound.against.into(), bound.state.name().into()];
        row.push(format!("{:.2}", bound.at_most));
        row.extend(servers.iter().map(|server| {
            let Some(outcome) = Outcome::of(bound, server).filter(|_| bound.is_for(server)) else {
                return String::new();
            };
            let counted = outcome.instructions.map_or(String::new(), |ratio| format!(", {ratio:.2}"));
            let figures = format!("{:.2}{counted}", outcome.ratio.median);
            if outcome.is_missed(bound, server) {
                format!("**{figures}**")
            } else {
                figures
            }
        }));
        row
    });
    markdown(3, &header, &rows.collect::<Vec<_>>())
}

/// The servers on which pairs have been measured since the bounds were introduced: those whose memory was measured too.
fn measured() -> Vec<String> {
    servers().into_iter().filter(|server| Run::newest_of("memory", server).is_some()).collect()
}

/// Names in the order of their first occurrence.
fn in_order<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a String> {
    let mut seen = BTreeSet::new();
    names.filter(|name| seen.insert(*name)).collect()
}

fn is(column: &'static str, value: &str) -> impl Fn(&Row) -> bool {
    let value = value.to_string();
    move |row| row.get(column) == Some(&value)
}

/// The median of the values, with this many decimals; empty without values.
fn middle(values: Vec<f64>, decimals: usize) -> String {
    if values.is_empty() {
        return String::new();
    }
    format!("{:.decimals$}", median(values))
}

/// µs of server CPU of an acquire and a release with an AOF and a replica.
fn main_pair() -> String {
    let servers = measured();
    let wanted = |row: &Row| row["operation"] == PAIR && State::AofAndReplica.is_of(row);
    let runs: Vec<Option<Run>> = servers.iter().map(|server| Run::newest_of("pair", server)).collect();
    let rows = runs.iter().flatten().flat_map(|run| &run.rows).filter(|row| wanted(row));
    let ways: BTreeSet<(bool, &String)> = rows.map(|row| (row["contender"] != OURS, &row["contender"])).collect();
    let rows = ways.iter().map(|(_, way)| {
        let is_it = |row: &Row| wanted(row) && row["contender"] == **way;
        let cells =
            runs.iter().map(|run| run.as_ref().map_or(String::new(), |run| middle(run.rounds(is_it, cpu_us), 2)));
        [(*way).clone()].into_iter().chain(cells).collect()
    });
    let mut header = vec!["acquire and release, µs"];
    header.extend(servers.iter().map(String::as_str));
    markdown(1, &header, &rows.collect::<Vec<Vec<String>>>())
}

/// µs of server CPU, for each way and server.
fn ways(bench: &str) -> String {
    let servers: Vec<String> =
        measured().into_iter().filter(|server| Run::newest_of(bench, server).is_some()).collect();
    let runs: Vec<Option<Run>> = servers.iter().map(|server| Run::newest_of(bench, server)).collect();
    let rows = || runs.iter().flatten().flat_map(|run| &run.rows);
    let operations = in_order(rows().map(|row| &row["operation"]));
    // The order of the contenders changes within a round; sorted by name it is the same for all servers.
    let ways: BTreeSet<(usize, usize, bool, &String)> = rows()
        .map(|row| {
            let at = operations.iter().position(|operation| **operation == row["operation"]).unwrap();
            (state_of(row), at, row["contender"] != OURS, &row["contender"])
        })
        .collect();
    let mut header = vec!["µs of server CPU", "with", "state"];
    header.extend(servers.iter().map(String::as_str));
    let rows = ways.iter().map(|(state, at, _, contender)| {
        let (state, operation) = (State::ALL[*state], operations[*at]);
        let mut row = vec![operation.clone(), (*contender).clone(), state.name().into()];
        row.extend(runs.iter().map(|run| {
            let wanted =
                |row: &Row| row["operation"] == *operation && row["contender"] == **contender && state.is_of(row);
            run.as_ref().map_or(String::new(), |run| middle(run.rounds(wanted, cpu_us), 2))
        }));
        row
    });
    markdown(3, &header, &rows.collect::<Vec<_>>())
}

/// A row's position in [`State::ALL`].
fn state_of(row: &Row) -> usize {
    State::ALL.iter().position(|state| state.is_of(row)).unwrap_or(0)
}

/// Instructions of each command, on each server.
fn instructions() -> String {
    let runs: Vec<(String, Run)> = servers()
        .into_iter()
        .filter_map(|server| Some((server.clone(), Run::newest_of("instructions", &server)?)))
        .collect();
    let names: Vec<&String> = in_order(runs.iter().flat_map(|(_, run)| run.rows.iter().map(|row| &row["command"])));
    let columns: Vec<(State, &String, &Run)> = State::ALL
        .iter()
        .flat_map(|state| runs.iter().map(move |(server, run)| (*state, server, run)))
        .filter(|(state, _, run)| run.rows.iter().any(|row| state.is_of(row)))
        .collect();
    let count = |state: State, run: &Run, name: &str| {
        run.rounds(|row| row["command"] == name && state.is_of(row), |row| number(row, "instructions"))
    };
    let heads: Vec<String> = columns.iter().map(|(state, server, _)| format!("{server}: {}", state.name())).collect();
    let mut header = vec!["instructions of the server"];
    header.extend(heads.iter().map(String::as_str));
    let mut rows: Vec<Vec<String>> = Vec::new();
    for name in names {
        let mut row = vec![name.clone()];
        row.extend(columns.iter().map(|(state, _, run)| middle(count(*state, run, name), 0)));
        rows.push(row);
    }
    for contender in [OURS, "SET NX PX + EVALSHA", "SET NX PX + DEL"] {
        let names = commands(PAIR, contender);
        let mut row = vec![names.join(" + ")];
        row.extend(columns.iter().map(|(state, _, run)| {
            let sum: f64 = names.iter().map(|name| median(count(*state, run, name))).sum();
            format!("{sum:.0}")
        }));
        rows.push(row);
    }
    markdown(1, &header, &rows)
}

fn memory() -> String {
    let servers = measured();
    let rows = servers.iter().filter_map(|server| {
        let run = Run::newest_of("memory", server)?;
        let of = |name: &str, column: &str| run.rounds(is("contender", name), |row| number(row, column));
        let their = "SET NX PX, 36 bytes";
        let used = [OURS, their].map(|name| of(name, "used_memory_bytes"));
        let ratio = Ratio::of(&used[0], &used[1])?;
        let [ours, theirs] = used.map(|of| middle(of, 1));
        let usage = [OURS, their].map(|name| middle(of(name, "memory_usage_bytes"), 0));
        let [our_usage, their_usage] = usage;
        Some(vec![
            server.clone(),
            run.fact("allocator").to_string(),
            ours,
            theirs,
            format!("{:.3}", ratio.median),
            our_usage,
            their_usage,
        ])
    });
    let header = [
        "server",
        "allocator",
        "a lock, bytes",
        "SET NX PX, 36 bytes",
        "ratio",
        "MEMORY USAGE of a lock",
        "of the other",
    ];
    markdown(2, &header, &rows.collect::<Vec<_>>())
}

/// Other things that the module remembers, with the main server's allocator.
fn memory_of_others() -> String {
    let Some(run) = Run::newest_of("memory", MAIN) else { return "not measured\n".into() };
    let rows = in_order(run.rows.iter().map(|row| &row["contender"])).into_iter().map(|name| {
        let used = run.rounds(is("contender", name), |row| number(row, "used_memory_bytes"));
        vec![name.clone(), middle(used, 0)]
    });
    markdown(1, &["one of 100,000", "bytes"], &rows.collect::<Vec<_>>())
}

/// The cost of a pair in other configurations.
fn extra() -> String {
    let Some(run) = Run::newest_of("extra", MAIN) else { return "not measured\n".into() };
    let mut rows = Vec::new();
    for configuration in in_order(run.rows.iter().map(|row| &row["operation"])) {
        let of = |name: &str| run.rounds(|row| row["operation"] == *configuration && row["contender"] == name, cpu_us);
        let ours = of(OURS);
        let mut row = vec![configuration.clone(), middle(ours.clone(), 2)];
        for peer in ["SET NX PX + EVALSHA", "SET NX PX + DEL"] {
            let theirs = of(peer);
            let ratio = Ratio::of(&ours, &theirs).map_or(String::new(), |ratio| format!("{:.2}", ratio.median));
            row.extend([middle(theirs, 2), ratio]);
        }
        rows.push(row);
    }
    let mut out =
        markdown(1, &["configuration", OURS, "SET NX PX + EVALSHA", "ratio", "SET NX PX + DEL", "ratio"], &rows);
    let mut rows = Vec::new();
    let of = |name: &str| {
        let plain = &run.rows[0]["operation"];
        run.rounds(|row| row["operation"] == *plain && row["contender"] == name, cpu_us)
    };
    let plain = of(OURS);
    for option in ["LOCK.* with ID", "LOCK.* with DETAILS", "LOCK.* with SESSION"] {
        let with = of(option);
        let ratio = Ratio::of(&with, &plain).map_or(String::new(), |ratio| format!("{:.2}", ratio.median));
        rows.push(vec![option.into(), middle(with, 2), ratio]);
    }
    out += "\n";
    out += &markdown(1, &["option", "µs", "relative to none"], &rows);
    out
}

/// A hand-off with many waiters.
fn crowd() -> String {
    let newest = |part: &str| Run::newest("handoff", MAIN, is("part", part)).map(|run| run.filtered("part", part));
    let (Some(cpu), Some(counted)) = (newest("crowd"), newest("instructions")) else { return "not measured\n".into() };
    let mut rows = Vec::new();
    for clients in in_order(cpu.rows.iter().map(|row| &row["clients"])) {
        let of = |run: &Run, name: &str, value: &dyn Fn(&Row) -> Option<f64>| {
            run.rounds(|row| row["clients"] == *clients && row["contender"] == name && State::NoSink.is_of(row), value)
        };
        let instructions = |row: &Row| Some(number(row, "instructions")? / number(row, "hand_offs")?);
        rows.push(vec![
            clients.clone(),
            middle(of(&cpu, OURS, &cpu_us), 1),
            middle(of(&cpu, "BLPOP + RPUSH", &cpu_us), 1),
            middle(of(&counted, OURS, &instructions), 0),
            middle(of(&counted, "BLPOP + RPUSH", &instructions), 0),
        ]);
    }
    let header = ["waiters", "LOCK.*, µs", "BLPOP + RPUSH, µs", "LOCK.*, instructions", "BLPOP + RPUSH, instructions"];
    markdown(1, &header, &rows)
}

/// One lock that 64 clients want.
fn hot() -> String {
    let Some((run, names)) = hot_run() else { return "not measured\n".into() };
    let rows: Vec<Vec<String>> = names
        .iter()
        .map(|name| {
            let of = |value: &dyn Fn(&Row) -> Option<f64>| run.rounds(is("contender", name), value);
            let commands = of(&|row| Some(number(row, "commands")? / number(row, "hand_offs")?));
            let p50 = of(&|row| Some(number(row, "p50_us")? / 1_000.0));
            let mut row = vec![name.clone(), rate(&run, name), middle(commands, 1), middle(of(&cpu_us), 1)];
            row.push(middle(p50, 1));
            row.extend(slowest_and_shares(&run, name));
            row
        })
        .collect();
    let header =
        ["64 clients", "hand-offs/s", "commands each", "server CPU, µs", "p50, ms", "p99, ms", "most / least served"];
    markdown(1, &header, &rows)
}

/// The columns of the same table that the README shows.
fn main_hot() -> String {
    let Some((run, names)) = hot_run() else { return "not measured\n".into() };
    let row = |name: &String| {
        let [p99, shares] = slowest_and_shares(&run, name);
        vec![name.clone(), rate(&run, name), p99, shares]
    };
    let header = ["64 clients", "hand-offs/s", "p99 of the wait, ms", "most / least served"];
    markdown(1, &header, &names.iter().map(row).collect::<Vec<_>>())
}

/// The newest run of the hot lock with 64 clients and no replication, and its contenders.
fn hot_run() -> Option<(Run, Vec<String>)> {
    let run = Run::newest("handoff", MAIN, is("part", "hot lock"))?;
    let mut run = run.filtered("part", "hot lock").filtered("clients", "64");
    run.rows.retain(|row| State::NoSink.is_of(row));
    let mut names: Vec<String> = in_order(run.rows.iter().map(|row| &row["contender"])).into_iter().cloned().collect();
    names.sort_by_key(|name| (name != OURS, !name.starts_with("BLPOP"), name.clone()));
    Some((run, names))
}

fn rate(run: &Run, name: &str) -> String {
    let rate = |row: &Row| Some(number(row, "hand_offs")? / number(row, "wall_ns")? * 1e9);
    middle(run.rounds(is("contender", name), rate), 0)
}

fn slowest_and_shares(run: &Run, name: &str) -> [String; 2] {
    let of = |value: &dyn Fn(&Row) -> Option<f64>| run.rounds(is("contender", name), value);
    let share = |column: &'static str| middle(of(&|row| number(row, column)), 0);
    let p99 = middle(of(&|row| Some(number(row, "p99_us")? / 1_000.0)), 1);
    [p99, format!("{} / {}", share("most"), share("least"))]
}

/// Waits without a connection, by keys and waits.
fn queued() -> String {
    let Some(run) = Run::newest_of("queued", MAIN) else { return "not measured\n".into() };
    let columns: [(&str, &str, f64, usize); 8] = [
        ("bytes each", "bytes_each", 1.0, 0),
        ("idle, % of a core", "idle_per_mille", 10.0, 2),
        ("hand-off, µs of CPU", "hand_off_ns", 1_000.0, 1),
        ("instructions", "instructions", 1.0, 0),
        ("slowest PING, ms: join", "join_slowest_us", 1_000.0, 1),
        ("hand off", "hand_off_slowest_us", 1_000.0, 1),
        ("cancel", "cancel_slowest_us", 1_000.0, 1),
        ("demote", "demote_slowest_us", 1_000.0, 1),
    ];
    let cells = |row: &Row| {
        let cell = |(_, name, unit, decimals): &(&str, &str, f64, usize)| {
            number(row, name).map_or(String::new(), |value| format!("{:.*}", *decimals, value / unit))
        };
        [row["keys"].clone(), row["waits"].clone()].into_iter().chain(columns.iter().map(cell)).collect()
    };
    let header: Vec<&str> = ["keys", "waits"].into_iter().chain(columns.map(|column| column.0)).collect();
    markdown(0, &header, &run.rows.iter().map(cells).collect::<Vec<_>>())
}

/// The cost of other commands on a server with the module, relative to a server without it.
fn overhead() -> String {
    let Some(run) = Run::newest_of("overhead", MAIN) else { return "not measured\n".into() };
    let of = |operation: &str, state: &str| {
        run.rounds(|row| row["operation"] == *operation && row["state"] == *state, cpu_us)
    };
    let states = ["without it, again", "loaded, nobody has waited", "a client has waited", "and one has had a SESSION"];
    let rows = in_order(run.rows.iter().map(|row| &row["operation"])).into_iter().map(|operation| {
        let without = of(operation, "without the module");
        let ratio = |state: &&str| Ratio::of(&of(operation, state), &without);
        let ratios = states.iter().map(|state| ratio(state).map_or(String::new(), |it| format!("{:.2}", it.median)));
        [operation.clone(), middle(without.clone(), 2)].into_iter().chain(ratios).collect()
    });
    let header: Vec<&str> = ["command", "without the module, µs"].into_iter().chain(states).collect();
    markdown(1, &header, &rows.collect::<Vec<Vec<String>>>())
}

/// The runs behind the other tables.
fn runs() -> String {
    let mut rows = Vec::new();
    let parts = ["hot lock", "crowd", "instructions", "used_memory"];
    for server in measured() {
        let whole = ["pair", "several", "memory", "instructions", "extra", "queued", "overhead"]
            .map(|bench| Run::newest_of(bench, &server));
        let of_hand_off = parts.map(|part| Run::newest("handoff", &server, is("part", part)));
        let mut found: Vec<Run> = whole.into_iter().chain(of_hand_off).flatten().collect();
        found.dedup_by(|one, other| one.name == other.name);
        for run in found {
            let mut row = vec![format!("[{0}](runs/{0})", run.name)];
            row.extend(["module", "rounds", "command"].map(|name| run.fact(name).to_string()));
            rows.push(row);
        }
    }
    markdown(4, &["run", "module", "rounds", "command"], &rows)
}
