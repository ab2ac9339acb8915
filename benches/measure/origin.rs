//! Raw files: the facts of a run and its rounds, as CSV in `benches/runs/`.

use super::{field, root, Settings};
use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::process::Command;
use testkit::Server;

/// The header of a raw file: the origin of its numbers.
pub struct Origin {
    bench: &'static str,
    facts: Vec<(&'static str, String)>,
    /// In a trial run nothing is written.
    smoke: bool,
}

impl Origin {
    /// Asks the server and the machine.
    pub fn of(bench: &'static str, server: &Server, settings: &Settings) -> Self {
        let info = server.conn().text(&["INFO", "server"]);
        // Valkey reports Redis 7.2.4, followed by its own version.
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
        Self { bench, facts, smoke: settings.smoke }
    }

    /// Adds a fact of this bench.
    pub fn with(mut self, name: &'static str, fact: impl Display) -> Self {
        self.facts.push((name, fact.to_string()));
        self
    }

    /// The server's name, as in raw file names: redis-7.0.15.
    pub fn server(&self) -> &str {
        self.fact("server")
    }

    fn fact(&self, name: &str) -> &str {
        self.facts.iter().find(|(other, _)| *other == name).map_or("", |(_, fact)| fact)
    }

    /// Writes `rows` as CSV after the facts, in a file named after date, bench and server; nothing in a trial run.
    pub fn keep(&self, header: &str, rows: &[String]) {
        if self.smoke {
            return;
        }
        let dir = root().join("benches/runs");
        fs::create_dir_all(&dir).unwrap();
        let stamp = self.fact("date").replace(':', "");
        let path = dir.join(format!("{stamp}-{}-{}.csv", self.bench, self.fact("server")));
        let facts = self.facts.iter().map(|(name, fact)| format!("# {name}: {fact}"));
        let lines: Vec<String> = facts.chain([header.to_string()]).chain(rows.iter().cloned()).collect();
        fs::write(&path, lines.join("\n") + "\n").unwrap();
        println!("raw rounds: {}", path.strip_prefix(root()).unwrap().display());
    }

    /// Prints the facts.
    pub fn printed(self) -> Self {
        for (name, fact) in &self.facts {
            println!("{name}: {fact}");
        }
        self
    }
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

/// The command that measures this again.
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
    words.push(format!("cargo bench --bench {} --", env!("CARGO_CRATE_NAME")));
    words.extend(std::env::args().skip(1).filter(|arg| arg != "--bench"));
    words.join(" ")
}

/// A server binary as others can name it: by its path in the project, or by its file name.
fn place(binary: &OsString) -> String {
    let path = Path::new(binary);
    let short = match path.strip_prefix(root()) {
        Ok(inside) => inside,
        Err(_) if path.is_absolute() => Path::new(path.file_name().unwrap_or_default()),
        Err(_) => path,
    };
    short.display().to_string()
}
