//! One poll of a server: at most [`MOST_DETAILS`] + 5 commands, however many locks it has, over one connection (plus
//! SELECT if locks are in several databases).
//!
//! A poll sends INFO lock, INFO replication, LOCK.TOP and, if wanted, one step of LOCK.SCAN; then LOCK.INFO FULL for
//! the selected lock and for the locks whose queues were read longest ago, up to [`MOST_ROWS`] rows. A new connection
//! sends INFO server and CONFIG GET once. A command that this user may not run is left out for [`DENIED_FOR`], so that
//! a restricted user does not fill the server's ACL LOG.

use crate::action::{Action, What};
use crate::link::{Link, Trouble};
use crate::model::{By, Info, Lock, Name, Rates, Server};
use crate::reply::{self, bytes, list, number};
use crate::servers;
use crate::target::Target;
use redis::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The number of queues that a poll reads in full.
pub const MOST_DETAILS: usize = 8;
/// The number of queue rows that a poll reads, besides those of the selected lock; LOCK.INFO replies with at most 1000.
const MOST_ROWS: u64 = 2_000;
/// How many keys a step of LOCK.SCAN inspects.
const SCAN_COUNT: &str = "500";
/// How many locks without waiters are kept.
const MOST_FOUND: usize = 1_000;
const DENIED_FOR: Duration = Duration::from_secs(30);
/// How often a server is asked for the other servers of its cluster.
const MEMBERS_EVERY: Duration = Duration::from_secs(10);

/// What the view needs.
#[derive(Clone, Debug)]
pub struct Wish {
    pub by: By,
    /// How many locks LOCK.TOP lists.
    pub count: usize,
    /// Whether to include locks without waiters.
    pub all: bool,
    pub selected: Option<Name>,
    /// How many queues a poll may read: more only for a single poll.
    pub details: usize,
}

/// A server that is polled repeatedly.
pub struct Poller {
    target: Target,
    link: Option<Link>,
    /// Properties that do not change during a connection.
    about: About,
    denied: BTreeMap<&'static str, Instant>,
    /// The last reply to LOCK.INFO, and its time.
    details: BTreeMap<Name, (Lock, Instant)>,
    found: BTreeMap<Name, (Lock, u64)>,
    cursor: u64,
    round: u64,
    counters: Option<(Info, Instant)>,
    knows_by: bool,
    members: Option<Instant>,
    /// Keys that this user may not read.
    denied_keys: BTreeMap<Name, Instant>,
}

#[derive(Default)]
struct About {
    run_id: Option<String>,
    version: Option<String>,
    is_cluster: bool,
    is_sentinel: bool,
    settings: BTreeMap<String, u64>,
}

impl Poller {
    pub fn new(target: Target) -> Self {
        Self {
            target,
            link: None,
            about: About::default(),
            denied: BTreeMap::new(),
            details: BTreeMap::new(),
            found: BTreeMap::new(),
            cursor: 0,
            round: 0,
            counters: None,
            knows_by: true,
            members: None,
            denied_keys: BTreeMap::new(),
        }
    }

    /// Polls the server, connecting if necessary. If it cannot be asked, the result says why.
    pub fn poll(&mut self, wish: &Wish) -> Server {
        match self.try_poll(wish) {
            Ok(server) => server,
            Err(trouble) => {
                // Even if the server answered: what is read once per connection may have changed.
                self.link = None;
                self.counters = None;
                Server {
                    run_id: self.about.run_id.clone(),
                    ..Server::without(&self.target.address(), trouble.to_string())
                }
            }
        }
    }

