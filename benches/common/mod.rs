//! What the benchmarks share: settings, a pipelined client, the server's CPU time, medians, raw files and tables.
//!
//! A benchmark never fails because something is slow: it prints a verdict. It does fail when a reply is not the one
//! that the operation has to get, because then it measured something else.
#![allow(dead_code)]

pub mod bounds;
pub mod callgrind;
pub mod runs;

use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Conn, Server};

/// How much to measure, from the environment.
pub struct Settings {
    /// `BENCH_ROUNDS`: how often everything is measured.
    pub rounds: usize,
    /// `BENCH_OPS`: operations of each contender in a round.
    pub operations: usize,
    /// Only tried out, by `cargo test --benches`: one short round, nothing is written.
    pub smoke: bool,
}

impl Settings {
    /// The settings; `cargo bench`, unlike `cargo test`, passes `--bench`.
    pub fn read(rounds: usize, operations: usize) -> Self {
        if !std::env::args().any(|arg| arg == "--bench") {
            return Self { rounds: 1, operations: 1, smoke: true };
        }
        Self {
            rounds: from_env("BENCH_ROUNDS", rounds).max(1),
            operations: from_env("BENCH_OPS", operations).max(1),
            smoke: false,
        }
    }
}

fn from_env(name: &str, default: usize) -> usize {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name} is a whole number, not {text:?}"))
}

/// The CPU time that a server has used, all its threads together.
pub struct ServerCpu {
    pid: u32,
    conn: Conn,
}

impl ServerCpu {
    pub fn of(server: &Server) -> Self {
        Self { pid: server.pid(), conn: server.conn() }
    }

    /// In nanoseconds from the scheduler where there is one to ask, else from INFO.
    pub fn used(&mut self) -> Duration {
        self.by_scheduler().unwrap_or_else(|| self.by_info())
    }

    /// Where [`Self::used`] has it from.
    pub fn source(&self) -> &'static str {
        if self.by_scheduler().is_some() {
            "schedstat of all threads of the server"
        } else {
            "INFO cpu: used_cpu_user + used_cpu_sys"
        }
    }

    fn by_scheduler(&self) -> Option<Duration> {
        let mut nanos = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.pid)).ok()? {
            // The first of three numbers: time on a CPU.
            let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
            nanos += text.split(' ').next()?.parse::<u64>().ok()?;
        }
        Some(Duration::from_nanos(nanos))
    }

    fn by_info(&mut self) -> Duration {
        let info = self.conn.text(&["INFO", "cpu"]);
        ["used_cpu_user", "used_cpu_sys"].iter().map(|name| Duration::from_secs_f64(number(&info, name))).sum()
    }
}

/// The value of a field of INFO.
pub fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn number(info: &str, name: &str) -> f64 {
    field(info, name).and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no {name} in INFO"))
}

/// What one measurement gave.
#[derive(Clone, Copy)]
pub struct Cost {
    /// CPU time of the server.
    pub cpu: Duration,
    pub wall: Duration,
}

impl Cost {
    /// Runs `work` and gives what it cost.
    pub fn of(cpu: &mut ServerCpu, work: impl FnOnce()) -> Self {
        let (cpu_before, start) = (cpu.used(), Instant::now());
        work();
        let wall = start.elapsed();
        Self { cpu: cpu.used().saturating_sub(cpu_before), wall }
    }

    /// How much of the time the server was at work; 1.0 is one core.
    pub fn busy(&self) -> f64 {
        self.cpu.as_secs_f64() / self.wall.as_secs_f64()
    }
}

/// An argument of a command as it goes over the wire.
pub fn argument(bytes: &[u8]) -> Vec<u8> {
    let mut wire = Vec::with_capacity(bytes.len() + 16);
    write!(wire, "${}\r\n", bytes.len()).unwrap();
    wire.extend_from_slice(bytes);
    wire.extend_from_slice(b"\r\n");
    wire
}

/// A connection over which many commands go at once.
pub struct Pipe {
    stream: TcpStream,
    out: Vec<u8>,
    received: Vec<u8>,
}

impl Pipe {
    pub fn to(server: &Server) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(crate::support::DEADLINE)).unwrap();
        Self { stream, out: Vec::new(), received: Vec::new() }
    }

    /// Adds bytes to what [`Self::flush`] sends.
    pub fn add(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Sends what was added.
    pub fn flush(&mut self) {
        self.stream.write_all(&self.out).unwrap();
        self.out.clear();
    }

    /// Waits for `count` replies of one line each and gives them to `each`, without their line ends.
    pub fn replies(&mut self, count: usize, mut each: impl FnMut(usize, &[u8])) {
        let mut seen = 0;
        let mut from = 0;
        let mut chunk = [0; 16 * 1024];
        loop {
            while let Some(length) = self.received[from..].iter().position(|&byte| byte == b'\n') {
                each(seen, self.received[from..from + length].trim_ascii_end());
                from += length + 1;
                seen += 1;
            }
            self.received.drain(..from);
            from = 0;
            if seen >= count {
                assert_eq!((seen, self.received.len()), (count, 0), "more replies than commands");
                return;
            }
            let length = self.stream.read(&mut chunk).expect("the server replies");
            assert!(length > 0, "the server closed the connection");
            self.received.extend_from_slice(&chunk[..length]);
        }
    }
}

