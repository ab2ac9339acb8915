//! A million waits without a connection: their memory, their cost while nothing happens, a hand-off with all of them
//! behind it, and the longest time during which the server answers nobody while they join, are cancelled, and end.
//!
//! Each size has its own server. A probe sends PING constantly; the slowest reply is an upper bound on the longest
//! event-loop iteration, because the probe waits for a CPU too.

use crate::measure::callgrind::Callgrind;
use crate::measure::state::State;
use crate::measure::{argument, info, print_table, Call, Origin, Pipe, ServerCpu, Settings};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::{until, Conn, Options, Server};

const ROUNDS: usize = 1;
/// Hand-offs that are measured.
const OPERATIONS: usize = 5_000;
/// Hand-offs whose instructions are counted.
const COUNTED: usize = 300;
const AT_ONCE: usize = 500;
const CHANNEL: &str = "c";

/// Keys and waits.
const SIZES: [(usize, usize); 3] = [(1, 10), (1, 1_000_000), (100_000, 1_000_000)];

fn options() -> Options {
    Server::with().module_args(&["max-queued", "2000000", "claim-ms", "3600000"])
}

/// One line of the raw file; unmeasured columns stay empty.
#[derive(Default)]
struct Row {
    keys: usize,
    waits: usize,
    bytes_each: f64,
    idle_per_mille: f64,
    hand_off_ns: f64,
    instructions: Option<f64>,
    slowest_us: [f64; 4],
}

const PHASES: [&str; 4] = ["join", "hand off", "cancel", "demote"];

impl Row {
    fn line(&self) -> String {
        let Self { keys, waits, bytes_each, idle_per_mille, hand_off_ns, instructions, slowest_us } = self;
        let instructions = instructions.map_or(String::new(), |instructions| format!("{instructions:.0}"));
        let slowest: Vec<String> = slowest_us.iter().map(|us| format!("{us:.0}")).collect();
        format!(
            "{keys},{waits},{bytes_each:.1},{idle_per_mille:.2},{hand_off_ns:.0},{instructions},{}",
            slowest.join(",")
        )
    }
}

fn key(number: usize) -> String {
    format!("k{number}")
}

/// One server's waits, and a subscriber that claims for them.
struct Crowd {
    conn: Conn,
    subscriber: Conn,
    token: String,
    keys: usize,
    last_id: u64,
}

impl Crowd {
    fn hold(server: &Server, keys: usize) -> Self {
        let mut conn = server.conn();
        let mut subscriber = server.conn();
        subscriber.send(&["SUBSCRIBE", CHANNEL]);
        subscriber.read();
        let token = conn.int(&["LOCK.ACQUIRE", &key(0), "PX", "86400000"]).to_string();
        let mut pipe = Pipe::to(server);
        for first in (1..keys).step_by(AT_ONCE) {
            let end = keys.min(first + AT_ONCE);
            for number in first..end {
                add(&mut pipe, &["LOCK.ACQUIRE", &key(number), "PX", "86400000"]);
            }
            pipe.flush();
            pipe.replies(end - first, |_, reply| assert!(reply.starts_with(b":")));
        }
        Self { conn, subscriber, token, keys, last_id: 1_000_000_000_000_000_000 }
    }

    fn join(&mut self, server: &Server, waits: usize) {
        let mut pipe = Pipe::to(server);
        for first in (0..waits).step_by(AT_ONCE) {
            let end = waits.min(first + AT_ONCE);
            for wait in first..end {
                let id = self.next_id();
                let key = key(wait % self.keys);
                let words = ["LOCK.ACQUIRE", &key, "PX", "86400000", "WAIT", "3600000", "ID", &id, "NOTIFY", CHANNEL];
                add(&mut pipe, &words);
            }
            pipe.flush();
            pipe.replies(end - first, |_, reply| assert_eq!(reply, b"+WAITING"));
        }
    }

    /// IDs are random in practice, so these are not in order either.
    fn next_id(&mut self) -> String {
        self.last_id = self.last_id.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.last_id >> 1).to_string()
    }

    /// RELEASE, the message, the claim; the attempt that leaves is replaced.
    fn hand_off(&mut self) {
        assert_eq!(self.conn.int(&["LOCK.RELEASE", &key(0), &self.token]), 1);
        let message = self.subscriber.read().list()[2].text();
        let id = message.split(' ').nth(1).expect("granted <id> <key>");
        let ask = ["LOCK.ACQUIRE", "k0", "PX", "86400000", "WAIT", "3600000", "ID", id, "NOTIFY", CHANNEL];
        self.token = self.conn.int(&ask).to_string();
        let id = self.next_id();
        let ask = ["LOCK.ACQUIRE", "k0", "PX", "86400000", "WAIT", "3600000", "ID", &id, "NOTIFY", CHANNEL];
        assert_eq!(self.conn.text(&ask), "WAITING");
    }
}

fn add(pipe: &mut Pipe, words: &[&str]) {
    pipe.add(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        pipe.add(&argument(word.as_bytes()));
    }
}

