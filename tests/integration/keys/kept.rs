//! The names that the server keeps for disconnected clients are bounded, whatever the reason for keeping them. When
//! it is out of memory, the server keeps no new ones.

use crate::kinds::{acquire, Row};
use crate::notify::can_publish;
use testkit::{encoded, until, Conn, Reply, Server};

/// How many names, and how long each of them is: together 120 MB.
const NAMES: usize = 30_000;
const LENGTH: usize = 4_000;
/// The limit on memory: 64 MB of names, the allocator's rounding, and queues, places and indexes.
const MOST: i64 = 100_000_000;

fn used(conn: &mut Conn) -> i64 {
    conn.info("memory", "used_memory").unwrap().parse().unwrap()
}

fn places(conn: &mut Conn) -> usize {
    conn.info("lock", "lock_places").unwrap().parse().unwrap()
}

/// Runs a script's commands for each of the names.
fn for_each_name(conn: &mut Conn, script: &str) {
    for from in (0..NAMES).step_by(1_000) {
        let script = format!(
            "for n = {from}, {} do local key = KEYS[1] .. n .. string.rep('x', {LENGTH}) {script} end",
            from + 999
        );
        assert_eq!(conn.execute(&["EVAL", &script, "1", "k"]), Reply::Nil);
    }
}

/// Clients send LOCK.CANCEL, with nothing to cancel.
fn cancel(_: &Server, conn: &mut Conn) {
    for_each_name(conn, "redis.call('LOCK.CANCEL', key, n)");
}

/// Attempts are refused and do not wait.
fn refuse(_: &Server, conn: &mut Conn) {
    for_each_name(conn, "redis.call('SET', key, 'x') redis.call('LOCK.ACQUIRE', key, 'EX', 9, 'ID', n)");
}

fn queue(conn: &mut Conn, wait_ms: u32) {
    let ask = format!("redis.call('LOCK.ACQUIRE', key, 'EX', 600, 'WAIT', {wait_ms}, 'ID', n, 'NOTIFY', 'c')");
    for_each_name(conn, &format!("redis.call('SET', key, 'x') {ask}"));
}

/// Attempts wait for a message, and time out.
fn time_out(_: &Server, conn: &mut Conn) {
    queue(conn, 1);
    until("all waits have ended", || (conn.info("lock", "lock_queued")? == "0").then_some(()));
}

