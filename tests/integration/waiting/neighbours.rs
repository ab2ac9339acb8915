//! Waiters that can share a lock are served in the same event-loop iteration as the first of them. A lost wake-up shows
//! late, or not at all if the scan of all queues finds the waiter, so it is counted.

use super::{Locks, Waiter};
use std::time::Duration;
use testkit::server_time_us;

/// The longest iteration on a busy machine. A lost wake-up costs up to 0.9 s.
const AT_ONCE: Duration = Duration::from_millis(100);
const ATTEMPTS: usize = 4;
const NEIGHBOURS: usize = 5;

/// Neighbours wait; `free` admits them. Returns how long after that the last of them was granted the lock.
fn spread(share: &[&str], before: impl Fn(&mut Locks) -> Vec<Waiter>, free: impl Fn(&mut Locks)) -> Duration {
    let mut locks = Locks::start();
    let ahead = before(&mut locks);
    let mut neighbours: Vec<Waiter> = (0..NEIGHBOURS).map(|_| locks.wait(share)).collect();
    // The first scan of all queues happens soon after the first waiter arrives, the next 0.9 s later.
    neighbours[0].assert_waits();
    let before = server_time_us(&mut locks.conn);
    free(&mut locks);
    let tokens: Vec<i64> = neighbours.iter_mut().map(Waiter::granted).collect();
    drop(ahead);
    if !locks.conn.has_key_events() {
        return Duration::ZERO;
    }
    let time = tokens.iter().max().unwrap() - before;
    // Tokens are the times of the grants in microseconds.
    Duration::from_micros(u64::try_from(time.max(0)).unwrap())
}

/// The obstacles in front of the neighbours, and the commands that remove them.
type Way = (&'static str, fn(&mut Locks) -> Vec<Waiter>, fn(&mut Locks));

const HOLDERS: [Way; 3] = [
    ("a release", plain_holder, |locks| {
        let token = locks.conn.lock("k", "token").int();
        locks.release(token);
    }),
    ("a cancel", plain_holder, |locks| assert_eq!(locks.conn.int(&["LOCK.CANCEL", "k", "9"]), 1)),
    ("a deletion", plain_holder, |locks| assert_eq!(locks.conn.int(&["DEL", "k"]), 1)),
];

const WAITERS: [Way; 2] = [
    ("a cancel", plain_waiter, |locks| assert_eq!(locks.conn.int(&["LOCK.CANCEL", "k", "7"]), 1)),
    ("a kill", plain_waiter, |locks| {
        let queue = locks.conn.execute(&["LOCK.INFO", "k", "FULL"]).field("queue");
        let first = queue.list()[0].field("client").int().to_string();
        assert_eq!(locks.conn.int(&["CLIENT", "KILL", "ID", &first]), 1);
    }),
];

fn plain_holder(locks: &mut Locks) -> Vec<Waiter> {
    locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "9"]);
    Vec::new()
}

/// A client shares the lock, and an exclusive waiter is ahead of the neighbours.
fn plain_waiter(locks: &mut Locks) -> Vec<Waiter> {
    locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "LIMIT", "20"]);
    vec![locks.wait(&["ID", "7"])]
}

fn assert_served_together(ways: &[Way]) {
    for ((name, before, free), share) in
        ways.iter().flat_map(|way| [&["SHARED"][..], &["LIMIT", "10"]].map(|share| (way, share)))
    {
        let is_together = (0..ATTEMPTS).any(|_| spread(share, before, free) < AT_ONCE);
        assert!(is_together, "{name}, {share:?}: never together");
    }
}

#[test]
fn neighbours_are_served_together_when_a_plain_holder_makes_way() {
    assert_served_together(&HOLDERS);
}

#[test]
fn neighbours_are_served_together_when_the_waiter_ahead_makes_way() {
    assert_served_together(&WAITERS);
}

#[test]
fn a_wake_up_of_a_ready_queue_is_not_lost() {
    let mut locks = Locks::start();
    let token = locks.hold();
    let mut neighbours: Vec<Waiter> = (0..NEIGHBOURS).map(|_| locks.wait(&["SHARED"])).collect();
    // In one iteration: the first gets the lock, which vanishes before the server tries to serve the others.
    let replies = locks.in_one_turn(&[&["LOCK.RELEASE", "k", &token], &["DEL", "k"]]);
    assert_eq!(replies.iter().map(testkit::Reply::int).collect::<Vec<_>>(), [1, 1]);
    for neighbour in &mut neighbours {
        neighbour.granted();
    }
    assert_eq!(locks.conn.int(&["ZCARD", "k"]), i64::try_from(NEIGHBOURS - 1).unwrap());
    locks.assert_no_missed_wakeups();
}
