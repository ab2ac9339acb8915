//! Checks that the tests catch the mutants in `tests/mutants`: each test that a mutant names fails with the mutant and
//! passes without it.
//!
//! A mutant is applied to a copy of the tree, in `target/mutants`, which is built there and restored afterwards:
//! nothing else changes. Exits non-zero if a mutant survives or does not build, or if a test fails without a mutant.

pub mod mutant;
pub mod tree;

use crate::root;
use mutant::{Mutant, Suite, Test};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Instant;
use std::{fs, thread};
use tree::{output_of, target, Tree};

/// Runs the tests of the mutants with these names, or of all mutants but the memory mutants.
///
/// # Errors
/// Names the mutants that survive or do not build, or the test that fails without a mutant.
pub fn run(names: &[&str]) -> Result<(), String> {
    run_tests(&chosen(&Mutant::all(root())?, names)?)
}

/// Prints the memory mutants: name, report, tests.
///
/// # Errors
/// Names the file that cannot be read.
pub fn list_memory() -> Result<(), String> {
    for mutant in &Mutant::all(root())? {
        if let Some(report) = &mutant.report {
            let tests: Vec<&str> = mutant.tests.iter().map(|test| test.name.as_str()).collect();
            println!("{} {report} {}", mutant.name, tests.join(" "));
        }
    }
    Ok(())
}

/// Copies the tree, with this mutant or none, and prints its path.
///
/// # Errors
/// Names the file that cannot be copied, or the edit that does not fit.
pub fn plant(name: Option<&str>) -> Result<(), String> {
    let mutants = Mutant::all(root())?;
    let mutant = name.map(|name| chosen(&mutants, &[name])).transpose()?;
    let tree = Tree::copy(target().join("tree"))?;
    println!("{}", tree.0.display());
    mutant.iter().flatten().try_for_each(|mutant| tree.plant(mutant))
}

/// The mutants with these names, or all but the memory mutants.
fn chosen<'f>(mutants: &'f [Mutant], names: &[&str]) -> Result<Vec<&'f Mutant>, String> {
    if names.is_empty() {
        return Ok(mutants.iter().filter(|mutant| mutant.report.is_none()).collect());
    }
    let find = |name: &&str| mutants.iter().find(|mutant| mutant.name == **name);
    names.iter().map(|name| find(name).ok_or_else(|| format!("there is no mutant {name}"))).collect()
}

fn run_tests(mutants: &[&Mutant]) -> Result<(), String> {
    if let Some(mutant) = mutants.iter().find(|mutant| mutant.report.is_some()) {
        return Err(format!("{} is a memory mutant: scripts/memcheck.sh checks that it is found", mutant.name));
    }
    let begun = Instant::now();
    let tree = Tree::copy(target().join("tree"))?;
    let integration = integration()?;

    let tests: BTreeSet<&Test> = mutants.iter().flat_map(|mutant| &mutant.tests).collect();
    let without = Programs::build(&tree, "none", &tests)?.results(&integration, &tests)?;
    for test in tests {
        if without.get(test) != Some(&Outcome::Passed) {
            let what = without.get(test).map_or_else(|| "has no result".into(), Outcome::to_string);
            return Err(format!("{test} does not pass without a mutant: {what}"));
        }
    }
    // While the tests of one mutant run, mostly waiting, the next mutant is built.
    let (send, built) = mpsc::sync_channel(0);
    let survived = thread::scope(|scope| {
        scope.spawn(|| {
            let send = send;
            mutants.iter().try_for_each(|mutant| send.send((*mutant, tree.build(mutant))))
        });
        let survive = built.iter().filter(|(mutant, programs)| !is_found(mutant, programs, &integration));
        survive.map(|(mutant, _)| mutant.name.as_str()).collect::<Vec<_>>()
    });
    let minutes = begun.elapsed().as_secs().div_ceil(60);
    if !survived.is_empty() {
        return Err(format!("{} of {} mutants survive: {}", survived.len(), mutants.len(), survived.join(" ")));
    }
    println!("{0} of {0} mutants found, in {minutes} min", mutants.len());
    Ok(())
}

/// Whether every test that the mutant names fails with it. Prints the result.
fn is_found(mutant: &Mutant, programs: &Result<Programs, String>, integration: &Path) -> bool {
    println!("{}: {}", mutant.name, mutant.what);
    let tests = mutant.tests.iter().collect();
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
    mutant.tests.iter().all(|test| matches!(results.get(test), Some(Outcome::Failed(_))))
}

impl Tree {
    fn plant(&self, mutant: &Mutant) -> Result<(), String> {
        let changed = mutant.changed(|file| fs::read_to_string(root().join(file)).ok())?;
        changed.iter().try_for_each(|(file, text)| self.put(file, text.as_bytes()))
    }

    /// Builds what the tests of a mutant need, with the mutant applied.
    fn build(&self, mutant: &Mutant) -> Result<Programs, String> {
        self.plant(mutant)?;
        let programs = Programs::build(self, &mutant.name, &mutant.tests.iter().collect());
        mutant.edits.iter().try_for_each(|edit| self.take(&edit.file))?;
        programs
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    /// The message.
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

/// Programs for some tests, built from the tree, in their own folder. The integration tests are not built there: they
/// load the module named by `LOCK_MODULE`.
struct Programs(PathBuf);

impl Drop for Programs {
    fn drop(&mut self) {
        // Anything that is left is overwritten next time.
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
            let messages = output_of(command.arg("--target-dir").arg(&to).current_dir(&tree.0))?;
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

/// The integration tests, built as `make test` builds them.
fn integration() -> Result<PathBuf, String> {
    executable(&output_of(cargo(&["test", "--no-run", "--test", "integration"]).current_dir(root()))?)
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).args(["--jobs", "2", "--message-format=json-render-diagnostics"]);
    command
}

/// The test binary that cargo reports.
fn executable(messages: &str) -> Result<PathBuf, String> {
    let path = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message.get("executable")?.as_str().map(PathBuf::from)
    };
    messages.lines().filter_map(path).next_back().ok_or_else(|| "cargo reports no test binary".into())
}

/// The harness's outcome for a test, with the first line of its message if it failed.
fn outcome(name: &str, text: &str) -> Option<Outcome> {
    match text.lines().find_map(|line| line.strip_prefix(&format!("test {name} ... ")))? {
        "ok" => Some(Outcome::Passed),
        "FAILED" => {
            let said = text.split_once(&format!("---- {name} stdout ----")).map_or("", |(_, said)| said);
            let mut lines = said.lines().skip_while(|line| !line.contains(" panicked at "));
            Some(Outcome::Failed(lines.nth(1).unwrap_or("no message").chars().take(120).collect()))
        }
        _ => None,
    }
}
