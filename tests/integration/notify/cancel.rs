//! LOCK.CANCEL of one attempt and of all attempts on a channel, and late copies of a cancelled command.

use super::{pass, waiting, Queue, Subscriber};
use crate::kinds::{Kind, Row, KINDS};
use testkit::{Reply, Server};

/// A late command of attempt 7 gets nil, in the form of a grant's reply.
fn assert_barred(queue: &mut Queue) {
    let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"];
    let wait = ["WAIT", "30000"];
    let notify = ["WAIT", "30000", "NOTIFY", "c"];
    for more in [&[][..], &wait, &notify, &["SHARED"], &["LIMIT", "2", "WAIT", "30000"], &["SESSION"]] {
        assert_eq!(queue.locks.conn.raw(&[&ask[..], more].concat()), b"$-1\r\n", "{more:?}");
    }
    assert_eq!(queue.locks.conn.raw(&[&ask[..], &["DETAILS"], &notify].concat()), b"*-1\r\n");
    let all = ["LOCK.MACQUIRE", "2", "l", "k", "PX", "30000", "WAIT", "30000", "ID", "7", "NOTIFY", "c"];
    assert_eq!(queue.locks.conn.raw(&all), b"$-1\r\n");
    assert_eq!(queue.execute(&["EXISTS", "l"]).int(), 0);
    // For another key or in another database it is a different attempt.
    assert_eq!(queue.execute(&["LOCK.CANCEL", "l", "8"]).int(), 0);
    let token = queue.locks.conn.int(&["LOCK.ACQUIRE", "l", "PX", "30000", "ID", "7"]).to_string();
    assert_eq!(queue.execute(&["LOCK.RELEASE", "l", &token]).int(), 1);
}

#[test]
fn a_cancelled_wait_is_answered_and_late_copies_get_nothing() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let Some(mut queue) = Queue::start() else { return };
        let token = queue.locks.hold();
        queue.ask_with(&kind.acquire(&[]), "7", &[]);
        queue.ask("8");
        assert_eq!(queue.execute(&["LOCK.CANCEL", "k", "7"]).int(), 1);
        queue.subscriber.gets("cancelled 7 k");
        assert_eq!((queue.locks.waiters(), queue.info("lock_queued"), queue.info("lock_cancels")), (1, 1, 1));
        assert_barred(&mut queue);
        assert_eq!(queue.execute(&["LOCK.CANCEL", "k", "7"]).int(), 0, "once");
        queue.locks.release(token);
        queue.takes_its_turn("8");
        // The same for a free lock.
        assert_barred(&mut queue);
    }
}

#[test]
fn an_unclaimed_grant_is_passed_on_before_a_late_claim() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let Some(mut queue) = Queue::with(&["claim-ms", "20000"]) else { return };
        let token = queue.locks.hold();
        queue.ask_with(&kind.acquire(&[]), "7", &[]);
        queue.ask("8");
        queue.locks.release(token);
        queue.subscriber.gets("granted 7 k");
        if matches!(kind, Kind::Alone | Kind::Several) {
            assert_eq!(queue.execute(&["LOCK.CANCEL", "k", "7"]).int(), 1);
            queue.subscriber.gets("cancelled 7 k");
            queue.subscriber.gets("granted 8 k");
        } else {
            assert_eq!(queue.execute(&["LOCK.CANCEL", "k", "7"]).int(), 1);
            let received = [queue.subscriber.next(), queue.subscriber.next()];
            assert!(
                received.contains(&"cancelled 7 k".into()) && received.contains(&"granted 8 k".into()),
                "{received:?}"
            );
        }
        assert_eq!(queue.execute(&kind.acquire(&["PX", "30000", "ID", "7"])), Reply::Nil);
        let token = queue.claim("8");
        queue.locks.release(token);
        assert_eq!(kind.exist(&mut queue.locks.conn), 0);
    }
}

