//! Redlock, the algorithm for one lock over several independent servers, with LOCK.* commands.
//!
//! A client asks all servers at once for the same key. It has the lock when more than half of them granted it and time
//! is left: the lease, less the time that asking took, less an allowance for clocks that run at different speeds.
//! Otherwise it releases its grants everywhere, and tries again after a random delay. So the lock is available while a
//! minority of the servers is down.
//!
//! LOCK.* replaces SET NX PX and the script that compares and deletes:
//!
//! - `LOCK.ACQUIRE key PX lease ID id`: the ID, random for each attempt, makes it safe to resend the command to a
//!   server whose reply was lost. The server replies with the same token.
//! - `LOCK.RELEASE key token` if the token is known, and `LOCK.CANCEL key id` if the server did not reply: it finds the
//!   grant by its ID, if there is one.
//!
//! # What it does not provide
//!
//! - **No fencing.** Each server issues its own tokens, and none of them grows with each holder of the lock as a whole.
//!   Storage cannot use them to detect a late writer. A lock on one server has such a token; if work past the lease
//!   would do harm, use that.
//! - **It depends on time.** Every server's clock has to run about as fast as the client's. If one is set forward, or
//!   the client sleeps between the last check of [`Guard::validity`] and its work, two clients can hold the lock.
//! - **It depends on memory.** A server that forgets a grant in a restart, or a replica that takes over without it, can
//!   create a second majority. Use `appendonly yes` with `appendfsync always`, or keep a restarted server out of it for
//!   the longest lease (`lock.failover-grace-ms` does that). Use no replicas.
//! - A server that recovers from a long stall can execute a command that its client has given up on. The release
//!   follows that command on the same connection, if it still exists; otherwise the lease ends the grant.

use redis::{cmd, Client, Cmd, Connection, FromRedisValue, RedisResult};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, thread};

/// How much the speeds of two clocks may differ: one percent, plus the server's rounding.
const DRIFT_PER_LEASE: u32 = 100;
const DRIFT_AT_LEAST: Duration = Duration::from_millis(2);

/// A client of several independent servers.
pub struct Redlock {
    servers: Vec<Server>,
    settings: Settings,
}

/// How a client tries.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long one server may take to connect and to reply: little, compared with the lease, so that a dead server
    /// costs little of the lease.
    pub timeout: Duration,
    /// How many times all servers are asked.
    pub attempts: u32,
    /// The longest delay between two attempts. It is random, so that clients which each got half of the servers do not
    /// do so again.
    pub retry_delay: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { timeout: Duration::from_millis(50), attempts: 3, retry_delay: Duration::from_millis(200) }
    }
}

/// Why there is no lock. Grants have been released on every server that replied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotLocked {
    /// How many servers granted it, in the last attempt.
    pub granted: usize,
    /// How many refused: another client has it there.
    pub refused: usize,
    /// How many did not reply in time, or replied with an error.
    pub failed: usize,
    /// How many have to grant it.
    pub quorum: usize,
}

impl fmt::Display for NotLocked {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { granted, refused, failed, quorum } = self;
        write!(out, "not locked: {granted} of {quorum} needed servers granted it in time")?;
        write!(out, " ({refused} refused, {failed} did not answer)")
    }
}

impl std::error::Error for NotLocked {}

impl Redlock {
    /// A client of these servers, for example `redis://127.0.0.1:6379/`: an odd number, none of them a replica of
    /// another.
    ///
    /// # Errors
    /// An address is invalid.
    pub fn new<A: AsRef<str>>(addresses: &[A], settings: Settings) -> RedisResult<Self> {
        let server = |address: &A| Server::at(address.as_ref(), settings.timeout);
        Ok(Self { servers: addresses.iter().map(server).collect::<RedisResult<_>>()?, settings })
    }

    /// More than half of the servers.
    #[must_use]
    pub fn quorum(&self) -> usize {
        self.servers.len() / 2 + 1
    }

