//! A server that has the module: its functions call its commands, its scripts do not.

use super::{load, Way};
use std::time::{Duration, Instant};
use testkit::{bound, module, until, Conn, Reply, Server};

/// The functions, on a server that supports them.
fn functions(conn: &mut Conn) -> Option<Way> {
    load(conn).into_iter().find(|way| matches!(way, Way::Function))
}

#[test]
fn a_function_calls_the_modules_command() {
    let server = Server::with().module_args(&["margin-ms", "5000"]).start();
    let mut conn = server.conn();
    let Some(way) = functions(&mut conn) else { return };
    let token = way.execute(&mut conn, "LOCK.ACQUIRE k PX 10000 ID 7 OWNER alice").int();
    // The module's margin, not the call's.
    assert_eq!(testkit::timestamp_us(&conn.text(&["GET", "k"])), token + 15_000_000);
    let left = way.execute(&mut conn, &format!("LOCK.CHECK k {token}")).int();
    assert!((5_000..=10_000).contains(&left), "{left}");
    assert_eq!(way.execute(&mut conn, &format!("LOCK.EXTEND k {token} PX 20000")), Reply::Int(1));
    assert!(way.execute(&mut conn, "LOCK.RECOVER k PX 1000").is_nil());
    assert!(way.execute(&mut conn, "LOCK.ACQUIRE k PX 1000 DETAILS").is_nil());
    // The module queues: a released lock goes to the waiting client.
    let mut waiter = server.waiter(&["LOCK.ACQUIRE", "k", "PX", "10000", "WAIT", "20000"]);
    assert_eq!(way.execute(&mut conn, &format!("LOCK.RELEASE k {token}")), Reply::Int(1));
    let next = waiter.read().int();
    assert!(next > token);
    assert!(way.execute(&mut conn, "LOCK.ACQUIRE k PX 1000").is_nil());
    for (command, calls) in [("acquire", 3), ("recover", 1), ("extend", 1), ("release", 1), ("check", 1)] {
        // One more LOCK.ACQUIRE is the waiter's.
        let expected = if command == "acquire" { calls + 1 } else { calls };
        assert_eq!(conn.calls(&format!("lock.{command}")), expected, "LOCK.{command}");
    }
    // Errors are those of the command, including that for a wrong number of arguments.
    for command in ["LOCK.ACQUIRE k PX 0", "LOCK.ACQUIRE k PX 5 BOGUS", "LOCK.CHECK k x"] {
        let own = conn.execute(&command.split(' ').collect::<Vec<_>>());
        assert_eq!(way.execute(&mut conn, command), own, "{command}");
    }
    let arity = "ERR wrong number of arguments for 'lock.release' command";
    assert_eq!(way.execute(&mut conn, "LOCK.RELEASE k").error(), arity);
    let options = "LOCK.ACQUIRE k PX 5".to_string() + &" DETAILS".repeat(20_000);
    assert_eq!(way.execute(&mut conn, &options).error(), "ERR syntax error: DETAILS is given twice");
}

#[test]
fn a_function_finds_a_module_loaded_later_within_a_second() {
    let (server, mut conn) = Server::with().without_module().connected();
    let Some(way) = functions(&mut conn) else { return };
    let token = way.execute(&mut conn, "LOCK.ACQUIRE k PX 60000").int();
    conn.ok(&["MODULE", "LOAD", module().to_str().unwrap()]);
    let loaded = Instant::now();
    until("the command is called", || {
        assert!(way.execute(&mut conn, &format!("LOCK.CHECK k {token}")).int() > 50_000);
        (conn.calls("lock.check") > 0).then_some(())
    });
    bound::wall("a module that is loaded later is found", Duration::from_secs(10), loaded.elapsed());
    // The function's lock carries over to the module, and back.
    assert_eq!(way.execute(&mut conn, &format!("LOCK.EXTEND k {token} PX 60000")), Reply::Int(1));
    assert_eq!(conn.calls("lock.extend"), 1);
    assert_eq!(conn.execute(&["MODULE", "UNLOAD", "lock"]), Reply::Status("OK".into()));
    assert_eq!(
        until("the function decides again", || match way.execute(&mut conn, &format!("LOCK.RELEASE k {token}")) {
            Reply::Int(released) => Some(released),
            _ => None,
        }),
        1
    );
    drop(server);
}

#[test]
fn detection_without_the_module_counts_no_errors() {
    let (_server, mut conn) = Server::with().without_module().connected();
    let Some(way) = functions(&mut conn) else { return };
    let token = way.execute(&mut conn, "LOCK.ACQUIRE k PX 60000").int();
    let errors = conn.info("stats", "total_error_replies");
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1_100) {
        way.execute(&mut conn, &format!("LOCK.CHECK k {token}")).int();
    }
    assert_eq!(conn.info("stats", "total_error_replies"), errors);
}
