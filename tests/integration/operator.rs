//! What an operator uses: the settings and the files that store them, the slow log, latency, MONITOR, CLIENT LIST,
//! memory, the version, and the message from a server that is too old.
//!
//! `settings.rs` tests the effects of the settings; `operator/tools.rs` the server's tools; `operator/watching.rs` the
//! consumers of INFO lock; `operator/alerts.rs` the alerts; `operator/dashboard.rs` the dashboard;
//! `operator/prometheus.rs` both in a Prometheus that scrapes a server; `operator/packages.rs` what the page says about
//! applications with a package.

mod alerts;
mod dashboard;
mod packages;
mod prometheus;
mod tools;
pub mod watching;

use crate::pages::settings;
use std::fs;
use std::path::{Path, PathBuf};
use testkit::{module, project_file, temp_dir, until, Conn, Options, Reply, Server};

fn setting(conn: &mut Conn, name: &str) -> String {
    conn.execute(&["CONFIG", "GET", name]).field(name).text()
}

/// The values of all settings, in the order of docs/OPERATING.md.
fn all(conn: &mut Conn) -> Vec<String> {
    settings().iter().map(|[name, ..]| setting(conn, name)).collect()
}

/// A server where a module can have its own settings (7.0), and a connection to it; otherwise prints that `what` is
/// skipped.
fn with_settings(what: &str) -> Option<(Server, Conn)> {
    let (server, mut conn) = Server::connected();
    if conn.is_before_7() {
        eprintln!("skipped: {what}: this server has no module settings in CONFIG");
        return None;
    }
    Some((server, conn))
}

#[test]
fn config_set_accepts_exactly_the_bounds() {
    let Some((_server, mut conn)) = with_settings("CONFIG SET") else { return };
    for [name, default, least, most] in settings() {
        for value in [least, most, default] {
            conn.ok(&["CONFIG", "SET", name, value]);
            assert_eq!(setting(&mut conn, name), value);
        }
        let beyond = |value: &str, by: i64| (value.parse::<i64>().unwrap() + by).to_string();
        for wrong in [beyond(least, -1), beyond(most, 1)] {
            let reply = conn.execute(&["CONFIG", "SET", name, &wrong]);
            let text = reply.error();
            let says = [name, least, most].iter().all(|part| text.contains(part));
            assert!(text.starts_with("ERR ") && says, "{name} {wrong}: {text}");
        }
        for wrong in ["", "abc", "1.5", "1s", "1 2", "0x10", "99999999999999999999"] {
            let reply = conn.execute(&["CONFIG", "SET", name, wrong]);
            assert!(reply.error().contains(name), "{name} {wrong}: {reply:?}");
        }
        assert_eq!(setting(&mut conn, name), default);
    }
    assert!(conn.execute(&["CONFIG", "SET", "lock.nonsense", "1"]).error().contains("lock.nonsense"));
    // Two at once, one of them invalid: neither is set.
    assert!(matches!(conn.execute(&["CONFIG", "SET", "lock.margin-ms", "5", "lock.place-ms", "-1"]), Reply::Error(_)));
    assert_eq!(setting(&mut conn, "lock.margin-ms"), "1000");
    // And the same setting twice.
    let reply = conn.execute(&["CONFIG", "SET", "lock.margin-ms", "5", "lock.margin-ms", "6"]);
    assert!(reply.error().contains("lock.margin-ms"), "{reply:?}");
    assert_eq!(setting(&mut conn, "lock.margin-ms"), "1000");
}

