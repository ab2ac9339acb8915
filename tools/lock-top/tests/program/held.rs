//! What `--held-for` prints: text, JSON and metrics, and its exit status.

use crate::{address, program, run, text};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use testkit::clock::Clocks;
use testkit::cluster::Cluster;
use testkit::{free_port, server_time_us, Conn, Server};

pub const HOUR: i64 = 3_600_000_000;

/// The token of a grant of this age, and the value of its lock, as docs/SEMANTICS.md describes it.
fn old(conn: &mut Conn, age_us: i64, owner: &str) -> (i64, String, String) {
    let now = server_time_us(conn);
    let (token, until) = (now - age_us, now + 600_000_000);
    let timestamp = format!("{}.{:06}", until / 1_000_000, until % 1_000_000);
    (token, timestamp, format!("{token:016} {owner}"))
}

/// A lock that was granted this long ago, and is held for ten minutes more. Returns its token.
pub fn hold(conn: &mut Conn, key: &str, age_us: i64, owner: &str) -> i64 {
    let (token, timestamp, rest) = old(conn, age_us, owner);
    conn.ok(&["SET", key, &format!("{timestamp}{rest}")]);
    assert_eq!(conn.lock(key, "token").int(), token);
    token
}

/// The same with several holders.
fn share(conn: &mut Conn, key: &str, holders: &[(i64, &str)]) -> Vec<i64> {
    let mut share = |(age_us, owner): &(i64, &str)| {
        let (token, timestamp, rest) = old(conn, *age_us, owner);
        assert_eq!(conn.int(&["ZADD", key, &timestamp, &rest]), 1);
        token
    };
    holders.iter().map(&mut share).collect()
}

/// The exit status and the output with `--held-for 1h`.
pub fn held(args: &[&str]) -> (i32, String) {
    let output = run(&[&["--held-for", "1h"], args].concat());
    assert_eq!(text(&output.stderr), "");
    (output.status.code().unwrap(), text(&output.stdout))
}

fn json(args: &[&str]) -> (i32, Value) {
    let (status, text) = held(&[&["--json"], args].concat());
    (status, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}:\n{text}")))
}

/// The value of each metric for a server.
pub fn metrics(text: &str, address: &str) -> Vec<(String, f64)> {
    let label = format!("{{server=\"{address}\"}} ");
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let parsed = samples.filter_map(|line| line.split_once(&label));
    parsed.map(|(name, value)| (name.to_string(), value.parse().unwrap())).collect()
}

fn metric(text: &str, address: &str, name: &str) -> f64 {
    metrics(text, address).into_iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{name}:\n{text}")).1
}

/// The keys and owners of the holds.
fn holds(document: &Value) -> Vec<(&str, &str)> {
    let holds = document["holds"].as_array().unwrap();
    holds.iter().map(|hold| (hold["key"].as_str().unwrap(), hold["owner"].as_str().unwrap())).collect()
}

