//! Complaints about waiters, and about a lock that nobody gets although it is free.

use super::{acquire, take};
use crate::waiting::Locks;
use std::time::Duration;
use testkit::{until, Conn, Reply};

const WAITERS: usize = 50;

/// hashicorp/consul#7523: an unlock wakes all waiters, which all try at once, and one of them gets the lock.
#[test]
fn no_herd_wakes_on_unlock() {
    let mut locks = Locks::start();
    let conn = &mut locks.conn;

    // Like locks that publish their unlock: a waiter subscribes, and tries when it gets a message.
    assert!(take(conn, "theirs", "first", "30000"));
    let mut herd: Vec<(Conn, Conn)> = (0..WAITERS).map(|_| (locks.server.conn(), locks.server.conn())).collect();
    for (subscriber, _) in &mut herd {
        subscriber.execute(&["SUBSCRIBE", "unlocked"]);
    }
    let before = conn.calls("set");
    conn.int(&["DEL", "theirs"]);
    assert_eq!(conn.int(&["PUBLISH", "unlocked", "theirs"]), 50, "all of them wake");
    let mut winners = 0;
    for (subscriber, sender) in &mut herd {
        assert_eq!(subscriber.read().list()[2].text(), "theirs");
        winners += usize::from(take(sender, "theirs", "next", "30000"));
    }
    assert_eq!((winners, conn.calls("set") - before), (1, WAITERS), "the complaint: one lock, fifty calls");

    let token = locks.hold();
    let mut waiters: Vec<_> = (0..WAITERS).map(|_| locks.wait(&[])).collect();
    let (asked, processed) = (locks.conn.calls("lock.acquire"), locks.info("stats", "total_commands_processed"));
    locks.release(token);
    let after = locks.info("stats", "total_commands_processed");
    // Later servers count a waiter's command only when its wait ends.
    assert!(after - processed <= 3, "{} commands besides RELEASE and INFO", after - processed - 2);
    // The first was served in the iteration of the release; the others keep waiting.
    let token = waiters[0].conn.read().int();
    for waiter in &mut waiters[1..] {
        assert!(waiter.conn.no_reply_within(Duration::from_millis(2)), "{:?}", waiter.conn.try_read());
    }
    assert!(locks.conn.calls("lock.acquire") <= asked + 1);
    assert_eq!(locks.waiters(), 49);
    locks.assert_holds(token);
}

/// mike-marcacci/node-redlock#218: any newcomer overtakes a client that retries at random.
#[test]
fn no_newcomer_barges_past_the_queue() {
    let mut locks = Locks::start();
    let (mut patient, mut newcomer) = (locks.server.conn(), locks.server.conn());

    assert!(take(&mut locks.conn, "theirs", "holder", "30000"));
    assert!(!take(&mut patient, "theirs", "patient", "30000"), "it came first, and tries again later");
    locks.conn.int(&["DEL", "theirs"]);
    assert!(take(&mut newcomer, "theirs", "newcomer", "30000"));
    assert!(!take(&mut patient, "theirs", "patient", "30000"), "the complaint");

    // The newcomer asks in the iteration of a release, after a DEL in one transaction, and around the end of a lease.
    let token = locks.hold();
    let mut waiter = locks.wait(&[]);
    let replies = locks.in_one_turn(&[&["LOCK.RELEASE", "k", &token], &["LOCK.ACQUIRE", "k", "PX", "30000"]]);
    assert_eq!(replies, [Reply::Int(1), Reply::Nil]);
    waiter.granted();
    let mut waiter = locks.wait(&[]);
    for command in [&["MULTI"][..], &["DEL", "k"], &["EXISTS", "k"], &["LOCK.ACQUIRE", "k", "PX", "30000"]] {
        newcomer.execute(command);
    }
    let replies = newcomer.execute(&["EXEC"]);
    assert_eq!(replies.list(), [Reply::Int(1), Reply::Int(0), Reply::Nil], "free, but another client's turn");
    let token = waiter.granted();
    let mut waiter = locks.wait(&[]);
    assert_eq!(locks.conn.int(&["LOCK.EXTEND", "k", &token.to_string(), "PX", "100"]), 1);
    until("the lease has ended", || {
        let reply = newcomer.execute(&["LOCK.ACQUIRE", "k", "PX", "30000"]);
        assert!(reply.is_nil(), "{reply:?}");
        (newcomer.int(&["LOCK.CHECK", "k", &token.to_string()]) == 0).then_some(())
    });
    let granted = waiter.granted();
    assert!(granted > token);
}

