//! A wall clock that is set while the server runs: what is counted and logged, how long waits last, and what is refused
//! without a clock.

use super::{moved, number, numbers};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use testkit::clock::Clocks;
use testkit::{bound, server_time_us, until, Conn, Reply, Server};

const HOUR_MS: i64 = 3_600_000;

/// The machine's clock.
fn machine_ms() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// A server whose wall clock can be set.
pub struct Clock {
    clocks: Clocks,
    pub server: Server,
}

impl Clock {
    /// Starts the server; `None`, with a message, if its clock cannot be moved.
    pub fn start(module_args: &[&str]) -> Option<Self> {
        let clocks = Clocks::new(&[0])?;
        let server = clocks.of(Server::with().module_args(module_args)).start();
        // Long enough for the module, which reads the clock ten times a second, to have read it.
        sleep(Duration::from_millis(500));
        Some(Self { clocks, server })
    }

    /// Sets how far the server's clock is ahead of the machine's.
    pub fn set_ms(&mut self, ahead: i64) {
        self.clocks.set(0, &[ahead * 1000]);
        let mut conn = self.server.conn();
        // Valkey 9.1 reads the system clock only now and then.
        until("the clock of the server moves", || {
            let off = server_time_us(&mut conn) / 1000 - machine_ms() - ahead;
            (off.abs() < 10_000).then_some(())
        });
    }

    /// Waits until this many steps are counted.
    fn wait_for_steps(&self, count: i64) {
        let mut conn = self.server.conn();
        until("the steps are counted", || (number(&mut conn, "clock_steps") == count).then_some(()));
    }

    /// The steps in the log, in milliseconds.
    fn logged(&self) -> Vec<i64> {
        let log = self.server.log();
        let steps = log.lines().filter_map(|line| line.split_once("the wall clock was set by ")?.1.split_once(" ms"));
        steps.map(|(ms, _)| ms.parse().unwrap()).collect()
    }
}

/// A client that waits for a key.
fn waiter(clock: &Clock, args: &[&str]) -> (Conn, Instant) {
    let start = Instant::now();
    (clock.server.waiter(&[&["LOCK.ACQUIRE"], args].concat()), start)
}

/// Asserts that a wait of this many milliseconds ends in time and without the lock.
fn assert_times_out((mut conn, start): (Conn, Instant), wait_ms: u64) {
    assert!(conn.read().is_nil());
    let waited = start.elapsed();
    let asked = Duration::from_millis(wait_ms);
    assert!(waited >= asked, "{waited:?} instead of {asked:?}");
    // A timer can be 100 ms late before Redis 7.0, or if it had to be set again.
    bound::wall("a wait beyond its time", Duration::from_secs(10), waited.saturating_sub(asked));
}

#[test]
fn clock_steps_are_counted_and_logged() {
    let Some(mut clock) = Clock::start(&[]) else { return };
    let mut conn = clock.server.conn();
    let before = numbers(&mut conn);
    let mut steps = vec![];
    let mut from = 0;
    for to in [HOUR_MS, 0, -HOUR_MS, -HOUR_MS + 2_000] {
        clock.set_ms(to);
        steps.push(to - from);
        from = to;
        clock.wait_for_steps(i64::try_from(steps.len()).unwrap());
    }
    let logged = clock.logged();
    assert_eq!(logged.len(), steps.len(), "{logged:?}");
    for (logged, step) in logged.iter().zip(&steps) {
        assert!((logged - step).abs() <= 100, "{logged} instead of {step}");
    }
    // The largest ordinary correction of the clock does not count as a step.
    clock.set_ms(from + 100);
    sleep(Duration::from_millis(500));
    assert_eq!(moved(&mut conn, &before), [("clock_steps".to_string(), 4)]);
}

