//! Clients that take locks, hold them and release them while masters come and go, and a record of each client's holds.
//!
//! A hold is what the server granted and the client can rely on: from the grant, which is the token, to the end of the
//! lease (the timestamp less the margin), or until the client sent its RELEASE. All servers and clients share one
//! clock.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use testkit::dice::Dice;
use testkit::sentinel::Group;
use testkit::{Conn, Reply};

/// A lock that a client held, in microseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    pub client: usize,
    pub lock: usize,
    pub from: u64,
    pub to: u64,
    /// The server that granted it.
    #[allow(dead_code, reason = "shown when a test fails")]
    pub server: usize,
}

/// Overlapping holds of the same lock by different clients.
pub fn double_holders(holds: &[Hold]) -> Vec<(Hold, Hold)> {
    let mut by_lock: BTreeMap<usize, Vec<Hold>> = BTreeMap::new();
    for hold in holds {
        by_lock.entry(hold.lock).or_default().push(*hold);
    }
    let mut found = Vec::new();
    for holds in by_lock.values_mut() {
        holds.sort_by_key(|hold| hold.from);
        for (at, first) in holds.iter().enumerate() {
            let later = holds[at + 1..].iter().take_while(|second| second.from < first.to);
            found.extend(later.filter(|second| second.client != first.client).map(|second| (*first, *second)));
        }
    }
    found
}

pub fn now_us() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

/// The results of all clients.
#[derive(Default)]
pub struct Record {
    pub holds: Mutex<Vec<Hold>>,
    /// Error codes and other events, with their counts.
    pub counts: Mutex<BTreeMap<String, u64>>,
    pub stop: AtomicBool,
}

impl Record {
    pub fn count(&self, what: &str) {
        *self.counts.lock().unwrap().entry(what.into()).or_default() += 1;
    }

    pub fn counted(&self, what: &str) -> u64 {
        self.counts.lock().unwrap().get(what).copied().unwrap_or_default()
    }

    pub fn grants(&self) -> usize {
        self.holds.lock().unwrap().len()
    }

    fn runs(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} grants", self.grants())?;
        self.counts.lock().unwrap().iter().try_for_each(|(what, count)| write!(out, ", {count} {what}"))
    }
}

/// How long a client waits for a reply, in addition to its WAIT, before it tries another server.
const PATIENCE: Duration = Duration::from_millis(1_500);
const LOCKS: u64 = 4;

/// A client: takes a lock, works, releases it, over and over.
pub struct Client<'a> {
    pub number: usize,
    pub group: &'a Group,
    /// The longest lease that it asks for.
    pub lease_ms: u64,
    pub record: &'a Record,
    pub dice: Dice,
}

impl Client<'_> {
    pub fn run(mut self) {
        while self.record.runs() {
            if let Some((server, mut conn)) = self.connect() {
                // Until the connection fails, or a reply sends it to another server.
                while self.record.runs() && self.hold_once(server, &mut conn).is_some() {}
            }
            sleep(Duration::from_millis(20 + self.dice.below(30)));
        }
    }

    /// Connects to the master according to a sentinel: like clients on the other side of a partition, or, one in three,
    /// like those on its own side.
    fn connect(&mut self) -> Option<(usize, Conn)> {
        let sentinel = self.dice.index(3);
        let server = self.group.master_of(sentinel)?;
        if self.dice.one_in(3) {
            return self.group.try_conn(server).map(|conn| (server, conn));
        }
        Conn::to(self.group.fronts[server].port()).ok().map(|conn| (server, conn))
    }

    /// `None` when the client has to find the master again.
    pub fn hold_once(&mut self, server: usize, conn: &mut Conn) -> Option<()> {
        let lock = self.dice.below(LOCKS);
        let key = format!("door-{lock}");
        let longest = self.lease_ms;
        let lease_ms = if self.dice.one_in(2) { longest } else { 100 + self.dice.below(longest - 100) };
        let (lease, wait) = (lease_ms.to_string(), 500 + self.dice.below(2_500));
        let mut command = vec!["LOCK.ACQUIRE", &key, "PX", &lease];
        let wait_text = wait.to_string();
        let waits = self.dice.one_in(2);
        if waits {
            command.extend(["WAIT", &wait_text]);
            self.record.count("waits");
        }
        let patience = if waits { Duration::from_millis(wait) + PATIENCE } else { PATIENCE };
        let token = match self.ask(conn, &command, patience)? {
            Reply::Int(token) => token,
            Reply::Nil => {
                sleep(Duration::from_millis(20 + self.dice.below(50)));
                return Some(());
            }
            _ => {
                // Some clients stay with a master that grants nothing for now.
                sleep(Duration::from_millis(50));
                return (!self.dice.one_in(4)).then_some(());
            }
        };
        let (lock, from) = (usize::try_from(lock).unwrap(), u64::try_from(token).unwrap());
        let mut hold = Hold { client: self.number, lock, from, to: from + lease_ms * 1_000, server };
        let result = self.work(conn, &mut hold, &key, lease_ms);
        self.record.holds.lock().unwrap().push(hold);
        result
    }

    /// Holds the lock for part of its lease, or a little longer; sometimes extends it; usually releases it.
    fn work(&mut self, conn: &mut Conn, hold: &mut Hold, key: &str, lease_ms: u64) -> Option<()> {
        // The token is the time of the grant.
        let (token, lease) = (&*hold.from.to_string(), &*lease_ms.to_string());
        for _ in 0..=self.dice.below(3) {
            sleep(Duration::from_millis(self.dice.below(lease_ms)));
            if self.dice.one_in(3) {
                // The connection may be gone while the lock lives on: its holder asks the new master.
                let mut other = if self.dice.one_in(2) { self.connect() } else { None };
                let is_own = other.is_none();
                let conn = other.as_mut().map_or(&mut *conn, |(_, other)| other);
                let sent = now_us();
                match self.ask(conn, &["LOCK.EXTEND", key, token, "PX", lease], PATIENCE) {
                    Some(Reply::Int(1)) => {
                        self.record.count("extensions");
                        hold.to = sent + lease_ms * 1_000;
                    }
                    // A later reply would be mistaken for the next command's.
                    None if is_own => return None,
                    _ => {}
                }
            }
        }
        if self.dice.one_in(5) {
            // The client dies, or forgets its release.
            return Some(());
        }
        let mut other = if self.dice.one_in(4) { self.connect() } else { None };
        let conn = other.as_mut().map_or(conn, |(_, other)| other);
        hold.to = hold.to.min(now_us());
        self.ask(conn, &["LOCK.RELEASE", key, token], PATIENCE).map(|_| ())
    }

    /// The reply; `None` if there is none, or if it says that another server is the master.
    fn ask(&self, conn: &mut Conn, command: &[&str], patience: Duration) -> Option<Reply> {
        match conn.try_execute_for(command, patience) {
            Ok(Reply::Error(text)) => {
                let word = text.split(' ').next().unwrap().to_string();
                self.record.count(&word);
                (!matches!(&*word, "READONLY" | "UNBLOCKED" | "LOADING" | "MASTERDOWN")).then_some(Reply::Error(text))
            }
            Ok(reply) => Some(reply),
            Err(_) => {
                self.record.count("connections lost");
                None
            }
        }
    }
}
