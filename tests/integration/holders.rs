//! Several holders of one lock: which clients are granted it together, and how long an expired holder stays in the set.
//! `wire` compares the key and the replication stream byte for byte.

mod foreign;
pub mod most;
mod moved;

use crate::kinds::{acquire, Kind, Row};
use crate::waiting::Locks;
use testkit::{server_time_us, until, Conn, Reply, Server};

fn members(conn: &mut Conn, key: &str) -> Vec<String> {
    conn.execute(&["ZRANGE", key, "0", "-1"]).list().iter().map(Reply::text).collect()
}

#[test]
fn a_caller_is_admitted_if_fewer_holders_live_than_it_allows() {
    let server = Server::start();
    let mut conn = server.conn();
    for _ in 0..3 {
        acquire(&mut conn, &["k", "EX", "60", "SHARED"]);
    }
    for refused in [&["EX", "60"][..], &["EX", "60", "LIMIT", "1"], &["EX", "60", "LIMIT", "3"]] {
        assert!(conn.execute(&[&["LOCK.ACQUIRE", "k"], refused].concat()).is_nil(), "{refused:?}");
    }
    acquire(&mut conn, &["k", "EX", "60", "LIMIT", "4"]);
    acquire(&mut conn, &["k", "EX", "60", "SHARED"]);
    assert!(conn.execute(&["LOCK.MACQUIRE", "2", "k", "l", "EX", "60"]).is_nil());
    assert_eq!(conn.int(&["EXISTS", "l"]), 0);
    // An exclusive holder excludes everyone.
    acquire(&mut conn, &["one", "EX", "60"]);
    assert!(conn.execute(&["LOCK.ACQUIRE", "one", "EX", "60", "SHARED"]).is_nil());
    assert!(conn.execute(&["LOCK.ACQUIRE", "one", "EX", "60", "LIMIT", "9"]).is_nil());
}

#[test]
fn each_holder_has_its_own_lease_and_id() {
    let server = Server::start();
    let mut conn = server.conn();
    let long = acquire(&mut conn, &["k", "EX", "60", "SHARED", "ID", "1"]);
    let short = acquire(&mut conn, &["k", "EX", "5", "SHARED", "ID", "2"]);
    assert_eq!(acquire(&mut conn, &["k", "EX", "5", "LIMIT", "9", "ID", "1"]), long);
    assert!(conn.int(&["LOCK.CHECK", "k", &long]) > 50_000, "its lease is never shortened");
    assert_eq!(acquire(&mut conn, &["k", "EX", "90", "SHARED", "ID", "2"]), short);
    assert!(conn.int(&["LOCK.CHECK", "k", &short]) > 80_000);
    assert_eq!(conn.int(&["LOCK.EXTEND", "k", &short, "EX", "20"]), 1);
    assert!((10_000..=20_000).contains(&conn.int(&["LOCK.CHECK", "k", &short])));
    assert_eq!(conn.int(&["LOCK.CANCEL", "k", "1"]), 1);
    assert_eq!(conn.int(&["LOCK.CHECK", "k", &long]), 0);
    assert_eq!(conn.int(&["LOCK.CANCEL", "k", "1"]), 0);
    assert_eq!(members(&mut conn, "k").len(), 1);
}

#[test]
fn a_caller_that_needs_a_slot_replaces_the_first_expired() {
    let server = Server::with().module_args(&["margin-ms", "0"]).start();
    let mut conn = server.conn();
    let first = acquire(&mut conn, &["k", "PX", "1", "LIMIT", "3", "OWNER", "first"]);
    let other = acquire(&mut conn, &["k", "PX", "2", "LIMIT", "3", "OWNER", "second"]);
    let live = acquire(&mut conn, &["k", "EX", "60", "LIMIT", "3"]);
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(conn.execute(&["LOCK.RECOVER", "k", "EX", "60"]).is_nil(), "another holder is live");
    // An expired holder is not counted at all.
    assert!(conn.execute(&["LOCK.ACQUIRE", "k", "EX", "60", "LIMIT", "1"]).is_nil());
    // A client that shares needs no other holder's slot.
    let details = conn.execute(&["LOCK.ACQUIRE", "k", "EX", "60", "SHARED", "DETAILS"]);
    assert!(details.list()[1].is_nil());
    assert!(conn.execute(&["LOCK.ACQUIRE", "k", "EX", "60", "LIMIT", "2"]).is_nil(), "two holders are live");
    let details = conn.execute(&["LOCK.ACQUIRE", "k", "EX", "60", "LIMIT", "3", "DETAILS"]);
    assert_eq!(details.list()[2].int().to_string(), first);
    assert_eq!(details.list()[3].text(), "first");
    assert!(conn.execute(&["LOCK.ACQUIRE", "k", "EX", "60", "LIMIT", "3"]).is_nil(), "three holders are live");
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &first]), 0);
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &other]), -1);
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &live]), 1);
}

