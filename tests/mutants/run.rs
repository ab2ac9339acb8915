//! Checks that the tests find the faults of this folder: each test that a fault names fails with it, and passes
//! without.
//!
//! A fault is put into a copy of the tree, in `target/mutants`, which is built there and restored afterwards: nothing
//! else changes. Ends non-zero if a fault survives, does not build, or a test fails without one.

#[path = "fault.rs"]
mod fault;
#[path = "tree.rs"]
mod tree;

use fault::{Fault, Suite, Test};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::mpsc;
use std::time::Instant;
use std::{env, fs, thread};
use tree::{root, said, target, Tree};

const USAGE: &str = "\
usage: mutants run [FAULT]...       run the tests of these faults, or of all but those of memory
       mutants memory               list the faults of memory: name, what is reported, tests
       mutants plant [FAULT]        copy the tree, with this fault in it or none, and say where it is";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = Fault::all(root()).and_then(|faults| match words.as_slice() {
        ["run", names @ ..] => run(&chosen(&faults, names)?),
        ["memory"] => {
            for fault in &faults {
                if let Some(report) = &fault.report {
                    let tests: Vec<&str> = fault.tests.iter().map(|test| test.name.as_str()).collect();
                    println!("{} {report} {}", fault.name, tests.join(" "));
                }
            }
            Ok(())
        }
        ["plant"] | ["plant", _] => {
            let fault = words.get(1).map(|name| chosen(&faults, &[name])).transpose()?;
            let tree = Tree::copy(target().join("tree"))?;
            println!("{}", tree.0.display());
            fault.iter().flatten().try_for_each(|fault| tree.plant(fault))
        }
        _ => Err(USAGE.into()),
    });
    if let Err(error) = done {
        eprintln!("mutants: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// The faults of these names, or all but those of memory.
fn chosen<'f>(faults: &'f [Fault], names: &[&str]) -> Result<Vec<&'f Fault>, String> {
    if names.is_empty() {
        return Ok(faults.iter().filter(|fault| fault.report.is_none()).collect());
    }
    let find = |name: &&str| faults.iter().find(|fault| fault.name == **name);
    names.iter().map(|name| find(name).ok_or_else(|| format!("there is no fault {name}"))).collect()
}

fn run(faults: &[&Fault]) -> Result<(), String> {
    if let Some(fault) = faults.iter().find(|fault| fault.report.is_some()) {
        return Err(format!("{} is a fault of memory: scripts/memcheck.sh has it found", fault.name));
    }
    let begun = Instant::now();
    let tree = Tree::copy(target().join("tree"))?;
    let integration = integration()?;

    let tests: BTreeSet<&Test> = faults.iter().flat_map(|fault| &fault.tests).collect();
    let without = Programs::build(&tree, "none", &tests)?.results(&integration, &tests)?;
    for test in tests {
        if without.get(test) != Some(&Outcome::Passed) {
            let what = without.get(test).map_or_else(|| "has no result".into(), Outcome::to_string);
            return Err(format!("{test} does not pass without a fault: {what}"));
        }
    }
    // While the tests of one fault run, which mostly wait, the next is built.
    let (send, built) = mpsc::sync_channel(0);
    let survived = thread::scope(|scope| {
        scope.spawn(|| {
            let send = send;
            faults.iter().try_for_each(|fault| send.send((*fault, tree.build(fault))))
        });
        let survive = built.iter().filter(|(fault, programs)| !is_found(fault, programs, &integration));
        survive.map(|(fault, _)| fault.name.as_str()).collect::<Vec<_>>()
    });
    let minutes = begun.elapsed().as_secs().div_ceil(60);
    if !survived.is_empty() {
        return Err(format!("{} of {} faults survive: {}", survived.len(), faults.len(), survived.join(" ")));
    }
    println!("{0} of {0} faults found, in {minutes} min", faults.len());
    Ok(())
}

/// Whether every test of a fault fails with it; says so.
fn is_found(fault: &Fault, programs: &Result<Programs, String>, integration: &Path) -> bool {
    println!("{}: {}", fault.name, fault.what);
    let tests = fault.tests.iter().collect();
    let results = match programs.as_ref().map(|programs| programs.results(integration, &tests)) {
        Ok(Ok(results)) => results,
        Ok(Err(error)) => {
            println!("    {error}");
            return false;
        }
        Err(error) => {
            println!("    DOES NOT BUILD: {error}");
            return false;
        }
    };
    for test in tests {
        match results.get(test) {
            Some(Outcome::Failed(why)) => println!("    found by {test}: {why}"),
            Some(Outcome::Passed) => println!("    SURVIVES {test}"),
            None => println!("    NO RESULT of {test}"),
        }
    }
    fault.tests.iter().all(|test| matches!(results.get(test), Some(Outcome::Failed(_))))
}

