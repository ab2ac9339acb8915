//! Runs every block of `examples/cli.md`, and `clients/shell/serverlock`, unchanged with sh.
//!
//! A `redis-cli` at the front of the PATH connects to the test's server.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use testkit::program::end_within;
use testkit::{bound, signal, temp_dir, until, write_program, Conn, Server, DEADLINE};

const DOCUMENT: &str = include_str!("../../examples/cli.md");
const SERVERLOCK: &str = include_str!("../../clients/shell/serverlock");

/// The blocks, each with the heading above it.
fn blocks() -> Vec<(&'static str, &'static str)> {
    let sections = DOCUMENT.split("\n## ").skip(1);
    let blocks_of = |section: &'static str| {
        let heading = section.lines().next().unwrap();
        let texts = section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
        texts.map(|text| (heading, text)).collect::<Vec<_>>()
    };
    sections.flat_map(blocks_of).collect()
}

/// The first block below the heading.
fn block(heading: &str) -> &'static str {
    blocks().into_iter().find(|(found, _)| *found == heading).unwrap_or_else(|| panic!("no block '{heading}'")).1
}

/// A folder with a `redis-cli` for the port, and with the script `serverlock`.
struct Shell {
    dir: PathBuf,
}

impl Shell {
    /// `None`, with a message, if there is no recent redis-cli.
    fn on(port: u16) -> Option<Self> {
        let help = Command::new("redis-cli").arg("--help").output();
        let help = help.map_or(Vec::new(), |output| [output.stdout, output.stderr].concat());
        if !String::from_utf8_lossy(&help).lines().any(|line| line.trim_start().starts_with("-e ")) {
            eprintln!("skipped: examples/cli.md: no redis-cli with -e (7.0) was found");
            return None;
        }
        let shell = Self { dir: temp_dir() };
        let path = std::env::var("PATH").unwrap();
        shell.write("redis-cli", &format!("#!/bin/sh\nPATH='{path}'\nexec redis-cli -p {port} \"$@\"\n"));
        shell.write("serverlock", SERVERLOCK);
        Some(shell)
    }

    /// Changes `serverlock`, so that a wait is shorter or a rare case happens.
    fn change(&self, changes: &[(&str, &str)]) {
        let mut text = SERVERLOCK.to_string();
        for (from, to) in changes {
            assert!(text.contains(from), "no '{from}'");
            text = text.replace(from, to);
        }
        self.write("serverlock", &text);
    }

    fn write(&self, name: &str, text: &str) {
        write_program(&self.dir.join(name), text);
    }