    fn try_poll(&mut self, wish: &Wish) -> Result<Server, Trouble> {
        if self.link.is_none() {
            self.link = Some(Link::open(&self.target)?);
            self.denied.clear();
            self.denied_keys.clear();
            self.knows_by = true;
            self.about = self.read_about()?;
        }
        if self.about.is_sentinel {
            return Err(Trouble::Said("this is a Sentinel; --sentinel NAME shows its group".into()));
        }
        let mut server = Server {
            address: self.target.address(),
            run_id: self.about.run_id.clone(),
            version: self.about.version.clone(),
            ..Server::default()
        };
        server.info = self.info("lock")?.unwrap_or_default();
        server.role = self.info("replication")?.and_then(|info| info.text("role").map(Into::into));
        server.rates = self.rates(&server.info);
        let setting = |name: &str| self.about.settings.get(name).copied();
        server.max_waiters = server.info.number("lock_max_waiters").or_else(|| setting("lock.max-waiters"));
        server.max_queued = server.info.number("lock_max_queued").or_else(|| setting("lock.max-queued"));
        server.grace_ms = setting("lock.failover-grace-ms");

        let top = self.top(wish)?;
        let wants_scan = wish.all || top.is_none();
        if wants_scan {
            self.scan()?;
        } else {
            self.found.clear();
        }
        let mut locks: BTreeMap<Name, Lock> = BTreeMap::new();
        locks.extend(self.found.iter().map(|(name, (lock, _))| (name.clone(), lock.clone())));
        for lock in top.unwrap_or_default() {
            locks.insert(lock.name.clone(), lock);
        }
        self.read_details(&locks, wish)?;
        server.locks = locks.into_values().filter_map(|lock| self.with_details(lock)).collect();
        server.notes = self.notes();
        Ok(server)
    }

    /// Sends a query. Returns `None` if this user may not send it.
    fn ask(&mut self, what: &'static str, db: Option<i64>, words: &[&[u8]]) -> Result<Option<Value>, Trouble> {
        if self.denied.get(what).is_some_and(|since| since.elapsed() < DENIED_FOR) {
            return Ok(None);
        }
        let link = self.link.as_mut().ok_or_else(|| Trouble::Lost("not connected".into()))?;
        let reply = match db {
            Some(db) => link.ask_in(db, words),
            None => link.ask(words),
        };
        match reply {
            Ok(reply) => {
                self.denied.remove(what);
                Ok(Some(reply))
            }
            // The user may be allowed to read another key.
            Err(trouble) if trouble.is_denied_key() => Err(trouble),
            Err(trouble) if trouble.is_denied() => {
                self.denied.insert(what, Instant::now());
                Ok(None)
            }
            Err(trouble) if trouble.is_unknown_command() && what.starts_with("LOCK.") => {
                Err(Trouble::Said(format!("the module is not loaded: {what} is unknown")))
            }
            Err(trouble) => Err(trouble),
        }
    }

    fn info(&mut self, section: &'static str) -> Result<Option<Info>, Trouble> {
        let reply = self.ask("INFO", None, &[b"INFO", section.as_bytes()])?;
        Ok(reply.as_ref().and_then(bytes).map(|text| Info::of(&String::from_utf8_lossy(&text))))
    }

    fn read_about(&mut self) -> Result<About, Trouble> {
        let info = self.info("server")?.unwrap_or_default();
        let mode = info.text("redis_mode").or_else(|| info.text("server_mode")).unwrap_or_default().to_string();
        let version = match (info.text("valkey_version"), info.text("redis_version")) {
            (Some(valkey), _) => Some(format!("valkey {valkey}")),
            (None, Some(redis)) => Some(format!("redis {redis}")),
            (None, None) => None,
        };
        let mut about = About {
            run_id: info.text("run_id").map(Into::into),
            version,
            is_cluster: mode == "cluster",
            is_sentinel: mode == "sentinel",
            settings: BTreeMap::new(),
        };
        if about.is_sentinel {
            return Ok(about);
        }
        // Before 7.0 modules have no settings there, and a user may lack the permission; limits are then not shown.
        let reply = match self.ask("CONFIG GET", None, &[b"CONFIG", b"GET", b"lock.*"]) {
            Ok(reply) => reply,
            Err(Trouble::Said(text)) if text.starts_with("ERR") => None,
            Err(trouble) => return Err(trouble),
        };
        let pairs = match &reply {
            Some(Value::Map(pairs)) => pairs.iter().map(|(name, value)| (name, value)).collect(),
            Some(Value::Array(items)) => {
                items.chunks_exact(2).filter_map(|two| Some((two.first()?, two.get(1)?))).collect()
            }
            _ => Vec::new(),
        };
        let setting = |(name, value)| Some((String::from_utf8(bytes(name)?).ok()?, number(value)?));
        about.settings = pairs.into_iter().filter_map(setting).collect();
        Ok(about)
    }

