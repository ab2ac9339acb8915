//! The maximum number of holders of a lock: no command takes 5 ms, whether the set is in memory or not, and one more
//! holder is refused. Larger sets are not locks.

use crate::kinds::acquire;
use crate::waiting::Locks;
use std::time::Duration;
use testkit::{bound, encoded, server_time_us, until, Conn, Iterations, Reply, Server};

const MOST: usize = 4_096;
const BOUND: Duration = Duration::from_millis(5);

/// Fills a key with holders as the module writes them, each with an ID and an owner of 40 characters, whose leases end
/// between `from_ms` and `to_ms` from now. Returns their tokens.
fn fill(conn: &mut Conn, key: &str, count: usize, (from_ms, to_ms): (i64, i64)) -> Vec<String> {
    let now = server_time_us(conn);
    let range = (to_ms - from_ms).max(1);
    let holders: Vec<(String, String)> = (0..count)
        .map(|n| {
            // The leases of close tokens end far apart, so they are far apart in the server's memory.
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

/// Flushing any database makes the module forget its sets.
fn forget(conn: &mut Conn) {
    conn.ok(&["SELECT", "9"]);
    conn.ok(&["FLUSHDB"]);
    conn.ok(&["SELECT", "0"]);
}

/// The CPU time of the event-loop iteration that executes a command, and the reply.
pub fn cost(iterations: &Iterations, conn: &mut Conn, call: &[impl AsRef<str>]) -> (Reply, Duration) {
    iterations.reset();
    let reply = conn.execute(&call.iter().map(AsRef::as_ref).collect::<Vec<_>>());
    (reply, iterations.counted().longest)
}

/// The cost of a command that must not fail.
fn cost_of(iterations: &Iterations, conn: &mut Conn, call: &[impl AsRef<str>]) -> Duration {
    let (reply, cost) = cost(iterations, conn, call);
    assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
    cost
}

#[test]
fn an_uncached_set_costs_no_command_5_ms() {
    let Some((server, iterations)) = Iterations::start(Server::with()) else { return };
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
        let name = call(0)[0].clone();
        let mut tries = 0..;
        bound::cpu(&name, BOUND, || {
            forget(&mut conn);
            Some(cost_of(&iterations, &mut conn, &call(tries.next()?)))
        });
        // With the set in memory it is O(log n).
        bound::cpu(&format!("{name}, in memory"), Duration::from_micros(500), || {
            conn.int(&["LOCK.CHECK", "k", "1"]);
            Some(cost_of(&iterations, &mut conn, &call(tries.next()?)))
        });
    }
}

#[test]
fn no_check_takes_5_ms_on_a_replica() {
    let master = Server::with().args(&["--repl-diskless-sync-delay", "0"]).start();
    let Some((replica, iterations)) = Iterations::start(Server::with()) else { return };
    let tokens = fill(&mut master.conn(), "k", MOST, (600_000, 900_000));
    replica.replicate(&master);
    master.wait_offset(&replica);
    let mut conn = replica.conn();
    let mut tries = 0..;
    bound::cpu("LOCK.CHECK on a replica", BOUND, || {
        Some(cost_of(&iterations, &mut conn, &["LOCK.CHECK", "k", &tokens[tries.next()? * 400]]))
    });
    assert!(conn.int(&["LOCK.CHECK", "k", &tokens[MOST - 1]]) > 0);
    assert_eq!(conn.int(&["LOCK.CHECK", "k", "1"]), 0);
}

#[test]
fn leases_that_end_together_cost_less_than_5_ms() {
    let Some((server, iterations)) = Iterations::start(Server::with().module_args(&["margin-ms", "0"])) else { return };
    let mut conn = server.conn();
    let mut rounds = 0..;
    bound::cpu("LOCK.CHECK when all leases have ended", BOUND, || {
        let key = format!("k{}", rounds.next()?);
        let tokens = fill(&mut conn, &key, MOST, (1_000, 1_000));
        // All holders are live and in memory, unless the machine is slow.
        conn.int(&["LOCK.CHECK", &key, &tokens[0]]);
        until("they have ended", || {
            let end = conn.execute(&["ZRANGE", &key, "-1", "-1", "WITHSCORES"]).list()[1].text();
            let now = server_time_us(&mut conn);
            (end < format!("{}.{:06}", now / 1_000_000, now % 1_000_000)).then_some(())
        });
        Some(cost_of(&iterations, &mut conn, &["LOCK.CHECK", &key, &tokens[0]]))
    });
}

#[test]
fn one_more_is_refused_and_waits_for_a_slot() {
    let mut locks = Locks::start();
    let conn = &mut locks.conn;
    let tokens = fill(conn, "k", MOST, (600_000, 900_000));
    for share in [&["SHARED"][..], &["LIMIT", "4096"], &["LIMIT", "5"]] {
        assert!(conn.execute(&[&["LOCK.ACQUIRE", "k", "EX", "60"], share].concat()).is_nil(), "{share:?}");
    }
    assert_eq!(
        conn.execute(&["LOCK.ACQUIRE", "k", "EX", "60", "LIMIT", "4097"]).error(),
        "ERR limit is not a whole number between 1 and 4096"
    );
    let mut waiter = locks.wait(&["SHARED"]);
    waiter.assert_waits();
    assert_eq!(locks.conn.int(&["LOCK.RELEASE", "k", &tokens[7]]), 1);
    waiter.granted();
    assert_eq!(locks.conn.int(&["ZCARD", "k"]), 4_096);
}

#[test]
fn a_full_set_replaces_the_first_expired_holder() {
    let server = Server::with().module_args(&["margin-ms", "0"]).start();
    let mut conn = server.conn();
    let over = fill(&mut conn, "k", 2, (-2_000, -1_000));
    fill(&mut conn, "k", MOST - 2, (600_000, 900_000));
    let details = conn.execute(&["LOCK.ACQUIRE", "k", "EX", "60", "SHARED", "DETAILS"]);
    assert_eq!(details.list()[2].int().to_string(), over[0]);
    acquire(&mut conn, &["k", "EX", "60", "SHARED"]);
    assert!(conn.execute(&["LOCK.ACQUIRE", "k", "EX", "60", "SHARED"]).is_nil());
    assert_eq!(conn.int(&["ZCARD", "k"]), 4_096);
}

#[test]
fn a_set_with_more_members_is_not_a_lock() {
    let mut locks = Locks::start();
    let held = acquire(&mut locks.conn, &["k", "EX", "600", "SHARED"]);
    let mut waiter = locks.wait(&[]);
    let others = fill(&mut locks.conn, "k", MOST, (600_000, 900_000));
    let before = locks.conn.execute(&["DUMP", "k"]);
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
            locks.conn.execute(call).error(),
            "WRONGTYPE the sorted set has more than 4096 members, more than a lock can have holders",
            "{call:?}"
        );
    }
    assert_eq!(locks.conn.execute(&["DUMP", "k"]), before);
    assert_eq!(locks.conn.execute(&["LOCK.SCAN", "0"]).list()[1].list().len(), 0);
    waiter.assert_waits();
    // With one fewer it is a lock again.
    assert_eq!(locks.conn.int(&["ZREM", "k", &held]), 1);
    assert!(locks.conn.int(&["LOCK.CHECK", "k", &others[9]]) > 0);
    assert_eq!(locks.conn.execute(&["LOCK.SCAN", "0"]).list()[1].list()[0].field("holders").int(), 4_096);
    assert_eq!(locks.conn.int(&["DEL", "k"]), 1);
    waiter.granted();
}

