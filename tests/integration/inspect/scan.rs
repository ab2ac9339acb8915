//! LOCK.SCAN over many locks: it returns every lock that exists throughout at least once, in its database, on a
//! replica, in transactions and scripts too; it changes nothing.

use crate::kinds::acquire;
use crate::notify::can_publish;
use std::collections::BTreeSet;
use std::time::Duration;
use testkit::{bound, Conn, Iterations, Reply, Server};

fn keys(reply: &Reply) -> Vec<Vec<u8>> {
    let bytes = |row: &Reply| match row.field("key") {
        Reply::Text(key) => key,
        other => panic!("no key: {other:?}"),
    };
    reply.list()[1].list().iter().map(bytes).collect()
}

/// All keys that a full scan returns; `between` runs between its steps.
fn scan(conn: &mut Conn, options: &[&str], mut between: impl FnMut(usize)) -> Vec<Vec<u8>> {
    let (mut cursor, mut found) = ("0".to_string(), Vec::new());
    for step in 0.. {
        let reply = conn.execute(&[&["LOCK.SCAN", &cursor], options].concat());
        found.extend(keys(&reply));
        cursor = reply.list()[0].text();
        if cursor == "0" {
            break;
        }
        between(step);
    }
    found
}

#[test]
fn a_scan_returns_every_lasting_key() {
    const LOCKS: usize = 2_000;
    let server = Server::start();
    let (mut conn, mut other) = (server.conn(), server.conn());
    let mut expected = BTreeSet::new();
    for n in 0..LOCKS {
        let key = format!("lock{n}");
        let share: &[&str] = if n % 3 == 0 { &["SHARED"] } else { &[] };
        acquire(&mut conn, &[&[&key, "EX", "600"], share].concat());
        expected.insert(key.into_bytes());
    }
    let found = scan(&mut conn, &["COUNT", "37"], |step| {
        // The table of keys grows and shrinks in the meantime.
        for n in 0..100 {
            let key = format!("passing{}", step * 100 + n);
            other.ok(&["SET", &key, "1"]);
            if step % 2 == 1 {
                other.int(&["DEL", &format!("passing{}", (step - 1) * 100 + n)]);
            }
        }
    });
    let found: BTreeSet<Vec<u8>> = found.into_iter().collect();
    assert_eq!(found, expected);
}

#[test]
fn keys_are_bytes_and_patterns_work_as_in_scan() {
    let server = Server::start();
    let mut conn = server.conn();
    let names: [&[u8]; 5] = [b"", b"\0", b"a\r\nb", b"\xff\xfe", b"[x]*"];
    for name in names {
        assert!(conn.execute(&[&b"LOCK.ACQUIRE"[..], name, b"EX", b"600"]).int() > 0);
    }
    let found: BTreeSet<Vec<u8>> = scan(&mut conn, &["COUNT", "1000"], |_| {}).into_iter().collect();
    assert_eq!(found, names.map(<[u8]>::to_vec).into());
    assert_eq!(scan(&mut conn, &["MATCH", r"\[x\]\*", "COUNT", "1000"], |_| {}), [b"[x]*".to_vec()]);
    assert_eq!(scan(&mut conn, &["MATCH", "", "COUNT", "1000"], |_| {}), [b"".to_vec()]);
    assert_eq!(scan(&mut conn, &["MATCH", "nobody*"], |_| {}), [[0_u8; 0]; 0]);
    let all: Vec<&str> = vec!["MATCH", "*", "STATE", "held", "COUNT", "1000"];
    assert_eq!(scan(&mut conn, &all, |_| {}).len(), 5);
}