    fn start(&self, text: &str) -> Script {
        let path = format!("{}:{}", self.dir.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        command.args(["-c", text]).current_dir(&self.dir).env("PATH", path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Script { child: command.spawn().unwrap() }
    }

    fn run(&self, text: &str) -> Output {
        self.start(text).end()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A server, a shell for it and a connection to it; `None` if there is no recent redis-cli.
fn start() -> Option<(Server, Shell, Conn)> {
    let server = Server::start();
    let (shell, conn) = (Shell::on(server.port())?, server.conn());
    Some((server, shell, conn))
}

/// A running script, which gets a termination signal when dropped.
struct Script {
    child: Child,
}

impl Script {
    fn end(mut self) -> Output {
        drop(self.child.stdin.take());
        let status = end_within(&mut self.child, DEADLINE).expect("the script ends");
        let mut output = Output { status, stdout: Vec::new(), stderr: Vec::new() };
        self.child.stdout.take().unwrap().read_to_end(&mut output.stdout).unwrap();
        self.child.stderr.take().unwrap().read_to_end(&mut output.stderr).unwrap();
        output
    }

    fn signal(&self, name: &str) {
        assert!(signal(self.child.id(), name));
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            self.signal("TERM");
            let _ = self.child.wait();
        }
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn until_held(conn: &mut Conn) -> i64 {
    until("it is held", || (conn.state("report") == "held").then_some(()));
    conn.lock("report", "token").int()
}

#[test]
fn every_block_is_run_below() {
    let headings: Vec<&str> = blocks().into_iter().map(|(heading, _)| heading).collect();
    let run = "Acquire without waiting|Wait for a lock|Renew|Run a command under a lock|Show the holder|\
        Show the holder|Take a lock away from its holder";
    assert_eq!(headings.join("|"), run);
    assert_eq!(DOCUMENT.matches("```").count(), headings.len() * 2, "a block is not sh");
}

#[test]
fn a_try_gets_only_a_free_lock() {
    let Some((_server, shell, mut conn)) = start() else { return };
    let output = shell.run(block("Acquire without waiting"));
    let said_of_a_free_one = said(&output);
    assert!(said_of_a_free_one.starts_with("working, token 1") && said_of_a_free_one.ends_with("\n1\n"), "{output:?}");
    assert_eq!(conn.state("report"), "free");
    let token = conn.int(&["LOCK.ACQUIRE", "report", "EX", "60"]);
    assert_eq!(said(&shell.run(block("Acquire without waiting"))), "somebody else has it\n");
    assert_eq!(conn.lock("report", "token").int(), token);
    // Nothing accepts connections on this port (tcpmux).
    let Some(nowhere) = Shell::on(1) else { return };
    let output = nowhere.run(block("Acquire without waiting"));
    assert!(!output.status.success() && said(&output).is_empty(), "{output:?}");
}

#[test]
fn a_wait_is_granted_in_order_or_cancelled() {
    let Some((_server, shell, mut conn)) = start() else { return };
    let token = conn.int(&["LOCK.ACQUIRE", "report", "EX", "60"]).to_string();
    let cancelled = shell.start(block("Wait for a lock"));
    conn.until_waiters("report", 1);
    let id = conn.execute(&["LOCK.INFO", "report", "FULL"]).field("queue").list()[0].field("id").text();
    assert_eq!(conn.int(&["LOCK.CANCEL", "report", &id]), 1);
    assert_eq!(cancelled.end().status.code(), Some(75));
    let script = shell.start(block("Wait for a lock"));
    conn.until_waiters("report", 1);
    assert_eq!(conn.int(&["LOCK.RELEASE", "report", &token]), 1);
    let output = script.end();
    assert!(said(&output).starts_with("working, token 1") && said(&output).ends_with("\n1\n"), "{output:?}");
}

#[test]
fn a_renewal_extends_or_reports_a_lost_lock() {
    let Some((_server, shell, mut conn)) = start() else { return };
    let token = conn.int(&["LOCK.ACQUIRE", "report", "EX", "20"]);
    let renew = |token: i64| said(&shell.run(&format!("token={token}\n{}", block("Renew"))));
    assert_eq!(renew(token), "");
    assert!(conn.lock("report", "lease-ms").int() > 20_000);
    assert_eq!(renew(token - 1), "lost\n");
}

#[test]
fn a_command_under_a_lock_gets_its_token_and_input() {
    let Some((_server, shell, mut conn)) = start() else { return };
    let mut script = shell.start(block("Run a command under a lock"));
    let token = until_held(&mut conn);
    script.child.stdin.as_mut().unwrap().write_all(b"its input\n").unwrap();
    let output = script.end();
    assert_eq!((said(&output), output.status.code()), (format!("working, token {token}\nits input\n"), Some(0)));
    assert_eq!(conn.state("report"), "free");
    assert_eq!(shell.run("serverlock report sh -c 'exit 7'").status.code(), Some(7));
    assert_eq!(conn.state("report"), "free");
}

#[test]
fn serverlock_explains_its_usage() {
    let Some((_server, shell, mut conn)) = start() else { return };
    let help = shell.run("serverlock -h");
    assert!(help.status.success() && said(&help).starts_with("usage: serverlock "), "{help:?}");
    for arguments in [
        "",
        "report",
        "-x report true",
        "-w",
        "-w soon report true",
        "-w 08 report true",
        "-w -1 report true",
        "report --",
        "-f",
        "-c",
    ] {
        let output = shell.run(&format!("serverlock {arguments}"));
        assert_eq!(output.status.code(), Some(64), "{arguments}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("usage: serverlock "), "{output:?}");
    }
    // The environment says which server to use, and there is no wait.
    let command = format!(
        "SERVERLOCK_CLI=\"{}/redis-cli -n 3\" serverlock -w 0 report redis-cli -n 3 EXISTS report",
        shell.dir.display()
    );
    assert_eq!(said(&shell.run(&command)), "1\n");
    assert_eq!(shell.run("SERVERLOCK_CLI=false serverlock -w 0 report true").status.code(), Some(75));
    conn.int(&["LOCK.ACQUIRE", "report", "EX", "60"]);
    let since = Instant::now();
    assert_eq!(shell.run("serverlock -w 0 report true").status.code(), Some(75));
    bound::wall("a script that does not wait", Duration::from_secs(20), since.elapsed());
    assert_eq!(conn.waiters("report"), 0);
}

#[test]
fn a_file_says_while_the_lock_is_held() {
    let Some((_server, shell, mut conn)) = start() else { return };
    shell.write("old", "1 99999999999\n");
    let holds = |file: &str| shell.run(&format!("serverlock -c {file}")).status.success();
    assert!(!holds("old") && !holds("missing"), "a file that no holder wrote is valid");
    let script = shell.start("exec serverlock -f old report -- sh -c 'until [ -e off ]; do sleep 0.1; done'");
    let token = until_held(&mut conn);
    until("the file is valid", || holds("old").then_some(()));
    assert!(fs::read_to_string(shell.dir.join("old")).unwrap().starts_with(&format!("{token} ")));
    shell.write("off", "");
    assert_eq!(script.end().status.code(), Some(0));
    assert!(!shell.dir.join("old").exists());
    assert_eq!(shell.run("serverlock -f missing/file report -- true").status.code(), Some(73));
    assert_eq!(conn.state("report"), "free");
}

/// A shell misses a signal that arrives right after it starts.
#[test]
fn a_renewal_that_misses_its_signal_ends_on_its_own() {
    let Some((_server, shell, mut conn)) = start() else { return };
    shell.change(&[("kill \"$renewal\" 2>/dev/null", ":"), ("sleep 10", "sleep 1")]);
    assert_eq!(shell.run("serverlock report true").status.code(), Some(0));
    assert_eq!(conn.state("report"), "free");
}

#[test]
fn an_early_signal_frees_no_lock_in_use() {
    let Some((_server, shell, mut conn)) = start() else { return };
    shell.change(&[("setsid \"$@\"", "sh -c 'touch early; sleep 1; exec setsid \"$@\"' sh \"$@\"")]);
    let script = shell.start("exec serverlock report touch begun");
    until("it has begun to start", || shell.dir.join("early").exists().then_some(()));
    script.signal("TERM");
    assert_eq!(script.end().status.code(), Some(143));
    assert_eq!(conn.state("report"), "free");
    std::thread::sleep(Duration::from_millis(1500));
    assert!(!shell.dir.join("begun").exists(), "it ran without its lock");
}

#[test]
fn after_sigkill_the_lock_lasts_as_long_as_its_command() {
    let server = Server::with().module_args(&["margin-ms", "0"]).start();
    let Some(shell) = Shell::on(server.port()) else { return };
    let mut conn = server.conn();
    shell.change(&[("sleep 10", "sleep 1"), ("EX 30", "PX 4000")]);
    let script = shell.start("exec serverlock report sh -c 'touch on; until [ -e off ]; do sleep 0.1; done'");
    until("the command runs", || shell.dir.join("on").exists().then_some(()));
    script.signal("KILL");
    let since = Instant::now();
    until("the lease has been renewed", || {
        assert_eq!(conn.state("report"), "held");
        (since.elapsed() > Duration::from_secs(5)).then_some(())
    });
    shell.write("off", "");
    until("the lease has ended", || (conn.state("report") == "expired").then_some(()));
}

#[test]
fn a_signal_ends_the_wait_of_a_command() {
    let Some((server, shell, mut conn)) = start() else { return };
    let token = conn.int(&["LOCK.ACQUIRE", "report", "EX", "60"]).to_string();
    let script = shell.start("exec serverlock report true");
    conn.until_waiters("report", 1);
    let mut rival = server.waiter(&["LOCK.ACQUIRE", "report", "EX", "60", "WAIT", "60000", "OWNER", "rival"]);
    let since = Instant::now();
    until("it is first in the queue in a later piece of its wait", || {
        let queue = conn.execute(&["LOCK.INFO", "report", "FULL"]).field("queue");
        let head = queue.list().first()?;
        let is_first = !head.field("id").is_nil() && head.field("left-ms").int() > 1_000;
        (since.elapsed() > Duration::from_secs(3) && is_first).then_some(())
    });
    let gone = shell.start("exec serverlock report true");
    conn.until_waiters("report", 3);
    gone.signal("TERM");
    assert_eq!(gone.end().status.code(), Some(143));
    conn.until_waiters("report", 2);
    assert_eq!(conn.int(&["LOCK.RELEASE", "report", &token]), 1);
    assert_eq!(script.end().status.code(), Some(0));
    assert!(rival.read().int() > token.parse().unwrap());
}

#[test]
fn a_signal_ends_the_command_and_frees_its_lock() {
    let Some((_server, shell, mut conn)) = start() else { return };
    // It leaves a child that ignores the signal.
    let deaf = "(trap \"\" TERM; exec sleep 60) &";
    let traps = "trap \"echo told; exit\" TERM; touch on; wait";
    let script = shell.start(&format!("exec serverlock report sh -c '{deaf} {traps}'"));
    until("the command runs", || shell.dir.join("on").exists().then_some(()));
    let since = Instant::now();
    script.signal("TERM");
    let output = script.end();
    bound::wall("a script that leaves a command behind", Duration::from_secs(40), since.elapsed());
    assert_eq!((said(&output).as_str(), output.status.code()), ("told\n", Some(143)), "{output:?}");
    assert_eq!(conn.state("report"), "free");
}

/// Both cases run in parallel, because the script takes half a minute to find out.
#[test]
fn a_command_that_loses_its_lock_is_stopped_in_time() {
    std::thread::scope(|scope| {
        scope.spawn(a_lock_is_taken_away_and_the_successor_is_left_alone);
        scope.spawn(the_server_stands_still);
    });
}

fn a_lock_is_taken_away_and_the_successor_is_left_alone() {
    let Some((_server, shell, mut conn)) = start() else { return };
    let script = shell.start("exec serverlock report sh -c 'touch on; sleep 60'");
    until("the command runs", || shell.dir.join("on").exists().then_some(()));
    assert_eq!(said(&shell.run(block("Take a lock away from its holder"))), "1\n");
    let token = conn.int(&["LOCK.ACQUIRE", "report", "EX", "60"]);
    let output = script.end();
    assert_eq!(output.status.code(), Some(75));
    assert!(String::from_utf8_lossy(&output.stderr).contains("the lock report is lost"), "{output:?}");
    assert_eq!(conn.lock("report", "token").int(), token);
}

fn the_server_stands_still() {
    let Some((server, shell, mut conn)) = start() else { return };
    let script =
        shell.start("exec serverlock report sh -c 'trap \"touch ended; exit\" TERM; touch on; sleep 60 & wait'");
    until("the command runs", || shell.dir.join("on").exists().then_some(()));
    let end = until("the server is stopped soon after a renewal", || {
        let asked = Instant::now();
        let left_ms = conn.lock("report", "lease-ms").int();
        if left_ms < 25_000 {
            return None;
        }
        server.signal("STOP");
        // The script renews every ten seconds and has not extended the lease yet.
        if asked.elapsed() < Duration::from_secs(4) {
            return Some(asked + Duration::from_millis(left_ms.try_into().unwrap()));
        }
        server.signal("CONT");
        None
    });
    while !shell.dir.join("ended").exists() {
        assert!(Instant::now() < end, "the command is still running when its lease has ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    server.signal("CONT");
    assert_eq!(script.end().status.code(), Some(75));
}

#[test]
fn holders_are_shown_in_columns_and_as_json() {
    let Some((server, shell, mut conn)) = start() else { return };
    let token = conn.int(&["LOCK.ACQUIRE", "report", "EX", "60", "OWNER", "alice"]);
    let _waiter = server.waiter(&["LOCK.ACQUIRE", "report", "EX", "60", "WAIT", "60000", "OWNER", "bob"]);
    let columns = said(&shell.run(block("Show the holder")));
    for line in ["state\theld", &format!("token\t{token}"), "owner\talice", "waiters\t1", "overdue-ms\t"] {
        assert!(columns.lines().any(|found| found == line), "{line}: {columns}");
    }
    let json = said(&shell.run(blocks()[5].1));
    let replies: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(member(&replies[0], "owner"), "alice");
    assert_eq!(member(&member(&replies[0], "queue")[0], "owner"), "bob");
    assert_eq!((member(&replies[1][0], "key"), member(&replies[1][0], "waiters")), (&"report".into(), &1.into()));
}

/// A field of an object, or of the array of names and values that servers before 7.0 reply with.
fn member<'a>(map: &'a Value, name: &str) -> &'a Value {
    let flat = map.as_array().and_then(|flat| flat.chunks(2).find(|pair| pair[0] == name));
    flat.map_or_else(|| &map[name], |pair| &pair[1])
}
