//! Counts the locks that are held on a server, and lists the old holds, with or without waiters.
//!
//! It reads all locks by LOCK.SCAN in steps of [`STEP`] keys, and by LOCK.INFO the locks with several holders and the
//! oldest holds, of which it keeps at most [`MOST_HOLDS`]. After each step it pauses for [`SHARE`] times as long as the
//! server took, and at least for [`PAUSE`]. A grant's age is the
//! server's time minus the token, the time of the grant in microseconds. The age is unknown if the value has no token,
//! or one that no clock gave: somebody else wrote it.

use crate::link::{Link, Trouble};
use crate::model::{Holder, Info, Lock, Name};
use crate::reply::{self, bytes};
use crate::servers::{self, Visit};
use crate::target::Target;
use redis::Value;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How many keys a step inspects.
const STEP: usize = 1_000;
/// Leaves the server to its clients between two steps.
const PAUSE: Duration = Duration::from_millis(5);
const SHARE: u32 = 4;
/// How many of the oldest holds of a server are kept.
pub const MOST_HOLDS: usize = 1_000;
/// How many holders of a lock LOCK.INFO lists.
const MOST_HOLDERS: u64 = 1_000;
/// The module grants nothing while the clock is before 2001-09-09.
const FIRST_TOKEN: u64 = 1_000_000_000_000_000;
/// How far a server's tokens can be ahead of its clock, in microseconds.
const MOST_AHEAD: u64 = 86_400_000_000;

/// A hold: a lock and one of its holders, whose `held_ms` is the age of the grant.
#[derive(Clone, Debug)]
pub struct Hold {
    pub name: Name,
    pub holder: Holder,
    /// Whether `holder` is as LOCK.INFO reports it.
    is_read: bool,
}

/// What was found on a server.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub address: String,
    /// One line: why the server could not be sampled.
    pub trouble: Option<String>,
    /// One line each: what is missing.
    pub notes: Vec<String>,
    pub role: Option<String>,
    /// How many locks are held.
    pub held: u64,
    /// How many of them have been held for the given time or longer.
    pub too_long: u64,
    /// How many of them have an unknown age.
    pub unknown: u64,
    /// The oldest of the holds that are not in `holds`.
    pub younger_ms: Option<u64>,
    /// The holds of the given time or longer, oldest first.
    pub holds: Vec<Hold>,
}

impl Sample {
    /// A server or a group that could not be sampled.
    pub fn without(address: &str, trouble: String) -> Self {
        Self { address: address.into(), trouble: Some(trouble), ..Self::default() }
    }

    /// Whether the server could be asked.
    pub fn is_known(&self) -> bool {
        self.trouble.is_none()
    }

    pub fn is_replica(&self) -> bool {
        self.role.as_deref() == Some("slave")
    }

    /// The age of the oldest hold.
    pub fn oldest_ms(&self) -> Option<u64> {
        self.holds.first().and_then(|hold| hold.holder.held_ms).or(self.younger_ms)
    }

    fn note(&mut self, text: &str) {
        if !self.notes.iter().any(|note| note == text) {
            self.notes.push(text.into());
        }
    }
}

/// Samples a server, unless it is among those whose run IDs are `known`.
pub fn sample(target: Target, held_for: Duration, only: bool, known: &BTreeSet<String>) -> Visit<Sample> {
    let address = target.address();
    let mut sampler = match Link::open(&target) {
        Ok(link) => Sampler::new(target, link, held_for),
        Err(trouble) => {
            let found = Sample::without(&address, trouble.to_string());
            return Visit { found, run_id: None, members: Vec::new() };
        }
    };
    let mut visit = Visit { found: Sample::default(), run_id: None, members: Vec::new() };
    let result = sampler.run(&mut visit, only, known);
    let found = Sample { address: address.clone(), ..sampler.sample };
    visit.found = match result {
        Ok(()) => found,
        Err(trouble) => Sample { role: found.role, ..Sample::without(&address, trouble.to_string()) },
    };
    visit
}

/// The server's time, from one reading of it.
struct Clock {
    at_us: u64,
    read: Instant,
}

impl Clock {
    fn now_us(&self) -> u64 {
        self.at_us.saturating_add(u64::try_from(self.read.elapsed().as_micros()).unwrap_or(0))
    }
}

/// The age of a grant in microseconds; `None` if its token is not the time of a grant.
fn age_us(token: Option<u64>, now_us: u64) -> Option<u64> {
    let range = FIRST_TOKEN..=now_us.saturating_add(MOST_AHEAD);
    token.filter(|token| range.contains(token)).map(|token| now_us.saturating_sub(token))
}

struct Sampler {
    target: Target,
    link: Link,
    clock: Clock,
    held_for_us: u64,
    sample: Sample,
    /// Hashes of the locks that were counted, because LOCK.SCAN can return a key twice.
    seen: HashSet<u64>,
    hashes: RandomState,
    /// The oldest holds, by token.
    oldest: BTreeMap<(u64, Name), Hold>,
    /// The work done since the last pause, in keys, and the time it took.
    work: usize,
    took: Duration,
}