#[test]
fn it_works_in_transactions_scripts_and_on_replicas() {
    let server = Server::with().args(&["--repl-diskless-sync-delay", "0"]).start();
    let replica = Server::start();
    replica.replicate(&server);
    let mut conn = server.conn();
    acquire(&mut conn, &["here", "EX", "600", "SHARED"]);
    conn.ok(&["SELECT", "7"]);
    acquire(&mut conn, &["there", "EX", "600"]);
    let call = ["LOCK.SCAN", "0", "COUNT", "1000"];
    assert_eq!(keys(&conn.execute(&call)), [b"there"]);
    conn.ok(&["MULTI"]);
    conn.execute(&call);
    conn.execute(&["SELECT", "0"]);
    conn.execute(&call);
    let reply = conn.execute(&["EXEC"]);
    assert_eq!([0, 2].map(|at| keys(&reply.list()[at])), [[b"there".to_vec()], [b"here".to_vec()]]);
    let script = "redis.call('SELECT', 7) return redis.call('LOCK.SCAN', '0', 'COUNT', 1000)";
    assert_eq!(keys(&conn.execute(&["EVAL", script, "0"])), [b"there"]);
    server.wait_offset(&replica);
    let mut read = replica.conn();
    assert_eq!(keys(&read.execute(&call)), [b"here"]);
    let row = read.execute(&call).list()[1].list()[0].clone();
    assert_eq!(row.field("holders").int(), 1);
}

#[test]
fn state_and_match_filter_the_locks() {
    let server = Server::with().module_args(&["margin-ms", "0"]).start();
    let mut conn = server.conn();
    acquire(&mut conn, &["held", "EX", "60"]);
    acquire(&mut conn, &["shared", "EX", "60", "SHARED"]);
    acquire(&mut conn, &["expired", "PX", "1"]);
    conn.ok(&["SET", "classic", "1000000000.5"]);
    conn.ok(&["SET", "foreign", "data"]);
    conn.execute(&["RPUSH", "list", "1"]);
    std::thread::sleep(std::time::Duration::from_millis(10));
    for (options, expected) in [
        (&["COUNT", "2"][..], &["classic", "expired", "held", "shared"][..]),
        (&["STATE", "HELD"], &["held", "shared"]),
        (&["STATE", "expired", "COUNT", "1"], &["classic", "expired"]),
        (&["STATE", "foreign"], &["foreign"]),
        (&["MATCH", "h*"], &["held"]),
    ] {
        let mut found = scan(&mut conn, options, |_| {});
        found.sort();
        assert_eq!(found, expected.iter().map(|key| key.as_bytes().to_vec()).collect::<Vec<_>>(), "{options:?}");
    }
}

/// Writes this many locks with this many holders each, whose clients are unknown.
fn fill(conn: &mut Conn, locks: usize, holders: usize) {
    let script = "local t = redis.call('TIME') for k = 1, tonumber(ARGV[1]) do for n = 1, tonumber(ARGV[2]) do \
                  redis.call('ZADD', KEYS[1] .. k, string.format('%d.000001', t[1] + 600 + n % 60), \
                  string.format('%010d%06d%019d owner-of-a-usual-length', t[1], n, n)) end end";
    for part in 0..locks.div_ceil(20) {
        let (locks, holders) = (20.to_string(), holders.to_string());
        assert!(conn.execute(&["EVAL", script, "1", &format!("k{part}-"), &locks, &holders]).is_nil());
    }
}

/// The names that MATCH filters out are counted too, because long names cost the server time.
#[test]
fn long_names_that_do_not_match_shorten_the_page() {
    const BOUND: Duration = Duration::from_millis(5);
    for (length, keys) in [("16384", 1_000), ("98304", 160)] {
        for (pattern, expected) in [("*y", 0), ("*", keys)] {
            bound::cpu(&format!("LOCK.SCAN MATCH {pattern}, names of {length} bytes"), BOUND, || {
                let (server, iterations) = Iterations::start(Server::with())?;
                let mut conn = server.conn();
                let script = "for n = 1, ARGV[1] do \
                              redis.call('SET', KEYS[1] .. string.rep('x', ARGV[2]) .. n, '9999999999.0') end";
                assert_eq!(conn.execute(&["EVAL", script, "1", "k", &keys.to_string(), length]), Reply::Nil);
                iterations.reset();
                let mut calls = 1;
                let found = scan(&mut conn, &["MATCH", pattern, "COUNT", "1000"], |_| calls += 1);
                assert!(found.len() == expected && calls > 1, "{} in {calls} calls", found.len());
                Some(iterations.longest())
            });
        }
    }
}