/// Attempts get a grant that nobody claims.
fn leave_unclaimed(server: &Server, conn: &mut Conn) {
    let mut subscriber = server.conn();
    subscriber.execute(&["SUBSCRIBE", "c"]);
    let reader = std::thread::spawn(move || while subscriber.try_read().is_ok() {});
    conn.ok(&["CONFIG", "SET", "lock.claim-ms", "1"]);
    queue(conn, 600_000);
    for_each_name(conn, "redis.call('DEL', key)");
    until("nobody waits", || (conn.info("lock", "lock_queued")? == "0").then_some(()));
    conn.execute(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    reader.join().unwrap();
}

/// The attempts' connection ends.
fn disconnect(server: &Server, conn: &mut Conn) {
    for_each_name(conn, "redis.call('SET', key, 'x')");
    let mut session = server.conn();
    let padding = "x".repeat(LENGTH);
    for from in (0..NAMES).step_by(1_000) {
        let mut calls = Vec::new();
        for number in from..from + 1_000 {
            let (key, id) = (format!("k{number}{padding}"), number.to_string());
            let call = ["LOCK.ACQUIRE", &key, "EX", "600", "WAIT", "600000", "ID", &id, "NOTIFY", "c", "SESSION"];
            calls.extend(encoded(&call));
        }
        session.send_bytes(&calls);
        for _ in 0..1_000 {
            assert_eq!(session.read(), Reply::Status("WAITING".into()));
        }
    }
    drop(session);
    until("all waits have ended", || (conn.info("lock", "lock_queued")? == "0").then_some(()));
}

/// Blocked clients wait for several keys each, and disconnect.
fn leave_several(server: &Server, conn: &mut Conn) {
    conn.ok(&["SET", "held", "x"]);
    let padding = "x".repeat(LENGTH);
    let waiting: Vec<Conn> = (0..480)
        .map(|number| {
            let names: Vec<String> = (0..62).map(|name| format!("k{number}-{name}{padding}")).collect();
            let mut call = vec!["LOCK.MACQUIRE", "63", "held"];
            call.extend(names.iter().map(String::as_str));
            let id = number.to_string();
            call.extend(["EX", "600", "WAIT", "600000", "ID", &id]);
            server.sent(&call)
        })
        .collect();
    until("all wait", || (conn.info("lock", "lock_waiters")? == "480").then_some(()));
    drop(waiting);
    until("all have left", || (conn.info("lock", "lock_waiters")? == "0").then_some(()));
}

#[test]
fn names_of_reserved_places_take_at_most_64_mb() {
    type Way = (&'static str, fn(&Server, &mut Conn));
    let ways: [Way; 6] = [
        ("cancel", cancel),
        ("refuse", refuse),
        ("time out", time_out),
        ("unclaimed", leave_unclaimed),
        ("disconnect", disconnect),
        ("several", leave_several),
    ];
    for (name, keep) in ways {
        let _row = Row::of(name);
        let settings = ["place-ms", "3600000", "max-waiters", "1000000", "max-queued", "1000000"];
        let (server, mut conn) = Server::with().module_args(&settings).connected();
        if matches!(name, "time out" | "unclaimed" | "disconnect") && !can_publish(&mut conn) {
            continue;
        }
        let before = used(&mut conn);
        keep(&server, &mut conn);
        // The keys are not measured: only the module's memory stays.
        conn.ok(&["FLUSHALL"]);
        until("the clients' buffers are freed", || (used(&mut conn) - before < MOST).then_some(()));
        let kept = places(&mut conn);
        // The names that fit are kept.
        assert!(kept > 10, "{kept} places");
        println!("{name}: {kept} places take {} bytes", used(&mut conn) - before);
    }
}

#[test]
fn cancel_when_out_of_memory_keeps_only_known_attempts() {
    let (server, mut conn) = Server::connected();
    acquire(&mut conn, &["held", "EX", "600"]);
    let mut waiter = server.waiter(&["LOCK.ACQUIRE", "held", "EX", "600", "WAIT", "600000", "ID", "7"]);
    let full = used(&mut conn) / 2;
    conn.ok(&["CONFIG", "SET", "maxmemory", &full.to_string()]);
    assert_eq!(conn.int(&["LOCK.CANCEL", "absent", "8"]), 0);
    assert_eq!(places(&mut conn), 0);
    assert_eq!(conn.int(&["LOCK.CANCEL", "held", "7"]), 1);
    assert!(waiter.read().is_nil());
    assert_eq!(places(&mut conn), 1, "its place takes the room of the wait that it ends");
    conn.ok(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(conn.int(&["LOCK.CANCEL", "absent", "8"]), 0);
    assert_eq!(places(&mut conn), 2);
}

/// Evicting keys frees none of a module's memory.
#[test]
fn cancelling_absent_attempts_evicts_no_keys() {
    let args = ["--maxmemory-policy", "allkeys-lru"];
    let settings = ["place-ms", "3600000", "max-waiters", "1000000", "max-queued", "1000000"];
    let (_server, mut conn) = Server::with().args(&args).module_args(&settings).connected();
    let full = used(&mut conn) + 40_000_000;
    conn.ok(&["CONFIG", "SET", "maxmemory", &full.to_string()]);
    let fill = "for n = 1, 1000 do redis.call('SET', KEYS[1] .. ARGV[1] .. '-' .. n, string.rep('x', 1000)) end";
    let evicted = |conn: &mut Conn| conn.info("stats", "evicted_keys").unwrap().parse::<u64>().unwrap();
    let mut turns = 0;
    while evicted(&mut conn) == 0 {
        turns += 1;
        assert_eq!(conn.execute(&["EVAL", fill, "1", "foreign", &turns.to_string()]), Reply::Nil);
    }
    let (before, keys) = (evicted(&mut conn), conn.int(&["DBSIZE"]));
    let name = "k".repeat(1_000);
    for id in 1..=10_000 {
        assert_eq!(conn.int(&["LOCK.CANCEL", &name, &id.to_string()]), 0);
    }
    let gone = evicted(&mut conn) - before;
    println!("{gone} of {keys} keys were evicted, {} places", places(&mut conn));
    // The server evicts some keys for its own buffers.
    assert!(gone < 1_000, "{gone} of {keys} keys were evicted");
    // Once there is room, the cancellation is remembered.
    conn.ok(&["CONFIG", "SET", "maxmemory", &(2 * full).to_string()]);
    let before = places(&mut conn);
    assert_eq!(conn.int(&["LOCK.CANCEL", "absent", "1"]), 0);
    assert_eq!(places(&mut conn), before + 1);
}