#[test]
fn holders_never_exceed_the_limit_even_when_some_die() {
    let mut locks = Locks::start();
    let mut holders: Vec<Conn> = (0..2).map(|_| locks.server.conn()).collect();
    for conn in &mut holders {
        Kind::Limit.take(conn, &["EX", "60", "SESSION"]);
    }
    let waiting: Vec<_> = (0..12).map(|_| locks.wait_as(Kind::Limit, &["SESSION"])).collect();
    for (at, mut next) in waiting.into_iter().enumerate() {
        // Kills one or the other while it holds the lock.
        drop(holders.remove(at % 2));
        next.granted();
        holders.push(next.conn);
        let all = locks.conn.execute(&["LOCK.INFO", "k", "FULL"]).field("holders");
        let live = all.list().iter().filter(|holder| holder.field("overdue-ms").is_nil()).count();
        assert_eq!(live, 2);
    }
    assert_eq!(locks.waiters(), 0);
}

#[test]
fn slots_become_free_when_leases_end() {
    let mut locks = Locks::start();
    for lease in ["60000", "400", "60000"] {
        acquire(&mut locks.conn, &["k", "PX", lease, "LIMIT", "3"]);
    }
    let mut limited = locks.wait(&["LIMIT", "3", "DETAILS"]);
    let mut two = locks.wait(&["LIMIT", "2"]);
    assert!(!limited.answer().list()[1].is_nil(), "it replaces one that expired");
    two.assert_waits();
    // A shortened lease takes effect.
    let info = locks.conn.execute(&["LOCK.INFO", "k", "FULL"]);
    for holder in &info.field("holders").list()[..2] {
        let token = holder.field("token").int().to_string();
        assert_eq!(locks.conn.int(&["LOCK.EXTEND", "k", &token, "PX", "300"]), 1);
    }
    two.granted();
}

#[test]
fn an_id_that_waits_may_change_its_mind() {
    let mut locks = Locks::start();
    let held = acquire(&mut locks.conn, &["k", "EX", "60", "SHARED"]);
    let mut alone = locks.wait(&["ID", "7"]);
    let shared = acquire(&mut locks.conn, &["k", "EX", "60", "SHARED", "ID", "7"]);
    assert!(shared > held, "the attempt is at the head of the queue, and the holder leaves room for it");
    assert!(alone.conn.read().error().starts_with("UNBLOCKED "));
}

#[test]
fn only_small_sets_keep_the_compact_form() {
    let server = Server::start();
    let mut conn = server.conn();
    let mut tokens = Vec::new();
    for is_tree in [false, false, true, true] {
        tokens.push(acquire(&mut conn, &["k", "EX", "600", "SHARED"]));
        if tokens.len() > 1 {
            assert_eq!(conn.text(&["OBJECT", "ENCODING", "k"]) == "skiplist", is_tree, "{} holders", tokens.len());
        }
        assert_eq!(members(&mut conn, "k"), tokens);
    }
}

/// Adds holders whose timestamps passed this long ago, as the module writes them.
fn lapsed(conn: &mut Conn, count: i64, ms_ago: i64) -> Vec<String> {
    let end = server_time_us(conn) - ms_ago * 1_000;
    let score = format!("{}.{:06}", end / 1_000_000, end % 1_000_000);
    let add = |n: i64| {
        let token = (end - 30_000_000 + n).to_string();
        assert_eq!(conn.int(&["ZADD", "k", &score, &token]), 1);
        token
    };
    (0..count).map(add).collect()
}

const VOLATILE: &[&str] = &["--maxmemory-policy", "volatile-lru"];

#[test]
fn an_expired_holder_stays_for_its_retention() {
    // If locks stay forever, an expired holder among others stays for a minute.
    for (args, retention, stays_ms) in [(VOLATILE, "5000", 5_000), (&[], "-1", 60_000), (VOLATILE, "-1", 60_000)] {
        let _row = Row::of((args, retention));
        let server = Server::with().args(args).module_args(&["retention-ms", retention]).start();
        let mut conn = server.conn();
        let over = lapsed(&mut conn, 30, stays_ms + 1_000);
        let stay = lapsed(&mut conn, 3, stays_ms / 4);
        let live: Vec<String> = (0..5).map(|_| acquire(&mut conn, &["k", "EX", "60", "SHARED"])).collect();
        assert_eq!(members(&mut conn, "k"), [stay, live].concat());
        for token in over {
            assert_eq!(conn.int(&["LOCK.RELEASE", "k", &token]), 0);
        }
        assert_eq!(conn.int(&["PTTL", "k"]), -1, "the key has no native expiry");
    }
}

#[test]
fn lapsing_leases_leave_a_small_set() {
    for args in [VOLATILE, &[]] {
        let _row = Row::of(args);
        let server = Server::with().args(args).module_args(&["margin-ms", "0", "retention-ms", "0"]).start();
        let mut conn = server.conn();
        let mut largest = 0;
        for _ in 0..2_000 {
            acquire(&mut conn, &["k", "PX", "1", "SHARED"]);
            largest = largest.max(conn.int(&["ZCARD", "k"]));
        }
        assert!(largest < 500, "{largest}");
        let is_over = |state: &str| state == "expired" || state == "free";
        until("all have ended", || is_over(&conn.state("k")).then_some(()));
    }
}
