//! Users with few permissions: they see what they may see, and a line names what they may not. The server's ACL LOG
//! does not fill up.

use crate::held::{held, hold, HOUR};
use crate::screen::Screen;
use crate::{address, json, once};
use serde_json::Value;
use testkit::{project_file, skipped, until, Conn, Server};

/// A lock with a waiter, and a user with these rules.
fn server_with(user: &[&str]) -> (Server, Conn, Conn, [String; 5]) {
    let (server, mut holder) = Server::connected();
    holder.ok(&[&["ACL", "SETUSER", "watcher", "on", ">secret"], user].concat());
    holder.int(&["LOCK.ACQUIRE", "report", "EX", "60", "OWNER", "alice"]);
    let waiter = server.waiter(&["LOCK.ACQUIRE", "report", "EX", "60", "WAIT", "60000", "OWNER", "bob"]);
    let args = [&address(&server), "--user", "watcher", "--pass", "secret"].map(String::from);
    (server, holder, waiter, args)
}

fn shown(args: &[String; 5]) -> (Value, String) {
    let args = args.each_ref().map(String::as_str);
    (json(&args), once(&args))
}

#[test]
fn without_info_and_lock_top_locks_and_queues_are_seen() {
    let (_server, mut holder, _waiter, args) = server_with(&["~*", "+lock.info", "+lock.scan"]);
    let (document, text) = shown(&args);
    let report = &document["locks"][0];
    assert_eq!((&report["key"], &report["waiters"]), (&"report".into(), &1.into()), "{document:#}");
    assert_eq!((&report["holders"][0]["owner"], &report["queue"][0]["owner"]), (&"alice".into(), &"bob".into()));
    assert!(text.contains("may not run INFO") && text.contains("may not run LOCK.TOP"), "{text}");
    assert!(document["servers"][0]["error"].is_null());
    // Each of the two runs tried each of a few commands once, however many steps it took.
    let denied = holder.execute(&["ACL", "LOG"]).list().len();
    assert!(denied <= 8, "{denied} entries");
}

#[test]
fn a_missing_permission_for_details_is_reported() {
    let (_server, _holder, _waiter, args) = server_with(&["+lock.top", "+info"]);
    let (document, text) = shown(&args);
    assert_eq!((&document["locks"][0]["waiters"], &document["locks"][0]["queue"]), (&1.into(), &Value::Null));
    assert!(text.contains("may not run LOCK.INFO: no lines, tokens and cycles"), "{text}");
    assert!(!text.contains("may not run LOCK.TOP"), "{text}");
}

#[test]
fn unreadable_keys_are_left_out() {
    let (_server, mut holder, _waiter, args) = server_with(&["~other*", "+lock.top", "+info", "+lock.info"]);
    let _ = holder.int(&["LOCK.ACQUIRE", "other", "EX", "60"]);
    let (document, text) = shown(&args);
    assert_eq!(document["locks"][0]["queue"], Value::Null);
    assert!(text.contains("may not read some of the keys"), "{text}");
}

#[test]
fn a_user_without_permissions_sees_notes_and_no_locks() {
    let (_server, _holder, _waiter, args) = server_with(&["+ping"]);
    let (document, text) = shown(&args);
    assert_eq!(document["locks"].as_array().unwrap().len(), 0);
    for command in ["INFO", "LOCK.TOP", "LOCK.SCAN"] {
        assert!(text.contains(&format!("may not run {command}:")), "{command}:\n{text}");
    }
}

/// The rules in the page's ACL SETUSER line for this user.
pub fn documented_rules(page: &str, user: &str) -> Vec<String> {
    let page = project_file(page);
    let line =
        page.lines().find(|line| line.starts_with(&format!("ACL SETUSER {user} "))).expect("the page names a user");
    line.split(' ').skip(3).map(String::from).collect()
}

