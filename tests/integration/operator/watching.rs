//! `docs/OPERATING.md` and `packaging/grafana/` describe INFO lock as the server reports it.

use crate::metadata::has_category;
use redis_lock_core::engine::waits::BOUNDS_MS;
use serde_json::Value;
use std::collections::BTreeSet;
use testkit::{project_file, skipped, Conn, Reply, Server};

/// Every word of a text that begins with `lock_`, like a metric.
pub fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && !['_', '.'].contains(&c));
    words.filter(|word| word.starts_with("lock_")).map(|word| word.trim_end_matches('.').to_string()).collect()
}

/// A server with a value in every field of INFO lock.
pub fn server_with_percentiles() -> (Server, Conn) {
    let (server, mut conn) = Server::connected();
    let token = conn.int(&["LOCK.ACQUIRE", "k", "EX", "60"]).to_string();
    let mut waiter = server.waiter(&["LOCK.ACQUIRE", "k", "EX", "60", "WAIT", "60000"]);
    conn.int(&["LOCK.RELEASE", "k", &token]);
    waiter.read().int();
    (server, conn)
}

fn fields(conn: &mut Conn) -> BTreeSet<String> {
    let text = conn.text(&["INFO", "lock"]);
    text.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.to_string()).collect()
}

/// A metric's name. A histogram bucket's name ends before the bound, because an expression names all buckets at once.
fn pattern(name: &str) -> String {
    name.split_once("_le_").map_or(name.to_string(), |(histogram, _)| format!("{histogram}_le_"))
}

/// The names and values that the exporter gets from the script.
pub fn exported(conn: &mut Conn) -> Vec<(String, String)> {
    let reply = conn.execute(&["EVAL", &project_file("packaging/grafana/redis_exporter.lua"), "0"]);
    reply.list().chunks(2).map(|pair| (pair[0].text(), pair[1].text())).collect()
}

