//! Complaints about a holder and its lock.

use super::{acquire, take, RELEASE, RENEW};
use crate::waiting::Locks;
use testkit::{until, Reply, Server};

/// A write that happens only while the lock is held.
const GUARDED: &str = "if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) == 0 then return redis.error_reply('LOST') end \
                       return redis.call('SET', KEYS[2], ARGV[2])";

/// redisson/redisson#4698: when a renewal fails, the work that relies on it gets no notice and goes on.
#[test]
fn no_lease_is_lost_without_notice() {
    let server = Server::with().module_args(&["margin-ms", "0"]).start();
    let (mut slow, mut next) = (server.conn(), server.conn());

    assert!(take(&mut slow, "theirs", "slow", "30"));
    until("the lease has ended", || take(&mut next, "theirs", "next", "30000").then_some(()));
    next.ok(&["SET", "data", "of next"]);
    slow.ok(&["SET", "data", "of slow"]);
    assert_eq!(next.text(&["GET", "data"]), "of slow", "the complaint: the successor's work is overwritten");

    let lost = acquire(&mut slow, "ours", &["PX", "30", "OWNER", "slow"]);
    let details = until("the lease has ended", || match next.execute(&["LOCK.RECOVER", "ours", "PX", "30000"]) {
        Reply::List(details) => Some(details),
        _ => None,
    });
    let token = details[0].int().to_string();
    next.ok(&["EVAL", GUARDED, "2", "ours", "data", &token, "of next"]);
    let write = slow.execute(&["EVAL", GUARDED, "2", "ours", "data", &lost, "of slow"]);
    assert!(write.error().contains("LOST"), "{write:?}");
    assert_eq!(next.text(&["GET", "data"]), "of next");
    assert_eq!(slow.int(&["LOCK.EXTEND", "ours", &lost, "PX", "30000"]), 0, "the renewal reports the loss");
    assert_eq!(slow.int(&["LOCK.RELEASE", "ours", &lost]), 0, "the release reports the loss");
    // The successor sees the loss too, and another store can tell the two holders apart by their tokens.
    assert_eq!((details[2].int().to_string(), details[3].text()), (lost.clone(), "slow".into()));
    assert!(token.parse::<i64>().unwrap() > lost.parse().unwrap());
}

/// redisson/redisson#7272: a renewal that is in flight during the unlock keeps the lock alive forever.
#[test]
fn no_renewal_outlives_its_unlock() {
    let (_server, mut conn) = Server::connected();

    // The value identifies the client and its thread, which takes the lock twice.
    assert!(take(&mut conn, "theirs", "client:1", "30000"));
    assert_eq!(conn.int(&["EVAL", RELEASE, "1", "theirs", "client:1"]), 1);
    assert!(take(&mut conn, "theirs", "client:1", "300"));
    assert_eq!(conn.int(&["EVAL", RENEW, "1", "theirs", "client:1", "30000"]), 1, "the renewal is from the first hold");
    assert!(conn.int(&["PTTL", "theirs"]) > 10_000, "the complaint: the second hold is renewed by mistake");

    let attempt = ["PX", "300", "ID", "42", "OWNER", "client:1"];
    let first = acquire(&mut conn, "ours", &attempt);
    assert_eq!(conn.int(&["LOCK.RELEASE", "ours", &first]), 1);
    assert_eq!(conn.int(&["LOCK.EXTEND", "ours", &first, "PX", "30000"]), 0);
    assert_eq!(conn.int(&["EXISTS", "ours"]), 0, "and the late renewal creates no lock");
    let second = acquire(&mut conn, "ours", &attempt);
    assert_ne!(first, second, "each grant has its own token");
    assert_eq!(conn.int(&["LOCK.EXTEND", "ours", &first, "PX", "30000"]), 0);
    let left = conn.lock("ours", "lease-ms").int();
    assert!(left <= 300, "{left}");
}

/// laravel/framework#26213: a client that finishes late deletes its successor's lock.
#[test]
fn no_stale_owner_releases_the_lock_of_another() {
    let server = Server::with().module_args(&["margin-ms", "0"]).start();
    let (mut stale, mut next, mut third) = (server.conn(), server.conn(), server.conn());

    assert!(take(&mut stale, "theirs", "1", "30"));
    until("the lease has ended", || take(&mut next, "theirs", "1", "30000").then_some(()));
    assert_eq!(stale.int(&["DEL", "theirs"]), 1);
    assert!(take(&mut third, "theirs", "1", "30000"), "the complaint: the third works at the same time as the second");

    let over = acquire(&mut stale, "ours", &["PX", "30"]);
    let token = next.until_granted(&["LOCK.ACQUIRE", "ours", "PX", "30000"]).to_string();
    let value = next.text(&["GET", "ours"]);
    assert_eq!(stale.int(&["LOCK.RELEASE", "ours", &over]), 0);
    assert!(third.execute(&["LOCK.ACQUIRE", "ours", "PX", "30000"]).is_nil());
    assert_eq!(next.text(&["GET", "ours"]), value, "nothing has changed");
    assert_eq!(next.int(&["LOCK.RELEASE", "ours", &token]), 1);
}

