//! The content of the view: servers, their locks, holders and waiters. Values only; `reply` creates them.

use crate::text::word;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A client that holds or waits, as far as the server identifies it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Party {
    pub client: Option<u64>,
    pub addr: Option<String>,
    pub name: Option<String>,
    pub owner: Option<String>,
}

impl Party {
    /// A name to display: the owner, else the name of the connection; with the client's number.
    pub fn label(&self) -> String {
        let name = self.owner.as_deref().or(self.name.as_deref()).filter(|name| !name.is_empty());
        match (name, self.client) {
            (Some(name), Some(client)) => format!("{name} #{client}"),
            (Some(name), None) => name.into(),
            (None, Some(client)) => format!("#{client}"),
            (None, None) => "unknown".into(),
        }
    }

    /// The label with the client's address.
    pub fn long_label(&self) -> String {
        let address = self.addr.as_ref().filter(|addr| !addr.is_empty());
        address.map_or_else(|| self.label(), |addr| format!("{} {addr}", self.label()))
    }
}

/// A grant of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    pub token: Option<u64>,
    pub id: Option<String>,
    pub who: Party,
    pub held_ms: Option<u64>,
    pub lease_ms: Option<u64>,
    /// How long ago the lease ended, if it has.
    pub overdue_ms: Option<u64>,
    pub has_session: bool,
}

/// A waiter in the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiter {
    pub id: Option<String>,
    pub who: Party,
    pub waited_ms: Option<u64>,
    pub left_ms: Option<u64>,
    /// The channel, for an attempt with NOTIFY.
    pub channel: Option<Vec<u8>>,
}

/// The place of a lock on its server.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    pub db: i64,
    pub key: Vec<u8>,
}

impl Name {
    /// The key, with its database unless that is 0.
    pub fn label(&self) -> String {
        if self.db == 0 {
            word(&self.key)
        } else {
            format!("{}:{}", self.db, word(&self.key))
        }
    }
}

/// A lock: from LOCK.TOP or LOCK.SCAN, and what LOCK.INFO added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    pub name: Name,
    /// free, held, expired, foreign; `None` if only LOCK.TOP listed it.
    pub state: Option<String>,
    pub waiters: Option<u64>,
    pub oldest_wait_ms: Option<u64>,
    pub held_ms: Option<u64>,
    pub free_in_ms: Option<u64>,
    pub overdue_ms: Option<u64>,
    /// How many hold it now, according to LOCK.SCAN.
    pub holder_count: Option<u64>,
    /// Its holders; for an expired lock, its last holders.
    pub holders: Vec<Holder>,
    /// The waiters, in order; `None` if LOCK.INFO was not sent, or is not permitted.
    pub queue: Option<Vec<Waiter>>,
}

impl Lock {
    /// Whether another program wrote the key's value.
    pub fn is_foreign(&self) -> bool {
        self.state.as_deref() == Some("foreign")
    }

    /// The holder, and the number of others.
    pub fn holder_label(&self) -> String {
        match self.holders.as_slice() {
            [] if self.is_foreign() => "another program".into(),
            [] => "-".into(),
            [one] => one.who.long_label(),
            [one, others @ ..] => format!("{} and {} more", one.who.label(), others.len()),
        }
    }
}

/// What locks are sorted by, largest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    #[default]
    Waiters,
    Wait,
    Held,
}

impl By {
    /// The word of LOCK.TOP.
    pub fn word(self) -> &'static str {
        match self {
            Self::Waiters => "waiters",
            Self::Wait => "wait",
            Self::Held => "held",
        }
    }

    pub fn of_word(word: &str) -> Option<Self> {
        [Self::Waiters, Self::Wait, Self::Held].into_iter().find(|by| by.word() == word)
    }

    pub fn next(self) -> Self {
        match self {
            Self::Waiters => Self::Wait,
            Self::Wait => Self::Held,
            Self::Held => Self::Waiters,
        }
    }
}

/// Counts per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    pub grants: f64,
    pub hand_offs: f64,
    pub timeouts: f64,
}

impl Rates {
    /// From two polls of the counters. `None` if a counter is missing or fell: the server has restarted.
    pub fn between(before: &Info, after: &Info, seconds: f64) -> Option<Self> {
        let rate = |field: &str| {
            let grown = after.number(field)?.checked_sub(before.number(field)?)?;
            // Counters are far below 2^52.
            #[allow(clippy::cast_precision_loss)]
            (seconds > 0.0).then(|| grown as f64 / seconds)
        };
        Some(Self {
            grants: rate("lock_grants")?,
            hand_offs: rate("lock_hand_offs")?,
            timeouts: rate("lock_wait_timeouts")?,
        })
    }
}

/// Fields of INFO, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info(pub BTreeMap<String, String>);

impl Info {
    /// Parses the reply of INFO.
    pub fn of(text: &str) -> Self {
        let field = |line: &str| line.trim_end().split_once(':').map(|(name, value)| (name.into(), value.into()));
        Self(text.lines().filter(|line| !line.starts_with('#')).filter_map(field).collect())
    }

    pub fn text(&self, field: &str) -> Option<&str> {
        self.0.get(field).map(String::as_str)
    }

    pub fn number(&self, field: &str) -> Option<u64> {
        self.text(field)?.parse().ok()
    }
}

