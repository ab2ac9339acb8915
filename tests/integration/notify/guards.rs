//! During a CLIENT PAUSE, when out of memory and with too few replicas, nothing is granted; afterwards the queue moves
//! on.

use super::{pass, Queue};
use crate::kinds::{Kind, Row, KINDS};
use crate::waiting::QUIET;
use testkit::{until, Reply, Server};

fn with_aof(module_args: &[&str]) -> Option<Queue> {
    let args = ["--appendonly", "yes", "--repl-diskless-sync-delay", "0"];
    Queue::on(Server::with().args(&args).module_args(&["margin-ms", "0"]).module_args(module_args).start())
}

#[test]
fn a_pause_stops_grants_and_waits_still_end() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let Some(mut queue) = with_aof(&[]) else { return };
        queue.locks.hold();
        queue.ask_with(&kind.acquire(&[]), "7", &[]);
        let short = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "40", "ID", "8", "NOTIFY", "c"];
        let replies = queue.locks.in_one_turn(&[&short, &["DEL", "k"], &["CLIENT", "PAUSE", "60000", "WRITE"]]);
        assert_eq!(replies[0], super::waiting());
        queue.subscriber.gets("timeout 8 k");
        queue.subscriber.gets_nothing();
        assert_eq!(queue.execute(&["EXISTS", "k"]).int(), 0);
        queue.locks.conn.ok(&["CLIENT", "UNPAUSE"]);
        queue.subscriber.gets("granted 7 k");
        let token = queue.execute(&kind.acquire(&["PX", "30000", "ID", "7"])).int().to_string();
        kind.release(&mut queue.locks.conn, &token);
    }
}

#[test]
fn an_unclaimed_grant_is_passed_on_after_a_pause() {
    let Some(mut queue) = with_aof(&["claim-ms", "100"]) else { return };
    let token = queue.locks.hold();
    queue.ask("7");
    let mut blocked = queue.locks.wait(&[]);
    queue.locks.in_one_turn(&[&["LOCK.RELEASE", "k", &token], &["CLIENT", "PAUSE", "60000", "WRITE"]]);
    queue.subscriber.gets("granted 7 k");
    let value = queue.value();
    pass(&mut queue.locks.conn, 150);
    assert!(blocked.conn.no_reply_within(QUIET));
    assert_eq!(queue.value(), value);
    queue.locks.conn.ok(&["CLIENT", "UNPAUSE"]);
    blocked.granted();
}

#[test]
fn the_queue_does_not_move_when_out_of_memory() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let Some(mut queue) = Queue::with(&["claim-ms", "20000"]) else { return };
        let token = queue.locks.hold();
        queue.ask_with(&kind.acquire(&[]), "7", &[]);
        queue.locks.conn.ok(&["CONFIG", "SET", "maxmemory", "1"]);
        queue.locks.release(token);
        queue.subscriber.gets_nothing();
        assert_eq!((queue.locks.waiters(), queue.execute(&["EXISTS", "k"]).int()), (1, 0));
        queue.locks.conn.ok(&["CONFIG", "SET", "maxmemory", "0"]);
        queue.subscriber.gets("granted 7 k");
        // The server itself refuses a claim, which can be sent again later.
        queue.locks.conn.ok(&["CONFIG", "SET", "maxmemory", "1"]);
        let claim = kind.acquire(&["PX", "30000", "ID", "7"]);
        assert!(queue.execute(&claim).error().starts_with("OOM "));
        queue.locks.conn.ok(&["CONFIG", "SET", "maxmemory", "0"]);
        let token = queue.execute(&claim).int().to_string();
        kind.release(&mut queue.locks.conn, &token);
        assert_eq!(queue.info("lock_unheard"), 0);
    }
}

#[test]
fn a_wait_ends_on_time_when_out_of_memory() {
    let Some(mut queue) = Queue::start() else { return };
    queue.locks.hold();
    let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "300", "ID", "7", "NOTIFY", "c"];
    assert_eq!(queue.execute(&ask), super::waiting());
    queue.locks.conn.ok(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(queue.execute(&["DEL", "k"]).int(), 1);
    queue.subscriber.gets("timeout 7 k");
    assert_eq!(queue.execute(&["EXISTS", "k"]).int(), 0);
}

#[test]
fn short_of_good_replicas_nothing_is_granted_or_claimed() {
    let Some(mut queue) = Queue::with(&["claim-ms", "20000"]) else { return };
    let token = queue.locks.hold();
    queue.ask("7");
    queue.ask("8");
    let short = ["CONFIG", "SET", "min-replicas-to-write", "1"];
    queue.locks.in_one_turn(&[&["LOCK.RELEASE", "k", &token], &short]);
    queue.subscriber.gets("granted 7 k");
    let value = queue.value();
    let claim = ["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"];
    assert!(queue.execute(&claim).error().starts_with("NOREPLICAS "));
    assert_eq!(queue.value(), value);
    queue.locks.conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    let Reply::Int(token) = queue.execute(&claim) else { panic!("no claim") };
    queue.locks.conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    // The lease expires: nobody gets the lock.
    queue.locks.conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    assert_eq!(queue.execute(&["LOCK.EXTEND", "k", &token.to_string(), "PX", "100"]).int(), 1);
    queue.locks.conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    pass(&mut queue.locks.conn, 120);
    queue.subscriber.gets_nothing();
    queue.locks.conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    queue.subscriber.gets("granted 8 k");
}

#[test]
fn the_grace_applies_to_claims_too() {
    // A lease of at most 2 s: 5 s less the margin, the lag and 2 s.
    let Some(mut queue) = Queue::with(&["claim-ms", "60000"]) else { return };
    let token = queue.locks.hold();
    let ask = |lease: &'static str| ["LOCK.ACQUIRE", "k", "PX", lease, "WAIT", "60000", "ID", "7", "NOTIFY", "c"];
    assert_eq!(queue.execute(&ask("1000")), super::waiting());
    queue.locks.conn.ok(&["CONFIG", "SET", "min-replicas-max-lag", "1"]);
    queue.locks.conn.ok(&["CONFIG", "SET", "lock.failover-grace-ms", "5000"]);
    queue.locks.release(token);
    until("the grant", || queue.subscriber.conn.has_reply().then_some(()));
    queue.subscriber.gets("granted 7 k");
    // The time to claim is never longer than the grace allows.
    let left = queue.locks.conn.lock("k", "timestamp").text();
    assert!(queue.locks.conn.lock("k", "free-in-ms").int() <= 2_000, "{left}");
    assert!(queue.execute(&ask("30000")).error().starts_with("GRACE lease is longer than "));
    let token = queue.execute(&ask("1000")).int();
    queue.locks.assert_holds(token);
}

#[test]
fn several_keys_wait_for_memory_beside_other_waiters() {
    let Some(mut queue) = Queue::start() else { return };
    let token = queue.locks.hold();
    queue.ask_with(&Kind::Several.acquire(&[]), "7", &[]);
    queue.ask("8");
    queue.locks.conn.ok(&["CONFIG", "SET", "maxmemory", "1"]);
    queue.locks.release(token);
    queue.subscriber.gets_nothing();
    queue.locks.conn.ok(&["CONFIG", "SET", "maxmemory", "0"]);
    queue.subscriber.gets("granted 7 k");
    let token = queue.execute(&Kind::Several.acquire(&["PX", "30000", "ID", "7"])).int().to_string();
    Kind::Several.release(&mut queue.locks.conn, &token);
    queue.takes_its_turn("8");
}
