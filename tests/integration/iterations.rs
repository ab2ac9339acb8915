//! No iteration of the event loop takes long, however many locks are released or expire at one moment.

use crate::notify::can_publish;
use std::time::Duration;
use testkit::clock::Clocks;
use testkit::{allocates_with_libc, bound, until_within, Conn, Iterations, Reply, Server, CROWD_DEADLINE};

/// The number of locks.
const LOCKS: usize = 200_000;
/// The longest permitted iteration. One that does all of the work takes 80 ms or more, one that does a piece 2 ms.
const LONGEST: Duration = Duration::from_millis(5);
/// The limit for servers with libc's allocator, which returns memory in large pieces: up to 45 ms.
const LONGEST_OF_LIBC: Duration = Duration::from_millis(60);

fn assert_short(what: &str, measure: impl FnMut() -> Option<Duration>) {
    bound::cpu(what, if allocates_with_libc() { LONGEST_OF_LIBC } else { LONGEST }, measure);
}

/// Waits until `field` of INFO has the expected value.
fn until_it(conn: &mut Conn, section: &str, field: &str, is_it: impl Fn(usize) -> bool) {
    until_within(CROWD_DEADLINE, field, || {
        let number: usize = conn.info(section, field).unwrap().parse().unwrap();
        is_it(number).then_some(())
    });
}

/// Runs a script for the locks 1 to [`LOCKS`], in pieces.
fn for_each(conn: &mut Conn, script: &str) {
    for from in (1..=LOCKS).step_by(1_000) {
        let script = format!("for n = {from}, {} do local key = KEYS[1] .. n {script} end", from + 999);
        assert_eq!(conn.execute(&["EVAL", &script, "1", "k"]), Reply::Nil);
    }
}

/// Takes this many locks with SESSION.
fn hold(holder: &mut Conn, many: usize) {
    for from in (0..many).step_by(1_000) {
        let names: Vec<String> = (from..from + 1_000).map(|number| format!("k{number}")).collect();
        let mut call = vec!["LOCK.MACQUIRE", "1000"];
        call.extend(names.iter().map(String::as_str));
        call.extend(["EX", "600", "SESSION"]);
        holder.int(&call);
    }
}

#[test]
fn the_end_of_a_connection_with_many_locks_delays_nobody() {
    assert_short("the end of a connection with many locks", || {
        let (server, iterations) = Iterations::start(Server::with())?;
        let (mut holder, mut conn) = (server.conn(), server.conn());
        hold(&mut holder, LOCKS);
        iterations.reset();
        drop(holder);
        until_it(&mut conn, "lock", "lock_sessions_ended", |ended| ended == LOCKS);
        assert_eq!(conn.info("lock", "lock_sessions").as_deref(), Some("0"));
        Some(iterations.longest())
    });
}

/// A replica drops the server's own data about the locks that it granted.
#[test]
fn a_demotion_forgets_many_sessions_in_pieces() {
    assert_short("a demotion with many sessions", || {
        let (server, iterations) = Iterations::start(Server::with())?;
        let (mut holder, mut conn) = (server.conn(), server.conn());
        hold(&mut holder, 2 * LOCKS);
        let before: usize = conn.info("memory", "used_memory").unwrap().parse().unwrap();
        iterations.reset();
        conn.ok(&["REPLICAOF", "127.0.0.1", "1"]);
        // A binding takes at least 200 bytes.
        until_it(&mut conn, "memory", "used_memory", |used| used < before - 2 * LOCKS * 200);
        assert_eq!(conn.info("lock", "lock_sessions").as_deref(), Some("0"));
        Some(iterations.longest())
    });
}

#[test]
fn many_locks_that_expire_at_once_delay_nobody() {
    let Some(clocks) = Clocks::new(&[0]) else { return };
    let settings = ["max-queued", "400000", "claim-ms", "3600000", "retention-ms", "-1"];
    assert_short("many locks that expire together", || {
        clocks.set(0, &[0]);
        let (server, iterations) = Iterations::start(clocks.of(Server::with().module_args(&settings)))?;
        let mut conn = server.conn();
        if !can_publish(&mut conn) {
            return None;
        }
        for_each(
            &mut conn,
            "redis.call('LOCK.ACQUIRE', key, 'EX', 600) \
             redis.call('LOCK.ACQUIRE', key, 'EX', 600, 'WAIT', 600000, 'ID', n, 'NOTIFY', 'c')",
        );
        iterations.reset();
        clocks.set(0, &[700_000_000]);
        until_it(&mut conn, "lock", "lock_hand_offs", |served| served == LOCKS);
        Some(iterations.longest())
    });
}

#[test]
fn many_reserved_places_that_end_at_once_delay_nobody() {
    let Some(clocks) = Clocks::new(&[0; 3]) else { return };
    assert_short("many places that end together", || {
        clocks.set(0, &[0; 3]);
        let settings = ["max-queued", "400000"];
        let (server, iterations) = Iterations::start(clocks.of(Server::with().module_args(&settings)))?;
        let mut conn = server.conn();
        for_each(
            &mut conn,
            "redis.call('LOCK.ACQUIRE', key, 'EX', 600) redis.call('LOCK.ACQUIRE', key, 'EX', 600, 'ID', n)",
        );
        assert!(conn.info("lock", "lock_places").is_some_and(|places| places != "0"));
        iterations.reset();
        clocks.set(0, &[20_000_000; 3]);
        until_it(&mut conn, "lock", "lock_places", |places| places == 0);
        Some(iterations.longest())
    });
}

#[test]
fn an_iteration_counts_cpu_time_without_sleep() {
    let Some((server, iterations)) = Iterations::start(Server::with()) else { return };
    let mut conn = server.conn();
    conn.int(&["EVAL", "local n = 0 for i = 1, 5000000 do n = n + i end return n", "0"]);
    let longest = iterations.longest();
    assert!(longest > Duration::from_millis(5), "{longest:?} for a loop of five million");
    iterations.reset();
    assert_eq!(conn.execute(&["BLPOP", "nobody", "0.3"]), Reply::Nil);
    assert_eq!(conn.text(&["PING"]), "PONG");
    let counted = iterations.counted();
    assert!(counted.iterations >= 2 && counted.longest < longest, "{counted}");
}
