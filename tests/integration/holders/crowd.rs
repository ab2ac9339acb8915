//! As many holders as a lock can have: no command takes 5 ms, whether the set is in memory or not, and one more holder
//! is refused. Larger sets of others are no locks.

use crate::kinds::acquire;
use crate::support::{server_time_us, until, Conn, Reply, Server};
use crate::waiting::Locks;

const MOST: usize = 4_096;
const BOUND_US: f64 = 5_000.0;

/// Fills a key with holders as the module writes them, each with an ID and an owner of 40 characters, whose leases end
/// between `from_ms` and `to_ms` from now. Their tokens.
fn fill(conn: &mut Conn, key: &str, count: usize, (from_ms, to_ms): (i64, i64)) -> Vec<String> {
    let now = server_time_us(conn);
    let range = (to_ms - from_ms).max(1);
    let holders: Vec<(String, String)> = (0..count)
        .map(|n| {
            // Neighbours by their tokens are far apart by their ends, and so in the memory of the server.
            let spread = i64::try_from(n * 7_919 % count).unwrap() * range / i64::try_from(count).unwrap();
            let end = now + (from_ms + spread) * 1_000;
            let member = format!(
                "{:016}{:019}{:>41}",
                now - 1_000_000 + i64::try_from(n).unwrap(),
                n + 1,
                format!(" owner-{n:034}")
            );
            (format!("{}.{:06}", end / 1_000_000, end % 1_000_000), member)
        })
        .collect();
    for part in holders.chunks(512) {
        let pairs = part.iter().flat_map(|(score, member)| [score.as_str(), member]);
        conn.int(&["ZADD", key].into_iter().chain(pairs).collect::<Vec<_>>());
    }
    holders.into_iter().map(|(_, member)| member[..16].to_string()).collect()
}

/// What the module has in memory of sets is given up when any database is flushed.
fn forget(conn: &mut Conn) {
    conn.ok(&["SELECT", "9"]);
    conn.ok(&["FLUSHDB"]);
    conn.ok(&["SELECT", "0"]);
}

/// The microseconds that the server takes for a command, and its reply.
pub fn cost_us(conn: &mut Conn, call: &[impl AsRef<str>]) -> (Reply, f64) {
    let call: Vec<&str> = call.iter().map(AsRef::as_ref).collect();
    conn.ok(&["CONFIG", "RESETSTAT"]);
    let reply = conn.call(&call);
    let field = format!("cmdstat_{}:", call[0].to_lowercase());
    let stats = conn.text(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix(&field)).unwrap_or_else(|| panic!("{field} in {stats}"));
    let usec = line.split(',').find_map(|part| part.strip_prefix("usec="));
    (reply, usec.and_then(|usec| usec.parse().ok()).unwrap_or_else(|| panic!("{line}")))
}

/// The microseconds for a command that is no error.
fn cost_of(conn: &mut Conn, call: &[impl AsRef<str>]) -> f64 {
    let (reply, cost) = cost_us(conn, call);
    assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
    cost
}

/// The least of some: a busy machine can make any of them longer.
fn least(count: usize, mut cost: impl FnMut(usize) -> f64) -> f64 {
    (0..count).map(&mut cost).fold(f64::INFINITY, f64::min)
}

#[test]
fn no_command_takes_5_ms_on_a_set_that_is_not_in_memory() {
    let server = Server::start();
    let mut conn = server.conn();
    let tokens = fill(&mut conn, "k", MOST, (600_000, 900_000));
    let calls: [&dyn Fn(usize) -> Vec<String>; 7] = [
        &|n| vec!["LOCK.CHECK".into(), "k".into(), tokens[n * 7].clone()],
        &|n| vec!["LOCK.EXTEND".into(), "k".into(), tokens[n * 5].clone(), "EX".into(), "700".into()],
        &|n| vec!["LOCK.RELEASE".into(), "k".into(), tokens[n * 3 + 1].clone()],
        &|n| {
            "LOCK.ACQUIRE k EX 600 SHARED ID".split(' ').chain([&*(n * 11 + 900).to_string()]).map(Into::into).collect()
        },
        &|_| vec!["LOCK.INFO".into(), "k".into()],
        &|_| vec!["LOCK.SCAN".into(), "0".into()],
        &|n| vec!["LOCK.CANCEL".into(), "k".into(), (n * 13 + 2_000).to_string()],
    ];
    for call in calls {
        let mut cost = |is_cold: bool| {
            least(9, |n| {
                let call = call(n);
                if is_cold {
                    forget(&mut conn);
                } else {
                    conn.int(&["LOCK.CHECK", "k", "1"]);
                }
                cost_of(&mut conn, &call)
            })
        };
        let (cold, warm) = (cost(true), cost(false));
        println!("{}: {cold} us, in memory {warm} us", call(0)[0]);
        assert!(cold < BOUND_US, "{:?}: {cold} us", call(0));
        // In memory it is O(log n).
        assert!(warm < 500.0, "{:?}: {warm} us", call(0));
    }
}

