//! Paths in backticks in the documents exist: each names a test, a module of tests (`stall::`) or a method
//! (`Value::read`). The source files that the documents name (`lock/grace.rs`) exist too.

use std::fs;
use std::path::{Path, PathBuf};

const DOCUMENTS: [&str; 2] = ["docs/TESTING.md", "docs/TRACK_RECORD.md"];
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
    for document in ["CONTRIBUTING.md", "docs/DESIGN.md", "docs/TESTING.md", "docs/TRACK_RECORD.md"] {
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