    /// Takes a lock for a lease.
    ///
    /// # Errors
    /// [`NotLocked`] after the last attempt.
    pub fn lock(&self, key: &str, lease: Duration) -> Result<Guard<'_>, NotLocked> {
        let mut attempts = 1;
        loop {
            match self.try_once(key, lease) {
                Err(_) if attempts < self.settings.attempts => {
                    thread::sleep(random_part(self.settings.retry_delay));
                    attempts += 1;
                }
                result => return result,
            }
        }
    }

    fn try_once(&self, key: &str, lease: Duration) -> Result<Guard<'_>, NotLocked> {
        let id = random() >> 1;
        // No server's lease begins before this.
        let since = Instant::now();
        let answers = self.ask_all(|_, server| server.acquire(key, lease, id));
        let valid_until = since + lease.saturating_sub(drift(lease));
        let guard = Guard { redlock: self, key: key.to_string(), id, answers, valid_until };
        let (granted, quorum) = (guard.granted(), self.quorum());
        if granted >= quorum && guard.validity() > Duration::ZERO {
            return Ok(guard);
        }
        let refused = guard.answers.iter().filter(|answer| **answer == Answer::Refused).count();
        // The guard is dropped here, so grants are released before the caller sees the refusal.
        Err(NotLocked { granted, refused, failed: self.servers.len() - granted - refused, quorum })
    }

    /// Asks all servers at once, so that this takes no longer than the slowest server. Returns the answers in order.
    fn ask_all<T: Send>(&self, ask: impl Fn(usize, &Server) -> T + Sync) -> Vec<T> {
        let ask = &ask;
        thread::scope(|scope| {
            let numbered = self.servers.iter().enumerate();
            let asked: Vec<_> = numbered.map(|(at, server)| scope.spawn(move || ask(at, server))).collect();
            asked.into_iter().map(|answer| answer.join().expect("asking does not panic")).collect()
        })
    }
}

/// A held lock. Dropping it releases it on all servers, even on those that did not reply.
pub struct Guard<'a> {
    redlock: &'a Redlock,
    key: String,
    id: u64,
    answers: Vec<Answer>,
    valid_until: Instant,
}

impl Guard<'_> {
    /// How long it is still held, by this client's clock. Work must end before this reaches zero: after that, the
    /// lock is no longer held.
    #[must_use]
    pub fn validity(&self) -> Duration {
        self.valid_until.saturating_duration_since(Instant::now())
    }

    /// On how many servers.
    #[must_use]
    pub fn granted(&self) -> usize {
        self.answers.iter().filter(|answer| matches!(answer, Answer::Granted(_))).count()
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.redlock.ask_all(|at, server| server.release(&self.key, self.id, self.answers[at]));
    }
}

/// A server's answer to LOCK.ACQUIRE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// With this token.
    Granted(u64),
    /// Another client has it.
    Refused,
    /// No reply in time, or an error. It may have been granted anyway.
    None,
}

struct Server {
    client: Client,
    connection: Mutex<Option<Connection>>,
    timeout: Duration,
}

impl Server {
    fn at(address: &str, timeout: Duration) -> RedisResult<Self> {
        Ok(Self { client: Client::open(address)?, connection: Mutex::new(None), timeout })
    }

    fn acquire(&self, key: &str, lease: Duration, id: u64) -> Answer {
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        let mut command = cmd("LOCK.ACQUIRE");
        command.arg(key).arg("PX").arg(lease_ms).arg("ID").arg(id);
        let mut reply = self.send::<Option<u64>>(&command);
        if reply.as_ref().is_err_and(|error| !error.is_timeout()) {
            // The connection broke, perhaps with the reply in flight: the same ID gets the same answer.
            reply = self.send(&command);
        }
        match reply {
            Ok(Some(token)) => Answer::Granted(token),
            Ok(None) => Answer::Refused,
            Err(_) => Answer::None,
        }
    }

    fn release(&self, key: &str, id: u64, answer: Answer) {
        let command = match answer {
            Answer::Granted(token) => cmd("LOCK.RELEASE").arg(key).arg(token).to_owned(),
            // Even a server that refused keeps a place in the queue for the attempt.
            Answer::Refused | Answer::None => cmd("LOCK.CANCEL").arg(key).arg(id).to_owned(),
        };
        if self.send::<i64>(&command).is_err() {
            // Give up a connection that does not reply; a new one may get through.
            self.disconnect();
            let _ = self.send::<i64>(&command);
        }
    }

    /// Sends a command and waits for the reply until the time-out. A connection that timed out stays: the next command
    /// on it is executed after the previous one.
    fn send<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let mut place = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let mut connection = match place.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let reply = command.query(&mut connection);
        if redis::ConnectionLike::is_open(&connection) {
            *place = Some(connection);
        }
        reply
    }

    fn connect(&self) -> RedisResult<Connection> {
        let connection = self.client.get_connection_with_timeout(self.timeout)?;
        connection.set_read_timeout(Some(self.timeout))?;
        connection.set_write_timeout(Some(self.timeout))?;
        Ok(connection)
    }

    fn disconnect(&self) {
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// How much shorter a lease may be by a server's clock than by this one's.
fn drift(lease: Duration) -> Duration {
    lease / DRIFT_PER_LEASE + DRIFT_AT_LEAST
}

/// A unique number, for an attempt's ID or a delay.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A uniformly random part of a span.
fn random_part(of: Duration) -> Duration {
    let micros = u64::try_from(of.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(random() % micros.max(1))
}
