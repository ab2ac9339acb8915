//! The memory of a held lock: a lock taken with LOCK.ACQUIRE against a key set with SET NX PX and a token of 36 bytes;
//! and the memory of other things that the module remembers.
//!
//! Measures how much `used_memory` grows with 100,000 of them, including all of the module's own memory. Every
//! measurement has its own server, so that no freed memory is reused.

use crate::bounds::list::{at_most, verdict, MEMORY, OURS};
use crate::measure::state::State;
use crate::measure::{argument, info, median, print_table, Call, Origin, Pipe, Ratio};
use std::time::{Duration, Instant};
use testkit::{Conn, Reply, Server};

const ROUNDS: usize = 3;
const KEYS: usize = 100_000;
const AT_ONCE: usize = 1_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Lock,
    Set,
    /// With an ID and an OWNER of 20 bytes.
    Named,
    /// With SESSION.
    Session,
    /// One of ten holders of a shared lock.
    Holder,
    /// The place of an attempt whose wait has ended.
    Place,
}

const WAYS: [(Way, &str); 6] = [
    (Way::Lock, OURS),
    (Way::Set, "SET NX PX, 36 bytes"),
    (Way::Named, "LOCK.* with ID and OWNER, 20 bytes"),
    (Way::Session, "LOCK.* with SESSION"),
    (Way::Holder, "a holder among ten"),
    (Way::Place, "a reserved place"),
];
/// The key that the attempts with a place waited for.
const AWAITED: &str = "bench:awaited";

fn name(number: usize) -> String {
    format!("bench:lock:{number:08}")
}

impl Way {
    /// Takes the locks from `first` to before `end`.
    fn take(self, pipe: &mut Pipe, first: usize, end: usize) {
        for number in first..end {
            let (key, secret) = (name(number), format!("3f2b8c1e-9d47-4a06-b5e2-{number:012}"));
            let (shared, id) = (name(number / 10), (1_000_000_000 + number).to_string());
            let words: &[&str] = match self {
                Way::Lock => &["LOCK.ACQUIRE", &key, "PX", "600000"],
                Way::Set => &["SET", &key, &secret, "NX", "PX", "600000"],
                Way::Named => &["LOCK.ACQUIRE", &key, "PX", "600000", "ID", &id, "OWNER", "host-07.example:12345"],
                Way::Session => &["LOCK.ACQUIRE", &key, "PX", "600000", "SESSION"],
                Way::Holder => &["LOCK.ACQUIRE", &shared, "PX", "600000", "SHARED"],
                Way::Place => &["LOCK.ACQUIRE", AWAITED, "PX", "600000", "WAIT", "1", "ID", &id, "NOTIFY", "bench"],
            };
            pipe.add(format!("*{}\r\n", words.len()).as_bytes());
            for word in words {
                pipe.add(&argument(word.as_bytes()));
            }
        }
        pipe.flush();
        pipe.replies(end - first, |_, reply| match self {
            Way::Set => assert_eq!(reply, b"+OK"),
            Way::Place => assert_eq!(reply, b"+WAITING"),
            _ => assert!(reply.starts_with(b":")),
        });
    }
}

/// `used_memory`, once stable: tables of keys are moved bit by bit, and buffers are freed after a while.
fn settled(conn: &mut Conn, quiet: Duration) -> u64 {
    let used = |conn: &mut Conn| -> u64 { info(conn, "memory", "used_memory") };
    let end = Instant::now() + 20 * quiet;
    let (mut last, mut since) = (used(conn), Instant::now());
    while since.elapsed() < quiet && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50));
        let now = used(conn);
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last
}

/// Bytes of `used_memory` for each, and MEMORY USAGE of one key.
fn grown_by(way: Way, keys: usize, quiet: Duration) -> (f64, f64) {
    let server = Server::start();
    let mut conn = server.conn();
    if way == Way::Place {
        conn.ok(&["CONFIG", "SET", "lock.place-ms", "600000", "lock.max-queued", "1000000"]);
        conn.int(&["LOCK.ACQUIRE", AWAITED, "PX", "600000"]);
    }
    // One-time allocations of the server and the module come before the count.
    let mut pipe = Pipe::to(&server);
    way.take(&mut pipe, 0, AT_ONCE.min(keys));
    drop(pipe);
    if way != Way::Place {
        conn.ok(&["FLUSHALL"]);
    }
    let before = settled(&mut conn, quiet);
    let mut pipe = Pipe::to(&server);
    let offset = if way == Way::Place { AT_ONCE } else { 0 };
    for first in (0..keys).step_by(AT_ONCE) {
        way.take(&mut pipe, offset + first, offset + (first + AT_ONCE).min(keys));
    }
    // Sessions end with their connection, so it stays open; otherwise it is closed, and its buffers are not counted.
    let _open = (way == Way::Session).then_some(pipe);
    let grown = settled(&mut conn, quiet).saturating_sub(before);
    // Less than a tenth of a byte is a buffer, not a key.
    let each = (grown as f64 / keys as f64 * 10.0).round() / 10.0;
    let usage = match conn.execute(&["MEMORY", "USAGE", &name(0)]) {
        Reply::Int(bytes) => bytes as f64,
        _ => 0.0,
    };
    (each, usage)
}

pub fn measure(call: &Call) {
    let settings = call.settings(ROUNDS, KEYS);
    let quiet = Duration::from_millis(if settings.smoke { 0 } else { 1_500 });
    let origin = Origin::of("memory", &Server::start(), &settings)
        .with("rounds", format!("{}, each with new servers", settings.rounds))
        .with("keys", settings.operations)
        .printed();
    let mut rows = Vec::new();
    let mut measured: [Vec<(f64, f64)>; WAYS.len()] = Default::default();
    for round in 1..=settings.rounds {
        for (at, (way, name)) in WAYS.iter().enumerate() {
            let (each, usage) = grown_by(*way, settings.operations, quiet);
            measured[at].push((each, usage));
            rows.push(format!("\"{name}\",{round},{},{each:.1},{usage}", settings.operations));
        }
        eprintln!("round {round} of {}", settings.rounds);
    }
    let used = |at: usize| measured[at].iter().map(|both| both.0).collect::<Vec<_>>();
    let mut table = Vec::new();
    for (at, (_, name)) in WAYS.iter().enumerate() {
        let usage = median(measured[at].iter().map(|both| both.1));
        table.push(vec![(*name).into(), format!("{:.1}", median(used(at))), format!("{usage:.0}")]);
    }
    print_table(1, &["a held lock", "used_memory, bytes", "MEMORY USAGE"], &table);
    if let Some(ratio) = Ratio::of(&used(0), &used(1)) {
        let bound = at_most(MEMORY, WAYS[1].1, State::NoSink, origin.server());
        println!("ratio {:.3}, {}", ratio.median, verdict(ratio.median, bound));
    }
    origin.keep("contender,round,keys,used_memory_bytes,memory_usage_bytes", &rows);
}
