//! How long a server does nothing else while many clients begin to wait, disconnect, or are sent away by a demotion.
//!
//! Meanwhile, another connection sends one PING after another; the longest of them is about as long as the longest
//! iteration of the event loop. BLPOP does the same for comparison: a pause that is as long with BLPOP is the server's
//! own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::crowd::{blocked, sizes, Crowd, Way, WAYS};
use super::Row;
use crate::bounds::list::{verdict, LONGEST_PAUSE_US};
use crate::measure::state::State;
use crate::measure::{info, median, print_table, Settings};
use testkit::{until, Conn, Server};

const PARTS: [&str; 3] = ["pause: join", "pause: disconnect", "pause: demotion"];
/// The system itself delays processes too, so more rounds than these add little.
const MOST_ROUNDS: usize = 5;

/// Runs `work`. Returns the longest time that a PING took while it ran.
fn longest_ping(server: &Server, work: impl FnOnce()) -> Duration {
    let mut conn = server.conn();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let pings = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !is_done.load(Ordering::Relaxed) {
                let start = Instant::now();
                assert_eq!(conn.text(&["PING"]), "PONG");
                longest = longest.max(start.elapsed());
            }
            longest
        });
        work();
        is_done.store(true, Ordering::Relaxed);
        pings.join().expect("PING is answered")
    })
}

fn until_blocked(conn: &mut Conn, count: usize) {
    // INFO takes the server some time too: do not send it constantly.
    until("that many wait", || {
        thread::sleep(Duration::from_millis(20));
        (blocked(conn) == count).then_some(())
    });
}

/// The waiting clients, and the longest PING while they began to wait.
fn joined(server: &Server, conn: &mut Conn, way: Way, size: usize) -> (Crowd, Duration) {
    let mut crowd = Crowd::new(server, way, size);
    crowd.take(server);
    let longest = longest_ping(server, || {
        for at in 1..=size {
            crowd.ask(at);
        }
        until_blocked(conn, size);
    });
    (crowd, longest)
}

/// The longest PING of each part, for one way of waiting.
fn pauses(way: Way, size: usize) -> [Duration; 3] {
    let args = ["--maxclients", "10100"];
    let server = Server::with().args(&args).module_args(&["max-waiters", "20000"]).start();
    let mut conn = server.conn();
    let (crowd, join) = joined(&server, &mut conn, way, size);
    let disconnect = longest_ping(&server, || {
        drop(crowd);
        until("all are gone", || {
            thread::sleep(Duration::from_millis(20));
            (info::<usize>(&mut conn, "clients", "connected_clients") <= 3).then_some(())
        });
    });
    conn.ok(&["FLUSHALL"]);
    let (crowd, _) = joined(&server, &mut conn, way, size);
    let demotion = longest_ping(&server, || {
        // A nonexistent master: only the change of role matters.
        conn.ok(&["REPLICAOF", "127.0.0.1", "1"]);
        until_blocked(&mut conn, 0);
    });
    drop(crowd);
    [join, disconnect, demotion]
}

/// Measures and prints.
pub fn measure(settings: &Settings) -> Vec<Row> {
    let Some(size) = sizes(settings).pop() else { return Vec::new() };
    let mut rows = Vec::new();
    let mut found: Vec<[Vec<f64>; 2]> = PARTS.iter().map(|_| [Vec::new(), Vec::new()]).collect();
    for round in 1..=settings.rounds.min(MOST_ROUNDS) {
        for (at, way) in WAYS.iter().enumerate() {
            for (nth, pause) in pauses(*way, size).into_iter().enumerate() {
                let us = pause.as_secs_f64() * 1e6;
                found[nth][at].push(us);
                let (part, contender, place) = (PARTS[nth], way.name().into(), at + 1);
                let values = vec![("max_us", us)];
                rows.push(Row { part, state: State::NoSink, clients: size, contender, round, place, values });
            }
        }
        eprintln!("pause: round {round}");
    }
    let mut table = Vec::new();
    for (part, [ours, queue]) in PARTS.iter().zip(&found) {
        let (ours, queue) = (median(ours.iter().copied()), median(queue.iter().copied()));
        let verdict = verdict(ours, Some(LONGEST_PAUSE_US)).to_string();
        let ms = |us: f64| format!("{:.1}", us / 1_000.0);
        table.push(vec![(*part).into(), ms(ours), ms(queue), ms(LONGEST_PAUSE_US), verdict]);
    }
    println!("\nThe longest PING in ms while {size} clients");
    print_table(1, &["clients", "LOCK.*", "BLPOP", "at most", "verdict"], &table);
    rows
}