impl Tree {
    fn plant(&self, fault: &Fault) -> Result<(), String> {
        let changed = fault.changed(|file| fs::read_to_string(root().join(file)).ok())?;
        changed.iter().try_for_each(|(file, text)| self.put(file, text.as_bytes()))
    }

    /// Builds what the tests of a fault need, with it.
    fn build(&self, fault: &Fault) -> Result<Programs, String> {
        self.plant(fault)?;
        let programs = Programs::build(self, &fault.name, &fault.tests.iter().collect());
        fault.edits.iter().try_for_each(|edit| self.take(&edit.file))?;
        programs
    }
}

/// What became of a test.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    /// With what message.
    Failed(String),
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Passed => write!(out, "it passes"),
            Self::Failed(why) => write!(out, "{why}"),
        }
    }
}

/// What is built of the tree for some tests, in a folder of its own. The tests on servers are not: they load the module
/// that they are told.
struct Programs(PathBuf);

impl Drop for Programs {
    fn drop(&mut self) {
        // What stays is overwritten the next time.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Programs {
    fn build(tree: &Tree, name: &str, tests: &BTreeSet<&Test>) -> Result<Self, String> {
        let programs = Self(target().join("programs").join(name));
        let suites: BTreeSet<Suite> = tests.iter().map(|test| test.suite).collect();
        for suite in suites {
            let to = target().join("build");
            let mut command = match suite {
                Suite::Integration => cargo(&["build", "--lib", "--profile", "mutants"]),
                Suite::Model => cargo(&["test", "--no-run", "--package", "redis-lock-core", "--test", "model"]),
            };
            let messages = said(command.arg("--target-dir").arg(&to).current_dir(&tree.0))?;
            let program = match suite {
                Suite::Integration => to.join("mutants/libredis_lock.so"),
                Suite::Model => executable(&messages)?,
            };
            let path = programs.path(suite);
            let copied = fs::create_dir_all(&programs.0).and_then(|()| fs::copy(&program, &path));
            copied.map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(programs)
    }

    fn path(&self, suite: Suite) -> PathBuf {
        self.0.join(match suite {
            Suite::Integration => "libredis_lock.so",
            Suite::Model => "model",
        })
    }

    /// Runs these tests.
    fn results(&self, integration: &Path, tests: &BTreeSet<&Test>) -> Result<BTreeMap<Test, Outcome>, String> {
        let mut results = BTreeMap::new();
        for suite in [Suite::Integration, Suite::Model] {
            let names: Vec<&str> = tests.iter().filter(|test| test.suite == suite).map(|test| &*test.name).collect();
            if names.is_empty() {
                continue;
            }
            let (program, folder) = match suite {
                Suite::Integration => (integration.to_owned(), root().to_owned()),
                Suite::Model => (self.path(suite), root().join("core")),
            };
            let mut command = Command::new(program);
            command.args(["--exact", "--format=pretty"]).args(&names).current_dir(folder);
            command.env("LOCK_MODULE", self.path(Suite::Integration)).env("RUST_BACKTRACE", "0");
            let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
            let text = String::from_utf8_lossy(&output.stdout);
            let outcomes = names.iter().filter_map(|name| Some((*name, outcome(name, &text)?)));
            results.extend(outcomes.map(|(name, outcome)| (Test { suite, name: name.into() }, outcome)));
        }
        Ok(results)
    }
}

/// The tests on servers, built as `make test` builds them.
fn integration() -> Result<PathBuf, String> {
    executable(&said(cargo(&["test", "--no-run", "--test", "integration"]).current_dir(root()))?)
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).args(["--jobs", "2", "--message-format=json-render-diagnostics"]);
    command
}

/// The test binary that cargo tells of.
fn executable(messages: &str) -> Result<PathBuf, String> {
    let path = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message.get("executable")?.as_str().map(PathBuf::from)
    };
    messages.lines().filter_map(path).next_back().ok_or_else(|| "cargo tells of no test binary".into())
}

/// What the harness says of a test; of one that fails, the first line of its message.
fn outcome(name: &str, text: &str) -> Option<Outcome> {
    match text.lines().find_map(|line| line.strip_prefix(&format!("test {name} ... ")))? {
        "ok" => Some(Outcome::Passed),
        "FAILED" => {
            let said = text.split_once(&format!("---- {name} stdout ----")).map_or("", |(_, said)| said);
            let mut lines = said.lines().skip_while(|line| !line.contains(" panicked at "));
            Some(Outcome::Failed(lines.nth(1).unwrap_or("it says nothing").chars().take(120).collect()))
        }
        _ => None,
    }
}