/// laravel/horizon#1738 (also redis/redis-py#554): a crash between SETNX and EXPIRE leaves a lock that never expires.
#[test]
fn no_crash_leaves_a_lock_without_expiry() {
    let (server, mut conn) = Server::with().module_args(&["margin-ms", "0", "retention-ms", "0"]).connected();

    let mut crashes = server.conn();
    assert_eq!(crashes.int(&["SETNX", "theirs", "1"]), 1);
    drop(crashes);
    assert_eq!(conn.int(&["PTTL", "theirs"]), -1, "the complaint");

    // If the client crashes anywhere in its request, there is either no lock or one that ends.
    let sent = b"*4\r\n$12\r\nLOCK.ACQUIRE\r\n$4\r\nours\r\n$2\r\nPX\r\n$2\r\n80\r\n";
    let client = |conn: &mut testkit::Conn| conn.int(&["CLIENT", "ID"]).to_string();
    for length in 0..=sent.len() {
        let mut crashes = server.conn();
        let id = client(&mut crashes);
        crashes.send_bytes(&sent[..length]);
        drop(crashes);
        until("the connection has ended", || conn.text(&["CLIENT", "LIST", "ID", &id]).is_empty().then_some(()));
        let left = conn.int(&["PTTL", "ours"]);
        assert!((-2..=81).contains(&left) && left != -1, "{left} ms left after {length} bytes");
        assert!(length == sent.len() || left == -2, "after {length} bytes");
    }
    conn.until_granted(&["LOCK.ACQUIRE", "ours", "PX", "30000"]);
    // Nor can a lock be requested without a lease.
    let reply = conn.execute(&["LOCK.ACQUIRE", "another"]);
    assert!(reply.error().starts_with("ERR "), "{reply:?}");
    let reply = conn.execute(&["LOCK.ACQUIRE", "another", "ID", "7"]);
    assert!(reply.error().starts_with("ERR "), "{reply:?}");
}

/// redisson/redisson#2116 (also samcook/RedLock.net#32): a refused client cannot see who holds the lock.
#[test]
fn nobody_holds_a_lock_unseen() {
    let mut locks = Locks::start();
    let mut holder = locks.server.conn();
    let client = holder.int(&["CLIENT", "ID"]);

    assert!(take(&mut holder, "theirs", "0f8fad5b-d9cb-469f", "30000"));
    let value = locks.conn.text(&["GET", "theirs"]);
    let clients = locks.conn.text(&["CLIENT", "LIST"]);
    assert!(!clients.contains(&value), "the complaint: all that is known is a random number");

    let token = acquire(&mut holder, "k", &["PX", "30000", "OWNER", "nightly@db1", "SESSION"]);
    let mut waiter = locks.wait(&["OWNER", "hourly@db2"]);
    let info = locks.conn.execute(&["LOCK.INFO", "k", "FULL"]);
    assert_eq!(info.field("state").text(), "held");
    assert_eq!(info.field("owner").text(), "nightly@db1");
    assert_eq!(info.field("token").int().to_string(), token);
    assert_eq!(info.field("session").int(), client, "the connection, as CLIENT LIST and CLIENT KILL name it");
    assert!((0..30_000).contains(&info.field("held-ms").int()));
    assert!((1..=30_000).contains(&info.field("free-in-ms").int()));
    let queue = info.field("queue");
    assert_eq!(queue.list().len(), 1);
    assert_eq!(queue.list()[0].field("owner").text(), "hourly@db2");
    assert_eq!(queue.list()[0].field("client").int().to_string(), waiter.id);
    let top = locks.conn.execute(&["LOCK.TOP"]);
    assert_eq!(top.list()[0].field("owner").text(), "nightly@db1");
    // Clients that only know GET see the owner too.
    assert!(locks.conn.text(&["GET", "k"]).ends_with(" nightly@db1"));
    // And an operator can take the lock from its holder, which gets an error.
    locks.release(&token);
    assert!(waiter.granted() > 0);
    assert_eq!(holder.int(&["LOCK.CHECK", "k", &token]), 0);
}
