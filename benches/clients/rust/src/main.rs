//! One process of the client benchmark, in Rust: worker CONTENDER PORT. run.py describes its input.

use std::io::BufRead;
use std::thread;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Connection};
use tokio::runtime::Runtime;

const LEASE: Duration = Duration::from_secs(30);
const FOREVER: Duration = Duration::from_secs(600);

/// A contender takes a lock within a wait, and releases it.
trait Contender {
    fn pair(&mut self, key: &str, wait: Duration, held: &mut dyn FnMut());

    /// Begins this many waits at once, each for its own key.
    fn waits(&mut self, _count: usize) {
        panic!("only the package is asked for waits");
    }
}

struct Package(serverlock::Locks);

impl Contender for Package {
    fn pair(&mut self, key: &str, wait: Duration, held: &mut dyn FnMut()) {
        let guard = self.0.lock(key, LEASE).wait(wait).acquire().unwrap();
        held();
        guard.release().unwrap();
    }

    fn waits(&mut self, count: usize) {
        for number in 0..count {
            let lock = self.0.lock(format!("waits:{number}"), LEASE).wait(FOREVER);
            thread::spawn(move || lock.acquire().map(std::mem::forget));
        }
    }
}

fn acquire(key: &str, wait: Duration) -> redis::Cmd {
    let mut cmd = redis::cmd("LOCK.ACQUIRE");
    cmd.arg(key).arg("PX").arg(30_000);
    if !wait.is_zero() {
        cmd.arg("WAIT").arg(u64::try_from(wait.as_millis()).unwrap());
    }
    cmd
}

fn release(key: &str, token: i64) -> redis::Cmd {
    let mut cmd = redis::cmd("LOCK.RELEASE");
    cmd.arg(key).arg(token);
    cmd
}

/// The two commands.
struct Raw(Connection);

impl Contender for Raw {
    fn pair(&mut self, key: &str, wait: Duration, held: &mut dyn FnMut()) {
        let token: i64 = acquire(key, wait).query(&mut self.0).unwrap();
        held();
        release(key, token).query::<i64>(&mut self.0).unwrap();
    }
}

struct PackageTokio(Runtime, serverlock::aio::Locks);

impl Contender for PackageTokio {
    fn pair(&mut self, key: &str, wait: Duration, held: &mut dyn FnMut()) {
        let lock = self.1.lock(key, LEASE).wait(wait);
        self.0.block_on(async {
            let guard = lock.acquire().await.unwrap();
            held();
            guard.release().await.unwrap();
        });
    }

    fn waits(&mut self, count: usize) {
        for number in 0..count {
            let lock = self.1.lock(format!("waits:{number}"), LEASE).wait(FOREVER);
            self.0.spawn(async move { lock.acquire().await.map(std::mem::forget) });
        }
    }
}

/// A connection with the library's time-out, and one without a time-out for waits.
struct RawTokio(Runtime, MultiplexedConnection, MultiplexedConnection);

impl Contender for RawTokio {
    fn pair(&mut self, key: &str, wait: Duration, held: &mut dyn FnMut()) {
        let connection = if wait.is_zero() { &mut self.1 } else { &mut self.2 };
        self.0.block_on(async {
            let token: i64 = acquire(key, wait).query_async(connection).await.unwrap();
            held();
            release(key, token).query_async::<i64>(connection).await.unwrap();
        });
    }
}

/// Redlock with one server, which polls.
struct Usual(Runtime, rslock::LockManager);

impl Contender for Usual {
    fn pair(&mut self, key: &str, wait: Duration, held: &mut dyn FnMut()) {
        let locks = &self.1;
        self.0.block_on(async {
            let end = Instant::now() + wait;
            let lock = loop {
                match locks.lock(key, LEASE).await {
                    Ok(lock) => break lock,
                    Err(error) => assert!(Instant::now() < end, "{error}"),
                }
            };
            held();
            locks.unlock(&lock).await;
        });
    }
}

fn contender(name: &str, port: &str) -> Box<dyn Contender> {
    let at = format!("redis://127.0.0.1:{port}/");
    let client = Client::open(at.as_str()).unwrap();
    let runtime = || Runtime::new().unwrap();
    match name {
        "redis package" => Box::new(Package(serverlock::Locks::new(client))),
        "redis raw" => Box::new(Raw(client.get_connection().unwrap())),
        "redis-tokio package" => {
            let runtime = runtime();
            let entered = runtime.enter();
            let locks = serverlock::aio::Locks::new(client);
            drop(entered);
            Box::new(PackageTokio(runtime, locks))
        }
        "redis-tokio raw" => {
            let runtime = runtime();
            let config = AsyncConnectionConfig::new();
            let patient = config.clone().set_response_timeout(None);
            let open = |config| runtime.block_on(client.get_multiplexed_async_connection_with_config(config)).unwrap();
            let (connection, patient) = (open(&config), open(&patient));
            Box::new(RawTokio(runtime, connection, patient))
        }
        "redis-tokio rslock" => Box::new(Usual(runtime(), rslock::LockManager::new(vec![at]))),
        other => panic!("no contender: {other}"),
    }
}

/// The CPU time of the threads of this process, in seconds.
fn cpu() -> f64 {
    let spent = |task: std::io::Result<std::fs::DirEntry>| -> Option<f64> {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    std::fs::read_dir("/proc/self/task").unwrap().filter_map(spent).sum::<f64>() / 1e9
}

fn rss() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let mut contender = contender(&words[1], &words[2]);
    let own = format!("bench:{}", std::process::id());
    println!("ready");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        let (began, before) = (Instant::now(), cpu());
        match words[..] {
            ["pair", count] => {
                for _ in 0..count.parse::<u32>().unwrap() {
                    contender.pair(&own, Duration::ZERO, &mut || ());
                }
                println!("[{}, {}]", began.elapsed().as_secs_f64(), cpu() - before);
            }
            ["hot", key, seconds] => {
                let end = began + Duration::from_secs_f64(seconds.parse().unwrap());
                let mut waits = Vec::new();
                while Instant::now() < end {
                    let asked = Instant::now();
                    contender.pair(key, FOREVER, &mut || waits.push(asked.elapsed().as_micros()));
                }
                println!("[{waits:?}, {}]", cpu() - before);
            }
            ["waits", count] => {
                contender.waits(count.parse().unwrap());
                println!("true");
            }
            ["rss"] => println!("{}", rss()),
            _ => panic!("no order: {line}"),
        }
    }
}
