//! The server's own tools show locks and waiters.

use crate::metrics::number;
use std::time::Duration;
use testkit::{bound, until, Conn, Reply, Server};

/// More than twice the time that any command takes on any machine.
const WAIT_MS: u64 = 2_000;

/// A client with that name that waits for `k`, and its ID.
fn waiter(server: &Server, name: &str, wait_ms: u64) -> (Conn, i64) {
    let (mut conn, mut looks) = (server.conn(), server.conn());
    let id = conn.int(&["CLIENT", "ID"]);
    conn.ok(&["CLIENT", "SETNAME", name]);
    let before = number(&mut looks, "waiters");
    conn.send(&["LOCK.ACQUIRE", "k", "EX", "60", "WAIT", &wait_ms.to_string()]);
    until("it waits", || (number(&mut looks, "waiters") == before + 1).then_some(()));
    (conn, id)
}

/// A command's entries in the slow log: duration in microseconds, arguments.
fn slow(conn: &mut Conn, command: &str) -> Vec<(i64, Vec<String>)> {
    let log = conn.execute(&["SLOWLOG", "GET", "128"]);
    let entries = log.list().iter().map(|entry| {
        let entry = entry.list();
        (entry[2].int(), entry[3].list().iter().map(Reply::text).collect::<Vec<_>>())
    });
    entries.filter(|(_, args)| args[0].eq_ignore_ascii_case(command)).collect()
}

#[test]
fn the_slow_log_excludes_the_wait() {
    let (server, mut conn) = Server::connected();
    conn.ok(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    let token = conn.int(&["LOCK.ACQUIRE", "k", "EX", "60", "OWNER", "me"]).to_string();
    let (mut waits, _) = waiter(&server, "waits", WAIT_MS);
    assert!(waits.read().is_nil());
    conn.int(&["LOCK.EXTEND", "k", &token, "EX", "60"]);
    conn.int(&["LOCK.RELEASE", "k", &token]);
    conn.ok(&["CONFIG", "SET", "slowlog-log-slower-than", "-1"]);

    assert_eq!(slow(&mut conn, "LOCK.EXTEND")[0].1, ["LOCK.EXTEND", "k", &token, "EX", "60"]);
    assert_eq!(slow(&mut conn, "LOCK.RELEASE")[0].1, ["LOCK.RELEASE", "k", &token]);
    let acquires = slow(&mut conn, "LOCK.ACQUIRE");
    let args: Vec<_> = acquires.iter().map(|(_, args)| args[1..].join(" ")).collect();
    assert!(args.contains(&"k EX 60 OWNER me".into()), "{args:?}");
    assert!(args.contains(&format!("k EX 60 WAIT {WAIT_MS}")), "{args:?}");
    for (duration_us, args) in acquires {
        let took = Duration::from_micros(duration_us.try_into().unwrap());
        bound::wall(&args.join(" "), Duration::from_millis(WAIT_MS / 2), took);
    }
}

#[test]
fn command_statistics_and_latency_leave_the_wait_out() {
    let (server, mut conn) = Server::connected();
    conn.ok(&["CONFIG", "SET", "latency-monitor-threshold", &(WAIT_MS / 2).to_string()]);
    conn.int(&["LOCK.ACQUIRE", "k", "EX", "60"]);
    let (mut waits, _) = waiter(&server, "waits", WAIT_MS);
    assert!(waits.read().is_nil());
    assert!(conn.execute(&["LOCK.RELEASE", "k", "x"]).error().starts_with("ERR "));

    let text = conn.text(&["INFO", "commandstats"]);
    let part = |command: &str, name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:"))).expect(command);
        let value = line.split(',').find_map(|part| part.strip_prefix(&format!("{name}="))).expect(name);
        value.parse().unwrap()
    };
    assert_eq!(part("lock.acquire", "calls"), 2);
    let took = Duration::from_micros(part("lock.acquire", "usec"));
    bound::wall("LOCK.ACQUIRE", Duration::from_millis(WAIT_MS / 2), took);
    assert_eq!(part("lock.release", "failed_calls"), 1);
    // Nothing blocked the server, so it has no latency to report.
    let latest = conn.execute(&["LATENCY", "LATEST"]);
    let ours = latest.list().iter().filter(|event| event.list()[0].text().contains("command"));
    assert_eq!(ours.count(), 0, "{latest:?}");

    match conn.execute(&["LATENCY", "HISTOGRAM", "lock.acquire"]) {
        Reply::Error(text) => eprintln!("skipped: LATENCY HISTOGRAM: {text}"),
        reply => assert_eq!(reply.field("lock.acquire").field("calls").int(), 2),
    }
}