#[test]
fn wrong_module_arguments_are_named_with_the_reason() {
    for (args, reason) in [
        (&["max-waiters", "-1"][..], "'max-waiters' is not a whole number between 0 and 1000000"),
        (&["max-waiters", "1000001"], "'max-waiters' is not a whole number between 0 and 1000000"),
        (&["place-ms", "3600001"], "'place-ms' is not a whole number between 0 and 3600000"),
        (&["place-ms", ""], "'place-ms' is not a whole number between 0 and 3600000"),
        (&["margin-ms", "-1"], "'margin-ms' is not a whole number between 0 and 3600000"),
        (&["margin-ms", "1.5"], "'margin-ms' is not a whole number between 0 and 3600000"),
        (&["margin-ms", "99999999999999999999"], "'margin-ms' is not a whole number between 0 and 3600000"),
        (&["retention-ms", "-2"], "'retention-ms' is not a whole number between -1 and 315360000000"),
        (&["retention-ms", "x", "margin-ms", "5"], "'retention-ms' is not a whole number between -1 and 315360000000"),
        (&["margin-ms", "5", "retention-ms"], "'retention-ms' has no value"),
        (&["margin-ms", "+5"], "'margin-ms' is not a whole number between 0 and 3600000"),
        (&["place-ms"], "'place-ms' has no value"),
        (&["margin-ms", "5", "place-ms", "1", "Margin-MS", "5"], "'Margin-MS' is given twice"),
        (&["failover-grace-ms", "86400001"], "'failover-grace-ms' is not a whole number between 0 and 86400000"),
        (&["lock.margin-ms", "5"], "'lock.margin-ms' is unknown, there are: margin-ms, retention-ms, max-waiters, "),
    ] {
        let Err(log) = Server::with().module_args(args).try_start() else { panic!("a server started with {args:?}") };
        let said: Vec<_> = log.lines().filter(|line| line.contains("the module is not loaded")).collect();
        assert!(said.len() == 1 && said[0].contains(reason), "{args:?}: {reason}:\n{log}");
    }
}

#[test]
fn config_shows_the_module_argument_of_every_setting() {
    if with_settings("module arguments in CONFIG").is_none() {
        return;
    }
    let args = [
        ["failover-grace-ms", "9"],
        ["DEADLOCK-edges", "8"],
        ["Result-MAX", "7"],
        ["claim-ms", "6"],
        ["Max-Queued", "5"],
        ["place-ms", "4"],
        ["MAX-WAITERS", "3"],
        ["retention-ms", "2"],
        ["margin-ms", "1"],
    ];
    let args = args.concat();
    let server = Server::with().module_args(&args).start();
    assert_eq!(all(&mut server.conn()), ["1", "2", "3", "4", "5", "6", "7", "8", "9"]);
}

/// A configuration file in its own directory.
fn with_file(text: &str) -> (PathBuf, PathBuf) {
    let dir = temp_dir();
    let file = dir.join("server.conf");
    fs::write(&file, text).unwrap();
    (dir, file)
}

#[test]
fn config_rewrite_keeps_what_was_set_for_the_next_start() {
    if with_settings("CONFIG REWRITE").is_none() {
        return;
    }
    let (dir, file) = with_file("");
    let options = || Options::default().config(&file).dir(&dir);
    let values = ["7", "-1", "8", "9", "10", "11", "12", "13", "14"];
    {
        let server = options().module_args(&["margin-ms", "7", "place-ms", "100"]).start();
        let mut conn = server.conn();
        for ([name, ..], value) in settings().iter().zip(values) {
            conn.ok(&["CONFIG", "SET", name, value]);
        }
        conn.ok(&["CONFIG", "REWRITE"]);
    }
    let text = fs::read_to_string(&file).unwrap();
    let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(lines("loadmodule "), 1, "{text}");
    // A setting equal to the module argument is not written.
    assert_eq!((lines("lock."), lines("lock.margin-ms")), (8, 0), "{text}");
    {
        let server = options().without_module().start();
        let mut conn = server.conn();
        assert_eq!(all(&mut conn), values);
        // Rewritten without a change, the file stays the same.
        conn.ok(&["CONFIG", "REWRITE"]);
        let again = fs::read_to_string(&file).unwrap();
        let ours = |text: &str| -> Vec<String> {
            text.lines().filter(|line| line.starts_with("lock") || line.starts_with("loadm")).map(Into::into).collect()
        };
        assert_eq!(ours(&again), ours(&text));
    }
    let _ = fs::remove_dir_all(dir);
}

#[test]
fn a_wrong_configuration_line_is_named_at_start() {
    if with_settings("lock.* in the configuration file").is_none() {
        return;
    }
    for (line, named) in [
        ("lock.margin-ms -1", "lock.margin-ms"),
        ("lock.place-ms soon", "lock.place-ms"),
        // 7.0 does not name it.
        ("lock.nonsense 5", "onfiguration"),
    ] {
        let (dir, file) = with_file(&format!("{line}\n"));
        let Err(log) = Options::default().config(&file).dir(&dir).try_start() else {
            panic!("a server started with {line}");
        };
        assert!(log.contains(named), "{line}:\n{log}");
        let _ = fs::remove_dir_all(dir);
    }
}

