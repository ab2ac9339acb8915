//! One client process of the hot lock: takes it and releases it, again and again.
//!
//! It gets its start and end times through the server, so that processes in any language start together. It writes one
//! line for each grant: when, and after how long a wait, in microseconds from the start. workers.py is the same in
//! Python.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::notified;
use testkit::Conn;

const MARK: &str = "--worker";
pub const LEASE_MS: &str = "30000";

/// A way to lock.
trait Lock {
    fn acquire(&mut self);
    fn release(&mut self);
}

/// LOCK.*
struct Ours {
    conn: Conn,
    key: String,
    token: String,
}

impl Lock for Ours {
    fn acquire(&mut self) {
        self.token = self.conn.int(&["LOCK.ACQUIRE", &self.key, "PX", LEASE_MS, "WAIT", "60000"]).to_string();
    }

    fn release(&mut self) {
        assert_eq!(self.conn.int(&["LOCK.RELEASE", &self.key, &self.token]), 1);
    }
}

/// The server's own queue of blocked clients, used as a lock without any safety: a client that dies takes the lock with
/// it.
struct Queue {
    conn: Conn,
    key: String,
}

impl Lock for Queue {
    fn acquire(&mut self) {
        assert_eq!(self.conn.execute(&["BLPOP", &self.key, "60"]).list().len(), 2);
    }

    fn release(&mut self) {
        self.conn.int(&["RPUSH", &self.key, "token"]);
    }
}

/// Redisson's scheme: a client that does not get the lock subscribes, and each release wakes all subscribers.
struct PubSub {
    conn: Conn,
    subscriber: Conn,
    key: String,
    channel: String,
    secret: String,
    sha: String,
}

impl PubSub {
    const RELEASE: &'static str = "if redis.call('get',KEYS[1])~=ARGV[1] then return 0 end \
        redis.call('del',KEYS[1]) redis.call('publish',KEYS[2],'0') return 1";

    fn new(mut conn: Conn, subscriber: Conn, key: &str, number: &str) -> Self {
        let sha = conn.text(&["SCRIPT", "LOAD", Self::RELEASE]);
        let (key, channel, secret) = (key.to_string(), format!("{key}:channel"), format!("secret-{number}"));
        Self { conn, subscriber, key, channel, secret, sha }
    }

    fn try_once(&mut self) -> bool {
        !self.conn.execute(&["SET", &self.key, &self.secret, "NX", "PX", LEASE_MS]).is_nil()
    }

    fn next(&mut self) -> String {
        self.subscriber.read().list()[0].text()
    }
}

impl Lock for PubSub {
    fn acquire(&mut self) {
        if self.try_once() {
            return;
        }
        self.subscriber.send(&["SUBSCRIBE", &self.channel]);
        assert_eq!(self.next(), "subscribe");
        // The lock may have become free before the subscription.
        while !self.try_once() {
            assert_eq!(self.next(), "message");
        }
        self.subscriber.send(&["UNSUBSCRIBE", &self.channel]);
        while self.next() == "message" {}
    }

    fn release(&mut self) {
        assert_eq!(self.conn.int(&["EVALSHA", &self.sha, "2", &self.key, &self.channel, &self.secret]), 1);
    }
}

/// Microseconds of the machine's clock.
pub fn now_us() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

pub fn sleep_until(at_us: u64) {
    std::thread::sleep(Duration::from_micros(at_us.saturating_sub(now_us())));
}

/// The arguments of a client process, if this process is one.
pub fn arguments(words: &[String]) -> Option<&[String]> {
    words.split_first().and_then(|(first, rest)| (first == MARK).then_some(rest))
}

/// Starts a client process in Rust.
pub fn spawn(way: &str, port: u16, key: &str, dir: &Path, number: usize) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([MARK, way, &port.to_string(), key]).arg(dir).arg(number.to_string());
    command.stdin(Stdio::null()).spawn().expect("a client process")
}

/// Reports that this many clients are ready, and waits for the times of their start and end.
pub fn await_start(port: u16, key: &str, clients: usize) -> (u64, u64) {
    let mut conn = Conn::to(port).unwrap();
    conn.int(&["INCRBY", &format!("{key}:ready"), &clients.to_string()]);
    let times = conn.execute(&["BLPOP", &format!("{key}:start"), "60"]);
    let times: Vec<u64> = times.list()[1].text().split(' ').map(|time| time.parse().unwrap()).collect();
    (times[0], times[1])
}

/// Runs as a client process.
pub fn run(arguments: &[String]) {
    let [way, port, key, dir, number] = arguments else { panic!("not a worker's arguments: {arguments:?}") };
    if way == "notified" {
        return notified::run(port.parse().unwrap(), key, Path::new(dir), number.parse().unwrap());
    }
    let connect = || Conn::to(port.parse().unwrap()).unwrap();
    let mut lock: Box<dyn Lock> = match &**way {
        "lock" => Box::new(Ours { conn: connect(), key: key.clone(), token: String::new() }),
        "queue" => Box::new(Queue { conn: connect(), key: key.clone() }),
        "pub/sub" => Box::new(PubSub::new(connect(), connect(), key, number)),
        _ => panic!("no such way: {way}"),
    };
    let (start, end) = await_start(port.parse().unwrap(), key, 1);
    let mut grants = String::new();
    sleep_until(start);
    loop {
        let asked = Instant::now();
        if now_us() >= end {
            break;
        }
        lock.acquire();
        let waited = asked.elapsed().as_micros();
        let _ = writeln!(grants, "{} {waited}", now_us());
        lock.release();
    }
    std::fs::write(Path::new(dir).join(number), grants).unwrap();
}
