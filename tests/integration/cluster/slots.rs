//! A slot that moves while clients wait in it: the lock moves whole, those who wait are told within
//! two seconds, and nobody is granted what is not ours, although MIGRATE deletes the key.

use super::nodes::Move;
use super::waiters::{Ends, Waiters, MANY, SOON};
use super::{in_memory, Cluster};
use crate::support::{Conn, Reply};
use std::time::Instant;

/// Sends a command to a node that is importing its slot.
fn asking(conn: &mut Conn, command: &[&str]) -> Reply {
    conn.ok(&["ASKING"]);
    conn.call(command)
}

/// Takes a lock for a minute: its token and its value.
fn hold(cluster: &Cluster, key: &str) -> (String, String) {
    let mut conn = cluster.master_of(key).conn();
    let token = conn.int(&["LOCK.ACQUIRE", key, "PX", "60000", "OWNER", "holder"]).to_string();
    (token, conn.text(&["GET", key]))
}

#[test]
fn those_who_wait_in_a_slot_that_moves_are_told_and_the_lock_moves_whole() {
    let cluster = in_memory();
    let key = "{whole}lock";
    let (token, value) = hold(&cluster, key);
    let (from, to) = (cluster.master_of(key), cluster.other_master(key));
    let waiters = Waiters::of(from, key, MANY);
    let ends_at = from.conn().call(&["LOCK.INFO", key]).field("timestamp");
    let hand_offs = from.number(&["INFO", "lock"], "lock_hand_offs");

    let moving = Move::begin(from, to, key);
    let since = Instant::now();
    moving.migrate();
    let ends = waiters.end_within(SOON, since);
    moving.end();

    assert_eq!(ends, Ends { unblocked: MANY, ..Ends::default() });
    assert_eq!(from.number(&["INFO", "lock"], "lock_hand_offs"), hand_offs, "nobody was given the deleted lock");
    assert_eq!(cluster.master_of(key).port, to.port);
    let mut conn = to.conn();
    assert_eq!(conn.text(&["GET", key]), value);
    assert_eq!(conn.call(&["LOCK.INFO", key]).field("timestamp"), ends_at);
    assert!(conn.int(&["PTTL", key]) > 60_000, "its retention came along");
    assert_eq!(conn.int(&["LOCK.EXTEND", key, &token, "PX", "70000"]), 1);
    // Who is told asks there, and stands in line again.
    let mut again = Waiters::of(to, key, 3);
    assert_eq!(conn.int(&["LOCK.RELEASE", key, &token]), 1);
    assert!(again.0[0].read().int() > token.parse().unwrap());
    from.assert_sound();
}