#[test]
fn redis_conf_explains_each_setting() {
    let text = project_file("redis.conf");
    for [name, default, ..] in settings() {
        let at = text.lines().position(|line| line == format!("{name} {default}"));
        let at = at.unwrap_or_else(|| panic!("redis.conf has no line: {name} {default}"));
        let before = text.lines().nth(at - 1).unwrap();
        assert!(before.starts_with("# "), "{name} is not explained: {before}");
    }
}

#[test]
fn the_projects_configuration_file_works() {
    if with_settings("redis.conf").is_none() {
        return;
    }
    let (dir, file) = with_file(&project_file("redis.conf"));
    fs::create_dir(dir.join(".data")).unwrap();
    {
        let server = Options::default().config(&file).dir(&dir.join(".data")).start();
        let mut conn = server.conn();
        for line in project_file("redis.conf").lines().filter(|line| line.starts_with("lock.")) {
            let (name, value) = line.split_once(' ').unwrap();
            assert_eq!(setting(&mut conn, name), value);
        }
        assert_eq!(setting(&mut conn, "appendonly"), "yes");
        assert_eq!(setting(&mut conn, "maxmemory-policy"), "noeviction");
        conn.int(&["LOCK.ACQUIRE", "door", "EX", "5"]);
        let warnings: Vec<_> = server.log().lines().filter(|l| l.contains("<lock>")).map(String::from).collect();
        assert_eq!(warnings.len(), 1, "the module only reports that it is loaded: {warnings:?}");
    }
    let _ = fs::remove_dir_all(dir);
}

#[test]
fn an_old_server_fails_to_load_with_one_line() {
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join(".servers/redis-6.0.16/server");
    if !old.exists() {
        eprintln!("skipped: no server that is too old was found; `make servers` fetches one");
        return;
    }
    let Err(log) = Options::default().binary(old).try_start() else { panic!("a server that is too old started") };
    let said: Vec<_> = log.lines().filter(|line| line.contains("<lock>") || line.contains("<module>")).collect();
    assert_eq!(said.len(), 1, "{log}");
    assert!(said[0].contains("the module is not loaded: it needs Redis 6.2 or later"), "{log}");
}

#[test]
fn module_list_and_the_log_show_the_version() {
    let (server, mut conn) = Server::connected();
    let list = conn.execute(&["MODULE", "LIST"]);
    let ours = list.list().iter().find(|module| module.field("name").text() == "lock").expect("it is loaded");
    // Without -rc.1, which a number cannot show.
    let numbers = env!("CARGO_PKG_VERSION").split(['.', '-']).take(3).map(|part| part.parse::<i64>().unwrap());
    assert_eq!(ours.field("ver").int(), numbers.fold(0, |all, part| all * 100 + part));
    let line = format!("<lock> lock {} loaded", env!("CARGO_PKG_VERSION"));
    assert!(server.log().contains(&line), "{}", server.log_tail(10));
    let in_info = format!("module:name=lock,ver={},", ours.field("ver").int());
    assert!(conn.text(&["INFO", "modules"]).contains(&in_info));
    if let Reply::List(pairs) = ours {
        if let Some(path) = pairs.chunks(2).find(|pair| pair[0].text() == "path") {
            assert_eq!(path[1].text(), module().to_str().unwrap());
        }
    }
}

#[test]
fn the_module_unloads_and_loads_without_waiters() {
    let (_server, mut conn) = Server::connected();
    conn.int(&["LOCK.ACQUIRE", "k", "EX", "60"]);
    let value = conn.text(&["GET", "k"]);
    conn.ok(&["MODULE", "UNLOAD", "lock"]);
    assert!(conn.text(&["INFO", "everything"]).find("lock_grants").is_none());
    assert_eq!(conn.text(&["GET", "k"]), value, "locks are ordinary keys");
    conn.ok(&["MODULE", "LOAD", module().to_str().unwrap()]);
    assert_eq!(crate::metrics::number(&mut conn, "grants"), 0);
    until("it works again", || (conn.state("k") == "held").then_some(()));
}