impl Sampler {
    fn new(target: Target, link: Link, held_for: Duration) -> Self {
        Self {
            target,
            link,
            clock: Clock { at_us: 0, read: Instant::now() },
            held_for_us: u64::try_from(held_for.as_micros()).unwrap_or(u64::MAX),
            sample: Sample::default(),
            seen: HashSet::new(),
            hashes: RandomState::new(),
            oldest: BTreeMap::new(),
            work: 0,
            took: Duration::ZERO,
        }
    }

    fn run(&mut self, visit: &mut Visit<Sample>, only: bool, known: &BTreeSet<String>) -> Result<(), Trouble> {
        let info = self.info("server")?.unwrap_or_default();
        visit.run_id = info.text("run_id").map(Into::into);
        if visit.run_id.as_ref().is_some_and(|run_id| known.contains(run_id)) {
            return Ok(());
        }
        let mode = info.text("redis_mode").or_else(|| info.text("server_mode"));
        if mode == Some("sentinel") {
            return Err(Trouble::Said("this is a Sentinel; --sentinel NAME shows its group".into()));
        }
        let own = || SystemTime::now().duration_since(UNIX_EPOCH).ok().and_then(|now| now.as_micros().try_into().ok());
        let at_us = info.number("server_time_usec").or_else(own).unwrap_or_default();
        self.clock = Clock { at_us, read: Instant::now() };
        if mode == Some("cluster") && !only {
            visit.members = self.members()?;
        }
        self.sample.role = self.info("replication")?.and_then(|info| info.text("role").map(Into::into));
        if self.sample.is_replica() {
            self.sample.note("a replica, not sampled: its master has the same locks");
            return Ok(());
        }
        for db in self.databases()? {
            self.scan(db)?;
        }
        self.confirm()
    }

    /// Sends a command that this user may not be permitted to send: then the result is `None`.
    fn ask(&mut self, words: &[&[u8]], without: &str) -> Result<Option<Value>, Trouble> {
        match self.link.ask(words) {
            Ok(reply) => Ok(Some(reply)),
            Err(trouble) if trouble.is_denied() => {
                self.sample.note(without);
                Ok(None)
            }
            Err(trouble) => Err(trouble),
        }
    }

    fn info(&mut self, section: &str) -> Result<Option<Info>, Trouble> {
        let without = "may not run INFO: ages by the clock of this machine, in one database, also of a replica";
        let reply = self.ask(&[b"INFO", section.as_bytes()], without)?;
        Ok(reply.as_ref().and_then(bytes).map(|text| Info::of(&String::from_utf8_lossy(&text))))
    }

    fn members(&mut self) -> Result<Vec<Target>, Trouble> {
        let without = "may not run CLUSTER SLOTS: the cluster's other masters are missing";
        let slots = self.ask(&[b"CLUSTER", b"SLOTS"], without)?;
        Ok(slots.and_then(|slots| servers::masters(&slots, &self.target)).unwrap_or_default())
    }

    /// The named database, or all that have keys.
    fn databases(&mut self) -> Result<BTreeSet<i64>, Trouble> {
        if let Some(db) = self.target.login().db {
            return Ok([db].into());
        }
        let info = self.info("keyspace")?.unwrap_or_default();
        let filled = info.0.keys().filter_map(|name| name.strip_prefix("db")?.parse().ok());
        // Asking an empty server shows whether the module is loaded.
        Ok(filled.chain([0]).collect())
    }

    fn scan(&mut self, db: i64) -> Result<(), Trouble> {
        let mut cursor = 0_u64;
        loop {
            let words: [&[u8]; 6] = [
                b"LOCK.SCAN",
                &cursor.to_string().into_bytes(),
                b"STATE",
                b"held",
                b"COUNT",
                &STEP.to_string().into_bytes(),
            ];
            let reply = self.timed(db, &words).map_err(|trouble| {
                if trouble.is_unknown_command() {
                    return Trouble::Said("the module is not loaded: LOCK.SCAN is unknown".into());
                }
                trouble
            })?;
            let (next, locks) = reply::scan(&reply, db)
                .ok_or_else(|| Trouble::Said("LOCK.SCAN: not the reply of this module".into()))?;
            for lock in locks {
                self.count(lock)?;
            }
            cursor = next;
            if cursor == 0 {
                return Ok(());
            }
            self.worked(STEP);
        }
    }

    fn worked(&mut self, keys: usize) {
        self.work = self.work.saturating_add(keys);
        if self.work >= STEP {
            thread::sleep(self.took.saturating_mul(SHARE).max(PAUSE));
            (self.work, self.took) = (0, Duration::ZERO);
        }
    }

    /// Sends a command, and measures how long it takes.
    fn timed(&mut self, db: i64, words: &[&[u8]]) -> Result<Value, Trouble> {
        let began = Instant::now();
        let reply = self.link.ask_in(db, words);
        self.took = self.took.saturating_add(began.elapsed());
        reply
    }

