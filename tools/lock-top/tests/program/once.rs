//! What `--once` and `--once --json` print.

use crate::{address, json, once, program, run, text};
use serde_json::Value;
use testkit::{Conn, Server};

/// Two clients that wait for each other. Without SESSION, their cycle is resolved only when a lease ends.
pub fn cycle(server: &Server) -> [Conn; 2] {
    let [mut alice, mut bob] = [server.conn(), server.conn()];
    alice.int(&["LOCK.ACQUIRE", "invoices", "EX", "600", "OWNER", "alice"]);
    bob.int(&["LOCK.ACQUIRE", "report", "EX", "600", "OWNER", "bob"]);
    let mut watcher = server.conn();
    bob.send(&["LOCK.ACQUIRE", "invoices", "EX", "600", "WAIT", "600000", "ID", "2002", "OWNER", "bob"]);
    watcher.until_waiters("invoices", 1);
    alice.send(&["LOCK.ACQUIRE", "report", "EX", "600", "WAIT", "600000", "ID", "1001", "OWNER", "alice"]);
    watcher.until_waiters("report", 1);
    [alice, bob]
}

fn lock<'a>(document: &'a Value, key: &str) -> &'a Value {
    let locks = document["locks"].as_array().unwrap();
    locks.iter().find(|lock| lock["key"] == key).unwrap_or_else(|| panic!("no {key}: {document:#}"))
}

#[test]
fn a_lock_is_shown_with_its_holder_and_its_queue() {
    let (server, mut holder) = Server::connected();
    let token = holder.int(&["LOCK.ACQUIRE", "report", "EX", "60", "OWNER", "alice", "SESSION"]);
    let client = holder.int(&["CLIENT", "ID"]);
    let _first = server.waiter(&["LOCK.ACQUIRE", "report", "EX", "60", "WAIT", "60000", "ID", "4711", "OWNER", "bob"]);
    let _second = server.waiter(&["LOCK.ACQUIRE", "report", "EX", "60", "WAIT", "60000"]);

    let document = json(&[&address(&server)]);
    let report = lock(&document, "report");
    assert_eq!((&report["state"], &report["waiters"]), (&"held".into(), &2.into()));
    assert!(report["oldest-wait-ms"].is_u64() && report["held-ms"].is_u64() && report["free-in-ms"].is_u64());
    let held = &report["holders"][0];
    assert_eq!((&held["token"], &held["owner"], &held["client"]), (&token.into(), &"alice".into(), &client.into()));
    assert_eq!(held["has-session"], true);
    let queue = report["queue"].as_array().unwrap();
    assert_eq!((queue.len(), &queue[0]["id"], &queue[0]["owner"]), (2, &"4711".into(), &"bob".into()));
    assert!(queue[1]["id"].is_null() && queue[1]["addr"].as_str().unwrap().starts_with("127.0.0.1:"));
    let shown = &document["servers"][0];
    assert_eq!((&shown["role"], &shown["info"]["lock_waiters"]), (&"master".into(), &2.into()));
    assert!(shown["error"].is_null() && shown["version"].as_str().unwrap().contains('.'));

    let text = once(&[&address(&server)]);
    for part in ["alice", "bob", "4711", "report", "LINE CLIENT"] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
}

/// A client that waits in pieces sends another command when the current one ends; the server knows only the current
/// one.
#[test]
fn a_wait_that_may_be_a_piece_is_marked() {
    let (server, mut holder) = Server::connected();
    holder.int(&["LOCK.ACQUIRE", "report", "EX", "600"]);
    let wait = ["LOCK.ACQUIRE", "report", "EX", "600", "WAIT", "600000"];
    let _whole = server.waiter(&[&wait[..], &["OWNER", "whole"]].concat());
    let _piece = server.waiter(&[&wait[..], &["OWNER", "pieces", "ID", "4711"]].concat());
    if !holder.is_before_7() {
        holder.execute(&[&wait[..], &["OWNER", "notified", "ID", "4712", "NOTIFY", "turns"]].concat());
    }
    let text = once(&[&address(&server)]);
    let marked = |owner: &str| {
        let line = text.lines().find(|line| line.contains(&format!(" {owner}")) && line.contains("9m5"));
        line.unwrap_or_else(|| panic!("{owner}:\n{text}")).contains("s+ ")
    };
    assert!(marked("pieces"), "{text}");
    assert!(!marked("whole"), "{text}");
    assert!(holder.is_before_7() || !marked("notified"), "{text}");
}

#[test]
fn clients_that_wait_for_each_other_are_a_cycle() {
    let server = Server::start();
    let _clients = cycle(&server);
    let document = json(&[&address(&server)]);
    let cycles = document["cycles"].as_array().unwrap();
    assert_eq!(cycles.len(), 1, "{document:#}");
    let mut keys: Vec<&str> = cycles[0].as_array().unwrap().iter().map(|edge| edge["key"].as_str().unwrap()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["invoices", "report"]);

    let text = once(&[&address(&server)]);
    assert!(text.contains("CYCLE: "), "{text}");
    assert!(text.contains("└─ ") && text.contains("CYCLE: see above"), "{text}");
    let ascii = once(&["--ascii", &address(&server)]);
    assert!(ascii.is_ascii() && ascii.contains("`- "), "{ascii}");
}

