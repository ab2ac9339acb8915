//! A soak: all kinds of clients work on one server for hours, without faults. The promises hold in every round, and
//! between the rounds, when nobody is connected and no key is left, the server's memory does not grow: at the end it is
//! within 3% of what it was after a quarter of the time.
//!
//! `make soak SECONDS=7200`.

use super::plan::{Plan, Setup};
use super::run::run_on;
use super::site::{execute, field, Site};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{env_number, until, watch};

/// The longest round, so that its histories fit into memory.
const ROUND_S: u64 = 120;
/// The server's tables and buffers may grow in this part of the time, to the largest number of waiters.
const GROWS_FOR: u32 = 4;
/// By how much the memory may differ, as a divisor. From one round to the next it changes by up to 2%.
const TOLERANCE: i64 = 33;

/// The server's memory, once its clients have left and its keys are deleted.
fn memory_at_rest(port: u16) -> i64 {
    let number = |section, name| field(port, section, name)?.parse::<i64>().ok();
    until("only this client is connected", || (number("clients", "connected_clients")? == 1).then_some(()));
    until("nobody waits", || (number("lock", "lock_waiters")? == 0).then_some(()));
    // What the server keeps about commands differs from round to round.
    for command in [&["FLUSHALL"][..], &["SLOWLOG", "RESET"], &["LATENCY", "RESET"], &["CONFIG", "RESETSTAT"]] {
        execute(port, command).expect("a reply");
    }
    // Reserved places end on their own.
    until("nothing is remembered", || {
        let fields = ["lock_queued", "lock_places", "lock_sessions"];
        fields.iter().all(|name| number("lock", name) == Some(0)).then_some(())
    });
    until("the server tells its memory", || number("memory", "used_memory"))
}

#[test]
#[ignore = "runs as long as SOAK_SECONDS says"]
fn memory_stays_the_same() {
    let seconds = env_number("SOAK_SECONDS").unwrap_or(600);
    let seed = env_number("TORTURE_SEED").unwrap_or(1);
    watch::allow(Duration::from_secs(2 * seconds + 600));
    let (begin, whole) = (Instant::now(), Duration::from_secs(seconds));
    let for_ms = 1_000 * (seconds / u64::from(3 * GROWS_FOR)).clamp(3, ROUND_S);
    let site = Site::start(Setup::Everysec);
    let [port] = site.ports()[..] else { panic!("one server") };
    let (mut grown, mut last, mut grants, mut round) = (None, 0, 0, 0);
    while begin.elapsed() < whole {
        let plan = Plan { setup: Setup::Everysec, seed: seed + round, for_ms, faults: Vec::new() };
        // In a thread of its own, because `make busy-tests` does not repeat this test.
        let report = thread::scope(|scope| scope.spawn(|| run_on(&plan, &site)).join().unwrap());
        assert!(report.violations.is_empty(), "round {round}: {:?}", report.violations);
        last = memory_at_rest(port);
        grants += report.grants;
        round += 1;
        println!("{:>6} s: {grants} grants, {last} bytes", begin.elapsed().as_secs());
        if grown.is_none() && begin.elapsed() * GROWS_FOR >= whole {
            grown = Some(last);
        }
    }
    let grown = grown.expect("a measurement");
    assert!((last - grown).abs() <= grown / TOLERANCE, "{grown} bytes, and at the end {last}");
}
