//! The settings: their defaults, how they are given, what they change, and which values are refused.

use crate::support::{expire_at_ms, module, server_time_us, timestamp_us, Conn, Options, Reply, Server};

/// The settings with their names in CONFIG, their argument names and their defaults.
const SETTINGS: [(&str, &str, &str); 2] =
    [("lock.margin-ms", "margin-ms", "1000"), ("lock.retention-ms", "retention-ms", "60000")];

/// Whether modules cannot have settings of their own on this server: before 7.0.
fn has_no_module_settings(conn: &mut Conn) -> bool {
    conn.text(&["INFO", "server"]).contains("redis_version:6.")
}

fn setting(conn: &mut Conn, name: &str) -> String {
    conn.call(&["CONFIG", "GET", name]).list()[1].text()
}

/// Grants a new lock for 30 s and asserts that what is in the key has this margin and retention.
fn assert_in_force(conn: &mut Conn, margin_ms: i64, retention_ms: i64) {
    conn.call(&["DEL", "probe"]);
    let before = server_time_us(conn);
    conn.int(&["LOCK.ACQUIRE", "probe", "EX", "30"]);
    let after = server_time_us(conn);
    let timestamp = timestamp_us(&conn.text(&["GET", "probe"]));
    let granted_at = timestamp - (30_000 + margin_ms) * 1000;
    assert!((before..=after).contains(&granted_at), "{before} <= {granted_at} <= {after}, margin {margin_ms}");
    let expiry = if retention_ms == -1 { -1 } else { (timestamp + 999).div_euclid(1000) + retention_ms };
    assert_eq!(expire_at_ms(conn, "probe"), expiry, "retention {retention_ms}");
}

#[test]
fn the_defaults_are_a_second_of_margin_and_a_minute_of_retention() {
    let server = Server::start();
    let mut conn = server.conn();
    assert_in_force(&mut conn, 1000, 60_000);
    if has_no_module_settings(&mut conn) {
        return;
    }
    for (name, _, default) in SETTINGS {
        assert_eq!(setting(&mut conn, name), default);
    }
}

#[test]
fn module_arguments_set_them_in_any_order() {
    let given: [(&[&str], (i64, i64)); 6] = [
        (&["margin-ms", "0"], (0, 60_000)),
        (&["retention-ms", "0"], (1000, 0)),
        (&["retention-ms", "-1"], (1000, -1)),
        (&["margin-ms", "2500", "retention-ms", "300"], (2500, 300)),
        (&["retention-ms", "300", "margin-ms", "2500"], (2500, 300)),
        (&["RETENTION-MS", "5", "Margin-Ms", "7"], (7, 5)),
    ];
    for (args, expected) in given {
        let server = Server::with().module_args(args).start();
        let mut conn = server.conn();
        assert_in_force(&mut conn, expected.0, expected.1);
        if !has_no_module_settings(&mut conn) {
            assert_eq!(setting(&mut conn, "lock.margin-ms"), expected.0.to_string(), "{args:?}");
            assert_eq!(setting(&mut conn, "lock.retention-ms"), expected.1.to_string(), "{args:?}");
        }
    }
}

#[test]
fn with_wrong_module_arguments_the_server_does_not_start_and_says_which() {
    let wrong: [(&[&str], &str); 9] = [
        (&["margin-ms", "abc"], "margin-ms"),
        (&["margin-ms", "-1"], "margin-ms"),
        (&["margin-ms", "1.5"], "margin-ms"),
        (&["margin-ms", "99999999999999999999"], "margin-ms"),
        (&["retention-ms", "-2"], "retention-ms"),
        (&["retention-ms", "x", "margin-ms", "5"], "retention-ms"),
        (&["margin-ms", "5", "retention-ms"], "retention-ms"),
        (&["margin-ms"], "margin-ms"),
        (&["nonsense-ms", "5"], "nonsense-ms"),
    ];
    for (args, named) in wrong {
        let Err(log) = Server::with().module_args(args).try_start() else {
            panic!("a server started with {args:?}");
        };
        let said = log.lines().any(|line| line.contains("<lock>") && line.contains(named));
        assert!(said, "{args:?}: no line of the module names {named}:\n{log}");
    }
}