/// Sends PING constantly and records the slowest reply.
struct Probe {
    slowest_us: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Probe {
    fn of(server: &Server) -> Self {
        let (slowest_us, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (slowest, over, mut conn) = (Arc::clone(&slowest_us), Arc::clone(&is_over), server.conn());
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let sent = Instant::now();
                conn.text(&["PING"]);
                slowest.fetch_max(u64::try_from(sent.elapsed().as_micros()).unwrap(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        Self { slowest_us, is_over }
    }

    fn during(&self, work: impl FnOnce()) -> f64 {
        self.slowest_us.store(0, Ordering::Relaxed);
        work();
        self.slowest_us.load(Ordering::Relaxed) as f64
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn waiters(conn: &mut Conn) -> usize {
    info(conn, "lock", "lock_waiters")
}

fn measure_size(settings: &Settings, keys: usize, waits: usize) -> Row {
    let server = options().start();
    let mut crowd = Crowd::hold(&server, keys);
    let mut conn = server.conn();
    let mut cpu = ServerCpu::of(&server);
    let before: f64 = info(&mut conn, "memory", "used_memory");
    let probe = Probe::of(&server);
    let mut row = Row { keys, waits, ..Row::default() };
    row.slowest_us[0] = probe.during(|| crowd.join(&server, waits));
    row.bytes_each = (info::<f64>(&mut conn, "memory", "used_memory") - before) / waits as f64;
    drop(probe);
    let idle = Duration::from_secs(if settings.smoke { 1 } else { 10 });
    std::thread::sleep(Duration::from_millis(300));
    cpu.used();
    let used = cpu.used();
    std::thread::sleep(idle);
    row.idle_per_mille = cpu.used().checked_sub(used).unwrap().as_secs_f64() * 1_000.0 / idle.as_secs_f64();
    let used = cpu.used();
    (0..settings.operations).for_each(|_| crowd.hand_off());
    row.hand_off_ns = cpu.used().checked_sub(used).unwrap().as_nanos() as f64 / settings.operations as f64;
    let probe = Probe::of(&server);
    row.slowest_us[1] = probe.during(|| (0..settings.operations.min(2_000)).for_each(|_| crowd.hand_off()));
    // Half of them are cancelled through their channel; the rest end when the server becomes a replica.
    let left = waits - waits.div_ceil(keys) * keys.div_ceil(2).min(keys);
    row.slowest_us[2] = probe.during(|| {
        if keys > 1 {
            for number in 0..keys / 2 {
                conn.int(&["LOCK.CANCEL", &key(number), "CHANNEL", CHANNEL]);
            }
            until("the cancelled ones have left", || (waiters(&mut conn) <= left + keys).then_some(()));
        }
    });
    row.slowest_us[3] = probe.during(|| {
        conn.ok(&["REPLICAOF", "127.0.0.1", "1"]);
        until("all have left", || (info::<usize>(&mut conn, "lock", "lock_waiters") == 0).then_some(()));
        std::thread::sleep(Duration::from_secs(if settings.smoke { 0 } else { 3 }));
    });
    row
}

/// The instructions of a hand-off with this many waits behind it.
fn count(keys: usize, waits: usize) -> Result<f64, String> {
    let mut callgrind = Callgrind::start(State::NoSink, options())?;
    let mut crowd = Crowd::hold(&callgrind.server, keys);
    crowd.join(&callgrind.server, waits);
    (0..20).for_each(|_| crowd.hand_off());
    let instructions = callgrind.count(|| (0..COUNTED).for_each(|_| crowd.hand_off()))?;
    Ok(instructions / COUNTED as f64)
}

pub fn measure(call: &Call) {
    let settings = call.settings(ROUNDS, OPERATIONS);
    let server = options().start();
    let origin = Origin::of("queued", &server, &settings)
        .with("cpu time", ServerCpu::of(&server).source())
        .with("rounds", settings.rounds)
        .with("hand-offs", settings.operations)
        .printed();
    drop(server);
    let mut rows = Vec::new();
    for (keys, waits) in SIZES {
        let (keys, waits) = if settings.smoke { (keys.min(20), waits.min(200)) } else { (keys, waits) };
        let mut row = measure_size(&settings, keys, waits);
        row.instructions = if settings.smoke {
            None
        } else {
            count(keys, waits).inspect_err(|why| eprintln!("skipped: instructions: {why}")).ok()
        };
        rows.push(row);
    }
    print(&rows);
    let lines: Vec<String> = rows.iter().map(Row::line).collect();
    let phases = PHASES.map(|phase| format!("{}_slowest_us", phase.replace(' ', "_")));
    let header = format!("keys,waits,bytes_each,idle_per_mille,hand_off_ns,instructions,{}", phases.join(","));
    origin.keep(&header, &lines);
}

fn print(rows: &[Row]) {
    let ms = |us: f64| format!("{:.1}", us / 1_000.0);
    let table: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let mut cells = vec![
                row.keys.to_string(),
                row.waits.to_string(),
                format!("{:.0}", row.bytes_each),
                format!("{:.2}", row.idle_per_mille / 10.0),
                format!("{:.1}", row.hand_off_ns / 1_000.0),
                row.instructions.map_or(String::new(), |instructions| format!("{instructions:.0}")),
            ];
            cells.extend(row.slowest_us.map(ms));
            cells
        })
        .collect();
    let header = [
        "keys",
        "waits",
        "bytes each",
        "idle, % of a core",
        "hand-off, µs of CPU",
        "instructions",
        "slowest PING while they join, ms",
        "hand off",
        "are cancelled",
        "are demoted",
    ];
    print_table(0, &header, &table);
}
