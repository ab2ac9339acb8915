//! Attempts for many keys, or for keys with long names, leave in pieces if there are many. A command's work for an
//! attempt grows with the attempt's keys, not with whatever else is left behind.

use crate::notify::can_publish;
use std::time::Duration;
use testkit::clock::Clocks;
use testkit::{bound, encoded, skipped, until_within, Conn, Iterations, Options, Reply, Server, CROWD_DEADLINE};

/// The longest iteration. Before these clients left in pieces, it took 20 ms or more in each case.
const LONGEST: Duration = Duration::from_millis(5);
const KEYS: usize = 1_024;
/// Names of this length plus a few digits: together they are as long as one attempt's names can be.
const LONG: usize = 246;

fn names(attempt: usize, padding: usize) -> Vec<String> {
    let padding = "x".repeat(padding);
    (0..KEYS).map(|key| format!("{padding}{attempt}-{key}")).collect()
}

fn command_of(command: &str, names: &[String], rest: &[&str]) -> Vec<String> {
    let head = [command.to_string(), names.len().to_string()];
    head.into_iter().chain(names.iter().cloned()).chain(rest.iter().map(ToString::to_string)).collect()
}

/// Creates attempts that are granted their keys and do not claim them.
fn grant(conn: &mut Conn, by: &mut Conn, attempts: usize, padding: usize) {
    grant_with(conn, by, attempts, padding, &[]);
}

fn grant_with(conn: &mut Conn, by: &mut Conn, attempts: usize, padding: usize, more: &[&str]) {
    for attempt in 0..attempts {
        let (names, id) = (names(attempt, padding), attempt.to_string());
        conn.ok(&["SET", &names[0], "x"]);
        let rest = [&["EX", "600", "WAIT", "600000", "ID", &id, "NOTIFY", "c"], more].concat();
        assert_eq!(by.execute(&command_of("LOCK.MACQUIRE", &names, &rest)), Reply::Status("WAITING".into()));
        assert_eq!(conn.int(&["DEL", &names[0]]), 1);
    }
    until_it(conn, "lock_hand_offs", attempts);
}

fn until_it(conn: &mut Conn, field: &str, wanted: usize) {
    until_within(CROWD_DEADLINE, field, || (conn.info("lock", field)? == wanted.to_string()).then_some(()));
}

fn until_keys(conn: &mut Conn, wanted: i64) {
    until_within(CROWD_DEADLINE, "keys", || (conn.int(&["DBSIZE"]) == wanted).then_some(()));
}

fn used(conn: &mut Conn) -> usize {
    conn.info("memory", "used_memory").unwrap().parse().unwrap()
}

fn until_freed(conn: &mut Conn, before: usize, bytes: usize) {
    until_within(CROWD_DEADLINE, "they are forgotten", || (used(conn) < before - bytes).then_some(()));
}

fn options(claim_ms: &str) -> Options {
    let settings = ["claim-ms", claim_ms, "max-queued", "2000000", "max-waiters", "100000", "place-ms", "60000"];
    Server::with().module_args(&settings)
}

fn start(claim_ms: &str) -> Option<(Server, Iterations, Conn)> {
    start_with(options(claim_ms))
}

fn start_with(options: Options) -> Option<(Server, Iterations, Conn)> {
    let (server, iterations) = Iterations::start(options)?;
    let mut conn = server.conn();
    can_publish(&mut conn).then_some((server, iterations, conn))
}

/// Whether the module reads the clocks that the test moves.
fn reads_clocks((server, ..): &(Server, Iterations, Conn)) -> bool {
    let reads = server.conn().version() < (true, 8, 1);
    if !reads {
        skipped("clocks that move", "modules on this server bypass a preloaded library when they read the clocks");
    }
    reads
}

#[test]
fn unclaimed_grants_of_many_keys_are_forgotten_in_pieces() {
    bound::cpu("a demotion with 200 unclaimed grants of 1,024 keys", LONGEST, || {
        let (server, iterations, mut conn) = start("3600000")?;
        grant(&mut conn, &mut server.conn(), 200, 0);
        let before = used(&mut conn);
        iterations.reset();
        conn.ok(&["REPLICAOF", "127.0.0.1", "1"]);
        until_freed(&mut conn, before, 200 * KEYS * 30);
        Some(iterations.longest())
    });
}

#[test]
fn waits_for_long_keys_that_end_together_leave_in_pieces() {
    bound::cpu("50 waits for 1,024 keys of 256 bytes are cancelled", LONGEST, || {
        let (server, iterations, mut conn) = start("2000")?;
        let mut by = server.conn();
        conn.ok(&["SET", "held", "x"]);
        for attempt in 0..50 {
            let (mut names, id) = (names(attempt, LONG), attempt.to_string());
            names[0] = "held".into();
            let rest = ["EX", "600", "WAIT", "600000", "ID", &id, "NOTIFY", "c"];
            assert_eq!(by.execute(&command_of("LOCK.MACQUIRE", &names, &rest)), Reply::Status("WAITING".into()));
        }
        until_it(&mut conn, "lock_queued", 50 * KEYS);
        iterations.reset();
        assert_eq!(conn.int(&["LOCK.CANCEL", "held", "CHANNEL", "c"]), 50);
        until_it(&mut conn, "lock_queued", 0);
        Some(iterations.longest())
    });
}