/// A lock with several holders costs LOCK.TOP as much time as four others.
#[test]
fn top_lists_at_most_400_shared_locks() {
    let server = Server::start();
    let mut conn = server.conn();
    if !can_publish(&mut conn) {
        return;
    }
    fill(&mut conn, 420, 3);
    let wait = |conn: &mut Conn, key: &str| {
        let asks = ["LOCK.ACQUIRE", key, "PX", "600000", "WAIT", "600000", "NOTIFY", "c", "ID", "7"];
        assert_eq!(conn.execute(&asks), crate::notify::waiting());
    };
    for n in 0..420 {
        wait(&mut conn, &format!("k{}-{}", n / 20, n % 20 + 1));
    }
    assert_eq!(conn.execute(&["LOCK.TOP", "COUNT", "1000"]).list().len(), 400);
    assert_eq!(conn.execute(&["LOCK.TOP", "COUNT", "399"]).list().len(), 399);
    conn.ok(&["FLUSHALL"]);
    for n in 0..900 {
        conn.int(&["LOCK.ACQUIRE", &format!("one{n}"), "PX", "600000"]);
        wait(&mut conn, &format!("one{n}"));
    }
    assert_eq!(conn.execute(&["LOCK.TOP", "COUNT", "900"]).list().len(), 900);
}

/// COUNT also bounds the holders that are read, and all locks are still found.
#[test]
fn a_page_of_large_locks_is_a_short_one() {
    const BOUND: Duration = Duration::from_millis(5);
    for (holders, locks) in [(64, 1_000), (4_096, 100)] {
        let (mut server, mut conns): (Option<Server>, Vec<Conn>) = (None, Vec::new());
        let mut iterations = None;
        for what in ["SCAN", "SCAN CLIENT", "TOP"] {
            bound::cpu(&format!("LOCK.{what}, {holders} holders"), BOUND, || {
                if server.is_none() {
                    let (started, counted) = Iterations::start(Server::with())?;
                    let mut conn = started.conn();
                    if !can_publish(&mut conn) {
                        return None;
                    }
                    fill(&mut conn, locks, holders);
                    // Each lock is held by a session and waited for.
                    let mut holder = started.conn();
                    for part in 0..locks / 20 {
                        for n in 1..=20 {
                            let key = format!("k{part}-{n}");
                            if holders < 4_096 {
                                holder.int(&["LOCK.ACQUIRE", &key, "PX", "600000", "SHARED", "SESSION"]);
                            }
                            let asks = ["PX", "600000", "WAIT", "600000", "NOTIFY", "c", "ID", "9000001"];
                            let reply = conn.execute(&[&["LOCK.ACQUIRE", &key], &asks[..]].concat());
                            assert_eq!(reply, crate::notify::waiting());
                        }
                    }
                    conns = vec![conn, holder];
                    (server, iterations) = (Some(started), Some(counted));
                }
                let (iterations, conn) = (iterations.as_ref()?, &mut conns[0]);
                if what == "TOP" {
                    iterations.reset();
                    assert_eq!(conn.execute(&["LOCK.TOP", "COUNT", "200"]).list().len(), locks.min(200));
                    return Some(iterations.longest());
                }
                let id = conns[1].int(&["CLIENT", "ID"]).to_string();
                let client: &[&str] = if what == "SCAN" { &[] } else { &["CLIENT", &id] };
                let conn = &mut conns[0];
                iterations.reset();
                let found: BTreeSet<Vec<u8>> =
                    scan(conn, &[&["COUNT", "1000"], client].concat(), |_| {}).into_iter().collect();
                let longest = iterations.longest();
                let expected = if what == "SCAN" || holders < 4_096 { locks } else { 0 };
                assert_eq!(found.len(), expected, "{what} {holders}");
                Some(longest)
            });
        }
    }
}
