//! `lock.max-queued` counts keys; a queued attempt and a claim are never refused.

use super::{waiting, Queue};
use testkit::Reply;

const BUSY: &str =
    "BUSYLOCKS attempts are already waiting without a connection for lock.max-queued keys on this server";

fn ask(id: &str) -> Vec<&str> {
    vec!["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000", "ID", id, "NOTIFY", "c"]
}

#[test]
fn only_a_new_waiter_beyond_the_limit_is_refused() {
    let Some(mut queue) = Queue::with(&["max-queued", "4", "max-waiters", "1"]) else { return };
    let token = queue.locks.hold();
    queue.ask("1");
    queue.ask("2");
    queue.ask_with(&["LOCK.MACQUIRE", "2", "k", "l"], "3", &[]);
    assert_eq!(queue.info("lock_queued"), 4);
    for command in [ask("4"), vec!["LOCK.MACQUIRE", "2", "m", "k", "PX", "9", "WAIT", "9", "ID", "4", "NOTIFY", "c"]] {
        assert_eq!(queue.execute(&command).error(), BUSY);
    }
    // A blocked client counts against a separate limit.
    let mut blocked = queue.locks.wait(&[]);
    let mut second = queue.locks.server.conn();
    let reply = second.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000"]);
    assert!(reply.error().starts_with("BUSYLOCKS lock.max-waiters would be exceeded"), "{reply:?}");
    // An attempt that is sent again is not refused, nor is one that does not wait.
    assert_eq!(queue.execute(&ask("1")), waiting());
    assert_eq!(queue.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "5"]), Reply::Nil);
    let free = ["LOCK.ACQUIRE", "free", "PX", "30000", "WAIT", "30000", "ID", "6", "NOTIFY", "c"];
    assert!(queue.execute(&free).int() > 0);
    assert_eq!(queue.info("lock_queued"), 4);
    // Attempts that leave make room, and so do notified ones. A claim needs no room.
    queue.locks.release(token);
    queue.subscriber.gets("granted 1 k");
    assert_eq!(queue.execute(&ask("7")), waiting());
    assert_eq!(queue.execute(&ask("8")).error(), BUSY);
    let token = queue.claim("1");
    queue.locks.release(token);
    for id in ["2", "3"] {
        assert_eq!(queue.subscriber.next(), format!("granted {id} k"));
        let token = if id == "2" {
            queue.claim(id)
        } else {
            queue.execute(&["LOCK.MACQUIRE", "2", "k", "l", "PX", "30000", "ID", id]).int()
        };
        queue.locks.release(token);
    }
    blocked.granted();
    assert_eq!(queue.info("lock_queued"), 1);
}

#[test]
fn a_lowered_limit_applies_only_to_newcomers() {
    let Some(mut queue) = Queue::start() else { return };
    let token = queue.locks.hold();
    for id in ["1", "2", "3"] {
        queue.ask(id);
    }
    queue.locks.conn.ok(&["CONFIG", "SET", "lock.max-queued", "0"]);
    assert_eq!(queue.execute(&ask("4")).error(), BUSY);
    queue.locks.release(token);
    for id in ["1", "2", "3"] {
        queue.takes_its_turn(id);
    }
}

#[test]
fn places_of_both_kinds_of_waits_are_bounded_together() {
    let Some(mut queue) = Queue::with(&["max-queued", "3", "max-waiters", "2"]) else { return };
    queue.locks.hold();
    for id in 0..20 {
        assert_eq!(queue.execute(&["LOCK.CANCEL", "k", &id.to_string()]).int(), 0);
    }
    assert_eq!(queue.info("lock_places"), 5, "cancelled attempts count");
    for id in 20..30 {
        assert_eq!(queue.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", &id.to_string()]), Reply::Nil);
    }
    assert_eq!(queue.info("lock_places"), 5);
}
