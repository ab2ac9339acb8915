//! The story from the documentation of SETNX, on a server of its own: how the home-made lock ends up with two holders,
//! and LOCK.* does not. Every claim that it prints is also asserted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::arithmetic_side_effects)]

use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{server_time_us, until, Conn, Reply, Server};

const LOCK: &str = "lock.foo";

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, role, port, mode] = args.as_slice() {
        assert_eq!(role, "worker");
        return worker(port.parse().expect("a port"), mode == "locked");
    }
    let server = Server::start();
    println!("A Redis server of its own, with the module, on port {}.", server.port());
    hand_made(&server);
    with_the_module(&server);
    counter(&server);
    println!("\nDone: all of the above was also asserted.");
}

fn title(text: &str) {
    println!("\n=== {text} ===\n");
}

/// A client in the story, which prints its commands and their replies.
struct Client {
    name: &'static str,
    conn: Conn,
}

impl Client {
    fn new(server: &Server, name: &'static str) -> Self {
        Self { name, conn: server.conn() }
    }

    fn send(&mut self, command: &str) -> Reply {
        let reply = self.conn.execute(&command.split(' ').collect::<Vec<_>>());
        println!("{}", line(self.name, command, &reply));
        reply
    }
}

/// A command and its reply, as printed.
fn line(name: &str, command: &str, reply: &Reply) -> String {
    format!("  {name:<3} > {command:<44} {}", shown(reply))
}

fn shown(reply: &Reply) -> String {
    match reply {
        Reply::Nil => "(nil)".into(),
        Reply::Int(number) => number.to_string(),
        Reply::Text(_) => format!("\"{}\"", reply.text()),
        Reply::Status(text) => text.clone(),
        Reply::List(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", ")),
        other => format!("{other:?}"),
    }
}

/// The pattern written by hand, with the mistake that its documentation warns about.
fn hand_made(server: &Server) {
    title("1. The lock written by hand: SETNX, and DEL when it has expired");
    let mut c3 = Client::new(server, "C3");
    println!("C3 takes the lock: the key holds the time at which it ends, a second from now. Then C3 dies.");
    let timestamp = server_time_us(&mut c3.conn) / 1_000_000 + 1;
    assert_eq!(c3.send(&format!("SETNX {LOCK} {timestamp}")), Reply::Int(1));
    drop(c3);
    println!("  C3  is gone. It never released the lock.");

    let (mut c1, mut c2) = (Client::new(server, "C1"), Client::new(server, "C2"));
    until("the lock has expired", || (server_time_us(&mut c1.conn) / 1_000_000 > timestamp).then_some(()));
    println!("\nC1 and C2 both find that the lock has expired.");
    for client in [&mut c1, &mut c2] {
        assert_eq!(client.send(&format!("GET {LOCK}")).text(), timestamp.to_string());
    }
    let later = timestamp + 60;
    println!("\nC1 is quick: it deletes the expired lock and takes it.");
    let c1_deleted = c1.send(&format!("DEL {LOCK}"));
    let c1_has_it = c1.send(&format!("SETNX {LOCK} {later}"));
    println!("\nC2 is a moment late and does the same. What it deletes is C1's new lock.");
    let c2_deleted = c2.send(&format!("DEL {LOCK}"));
    let c2_has_it = c2.send(&format!("SETNX {LOCK} {later}"));
    for reply in [c1_deleted, c1_has_it, c2_deleted, c2_has_it] {
        assert_eq!(reply, Reply::Int(1));
    }
    println!("\n=> SETNX told both that they have it: C1 and C2 BOTH HOLD THE LOCK.");
    c1.send(&format!("DEL {LOCK}"));
}

/// The same story with LOCK.*.
fn with_the_module(server: &Server) {
    title("2. The same with LOCK.*");
    let mut c3 = Client::new(server, "C3");
    println!("C3 takes the lock for half a second. The reply is its token: the number of this grant.");
    let old_token = c3.send(&format!("LOCK.ACQUIRE {LOCK} PX 500 OWNER C3")).int();
    drop(c3);
    println!("  C3  is gone. It never released the lock.");

    println!("\nThe lease ends, and then the margin: others wait one second longer than the lease.");
    let mut watcher = Client::new(server, "ops");
    let request = ["LOCK.INFO", LOCK];
    until("the lock has expired", || (watcher.conn.execute(&request).field("state").text() == "expired").then_some(()));
    println!("  ops > {}", request.join(" "));
    for pair in watcher.conn.execute(&request).list().chunks(2).filter(|pair| !pair[1].is_nil()) {
        println!("          {:<14} {}", pair[0].text(), shown(&pair[1]));
    }

    println!("\nC1, C2, C4 and C5 find it at the same moment and race.");
    let winner = race(server, old_token);

    println!("\nC3 comes back from its long sleep and still believes that it holds the lock.");
    let mut c3 = Client::new(server, "C3");
    assert_eq!(c3.send(&format!("LOCK.CHECK {LOCK} {old_token}")), Reply::Int(0));
    assert_eq!(c3.send(&format!("LOCK.EXTEND {LOCK} {old_token} EX 10")), Reply::Int(0));
    assert_eq!(c3.send(&format!("LOCK.RELEASE {LOCK} {old_token}")), Reply::Int(0));
    let info = watcher.conn.execute(&request);
    assert_eq!(info.field("owner").text(), winner.0);
    println!("=> Three times 0: that grant has ended and nothing has changed, {} still holds the lock.", winner.0);

    println!("\nThe holder releases it: 1 says that it was in time.");
    let mut holder = Client::new(server, winner.0);
    assert_eq!(holder.send(&format!("LOCK.RELEASE {LOCK} {}", winner.1)), Reply::Int(1));
}