    fn rates(&mut self, info: &Info) -> Option<Rates> {
        let now = Instant::now();
        let (before, since) = self.counters.replace((info.clone(), now))?;
        Rates::between(&before, info, now.duration_since(since).as_secs_f64())
    }

    /// The longest queues; `None` if this user may not ask.
    fn top(&mut self, wish: &Wish) -> Result<Option<Vec<Lock>>, Trouble> {
        let count = wish.count.to_string();
        let plain: [&[u8]; 3] = [b"LOCK.TOP", b"COUNT", count.as_bytes()];
        if self.knows_by {
            match self.ask("LOCK.TOP", None, &[&plain[..], &[b"BY", wish.by.word().as_bytes()]].concat()) {
                // An older module has no BY: only its longest queues can be sorted.
                Err(trouble) if trouble.is_syntax() => self.knows_by = false,
                reply => return Ok(reply?.as_ref().map(reply::top)),
            }
        }
        Ok(self.ask("LOCK.TOP", None, &plain)?.as_ref().map(reply::top))
    }

    /// One step of the scan through the database's keys.
    fn scan(&mut self) -> Result<(), Trouble> {
        let db = self.target.login().db.unwrap_or(0);
        let cursor = self.cursor.to_string();
        let words: [&[u8]; 4] = [b"LOCK.SCAN", cursor.as_bytes(), b"COUNT", SCAN_COUNT.as_bytes()];
        let Some((cursor, locks)) =
            self.ask("LOCK.SCAN", Some(db), &words)?.as_ref().and_then(|reply| reply::scan(reply, db))
        else {
            return Ok(());
        };
        for lock in locks {
            if self.found.len() < MOST_FOUND || self.found.contains_key(&lock.name) {
                self.found.insert(lock.name.clone(), (lock, self.round));
            }
        }
        self.cursor = cursor;
        if cursor == 0 {
            // A lock that a full round did not find is gone.
            let round = self.round;
            self.found.retain(|_, (_, seen)| *seen == round);
            self.round = round.wrapping_add(1);
        }
        Ok(())
    }

    /// Whether a full round of LOCK.SCAN is complete.
    pub fn has_scanned(&self) -> bool {
        self.cursor == 0
    }

    fn read_details(&mut self, locks: &BTreeMap<Name, Lock>, wish: &Wish) -> Result<(), Trouble> {
        self.details.retain(|name, _| locks.contains_key(name));
        self.denied_keys.retain(|name, since| locks.contains_key(name) && since.elapsed() < DENIED_FOR);
        let rows = |lock: &Lock| lock.waiters.unwrap_or(0).min(1_000).saturating_add(10);
        let mut stale: Vec<&Lock> = locks.values().filter(|lock| !self.denied_keys.contains_key(&lock.name)).collect();
        // The selected lock first, then those whose queues were read longest ago.
        stale.sort_by_key(|lock| {
            let read = self.details.get(&lock.name).map(|(_, at)| *at);
            (wish.selected.as_ref() != Some(&lock.name), lock.waiters == Some(0), read)
        });
        let mut left = MOST_ROWS;
        for lock in stale.into_iter().take(wish.details) {
            let is_selected = wish.selected.as_ref() == Some(&lock.name);
            if rows(lock) > left && !is_selected {
                break;
            }
            left = left.saturating_sub(rows(lock));
            let words: [&[u8]; 3] = [b"LOCK.INFO", &lock.name.key, b"FULL"];
            let reply = match self.ask("LOCK.INFO", Some(lock.name.db), &words) {
                Err(trouble) if trouble.is_denied_key() => {
                    self.details.remove(&lock.name);
                    self.denied_keys.insert(lock.name.clone(), Instant::now());
                    continue;
                }
                // The key is no longer a lock, or its slot has moved: it will be missing from the next list.
                Err(Trouble::Said(text)) if ["WRONGTYPE", "MOVED", "ASK"].iter().any(|code| text.starts_with(code)) => {
                    None
                }
                reply => reply?,
            };
            if let Some(lock) = reply.as_ref().and_then(|reply| reply::info(reply, &lock.name)) {
                self.details.insert(lock.name.clone(), (lock, Instant::now()));
            }
        }
        Ok(())
    }