/// The middle of the values, or the mean of the two in the middle.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

/// The values in ascending order.
pub fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    assert!(!values.is_empty(), "nothing was measured");
    values.sort_by(f64::total_cmp);
    values
}

/// What a raw file says about where its numbers come from.
pub struct Origin {
    bench: &'static str,
    facts: Vec<(&'static str, String)>,
}

impl Origin {
    /// Asks the server and the machine.
    pub fn of(bench: &'static str, server: &Server) -> Self {
        let info = server.conn().text(&["INFO", "server"]);
        // Valkey says it is Redis 7.2.4, and its own version besides.
        let name = if field(&info, "valkey_version").is_some() { "valkey" } else { "redis" };
        let version = field(&info, &format!("{name}_version")).unwrap_or("unknown");
        let facts = vec![
            ("date", output("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"])),
            ("server", format!("{name}-{version}")),
            ("allocator", field(&server.conn().text(&["INFO", "memory"]), "mem_allocator").unwrap_or("unknown").into()),
            ("module", output("git", &["describe", "--always", "--dirty"])),
            ("cpu", cpu_model()),
            ("cores", std::thread::available_parallelism().map_or(String::new(), |count| count.to_string())),
            ("kernel", output("uname", &["-sr"])),
            ("command", command_line()),
        ];
        Self { bench, facts }
    }

    /// Adds a fact of this benchmark.
    pub fn add(&mut self, name: &'static str, fact: impl Display) {
        self.facts.push((name, fact.to_string()));
    }

    /// The name of the server, as in the names of raw files: redis-7.0.15.
    pub fn server(&self) -> &str {
        self.fact("server")
    }

    fn fact(&self, name: &str) -> &str {
        self.facts.iter().find(|(other, _)| *other == name).map_or("", |(_, fact)| fact)
    }

    /// Writes `rows` as CSV behind the facts, under `benches/runs/`, in a file that tells date, benchmark and server.
    pub fn write_raw(&self, header: &str, rows: &[String]) -> PathBuf {
        let dir = root().join("benches/runs");
        fs::create_dir_all(&dir).unwrap();
        let stamp = self.fact("date").replace(':', "");
        let path = dir.join(format!("{stamp}-{}-{}.csv", self.bench, self.fact("server")));
        let facts = self.facts.iter().map(|(name, fact)| format!("# {name}: {fact}"));
        let lines: Vec<String> = facts.chain([header.to_string()]).chain(rows.iter().cloned()).collect();
        fs::write(&path, lines.join("\n") + "\n").unwrap();
        path.strip_prefix(root()).unwrap().to_path_buf()
    }

    /// Prints what was measured on what.
    pub fn print(&self) {
        for (name, fact) in &self.facts {
            println!("{name}: {fact}");
        }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).current_dir(root()).output();
    let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout).unwrap_or_default();
    match String::from_utf8_lossy(&text).trim() {
        "" => "unknown".into(),
        text => text.into(),
    }
}

fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or("unknown".into(), |(_, model)| model.trim().into())
}

/// What to type to measure this again.
fn command_line() -> String {
    let mut words = Vec::new();
    for name in ["BENCH_ROUNDS", "BENCH_OPS"] {
        if let Ok(value) = std::env::var(name) {
            words.push(format!("{name}={value}"));
        }
    }
    if let Some(server) = std::env::var_os("REDIS_SERVER") {
        words.push(format!("REDIS_SERVER={}", place(&server)));
    }
    words.push(format!("cargo bench --bench {}", env!("CARGO_CRATE_NAME")));
    let parts: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if !parts.is_empty() {
        words.push(format!("-- {}", parts.join(" ")));
    }
    words.join(" ")
}

/// A server binary as others can name it: under the project, or by its file name.
fn place(binary: &OsString) -> String {
    let path = Path::new(binary);
    let short = match path.strip_prefix(root()) {
        Ok(inside) => inside,
        Err(_) if path.is_absolute() => Path::new(path.file_name().unwrap_or_default()),
        Err(_) => path,
    };
    short.display().to_string()
}

/// A Markdown table; the columns after the first `text_columns` are numbers and go to the right.
pub fn markdown(text_columns: usize, header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0).max(header[column].chars().count()).max(3)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column < text_columns {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        });
        format!("| {} |\n", padded.collect::<Vec<_>>().join(" | "))
    };
    let rule = |(column, &width): (usize, &usize)| {
        if column < text_columns {
            "-".repeat(width)
        } else {
            format!("{}:", "-".repeat(width - 1))
        }
    };
    let rules: Vec<String> = widths.iter().enumerate().map(rule).collect();
    let mut out = line(header.to_vec()) + &line(rules.iter().map(String::as_str).collect());
    for row in rows {
        out += &line(row.iter().map(String::as_str).collect());
    }
    out
}

/// Prints [`markdown`].
pub fn print_table(text_columns: usize, header: &[&str], rows: &[Vec<String>]) {
    println!("\n{}", markdown(text_columns, header, rows));
}
