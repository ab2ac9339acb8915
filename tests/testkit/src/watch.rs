//! No test may hang. If a test takes longer than any test should, its servers and programs are terminated; the test
//! then fails because nothing answers. If the test still does not end, all tests are terminated, and the name of that
//! test is printed last.

use super::signal;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::exit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a test's processes may live, in seconds: many times as long as the longest test takes on a fast machine.
static LIMIT: AtomicU64 = AtomicU64::new(600);
/// How long a test then has to fail.
const GRACE: Duration = Duration::from_secs(60);

struct Process {
    pid: u32,
    /// The test's name, if the thread that started the process has that name.
    test: String,
    signal: &'static str,
    since: Instant,
    is_ended: bool,
}

static PROCESSES: Mutex<BTreeMap<u64, Process>> = Mutex::new(BTreeMap::new());

/// A process that is terminated if it runs too long. Dropping this ends the watch.
pub struct Watched(u64);

impl Drop for Watched {
    fn drop(&mut self) {
        PROCESSES.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// Watches a process. If it runs too long, this signal terminates it.
pub fn watch(pid: u32, signal: &'static str) -> Watched {
    static ONCE: Once = Once::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Benchmarks and examples take as long as they need.
    if cfg!(test) {
        ONCE.call_once(|| drop(thread::spawn(check)));
    }
    let test = thread::current().name().unwrap_or("a thread of a test").into();
    let process = Process { pid, test, signal, since: Instant::now(), is_ended: false };
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    PROCESSES.lock().unwrap_or_else(PoisonError::into_inner).insert(number, process);
    Watched(number)
}

/// Allows a run of the length that the user asked for.
pub fn allow(time: Duration) {
    LIMIT.fetch_max(time.as_secs(), Ordering::Relaxed);
}

/// While a pause exists, no process is terminated, and the time does not count: a test is installing something.
pub struct Pause(Instant);

/// Longer than any pause, in seconds.
const PAUSE: u64 = 3_600;
/// The time that does not count: that of finished and current pauses.
static PAUSED: AtomicU64 = AtomicU64::new(0);

pub fn pause() -> Pause {
    PAUSED.fetch_add(PAUSE, Ordering::Relaxed);
    Pause(Instant::now())
}

impl Drop for Pause {
    fn drop(&mut self) {
        PAUSED.fetch_sub(PAUSE.saturating_sub(self.0.elapsed().as_secs()), Ordering::Relaxed);
    }
}

/// Bypasses the test runner's capture, which would hide the output of a test that does not end.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn check() {
    loop {
        thread::sleep(Duration::from_millis(500));
        let limit = Duration::from_secs(LIMIT.load(Ordering::Relaxed) + PAUSED.load(Ordering::Relaxed));
        let mut processes = PROCESSES.lock().unwrap_or_else(PoisonError::into_inner);
        let mut hangs = None;
        for process in processes.values_mut() {
            let pid = process.pid;
            let lives = process.since.elapsed();
            if lives > limit && !process.is_ended {
                say(&format!("{}: process {pid} has run for more than {limit:?} and is terminated", process.test));
                signal(pid, process.signal);
                process.is_ended = true;
            }
            if lives > limit + GRACE {
                hangs = Some(process.test.clone());
            }
        }
        if let Some(test) = hangs {
            for process in processes.values() {
                signal(process.pid, process.signal);
            }
            say(&format!("{test} does not end; all tests are terminated"));
            exit(1);
        }
    }
}