#[test]
fn the_documented_watcher_misses_nothing_on_one_server() {
    let rules = documented_rules("docs/OPERATING.md", "watcher");
    if Server::connected().1.is_before_7() {
        return skipped("the_documented_watcher", "%R~ needs 7.0");
    }
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let (_server, _holder, _waiter, args) = server_with(&rules);
    let (document, text) = shown(&args);
    assert_eq!(document["locks"][0]["queue"][0]["owner"], "bob", "{document:#}");
    for command in ["INFO", "LOCK.TOP", "LOCK.INFO", "LOCK.SCAN"] {
        assert!(!text.contains(&format!("may not run {command}")), "{command}:\n{text}");
    }
}

#[test]
fn the_watcher_sees_everything_and_can_do_nothing() {
    let (server, mut holder) = Server::connected();
    if holder.is_before_7() {
        return skipped("the_watcher_sees_everything", "%R~ needs 7.0");
    }
    let rules = documented_rules("docs/OPERATING.md", "watcher");
    holder.ok(&[&["ACL", "SETUSER", "watcher"], &*rules.iter().map(String::as_str).collect::<Vec<_>>()].concat());
    holder.ok(&["SELECT", "2"]);
    let token = holder.int(&["LOCK.ACQUIRE", "report", "EX", "60", "OWNER", "alice"]).to_string();
    let mut waiter = server.conn();
    waiter.ok(&["SELECT", "2"]);
    waiter.send(&["LOCK.ACQUIRE", "report", "EX", "60", "WAIT", "60000", "OWNER", "bob"]);
    holder.until_waiters("report", 1);

    let args = [&address(&server), "--all", "--user", "watcher", "--pass", "secret"];
    let document = json(&args);
    let shown = &document["servers"][0];
    assert_eq!(shown["notes"].as_array().unwrap().len(), 0, "{document:#}");
    assert_eq!((&shown["max-waiters"], &shown["max-queued"]), (&5000.into(), &100_000.into()));
    assert_eq!(document["locks"][0]["queue"][0]["owner"], "bob");

    if let Some(screen) = Screen::start("watcher", 24, &[&args[..], &["--interval", "0.5"]].concat()) {
        screen.until_shows(&["alice", "bob"]);
        screen.press(&["r", "y"]);
        screen.until_shows(&["NOPERM"]);
    }
    assert_eq!(holder.int(&["LOCK.EXTEND", "report", &token, "EX", "60"]), 1);
    // CONFIG GET, once for each connection: it could show passwords too. And the release that was tried with r, y.
    let log = holder.execute(&["ACL", "LOG"]);
    let denied: std::collections::BTreeSet<_> = log.list().iter().map(|entry| entry.field("object").text()).collect();
    assert!(denied.iter().all(|what| ["config|get", "lock.release"].contains(&what.as_str())), "{denied:?}");
    let mut watcher = server.conn();
    watcher.ok(&["AUTH", "watcher", "secret"]);
    for command in [
        &["CONFIG", "GET", "masterauth"][..],
        &["CONFIG", "GET", "lock.*"],
        &["CONFIG", "SET", "lock.margin-ms", "1"],
        &["ACL", "LIST"],
        &["GET", "report"],
        &["LOCK.CANCEL", "report", "1"],
        &["CLUSTER", "FAILOVER"],
    ] {
        assert!(watcher.execute(command).error().starts_with("NOPERM "), "{command:?}");
    }
}

