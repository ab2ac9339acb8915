//! A connection that ends while the server may not write: its lock ends as soon as writing is allowed, with the
//! timestamp of the connection's end.

use super::{assert_succeeds, token_of, Scene, MARGIN_US};
use crate::kinds::Kind;
use crate::waiting::QUIET;
use testkit::{timestamp_us, until, Reply, Server};

fn end_while_paused(contended: bool) {
    let mut scene = Scene::start();
    let holder = scene.hold();
    let waiter = contended.then(|| scene.wait());
    scene.forget();
    let before = scene.value("k");
    let from = scene.now_us();
    scene.locks.conn.ok(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    drop(holder.conn);
    scene.until_gone(&holder.id);
    let to = scene.now_us();
    // Even after more than the margin, nothing may be written.
    assert!(scene.locks.server.conn().no_reply_within(QUIET * 2));
    assert_eq!(scene.value("k"), before);
    scene.locks.conn.ok(&["CLIENT", "UNPAUSE"]);
    let timestamp = scene.until_ended(holder.token, from);
    assert!(timestamp <= to + MARGIN_US, "{} us after the end", timestamp - to);
    if let Some(mut waiter) = waiter {
        assert_succeeds(&mut waiter, holder.token, timestamp);
    }
}

#[test]
fn a_pause_postpones_the_end() {
    end_while_paused(false);
}

#[test]
fn a_pause_postpones_the_end_for_waiters_too() {
    end_while_paused(true);
}

#[test]
fn a_pause_postpones_the_end_of_shared_and_several_locks() {
    let mut scene = Scene::with_margin(0);
    let mut dying = scene.locks.server.conn();
    let own = [Kind::Shared, Kind::Several].map(|kind| {
        dying.ok(&["SELECT", if kind == Kind::Several { "1" } else { "0" }]);
        kind.take(&mut dying, &["EX", "60", "SESSION"])
    });
    let id = dying.int(&["CLIENT", "ID"]).to_string();
    let mut waiters = [Kind::Alone, Kind::Several].map(|kind| {
        let mut conn = scene.locks.server.conn();
        conn.ok(&["SELECT", if kind == Kind::Several { "1" } else { "0" }]);
        scene.locks.wait_on(conn, &kind.acquire(&["EX", "60", "WAIT", "60000"]))
    });
    scene.locks.in_one_turn(&[&["CLIENT", "PAUSE", "60000", "WRITE"], &["CLIENT", "KILL", "ID", &id]]);
    waiters[0].assert_waits();
    assert!(!waiters[1].conn.has_reply());
    assert!(scene.locks.conn.int(&["LOCK.CHECK", "k", &own[0]]) > 0);
    scene.locks.conn.ok(&["SELECT", "1"]);
    assert!(["k", "l"].iter().all(|key| scene.locks.conn.int(&["LOCK.CHECK", key, &own[1]]) > 0));
    scene.locks.conn.ok(&["CLIENT", "UNPAUSE"]);
    for waiter in &mut waiters {
        waiter.granted();
    }
}

#[test]
fn a_pause_of_all_commands_postpones_the_end() {
    let mut scene = Scene::start();
    let holder = scene.hold();
    let mut waiter = scene.wait();
    scene.forget();
    let from = scene.now_us();
    scene.locks.conn.ok(&["CLIENT", "PAUSE", "400", "ALL"]);
    drop(holder.conn);
    let timestamp = scene.until_ended(holder.token, from);
    assert_succeeds(&mut waiter, holder.token, timestamp);
}

#[test]
fn a_server_that_is_loading_ends_it_afterwards() {
    for contended in [false, true] {
        let mut scene = Scene::start();
        // The server serves connections after every two megabytes that it loads, here every 200 ms.
        let fill = "for n = 1, 800 do redis.call('SET', 'f' .. n, string.rep('x', 10000)) end return 1";
        scene.locks.conn.int(&["EVAL", fill, "0"]);
        for (name, value) in [("key-load-delay", "1000"), ("rdbcompression", "no")] {
            scene.locks.conn.ok(&["CONFIG", "SET", name, value]);
        }
        let holder = scene.hold();
        let waiter = contended.then(|| scene.wait());
        let mut watcher = scene.locks.server.conn();
        scene.locks.conn.send(&["DEBUG", "RELOAD"]);
        until("the server is loading", || match watcher.execute(&["PING"]) {
            Reply::Error(text) if text.starts_with("LOADING") => Some(()),
            _ => None,
        });
        let from = testkit::server_time_us(&mut watcher);
        drop(holder.conn);
        assert_eq!(scene.locks.conn.read(), Reply::Status("OK".into()));
        let timestamp = until("the lock has ended", || {
            let value = scene.value("k");
            let timestamp = timestamp_us(&value);
            (token_of(&value) != holder.token || timestamp < from + 20_000_000).then_some(timestamp)
        });
        match waiter {
            None => {
                assert_eq!(token_of(&scene.value("k")), holder.token);
                assert!(timestamp >= from + MARGIN_US);
            }
            Some(mut waiter) => assert_succeeds(&mut waiter, holder.token, from + MARGIN_US),
        }
    }
}

#[test]
fn a_demoted_server_leaves_a_session_to_its_lease() {
    for while_paused in [false, true] {
        let mut scene = Scene::start();
        let holder = scene.hold();
        let before = scene.value("k");
        if while_paused {
            scene.locks.conn.ok(&["CLIENT", "PAUSE", "60000", "WRITE"]);
            drop(holder.conn);
            scene.until_gone(&holder.id);
            scene.locks.conn.ok(&["REPLICAOF", "127.0.0.1", "1"]);
            scene.locks.conn.ok(&["CLIENT", "UNPAUSE"]);
        } else {
            scene.locks.conn.ok(&["REPLICAOF", "127.0.0.1", "1"]);
            drop(holder.conn);
            scene.until_gone(&holder.id);
        }
        assert!(scene.locks.server.conn().no_reply_within(QUIET));
        assert_eq!(scene.value("k"), before, "a replica writes nothing");
        scene.locks.conn.ok(&["REPLICAOF", "NO", "ONE"]);
        assert_eq!(scene.session("k"), None);
        assert!(scene.locks.server.conn().no_reply_within(QUIET));
        assert_eq!(scene.value("k"), before, "a session that ended before the demotion is forgotten");
        // The next session works as usual.
        scene.locks.conn.int(&["DEL", "k"]);
        scene.stream = crate::replication::Stream::of(&scene.locks.server);
        let next = scene.hold();
        scene.forget();
        let from = scene.now_us();
        drop(next.conn);
        scene.until_ended(next.token, from);
    }
}

#[test]
fn a_session_ends_once_there_are_good_replicas() {
    let mut scene = Scene::start();
    let holder = scene.hold();
    let before = scene.value("k");
    // One replica is connected: the test's stream.
    scene.locks.conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "2"]);
    drop(holder.conn);
    scene.until_gone(&holder.id);
    // Before 7.0 the module notices the setting within a second; it asks for it as soon as it writes.
    let kept = scene.locks.server.conn().no_reply_within(QUIET) && scene.value("k") == before;
    scene.locks.conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    until("the lock has ended", || (scene.value("k") != before).then_some(()));
    assert!(kept || scene.locks.conn.is_before_7(), "written without a good replica");
}

#[test]
fn a_lock_ends_on_a_replica_as_on_its_master() {
    let (mut scene, replica) = (Scene::start(), Server::start());
    replica.replicate(&scene.locks.server);
    let holder = scene.hold();
    scene.locks.server.wait_offset(&replica);
    scene.forget();
    let from = scene.now_us();
    drop(holder.conn);
    scene.until_ended(holder.token, from);
    scene.locks.server.wait_offset(&replica);
    let mut read = replica.conn();
    assert_eq!(read.text(&["GET", "k"]), scene.value("k"));
    assert!(read.lock("k", "session").is_nil());
    until("the lock has expired", || (read.state("k") == "expired").then_some(()));
}