    /// Adds the reply to LOCK.INFO to a listed lock; `None` if it is free and has no waiters.
    fn with_details(&self, listed: Lock) -> Option<Lock> {
        let Some((detail, _)) = self.details.get(&listed.name) else { return Some(listed) };
        let is_gone = detail.state.as_deref() == Some("free") && detail.waiters.unwrap_or(0) == 0;
        if is_gone && listed.waiters.is_none() {
            return None;
        }
        Some(Lock {
            // LOCK.TOP is newer.
            waiters: listed.waiters.or(detail.waiters),
            oldest_wait_ms: listed.oldest_wait_ms.or(detail.oldest_wait_ms),
            held_ms: listed.held_ms.or(detail.held_ms),
            ..detail.clone()
        })
    }

    fn notes(&self) -> Vec<String> {
        let why = |what: &&'static str| match *what {
            "INFO" => Some("may not run INFO: no counters, limits and rates"),
            "LOCK.TOP" => Some("may not run LOCK.TOP: shows the locks that LOCK.SCAN finds"),
            "LOCK.SCAN" => Some("may not run LOCK.SCAN: locks that nobody waits for are missing"),
            "LOCK.INFO" => Some("may not run LOCK.INFO: no lines, tokens and cycles"),
            _ => None,
        };
        let mut notes: Vec<String> = self.denied.keys().filter_map(why).map(Into::into).collect();
        if !self.denied_keys.is_empty() {
            notes.push("may not read some of the keys: their lines are missing".into());
        }
        notes
    }

    /// The masters of this server's cluster, once in a while; otherwise `None`.
    pub fn members(&mut self) -> Option<Vec<Target>> {
        if !self.about.is_cluster || self.members.is_some_and(|at| at.elapsed() < MEMBERS_EVERY) {
            return None;
        }
        self.members = Some(Instant::now());
        let reply = self.ask("CLUSTER SLOTS", None, &[b"CLUSTER", b"SLOTS"]).ok()??;
        servers::masters(&reply, &self.target)
    }

    /// Carries out a confirmed action. Returns the outcome in one line.
    pub fn act(&mut self, action: &Action) -> String {
        match self.try_act(action) {
            Ok(reply) => action.outcome(reply),
            Err(trouble) => {
                if matches!(trouble, Trouble::Lost(_)) {
                    // Whether the action was carried out is unknown: it is never sent again automatically.
                    self.link = None;
                    return format!("{}: {trouble}; it may or may not have been done", action.text());
                }
                if action.what == What::Delete {
                    // The server forgets its watches and queued commands with the connection.
                    self.link = None;
                }
                format!("{}: {trouble}", action.text())
            }
        }
    }

    fn try_act(&mut self, action: &Action) -> Result<i64, Trouble> {
        self.details.remove(&action.name);
        let link = self.link.as_mut().ok_or_else(|| Trouble::Said("not connected: nothing was sent".into()))?;
        let (db, key) = (action.name.db, action.name.key.as_slice());
        if action.what != What::Delete {
            return Ok(integer(&link.ask_in(db, &action.command())?));
        }
        // The key is deleted only while it is foreign, because it may be held as a lock by now.
        link.ask_in(db, &[b"WATCH", key])?;
        let now = link.ask_in(db, &[b"LOCK.INFO", key])?;
        if reply::info(&now, &action.name).is_none_or(|lock| !lock.is_foreign()) {
            link.ask(&["UNWATCH"])?;
            return Ok(0);
        }
        link.ask(&["MULTI"])?;
        link.ask(&[b"DEL", key])?;
        let done = link.ask(&["EXEC"])?;
        Ok(list(&done).and_then(<[Value]>::first).map_or(0, integer))
    }
}

fn integer(value: &Value) -> i64 {
    if let Value::Int(number) = value {
        *number
    } else {
        0
    }
}
