//! One hot lock that several client processes want again and again.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::worker::{now_us, sleep_until, spawn};
use super::Row;
use crate::bounds::list::verdict;
use crate::measure::state::State;
use crate::measure::{info, median, print_table, root, sorted, turn, ServerCpu, Settings};
use testkit::install;
use testkit::{temp_dir, until, Conn, Server};

const CLIENTS: [usize; 3] = [4, 16, 64];
/// Counted from when all client processes are ready.
const RUN_UP: Duration = Duration::from_millis(150);

#[derive(Clone, Copy, PartialEq)]
enum Language {
    Rust,
    /// All clients in one process, on one connection.
    Multiplexed,
    Python,
}

struct Contender {
    name: &'static str,
    language: Language,
    way: &'static str,
}

const OURS: usize = 0;
const CEILING: usize = 1;
const OURS_IN_PYTHON: usize = 3;
const PYTHON_REDIS_LOCK: usize = 4;

const CONTENDERS: [Contender; 8] = [
    Contender { name: "LOCK.*", language: Language::Rust, way: "lock" },
    Contender { name: "BLPOP + RPUSH, no safety", language: Language::Rust, way: "queue" },
    Contender { name: "SET NX + pub/sub (Redisson)", language: Language::Rust, way: "pub/sub" },
    Contender { name: "LOCK.*, redis-py", language: Language::Python, way: "lock" },
    Contender { name: "python-redis-lock", language: Language::Python, way: "python-redis-lock" },
    Contender { name: "redis-py Lock", language: Language::Python, way: "redis-py" },
    Contender { name: "redis-py Lock, sleep=0.001", language: Language::Python, way: "redis-py-1ms" },
    Contender { name: "LOCK.* NOTIFY, one connection", language: Language::Multiplexed, way: "notified" },
];

/// A contender's result in one round.
struct Run {
    hand_offs: f64,
    cpu: Duration,
    wall: Duration,
    commands: f64,
    waits_us: Vec<f64>,
    most: f64,
    least: f64,
}

impl Run {
    fn rate(&self) -> f64 {
        self.hand_offs / self.wall.as_secs_f64()
    }

    fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.hand_offs
    }

    /// The wait that `per_mille` of a thousand grants did not exceed.
    fn wait_us(&self, per_mille: usize) -> f64 {
        self.waits_us[(self.waits_us.len() * per_mille / 1000).min(self.waits_us.len() - 1)]
    }

    fn row(&self, contender: &Contender, state: State, clients: usize, round: usize, place: usize) -> Row {
        let values = vec![
            ("hand_offs", self.hand_offs),
            ("cpu_ns", self.cpu.as_nanos() as f64),
            ("wall_ns", self.wall.as_nanos() as f64),
            ("commands", self.commands),
            ("p50_us", self.wait_us(500)),
            ("p99_us", self.wait_us(990)),
            ("max_us", self.wait_us(1000)),
            ("most", self.most),
            ("least", self.least),
        ];
        Row { part: "hot lock", state, clients, contender: contender.name.into(), round, place, values }
    }
}

/// How long a contender is measured in a round.
pub fn duration(settings: &Settings) -> Duration {
    Duration::from_millis(if settings.smoke { 200 } else { 1_500 })
}

