//! Restart, demotion and promotion: nobody can claim a grant at another server or after a restart. It ends at its
//! timestamp, like a predecessor that never released.

use super::{waiting, Line, Listener};
use crate::kinds::{Kind, Row};
use crate::waiting::Locks;
use crate::wire::fixture::Snapshot;
use testkit::{until, Reply, Server};

/// One that shares the lock could have it beside the unclaimed grant.
const ALONE: [Kind; 2] = [Kind::Alone, Kind::Several];

/// Attempt 7 asks another server for the lock that it was notified of: it is granted the lock once the earlier grant is
/// over.
fn assert_not_claimed(locks: &mut Locks, kind: Kind, token: i64) {
    let mut told = Listener::of(&locks.server, "c");
    let before = Snapshot::take(&mut locks.conn, "k");
    let ask = kind.acquire(&["PX", "30000", "WAIT", "30000", "ID", "7", "NOTIFY", "c"]);
    assert_eq!(locks.conn.call(&ask), waiting());
    assert_eq!(Snapshot::take(&mut locks.conn, "k"), before);
    told.hears("granted 7 k");
    let claim = kind.acquire(&["PX", "30000", "ID", "7"]);
    if kind == Kind::Several {
        assert!(locks.conn.call(&claim).int() > token);
        return;
    }
    let details = locks.conn.call(&[&claim[..], &["DETAILS"]].concat());
    assert!(details.list()[0].int() > token, "{details:?}");
    assert_eq!(details.list()[2], Reply::Int(token), "a predecessor that never released: {details:?}");
}

/// An attempt that was notified, and did not claim its grant.
fn unclaimed(line: &mut Line, kind: Kind) -> i64 {
    let token = line.locks.hold();
    line.ask_with(&kind.acquire(&[]), "7", &[]);
    line.locks.release(token);
    line.told.hears("granted 7 k");
    line.locks.conn.lock("k", "token").int()
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
        let Some(mut line) = Line::on(start()) else { return };
        let token = unclaimed(&mut line, kind);
        let value = line.call(&["DUMP", "k"]);
        drop(line);
        let mut locks = Locks::on(start());
        assert_eq!(locks.conn.call(&["DUMP", "k"]), value);
        assert_eq!(locks.info("lock", "lock_queued"), 0);
        if locks.conn.state("k") == "held" {
            assert_not_claimed(&mut locks, kind, token);
        }
        drop(locks);
        let _ = std::fs::remove_dir_all(&dir);
    }
}

#[test]
fn at_the_new_master_an_unclaimed_grant_ends_at_its_timestamp() {
    for kind in ALONE {
        let _row = Row::of(kind);
        let Some(mut line) = Line::with(&["claim-ms", "1500"]) else { return };
        let replica = Server::with().module_args(&["margin-ms", "0"]).start();
        replica.replicate(&line.locks.server);
        let token = unclaimed(&mut line, kind);
        line.locks.server.wait_offset(&replica);
        let mut new = Locks::on(replica);
        new.conn.ok(&["REPLICAOF", "NO", "ONE"]);
        if new.conn.state("k") == "held" {
            assert_not_claimed(&mut new, kind, token);
        }
    }
}

#[test]
fn a_demotion_ends_all_waits_and_says_so() {
    let Some(mut line) = Line::with(&["claim-ms", "60000"]) else { return };
    let master = Server::with().module_args(&["margin-ms", "0"]).start();
    let mut sharded = Listener::on(line.locks.server.conn(), "SSUBSCRIBE", "c");
    let token = line.locks.hold();
    for id in ["1", "2"] {
        line.ask(id);
    }
    line.ask_with(&["LOCK.MACQUIRE", "2", "l", "k"], "3", &[]);
    line.ask_with(&["LOCK.ACQUIRE", "k"], "4", &["SNOTIFY", "c"]);
    line.locks.release(token);
    line.told.hears("granted 1 k");
    line.locks.conn.ok(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    line.told.hears("unblocked 2 k");
    line.told.hears("unblocked 3 l");
    sharded.hears("unblocked 4 k");
    assert_eq!((line.info("lock_queued"), line.info("lock_waiters"), line.info("lock_places")), (0, 0, 0));
    let reply = line.call(&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "9", "ID", "1", "NOTIFY", "c"]);
    assert!(reply.error().starts_with("READONLY "), "{reply:?}");
    let info = line.call(&["LOCK.INFO", "k", "FULL"]);
    assert_eq!([info.field("waiters"), info.field("queue")], [Reply::Nil, Reply::Nil]);
    // It is master again, and knows none of them.
    line.locks.conn.ok(&["REPLICAOF", "NO", "ONE"]);
    line.told.hears_nothing();
    assert_eq!(line.info("lock_queued"), 0);
}

#[test]
fn a_crowd_is_told_of_a_demotion_while_the_server_answers_others() {
    let Some(mut line) = Line::start() else { return };
    let master = Server::start();
    line.locks.hold();
    for n in 0..3_000 {
        line.ask(&n.to_string());
    }
    line.locks.conn.ok(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    assert_eq!(line.locks.server.conn().text(&["PING"]), "PONG");
    for n in 0..3_000 {
        line.told.hears(&format!("unblocked {n} k"));
    }
    until("all have left", || (line.info("lock_queued") == 0).then_some(()));
}