#[test]
fn without_a_clock_nothing_is_granted_and_nothing_changes() {
    let Some(mut clock) = Clock::start(&["retention-ms", "-1"]) else { return };
    let mut conn = clock.server.conn();
    let token = conn.int(&["LOCK.ACQUIRE", "held", "EX", "60"]);
    let value = conn.text(&["GET", "held"]);
    let before = numbers(&mut conn);
    // A minute before 2001-09-09T01:46:40, which is a billion seconds.
    clock.set_ms(1_000_000_000_000 - 60_000 - machine_ms());
    clock.wait_for_steps(1);
    for args in [
        &["LOCK.ACQUIRE", "free", "EX", "5"][..],
        &["LOCK.ACQUIRE", "free", "EX", "5", "WAIT", "5000"],
        &["LOCK.EXTEND", "held", &token.to_string(), "EX", "5"],
    ] {
        let reply = conn.execute(args);
        assert!(reply.error().starts_with("CLOCK "), "{args:?}: {reply:?}");
    }
    assert_eq!(conn.int(&["EXISTS", "free"]), 0);
    assert_eq!(conn.text(&["GET", "held"]), value);
    assert_eq!(moved(&mut conn, &before), [("clock_steps".to_string(), 1)]);

    // Commands that need no clock work, and with a clock all others do too.
    assert_eq!(conn.int(&["LOCK.RELEASE", "held", &token.to_string()]), 1);
    clock.set_ms(0);
    assert!(conn.int(&["LOCK.ACQUIRE", "held", "EX", "5"]) > token);
}

#[test]
fn waits_and_locks_survive_a_clock_step_back() {
    let Some(mut clock) = Clock::start(&[]) else { return };
    let mut conn = clock.server.conn();
    let first = conn.int(&["LOCK.ACQUIRE", "k", "EX", "60"]);
    let patient = waiter(&clock, &["k", "EX", "60", "WAIT", "15000"]);
    let brief = waiter(&clock, &["k", "EX", "60", "WAIT", "700"]);
    clock.set_ms(-HOUR_MS);
    assert_times_out(brief, 700);
    // A later wait ends in time, too.
    assert_times_out(waiter(&clock, &["k", "EX", "60", "WAIT", "300"]), 300);
    clock.wait_for_steps(1);
    assert!(clock.logged()[0] < -HOUR_MS + 1000, "{:?}", clock.logged());

    // The holder sees an hour more than it asked for, and releases the lock: tokens still grow.
    let left = conn.int(&["LOCK.CHECK", "k", &first.to_string()]);
    assert!((HOUR_MS + 50_000..=HOUR_MS + 60_000).contains(&left), "{left}");
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &first.to_string()]), 1);
    let (mut patient, _) = patient;
    let second = patient.read().int();
    assert!(second > first, "{second} > {first}");
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &second.to_string()]), 1);
}

#[test]
fn set_ahead_an_hour_leases_end_and_waits_do_not() {
    // Otherwise the lock would disappear with the hour, and its successor could find out nothing about the holder.
    let Some(mut clock) = Clock::start(&["retention-ms", "-1"]) else { return };
    let mut conn = clock.server.conn();
    conn.int(&["LOCK.ACQUIRE", "short", "EX", "60", "OWNER", "late"]);
    conn.int(&["LOCK.ACQUIRE", "long", "EX", "36000"]);
    let (mut successor, _) = waiter(&clock, &["short", "EX", "60", "WAIT", "60000", "DETAILS"]);
    let brief = waiter(&clock, &["long", "EX", "60", "WAIT", "1500"]);
    clock.set_ms(HOUR_MS);
    // The lease of a minute ended an hour ago, less a minute and the margin.
    let details = successor.read();
    let overdue = details.list()[1].int();
    assert!((HOUR_MS - 63_000..HOUR_MS).contains(&overdue), "{details:?}");
    assert_times_out(brief, 1500);
    assert_times_out(waiter(&clock, &["long", "EX", "60", "WAIT", "300"]), 300);
    clock.wait_for_steps(1);
    assert!((clock.logged()[0] - HOUR_MS).abs() <= 100, "{:?}", clock.logged());
    assert_eq!(conn.lock("long", "state"), Reply::Text(b"held".to_vec()));
}
