//! The settings: their defaults, how they are given, and their effects. `operator.rs` tests which values are refused.

use testkit::{expire_at_ms, module, server_time_us, timestamp_us, Conn, Options, Reply, Server};

/// The settings with their names in CONFIG, their argument names and their defaults.
const SETTINGS: [(&str, &str, &str); 2] =
    [("lock.margin-ms", "margin-ms", "1000"), ("lock.retention-ms", "retention-ms", "60000")];

fn setting(conn: &mut Conn, name: &str) -> String {
    conn.execute(&["CONFIG", "GET", name]).list()[1].text()
}

/// Grants a new lock for 30 s and asserts that the key has this margin and retention.
fn assert_in_force(conn: &mut Conn, margin_ms: i64, retention_ms: i64) {
    conn.execute(&["DEL", "k"]);
    let before = server_time_us(conn);
    conn.int(&["LOCK.ACQUIRE", "k", "EX", "30"]);
    let after = server_time_us(conn);
    let timestamp = timestamp_us(&conn.text(&["GET", "k"]));
    let granted_at = timestamp - (30_000 + margin_ms) * 1000;
    assert!((before..=after).contains(&granted_at), "{before} <= {granted_at} <= {after}, margin {margin_ms}");
    let expiry = if retention_ms == -1 { -1 } else { (timestamp + 999).div_euclid(1000) + retention_ms };
    assert_eq!(expire_at_ms(conn, "k"), expiry, "retention {retention_ms}");
}

#[test]
fn the_default_margin_and_retention_apply() {
    let (_server, mut conn) = Server::connected();
    assert_in_force(&mut conn, 1000, 60_000);
    if conn.is_before_7() {
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
        let (_server, mut conn) = Server::with().module_args(args).connected();
        assert_in_force(&mut conn, expected.0, expected.1);
        if !conn.is_before_7() {
            assert_eq!(setting(&mut conn, "lock.margin-ms"), expected.0.to_string(), "{args:?}");
            assert_eq!(setting(&mut conn, "lock.retention-ms"), expected.1.to_string(), "{args:?}");
        }
    }
}

#[test]
fn config_set_changes_only_later_grants() {
    let (_server, mut conn) = Server::connected();
    if conn.is_before_7() {
        return;
    }
    conn.int(&["LOCK.ACQUIRE", "older", "EX", "30"]);
    let older = (conn.text(&["GET", "older"]), expire_at_ms(&mut conn, "older"));
    for (margin_ms, retention_ms) in [(0, 60_000), (1, 0), (60_000, -1), (1000, 1)] {
        conn.ok(&["CONFIG", "SET", "lock.margin-ms", &margin_ms.to_string()]);
        conn.ok(&["CONFIG", "SET", "lock.retention-ms", &retention_ms.to_string()]);
        assert_eq!(older, (conn.text(&["GET", "older"]), expire_at_ms(&mut conn, "older")));
        assert_eq!(setting(&mut conn, "lock.margin-ms"), margin_ms.to_string());
        assert_eq!(setting(&mut conn, "lock.retention-ms"), retention_ms.to_string());
        assert_in_force(&mut conn, margin_ms, retention_ms);
    }
}

#[test]
fn a_module_loaded_while_running_takes_its_settings() {
    let server = Options::default().without_module().start();
    let mut conn = server.conn();
    if conn.is_before_7() {
        return;
    }
    let path = module().to_str().unwrap();
    let reply = conn.execute(&["MODULE", "LOAD", path, "margin-ms", "-5"]);
    assert!(matches!(reply, Reply::Error(_)), "{reply:?}");
    assert!(conn.execute(&["LOCK.INFO", "a"]).error().starts_with("ERR unknown command"));

    conn.ok(&["MODULE", "LOAD", path, "margin-ms", "11"]);
    assert_in_force(&mut conn, 11, 60_000);
    conn.ok(&["MODULE", "UNLOAD", "lock"]);
    conn.ok(&["MODULE", "LOADEX", path, "CONFIG", "lock.retention-ms", "13", "ARGS", "margin-ms", "12"]);
    assert_in_force(&mut conn, 12, 13);
}

/// How many times the log reports that settings fell back to their defaults.
fn falls_logged(server: &Server) -> usize {
    server.log().matches("loaded into a running server without settings").count()
}

