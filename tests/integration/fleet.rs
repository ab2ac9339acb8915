//! A mixed fleet on the same keys: clients that use the pattern documented for SETNX, clients that use SET NX PX with a
//! script, and LOCK.* clients never hold a lock at the same time, even if some die.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use testkit::{Conn, Reply, Server};

/// One lease for all, in seconds, as docs/SEMANTICS.md requires of a fleet.
const LEASE_S: i64 = 1;
const LEASE: Duration = Duration::from_secs(1);
const RUN: Duration = Duration::from_secs(6);
const KEYS: [&str; 3] = ["lock.a", "lock.b", "lock.c"];
const CLIENTS_OF_A_KIND: usize = 3;
/// How many times per run a client of each kind dies while it holds a lock.
const DEATHS_OF_A_KIND: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// The documented pattern in whole seconds, as `to_i`, `strtol` and the like read them.
    ClassicSeconds,
    /// The documented pattern with fractions, as `float()` and the like read them.
    ClassicFloat,
    /// SET NX PX, and a script that deletes the key if it still holds the client's value.
    Script,
    /// LOCK.*.
    Lock,
}

const KINDS: [Kind; 4] = [Kind::ClassicSeconds, Kind::ClassicFloat, Kind::Script, Kind::Lock];

/// The clients' clock.
fn unix_s() -> f64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64()
}

impl Kind {
    fn now(self) -> f64 {
        if self == Kind::ClassicSeconds {
            unix_s().floor()
        } else {
            unix_s()
        }
    }

    /// The current Unix time + lock timeout + 1.
    #[allow(clippy::cast_precision_loss)]
    fn classic_timestamp(self) -> String {
        let timestamp = self.now() + LEASE_S as f64 + 1.0;
        if self == Kind::ClassicSeconds {
            format!("{timestamp:.0}")
        } else {
            format!("{timestamp:.6}")
        }
    }

    /// Whether a value is a timestamp that has passed. Any value that is not a number is a token.
    fn classic_is_expired(self, value: &str) -> bool {
        let number = if self == Kind::ClassicSeconds { value.split('.').next().unwrap() } else { value };
        number.parse::<f64>().is_ok_and(|timestamp| timestamp < self.now())
    }
}

/// A client that holds no lock at the moment.
struct Client {
    kind: Kind,
    conn: Conn,
    name: String,
    grants: usize,
}

/// The argument that releases a grant.
enum Grant {
    Classic,
    Value(String),
    Token(String),
}

impl Client {
    fn acquire(&mut self, key: &str) -> Option<Grant> {
        self.grants += 1;
        match self.kind {
            Kind::ClassicSeconds | Kind::ClassicFloat => self.acquire_classic(key).then_some(Grant::Classic),
            Kind::Script => {
                let value = format!("{}-{}", self.name, self.grants);
                let lease = (LEASE_S * 1000).to_string();
                let reply = self.conn.execute(&["SET", key, &value, "NX", "PX", &lease]);
                (!reply.is_nil()).then_some(Grant::Value(value))
            }
            Kind::Lock => match self.conn.execute(&["LOCK.ACQUIRE", key, "EX", &LEASE_S.to_string()]) {
                Reply::Nil => None,
                token => Some(Grant::Token(token.int().to_string())),
            },
        }
    }

    /// As documented for SETNX: SETNX; if that fails, GET; if the timestamp has passed, GETSET; the lock is ours if the
    /// value that GETSET returned has passed too.
    fn acquire_classic(&mut self, key: &str) -> bool {
        if self.conn.int(&["SETNX", key, &self.kind.classic_timestamp()]) == 1 {
            return true;
        }
        match self.conn.execute(&["GET", key]) {
            Reply::Nil => return false,
            value if !self.kind.classic_is_expired(&value.text()) => return false,
            _ => {}
        }
        match self.conn.execute(&["GETSET", key, &self.kind.classic_timestamp()]) {
            // The lock was released in between: GETSET took a free lock.
            Reply::Nil => true,
            value => self.kind.classic_is_expired(&value.text()),
        }
    }

    fn release(&mut self, key: &str, grant: &Grant, sent: Instant) {
        match grant {
            // The lease is checked before DEL, because afterwards another client may hold the lock.
            Grant::Classic => {
                if sent.elapsed() < LEASE {
                    self.conn.int(&["DEL", key]);
                }
            }
            Grant::Value(value) => {
                let script =
                    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
                self.conn.int(&["EVAL", script, "1", key, value]);
            }
            // 0 when a classic client that lost the race overwrote our timestamp with its own.
            Grant::Token(token) => {
                assert!((-1..=1).contains(&self.conn.int(&["LOCK.RELEASE", key, token])));
            }
        }
    }
}

/// The time from when a client knew of its grant until it sent the release, or until its lease ended.
#[derive(Clone, Copy, Debug)]
struct Held {
    kind: Kind,
    key: &'static str,
    /// Since the start.
    from: Duration,
    to: Duration,
    died: bool,
}