    /// Counts a lock that LOCK.SCAN returned.
    fn count(&mut self, lock: Lock) -> Result<(), Trouble> {
        if !self.seen.insert(self.hashes.hash_one(&lock.name)) {
            return Ok(());
        }
        let mut holders = lock.holders;
        let is_several = lock.holder_count.is_some_and(|count| count > 1);
        if is_several {
            // LOCK.SCAN reports only the holder whose lease ends last.
            match self.holders(&lock.name)? {
                Some(all) if all.is_empty() => return Ok(()),
                Some(all) => {
                    holders.retain(|last| all.iter().all(|holder| holder.token != last.token));
                    holders.extend(all);
                    if lock.holder_count.is_some_and(|count| count > MOST_HOLDERS) {
                        self.sample.note("a lock has more than 1000 holders: some of its holders are missing");
                    }
                }
                None => {}
            }
        }
        self.sample.held = self.sample.held.saturating_add(1);
        let now_us = self.clock.now_us();
        let mut oldest_us = None;
        for mut holder in holders {
            let age = age_us(holder.token, now_us);
            oldest_us = oldest_us.max(age);
            let Some((token, age)) = holder.token.zip(age) else { continue };
            holder.held_ms = Some(age / 1_000);
            if age >= self.held_for_us {
                let hold = Hold { name: lock.name.clone(), holder, is_read: is_several };
                self.oldest.insert((token, lock.name.clone()), hold);
            } else {
                self.sample.younger_ms = self.sample.younger_ms.max(holder.held_ms);
            }
        }
        if self.oldest.len() > MOST_HOLDS {
            self.sample.note("more than 1000 such holds: the youngest of them are missing");
            while self.oldest.len() > MOST_HOLDS {
                self.oldest.pop_last();
            }
        }
        match oldest_us {
            None => self.sample.unknown = self.sample.unknown.saturating_add(1),
            Some(age) if age >= self.held_for_us => self.sample.too_long = self.sample.too_long.saturating_add(1),
            Some(_) => {}
        }
        Ok(())
    }

    /// The holders of a lock whose leases have not ended; `None` if this user may not know them.
    fn holders(&mut self, name: &Name) -> Result<Option<Vec<Holder>>, Trouble> {
        let Some(lock) = self.read(name, &[b"FULL"])? else { return Ok(None) };
        let rows = lock.holders.len().saturating_add(lock.queue.map_or(0, |queue| queue.len()));
        self.worked(rows.saturating_add(1));
        let is_held = lock.state.as_deref() == Some("held");
        Ok(Some(lock.holders.into_iter().filter(|holder| is_held && holder.overdue_ms.is_none()).collect()))
    }

    /// Replies to LOCK.INFO; the lock is free if its key has another value, or if its slot has moved.
    fn read(&mut self, name: &Name, more: &[&[u8]]) -> Result<Option<Lock>, Trouble> {
        let words = [&[b"LOCK.INFO", name.key.as_slice()], more].concat();
        match self.timed(name.db, &words) {
            Ok(reply) => Ok(Some(reply::info(&reply, name).unwrap_or_default())),
            Err(trouble) if trouble.is_denied() => {
                let without = "may not run LOCK.INFO: no addresses, and of several holders only the last to end";
                self.sample.note(without);
                Ok(None)
            }
            Err(Trouble::Said(text)) if ["WRONGTYPE", "MOVED", "ASK"].iter().any(|code| text.starts_with(code)) => {
                Ok(Some(Lock::default()))
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// Reads who has the oldest holds, and drops those that ended in the meantime.
    fn confirm(&mut self) -> Result<(), Trouble> {
        for mut hold in std::mem::take(&mut self.oldest).into_values() {
            if !hold.is_read {
                if let Some(lock) = self.read(&hold.name, &[])? {
                    let is_it = |holder: &Holder| holder.token == hold.holder.token && holder.overdue_ms.is_none();
                    let Some(holder) = lock.holders.into_iter().find(is_it) else {
                        self.sample.held = self.sample.held.saturating_sub(1);
                        self.sample.too_long = self.sample.too_long.saturating_sub(1);
                        continue;
                    };
                    hold.holder = Holder { held_ms: hold.holder.held_ms, ..holder };
                }
                self.worked(1);
            }
            self.sample.holds.push(hold);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_token_that_a_clock_gave_has_an_age() {
        let now = 1_795_257_100_747_043;
        assert_eq!(age_us(Some(now - 5), now), Some(5));
        assert_eq!(age_us(Some(FIRST_TOKEN), now), Some(now - FIRST_TOKEN));
        // Tokens that are less than a day ahead are normal after the clock was set back.
        assert_eq!([age_us(Some(now), now), age_us(Some(now + MOST_AHEAD), now)], [Some(0), Some(0)]);
        for token in [None, Some(0), Some(FIRST_TOKEN - 1), Some(now + MOST_AHEAD + 1), Some(u64::MAX)] {
            assert_eq!(age_us(token, now), None, "{token:?}");
        }
        assert_eq!(age_us(Some(now), u64::MAX), Some(u64::MAX - now));
    }
}
