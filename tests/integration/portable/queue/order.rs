//! Who is next: the order of the queue, the hand-off, and what ends a wait.

use super::{in_each_way, with_a_clock, QUEUE};
use testkit::Reply;

#[test]
fn released_locks_go_to_attempts_in_order_of_arrival() {
    in_each_way(|place| {
        let mut subscriber = place.subscriber("c");
        let mut token = place.is_granted(1, "c", "");
        for id in 2..=5 {
            place.waits(id, "c", "");
        }
        assert_eq!(place.queue(), ["2", "3", "4", "5"]);
        for id in 2..=5 {
            place.release(token);
            subscriber.receives(&format!("granted {id} k"));
            assert_eq!(place.conn.int(&["EXISTS", "k"]), 0, "the claim is the grant");
            let next = place.is_granted(id, "c", "");
            assert!(next > token);
            token = next;
        }
        assert_eq!(place.conn.int(&["EXISTS", QUEUE]), 0, "it is deleted with its last attempt");
        place.release(token);
        assert_eq!(place.conn.int(&["DBSIZE"]), 0);
    });
}

#[test]
fn nobody_overtakes_a_notified_attempt_or_the_queue() {
    in_each_way(|place| {
        let mut subscriber = place.subscriber("c");
        let token = place.is_granted(1, "c", "");
        place.waits(2, "c", "");
        place.waits(3, "c", "");
        place.release(token);
        subscriber.receives("granted 2 k");
        // The lock is free, and only attempt 2 gets it.
        assert!(place.execute("LOCK.ACQUIRE k PX 1000").is_nil());
        assert!(place.execute("LOCK.ACQUIRE k PX 1000 ID 9").is_nil());
        assert!(place.execute("LOCK.RECOVER k PX 1000").is_nil());
        place.waits(3, "c", "");
        place.waits(4, "c", "");
        assert_eq!(place.queue(), ["2!", "3", "4"]);
        place.is_granted(2, "c", "");
    });
}

#[test]
fn an_attempt_that_asks_again_keeps_its_place_and_its_grant() {
    in_each_way(|place| {
        let _subscriber = place.subscriber("c");
        let token = place.is_granted(1, "c", "");
        assert_eq!(place.is_granted(1, "c", ""), token);
        place.waits(2, "c", "");
        place.waits(3, "c", "");
        place.waits(2, "c", "OWNER late");
        assert_eq!(place.queue(), ["2", "3"]);
        place.release(token);
        let token = place.is_granted(2, "c", "OWNER late");
        assert_eq!(place.is_granted(2, "c", "OWNER late"), token);
        assert!(place.conn.text(&["GET", "k"]).ends_with("0000000000000000002 late"));
    });
}

#[test]
fn an_expired_lock_goes_to_the_first_with_its_predecessor() {
    with_a_clock(|clocked| {
        let _subscriber = clocked.place.subscriber("c");
        let held = clocked.place.execute("LOCK.ACQUIRE k PX 3000 OWNER alice").int();
        // After lease and margin the lock can become free on its own: in four seconds, and later in one.
        assert_eq!(clocked.place.waits(1, "c", "DETAILS"), 4_000);
        assert_eq!(clocked.place.waits(2, "c", ""), 2_000, "the second checks on the first");
        assert_eq!(clocked.place.waits(3, "c", ""), 5_000);
        clocked.pass(3_000_000);
        assert_eq!(clocked.place.waits(1, "c", "DETAILS"), 1_000);
        clocked.pass(1_007_000);
        let details = clocked.place.ask(1, "c", "DETAILS");
        assert_eq!(details.list()[1..], [Reply::Int(7), Reply::Int(held), Reply::Text(b"alice".to_vec())]);
        clocked.place.waits(2, "c", "");
    });
}

#[test]
fn a_lock_deleted_by_others_goes_to_the_first_waiter() {
    in_each_way(|place| {
        let mut subscriber = place.subscriber("c");
        place.is_granted(1, "c", "");
        place.waits(2, "c", "");
        place.waits(3, "c", "");
        place.conn.int(&["DEL", "k"]);
        let token = place.is_granted(2, "c", "");
        // Now an attempt behind the first finds the lock free.
        place.conn.int(&["DEL", "k"]);
        place.waits(4, "c", "");
        subscriber.receives("granted 3 k");
        assert_eq!(place.queue(), ["3!", "4"]);
        assert_eq!(place.execute(&format!("LOCK.RELEASE k {token}")), Reply::Int(0));
        place.is_granted(3, "c", "");
    });
}