/// A fair lock's queue: a list of names, of which only the first may take the lock.
const FAIR: &str = "local first = redis.call('LINDEX', KEYS[2], 0) \
     if not redis.call('LPOS', KEYS[2], ARGV[1]) then redis.call('RPUSH', KEYS[2], ARGV[1]) end \
     if first and first ~= ARGV[1] then return 0 end \
     if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 30000) then return 0 end \
     redis.call('LPOP', KEYS[2]) return 1";

/// redisson/redisson#4661: the waiters of a process that ended stay in the queue, and the lock is
/// free but nobody gets it.
#[test]
fn no_dead_waiter_blocks_a_free_lock() {
    let mut locks = Locks::start();

    let mut fair = |name: &str| locks.conn.int(&["EVAL", FAIR, "2", "theirs", "queue", name]) == 1;
    assert!(fair("holder") && !fair("dead") && !fair("alive"));
    locks.conn.int(&["DEL", "theirs"]);
    let mut fair = |name: &str| locks.conn.int(&["EVAL", FAIR, "2", "theirs", "queue", name]) == 1;
    for _ in 0..20 {
        assert!(!fair("alive"), "the complaint: the lock is free, but the first in the queue is dead");
    }

    for death in ["closes", "is killed", "is killed in the hand-off's iteration"] {
        let token = locks.hold();
        let dead = locks.wait(&["OWNER", "dead"]);
        let mut alive = locks.wait(&["OWNER", "alive"]);
        let id = dead.id.clone();
        match death {
            "closes" => {
                drop(dead);
                locks.until_waiters(1);
                locks.release(token);
            }
            "is killed" => {
                assert_eq!(locks.conn.int(&["CLIENT", "KILL", "ID", &id]), 1);
                locks.until_waiters(1);
                locks.release(token);
            }
            _ => {
                locks.in_one_turn(&[&["LOCK.RELEASE", "k", &token], &["CLIENT", "KILL", "ID", &id]]);
            }
        }
        let token = alive.granted();
        locks.assert_holds(token);
        assert_eq!(locks.conn.lock("k", "owner").text(), "alive", "{death}");
        locks.release(token);
    }
}

/// leandromoreira/redlock-rb#76: the lock was taken but the reply came too late: nobody holds it, and the client that
/// took it is locked out too.
#[test]
fn no_lost_reply_leaves_an_orphan() {
    let mut locks = Locks::start();

    let cut_off = locks.server.sent(&["SET", "theirs", "random 1", "NX", "PX", "30000"]);
    until("the command has arrived", || (locks.conn.int(&["EXISTS", "theirs"]) == 1).then_some(()));
    drop(cut_off);
    assert!(!take(&mut locks.conn, "theirs", "random 2", "30000"), "the complaint: it tries again and is refused");

    // Sent again with its ID, on another connection: it gets the reply that it missed.
    let cut_off = locks.server.sent(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "42"]);
    until("the command has arrived", || (locks.conn.int(&["EXISTS", "k"]) == 1).then_some(()));
    drop(cut_off);
    let held = locks.conn.lock("k", "token").int().to_string();
    let token = acquire(&mut locks.conn, "k", &["PX", "30000", "ID", "42"]);
    assert_eq!(token, held);

    // A client that waited and will not return gives up any grant it may have.
    let cut_off = locks.wait(&["ID", "43"]);
    locks.release(&token);
    drop(cut_off);
    assert_eq!(locks.conn.int(&["LOCK.CANCEL", "k", "43"]), 1);
    let token = acquire(&mut locks.conn, "k", &["PX", "30000"]);

    // And with SESSION the grant ends with the connection, long before its lease.
    locks.release(&token);
    let cut_off = locks.server.sent(&["LOCK.ACQUIRE", "k", "EX", "600", "SESSION"]);
    until("the command has arrived", || (locks.conn.int(&["EXISTS", "k"]) == 1).then_some(()));
    drop(cut_off);
    locks.conn.until_granted(&["LOCK.ACQUIRE", "k", "PX", "30000"]);
}
