//! The time to claim: two seconds, which run only while the lock is free.

use super::with_a_clock;
use testkit::Reply;

#[test]
fn an_attempt_that_lets_its_time_pass_leaves_and_its_channel_is_skipped() {
    with_a_clock(|clocked| {
        let place = &mut clocked.place;
        let (_hung, mut live) = (place.subscriber("hung"), place.subscriber("live"));
        let token = place.is_granted(1, "live", "");
        for (id, channel) in [(2, "hung"), (3, "hung"), (4, "live"), (5, "hung"), (6, "live")] {
            place.waits(id, channel, "");
        }
        place.release(token);
        assert_eq!(place.queue(), ["2!", "3", "4", "5", "6"]);
        clocked.pass(1_999_999);
        clocked.place.waits(4, "live", "");
        assert_eq!(clocked.place.queue()[0], "2!", "a microsecond is left");
        clocked.pass(1);
        // Attempt 4 asks: 2 leaves, 3 leaves unasked, and 4 gets the lock.
        let token = clocked.place.is_granted(4, "live", "");
        assert_eq!(
            (clocked.place.queue(), clocked.place.skipped()),
            (vec!["5".into(), "6".into()], vec!["hung".into()])
        );
        // A release skips 5 too. The reserved time of a live process is not lost on it.
        clocked.place.release(token);
        live.receives("granted 6 k");
        assert_eq!(clocked.place.queue(), ["6!"]);
    });
}

#[test]
fn a_channel_is_skipped_until_one_of_its_attempts_asks() {
    with_a_clock(|clocked| {
        let mut subscriber = clocked.place.subscriber("c");
        let _other = clocked.place.subscriber("d");
        let token = clocked.place.is_granted(1, "d", "");
        for (id, channel) in [(2, "c"), (3, "d"), (4, "c")] {
            clocked.place.waits(id, channel, "");
        }
        clocked.place.release(token);
        subscriber.receives("granted 2 k");
        clocked.pass(2_000_000);
        let token = clocked.place.is_granted(3, "d", "");
        assert_eq!(clocked.place.skipped(), ["c"]);
        clocked.place.waits(4, "c", "");
        assert_eq!(clocked.place.skipped(), [""; 0]);
        clocked.place.release(token);
        subscriber.receives("granted 4 k");
    });
}

#[test]
fn a_late_head_that_asks_before_anybody_else_gets_the_lock() {
    with_a_clock(|clocked| {
        let _subscriber = clocked.place.subscriber("c");
        let token = clocked.place.is_granted(1, "c", "");
        clocked.place.waits(2, "c", "");
        clocked.place.release(token);
        clocked.pass(30_000_000);
        clocked.place.is_granted(2, "c", "");
    });
}

#[test]
fn a_notified_attempt_keeps_its_place_if_others_take_the_lock() {
    with_a_clock(|clocked| {
        let mut subscriber = clocked.place.subscriber("c");
        let token = clocked.place.is_granted(1, "c", "");
        for id in 2..=3 {
            clocked.place.waits(id, "c", "");
        }
        clocked.place.release(token);
        subscriber.receives("granted 2 k");
        clocked.place.conn.ok(&["SET", "k", "secret", "NX", "PX", "60000"]);
        assert_eq!(clocked.place.waits(2, "c", ""), 5_000);
        assert_eq!(clocked.place.queue(), ["2", "3"]);
        // Meanwhile the time to claim does not run, whoever asks.
        clocked.pass(30_000_000);
        clocked.place.waits(3, "c", "");
        clocked.place.conn.int(&["DEL", "k"]);
        clocked.place.waits(3, "c", "");
        subscriber.receives("granted 2 k");
        clocked.pass(1_900_000);
        clocked.place.waits(3, "c", "");
        clocked.place.is_granted(2, "c", "");
    });
}

#[test]
fn a_clock_that_is_set_back_does_not_stop_the_queue() {
    with_a_clock(|clocked| {
        let _subscriber = clocked.place.subscriber("c");
        let _other = clocked.place.subscriber("d");
        let token = clocked.place.is_granted(1, "c", "");
        clocked.place.waits(2, "c", "");
        clocked.place.waits(3, "d", "");
        clocked.place.release(token);
        clocked.pass(-3_600_000_000);
        clocked.place.waits(3, "d", "");
        assert_eq!(clocked.place.queue(), ["2!", "3"]);
        clocked.pass(2_000_000);
        clocked.place.is_granted(3, "d", "");
        // New tickets stay behind the old ones.
        clocked.place.waits(4, "c", "");
        clocked.place.waits(5, "c", "");
        assert_eq!(clocked.place.queue(), ["4", "5"]);
    });
}

#[test]
fn an_unclaimed_grant_passes_its_predecessor_to_the_next_attempt() {
    with_a_clock(|clocked| {
        let (_hung, _live) = (clocked.place.subscriber("hung"), clocked.place.subscriber("live"));
        let held = clocked.place.execute("LOCK.ACQUIRE k PX 1000 OWNER alice").int();
        clocked.place.waits(2, "hung", "");
        clocked.place.waits(3, "live", "");
        clocked.pass(2_000_000);
        clocked.place.waits(3, "live", "");
        assert_eq!(clocked.place.queue(), ["2!", "3"]);
        clocked.pass(2_000_000);
        let details = clocked.place.ask(3, "live", "DETAILS");
        assert_eq!(details.list()[1..], [Reply::Int(2_000), Reply::Int(held), Reply::Text(b"alice".to_vec())]);
    });
}