#[test]
fn cancel_ends_a_wait_a_notified_attempt_and_a_hold() {
    in_each_way(|place| {
        let mut subscriber = place.subscriber("c");
        place.is_granted(1, "c", "");
        for id in 2..=4 {
            place.waits(id, "c", "");
        }
        let cancel = |id: u32| format!("LOCK.CANCEL k ID {id} NOTIFY c");
        assert_eq!(place.execute(&cancel(9)), Reply::Int(0));
        assert_eq!(place.execute(&cancel(2)), Reply::Int(1));
        subscriber.receives("cancelled 2 k");
        assert_eq!(place.execute(&cancel(2)), Reply::Int(0));
        // Cancelling the holder notifies the next. Then that attempt is cancelled, and the last.
        assert_eq!(place.execute(&cancel(1)), Reply::Int(1));
        subscriber.receives("granted 3 k");
        assert_eq!(place.execute(&cancel(3)), Reply::Int(1));
        subscriber.receives("cancelled 3 k");
        subscriber.receives("granted 4 k");
        assert_eq!(place.execute(&cancel(4)), Reply::Int(1));
        assert_eq!(place.conn.int(&["DBSIZE"]), 0);
    });
}

#[test]
fn wait_0_and_commands_without_notify_never_join_the_queue() {
    in_each_way(|place| {
        place.is_granted(1, "c", "");
        assert!(place.execute("LOCK.ACQUIRE k PX 1000 WAIT 0 ID 2 NOTIFY c").is_nil());
        assert!(place.execute("LOCK.ACQUIRE k PX 1000 WAIT 0").is_nil());
        assert_eq!(place.conn.int(&["EXISTS", QUEUE]), 0);
        let reply = place.execute("LOCK.ACQUIRE k PX 1000 WAIT 1 ID 2");
        assert_eq!(reply.error(), "ERR WAIT needs the lock module, or NOTIFY");
    });
}

#[test]
fn info_has_the_fields_of_the_command() {
    with_a_clock(|clocked| {
        let names = [
            "state",
            "token",
            "id",
            "owner",
            "timestamp",
            "held-ms",
            "lease-ms",
            "free-in-ms",
            "overdue-ms",
            "session",
            "client",
            "addr",
            "waiters",
            "oldest-wait-ms",
        ];
        let _subscriber = clocked.place.subscriber("c");
        let reply = clocked.place.execute("LOCK.INFO k");
        let found: Vec<String> = reply.list().iter().step_by(2).map(Reply::text).collect();
        assert_eq!(found, names);
        let nil_but = |expected: &[(&str, Reply)], reply: &Reply| {
            for name in names {
                let value = expected.iter().find(|(which, _)| *which == name).map_or(Reply::Nil, |(_, it)| it.clone());
                assert_eq!(reply.field(name), value, "{name}");
            }
        };
        let text = |text: &str| Reply::Text(text.as_bytes().to_vec());
        nil_but(&[("state", text("free")), ("free-in-ms", Reply::Int(0)), ("waiters", Reply::Int(0))], &reply);

        let token = clocked.place.execute("LOCK.ACQUIRE k PX 3000 ID 7 OWNER alice").int();
        clocked.place.waits(8, "c", "");
        clocked.pass(1_500_000);
        clocked.place.waits(9, "c", "");
        let held = clocked.place.execute("LOCK.INFO k");
        let timestamp = text("1790000004.123457");
        let holder =
            [("token", Reply::Int(token)), ("id", text("7")), ("owner", text("alice")), ("timestamp", timestamp)];
        let mut expected = holder.to_vec();
        expected.extend([
            ("state", text("held")),
            ("held-ms", Reply::Int(1_500)),
            ("lease-ms", Reply::Int(1_500)),
            ("free-in-ms", Reply::Int(2_500)),
            ("waiters", Reply::Int(2)),
            ("oldest-wait-ms", Reply::Int(1_500)),
        ]);
        nil_but(&expected, &held);

        clocked.pass(3_000_000);
        let mut expected = holder.to_vec();
        expected.extend([
            ("state", text("expired")),
            ("free-in-ms", Reply::Int(0)),
            ("overdue-ms", Reply::Int(500)),
            ("waiters", Reply::Int(2)),
            ("oldest-wait-ms", Reply::Int(4_500)),
        ]);
        nil_but(&expected, &clocked.place.execute("LOCK.INFO k"));

        clocked.place.conn.ok(&["SET", "k", "secret", "PX", "9000"]);
        let foreign = clocked.place.execute("LOCK.INFO k");
        assert_eq!((foreign.field("state"), foreign.field("free-in-ms")), (text("foreign"), Reply::Int(9_000)));
    });
}
