//! A suspended machine: `CLOCK_MONOTONIC` stops, and everything else goes on.
//!
//! A preloaded library moves the server's clocks. While the server is stopped, its wall clock and `CLOCK_BOOTTIME` are
//! set ahead and `CLOCK_MONOTONIC` is set back by the length of the stop: to the server, all three look as they do
//! after a suspend.

use crate::metrics::number;
use std::thread::sleep;
use std::time::{Duration, Instant};
use testkit::clock::Clocks;
use testkit::relay::Relay;
use testkit::{bound, until, Conn, Options, Reply, Server};

const SECOND_US: i64 = 1_000_000;
const HOUR: Duration = Duration::from_secs(3_600);

/// A server whose machine can be suspended.
struct Machine {
    server: Server,
    clocks: Clocks,
    /// How many microseconds the wall clock, `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME` are ahead of the machine's.
    ahead_us: [i64; 3],
}

impl Machine {
    /// Starts the server; `None`, with a message, if its clocks cannot be moved.
    fn start(options: Options) -> Option<Self> {
        let clocks = Clocks::new(&[0; 3])?;
        let machine = Self { server: clocks.of(options).start(), clocks, ahead_us: [0; 3] };
        if machine.server.conn().version() >= (true, 8, 1) {
            eprintln!("skipped: modules on this server bypass a preloaded library when they read the clocks");
            return None;
        }
        Some(machine)
    }

    /// Moves the clocks.
    fn move_on(&mut self, by_us: [i64; 3]) {
        for (ahead, by) in self.ahead_us.iter_mut().zip(by_us) {
            *ahead += by;
        }
        self.clocks.set(0, &self.ahead_us);
    }

    /// Suspends the machine for this long by its clocks, and for a moment in reality; `meanwhile` runs before it wakes
    /// up.
    fn suspend(&mut self, time: Duration, meanwhile: impl FnOnce()) {
        self.server.signal("STOP");
        let stopped = Instant::now();
        meanwhile();
        let stopped_us = i64::try_from(stopped.elapsed().as_micros()).unwrap();
        let suspended_us = i64::try_from(time.as_micros()).unwrap();
        self.move_on([suspended_us, -stopped_us, suspended_us]);
        self.server.signal("CONT");
    }
}

/// Leaves 60 s for a lease, after the margin of 1 s, max-lag of 1 s, and 2 s.
const GRACE_MS: &str = "64000";

const REPLICAS: [&str; 6] =
    ["--min-replicas-to-write", "1", "--min-replicas-max-lag", "1", "--repl-diskless-sync-delay", "0"];

fn is_grant(reply: &Reply) -> bool {
    matches!(reply, Reply::Int(_))
}

fn is_refused(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with("NOREPLICAS"))
}

/// A master that can be suspended, with one replica behind a relay; it grants locks.
fn pair(grace_ms: &str) -> Option<(Machine, Server, Relay)> {
    let options = || {
        // Otherwise the server considers the replica gone when the clocks are moved.
        let more = ["--repl-ping-replica-period", "1", "--repl-timeout", "1000"];
        Server::with().args(&REPLICAS).args(&more).module_args(&["failover-grace-ms", grace_ms])
    };
    let mut master = Machine::start(options())?;
    let replica = options().start();
    let relay = Relay::to(master.server.port());
    replica.conn().ok(&["REPLICAOF", "127.0.0.1", &relay.port().to_string()]);
    until("the replica is online", || {
        master.server.conn().text(&["INFO", "replication"]).contains("state=online").then_some(())
    });
    // The master's own grace passes on all clocks.
    master.move_on([100 * SECOND_US; 3]);
    let mut conn = master.server.conn();
    until("the master grants locks", || is_grant(&conn.execute(&["LOCK.ACQUIRE", "before", "PX", "1"])).then_some(()));
    Some((master, replica, relay))
}

/// The replies of a master that was suspended and replaced when it wakes up, to everything that grants or extends a
/// lease: commands waiting in its sockets, a client waiting for a lock, and a client that keeps asking for two seconds.
fn replaced_master_answers(grace_ms: &str) -> Option<Vec<(&'static str, Reply)>> {
    let (mut master, replica, relay) = pair(grace_ms)?;
    let mut conn = master.server.conn();
    let token = |conn: &mut Conn, key: &str| conn.int(&["LOCK.ACQUIRE", key, "PX", "60000"]).to_string();
    let (held, other, passed) = (token(&mut conn, "held"), token(&mut conn, "other"), token(&mut conn, "passed"));
    conn.ok(&["SET", "expired", "1500000000"]);
    let mut waiter = master.server.waiter(&["LOCK.ACQUIRE", "passed", "PX", "60000", "WAIT", "600000"]);
    let asked: [(&str, &[&str]); 6] = [
        ("RELEASE", &["LOCK.RELEASE", "passed", &passed]),
        ("ACQUIRE", &["LOCK.ACQUIRE", "free", "PX", "60000"]),
        ("RECOVER", &["LOCK.RECOVER", "expired", "PX", "60000"]),
        ("EXTEND", &["LOCK.EXTEND", "held", &held, "PX", "60000"]),
        ("MACQUIRE", &["LOCK.MACQUIRE", "2", "one", "two", "PX", "60000"]),
        ("MEXTEND", &["LOCK.MEXTEND", "1", "other", &other, "PX", "60000"]),
    ];
    // The leases run for another half minute afterwards.
    master.suspend(Duration::from_secs(30), || {
        relay.cut();
        replica.conn().ok(&["REPLICAOF", "NO", "ONE"]);
        for (_, command) in asked {
            conn.send(command);
        }
        // Long enough that a replica's acknowledgement would wait in the socket, too.
        sleep(Duration::from_millis(1_100));
    });
    let mut answers: Vec<_> = asked.into_iter().map(|(name, _)| (name, conn.read())).collect();
    assert_eq!(answers.remove(0), ("RELEASE", Reply::Int(1)), "a release grants no lease");
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        answers.push(("again", conn.execute(&["LOCK.ACQUIRE", "free", "PX", "60000"])));
        sleep(Duration::from_millis(5));
    }
    let waited = if waiter.no_reply_within(Duration::from_millis(100)) { Reply::Nil } else { waiter.read() };
    answers.push(("hand-off", waited));
    Some(answers)
}