#[test]
fn wide_grants_that_expire_together_are_passed_on_in_pieces() {
    let Some(clocks) = Clocks::new(&[0; 3]) else { return };
    bound::cpu("97 unclaimed grants of 1,024 keys expire", LONGEST, || {
        clocks.set(0, &[0; 3]);
        let (server, iterations, mut conn) =
            start_with(clocks.of(options("600000").module_args(&["retention-ms", "-1"]))).filter(reads_clocks)?;
        grant(&mut conn, &mut server.conn(), 97, 0);
        iterations.reset();
        clocks.set(0, &[700_000_000; 3]);
        until_it(&mut conn, "lock_unclaimed", 97);
        until_keys(&mut conn, 0);
        Some(iterations.longest())
    });
}

/// Clients wait for keys of 256 bytes and for a held one, until all of their waits end at the same moment.
fn time_out(what: &str, wait: impl Fn(&Server, &[String]) -> Option<Conn>) {
    let Some(clocks) = Clocks::new(&[0; 3]) else { return };
    bound::cpu(what, LONGEST, || {
        clocks.set(0, &[0; 3]);
        let (server, iterations, mut conn) = start_with(clocks.of(options("2000"))).filter(reads_clocks)?;
        conn.ok(&["SET", "held", "x"]);
        let call = |attempt: usize| {
            let (mut names, id) = (names(attempt, LONG), attempt.to_string());
            names[0] = "held".into();
            command_of("LOCK.MACQUIRE", &names, &["EX", "600", "WAIT", "600000", "ID", &id])
        };
        let waiting: Vec<Option<Conn>> = (0..97).map(|attempt| wait(&server, &call(attempt))).collect();
        until_it(&mut conn, "lock_waiters", 97);
        iterations.reset();
        clocks.set(0, &[700_000_000; 3]);
        until_it(&mut conn, "lock_waiters", 0);
        assert!(waiting.into_iter().flatten().all(|mut conn| conn.read().is_nil()));
        Some(iterations.longest())
    });
}

#[test]
fn long_key_waits_that_time_out_end_in_pieces() {
    time_out("97 waits for 1,024 keys of 256 bytes time out, notified on a channel", |server, call| {
        let call = [call, &["NOTIFY".to_string(), "c".to_string()]].concat();
        assert_eq!(server.conn().execute(&call), Reply::Status("WAITING".into()));
        None
    });
}

#[test]
fn long_blocked_waits_that_time_out_together_end_in_pieces() {
    time_out("97 waits for 1,024 keys of 256 bytes time out, blocked", |server, call| {
        let mut conn = server.conn();
        conn.send(call);
        Some(conn)
    });
}

/// A connection that holds locks with SESSION.
fn session(server: &Server, locks: usize) -> Conn {
    let mut holder = server.conn();
    for from in (0..locks).step_by(1_000) {
        let names: Vec<String> = (from..from + 1_000).map(|number| format!("k{number}")).collect();
        holder.int(&command_of("LOCK.MACQUIRE", &names, &["EX", "600", "SESSION"]));
    }
    holder
}

#[test]
fn a_demotion_forgets_a_big_ended_session_in_pieces() {
    const LOCKS: usize = 400_000;
    bound::cpu("the end of a session with 400,000 locks, then a demotion", LONGEST, || {
        let (server, iterations, mut conn) = start("2000")?;
        let holder = session(&server, LOCKS);
        iterations.reset();
        drop(holder);
        // All of the locks have ended, and about half of these ends have been written.
        until_it(&mut conn, "lock_sessions", 0);
        let before = used(&mut conn);
        conn.ok(&["REPLICAOF", "127.0.0.1", "1"]);
        let ended: usize = conn.info("lock", "lock_sessions_ended").unwrap().parse().unwrap();
        assert!(ended < LOCKS * 3 / 4, "{ended} of {LOCKS} had ended when it became a replica");
        until_freed(&mut conn, before, (LOCKS - ended) * 60);
        Some(iterations.longest())
    });
}

#[test]
fn unclaimed_grants_of_an_ended_connection_are_passed_on_in_pieces() {
    bound::cpu("the end of a connection with 256 unclaimed grants of 1,024 keys", LONGEST, || {
        let (server, iterations, mut conn) = start("3600000")?;
        let mut by = server.conn();
        grant_with(&mut conn, &mut by, 256, 0, &["SESSION"]);
        iterations.reset();
        drop(by);
        until_keys(&mut conn, 0);
        Some(iterations.longest())
    });
}