#[test]
fn unreadable_keys_do_not_displace_readable_ones() {
    let (server, mut holder) = Server::connected();
    holder.ok(&["ACL", "SETUSER", "watcher", "on", ">secret", "~yours", "+lock.top", "+info", "+lock.info"]);
    let mut waiting = Vec::new();
    for n in 0..12 {
        let key = format!("secret:{n}");
        holder.int(&["LOCK.ACQUIRE", &key, "EX", "60"]);
        waiting.extend((0..2).map(|_| server.waiter(&["LOCK.ACQUIRE", &key, "EX", "60", "WAIT", "60000"])));
    }
    holder.int(&["LOCK.ACQUIRE", "yours", "EX", "60", "OWNER", "alice"]);
    waiting.push(server.waiter(&["LOCK.ACQUIRE", "yours", "EX", "60", "WAIT", "60000"]));
    let args = ["--user", "watcher", "--pass", "secret", "--interval", "0.5", &address(&server)];
    let Some(screen) = Screen::start("turns", 40, &args) else { return };
    // The state of a lock is known only after its queue was read.
    until("the line of yours is read", || {
        let shown = screen.shows();
        shown.lines().any(|line| line.contains(" yours ") && line.contains(" held ")).then_some(())
    });
}

/// A server with a lock held for two hours in each of two databases, and a user with these rules.
fn server_with_leaks(user: &[&str]) -> (Server, Conn, [String; 5]) {
    let (server, mut conn) = Server::connected();
    conn.ok(&[&["ACL", "SETUSER", "watcher", "on", ">secret"], user].concat());
    for db in ["2", "0"] {
        conn.ok(&["SELECT", db]);
        hold(&mut conn, "report", 2 * HOUR, "alice");
    }
    let args = [&address(&server), "--user", "watcher", "--pass", "secret"].map(String::from);
    (server, conn, args)
}

#[test]
fn the_watcher_samples_all_locks_and_is_denied_nothing() {
    if Server::connected().1.is_before_7() {
        return skipped("the_watcher_samples", "%R~ needs 7.0");
    }
    let rules = documented_rules("docs/OPERATING.md", "watcher");
    let (_server, mut conn, args) = server_with_leaks(&rules.iter().map(String::as_str).collect::<Vec<_>>());
    let (status, text) = held(&args.each_ref().map(String::as_str));
    assert_eq!(status, 1);
    assert!(text.contains(": 2 held, 2 of them ") && !text.contains("may not"), "{text}");
    let denied = conn.execute(&["ACL", "LOG"]);
    assert!(denied.list().is_empty(), "{denied:?}");
}

#[test]
fn each_permission_that_a_sample_lacks_is_reported() {
    let all = ["+info", "+select", "+lock.scan", "+lock.info"];
    for (lacking, status, said) in [
        ("", 1, ": 2 held, 2 of them "),
        ("+info", 1, ": 1 held, 1 of them for at least 1h00m, the oldest for 2h00m\n  may not run INFO: "),
        ("+select", 2, ": NOPERM "),
        ("+lock.scan", 2, ": NOPERM "),
        ("+lock.info", 1, "\n  may not run LOCK.INFO: no addresses, and of several holders only the last to end\n"),
    ] {
        let rules = all.iter().filter(|rule| **rule != lacking).copied();
        let (_server, _conn, args) = server_with_leaks(&["~*"].into_iter().chain(rules).collect::<Vec<_>>());
        let (code, text) = held(&args.each_ref().map(String::as_str));
        assert!(code == status && text.contains(said), "without {lacking}: {code}: {text}");
        assert_eq!(text.contains("may not") || text.contains("NOPERM"), !lacking.is_empty(), "{lacking}: {text}");
    }
}

#[test]
fn a_holder_of_several_is_found_without_lock_info_if_it_ends_last() {
    let (_server, mut conn, args) = server_with_leaks(&["~*", "+info", "+select", "+lock.scan"]);
    let token = conn.lock("report", "token").int();
    conn.int(&["DEL", "report"]);
    let timestamp = token / 1_000_000 + 30_000;
    for (later, owner) in [(0, "first"), (60, "last")] {
        conn.int(&["ZADD", "pool", &(timestamp + later).to_string(), &format!("{:016} {owner}", token + later)]);
    }
    let (status, text) = held(&args.each_ref().map(String::as_str));
    assert!(status == 1 && text.contains("pool by last\n") && !text.contains("first"), "{text}");
}
