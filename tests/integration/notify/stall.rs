//! A server that stalls for longer than claim-ms accepts a claim that waited in its socket, and afterwards does not
//! skip an attempt whose claim could not be read in time.

use super::{Queue, Subscriber};
use std::thread::sleep;
use std::time::{Duration, Instant};
use testkit::clock::Clocks;
use testkit::{until, Conn, Options, Reply, Server};

/// Longer than the time to claim; there is no margin.
const STANDSTILL: Duration = Duration::from_millis(1_500);
const SETTINGS: [&str; 2] = ["claim-ms", "1000"];
const CLAIM: [&str; 6] = ["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"];

/// A script that takes as long as its argument says. Scripts cannot read a clock on every server.
const SLOW_SCRIPT: &str = "for n = 1, tonumber(ARGV[1]) do end";
/// This many iterations take a few milliseconds.
const FEW_TURNS: u32 = 5_000_000;

/// A server that stalls without replying that it is busy.
fn patient(retention_ms: &str) -> Options {
    let settings = [&SETTINGS[..], &["margin-ms", "0", "retention-ms", retention_ms]].concat();
    Server::with().args(&["--lua-time-limit", "600000"]).module_args(&settings)
}

/// Keeps the server busy for that long, and does something in the meantime.
type Stall = fn(&Queue, &mut dyn FnMut());

/// Stops the server for longer than the time to claim, and does something in the meantime.
fn stand_still(queue: &Queue, meanwhile: &mut dyn FnMut()) {
    queue.locks.server.signal("STOP");
    meanwhile();
    sleep(STANDSTILL);
    queue.locks.server.signal("CONT");
}

/// Blocks the server for that long with a slow script.
fn run_slow_script(queue: &Queue, meanwhile: &mut dyn FnMut()) {
    let mut conn = queue.locks.server.conn();
    let begun = Instant::now();
    assert_eq!(conn.execute(&["EVAL", SLOW_SCRIPT, "0", &FEW_TURNS.to_string()]), Reply::Nil);
    let turns = f64::from(FEW_TURNS) * STANDSTILL.as_secs_f64() / begun.elapsed().as_secs_f64();
    conn.send(&["EVAL", SLOW_SCRIPT, "0", &format!("{turns:.0}")]);
    meanwhile();
    assert_eq!(conn.read(), Reply::Nil);
}

/// An attempt that was just notified of its grant, with another one behind it on the same channel.
fn notified(retention_ms: &str) -> Option<Queue> {
    let mut queue = Queue::on(patient(retention_ms).start())?;
    let token = queue.locks.hold();
    queue.ask("7");
    queue.ask("8");
    queue.locks.release(token);
    queue.subscriber.gets("granted 7 k");
    Some(queue)
}

#[test]
fn a_claim_that_waits_in_the_socket_is_accepted() {
    // This holds even if a lock disappears at its timestamp.
    for (stall, retention_ms) in [(stand_still as Stall, "60000"), (run_slow_script, "60000"), (stand_still, "0")] {
        let Some(mut queue) = notified(retention_ms) else { return };
        let mut blocked = queue.locks.wait(&[]);
        let (mut newcomer, mut claim): (Conn, Conn) = (queue.locks.server.conn(), queue.locks.server.conn());
        let granted = queue.locks.conn.lock("k", "token").int();
        stall(&queue, &mut || {
            // A client that asks first finds a lock whose timestamp has passed.
            newcomer.send(&["LOCK.ACQUIRE", "k", "PX", "30000"]);
            claim.send(&CLAIM);
        });
        assert_eq!(claim.read(), Reply::Int(granted));
        assert!(newcomer.read().is_nil());
        queue.locks.assert_holds(granted);
        assert_eq!(["lock_claims", "lock_unclaimed", "lock_recoveries"].map(|field| queue.info(field)), [1, 0, 0]);
        queue.locks.release(granted);
        queue.takes_its_turn("8");
        blocked.granted();
    }
}

#[test]
fn a_channel_without_subscriber_is_not_skipped() {
    let Some(mut queue) = notified("60000") else { return };
    stand_still(&queue, &mut || {});
    // The first never claims; the next on the same channel has its turn.
    queue.subscriber.gets("granted 8 k");
    assert_eq!(queue.info("lock_unclaimed"), 1);
    queue.claim("8");
}

/// The same holds if the clock was set forward: the timestamp has passed, but the time to claim has not.
#[test]
fn a_claim_after_its_timestamp_is_accepted() {
    let Some(clocks) = Clocks::new(&[0]) else { return };
    let Some(mut queue) = Queue::on(clocks.of(Server::with().module_args(&SETTINGS)).start()) else {
        return;
    };
    let token = queue.locks.hold();
    queue.ask("7");
    let mut blocked = queue.locks.wait(&[]);
    let mut other = Subscriber::of(&queue.locks.server, "d");
    queue.ask_with(&["LOCK.ACQUIRE", "k"], "9", &["NOTIFY", "d"]);
    queue.locks.release(token);
    queue.subscriber.gets("granted 7 k");
    let granted = queue.locks.conn.lock("k", "token").int();
    clocks.set(0, &[10_000_000]);
    until("its timestamp has passed", || (queue.locks.conn.state("k") == "expired").then_some(()));
    assert!(queue.execute(&["LOCK.ACQUIRE", "k", "PX", "30000"]).is_nil());
    assert_eq!(queue.claim("7"), granted);
    queue.locks.release(granted);
    queue.locks.release(blocked.granted());
    other.gets("granted 9 k");
}