/// The server has given up 256 grants of 1,024 keys, but may not write that while its clients are paused.
fn give_up_and_pause(server: &Server, conn: &mut Conn) -> (usize, String) {
    let mut by = server.conn();
    grant_with(conn, &mut by, 256, 0, &["SESSION"]);
    let keys = usize::try_from(conn.int(&["DBSIZE"])).unwrap();
    let token = conn.int(&["LOCK.ACQUIRE", "own", "EX", "600"]).to_string();
    conn.ok(&["CLIENT", "PAUSE", "600000", "WRITE"]);
    drop(by);
    let last = names(255, 0).swap_remove(0);
    until_within(CROWD_DEADLINE, "all are given up", || {
        (conn.lock(&last, "free-in-ms") == Reply::Int(0)).then_some(())
    });
    (keys, token)
}

#[test]
fn a_check_costs_the_same_while_many_grants_are_passed_on() {
    bound::cpu("200 CHECKs while 262,144 grants are passed on", Duration::from_millis(5), || {
        let (server, iterations, mut conn) = start("3600000")?;
        let (keys, token) = give_up_and_pause(&server, &mut conn);
        let mut caller = server.conn();
        // The other token does not belong to a grant, like those of most holders here.
        let calls: Vec<u8> = (0..100)
            .flat_map(|number| {
                let unclaimed = names(number, 0).swap_remove(7);
                [encoded(&["LOCK.CHECK", "own", &token]), encoded(&["LOCK.CHECK", &unclaimed, "1"])].concat()
            })
            .collect();
        iterations.reset();
        caller.send_bytes(&calls);
        for _ in 0..100 {
            assert!(caller.read().int() > 0);
            assert_eq!(caller.read().int(), 0);
        }
        let took = iterations.sum();
        conn.ok(&["CLIENT", "UNPAUSE"]);
        assert_eq!(keys, 256 * KEYS);
        until_keys(&mut conn, 1);
        Some(took)
    });
}

#[test]
fn given_up_grants_are_forgotten_in_pieces() {
    bound::cpu("a demotion while 262,144 grants are passed on", LONGEST, || {
        let (server, iterations, mut conn) = start("3600000")?;
        give_up_and_pause(&server, &mut conn);
        let before = used(&mut conn);
        iterations.reset();
        conn.ok(&["CLIENT", "UNPAUSE"]);
        conn.ok(&["REPLICAOF", "127.0.0.1", "1"]);
        until_freed(&mut conn, before, 256 * KEYS * 100);
        Some(iterations.longest())
    });
}

#[test]
fn many_unclaimed_grants_do_not_slow_an_id() {
    bound::cpu("200 ACQUIREs of an ID with 20,000 unclaimed grants", Duration::from_millis(20), || {
        let (server, iterations, mut conn) = start("3600000")?;
        let script = "for n = 1, 20000 do local key = KEYS[1] .. n redis.call('SET', key, 'x') \
                      redis.call('LOCK.ACQUIRE', key, 'EX', 600, 'WAIT', 600000, 'ID', 7, 'NOTIFY', 'c') \
                      redis.call('DEL', key) end";
        assert_eq!(conn.execute(&["EVAL", script, "1", "k"]), Reply::Nil);
        until_it(&mut conn, "lock_hand_offs", 20_000);
        let calls: Vec<u8> = (0..200)
            .flat_map(|number| encoded(&["LOCK.ACQUIRE", &format!("free{number}"), "EX", "60", "ID", "7"]))
            .collect();
        let mut caller = server.conn();
        iterations.reset();
        caller.send_bytes(&calls);
        for _ in 0..200 {
            assert!(caller.read().int() > 0);
        }
        // Each took at least a millisecond when it searched all grants of its ID.
        Some(iterations.sum())
    });
}

#[test]
fn claims_and_releases_of_long_keys_cost_no_extra() {
    bound::cpu("MACQUIRE claims, and MRELEASE ends, grants of 1,024 long keys", Duration::from_millis(15), || {
        let (server, iterations, mut conn) = start("3600000")?;
        let mut caller = server.conn();
        grant(&mut conn, &mut server.conn(), 2, LONG);
        let value = conn.text(&["GET", &names(1, LONG)[0]]);
        let (_, rest) = value.split_once('.').unwrap();
        let token = rest[6..22].parse::<u64>().unwrap().to_string();
        iterations.reset();
        let claim = command_of("LOCK.MACQUIRE", &names(0, LONG), &["EX", "600", "ID", "0"]);
        assert!(caller.int(&claim) > 0);
        assert_eq!(caller.int(&command_of("LOCK.MRELEASE", &names(1, LONG), &[&token])), 1_024);
        // This took 133 ms when each name was compared with every other.
        Some(iterations.sum())
    });
}
