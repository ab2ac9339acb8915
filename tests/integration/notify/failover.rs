//! Restart, demotion and promotion: nobody can claim a grant on another server, or after a restart. The grant ends at
//! its timestamp, like that of a predecessor that never released.

use super::{waiting, Queue, Subscriber};
use crate::kinds::{Kind, Row};
use crate::waiting::Locks;
use crate::wire::fixture::Snapshot;
use testkit::{until, Reply, Server};

/// A client that shares the lock could get it in addition to the unclaimed grant.
const ALONE: [Kind; 2] = [Kind::Alone, Kind::Several];

/// Attempt 7 asks another server for the lock that it was notified of, and is granted the lock once the earlier grant
/// has ended.
fn assert_not_claimed(locks: &mut Locks, kind: Kind, token: i64) {
    let mut subscriber = Subscriber::of(&locks.server, "c");
    let before = Snapshot::take(&mut locks.conn, "k");
    let ask = kind.acquire(&["PX", "30000", "WAIT", "30000", "ID", "7", "NOTIFY", "c"]);
    assert_eq!(locks.conn.execute(&ask), waiting());
    assert_eq!(Snapshot::take(&mut locks.conn, "k"), before);
    subscriber.gets("granted 7 k");
    let claim = kind.acquire(&["PX", "30000", "ID", "7"]);
    if kind == Kind::Several {
        assert!(locks.conn.execute(&claim).int() > token);
        return;
    }
    let details = locks.conn.execute(&[&claim[..], &["DETAILS"]].concat());
    assert!(details.list()[0].int() > token, "{details:?}");
    assert_eq!(details.list()[2], Reply::Int(token), "a predecessor that never released: {details:?}");
}

/// An attempt that was notified, but did not claim its grant.
fn unclaimed(queue: &mut Queue, kind: Kind) -> i64 {
    let token = queue.locks.hold();
    queue.ask_with(&kind.acquire(&[]), "7", &[]);
    queue.locks.release(token);
    queue.subscriber.gets("granted 7 k");
    queue.locks.conn.lock("k", "token").int()
}

#[test]
fn after_a_restart_an_unclaimed_grant_ends_at_its_timestamp() {
    for kind in ALONE {
        let _row = Row::of(kind);
        let dir = testkit::temp_dir();
        let start = || {
            let args = ["--appendonly", "yes", "--appendfsync", "always"];
            Server::with().args(&args).module_args(&["margin-ms", "0", "claim-ms", "1500"]).dir(&dir).start()
        };
        let Some(mut queue) = Queue::on(start()) else { return };
        let token = unclaimed(&mut queue, kind);
        let value = queue.execute(&["DUMP", "k"]);
        drop(queue);
        let mut locks = Locks::on(start());
        assert_eq!(locks.conn.execute(&["DUMP", "k"]), value);
        assert_eq!(locks.info("lock", "lock_queued"), 0);
        if locks.conn.state("k") == "held" {
            assert_not_claimed(&mut locks, kind, token);
        }
        drop(locks);
        let _ = std::fs::remove_dir_all(&dir);
    }
}

#[test]
fn an_unclaimed_grant_ends_by_timestamp_after_a_failover() {
    for kind in ALONE {
        let _row = Row::of(kind);
        let Some(mut queue) = Queue::with(&["claim-ms", "1500"]) else { return };
        let replica = Server::with().module_args(&["margin-ms", "0"]).start();
        replica.replicate(&queue.locks.server);
        let token = unclaimed(&mut queue, kind);
        queue.locks.server.wait_offset(&replica);
        let mut new = Locks::on(replica);
        new.conn.ok(&["REPLICAOF", "NO", "ONE"]);
        if new.conn.state("k") == "held" {
            assert_not_claimed(&mut new, kind, token);
        }
    }
}

#[test]
fn a_demotion_ends_all_waits_and_says_so() {
    let Some(mut queue) = Queue::with(&["claim-ms", "60000"]) else { return };
    let master = Server::with().module_args(&["margin-ms", "0"]).start();
    let mut sharded = Subscriber::on(queue.locks.server.conn(), "SSUBSCRIBE", "c");
    let token = queue.locks.hold();
    for id in ["1", "2"] {
        queue.ask(id);
    }
    queue.ask_with(&["LOCK.MACQUIRE", "2", "l", "k"], "3", &[]);
    queue.ask_with(&["LOCK.ACQUIRE", "k"], "4", &["SNOTIFY", "c"]);
    queue.locks.release(token);
    queue.subscriber.gets("granted 1 k");
    queue.locks.conn.ok(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    queue.subscriber.gets("unblocked 2 k");
    queue.subscriber.gets("unblocked 3 l");
    sharded.gets("unblocked 4 k");
    assert_eq!((queue.info("lock_queued"), queue.info("lock_waiters"), queue.info("lock_places")), (0, 0, 0));
    let reply = queue.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "9", "ID", "1", "NOTIFY", "c"]);
    assert!(reply.error().starts_with("READONLY "), "{reply:?}");
    let info = queue.execute(&["LOCK.INFO", "k", "FULL"]);
    assert_eq!([info.field("waiters"), info.field("queue")], [Reply::Nil, Reply::Nil]);
    // The server is master again, and knows none of them.
    queue.locks.conn.ok(&["REPLICAOF", "NO", "ONE"]);
    queue.subscriber.gets_nothing();
    assert_eq!(queue.info("lock_queued"), 0);
}

#[test]
fn a_demotion_with_many_waiters_delays_nobody() {
    let Some(mut queue) = Queue::start() else { return };
    let master = Server::start();
    queue.locks.hold();
    for n in 0..3_000 {
        queue.ask(&n.to_string());
    }
    queue.locks.conn.ok(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    assert_eq!(queue.locks.server.conn().text(&["PING"]), "PONG");
    for n in 0..3_000 {
        queue.subscriber.gets(&format!("unblocked {n} k"));
    }
    until("all have left", || (queue.info("lock_queued") == 0).then_some(()));
}