/// The metrics of `lock-top --metrics`. The tests of lock-top compare this table with what it prints.
pub fn sampled() -> BTreeSet<String> {
    let page = project_file("docs/LOCK_TOP.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    rows.map(|row| row.0.to_string()).filter(|name| name.starts_with("lock_")).collect()
}

#[test]
fn the_exporter_script_returns_numbers() {
    let (_server, mut conn) = server_with_percentiles();
    let exported = exported(&mut conn);
    for (name, value) in &exported {
        assert!(value.parse::<u64>().is_ok(), "{name}: {value}");
    }
    let names: BTreeSet<_> = exported.iter().map(|(name, _)| name.clone()).collect();
    let mut expected = BTreeSet::new();
    for field in fields(&mut conn) {
        if field.ends_with("_percentiles_usec") {
            expected.extend(["p50", "p99", "p99.9"].map(|percent| format!("{field}_{percent}")));
        } else if field.ends_with("_histogram_ms") {
            expected.extend(["le_inf", "sum"].map(|part| format!("{field}_{part}")));
            expected.extend(BOUNDS_MS.map(|bound| format!("{field}_le_{bound}")));
        } else {
            expected.insert(field);
        }
    }
    assert_eq!(names, expected);
    let value = |name: &str| exported.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
    assert_eq!((value("lock_grants"), value("lock_hand_offs")), (Some("2"), Some("1")));
}

/// All values of `name` in a JSON text, at any depth.
pub fn values_of(json: &Value, name: &str) -> Vec<String> {
    let inner = |value| values_of(value, name);
    match json {
        Value::Array(items) => items.iter().flat_map(inner).collect(),
        Value::Object(fields) => {
            let own = fields.get(name).filter(|value| !value.is_object()).map(ToString::to_string);
            own.into_iter().chain(fields.values().flat_map(inner)).collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn the_dashboard_shows_exactly_the_metrics() {
    let (_server, mut conn) = server_with_percentiles();
    let json: Value = serde_json::from_str(&project_file("packaging/grafana/dashboard.json")).expect("JSON");
    let shown: BTreeSet<_> = values_of(&json, "expr").iter().flat_map(|text| metrics_in(text)).collect();
    let there: BTreeSet<_> = exported(&mut conn).into_iter().map(|(name, _)| pattern(&name)).collect();
    let shown: BTreeSet<_> = shown.iter().map(|name| pattern(name)).collect();
    assert_eq!(shown, there);
    let panels = values_of(&json, "id");
    assert!(panels.len() >= 10);
    assert_eq!(panels.iter().collect::<BTreeSet<_>>().len(), panels.len(), "each panel has its own number");
}

#[test]
fn the_documentation_explains_every_field_and_no_other() {
    let (_server, mut conn) = server_with_percentiles();
    let text = project_file("docs/OPERATING.md");
    let there = fields(&mut conn);
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let explained = rows.map(|row| row.0.to_string()).filter(|name| name.starts_with("lock_") && !name.contains(' '));
    assert_eq!(explained.collect::<BTreeSet<_>>(), there);
    let mut exported: BTreeSet<_> = exported(&mut conn).into_iter().map(|(name, _)| name).collect();
    exported.extend(sampled());
    for name in metrics_in(&text) {
        let is_pattern = || exported.iter().any(|other| other.starts_with(&name) && name.ends_with("_le_"));
        assert!(there.contains(&name) || exported.contains(&name) || is_pattern(), "there is no {name}");
    }
}

/// The words of the line in docs/OPERATING.md that creates a user, adapted to servers without categories.
pub fn page_user(name: &str) -> Vec<String> {
    let text = project_file("docs/OPERATING.md");
    let begin = format!("ACL SETUSER {name} ");
    let line = text.lines().find(|line| line.starts_with(&begin) && !line.contains("@lock")).expect("the user");
    line.split(' ').map(str::to_string).collect()
}

/// The users on the page that this server can create.
fn users(server: &Server) {
    let mut conn = server.conn();
    let text = project_file("docs/OPERATING.md");
    let users: Vec<_> = text.lines().filter(|line| line.starts_with("ACL SETUSER ")).collect();
    assert!(users.len() >= 5);
    for user in users {
        if !user.contains("@lock") || has_category(&mut conn, user) {
            conn.ok(&user.split(' ').collect::<Vec<_>>());
        }
    }
}

#[test]
fn documented_users_work_and_the_exporter_reads() {
    let server = Server::start();
    if server.conn().is_before_7() {
        return skipped("the users in the documentation", "their permissions need 7.0");
    }
    users(&server);
    let mut exporter = server.conn();
    exporter.ok(&["AUTH", "exporter", "secret"]);
    assert!(!exported(&mut exporter).is_empty());
    assert!(exporter.execute(&["LOCK.ACQUIRE", "k", "EX", "5"]).error().starts_with("NOPERM "));
}

/// The commands in backticks in a part of the runbook, with real values for K, T and C.
fn commands(text: &str, token: &str) -> Vec<Vec<String>> {
    let is_command = |text: &&str| {
        let name = text.split(' ').next().unwrap();
        name.len() > 3
            && name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '.')
            && text.contains([' ', '.'])
    };
    let word = |word: &str| match word {
        "T" => token.to_string(),
        "C" | "id" => "4711".to_string(),
        // The page leaves the number to the reader.
        other => other.to_string(),
    };
    text.split('`').skip(1).step_by(2).filter(is_command).map(|text| text.split(' ').map(word).collect()).collect()
}

#[test]
fn watcher_and_janitor_may_follow_the_runbook() {
    let server = Server::start();
    let mut conn = server.conn();
    if conn.is_before_7() {
        return skipped("the runbook as the watcher", "its permissions need 7.0");
    }
    users(&server);
    let token = conn.int(&["LOCK.ACQUIRE", "K", "EX", "60"]).to_string();
    let text = project_file("docs/OPERATING.md");
    let runbook = text.split("## Runbook").nth(1).unwrap();
    let (tables, steps) = runbook.split_once("### Take a lock").unwrap();
    let steps = steps.split("### ").next().unwrap();
    let rows = tables.lines().filter(|line| line.starts_with("| ")).filter_map(|line| line.split(" | ").nth(1));
    let looks: Vec<_> = rows.flat_map(|look| commands(look, &token)).collect();
    let steps = commands(steps, &token);
    assert!(looks.len() > 20 && steps.len() >= 4, "{looks:?} {steps:?}");
    // Both the watcher and the janitor begin as on the page.
    let begin = commands(tables.split("What users report").next().unwrap(), &token);
    assert!(begin.len() >= 3, "{begin:?}");
    let (looks, steps) = ([&begin[..], &looks].concat(), [&begin[..], &steps].concat());
    for (user, commands) in [("watcher", &looks), ("janitor", &steps)] {
        let mut person = server.conn();
        person.ok(&["AUTH", user, "secret"]);
        for command in commands {
            let mut args: Vec<&str> = command.iter().map(String::as_str).collect();
            if matches!(args[..], ["CLIENT", "KILL", "ID"]) {
                args.push("4711");
            }
            let reply = person.execute(&args);
            assert!(
                !matches!(&reply, Reply::Error(text) if !text.starts_with("ERR No such client")),
                "{user} {args:?}: {reply:?}"
            );
        }
    }
    // This user only inspects: CONFIG GET shows passwords.
    let mut watcher = server.conn();
    watcher.ok(&["AUTH", "watcher", "secret"]);
    for command in
        [&["LOCK.RELEASE", "K", &token][..], &["DEL", "K"], &["CLIENT", "KILL", "ID", "1"], &["CONFIG", "GET", "*"]]
    {
        assert!(watcher.execute(command).error().starts_with("NOPERM "), "{command:?}");
    }
}