/// The result of polling a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Server {
    pub address: String,
    /// One line: why nothing is known of the server.
    pub trouble: Option<String>,
    /// One line each: what this user may not see.
    pub notes: Vec<String>,
    pub run_id: Option<String>,
    pub version: Option<String>,
    pub role: Option<String>,
    pub info: Info,
    pub rates: Option<Rates>,
    pub max_waiters: Option<u64>,
    pub max_queued: Option<u64>,
    /// `lock.failover-grace-ms`, where it may be read.
    pub grace_ms: Option<u64>,
    pub locks: Vec<Lock>,
}

impl Server {
    /// A server about which nothing is known, either not yet or no longer.
    pub fn without(address: &str, trouble: impl Into<String>) -> Self {
        Self { address: address.into(), trouble: Some(trouble.into()), ..Self::default() }
    }
}

/// A lock in the view: its server's number, and the lock.
pub type Placed<'a> = (usize, &'a Lock);

/// The locks of all servers, sorted; ties by name, so that their order is stable.
pub fn sorted(servers: &[Server], by: By) -> Vec<Placed<'_>> {
    let mut locks: Vec<Placed<'_>> =
        servers.iter().enumerate().flat_map(|(at, server)| server.locks.iter().map(move |lock| (at, lock))).collect();
    let key = |lock: &Lock| {
        let (waiters, wait, held) =
            (lock.waiters.unwrap_or(0), lock.oldest_wait_ms.unwrap_or(0), lock.held_ms.unwrap_or(0));
        Reverse(match by {
            By::Waiters => (waiters, wait),
            By::Wait => (wait, waiters),
            By::Held => (held, waiters),
        })
    };
    locks.sort_by(|(a_at, a), (b_at, b)| key(a).cmp(&key(b)).then_with(|| (&a.name, a_at).cmp(&(&b.name, b_at))));
    locks
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn party(client: u64, owner: &str) -> Party {
        let owner = Some(owner.to_string()).filter(|owner| !owner.is_empty());
        Party {
            client: Some(client).filter(|client| *client > 0),
            addr: (client > 0).then(|| format!("10.0.0.{client}:5000")),
            name: None,
            owner,
        }
    }

    /// A lock with this holder and these waiters.
    pub fn lock(key: &str, holder: Party, waiting: Vec<Party>) -> Lock {
        let held =
            Holder { token: Some(7), who: holder, held_ms: Some(61_000), lease_ms: Some(4_000), ..Holder::default() };
        let waiter = |who| Waiter { who, id: Some("4711".into()), waited_ms: Some(3_200), ..Waiter::default() };
        Lock {
            name: Name { db: 0, key: key.into() },
            state: Some("held".into()),
            waiters: Some(waiting.len() as u64),
            oldest_wait_ms: (!waiting.is_empty()).then_some(3_200),
            held_ms: Some(61_000),
            holders: vec![held],
            queue: Some(waiting.into_iter().map(waiter).collect()),
            ..Lock::default()
        }
    }

    fn sized(key: &str, waiters: u64, wait: u64, held: u64) -> Lock {
        let name = Name { db: 0, key: key.into() };
        Lock { name, waiters: Some(waiters), oldest_wait_ms: Some(wait), held_ms: Some(held), ..Lock::default() }
    }

    #[test]
    fn locks_are_sorted_across_all_servers() {
        let of = |locks| Server { locks, ..Server::default() };
        let servers = [of(vec![sized("a", 1, 30, 200), sized("b", 3, 20, 100)]), of(vec![sized("c", 2, 10, 300)])];
        let keys = |by| -> String { sorted(&servers, by).iter().map(|(_, lock)| word(&lock.name.key)).collect() };
        assert_eq!(keys(By::Waiters), "bca");
        assert_eq!(keys(By::Wait), "abc");
        assert_eq!(keys(By::Held), "cab");
        let alike = [of(vec![sized("b", 1, 1, 1), sized("a", 1, 1, 1)])];
        assert_eq!(sorted(&alike, By::Waiters)[0].1.name.key, b"a");
    }

    #[test]
    fn a_rate_is_a_difference_per_second() {
        let at = |grants: u64| {
            Info::of(&format!("# lock\r\nlock_grants:{grants}\r\nlock_hand_offs:1\r\nlock_wait_timeouts:0\r\n"))
        };
        let rates = Rates::between(&at(10), &at(30), 2.0).unwrap();
        assert_eq!((rates.grants, rates.hand_offs), (10.0, 0.0));
        assert_eq!(Rates::between(&at(30), &at(10), 2.0), None);
        assert_eq!(Rates::between(&Info::default(), &at(10), 2.0), None);
        assert_eq!(Rates::between(&at(10), &at(30), 0.0), None);
    }

    #[test]
    fn a_label_has_the_owner_and_the_number() {
        assert_eq!(party(17, "bob").long_label(), "bob #17 10.0.0.17:5000");
        assert_eq!(party(0, "bob").label(), "bob");
        assert_eq!(party(17, "").label(), "#17");
        assert_eq!(Party::default().label(), "unknown");
        let named = Party { name: Some("worker".into()), owner: None, ..party(3, "") };
        assert_eq!(named.label(), "worker #3");
    }
}