#[test]
fn no_check_takes_5_ms_on_a_replica() {
    let (master, replica) = (Server::with().args(&["--repl-diskless-sync-delay", "0"]).start(), Server::start());
    let tokens = fill(&mut master.conn(), "k", MOST, (600_000, 900_000));
    replica.replicate(&master);
    master.wait_offset(&replica);
    let mut conn = replica.conn();
    let cost = least(9, |n| cost_of(&mut conn, &["LOCK.CHECK", "k", &tokens[n * 400]]));
    println!("{cost} us");
    assert!(cost < BOUND_US, "{cost} us");
    assert!(conn.int(&["LOCK.CHECK", "k", &tokens[MOST - 1]]) > 0);
    assert_eq!(conn.int(&["LOCK.CHECK", "k", "1"]), 0);
}

#[test]
fn leases_that_end_together_cost_no_5_ms() {
    let server = Server::with().module_args(&["margin-ms", "0"]).start();
    let mut conn = server.conn();
    let cost = least(3, |round| {
        let key = format!("k{round}");
        let tokens = fill(&mut conn, &key, MOST, (400, 400));
        assert!(conn.int(&["LOCK.CHECK", &key, &tokens[0]]) > 0, "all live, and are in memory");
        until("they have ended", || {
            let end = conn.call(&["ZRANGE", &key, "-1", "-1", "WITHSCORES"]).list()[1].text();
            let now = server_time_us(&mut conn);
            (end < format!("{}.{:06}", now / 1_000_000, now % 1_000_000)).then_some(())
        });
        cost_of(&mut conn, &["LOCK.CHECK", &key, &tokens[0]])
    });
    println!("{cost} us");
    assert!(cost < BOUND_US, "{cost} us");
}

#[test]
fn one_more_is_refused_and_waits_for_a_slot() {
    let mut locks = Locks::start();
    let conn = &mut locks.conn;
    let tokens = fill(conn, "k", MOST, (600_000, 900_000));
    for share in [&["SHARED"][..], &["LIMIT", "4096"], &["LIMIT", "5"]] {
        assert!(conn.call(&[&["LOCK.ACQUIRE", "k", "EX", "60"], share].concat()).is_nil(), "{share:?}");
    }
    assert_eq!(
        conn.call(&["LOCK.ACQUIRE", "k", "EX", "60", "LIMIT", "4097"]).error(),
        "ERR limit is not a whole number between 1 and 4096"
    );
    let mut waiter = locks.wait(&["SHARED"]);
    waiter.assert_waits();
    assert_eq!(locks.conn.int(&["LOCK.RELEASE", "k", &tokens[7]]), 1);
    waiter.granted();
    assert_eq!(locks.conn.int(&["ZCARD", "k"]), 4_096);
}

#[test]
fn at_the_most_a_shared_caller_replaces_the_holder_that_expired_first() {
    let server = Server::with().module_args(&["margin-ms", "0"]).start();
    let mut conn = server.conn();
    let over = fill(&mut conn, "k", 2, (-2_000, -1_000));
    fill(&mut conn, "k", MOST - 2, (600_000, 900_000));
    let details = conn.call(&["LOCK.ACQUIRE", "k", "EX", "60", "SHARED", "DETAILS"]);
    assert_eq!(details.list()[2].int().to_string(), over[0]);
    acquire(&mut conn, &["k", "EX", "60", "SHARED"]);
    assert!(conn.call(&["LOCK.ACQUIRE", "k", "EX", "60", "SHARED"]).is_nil());
    assert_eq!(conn.int(&["ZCARD", "k"]), 4_096);
}

#[test]
fn a_set_of_others_with_more_members_is_no_lock() {
    let mut locks = Locks::start();
    let held = acquire(&mut locks.conn, &["k", "EX", "600", "SHARED"]);
    let mut waiter = locks.wait(&[]);
    let others = fill(&mut locks.conn, "k", MOST, (600_000, 900_000));
    let before = locks.conn.call(&["DUMP", "k"]);
    for call in [
        &["LOCK.ACQUIRE", "k", "EX", "60", "SHARED"][..],
        &["LOCK.ACQUIRE", "k", "EX", "60"],
        &["LOCK.MACQUIRE", "2", "j", "k", "EX", "60"],
        &["LOCK.RECOVER", "k", "EX", "60"],
        &["LOCK.EXTEND", "k", &held, "EX", "60"],
        &["LOCK.RELEASE", "k", &held],
        &["LOCK.CHECK", "k", &held],
        &["LOCK.CANCEL", "k", "1"],
        &["LOCK.INFO", "k", "FULL"],
    ] {
        assert_eq!(
            locks.conn.call(call).error(),
            "WRONGTYPE the sorted set has more than 4096 members, more than a lock can have holders",
            "{call:?}"
        );
    }
    assert_eq!(locks.conn.call(&["DUMP", "k"]), before);
    assert_eq!(locks.conn.call(&["LOCK.SCAN", "0"]).list()[1].list().len(), 0);
    waiter.assert_waits();
    // With one fewer it is a lock again.
    assert_eq!(locks.conn.int(&["ZREM", "k", &held]), 1);
    assert!(locks.conn.int(&["LOCK.CHECK", "k", &others[9]]) > 0);
    assert_eq!(locks.conn.call(&["LOCK.SCAN", "0"]).list()[1].list()[0].field("holders").int(), 4_096);
    assert_eq!(locks.conn.int(&["DEL", "k"]), 1);
    waiter.granted();
}