#[test]
fn cancel_also_ends_a_claimed_grant() {
    let Some(mut queue) = Queue::start() else { return };
    let token = queue.locks.hold();
    queue.ask("7");
    queue.ask("8");
    queue.locks.release(token);
    queue.subscriber.gets("granted 7 k");
    let token = queue.claim("7").to_string();
    assert_eq!(queue.execute(&["LOCK.CANCEL", "k", "7"]).int(), 1);
    queue.subscriber.gets("granted 8 k");
    queue.claim("8");
    assert_eq!(queue.execute(&["LOCK.CHECK", "k", &token]).int(), 0);
    assert_eq!(queue.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"]), Reply::Nil);
}

#[test]
fn a_later_command_gets_nothing_though_it_never_queued() {
    let Some(mut queue) = Queue::start() else { return };
    assert_eq!(queue.execute(&["LOCK.CANCEL", "k", "7"]).int(), 0);
    assert_barred(&mut queue);
    assert_eq!(queue.execute(&["EXISTS", "k"]).int(), 0);
}

#[test]
fn an_id_past_its_reserved_place_is_a_new_attempt() {
    let Some(mut queue) = Queue::with(&["place-ms", "100"]) else { return };
    assert_eq!(queue.execute(&["LOCK.CANCEL", "k", "7"]).int(), 0);
    let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"];
    assert_eq!(queue.execute(&ask), Reply::Nil);
    pass(&mut queue.locks.conn, 110);
    assert!(queue.execute(&ask).int() > 0);
    assert_eq!(queue.info("lock_places"), 0);
    let Some(mut queue) = Queue::with(&["place-ms", "0"]) else { return };
    assert_eq!(queue.execute(&["LOCK.CANCEL", "k", "7"]).int(), 0);
    assert!(queue.execute(&ask).int() > 0, "without places nothing is barred");
}

#[test]
fn each_cancel_bars_its_id_again() {
    let Some(mut queue) = Queue::with(&["place-ms", "300"]) else { return };
    let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"];
    assert_eq!(queue.execute(&["LOCK.CANCEL", "k", "7"]).int(), 0);
    pass(&mut queue.locks.conn, 200);
    let begun = testkit::server_time_us(&mut queue.locks.conn);
    assert_eq!(queue.execute(&["LOCK.CANCEL", "k", "7"]).int(), 0);
    pass(&mut queue.locks.conn, 200);
    let reply = queue.execute(&ask);
    // If the machine was busy for longer, this proves nothing.
    if testkit::server_time_us(&mut queue.locks.conn) < begun + 300_000 {
        assert_eq!(reply, Reply::Nil);
    }
}

#[test]
fn cancel_channel_ends_and_counts_its_attempts() {
    let Some(mut queue) = Queue::with(&["claim-ms", "20000"]) else { return };
    let mut other = Subscriber::of(&queue.locks.server, "d");
    let mut sharded = Subscriber::on(queue.locks.server.conn(), "SSUBSCRIBE", "c");
    let token = queue.locks.hold();
    let elsewhere = queue.locks.conn.int(&["LOCK.ACQUIRE", "l", "PX", "30000"]).to_string();
    for id in ["1", "2"] {
        queue.ask(id);
    }
    queue.ask_with(&["LOCK.ACQUIRE", "k"], "3", &["SNOTIFY", "c"]);
    queue.ask_with(&["LOCK.ACQUIRE", "k"], "4", &["NOTIFY", "d"]);
    queue.ask_with(&["LOCK.MACQUIRE", "2", "k", "l"], "5", &[]);
    queue.ask_with(&["LOCK.ACQUIRE", "l"], "6", &[]);
    let mut blocked = queue.locks.wait(&[]);
    queue.locks.release(token);
    queue.subscriber.gets("granted 1 k");
    assert_eq!(queue.execute(&["LOCK.CANCEL", "k", "CHANNEL", "nobody"]).int(), 0);
    assert_eq!(queue.execute(&["LOCK.CANCEL", "absent", "channel", "c"]).int(), 0);
    // The unclaimed grant, two waiting attempts, and the attempt for several keys in this queue.
    assert_eq!(queue.execute(&["LOCK.CANCEL", "k", "CHANNEL", "c"]).int(), 4);
    let mut received = [queue.subscriber.next(), queue.subscriber.next(), queue.subscriber.next()];
    received.sort_unstable();
    assert_eq!(received, ["cancelled 1 k", "cancelled 2 k", "cancelled 5 k"]);
    sharded.gets("cancelled 3 k");
    other.gets("granted 4 k");
    let token = queue.claim("4");
    for id in ["1", "2", "3"] {
        assert_eq!(queue.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", id]), Reply::Nil, "{id}");
    }
    assert_eq!(queue.execute(&["LOCK.CANCEL", "k", "CHANNEL", "c"]).int(), 0);
    queue.locks.release(token);
    blocked.granted();
    // Another key has its own queue.
    assert_eq!(queue.execute(&["LOCK.RELEASE", "l", &elsewhere]).int(), 1);
    queue.subscriber.gets("granted 6 l");
}

#[test]
fn its_arguments_are_checked() {
    let Some(mut queue) = Queue::start() else { return };
    let long = "c".repeat(257);
    for (args, error) in [
        (&["LOCK.CANCEL", "k"][..], "ERR wrong number of arguments for 'lock.cancel' command"),
        (&["LOCK.CANCEL", "k", "CHANNEL", "c", "d"], "ERR wrong number of arguments for 'lock.cancel' command"),
        (&["LOCK.CANCEL", "k", "CHANNEL"], "ERR id is not a whole number of 1 to 19 digits"),
        (&["LOCK.CANCEL", "k", "7", "c"], "ERR syntax error: argument 2 is not an option of LOCK.CANCEL"),
        (&["LOCK.CANCEL", "k", "CHANNEL", ""], "ERR channel is not 1 to 256 bytes long"),
        (&["LOCK.CANCEL", "k", "CHANNEL", &long], "ERR channel is not 1 to 256 bytes long"),
    ] {
        assert_eq!(queue.execute(args).error(), error, "{args:?}");
    }
}

#[test]
fn a_writable_replica_cancels_nothing() {
    let Some(queue) = Queue::start() else { return };
    let replica = Server::with().args(&["--replica-read-only", "no"]).start();
    replica.replicate(&queue.locks.server);
    let mut conn = replica.conn();
    for args in [&["LOCK.CANCEL", "k", "7"][..], &["LOCK.CANCEL", "k", "CHANNEL", "c"]] {
        let reply = conn.execute(args);
        assert!(reply.error().starts_with("READONLY "), "{args:?}: {reply:?}");
    }
}

#[test]
fn a_new_attempt_with_another_id_is_not_barred() {
    let Some(mut queue) = Queue::start() else { return };
    queue.locks.hold();
    queue.ask("7");
    assert_eq!(queue.execute(&["LOCK.CANCEL", "k", "7"]).int(), 1);
    queue.subscriber.gets("cancelled 7 k");
    let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000", "ID", "8", "NOTIFY", "c"];
    assert_eq!(queue.execute(&ask), waiting());
}

#[test]
fn a_cancel_ends_an_unclaimed_grant_within_its_transaction() {
    for how in [&["LOCK.CANCEL", "k", "7"][..], &["LOCK.CANCEL", "k", "CHANNEL", "c"]] {
        let Some(mut queue) = Queue::with(&["claim-ms", "20000"]) else { return };
        let token = queue.locks.hold();
        queue.ask("7");
        queue.locks.release(token);
        queue.subscriber.gets("granted 7 k");
        let unclaimed = queue.execute(&["LOCK.INFO", "k"]).list()[3].int().to_string();
        queue.execute(&["MULTI"]);
        queue.execute(how);
        queue.execute(&["EXISTS", "k"]);
        queue.execute(&["LOCK.CHECK", "k", &unclaimed]);
        queue.execute(&["LOCK.EXTEND", "k", &unclaimed, "PX", "30000"]);
        queue.execute(&["LOCK.ACQUIRE", "k", "PX", "30000"]);
        let replies = queue.execute(&["EXEC"]);
        let replies: Vec<i64> = replies.list().iter().map(Reply::int).collect();
        assert_eq!(replies[..4], [1, 0, 0, 0], "{how:?}");
        assert!(replies[4] > 0, "a newcomer has the lock");
    }
}