#[test]
fn a_replaced_master_that_was_suspended_grants_and_extends_nothing() {
    let Some(mut answers) = replaced_master_answers(GRACE_MS) else { return };
    assert_eq!(answers.pop(), Some(("hand-off", Reply::Nil)), "the waiting client goes on waiting");
    let granted: Vec<_> = answers.iter().filter(|(_, answer)| !is_refused(answer)).collect();
    assert!(granted.is_empty(), "{granted:?}");
}

#[test]
fn a_suspended_master_without_a_grace_still_grants() {
    let Some(answers) = replaced_master_answers("0") else { return };
    for name in ["ACQUIRE", "RECOVER", "EXTEND", "MACQUIRE", "MEXTEND", "hand-off"] {
        let answer = answers.iter().find(|(asked, _)| *asked == name).map(|(_, answer)| answer);
        assert!(matches!(answer, Some(Reply::Int(_) | Reply::List(_))), "{name}: this is what the grace is for");
    }
}

#[test]
fn a_master_that_was_suspended_and_not_replaced_grants_again() {
    let Some((mut master, _replica, _relay)) = pair(GRACE_MS) else { return };
    let mut conn = master.server.conn();
    // The second suspend is shorter than a stall, but many of them would add up to one.
    for (key, time) in [("long", HOUR), ("short", Duration::from_millis(100))] {
        let ask = ["LOCK.ACQUIRE", key, "PX", "1"];
        master.suspend(time, || conn.send(&ask));
        let first = conn.read();
        assert!(is_refused(&first), "{key}: {first:?}");
        until("it grants again", || is_grant(&conn.execute(&ask)).then_some(()));
    }
}

#[test]
fn a_suspend_is_logged_separately_from_clock_steps() {
    let Some(mut machine) = Machine::start(Server::with()) else { return };
    let mut conn = machine.server.conn();
    for count in 1..=2 {
        machine.suspend(HOUR, || ());
        until("it is logged", || {
            (machine.server.log().matches("the machine was suspended for").count() == count).then_some(())
        });
    }
    assert_eq!(number(&mut conn, "clock_steps"), 0, "{}", machine.server.log_tail(5));
}

#[test]
fn waits_places_and_leases_end_while_the_machine_is_suspended() {
    let Some(mut machine) = Machine::start(Server::with()) else { return };
    let mut conn = machine.server.conn();
    conn.int(&["LOCK.ACQUIRE", "long", "EX", "36000"]);
    conn.int(&["LOCK.ACQUIRE", "short", "EX", "60"]);
    assert!(conn.execute(&["LOCK.ACQUIRE", "long", "EX", "60", "ID", "7"]).is_nil());
    let (mut patient, mut brief, mut next) = (machine.server.conn(), machine.server.conn(), machine.server.conn());
    patient.send(&["LOCK.ACQUIRE", "long", "EX", "60", "WAIT", "36000000"]);
    brief.send(&["LOCK.ACQUIRE", "long", "EX", "60", "WAIT", "60000"]);
    next.send(&["LOCK.ACQUIRE", "short", "EX", "60", "WAIT", "36000000"]);
    until("they wait", || (number(&mut conn, "waiters") == 3).then_some(()));
    assert_eq!(number(&mut conn, "places"), 1);
    machine.suspend(HOUR, || ());
    let woken = Instant::now();
    assert!(brief.read().is_nil(), "an hour is more than a minute");
    assert!(is_grant(&next.read()), "its lease ended in that hour");
    bound::wall("everything due during the suspend", Duration::from_secs(10), woken.elapsed());
    until("the place is gone", || (number(&mut conn, "places") == 0).then_some(()));
    assert!(patient.no_reply_within(Duration::from_millis(100)), "nine hours are left");
    let waited_ms = conn.lock("long", "oldest-wait-ms").int();
    assert!((3_600_000..3_660_000).contains(&waited_ms), "{waited_ms}");
}
