//! Paths in backticks in the documents exist: each names a test, a module of tests (`stall::`) or a method
//! (`Value::read`). The source files that the documents name (`lock/grace.rs`) exist too. Each rule for client
//! libraries is named by a scenario, or by a row that says why none can show it.

use std::fs;
use std::path::{Path, PathBuf};

const DOCUMENTS: [&str; 3] = ["docs/TESTING.md", "docs/THREAT_MODEL.md", "docs/TRACK_RECORD.md"];
const SOURCES: [&str; 4] = ["tests/integration", "core/tests/model", "core/src", "src"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The words with `::` in backticks in a text, outside fenced blocks.
fn paths(text: &str) -> Vec<&str> {
    let mut is_fenced = false;
    let mut found = Vec::new();
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        if !is_fence && !is_fenced {
            let code = line.split('`').skip(1).step_by(2);
            found.extend(code.flat_map(str::split_whitespace).filter(|word| word.contains("::")));
        }
    }
    found
}

/// The source files in backticks in a text.
fn source_files(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).filter(|code| {
        Path::new(code).extension().is_some_and(|kind| kind == "rs")
            && code.chars().all(|at| at.is_ascii_lowercase() || at.is_ascii_digit() || "_./-".contains(at))
    })
}

/// The file of a test module, which can be one `tests` module within another.
fn module(segments: &[&str]) -> Option<String> {
    let segments = segments.strip_suffix(&["tests"]).unwrap_or(segments);
    SOURCES.iter().find_map(|source| fs::read_to_string(root().join(source).join(segments.join("/") + ".rs")).ok())
}

fn has_function(source: &str, name: &str) -> bool {
    source.contains(&format!("fn {name}("))
}

pub fn has_test(source: &str, name: &str) -> bool {
    let is_fn = format!("fn {name}()");
    source.split("#[test]").skip(1).any(|test| test.trim_start().starts_with(&is_fn))
}

pub fn sources_below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources_below(&path) } else { vec![path] }).collect()
}

fn is_there(path: &str) -> bool {
    let segments: Vec<&str> = path.split("::").collect();
    let (last, before) = segments.split_last().unwrap();
    if last.is_empty() {
        return module(before).is_some();
    }
    if before[0].starts_with(char::is_uppercase) {
        let names_it = |line: &str| line.split(|at: char| !at.is_alphanumeric()).any(|word| word == before[0]);
        let is_its = |source: &str| source.lines().any(|line| line.starts_with("impl") && names_it(line));
        let files = ["src", "core/src"].map(|folder| sources_below(&root().join(folder))).into_iter().flatten();
        return files
            .map(|file| fs::read_to_string(file).unwrap())
            .any(|source| is_its(&source) && has_function(&source, last));
    }
    module(before).is_some_and(|source| has_test(&source, last))
}

#[test]
fn each_test_named_in_the_documents_exists() {
    let mut missing = Vec::new();
    for document in DOCUMENTS {
        let text = fs::read_to_string(root().join(document)).unwrap();
        let paths = paths(&text);
        assert!(!paths.is_empty(), "{document} names no test");
        missing.extend(paths.into_iter().filter(|path| !is_there(path)).map(|path| format!("{document}: {path}")));
    }
    assert!(missing.is_empty(), "not there:\n{}", missing.join("\n"));
}

#[test]
fn each_source_file_named_in_the_documents_exists() {
    let folders = ["core", "src", "tests", "benches", "examples", "fuzz", "tools", "xtask", "clients/rust/src"];
    let files: Vec<PathBuf> = folders.into_iter().flat_map(|folder| sources_below(&root().join(folder))).collect();
    let mut missing = Vec::new();
    for document in ["CONTRIBUTING.md", "docs/DESIGN.md"].into_iter().chain(DOCUMENTS) {
        let text = fs::read_to_string(root().join(document)).unwrap();
        let is_missing = |name: &&str| !files.iter().any(|file| file.ends_with(name));
        missing.extend(source_files(&text).filter(is_missing).map(|name| format!("{document}: {name}")));
    }
    assert!(missing.is_empty(), "not there:\n{}", missing.join("\n"));
}

#[test]
fn a_missing_path_is_found() {
    for path in [
        "stall::",
        "lock::grace::settings::tests::settings_that_cannot_work_are_found",
        "Value::read",
        "documents::a_missing_path_is_found",
    ] {
        assert!(is_there(path), "{path}");
    }
    for path in ["stal::", "Value::reed", "documents::what_is_there_is_found", "stall::acquire", "documents::is_there"]
    {
        assert!(!is_there(path), "{path}");
    }
    assert_eq!(paths("a `b::c`\n```\n`d::e`\n```\n| `f` | `cargo test g::h x` |"), ["b::c", "g::h"]);
}

/// The names of rules in a text, like A1; `A1 to A3` are three.
fn rules(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split(|at: char| !at.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let number = |word: &str| word.get(1..).and_then(|digits| digits.parse::<u32>().ok());
    let is_rule = |word: &&str| word.starts_with(|first: char| first.is_ascii_uppercase()) && number(word).is_some();
    let mut found: Vec<String> = words.iter().copied().filter(is_rule).map(String::from).collect();
    for window in words.windows(3).filter(|window| window[1] == "to" && is_rule(&window[0])) {
        if let (Some(from), Some(to)) = (number(window[0]), number(window[2])) {
            found.extend((from..=to).map(|at| format!("{}{at}", &window[0][..1])));
        }
    }
    found
}

#[test]
fn each_client_rule_has_a_scenario_or_a_reason() {
    let spec = include_str!("../../docs/CLIENT_SPEC.md");
    let all: Vec<String> =
        spec.lines().filter_map(|line| line.strip_prefix("- **")?.split("**").next()).map(String::from).collect();
    let reasons = spec.split("| rule | why no scenario |").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap();
    let excused: Vec<String> =
        reasons.lines().filter_map(|row| row.strip_prefix("| ")?.split(" | ").next()).flat_map(rules).collect();
    let mut named = Vec::new();
    for file in fs::read_dir(root().join("clients/suite/scenarios")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "py") {
            let text = fs::read_to_string(path).unwrap();
            named.extend(text.split("rules=\"").skip(1).filter_map(|rest| rest.split('"').next()).flat_map(rules));
        }
    }
    assert!(all.len() > 60, "the page has {} rules", all.len());
    for rule in &all {
        assert!(named.contains(rule) != excused.contains(rule), "{rule} has both a scenario and a reason, or neither");
    }
    for rule in named.iter().chain(&excused) {
        assert!(all.contains(rule), "no rule {rule} on the page");
    }
}