#[test]
fn only_all_shows_a_server_without_waiters() {
    let (server, mut holder) = Server::connected();
    holder.int(&["LOCK.ACQUIRE", "quiet", "EX", "60", "OWNER", "alice"]);
    for n in 0..1_200 {
        holder.ok(&["SET", &format!("other:{n}"), "x"]);
    }
    assert!(once(&[&address(&server)]).contains("nobody waits for a lock"));
    let document = json(&["--all", &address(&server)]);
    let quiet = lock(&document, "quiet");
    assert_eq!((&quiet["holders"][0]["owner"], &quiet["waiters"]), (&"alice".into(), &0.into()));
    assert_eq!(document["locks"].as_array().unwrap().len(), 1, "a value that is not a lock is not shown");
}

#[test]
fn locks_are_sorted_as_requested() {
    let (server, mut holder) = Server::connected();
    holder.int(&["LOCK.ACQUIRE", "old", "EX", "60"]);
    let _one = server.waiter(&["LOCK.ACQUIRE", "old", "EX", "60", "WAIT", "60000"]);
    // The server reports milliseconds: two times in the same millisecond are equal.
    std::thread::sleep(std::time::Duration::from_millis(20));
    holder.int(&["LOCK.ACQUIRE", "crowded", "EX", "60"]);
    let _two = server.waiter(&["LOCK.ACQUIRE", "crowded", "EX", "60", "WAIT", "60000"]);
    let _three = server.waiter(&["LOCK.ACQUIRE", "crowded", "EX", "60", "WAIT", "60000"]);
    let first = |by| json(&["--by", by, &address(&server)])["locks"][0]["key"].clone();
    assert_eq!(first("waiters"), "crowded");
    assert_eq!(first("wait"), "old");
    assert_eq!(first("held"), "old");
}

#[test]
fn locks_of_other_databases_and_of_several_holders_are_shown() {
    let (server, mut holder) = Server::connected();
    holder.ok(&["SELECT", "3"]);
    for owner in ["alice", "carol"] {
        holder.int(&["LOCK.ACQUIRE", "pool", "EX", "60", "LIMIT", "2", "OWNER", owner]);
    }
    let mut waiter = server.conn();
    waiter.ok(&["SELECT", "3"]);
    waiter.send(&["LOCK.ACQUIRE", "pool", "EX", "60", "LIMIT", "2", "WAIT", "60000", "OWNER", "dave"]);
    holder.until_waiters("pool", 1);

    let document = json(&[&address(&server)]);
    let pool = lock(&document, "pool");
    let mut owners: Vec<&str> =
        pool["holders"].as_array().unwrap().iter().map(|holder| holder["owner"].as_str().unwrap()).collect();
    owners.sort_unstable();
    assert_eq!((&pool["db"], owners), (&3.into(), vec!["alice", "carol"]));
    assert_eq!(document["waits"].as_array().unwrap().len(), 2);
    assert!(once(&[&address(&server)]).contains("3:pool"));
}

#[test]
fn attempts_without_a_connection_are_shown_with_their_channel() {
    let (server, mut holder) = Server::connected();
    if holder.is_before_7() {
        return testkit::skipped("attempts_without_a_connection", "NOTIFY needs 7.0");
    }
    holder.int(&["LOCK.ACQUIRE", "report", "EX", "60"]);
    let ask = ["LOCK.ACQUIRE", "report", "EX", "60", "WAIT", "60000", "ID", "5", "NOTIFY", "locks:a1"];
    assert_eq!(holder.text(&ask), "WAITING");
    let document = json(&[&address(&server)]);
    assert_eq!(lock(&document, "report")["queue"][0]["channel"], "locks:a1");
    assert!(once(&[&address(&server)]).contains("via locks:a1"));
}

#[test]
fn client_bytes_are_escaped_on_the_terminal() {
    let (server, mut holder) = Server::connected();
    let key: &[u8] = b"a\x1b[2J\xff\nb";
    holder.execute(&[b"LOCK.ACQUIRE", key, b"EX", b"60"]);
    let mut waiter = server.conn();
    waiter.send(&[b"LOCK.ACQUIRE", key, b"EX", b"60", b"WAIT", b"60000"]);
    let mut watcher = server.conn();
    testkit::until("it waits", || watcher.info("lock", "lock_waiters").filter(|waiters| waiters == "1").map(|_| ()));
    let text = once(&[&address(&server)]);
    assert!(!text.contains('\x1b') && text.contains("a\\u{1b}[2J\\xff\\nb"), "{text}");
    assert_eq!(json(&[&address(&server)])["locks"][0]["key-hex"], "611b5b324aff0a62");
}

#[test]
fn a_closed_pipe_succeeds_and_a_full_disk_fails() {
    let server = Server::start();
    let args = ["--once", "--json", &address(&server)];
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = program(&args).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = program(&args).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("No space left"), "{output:?}");
}

#[test]
fn bad_arguments_are_named_with_exit_status_2() {
    for (args, expected) in [
        (&["--frobnicate"][..], "lock-top: unknown option --frobnicate; --help lists them\n"),
        (&["--interval", "0"], "lock-top: --interval is from 0.5 to 60 seconds, not 0\n"),
        (&[], "lock-top: input or output is not a terminal: --once prints one snapshot\n"),
    ] {
        let output = run(args);
        assert_eq!((text(&output.stderr).as_str(), output.status.code()), (expected, Some(2)));
    }
    let help = run(&["--help"]);
    assert!(text(&help.stdout).contains("--once") && help.status.success());
    assert!(text(&run(&["--version"]).stdout).starts_with("lock-top "));
}