/// When sets of a few holders are read one after another, the memory for them grows in small steps.
#[test]
fn many_sets_come_into_memory_without_a_pause() {
    for padding in [0, 4_000] {
        keep_many(&"x".repeat(padding));
    }
}

fn keep_many(padding: &str) {
    const SETS: usize = 60_000;
    let what = format!("the longest of 60,000 reads of sets, with names of {} bytes or more", padding.len());
    bound::cpu(&what, BOUND, || {
        let (server, iterations) = Iterations::start(Server::with())?;
        let mut conn = server.conn();
        let name = |set: usize| format!("{set}-{padding}");
        for from in (0..SETS).step_by(1_000) {
            let script = format!(
                "for n = {from}, {} do for h = 1, 3 do redis.call('ZADD', n .. '-' .. KEYS[1], 4000000000, \
                 string.format('%016d', n * 3 + h)) end end",
                from + 999
            );
            assert!(conn.execute(&["EVAL", &script, "1", padding]).is_nil());
        }
        iterations.reset();
        for from in (0..SETS).step_by(100) {
            // The server reads 16 kB at a time.
            let check = |set: usize| encoded(&["LOCK.CHECK", &name(set), &(set * 3 + 1).to_string()]);
            let calls: Vec<u8> = (from..from + 100).flat_map(check).collect();
            conn.send_bytes(&calls);
            for _ in 0..100 {
                assert!(conn.read().int() > 0);
            }
        }
        Some(iterations.longest())
    });
}