/// Two consecutive holds of a key that overlap.
fn overlap(held: &[Held]) -> Option<(Held, Held)> {
    KEYS.iter().find_map(|key| {
        let mut of_key: Vec<&Held> = held.iter().filter(|held| held.key == *key).collect();
        of_key.sort_by_key(|held| held.from);
        of_key.windows(2).find(|pair| pair[0].to > pair[1].from).map(|pair| (*pair[0], *pair[1]))
    })
}

struct Fleet {
    server: Server,
    begin: Instant,
    held: Mutex<Vec<Held>>,
    deaths: [AtomicUsize; KINDS.len()],
}

impl Fleet {
    fn client(&self, kind: Kind, number: usize) -> Client {
        Client { kind, conn: self.server.conn(), name: format!("{kind:?}-{number}"), grants: 0 }
    }

    /// Whether the client that just got a lock has to die while it holds it: deaths are spread over the run.
    fn dies(&self, kind: Kind) -> bool {
        let deaths = &self.deaths[kind as usize];
        let so_far = deaths.load(Ordering::SeqCst);
        let due = RUN * u32::try_from(so_far * 2 + 1).unwrap() / u32::try_from(DEATHS_OF_A_KIND * 2 + 1).unwrap();
        so_far < DEATHS_OF_A_KIND
            && self.begin.elapsed() >= due
            && deaths.compare_exchange(so_far, so_far + 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Takes locks, works a little and releases them until the run is over.
    fn run(&self, kind: Kind, number: usize) {
        let mut client = self.client(kind, number);
        let mut turn = number + kind as usize;
        while self.begin.elapsed() < RUN {
            turn += 1;
            let key = KEYS[turn % KEYS.len()];
            let sent = Instant::now();
            let Some(grant) = client.acquire(key) else {
                thread::sleep(Duration::from_millis(3 + turn as u64 % 5));
                continue;
            };
            let from = self.begin.elapsed();
            // The holder counts its lease from when it sent the command.
            let end = sent + LEASE - self.begin;
            let died = self.dies(kind);
            if !died {
                thread::sleep(Duration::from_millis(2 + turn as u64 % 7));
            }
            let to = if died { end } else { end.min(self.begin.elapsed()) };
            self.held.lock().unwrap().push(Held { kind, key, from, to: to.max(from), died });
            if died {
                client = self.client(kind, number);
            } else {
                client.release(key, &grant, sent);
                // So that the last holder is not always the first to find the lock free.
                thread::sleep(Duration::from_millis(1 + turn as u64 % 3));
            }
        }
    }
}

/// Lets the fleet run and asserts that no lock had two holders, and that nobody was locked out.
fn run_fleet(module_args: &[&str]) {
    let server = Server::with().module_args(module_args).start();
    let run_id = |server: &Server| server.conn().info("server", "run_id").expect("a server");
    let before = run_id(&server);
    let fleet = Arc::new(Fleet {
        server,
        begin: Instant::now(),
        held: Mutex::default(),
        deaths: [const { AtomicUsize::new(0) }; KINDS.len()],
    });
    let clients: Vec<_> = KINDS
        .iter()
        .flat_map(|kind| (0..CLIENTS_OF_A_KIND).map(|number| (*kind, number)))
        .map(|(kind, number)| {
            let fleet = Arc::clone(&fleet);
            thread::spawn(move || fleet.run(kind, number))
        })
        .collect();
    // A hung client would have failed at its read time-out.
    for client in clients {
        client.join().expect("no client of the fleet failed");
    }
    assert_eq!(run_id(&fleet.server), before, "the server was restarted");

    let held = fleet.held.lock().unwrap();
    if let Some((first, second)) = overlap(&held) {
        panic!("held at the same time: {first:?} and {second:?}");
    }
    for kind in KINDS {
        let of_kind = || held.iter().filter(|held| held.kind == kind);
        assert!(of_kind().count() >= 10, "{kind:?} got no further than {} grants", of_kind().count());
        assert!(of_kind().any(|held| held.died), "no {kind:?} died: the run shows too little");
        // Each kind gets locks in the second half too: nobody is locked out for good.
        assert!(of_kind().any(|held| held.from > RUN / 2), "{kind:?} got nothing in the second half");
    }
}

#[test]
fn a_mixed_fleet_is_exclusive_with_the_default_retention() {
    run_fleet(&[]);
}

#[test]
fn a_mixed_fleet_is_exclusive_with_a_short_retention() {
    run_fleet(&["retention-ms", "200"]);
}

#[test]
fn a_mixed_fleet_never_holds_a_lock_twice_without_retention() {
    run_fleet(&["retention-ms", "0"]);
}

#[test]
fn the_fleet_would_notice_two_holders() {
    let held = |key, from, to| {
        let [from, to] = [from, to].map(Duration::from_millis);
        Held { kind: Kind::Lock, key, from, to, died: false }
    };
    assert!(overlap(&[held(KEYS[0], 5, 9), held(KEYS[1], 0, 9), held(KEYS[0], 0, 5)]).is_none());
    assert!(overlap(&[held(KEYS[0], 4, 9), held(KEYS[1], 0, 9), held(KEYS[0], 0, 5)]).is_some());
}
