//! The grace and IDs: an ID sent again to a new master during its grace gets GRACE, and its lease is not extended,
//! unless this server granted it. A grant whose reply was lost is handed off only if the key's value is unchanged.

use crate::kinds::{Kind, Row, KINDS};
use crate::waiting::Locks;
use testkit::{server_time_us, skipped, timestamp_us, until, Reply, Server};

/// 2 s for the lease, 1 s for the lag, the usual 2 s, and no margin.
const GRACE: [&str; 4] = ["margin-ms", "0", "failover-grace-ms", "5000"];

/// A server whose grace has ended, and another that followed it and has just become master.
fn replaced(then: impl FnOnce(&mut Locks)) -> (Locks, Locks) {
    let args = ["--min-replicas-max-lag", "1", "--repl-diskless-sync-delay", "0"];
    let start = || Locks::on(Server::with().args(&args).module_args(&GRACE).start());
    let (mut old, mut new) = (start(), start());
    new.server.replicate(&old.server);
    until("the first server's grace has ended", || (old.info("lock", "lock_grace_left_ms") == 0).then_some(()));
    then(&mut old);
    old.server.wait_offset(&new.server);
    new.conn.ok(&["REPLICAOF", "NO", "ONE"]);
    (old, new)
}

#[test]
fn a_repeated_id_gets_no_longer_lease_at_the_new_master() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let (_old, mut new) = replaced(|old| {
            kind.take(&mut old.conn, &["PX", "1900", "ID", "7"]);
        });
        let before: Vec<_> = kind.keys().iter().map(|key| new.conn.execute(&["DUMP", key])).collect();
        assert!(new.info("lock", "lock_grace_left_ms") > 1_000);
        let again = |wait: &'static [&'static str]| kind.acquire(&[&["PX", "2000", "ID", "7"], wait].concat());
        for wait in [&[][..], &["WAIT", "60000"], &["SESSION"]] {
            let reply = new.conn.execute(&again(wait));
            assert!(reply.error().starts_with("GRACE this server has just started"), "{wait:?}: {reply:?}");
        }
        if !new.conn.is_before_7() {
            let reply = new.conn.execute(&again(&["WAIT", "60000", "NOTIFY", "c"]));
            assert!(reply.error().starts_with("GRACE this server has just started"), "{reply:?}");
        }
        let after: Vec<_> = kind.keys().iter().map(|key| new.conn.execute(&["DUMP", key])).collect();
        assert_eq!(after, before, "its lease was extended");
        assert_eq!(new.info("lock", "lock_extends"), 0);
    }
}

#[test]
fn a_grace_repeats_the_grants_of_this_server() {
    let mut locks = Locks::on(Server::with().args(&["--min-replicas-max-lag", "1"]).module_args(&GRACE).start());
    if locks.conn.is_before_7() {
        return skipped("a longer grace", "this server has no module settings that can be changed");
    }
    until("the grace has ended", || (locks.info("lock", "lock_grace_left_ms") == 0).then_some(()));
    let token = locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", "1000", "ID", "7"]);
    // With a longer grace, the server is in its grace again.
    locks.conn.ok(&["CONFIG", "SET", "lock.failover-grace-ms", "60000"]);
    assert!(locks.info("lock", "lock_grace_left_ms") > 10_000);
    assert!(locks.conn.execute(&["LOCK.ACQUIRE", "l", "PX", "1000", "ID", "7"]).error().starts_with("GRACE "));
    let before = timestamp_us(&locks.conn.text(&["GET", "k"]));
    let reply = locks.conn.execute(&["LOCK.ACQUIRE", "k", "PX", "2000", "ID", "7"]);
    // A busy machine may be too late for this.
    if before > server_time_us(&mut locks.conn) {
        assert_eq!(reply, Reply::Int(token));
        assert!(timestamp_us(&locks.conn.text(&["GET", "k"])) > before);
    }
}

#[test]
fn an_undelivered_grant_is_passed_on_only_if_unchanged() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let mut locks = Locks::start();
        let token = locks.hold();
        let mut dead = locks.wait_as(kind, &["ID", "7", "OWNER", "alice"]);
        let id = dead.id.clone();
        // In one iteration: granted, and the same token gets a different timestamp before the loss is detected.
        let script = "local set = redis.call('TYPE', KEYS[1]).ok == 'zset' \
            if set then \
                local all = redis.call('ZRANGE', KEYS[1], 0, -1) \
                redis.call('ZADD', KEYS[1], 'XX', '9999999999.5', all[1]) \
            else \
                local value = redis.call('GET', KEYS[1]) \
                redis.call('SET', KEYS[1], '9999999999.500000' .. string.sub(value, 18), 'PX', 90000000) \
            end return 1";
        let replies = locks.in_one_turn(&[
            &["LOCK.RELEASE", "k", &token],
            &["EVAL", script, "1", "k"],
            &["CLIENT", "KILL", "ID", &id],
        ]);
        assert!(replies.iter().all(|reply| *reply == Reply::Int(1)), "{replies:?}");
        dead.closed();
        let value = locks.conn.execute(&["DUMP", "k"]);
        if kind == Kind::Several {
            until("the other key is free", || (locks.conn.int(&["EXISTS", "l"]) == 0).then_some(()));
        }
        until("the grant is known to be lost", || (locks.info("lock", "lock_undelivered_grants") == 1).then_some(()));
        std::thread::sleep(crate::waiting::QUIET);
        assert_eq!(locks.conn.execute(&["DUMP", "k"]), value, "the value is left alone");
        assert_eq!(locks.conn.state("k"), "held");
    }
}

#[test]
fn cancelling_an_unclaimed_grant_keeps_a_changed_value() {
    let Some(mut queue) = super::Queue::with(&["claim-ms", "60000"]) else { return };
    let token = queue.locks.hold();
    queue.ask("7");
    queue.locks.release(token);
    queue.subscriber.gets("granted 7 k");
    let mut value = queue.value();
    value.replace_range(..17, "9999999999.500000");
    queue.locks.conn.ok(&["SET", "k", &value]);
    assert_eq!(queue.execute(&["LOCK.CANCEL", "k", "7"]).int(), 1);
    queue.subscriber.gets("cancelled 7 k");
    assert_eq!(queue.value(), value);
}
