//! A mixed fleet on one server: the module, scripts, functions, clients that use SETNX or SET NX PX, and holders that
//! die. No two of them work at once, and the key's tokens grow.

use super::{load, Way};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};
use testkit::dice::Dice;
use testkit::{env_number, server_time_us, Conn, Reply, Server};

/// Longer than any stall of this machine; the margin covers it too.
const LEASE: Duration = Duration::from_millis(250);
const MARGIN: Duration = Duration::from_millis(250);
const KEYS: [&str; 2] = ["first", "second"];

/// How a client locks.
#[derive(Clone, Debug)]
enum Kind {
    Module,
    Portable(Way),
    /// SETNX, GET, GETSET, and DEL of its own timestamp.
    Classic,
    /// SET NX PX, and a script that compares and deletes.
    Secret,
}

/// The client that works under a lock at the moment, and its last token.
#[derive(Default)]
struct Site {
    /// When the client must stop working.
    working: Mutex<Option<Instant>>,
    last: AtomicI64,
    grants: Mutex<Vec<String>>,
}

/// A grant: its token, if it has one, and what its holder needs in order to release it.
struct Grant {
    token: Option<i64>,
    value: String,
}

impl Kind {
    fn acquire(&self, conn: &mut Conn, key: &str, name: &str) -> Option<Grant> {
        let lease = LEASE.as_millis().to_string();
        let by_token = |reply: Reply| match reply {
            Reply::Int(token) => Some(Grant { token: Some(token), value: token.to_string() }),
            Reply::Nil => None,
            Reply::List(details) => Some(Grant { token: Some(details[0].int()), value: details[0].int().to_string() }),
            other => panic!("{other:?}"),
        };
        match self {
            Self::Module => by_token(conn.execute(&["LOCK.ACQUIRE", key, "PX", &lease])),
            Self::Portable(way) => {
                let acquire = ["LOCK.ACQUIRE", key, "PX", &lease, "DETAILS"];
                by_token(conn.execute(&way.args(&acquire, &MARGIN.as_millis().to_string(), "0")))
            }
            Self::Classic => {
                let now_us = server_time_us(conn);
                let until_us = now_us + i64::try_from((LEASE + MARGIN).as_micros()).unwrap();
                let value = format!("{}.{:06}", until_us / 1_000_000, until_us % 1_000_000);
                let granted = || Some(Grant { token: None, value: value.clone() });
                if conn.int(&["SETNX", key, &value]) == 1 {
                    return granted();
                }
                let seen = conn.execute(&["GET", key]);
                if end_us(&seen).is_none_or(|end_us| end_us > now_us) {
                    return None;
                }
                (conn.execute(&["GETSET", key, &value]) == seen).then(granted)?
            }
            Self::Secret => {
                let set = ["SET", key, name, "NX", "PX", &(LEASE + MARGIN).as_millis().to_string()];
                (conn.execute(&set) == Reply::Status("OK".into())).then(|| Grant { token: None, value: name.into() })
            }
        }
    }

    fn release(&self, conn: &mut Conn, key: &str, grant: &Grant) {
        match self {
            Self::Module => {
                conn.int(&["LOCK.RELEASE", key, &grant.value]);
            }
            Self::Portable(way) => {
                conn.int(&way.usual(&["LOCK.RELEASE", key, &grant.value]));
            }
            Self::Classic | Self::Secret => {
                let compare =
                    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";
                conn.int(&["EVAL", compare, "1", key, &grant.value]);
            }
        }
    }
}

/// The timestamp at the start of a value, in microseconds; `None` for another client's secret, or a missing key.
fn end_us(value: &Reply) -> Option<i64> {
    let Reply::Text(bytes) = value else { return None };
    let text = std::str::from_utf8(bytes).ok()?;
    let micros = text.get(11..17)?.parse::<i64>().ok()?;
    Some(text.get(..10)?.parse::<i64>().ok()? * 1_000_000 + micros)
}

/// Locks, works for a moment, and releases, or dies, until `end`.
fn work(kind: &Kind, server: &Server, sites: &[Site; 2], name: &str, end: Instant, mut dice: Dice) {
    let mut conn = server.conn();
    while Instant::now() < end {
        let at = dice.index(KEYS.len());
        let (site, key) = (&sites[at], KEYS[at]);
        let sent = Instant::now();
        let Some(grant) = kind.acquire(&mut conn, key, name) else {
            thread::sleep(Duration::from_micros(dice.between(100, 3_000)));
            continue;
        };
        // A client whose reply arrives after its lease does not start working.
        if sent.elapsed() >= LEASE {
            continue;
        }
        let end_of_lease = sent + LEASE;
        let other = site.working.lock().unwrap().replace(end_of_lease);
        // A client that was delayed until the end of its lease has stopped.
        assert!(other.is_none_or(|until| Instant::now() >= until), "{name} got {key} while another is working");
        if let Some(token) = grant.token {
            let last = site.last.swap(token, Ordering::SeqCst);
            assert!(token > last, "{name}: {token} after {last}");
        }
        site.grants.lock().unwrap().push(format!("{kind:?}").chars().take(12).collect());
        let dies = dice.one_in(12);
        if dies {
            // It works until the end of its lease, and does not release.
            thread::sleep(LEASE.saturating_sub(sent.elapsed() + Duration::from_millis(5)));
        } else {
            thread::sleep(Duration::from_micros(dice.between(0, 2_000)));
        }
        site.working.lock().unwrap().take_if(|until| *until == end_of_lease);
        if dies {
            conn = server.conn();
        } else {
            kind.release(&mut conn, key, &grant);
        }
    }
}

fn run(server: &Server, kinds: &[Kind]) {
    let seconds = env_number("FLEET_SECONDS").unwrap_or(2);
    let (sites, end) = (<[Site; 2]>::default(), Instant::now() + Duration::from_secs(seconds));
    thread::scope(|scope| {
        for (number, kind) in kinds.iter().enumerate() {
            let (sites, seed) = (&sites, 24 + u64::try_from(number).unwrap());
            scope.spawn(move || work(kind, server, sites, &format!("client-{number}"), end, Dice::new(seed)));
        }
    });
    for kind in kinds {
        let name: String = format!("{kind:?}").chars().take(12).collect();
        let count: usize =
            sites.iter().map(|site| site.grants.lock().unwrap().iter().filter(|grant| **grant == name).count()).sum();
        assert!(count > 0, "{kind:?} never got a lock");
    }
}

/// The module and scripts, together with both kinds of home-made locks.
#[test]
fn the_module_scripts_and_classic_locks_never_overlap() {
    let margin = MARGIN.as_millis().to_string();
    let server = Server::with().module_args(&["margin-ms", &margin, "retention-ms", "0"]).start();
    // Others overwrite the keys, without an event from the server.
    server.allow_silent_changes();
    let ways = load(&mut server.conn());
    let mut kinds = vec![Kind::Module, Kind::Module, Kind::Classic, Kind::Classic, Kind::Secret, Kind::Secret];
    kinds.extend(ways.iter().chain(&ways).cloned().map(Kind::Portable));
    run(&server, &kinds);
}

/// The same without the module.
#[test]
fn functions_scripts_and_classic_locks_never_overlap() {
    let server = Server::with().without_module().start();
    let ways = load(&mut server.conn());
    let mut kinds = vec![Kind::Classic, Kind::Classic, Kind::Secret, Kind::Secret];
    kinds.extend(ways.iter().chain(&ways).cloned().map(Kind::Portable));
    run(&server, &kinds);
}