#[test]
fn monitor_shows_what_clients_send_and_nothing_else() {
    let server = Server::start();
    let (mut conn, mut monitor) = (server.conn(), server.conn());
    monitor.ok(&["MONITOR"]);
    let token = conn.int(&["LOCK.ACQUIRE", "k", "EX", "60"]).to_string();
    let (mut waits, _) = waiter(&server, "waits", 60_000);
    conn.int(&["LOCK.RELEASE", "k", &token]);
    let token = waits.read().int().to_string();
    conn.int(&["LOCK.RELEASE", "k", &token]);
    conn.text(&["PING", "the end"]);
    let mut seen = Vec::new();
    loop {
        let line = monitor.read().text();
        let (_, command) = line.split_once("] ").unwrap_or_else(|| panic!("{line}"));
        if command == "\"PING\" \"the end\"" {
            break;
        }
        if !command.starts_with("\"CLIENT\"") && !command.starts_with("\"INFO\"") {
            seen.push(command.replace('"', ""));
        }
    }
    let given_up: Vec<_> = seen.iter().filter(|command| command.starts_with("LOCK.RELEASE")).collect();
    assert_eq!(seen[..2], ["LOCK.ACQUIRE k EX 60", "LOCK.ACQUIRE k EX 60 WAIT 60000"]);
    assert_eq!((seen.len(), given_up.len()), (4, 2), "a hand-off is not a command: {seen:?}");
}

#[test]
fn client_list_shows_waiters() {
    let (server, mut conn) = Server::connected();
    let token = conn.int(&["LOCK.ACQUIRE", "k", "EX", "60"]).to_string();
    let (mut waits, id) = waiter(&server, "patient", 60_000);
    let mut line = || {
        let list = conn.text(&["CLIENT", "LIST"]);
        let line = list.lines().find(|line| line.starts_with(&format!("id={id} "))).expect("it is connected");
        let part = |name: &str| line.split(' ').find_map(|part| part.strip_prefix(&format!("{name}=")));
        ["name", "flags", "cmd"].map(|name| part(name).unwrap_or_else(|| panic!("no {name}: {line}")).to_string())
    };
    assert_eq!(line(), ["patient", "b", "lock.acquire"]);
    let blocked = |conn: &mut Conn| conn.text(&["INFO", "clients"]).contains("\r\nblocked_clients:1\r\n");
    assert_eq!(line()[1], "b");
    assert!(blocked(&mut server.conn()));
    let mut other = server.conn();
    other.int(&["LOCK.RELEASE", "k", &token]);
    waits.read().int();
    assert_eq!(line(), ["patient", "N", "lock.acquire"]);
    assert!(!blocked(&mut server.conn()));
}

#[test]
fn debug_object_and_memory_usage_show_an_ordinary_short_string() {
    let (_server, mut conn) = Server::connected();
    conn.int(&["LOCK.ACQUIRE", "short", "EX", "60"]);
    let owner = "o".repeat(128);
    conn.int(&["LOCK.ACQUIRE", "long", "EX", "60", "ID", "1234567890123456789", "OWNER", &owner]);
    for (key, most) in [("short", 200), ("long", 400)] {
        assert_eq!(conn.text(&["TYPE", key]), "string");
        let usage = conn.int(&["MEMORY", "USAGE", key]);
        let length = conn.int(&["STRLEN", key]);
        assert!((length..most).contains(&usage), "{key}: {usage} bytes for {length}");
        let encoding = conn.text(&["OBJECT", "ENCODING", key]);
        assert!(["raw", "embstr"].contains(&encoding.as_str()), "{encoding}");
        let text = conn.text(&["DEBUG", "OBJECT", key]);
        assert!(text.contains(&format!("encoding:{encoding}")) && text.contains("refcount:1 "), "{text}");
        assert!(conn.int(&["OBJECT", "IDLETIME", key]) <= 2);
    }
    assert!(conn.execute(&["MEMORY", "DOCTOR"]).text().len() > 10);
}

#[test]
fn a_waiters_memory_shows_and_is_freed() {
    let (server, mut conn) = Server::connected();
    conn.int(&["LOCK.ACQUIRE", "k", "EX", "60"]);
    let used = |conn: &mut Conn| conn.info("memory", "used_memory").unwrap().parse::<i64>().unwrap();
    let round = |conn: &mut Conn| {
        let waiters: Vec<_> = (0..100).map(|n| waiter(&server, &format!("w{n}"), 60_000)).collect();
        let during = used(conn);
        drop(waiters);
        until("nobody waits", || (number(conn, "waiters") == 0).then_some(()));
        until("their connections are gone", || {
            conn.text(&["INFO", "clients"]).contains("\r\nconnected_clients:1\r\n").then_some(())
        });
        during
    };
    round(&mut conn);
    let before = used(&mut conn);
    let during = round(&mut conn);
    assert!(during > before, "{during} > {before}");
    let limit = before + 200_000;
    until("the memory is freed", || {
        std::thread::sleep(Duration::from_millis(20));
        (used(&mut conn) < limit).then_some(())
    });
}
