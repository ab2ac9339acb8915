//! Slots that a server moves itself, all keys at once (Valkey 9, Redis 8.4): waiters get UNBLOCKED or MOVED as soon as
//! the slot has left, the lock moves intact, and it never has two holders.

use super::follower::take_turns;
use super::in_memory;
use super::nodes::{slot_of, Node};
use super::waiters::{assert_is_intact, assert_told_at_once, Waiters, MANY};
use crate::notify::{can_publish, waiting, Subscriber};
use testkit::{until, Reply};

/// Whether the server can move slots itself. If not, prints a message.
fn moves_slots(node: &Node) -> bool {
    let (valkey, major, minor) = node.version();
    let can = if valkey { major >= 9 } else { (major, minor) >= (8, 4) };
    if !can {
        eprintln!("skipped: slots that the server itself moves: this needs Valkey 9 or Redis 8.4");
    }
    can
}

/// Moves a slot, and waits until the nodes report that the move is done.
pub fn migrate(from: &Node, to: &Node, slot: i64) {
    let slot = slot.to_string();
    let (valkey, ..) = from.version();
    let state = |reply: &Reply, field| reply.list()[0].field(field).text();
    if valkey {
        let mut conn = from.conn();
        conn.ok(&["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &slot, &slot, "NODE", &to.name()]);
        until("the slot has moved", || {
            let state = state(&conn.execute(&["CLUSTER", "GETSLOTMIGRATIONS"]), "state");
            assert!(state != "failed" && state != "cancelled", "{state}\n{}", from.log_tail(30));
            (state == "success").then_some(())
        });
    } else {
        let mut conn = to.conn();
        let task = conn.text(&["CLUSTER", "MIGRATION", "IMPORT", &slot, &slot]);
        until("the slot has moved", || {
            let reply = conn.execute(&["CLUSTER", "MIGRATION", "STATUS", "ID", &task]);
            let state = state(&reply, "state");
            assert!(state != "failed" && state != "canceled", "{reply:?}\n{}", from.log_tail(30));
            (state == "completed").then_some(())
        });
    }
}

#[test]
fn an_atomic_slot_move_redirects_waiters() {
    let cluster = in_memory();
    if !moves_slots(&cluster.nodes[0]) {
        return;
    }
    let key = "{atomic}lock";
    let (from, to) = (cluster.master_of(key), cluster.other_master(key));
    let token = from.conn().int(&["LOCK.ACQUIRE", key, "PX", "60000", "OWNER", "holder"]).to_string();
    let value = from.conn().text(&["GET", key]);
    let waiters = Waiters::of(from, key, MANY);
    let hand_offs = from.number(&["INFO", "lock"], "lock_hand_offs");
    migrate(from, to, slot_of(from, key));
    let ends = waiters.end();
    assert_eq!((ends.unblocked + ends.moved, ends.down, ends.closed), (MANY, 0, 0), "{ends:?}");
    assert_eq!(from.number(&["INFO", "lock"], "lock_hand_offs"), hand_offs, "nobody was granted the moved lock");
    assert!(to.conn().int(&["PTTL", key]) > 60_000, "its retention moved with it");
    assert_is_intact(to, key, (&token, &value));
    from.assert_sound();
    to.assert_sound();
}

/// The server reports the move, so nobody has to wait for the check that comes about once a second. Several times: that
/// check could come at the right moment once. Valkey 9.1.2 also reports the keys that it deletes in the slot.
#[test]
fn waiters_are_told_as_soon_as_their_slot_has_left() {
    let cluster = in_memory();
    if !moves_slots(&cluster.nodes[0]) {
        return;
    }
    let (key, absent) = ("{atomic-told}lock", "{atomic-told}free");
    cluster.master_of(key).conn().int(&["LOCK.ACQUIRE", key, "PX", "600000"]);
    for round in 0..5 {
        let (from, to) = (cluster.master_of(key), cluster.other_master(key));
        let mut conn = from.conn();
        let mut subscribers = if can_publish(&mut conn) {
            let channel = "atomic-told";
            let ways = [("SUBSCRIBE", "NOTIFY"), ("SSUBSCRIBE", "SNOTIFY")];
            let subscribers = ways.map(|(subscribe, _)| Subscriber::on(from.conn(), subscribe, channel));
            for (id, (_, option)) in ["7", "8"].into_iter().zip(ways) {
                let ask = ["LOCK.MACQUIRE", "2", absent, key, "PX", "60000", "WAIT", "60000", "ID", id];
                assert_eq!(conn.execute(&[&ask[..], &[option, channel]].concat()), waiting());
            }
            Vec::from(subscribers)
        } else {
            Vec::new()
        };
        let waiters = Waiters::of(from, key, MANY);
        migrate(from, to, slot_of(from, key));
        assert_told_at_once(&mut conn, key);
        let ends = waiters.end();
        assert_eq!((ends.unblocked + ends.moved, ends.down, ends.closed), (MANY, 0, 0), "round {round}: {ends:?}");
        if let Some(subscriber) = subscribers.first_mut() {
            subscriber.gets(&format!("unblocked 7 {absent}"));
        }
        if let Some(sharded) = subscribers.last_mut() {
            // The channel's slot has left too.
            let message = sharded.conn.read();
            assert_eq!(message.list()[0].text(), "sunsubscribe", "{message:?}");
        }
        from.assert_sound();
        to.assert_sound();
    }
    cluster.master_of(key).conn().int(&["DEL", key]);
}

#[test]
fn a_busy_lock_has_one_holder_in_an_atomic_move() {
    let cluster = in_memory();
    if !moves_slots(&cluster.nodes[0]) {
        return;
    }
    let key = "{atomic-busy}lock";
    let work = take_turns(&cluster, key, 60_000, |work| {
        for _ in 0..3 {
            work.goes_on();
            let (from, to) = (cluster.master_of(key), cluster.other_master(key));
            migrate(from, to, slot_of(from, key));
        }
    });
    work.assert_exclusive();
    cluster.nodes.iter().for_each(Node::assert_sound);
}
