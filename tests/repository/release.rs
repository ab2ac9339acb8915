//! All files have the same version and address, and `scripts/release.py` finds one that differs. The lists of what the
//! packages bring along are right, and an advisory fails.

use super::{read, root};
use std::process::Command;

fn succeeds(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_version_is_the_same_everywhere() {
    succeeds("make", &["--silent", "release-check"]);
}

/// `tests/repository/test_release.py`: one process for a hundred copies.
#[test]
fn a_version_that_differs_in_one_place_is_refused() {
    succeeds("python3", &["tests/repository/test_release.py"]);
}

/// `tests/repository/test_advisories.py`, with fake tools and a fake database.
#[test]
fn an_advisory_in_any_language_fails() {
    succeeds("python3", &["tests/repository/test_advisories.py"]);
}

#[test]
fn each_part_of_a_release_that_the_workflow_builds_exists() {
    let (workflow, script) = (read(".github/workflows/release.yml"), read("scripts/release-artifacts.sh"));
    let parts = workflow.split("PARTS=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(parts.split(' ').count() >= 7, "{parts}");
    for part in parts.split(' ') {
        assert!(script.contains(&format!("\nbuild_{part}() {{\n")), "{part}");
    }
}
