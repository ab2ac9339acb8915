//! The alerts of `packaging/grafana/alerts.yml` fire when they should, and only then, according to Prometheus' own
//! promtool. `docs/OPERATING.md` explains the same alerts, and their metrics exist.

use super::watching::{exported, metrics_in, sampled, server_with_percentiles};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use testkit::install;
use testkit::{project_file, skipped};

pub const ALERTS: &str = "packaging/grafana/alerts.yml";
const CASES: &str = "tests/fixtures/alerts.yml";

/// The text after `name` on each line that begins with it.
pub fn lines_of(text: &str, name: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.trim_start().strip_prefix(name)).map(str::to_string).collect()
}

pub fn promtool(program: &Path, args: &[&str]) -> Result<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(program).args(args).current_dir(root).output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() {
        Ok(said)
    } else {
        Err(said)
    }
}

#[test]
fn each_alert_fires_when_it_should_and_only_then() {
    let program = match install::promtool() {
        Ok(program) => program,
        Err(why) => return skipped("promtool test rules", &why.replace('\n', "; ")),
    };
    let checked = promtool(&program, &["check", "rules", ALERTS]).unwrap_or_else(|said| panic!("{said}"));
    let names = lines_of(&project_file(ALERTS), "- alert: ");
    assert!(checked.contains(&format!("{} rules found", names.len())), "{checked}");
    promtool(&program, &["test", "rules", CASES]).unwrap_or_else(|said| panic!("{said}"));
}

#[test]
fn each_alert_fires_on_one_server_beside_another() {
    let cases = project_file(CASES);
    for name in lines_of(&project_file(ALERTS), "- alert: ") {
        assert!(cases.contains(&format!("ALERTS{{alertname=\"{name}\", alertstate=\"firing\"")), "{name} has no case");
    }
    for case in cases.split("  - interval:").skip(1) {
        assert!(case.contains("good:6379"), "the case has no server on which nothing fires: {case}");
    }
}

#[test]
fn the_documentation_has_the_same_alerts() {
    let rules = project_file(ALERTS);
    let shipped: BTreeSet<_> = lines_of(&rules, "expr: ").into_iter().collect();
    assert_eq!(shipped.len(), lines_of(&rules, "- alert: ").len(), "each alert has its own expression");
    let document = project_file("docs/OPERATING.md");
    let section = document.split("## Alerts worth having").nth(1).unwrap().split("\n## ").next().unwrap();
    let explained: BTreeSet<_> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .map(|(expression, _)| expression.replace("v{", "redis_script_values{"))
        .collect();
    assert_eq!(explained, shipped);

    let (_server, mut conn) = server_with_percentiles();
    let there: BTreeSet<_> = exported(&mut conn).into_iter().map(|(name, _)| name).chain(sampled()).collect();
    let used: BTreeSet<_> = shipped.iter().flat_map(|expression| metrics_in(expression)).collect();
    assert!(used.is_subset(&there), "there is no {:?}", used.difference(&there));
}

#[test]
fn waiter_alerts_fire_at_four_fifths_of_the_limits() {
    let value = |key: &str| format!("redis_script_values{{key=\"{key}\"}}");
    for (limit, number) in [("lock_max_waiters", "lock_blocked"), ("lock_max_queued", "lock_queued")] {
        let expected = format!("{} > ignoring(key) 0.8 * {}", value(number), value(limit));
        assert!(lines_of(&project_file(ALERTS), "expr: ").contains(&expected), "{expected}");
    }
}

#[test]
fn the_runbook_has_exactly_one_row_per_alert() {
    let shipped: BTreeSet<_> = lines_of(&project_file(ALERTS), "- alert: ").into_iter().collect();
    let document = project_file("docs/OPERATING.md");
    let section = document.split("## Runbook").nth(1).expect("a runbook").split("\n## ").next().unwrap();
    let rows: Vec<Vec<&str>> = section
        .lines()
        .filter(|line| line.starts_with("| `Lock"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    for row in &rows {
        assert!(
            row.len() == 3 && row.iter().all(|cell| !cell.is_empty()),
            "symptom, what to look at, what to do: {row:?}"
        );
    }
    let explained: BTreeSet<_> = rows.iter().map(|row| row[0].trim_matches('`').to_string()).collect();
    assert_eq!(explained, shipped);
    assert_eq!(rows.len(), shipped.len(), "one row for each alert");
    for saying in ["my job does not start", "two ran at once", "it is slow"] {
        assert!(section.contains(&format!("\"{saying}\"")), "{saying}");
    }
}