/// Measures and prints. With an AOF and a replica, it measures only ours and the ceiling, with the most clients.
pub fn measure(server: &Server, state: State, settings: &Settings) -> Vec<Row> {
    let is_alone = state == State::NoSink;
    let python = if settings.smoke || !is_alone { Err("this is a trial run".into()) } else { install::python() };
    if let (Err(why), true) = (&python, is_alone) {
        eprintln!("skipped: the contenders in Python: {why}");
    }
    let counts = match (settings.smoke, is_alone) {
        (true, _) => &CLIENTS[..1],
        (false, true) => &CLIENTS[..],
        (false, false) => &CLIENTS[2..],
    };
    let contenders = if is_alone { &CONTENDERS[..] } else { &CONTENDERS[..=CEILING] };
    let mut rows = Vec::new();
    let mut runs: Vec<Vec<Vec<Run>>> = counts.iter().map(|_| CONTENDERS.iter().map(|_| Vec::new()).collect()).collect();
    for round in 1..=settings.rounds {
        for (clients, runs) in counts.iter().zip(&mut runs) {
            for place in 0..contenders.len() {
                let at = turn(place, contenders.len(), round, round);
                let contender = &CONTENDERS[at];
                let interpreter = match contender.language {
                    Language::Rust | Language::Multiplexed => None,
                    Language::Python if python.is_err() => continue,
                    Language::Python => python.as_deref().ok(),
                };
                let key = format!("hot:{clients}:{round}:{at}");
                let run = one_run(server, contender, interpreter, *clients, &key, duration(settings));
                rows.push(run.row(contender, state, *clients, round, place + 1));
                runs[at].push(run);
            }
        }
        eprintln!("hot lock: round {round} of {}", settings.rounds);
    }
    for (clients, runs) in counts.iter().zip(&runs) {
        println!("\n{clients} clients, one lock, {}", state.name());
        print_runs(runs);
    }
    print_verdicts(counts, &runs);
    rows
}

/// The commands that a server has run so far, excluding this one.
fn commands(conn: &mut Conn) -> f64 {
    info(conn, "stats", "total_commands_processed")
}

fn one_run(
    server: &Server,
    contender: &Contender,
    interpreter: Option<&Path>,
    clients: usize,
    key: &str,
    duration: Duration,
) -> Run {
    let (mut conn, mut cpu) = (server.conn(), ServerCpu::of(server));
    if contender.way == "queue" {
        conn.int(&["RPUSH", key, "token"]);
    }
    let dir = temp_dir();
    let mut children = Children(match interpreter {
        None if contender.language == Language::Multiplexed => {
            vec![spawn(contender.way, server.port(), key, &dir, clients)]
        }
        None => (0..clients).map(|number| spawn(contender.way, server.port(), key, &dir, number)).collect(),
        Some(interpreter) => vec![spawn_python(interpreter, contender.way, server.port(), key, &dir, clients)],
    });
    until("all client processes are ready", || {
        let ready = conn.execute(&["GET", &format!("{key}:ready")]);
        (!ready.is_nil() && ready.text() == clients.to_string()).then_some(())
    });
    let duration_us = u64::try_from(duration.as_micros()).unwrap();
    let start = now_us() + u64::try_from(RUN_UP.as_micros()).unwrap();
    let end = start + duration_us;
    let times = format!("{start} {end}");
    for _ in 0..clients {
        conn.int(&["RPUSH", &format!("{key}:start"), &times]);
    }
    sleep_until(start - 2_000);
    let (cpu_before, commands_before) = (cpu.used(), commands(&mut conn));
    sleep_until(end);
    // This process may wait for a CPU too, so grants are counted up to the moment when it actually read the figures.
    let (cpu_used, at) = (cpu.used().saturating_sub(cpu_before), now_us());
    let (commands, commands_at) = (commands(&mut conn) - commands_before - 1.0, now_us());
    children.wait();

    let grants: Vec<Vec<(u64, f64)>> = (0..clients).map(|number| read_grants(&dir.join(number.to_string()))).collect();
    let _ = fs::remove_dir_all(&dir);
    let until_then = |at: u64| grants.iter().flatten().filter(|(time, _)| *time <= at).count() as f64;
    let served = grants.iter().map(|of_one| of_one.iter().filter(|(time, _)| *time <= end).count() as f64);
    let served = sorted(served);
    let hand_offs = until_then(at);
    assert!(hand_offs > 0.0, "{}: nobody was granted the lock", contender.name);
    Run {
        hand_offs,
        cpu: cpu_used,
        wall: Duration::from_micros(at - start),
        commands: commands * hand_offs / until_then(commands_at),
        waits_us: sorted(grants.iter().flatten().map(|(_, wait)| *wait)),
        most: served[served.len() - 1],
        least: served[0],
    }
}

fn spawn_python(interpreter: &Path, way: &str, port: u16, key: &str, dir: &Path, clients: usize) -> Child {
    let script = root().join("benches/handoff/workers.py");
    let mut command = Command::new(interpreter);
    command.arg(script).args([way, &port.to_string(), key]).arg(dir).arg(clients.to_string());
    command.stdin(Stdio::null()).spawn().expect("Python can be run")
}

