//! A lock of redis-lock for the crate redis, with threads.
//!
//! ```no_run
//! let lock = Lock::new(redis::Client::open("redis://127.0.0.1/")?, "report", Options {
//!     lease: Duration::from_secs(30), wait: Duration::from_secs(60), ..Options::default()
//! });
//! let guard = lock.acquire()?; // its drop gives the lock back
//! guard.token();               // the fencing token: give it to the storage that is written to
//! guard.check()?;              // before each step that must not be done without the lock
//! guard.release()?;            // tells whether the lock was held until now
//! ```
//!
//! It has a connection of its own. It waits in pieces shorter than its time-out, under one random ID: neither a lost
//! reply nor a time-out loses the place in line or leaves a lock behind. A thread renews the lease at a third of it.
//! Where that fails, the lock is lost at nine tenths of the lease, counted from when the last renewal was sent:
//! `on_lost` is called, and `check` fails. Rust cannot stop a thread from outside: longer work has to call `check`.

mod guard;
mod line;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use redis::Client;

pub use guard::Guard;
pub use line::Error;
use line::Line;

/// How a lock is wanted.
#[derive(Clone)]
pub struct Options {
    /// For how long a grant is good if it is not renewed.
    pub lease: Duration,
    /// How long to stand in line.
    pub wait: Duration,
    /// How long the server may take to answer.
    pub timeout: Duration,
    /// A label for people.
    pub owner: Option<String>,
    /// The lock ends with its connection.
    pub session: bool,
    /// A server without the module gets SET NX PX instead: no order among those who wait, and no token.
    pub fallback: bool,
    /// Called, on another thread, when the lock is lost.
    pub on_lost: Arc<dyn Fn(&Error) + Send + Sync>,
    /// Called when the fallback is used.
    pub on_fallback: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            wait: Duration::ZERO,
            timeout: Duration::from_secs(5),
            owner: None,
            session: false,
            fallback: false,
            on_lost: Arc::new(|_| {}),
            on_fallback: Arc::new(|warning| eprintln!("{warning}")),
        }
    }
}

/// A lock that can be acquired, by one thread at a time.
pub struct Lock {
    client: Client,
    key: String,
    options: Options,
    id: AtomicU64,
    cancelled: AtomicBool,
}

impl Lock {
    /// The client is asked for a connection of its own for each lock that is held.
    pub fn new(client: Client, key: impl Into<String>, mut options: Options) -> Self {
        // A renewal can fail and the next still be in time.
        options.timeout = options.timeout.min(options.lease / 4);
        Self { client, key: key.into(), options, id: AtomicU64::new(0), cancelled: AtomicBool::new(false) }
    }

    fn line(&self) -> Line {
        let id = self.id.load(Ordering::SeqCst).to_string();
        Line::new(self.client.clone(), self.key.clone(), id, self.options.clone())
    }

    /// Takes the lock.
    ///
    /// # Errors
    /// [`Error::Refused`] when somebody else has it.
    pub fn acquire(&self) -> Result<Guard, Error> {
        self.cancelled.store(false, Ordering::SeqCst);
        // A hasher is keyed at random.
        self.id.store(RandomState::new().build_hasher().finish() >> 1, Ordering::SeqCst);
        let mut line = self.line();
        let mut granted = self.wait_for(&mut line);
        if self.cancelled.load(Ordering::SeqCst) && granted.is_ok() {
            granted = Err(line.refused());
            self.cancel();
        }
        match granted {
            Ok(until) => Ok(Guard::new(line, until)),
            Err(error) => {
                line.disconnect();
                if !matches!(error, Error::Refused(_) | Error::Unsupported(_)) {
                    self.cancel(); // it may have been granted
                }
                Err(error)
            }
        }
    }

    /// From another thread: ends the wait in [`Self::acquire`], which is then refused.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        // If it fails, the wait ends with its piece, the lock with its lease.
        let _ = self.line().exchange("CANCEL", Duration::ZERO);
    }

    /// Until when it is held.
    fn wait_for(&self, line: &mut Line) -> Result<Instant, Error> {
        let Options { lease, wait, timeout, .. } = self.options;
        let (end, mut tried) = (Instant::now() + wait, false);
        loop {
            let mut sent = Instant::now();
            let piece = end.saturating_duration_since(sent).min(timeout * 3 / 5);
            match line.exchange("ACQUIRE", piece) {
                Ok(Some(_)) => {
                    if sent.elapsed() > lease / 3 {
                        // The grant may be as old as the call: begin anew.
                        sent = Instant::now();
                        if line.exchange("EXTEND", Duration::ZERO)? != Some(1) {
                            return Err(line.lost("it was over before it could be used"));
                        }
                    }
                    return Ok(sent + lease);
                }
                Ok(None) => {
                    // No piece ends early but by LOCK.CANCEL or CLIENT UNBLOCK.
                    let is_early = !line.is_plain() && sent.elapsed() + Duration::from_millis(50) < piece;
                    if is_early || Instant::now() >= end || self.cancelled.load(Ordering::SeqCst) {
                        return Err(line.refused());
                    }
                    if line.is_plain() {
                        thread::sleep(Duration::from_millis(50 + u64::from(sent.elapsed().subsec_nanos()) % 100));
                    }
                }
                Err(error) if error.may_pass() && (!tried || Instant::now() < end) => {
                    tried = true;
                    line.disconnect();
                    thread::sleep(Duration::from_millis(50));
                }
                Err(error) => return Err(error),
            }
            if self.cancelled.load(Ordering::SeqCst) {
                return Err(line.refused());
            }
        }
    }
}