#[test]
fn config_set_changes_the_next_grants_and_no_older_one() {
    let server = Server::start();
    let mut conn = server.conn();
    if has_no_module_settings(&mut conn) {
        return;
    }
    conn.int(&["LOCK.ACQUIRE", "older", "EX", "30"]);
    let older = (conn.text(&["GET", "older"]), expire_at_ms(&mut conn, "older"));
    for (margin_ms, retention_ms) in [(0, 60_000), (250, 0), (5000, -1), (1000, 1)] {
        conn.ok(&["CONFIG", "SET", "lock.margin-ms", &margin_ms.to_string()]);
        conn.ok(&["CONFIG", "SET", "lock.retention-ms", &retention_ms.to_string()]);
        assert_eq!(older, (conn.text(&["GET", "older"]), expire_at_ms(&mut conn, "older")));
        assert_eq!(setting(&mut conn, "lock.margin-ms"), margin_ms.to_string());
        assert_eq!(setting(&mut conn, "lock.retention-ms"), retention_ms.to_string());
        assert_in_force(&mut conn, margin_ms, retention_ms);
    }
}

#[test]
fn config_set_refuses_wrong_values_and_keeps_the_old_ones() {
    let server = Server::start();
    let mut conn = server.conn();
    if has_no_module_settings(&mut conn) {
        return;
    }
    for (name, _, default) in SETTINGS {
        let below = if name == "lock.margin-ms" { "-1" } else { "-2" };
        for wrong in ["abc", "", "1.5", "1s", below, "99999999999999999999"] {
            let reply = conn.call(&["CONFIG", "SET", name, wrong]);
            assert!(reply.error().starts_with("ERR "), "{name} {wrong}: {reply:?}");
            assert_eq!(setting(&mut conn, name), default, "{name} {wrong}");
        }
    }
    assert_in_force(&mut conn, 1000, 60_000);
}

#[test]
fn the_configuration_file_of_the_server_sets_them() {
    let server = Server::start();
    if has_no_module_settings(&mut server.conn()) {
        return;
    }
    let server = Server::with().args(&["--lock.margin-ms", "7", "--lock.retention-ms", "9"]).start();
    assert_in_force(&mut server.conn(), 7, 9);
}

#[test]
fn a_module_loaded_while_running_takes_its_settings() {
    let server = Options::default().without_module().start();
    let mut conn = server.conn();
    if has_no_module_settings(&mut conn) {
        return;
    }
    let path = module().to_str().unwrap();
    let reply = conn.call(&["MODULE", "LOAD", path, "margin-ms", "-5"]);
    assert!(matches!(reply, Reply::Error(_)), "{reply:?}");
    assert!(conn.call(&["LOCK.INFO", "a"]).error().starts_with("ERR unknown command"));

    conn.ok(&["MODULE", "LOAD", path, "margin-ms", "11"]);
    assert_in_force(&mut conn, 11, 60_000);
    conn.ok(&["MODULE", "UNLOAD", "lock"]);
    conn.ok(&["MODULE", "LOADEX", path, "CONFIG", "lock.retention-ms", "13", "ARGS", "margin-ms", "12"]);
    assert_in_force(&mut conn, 12, 13);
}

#[test]
fn a_module_that_is_unloaded_leaves_no_memory() {
    let server = Options::default().without_module().start();
    let mut conn = server.conn();
    let path = module().to_str().unwrap();
    let mut used_after = |cycles: u32| {
        for _ in 0..cycles {
            conn.ok(&["MODULE", "LOAD", path]);
            let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]).to_string();
            assert_eq!(conn.int(&["LOCK.RELEASE", "k", &token]), 1);
            conn.ok(&["MODULE", "UNLOAD", "lock"]);
        }
        let memory = conn.text(&["INFO", "memory"]);
        let used = memory.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
        used.trim().parse::<i64>().unwrap()
    };
    let before = used_after(3);
    let left = used_after(20) - before;
    assert!(left < 20 * 8_192, "{left} bytes stay of 20 times");
}