/// The times of the grants, and their waits in microseconds.
fn read_grants(path: &Path) -> Vec<(u64, f64)> {
    let text = fs::read_to_string(path).unwrap();
    let grant = |line: &str| {
        let (time, wait) = line.split_once(' ').unwrap();
        (time.parse().unwrap(), wait.parse().unwrap())
    };
    text.lines().map(grant).collect()
}

/// Client processes. Dropping this kills those still running.
struct Children(Vec<Child>);

impl Children {
    fn wait(&mut self) {
        let end = Instant::now() + Duration::from_secs(30);
        for child in &mut self.0 {
            let status = loop {
                match child.try_wait().unwrap() {
                    Some(status) => break status,
                    None => assert!(Instant::now() < end, "a client process does not end"),
                }
                std::thread::sleep(Duration::from_millis(2));
            };
            assert!(status.success(), "a client process failed: {status}");
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn middle(runs: &[Run], of: impl Fn(&Run) -> f64) -> f64 {
    median(runs.iter().map(of))
}

fn print_runs(runs: &[Vec<Run>]) {
    let mut rows = Vec::new();
    for (contender, runs) in CONTENDERS.iter().zip(runs).filter(|(_, runs)| !runs.is_empty()) {
        let ms = |per_mille| format!("{:.2}", middle(runs, |run| run.wait_us(per_mille)) / 1000.0);
        let language = if contender.language == Language::Python { "Python" } else { "Rust" };
        rows.push(vec![
            contender.name.into(),
            language.into(),
            format!("{:.0}", middle(runs, Run::rate)),
            format!("{:.2}", middle(runs, |run| run.commands / run.hand_offs)),
            format!("{:.1}", middle(runs, Run::cpu_us)),
            ms(500),
            ms(990),
            ms(1000),
            format!("{:.0} / {:.0}", middle(runs, |run| run.most), middle(runs, |run| run.least)),
        ]);
    }
    let header = [
        "waits with",
        "client",
        "hand-offs/s",
        "commands",
        "server CPU, µs",
        "wait p50, ms",
        "p99",
        "max",
        "most / least served",
    ];
    print_table(2, &header, &rows);
}

/// Prints the verdicts on LOCK.*; ratios are the medians of the rounds' ratios.
fn print_verdicts(counts: &[usize], runs: &[Vec<Vec<Run>>]) {
    let mut rows = Vec::new();
    for (clients, runs) in counts.iter().zip(runs) {
        let mut row = |what: &str, value: f64, bound: f64, at_least: bool| {
            let (word, verdict) = if at_least {
                ("at least", verdict(-value, Some(-bound)))
            } else {
                ("at most", verdict(value, Some(bound)))
            };
            let expected = format!("{word} {bound}");
            rows.push(vec![clients.to_string(), what.into(), format!("{value:.2}"), expected, verdict.into()]);
        };
        let ratio = |ours: usize, peer: usize, of: fn(&Run) -> f64| {
            median(runs[ours].iter().zip(&runs[peer]).map(|(our, their)| of(our) / of(their)))
        };
        let ours = &runs[OURS];
        // A hand-off under way at the start or the end of a round is only partly in it.
        let commands = middle(ours, |run| run.commands / run.hand_offs);
        row("commands per hand-off", (commands * 20.0).round() / 20.0, 2.0, false);
        row("wait p99 / p50", middle(ours, |run| run.wait_us(990) / run.wait_us(500)), 2.0, false);
        row("most / least served", middle(ours, |run| run.most / run.least), 1.1, false);
        row("server CPU / that of BLPOP + RPUSH", ratio(OURS, CEILING, Run::cpu_us), 1.1, false);
        row("hand-offs/s / those of BLPOP + RPUSH", ratio(OURS, CEILING, Run::rate), 0.97, true);
        if !runs[OURS_IN_PYTHON].is_empty() {
            let cpu = ratio(OURS_IN_PYTHON, PYTHON_REDIS_LOCK, Run::cpu_us);
            row("server CPU / that of python-redis-lock", cpu, 0.45, false);
        }
    }
    print_table(2, &["clients", "LOCK.*", "measured", "expected", "verdict"], &rows);
}
