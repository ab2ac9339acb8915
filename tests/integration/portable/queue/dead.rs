//! Dead processes' attempts cost one publish each, or none.

use super::{in_each_way, QUEUE};
use testkit::{Conn, Reply};

/// Puts attempts into the queue of `k` as if they had arrived, each with a channel.
fn fill(conn: &mut Conn, ids: std::ops::Range<u32>, channel: impl Fn(u32) -> String) {
    for id in ids {
        let score = format!("{}", 1_000_000_000_000_000_u64 + u64::from(id));
        conn.int(&["ZADD", QUEUE, &score, &format!("{id:019} n {}", channel(id))]);
    }
}

#[test]
fn attempts_without_a_subscriber_are_removed_by_the_release_that_finds_them() {
    in_each_way(|place| {
        let mut live = place.subscriber("live");
        let token = place.is_granted(1, "live", "");
        fill(&mut place.conn, 100..150, |_| "gone".into());
        fill(&mut place.conn, 150..200, |id| format!("gone-{id}"));
        place.waits(2, "live", "");
        let before = place.conn.calls("publish");
        place.release(token);
        live.receives("granted 2 k");
        assert_eq!(place.queue(), ["2!"]);
        assert_eq!(place.conn.calls("publish") - before, 52, "one for each channel");
    });
}

#[test]
fn a_command_removes_at_most_a_thousand_and_says_to_ask_again() {
    in_each_way(|place| {
        let _live = place.subscriber("live");
        let token = place.is_granted(1, "live", "");
        fill(&mut place.conn, 100..2_500, |id| format!("gone-{id}"));
        place.waits(2, "live", "");
        place.release(token);
        let left = place.queue().len();
        assert!((1_401 - 64..=1_401).contains(&left), "{left}");
        assert_eq!(place.waits(2, "live", ""), 0, "ask again at once");
        let left = place.queue().len();
        assert!((401 - 128..=401).contains(&left), "{left}");
        place.is_granted(2, "live", "");
        assert_eq!(place.conn.int(&["EXISTS", QUEUE]), 0);
    });
}

#[test]
fn a_caller_that_may_not_publish_notifies_nobody_and_is_not_refused() {
    in_each_way(|place| {
        if place.conn.is_before_7() {
            return;
        }
        let mut live = place.subscriber("live");
        let token = place.is_granted(1, "live", "");
        place.waits(2, "live", "");
        place.conn.ok(&["ACL", "SETUSER", "mute", "on", ">secret", "~*", "+@all", "resetchannels"]);
        let mut mute = place.server.conn();
        mute.ok(&["AUTH", "mute", "secret"]);
        let command = place.way.queued(&format!("LOCK.RELEASE k {token}"));
        assert_eq!(mute.execute(&command), Reply::Int(1));
        assert_eq!(place.queue(), ["2"]);
        live.received_nothing(&mut place.conn, "live");
        place.is_granted(2, "live", "");
    });
}

#[test]
fn members_that_others_wrote_into_the_queue_are_removed() {
    in_each_way(|place| {
        let _live = place.subscriber("live");
        let token = place.is_granted(1, "live", "");
        place.conn.int(&["ZADD", QUEUE, "1", "junk", "2", "", "3", "0000000000000000007", "4", "7 x y"]);
        place.waits(2, "live", "");
        place.release(token);
        assert_eq!(place.queue(), ["2!"]);
        place.conn.int(&["ZADD", QUEUE, "-5", "junk"]);
        place.is_granted(2, "live", "");
    });
}