#[test]
fn an_old_hold_is_found_among_a_thousand_young_ones() {
    let (server, mut conn) = Server::connected();
    let at = address(&server);
    let keys: Vec<String> = (0..1_000).map(|n| format!("young:{n}")).collect();
    let acquire = [&["LOCK.MACQUIRE", "1000"], &*keys.iter().map(String::as_str).collect::<Vec<_>>(), &["EX", "600"]];
    conn.int(&acquire.concat());
    for n in 0..5_000 {
        conn.send(&["SET", &format!("other:{n}"), "x"]);
    }
    (0..5_000).for_each(|_| drop(conn.read()));

    let (status, text) = held(&[&at]);
    assert_eq!(status, 0, "{text}");
    assert!(text.starts_with(&format!("{at}: 1000 held, 0 of them for at least 1h00m, the oldest for ")), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");

    let token = hold(&mut conn, "report", 26 * HOUR, "billing:7");
    let older = hold(&mut conn, "invoices", 50 * HOUR, "billing:8");
    hold(&mut conn, "almost", HOUR / 2, "billing:9");
    let before = conn.calls("lock.scan");
    let (status, text) = held(&[&at]);
    assert_eq!(status, 1, "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], format!("{at}: 1003 held, 2 of them for at least 1h00m, the oldest for 2d02h"));
    assert_eq!(lines[3], format!(" 2d02h  {older}  invoices by billing:8"));
    assert_eq!(lines[4], format!(" 1d02h  {token}  report by billing:7"));
    assert_eq!(lines.len(), 5, "{text}");
    let steps = conn.calls("lock.scan") - before;
    assert!((6..=14).contains(&steps), "{steps} commands for 6,003 keys");
}

#[test]
fn the_client_of_a_hold_is_named_and_its_age_is_by_the_clock_of_the_server() {
    // The server's clock is two hours behind, until it is set.
    let Some(clocks) = Clocks::new(&[-2 * HOUR, 0, 0, 0]) else { return };
    let server = clocks.of(Server::with()).start();
    let mut holder = server.conn();
    holder.int(&["LOCK.ACQUIRE", "report", "EX", "86400", "OWNER", "alice"]);
    let client = holder.int(&["CLIENT", "ID"]);
    let at = address(&server);
    assert_eq!(json(&[&at]).0, 0);
    clocks.set(0, &[0]);
    let (status, document) = json(&[&at]);
    let hold = &document["holds"][0];
    assert_eq!((status, &hold["client"]), (1, &client.into()), "{document:#}");
    assert!(hold["addr"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert!(hold["held-ms"].as_u64().unwrap() >= 7_200_000, "{document:#}");
    assert!(held(&[&at]).1.contains(&format!(" report by alice #{client} 127.0.0.1:")));
}

#[test]
fn each_old_holder_of_several_is_found_whichever_ends_last() {
    let (server, mut conn) = Server::connected();
    let tokens = share(&mut conn, "pool", &[(2 * HOUR, "old"), (1_000_000, "young"), (3 * HOUR, "older")]);
    share(&mut conn, "calm", &[(2_000_000, "carol"), (1_000_000, "dave"), (0, "erin")]);
    // The lease of an old holder has ended, but it stays in the set for a while.
    let now = server_time_us(&mut conn);
    let (token, ended) = (now - 2 * HOUR, now / 1_000_000 - 5);
    conn.int(&["ZADD", "calm", &ended.to_string(), &format!("{token} late")]);
    assert_eq!(conn.execute(&["LOCK.INFO", "calm", "FULL"]).field("holders").list().len(), 4);
    let (status, document) = json(&[&address(&server)]);
    assert_eq!((status, holds(&document)), (1, vec![("pool", "older"), ("pool", "old")]), "{document:#}");
    assert_eq!(document["holds"][0]["token"], tokens[2]);
    let shown = &document["servers"][0];
    assert_eq!((&shown["held"], &shown["held-for-too-long"]), (&2.into(), &1.into()), "a lock counts once");
}

#[test]
fn all_databases_are_sampled_or_the_named_one() {
    let (server, mut conn) = Server::connected();
    for db in ["0", "3", "9"] {
        conn.ok(&["SELECT", db]);
        hold(&mut conn, &format!("report:{db}"), 2 * HOUR, "alice");
    }
    let at = address(&server);
    let (status, document) = json(&[&at]);
    assert_eq!((status, holds(&document).len()), (1, 3), "{document:#}");
    assert!(held(&[&at]).1.contains("  3:report:3 by alice\n"));
    let (_, document) = json(&["-n", "3", &at]);
    assert_eq!((holds(&document), &document["holds"][0]["db"]), (vec![("report:3", "alice")], &3.into()));
    assert_eq!(json(&["-n", "5", &at]).0, 0);
    assert_eq!(holds(&json(&[&format!("redis://{at}/9")]).1), [("report:9", "alice")]);
}

#[test]
fn a_token_that_no_clock_gave_has_no_age() {
    let (server, mut conn) = Server::connected();
    let until = server_time_us(&mut conn) / 1_000_000 + 600;
    conn.ok(&["SET", "without", &until.to_string()]);
    conn.ok(&["SET", "forged:small", &format!("{until}.000000{:016} eve", 7)]);
    conn.ok(&["SET", "forged:large", &format!("{until}.000000{:016} eve", (1_i64 << 53) - 2)]);
    // Within a day it may be a true token, given before the clock was set back.
    hold(&mut conn, "ahead", -HOUR, "alice");
    let at = address(&server);
    let (status, document) = json(&[&at]);
    let shown = &document["servers"][0];
    assert_eq!((status, &shown["held"], &shown["of-unknown-age"]), (0, &4.into(), &3.into()), "{document:#}");
    assert_eq!(shown["oldest-held-ms"], 0);
    let (status, text) = held(&["--metrics", &at]);
    assert_eq!((status, metric(&text, &at, "lock_held_of_unknown_age")), (0, 3.0));
    assert!(metric(&text, &at, "lock_oldest_held_seconds") < 0.001, "{text}");
    assert!(held(&[&at]).1.contains("  3 of unknown age: their tokens are not the times of grants\n"));
}

#[test]
fn metrics_count_locks_and_name_none() {
    let (server, mut conn) = Server::connected();
    let at = address(&server);
    let none = ["lock_sampled", "lock_held", "lock_held_for_too_long", "lock_oldest_held_seconds"].map(String::from);
    let (status, text) = held(&["--metrics", &at]);
    let values: Vec<_> = metrics(&text, &at);
    assert_eq!(status, 0);
    assert_eq!(values.iter().map(|(_, value)| *value).collect::<Vec<_>>(), [1.0, 0.0, 0.0, 0.0, 0.0], "{text}");
    assert!(none.iter().all(|name| values.iter().any(|(known, _)| known == name)), "{text}");

    conn.int(&["LOCK.ACQUIRE", "young", "EX", "600"]);
    hold(&mut conn, "report", 2 * HOUR, "alice");
    hold(&mut conn, "invoices", 3 * HOUR, "alice");
    let gone = format!("127.0.0.1:{}", free_port());
    let (status, text) = held(&["--metrics", &at, &gone]);
    assert_eq!(status, 2);
    let value = |name: &str| metric(&text, &at, name);
    assert_eq!((value("lock_held"), value("lock_held_for_too_long"), value("lock_sampled")), (3.0, 2.0, 1.0));
    assert!(value("lock_oldest_held_seconds") >= 10_800.0, "{text}");
    assert_eq!(metrics(&text, &gone), [("lock_sampled".into(), 0.0)], "what is not known has no value");
    assert!(!text.contains("report") && !text.contains("alice"), "{text}");
    for name in none {
        let (help, kind) = (format!("# HELP {name} "), format!("# TYPE {name} gauge\n"));
        assert_eq!((text.matches(&help).count(), text.matches(&kind).count()), (1, 1), "{text}");
    }
    check_metrics(&text);
}

/// Prometheus' own promtool finds nothing wrong with the text.
fn check_metrics(text: &str) {
    let promtool = match testkit::install::promtool() {
        Ok(promtool) => promtool,
        Err(why) => return testkit::skipped("promtool check metrics", &why.replace('\n', "; ")),
    };
    let mut check = std::process::Command::new(promtool);
    let mut check = check.args(["check", "metrics"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(check.wait().unwrap().success(), "{text}");
}

#[test]
fn names_with_control_characters_are_escaped() {
    let (server, mut conn) = Server::connected();
    let (_, timestamp, rest) = old(&mut conn, 2 * HOUR, "alice");
    let key: &[u8] = b"a\x1b[2J\xff\nb";
    conn.ok(&[b"SET", key, format!("{timestamp}{rest}").as_bytes()]);
    let (status, text) = held(&[&address(&server)]);
    assert_eq!(status, 1);
    assert!(text.contains("  a\\u{1b}[2J\\xff\\nb by alice\n") && !text.contains('\x1b'), "{text}");
    assert_eq!(json(&[&address(&server)]).1["holds"][0]["key-hex"], "611b5b324aff0a62");
}

#[test]
fn a_server_that_cannot_be_asked_fails_and_hides_no_other() {
    let (server, mut conn) = Server::connected();
    hold(&mut conn, "report", 2 * HOUR, "alice");
    let (at, gone) = (address(&server), format!("127.0.0.1:{}", free_port()));
    let (status, text) = held(&[&gone, &at]);
    assert_eq!(status, 2);
    assert!(text.starts_with(&format!("{gone}: connection refused\n{at}: 1 held, 1 of them for at least")), "{text}");
    assert!(text.contains(&format!("  report on {at} by alice\n")), "{text}");
    let (status, document) = json(&[&gone, &at]);
    assert_eq!((status, &document["servers"][0]["error"]), (2, &"connection refused".into()));
    assert_eq!(holds(&document), [("report", "alice")]);

    let without = Server::with().without_module().start();
    let (status, text) = held(&[&address(&without)]);
    assert_eq!((status, text), (2, format!("{}: the module is not loaded: LOCK.SCAN is unknown\n", address(&without))));
    let (status, text) = held(&["--sentinel", "locks", &gone]);
    assert_eq!((status, text), (2, format!("locks: Sentinel {gone}: connection refused\n")));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = program(&["--held-for", "1h", &at]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "1 would be a lock");
}

#[test]
fn a_replica_leaves_its_locks_to_the_master() {
    let (server, mut conn) = Server::connected();
    let replica = Server::start();
    replica.replicate(&server);
    hold(&mut conn, "report", 2 * HOUR, "alice");
    server.wait_offset(&replica);
    let (at, there) = (address(&server), address(&replica));
    let (status, text) = held(&[&there]);
    assert_eq!((status, text), (0, format!("{there}:\n  a replica, not sampled: its master has the same locks\n")));
    assert_eq!(holds(&json(&[&at, &there]).1).len(), 1);
    assert!(!held(&["--metrics", &at, &there]).1.contains(&there));
}

#[test]
fn one_node_of_a_cluster_leads_to_the_locks_of_all_masters() {
    let cluster = Cluster::start("", "");
    cluster.wait_until_healthy();
    let keys = cluster.a_key_for_each_master("lock");
    for key in &keys {
        hold(&mut cluster.master_of(key).conn(), key, 2 * HOUR, "alice");
    }
    let port = cluster.master_of(&keys[0]).port;
    // Its own address is not the one that the cluster knows.
    let one = format!("localhost:{port}");
    let (status, document) = json(&[&one]);
    assert_eq!((status, holds(&document).len()), (1, 3), "{document:#}");
    assert_eq!(document["servers"].as_array().unwrap().len(), 3);
    assert_eq!(holds(&json(&["--only", &one]).1), [(keys[0].as_str(), "alice")]);
}

#[test]
fn only_the_oldest_thousand_holds_are_listed() {
    let (server, mut conn) = Server::connected();
    for n in 0..1_100 {
        hold(&mut conn, &format!("old:{n}"), 2 * HOUR + n * 1_000_000, "alice");
    }
    let (status, document) = json(&[&address(&server)]);
    let (shown, holds) = (&document["servers"][0], holds(&document));
    assert_eq!((status, &shown["held-for-too-long"], holds.len()), (1, &1_100.into(), 1_000));
    assert_eq!((holds[0].0, holds[999].0), ("old:1099", "old:100"));
    assert_eq!(shown["notes"][0], "more than 1000 such holds: the youngest of them are missing");
}

/// A program that replies to commands like a server. `reply` gets the words of a command.
fn imitation(reply: impl Fn(&[String]) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let stream = listener.accept().unwrap().0;
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        while let Some(count) = lines.next() {
            let count: usize = count.trim_start_matches('*').parse().unwrap();
            let words: Vec<String> = (0..count).filter_map(|_| lines.nth(1)).collect();
            (&stream).write_all(reply(&words).as_bytes()).unwrap();
        }
    });
    address
}

#[test]
fn a_key_that_is_returned_twice_counts_once_and_a_hold_that_has_ended_does_not() {
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let row = move |key: &str| {
        let fields = ["key", key, "state", "held", "token", "1600000000000000", "owner", "alice"];
        format!("*8\r\n{}", fields.map(bulk).concat())
    };
    let at = imitation(move |words| match words[0].as_str() {
        "LOCK.SCAN" if words[1] == "0" => format!("*2\r\n{}*2\r\n{}{}", bulk("7"), row("left"), row("report")),
        "LOCK.SCAN" => format!("*2\r\n{}*1\r\n{}", bulk("0"), row("report")),
        "LOCK.INFO" if words[1] == "report" => row("report"),
        "LOCK.INFO" => format!("*2\r\n{}", ["state", "free"].map(bulk).concat()),
        _ => bulk(""),
    });
    let (status, document) = json(&[&at]);
    let shown = &document["servers"][0];
    assert_eq!((status, holds(&document)), (1, vec![("report", "alice")]), "{document:#}");
    assert_eq!((&shown["held"], &shown["held-for-too-long"]), (&1.into(), &1.into()));
}