/// Four clients try to take the expired lock at once. Returns the winner's name and token.
fn race(server: &Server, old_token: i64) -> (&'static str, i64) {
    let start = Arc::new(Barrier::new(4));
    let runners: Vec<_> = ["C1", "C2", "C4", "C5"]
        .into_iter()
        .map(|name| {
            let (mut conn, start) = (server.conn(), Arc::clone(&start));
            thread::spawn(move || {
                let request = ["LOCK.RECOVER", LOCK, "EX", "60", "OWNER", name];
                start.wait();
                let reply = conn.execute(&request);
                (name, request.join(" "), reply)
            })
        })
        .collect();
    let replies: Vec<_> = runners.into_iter().map(|runner| runner.join().unwrap()).collect();
    for (name, request, reply) in &replies {
        println!("{}", line(name, request, reply));
    }
    let mut granted = replies.iter().filter(|(_, _, reply)| !reply.is_nil());
    let (winner, _, details) = granted.next().expect("one of them gets the lock");
    assert!(granted.next().is_none(), "two got the lock: {replies:?}");
    let [token, overdue_ms, previous_token, previous_owner] = details.list() else {
        panic!("not the four details: {details:?}");
    };
    assert!(token.int() > old_token && overdue_ms.int() >= 0);
    assert_eq!((previous_token.int(), previous_owner.text().as_str()), (old_token, "C3"));
    println!("=> EXACTLY ONE GOT IT: {winner}, with token {}, larger than the one before.", token.int());
    println!(
        "   It knows that it follows {}, who had token {old_token} and is {} ms overdue:",
        previous_owner.text(),
        overdue_ms.int()
    );
    println!("   that work may be half done.");
    (winner, token.int())
}

const PROCESSES: i64 = 8;
const ROUNDS: i64 = 500;
/// A worker's command to get its turn.
const ACQUIRE: &[&str] = &["LOCK.ACQUIRE", "lock.counter", "EX", "10"];

fn counter(server: &Server) {
    title("3. Eight processes, 500 times each: read a counter, add one, write it back");
    let expected = PROCESSES * ROUNDS;
    println!("  GET counter; SET counter <that + 1>             without a lock");
    let (found, took) = run_workers(server, "unlocked");
    println!("=> The counter says {found} instead of {expected}: {} UPDATES LOST ({took:.1?}).", expected - found);
    assert!(found < expected, "nothing was lost without a lock: the demo shows nothing");

    println!("\n  {}; GET; SET; LOCK.RELEASE lock.counter <token>", ACQUIRE.join(" "));
    let (found, took) = run_workers(server, "locked");
    println!("=> The counter says {found}: {} UPDATES LOST ({took:.1?}).", expected - found);
    assert_eq!(found, expected);
}

/// Runs the workers to completion. Returns the counter and the time taken.
fn run_workers(server: &Server, mode: &str) -> (i64, Duration) {
    let mut conn = server.conn();
    conn.ok(&["SET", "counter", "0"]);
    let mut workers: Vec<Child> = (0..PROCESSES)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["worker", &server.port().to_string(), mode])
                .stdin(Stdio::piped())
                .spawn()
                .expect("this program can be started again")
        })
        .collect();
    // All are connected; the end of their input starts them.
    let all = Reply::Text(PROCESSES.to_string().into_bytes());
    until("all workers are ready", || (conn.execute(&["GET", "ready"]) == all).then_some(()));
    let start = Instant::now();
    for worker in &mut workers {
        drop(worker.stdin.take());
    }
    for mut worker in workers {
        assert!(worker.wait().unwrap().success(), "a worker failed");
    }
    let took = start.elapsed();
    conn.execute(&["DEL", "ready"]);
    (conn.text(&["GET", "counter"]).parse().unwrap(), took)
}

/// One of the processes.
fn worker(port: u16, locked: bool) {
    let mut conn = Conn::to(port).expect("the demo's server accepts");
    conn.int(&["INCR", "ready"]);
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
    for _ in 0..ROUNDS {
        let token = locked.then(|| acquire(&mut conn));
        let counter: i64 = conn.text(&["GET", "counter"]).parse().unwrap();
        conn.ok(&["SET", "counter", &(counter + 1).to_string()]);
        if let Some(token) = token {
            assert_eq!(conn.int(&["LOCK.RELEASE", "lock.counter", &token]), 1);
        }
    }
}

/// Asks until the lock is granted. Returns the token.
fn acquire(conn: &mut Conn) -> String {
    loop {
        match conn.execute(ACQUIRE) {
            Reply::Nil => thread::sleep(Duration::from_millis(1)),
            token => return token.int().to_string(),
        }
    }
}
