//! A slot that moves while clients wait in it: the lock moves intact, waiters get UNBLOCKED or MOVED within two
//! seconds, and a server grants no lock in a slot that it does not own, although MIGRATE deletes the key.

use super::follower::take_turns;
use super::nodes::{slot_of, Move, Node};
use super::waiters::{assert_is_intact, Ends, Waiters, MANY};
use super::{in_memory, Cluster};
use std::time::Duration;
use testkit::{until, Conn, Reply};

/// Sends a command to a node that is importing its slot.
fn asking(conn: &mut Conn, command: &[&str]) -> Reply {
    conn.ok(&["ASKING"]);
    conn.execute(command)
}

/// Takes a lock for a minute, and returns its token and its value.
fn hold(cluster: &Cluster, key: &str) -> (String, String) {
    let mut conn = cluster.master_of(key).conn();
    let token = conn.int(&["LOCK.ACQUIRE", key, "PX", "60000", "OWNER", "holder"]).to_string();
    (token, conn.text(&["GET", key]))
}

#[test]
fn a_moving_slot_redirects_waiters_and_keeps_the_lock() {
    let cluster = in_memory();
    let key = "{whole}lock";
    let (token, value) = hold(&cluster, key);
    let (from, to) = (cluster.master_of(key), cluster.other_master(key));
    let waiters = Waiters::of(from, key, MANY);
    let ends_at = from.conn().lock(key, "timestamp");
    let hand_offs = from.number(&["INFO", "lock"], "lock_hand_offs");

    let moving = Move::begin(from, to, key);
    moving.migrate();
    let ends = waiters.end();
    moving.end();

    assert_eq!(ends, Ends { unblocked: MANY, ..Ends::default() });
    assert_eq!(from.number(&["INFO", "lock"], "lock_hand_offs"), hand_offs, "nobody was granted the deleted lock");
    assert_eq!(cluster.master_of(key).port, to.port);
    assert_eq!(to.conn().lock(key, "timestamp"), ends_at);
    assert!(to.conn().int(&["PTTL", key]) > 60_000, "its retention moved with it");
    assert_is_intact(to, key, (&token, &value));
    from.assert_sound();
}

#[test]
fn a_migrating_slot_serves_the_queue_of_a_lock_that_is_still_here() {
    let cluster = in_memory();
    let key = "{migrating}lock";
    let (token, _) = hold(&cluster, key);
    let (from, to) = (cluster.master_of(key), cluster.other_master(key));
    let mut waiters = Waiters::of(from, key, 10);
    let moving = Move::begin(from, to, key);
    let mut here = from.conn();
    let mut there = to.conn();

    // While the key is here, its commands are served here.
    waiters.assert_wait();
    assert_eq!(here.int(&["LOCK.RELEASE", key, &token]), 1);
    let mut holder = waiters.0.remove(0);
    let second = holder.read().int();
    assert!(here.int(&["LOCK.CHECK", key, &second.to_string()]) > 0);
    assert!(asking(&mut there, &["LOCK.INFO", key]).field("token").is_nil());
    // A key that is missing here belongs to the new owner, which serves it only after ASKING.
    let absent = "{migrating}other";
    let reply = here.execute(&["LOCK.ACQUIRE", absent, "PX", "60000", "WAIT", "60000"]);
    assert_eq!(reply.error(), format!("ASK {} 127.0.0.1:{}", moving.slot, to.port));
    let reply = there.execute(&["LOCK.ACQUIRE", absent, "PX", "60000", "WAIT", "60000"]);
    assert_eq!(reply.error(), format!("MOVED {} 127.0.0.1:{}", moving.slot, from.port));
    let token = asking(&mut there, &["LOCK.ACQUIRE", absent, "PX", "60000"]).int().to_string();
    assert!(asking(&mut there, &["LOCK.CHECK", absent, &token]).int() > 0);

    // Without the key, this server may no longer grant the lock.
    assert_eq!(here.int(&["DEL", key]), 1);
    let ends = waiters.end();
    assert_eq!(ends, Ends { unblocked: 9, ..Ends::default() });
    let reply = here.execute(&["LOCK.ACQUIRE", key, "PX", "60000"]);
    assert!(reply.error().starts_with("ASK "), "{reply:?}");

    moving.migrate();
    moving.end();
    assert_eq!(there.int(&["LOCK.RELEASE", absent, &token]), 1);
    assert!(there.int(&["LOCK.ACQUIRE", key, "PX", "1"]) > second);
    from.assert_sound();
    to.assert_sound();
}

#[test]
fn waiters_in_an_importing_slot_are_granted_or_redirected() {
    let cluster = in_memory();
    let key = "{importing}lock";
    let (from, to) = (cluster.master_of(key), cluster.other_master(key));
    let moving = Move::begin(from, to, key);
    let mut there = to.conn();
    let wait = || {
        let mut waiter = to.conn();
        waiter.ok(&["ASKING"]);
        waiter.send(&["LOCK.ACQUIRE", key, "PX", "60000", "WAIT", "60000"]);
        waiter
    };
    let mut holder = asking(&mut there, &["LOCK.ACQUIRE", key, "PX", "60000"]).int();
    // Once a second, the server treats an importing slot as not served; the attempt is then sent again.
    until("a release grants the lock to the waiter", || {
        let mut waiter = wait();
        let _ = waiter.no_reply_within(Duration::from_millis(20));
        assert_eq!(asking(&mut there, &["LOCK.RELEASE", key, &holder.to_string()]).int(), 1);
        let reply = waiter.read();
        if let Reply::Int(token) = reply {
            assert!(asking(&mut there, &["LOCK.CHECK", key, &token.to_string()]).int() > 0);
            holder = token;
            return Some(());
        }
        assert!(reply.error().starts_with("UNBLOCKED "), "{reply:?}");
        holder = asking(&mut there, &["LOCK.ACQUIRE", key, "PX", "60000"]).int();
        None
    });
    let ends = Waiters(vec![wait()]).end();
    assert_eq!(ends, Ends { unblocked: 1, ..Ends::default() });
    moving.migrate();
    moving.end();
    assert_eq!(there.int(&["LOCK.RELEASE", key, &holder.to_string()]), 1);
    to.assert_sound();
}

#[test]
fn a_slot_claimed_elsewhere_is_granted_to_nobody() {
    let cluster = in_memory();
    let key = "{claimed}lock";
    hold(&cluster, key);
    let (from, to) = (cluster.master_of(key), cluster.other_master(key));
    let waiters = Waiters::of(from, key, MANY);
    // Only the new owner gets the command. The old one finds out about the change, and deletes its keys in the slot.
    to.set_slot(slot_of(to, key), &["IMPORTING", &from.name()]);
    to.set_slot(slot_of(to, key), &["NODE", &to.name()]);
    until("the old owner knows about the change", || (!from.serves(key)).then_some(()));
    let ends = waiters.end();
    assert_eq!((ends.unblocked + ends.moved, ends.down, ends.closed), (MANY, 0, 0));
    assert_eq!(cluster.master_of(key).port, to.port);
    from.assert_sound();
}

#[test]
fn a_busy_lock_has_one_holder_while_its_slot_moves() {
    let cluster = in_memory();
    let key = "{busy}lock";
    let work = take_turns(&cluster, key, 60_000, |work| {
        for _ in 0..6 {
            work.goes_on();
            Move::all(cluster.master_of(key), cluster.other_master(key), key);
        }
    });
    work.assert_exclusive();
    cluster.nodes.iter().for_each(Node::assert_sound);
}
