//! CLIENT PAUSE, no memory, too few replicas: nothing is granted meanwhile, and the queue moves on afterwards.

use super::{pass, Line};
use crate::kinds::{Kind, Row, KINDS};
use crate::waiting::QUIET;
use testkit::{until, Reply, Server};

fn with_aof(module_args: &[&str]) -> Option<Line> {
    let args = ["--appendonly", "yes", "--repl-diskless-sync-delay", "0"];
    Line::on(Server::with().args(&args).module_args(&["margin-ms", "0"]).module_args(module_args).start())
}

#[test]
fn nothing_is_granted_while_clients_are_paused_and_waits_end_all_the_same() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let Some(mut line) = with_aof(&[]) else { return };
        line.locks.hold();
        line.ask_with(&kind.acquire(&[]), "7", &[]);
        let short = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "40", "ID", "8", "NOTIFY", "c"];
        let replies = line.locks.in_one_turn(&[&short, &["DEL", "k"], &["CLIENT", "PAUSE", "60000", "WRITE"]]);
        assert_eq!(replies[0], super::waiting());
        line.told.hears("timeout 8 k");
        line.told.hears_nothing();
        assert_eq!(line.call(&["EXISTS", "k"]).int(), 0);
        line.locks.conn.ok(&["CLIENT", "UNPAUSE"]);
        line.told.hears("granted 7 k");
        let token = line.call(&kind.acquire(&["PX", "30000", "ID", "7"])).int().to_string();
        kind.release(&mut line.locks.conn, &token);
    }
}

#[test]
fn a_grant_that_was_not_claimed_before_a_pause_passes_on_after_it() {
    let Some(mut line) = with_aof(&["claim-ms", "100"]) else { return };
    let token = line.locks.hold();
    line.ask("7");
    let mut blocked = line.locks.wait(&[]);
    line.locks.in_one_turn(&[&["LOCK.RELEASE", "k", &token], &["CLIENT", "PAUSE", "60000", "WRITE"]]);
    line.told.hears("granted 7 k");
    let value = line.value();
    pass(&mut line.locks.conn, 150);
    assert!(blocked.conn.silent_for(QUIET));
    assert_eq!(line.value(), value);
    line.locks.conn.ok(&["CLIENT", "UNPAUSE"]);
    blocked.granted();
}

#[test]
fn without_memory_nothing_is_granted_or_claimed_and_nobody_leaves_the_line() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let Some(mut line) = Line::with(&["claim-ms", "20000"]) else { return };
        let token = line.locks.hold();
        line.ask_with(&kind.acquire(&[]), "7", &[]);
        line.locks.conn.ok(&["CONFIG", "SET", "maxmemory", "1"]);
        line.locks.release(token);
        line.told.hears_nothing();
        assert_eq!((line.locks.waiters(), line.call(&["EXISTS", "k"]).int()), (1, 0));
        line.locks.conn.ok(&["CONFIG", "SET", "maxmemory", "0"]);
        line.told.hears("granted 7 k");
        // A claim is refused by the server itself, and can be sent again.
        line.locks.conn.ok(&["CONFIG", "SET", "maxmemory", "1"]);
        let claim = kind.acquire(&["PX", "30000", "ID", "7"]);
        assert!(line.call(&claim).error().starts_with("OOM "));
        line.locks.conn.ok(&["CONFIG", "SET", "maxmemory", "0"]);
        let token = line.call(&claim).int().to_string();
        kind.release(&mut line.locks.conn, &token);
        assert_eq!(line.info("lock_unheard"), 0);
    }
}

#[test]
fn without_memory_a_wait_ends_when_its_time_is_over() {
    let Some(mut line) = Line::start() else { return };
    line.locks.hold();
    let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "300", "ID", "7", "NOTIFY", "c"];
    assert_eq!(line.call(&ask), super::waiting());
    line.locks.conn.ok(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(line.call(&["DEL", "k"]).int(), 1);
    line.told.hears("timeout 7 k");
    assert_eq!(line.call(&["EXISTS", "k"]).int(), 0);
}

#[test]
fn short_of_good_replicas_nothing_is_granted_or_claimed() {
    let Some(mut line) = Line::with(&["claim-ms", "20000"]) else { return };
    let token = line.locks.hold();
    line.ask("7");
    line.ask("8");
    let short = ["CONFIG", "SET", "min-replicas-to-write", "1"];
    line.locks.in_one_turn(&[&["LOCK.RELEASE", "k", &token], &short]);
    line.told.hears("granted 7 k");
    let value = line.value();
    let claim = ["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"];
    assert!(line.call(&claim).error().starts_with("NOREPLICAS "));
    assert_eq!(line.value(), value);
    line.locks.conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    let Reply::Int(token) = line.call(&claim) else { panic!("no claim") };
    line.locks.conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    // Its lease runs out: nobody is granted it.
    line.locks.conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    assert_eq!(line.call(&["LOCK.EXTEND", "k", &token.to_string(), "PX", "100"]).int(), 1);
    line.locks.conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    pass(&mut line.locks.conn, 120);
    line.told.hears_nothing();
    line.locks.conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    line.told.hears("granted 8 k");
}

#[test]
fn the_grace_and_its_longest_lease_apply_to_a_claim_as_to_a_grant() {
    // A lease of 2 s at most: 5 s less the margin, the lag and 2.
    let Some(mut line) = Line::with(&["claim-ms", "60000"]) else { return };
    let token = line.locks.hold();
    let ask = |lease: &'static str| ["LOCK.ACQUIRE", "k", "PX", lease, "WAIT", "60000", "ID", "7", "NOTIFY", "c"];
    assert_eq!(line.call(&ask("1000")), super::waiting());
    line.locks.conn.ok(&["CONFIG", "SET", "min-replicas-max-lag", "1"]);
    line.locks.conn.ok(&["CONFIG", "SET", "lock.failover-grace-ms", "5000"]);
    line.locks.release(token);
    until("the grant", || line.told.conn.has_reply().then_some(()));
    line.told.hears("granted 7 k");
    // Never more than the grace allows.
    let left = line.locks.conn.lock("k", "timestamp").text();
    assert!(line.locks.conn.lock("k", "free-in-ms").int() <= 2_000, "{left}");
    assert!(line.call(&ask("30000")).error().starts_with("GRACE lease is longer than "));
    let token = line.call(&ask("1000")).int();
    line.locks.assert_holds(token);
}

#[test]
fn several_keys_wait_for_memory_beside_a_line_of_their_own() {
    let Some(mut line) = Line::start() else { return };
    let token = line.locks.hold();
    line.ask_with(&Kind::Several.acquire(&[]), "7", &[]);
    line.ask("8");
    line.locks.conn.ok(&["CONFIG", "SET", "maxmemory", "1"]);
    line.locks.release(token);
    line.told.hears_nothing();
    line.locks.conn.ok(&["CONFIG", "SET", "maxmemory", "0"]);
    line.told.hears("granted 7 k");
    let token = line.call(&Kind::Several.acquire(&["PX", "30000", "ID", "7"])).int().to_string();
    Kind::Several.release(&mut line.locks.conn, &token);
    line.takes_its_turn("8");
}