#[test]
fn an_unload_warns_of_lost_settings() {
    let grace = "lock.failover-grace-ms";
    let (server, mut conn) = Server::connected();
    assert_eq!(falls_logged(&server), 0, "no setting is lost when the server starts");
    let path = module().to_str().unwrap();
    if conn.is_before_7() {
        conn.ok(&["MODULE", "UNLOAD", "lock"]);
        conn.ok(&["MODULE", "LOAD", path]);
        assert!(server.log().contains("MODULE LOAD path failover-grace-ms 20000"), "{}", server.log_tail(5));
        conn.ok(&["MODULE", "UNLOAD", "lock"]);
        conn.ok(&["MODULE", "LOAD", path, "failover-grace-ms", "20000"]);
        assert_eq!(falls_logged(&server), 1);
        return;
    }
    conn.ok(&["CONFIG", "SET", grace, "20000", "lock.margin-ms", "1500"]);
    conn.ok(&["MODULE", "UNLOAD", "lock"]);
    let command = "MODULE LOADEX path CONFIG lock.margin-ms 1500 CONFIG lock.failover-grace-ms 20000";
    assert!(server.log().contains(command), "{}", server.log_tail(5));
    conn.ok(&["MODULE", "LOAD", path]);
    assert_eq!(setting(&mut conn, grace), "0");
    assert_eq!(falls_logged(&server), 1, "{}", server.log_tail(5));
    assert!(server.log().contains("MODULE LOADEX path CONFIG lock.failover-grace-ms 20000"), "{}", server.log_tail(5));

    // This is what the log says to do.
    conn.ok(&["MODULE", "UNLOAD", "lock"]);
    let words: Vec<&str> = command.split(' ').map(|word| if word == "path" { path } else { word }).collect();
    conn.ok(&words);
    assert_eq!(setting(&mut conn, grace), "20000");
    assert_eq!(setting(&mut conn, "lock.margin-ms"), "1500");
    assert_eq!(falls_logged(&server), 1, "{}", server.log_tail(5));
    // Module arguments are settings too.
    conn.ok(&["MODULE", "UNLOAD", "lock"]);
    conn.ok(&["MODULE", "LOAD", path, "margin-ms", "1500"]);
    assert_eq!(falls_logged(&server), 1, "{}", server.log_tail(5));
}

/// How many times the log reports that waiters can use up all connections.
fn wants_of_room(server: &Server) -> usize {
    server.log().matches("for clients that do not wait, less than a tenth").count()
}

#[test]
fn the_default_waiter_limit_leaves_half_of_maxclients() {
    let (server, mut conn) = Server::with().args(&["--maxclients", "10000"]).connected();
    assert_eq!(conn.execute(&["CONFIG", "GET", "maxclients"]).list()[1].text(), "10000");
    if !conn.is_before_7() {
        assert_eq!(setting(&mut conn, "lock.max-waiters"), "5000");
    }
    assert_eq!(wants_of_room(&server), 0);
}

#[test]
fn a_waiter_limit_near_maxclients_causes_a_warning() {
    // At load.
    let server = Server::with().args(&["--maxclients", "1000"]).start();
    assert_eq!(wants_of_room(&server), 1, "{}", server.log());
    let server = Server::with().args(&["--maxclients", "1000"]).module_args(&["max-waiters", "900"]).start();
    assert_eq!(wants_of_room(&server), 0, "{}", server.log());
    let mut conn = server.conn();
    if conn.is_before_7() {
        return;
    }
    // When either setting is changed, once per change.
    conn.ok(&["CONFIG", "SET", "lock.max-waiters", "901"]);
    assert_eq!(wants_of_room(&server), 1, "{}", server.log_tail(5));
    assert!(server.log().contains("lock.max-waiters 901 leaves 99 of maxclients 1000"), "{}", server.log_tail(5));
    conn.ok(&["CONFIG", "SET", "lock.margin-ms", "1001"]);
    assert_eq!(wants_of_room(&server), 1, "{}", server.log_tail(5));
    conn.ok(&["CONFIG", "SET", "maxclients", "2000"]);
    assert_eq!(wants_of_room(&server), 1, "{}", server.log_tail(5));
    conn.ok(&["CONFIG", "SET", "maxclients", "800"]);
    assert_eq!(wants_of_room(&server), 2, "{}", server.log_tail(5));
    assert!(server.log().contains("leaves 0 of maxclients 800"), "{}", server.log_tail(5));
}

/// The contract: too many waiters get BUSYLOCKS, and an operator can still connect.
#[test]
fn many_waiters_get_busylocks_before_the_operator_is_locked_out() {
    let server = Server::with().args(&["--maxclients", "60"]).module_args(&["max-waiters", "30"]).start();
    let mut holder = server.conn();
    let token = holder.int(&["LOCK.ACQUIRE", "k", "EX", "60"]).to_string();
    let mut conns: Vec<Conn> = (0..50).map(|_| server.conn()).collect();
    for conn in &mut conns {
        conn.send(&["LOCK.ACQUIRE", "k", "EX", "60", "WAIT", "60000"]);
    }
    let mut busy = 0;
    for conn in &mut conns {
        if !conn.no_reply_within(std::time::Duration::from_millis(20)) {
            assert!(conn.read().error().starts_with("BUSYLOCKS "));
            busy += 1;
        }
    }
    assert_eq!(busy, 20);
    let mut operator = server.conn();
    assert_eq!(operator.lock("k", "waiters"), Reply::Int(30));
    assert_eq!(operator.int(&["LOCK.RELEASE", "k", &token]), 1);
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
        conn.info("memory", "used_memory").unwrap().parse::<i64>().unwrap()
    };
    let before = used_after(3);
    let left = used_after(20) - before;
    assert!(left < 20 * 8_192, "{left} bytes are left after 20 times");
}
