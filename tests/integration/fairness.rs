//! First come, first served, at any queue length: grants in the order of arrival, replicas and AOF equal to the master
//! after ten thousand hand-offs, ten thousand waiters on one key and on as many keys, and all of their memory returned
//! after they leave.

use crate::kinds::acquire;
use crate::sessions::many::raise_limit;
use crate::waiting::{no_reply_within, Locks, Waiter};
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{bound, temp_dir, until, Conn, Iterations, Reply, Server};

const WAITERS: usize = 10_000;

/// These tests run one at a time: each needs most of the file descriptors that a process gets.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn sixty_four_clients_are_granted_in_the_order_of_arrival() {
    let mut locks = Locks::start();
    let mut token: i64 = locks.hold().parse().unwrap();
    let mut queue: Vec<_> = (0..64).map(|_| locks.wait(&[])).collect();
    for round in 0..3 {
        for (n, waiter) in queue.iter_mut().enumerate() {
            locks.release(token);
            token = waiter.granted();
            // The client goes back to the end of the queue.
            waiter.conn.send(&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000"]);
            locks.until_waiters(64);
            assert!(no_reply_within(&mut waiter.conn, Duration::from_millis(1)), "round {round}, client {n}");
        }
    }
}

#[test]
fn expired_locks_are_granted_in_order_too() {
    let mut locks = Locks::start();
    locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", "300"]);
    let mut queue: Vec<_> =
        (0..16).map(|_| locks.wait_with(&["LOCK.ACQUIRE", "k", "PX", "20", "WAIT", "30000"])).collect();
    // Nobody releases the lock: each grant expires.
    let tokens: Vec<i64> = queue.iter_mut().map(|waiter| waiter.conn.read().int()).collect();
    assert!(tokens.is_sorted_by(|a, b| b - a >= 20_000), "{tokens:?}");
}

/// Neighbours that allow each other get the lock together, up to the next exclusive waiter.
#[test]
fn writers_in_a_stream_of_readers_are_served_in_order() {
    let mut locks = Locks::start();
    let readers: Vec<String> = (0..3).map(|_| acquire(&mut locks.conn, &["k", "EX", "60", "SHARED"])).collect();
    let mut first_writer = locks.wait(&[]);
    let mut behind: Vec<_> = (0..3).map(|_| locks.wait(&["SHARED"])).collect();
    let (mut second_writer, mut last) = (locks.wait(&[]), locks.wait(&["SHARED"]));
    assert!(
        locks.conn.execute(&["LOCK.ACQUIRE", "k", "EX", "60", "SHARED"]).is_nil(),
        "no newcomer overtakes a writer"
    );
    for reader in readers {
        assert!(no_reply_within(&mut first_writer.conn, Duration::from_millis(20)));
        locks.release(reader);
    }
    let held = first_writer.granted();
    behind[0].assert_waits();
    locks.release(held);
    let tokens: Vec<i64> = behind.iter_mut().map(Waiter::granted).collect();
    last.assert_waits();
    for reader in tokens {
        assert!(!second_writer.conn.has_reply());
        locks.release(reader);
    }
    let held = second_writer.granted();
    last.assert_waits();
    locks.release(held);
    last.granted();
}

const KEYS: usize = 20;
const CLIENTS: usize = 50;
const HAND_OFFS: usize = 10_000;

/// Takes and releases locks in turn until `done` returns true.
fn work(mut conn: Conn, client: usize, held: &[AtomicBool], done: &AtomicUsize) {
    for turn in 0.. {
        let n = (client + turn * 7) % KEYS;
        let key = format!("k{n}");
        let token = conn.int(&["LOCK.ACQUIRE", &key, "EX", "100", "WAIT", "30000", "OWNER", &format!("c{client}")]);
        assert!(!held[n].swap(true, Ordering::SeqCst), "{key} has two holders");
        held[n].store(false, Ordering::SeqCst);
        assert_eq!(conn.int(&["LOCK.RELEASE", &key, &token.to_string()]), 1);
        if done.fetch_add(1, Ordering::SeqCst) >= HAND_OFFS {
            return;
        }
    }
}

#[test]
fn replica_and_aof_equal_the_master_after_10000_hand_offs() {
    let dir = temp_dir();
    let start = || Server::with().args(&["--appendonly", "yes", "--repl-diskless-sync-delay", "0"]).dir(&dir).start();
    let (mut master, replica) = (start(), Server::start());
    replica.replicate(&master);
    let held: Arc<Vec<AtomicBool>> = Arc::new((0..KEYS).map(|_| AtomicBool::new(false)).collect());
    let done = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (conn, held, done) = (master.conn(), Arc::clone(&held), Arc::clone(&done));
            thread::spawn(move || work(conn, client, &held, &done))
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    let mut conn = master.conn();
    assert_eq!(conn.int(&["DBSIZE"]), 0, "all were released");
    // Some stay held at the end, so that the comparison covers more than an empty server.
    for n in 0..KEYS / 2 {
        conn.int(&["LOCK.ACQUIRE", &format!("k{n}"), "EX", "100"]);
    }
    master.wait_offset(&replica);
    let digest = conn.text(&["DEBUG", "DIGEST"]);
    assert_eq!(replica.conn().text(&["DEBUG", "DIGEST"]), digest);
    let mut values = Vec::new();
    for n in 0..KEYS {
        values.push(conn.execute(&["GET", &format!("k{n}")]));
    }
    // A server that is killed too early loses unwritten data: while the disk is busy it writes late.
    conn.send(&["SHUTDOWN"]);
    master.wait_end();
    drop((conn, master));
    let again = start();
    let mut conn = again.conn();
    assert_eq!(conn.text(&["DEBUG", "DIGEST"]), digest);
    for (n, value) in values.iter().enumerate() {
        assert_eq!(&conn.execute(&["GET", &format!("k{n}")]), value, "k{n}");
    }
    drop((conn, again));
    let _ = fs::remove_dir_all(&dir);
}

/// A server for many clients whose iterations are counted, and the number of clients: fewer if the limit on open files
/// requires it. `None` if iterations cannot be counted.
fn counted_server() -> Option<(Locks, Iterations, usize)> {
    let count = raise_limit();
    if count < WAITERS {
        eprintln!("the limit on open files allows only {count} of {WAITERS} waiters");
    }
    let options = Server::with().args(&["--maxclients", "12000"]).module_args(&["max-waiters", "10000"]);
    let (server, iterations) = Iterations::start(options)?;
    Some((Locks::on(server), iterations, count))
}

/// Connections start waiting, on one key or on a key each; `in_turn`: in the order of the list.
fn all_wait(locks: &mut Locks, count: usize, one_key: bool, in_turn: bool) -> Vec<Conn> {
    let key = |n: usize| if one_key { "k".to_string() } else { format!("k{n}") };
    let keys = if one_key { 1 } else { count };
    locks.conn.ok(&["FLUSHALL"]);
    for n in 0..keys {
        locks.conn.int(&["LOCK.ACQUIRE", &key(n), "EX", "100"]);
    }
    let mut waiting = Vec::with_capacity(count);
    for n in 0..count {
        let mut conn = locks.server.conn();
        conn.send(&["LOCK.ACQUIRE", &key(n), "EX", "100", "WAIT", "600000"]);
        waiting.push(conn);
        // I/O threads read what clients send at the same time in any order.
        if in_turn {
            locks.conn.until_waiters("k", i64::try_from(waiting.len()).unwrap());
        }
    }
    let all = i64::try_from(count).unwrap();
    until("all wait", || (locks.info("clients", "blocked_clients") == all).then_some(()));
    waiting
}

/// Waits until only the control connection is left.
fn until_alone(locks: &mut Locks) {
    until("nobody is connected", || (locks.info("clients", "connected_clients") == 1).then_some(()));
    assert_eq!(locks.info("clients", "blocked_clients"), 0);
}

/// All of them connect twice: the first time they hang up, the second time they are killed at once.
fn come_and_go(one_key: bool) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((mut locks, iterations, count)) = counted_server() else { return };
    // Most of this is the server's own time: it handles all closed connections in one iteration.
    bound::cpu("many clients that hang up", HANG_UP, || {
        let waiting = all_wait(&mut locks, count, one_key, false);
        iterations.reset();
        drop(waiting);
        until("all are gone", || (locks.info("clients", "blocked_clients") == 0).then_some(()));
        Some(iterations.longest())
    });
    until_alone(&mut locks);
    let after_first = locks.info("memory", "used_memory");

    let waiting = all_wait(&mut locks, count, one_key, false);
    let killed = locks.conn.int(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    assert_eq!(killed, i64::try_from(count).unwrap());
    until_alone(&mut locks);
    drop(waiting);
    // 10,000 clients leave the same amount of memory each time, mostly a server pool that shrinks by 500 a second; a
    // leak of 200 bytes per waiter would be 2 MB. Their queues are freed in pieces.
    until("their memory is freed", || {
        let more = locks.info("memory", "used_memory") - after_first;
        (more < 2_000_000).then_some(())
    });
    assert_eq!(locks.waiters(), 0);
    // The queue is a new one.
    assert_eq!(locks.conn.int(&["DBSIZE"]), if one_key { 1 } else { i64::try_from(count).unwrap() });
    locks.conn.ok(&["FLUSHALL"]);
    let token = locks.hold();
    let mut waiter = locks.wait(&[]);
    locks.release(token);
    waiter.granted();
}

/// The longest iteration of the event loop in which ten thousand waiters hang up.
const HANG_UP: Duration = Duration::from_millis(250);

#[test]
fn the_memory_of_ten_thousand_waiters_is_freed() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut locks = Locks::start();
    let mut round = |one_key: bool| {
        drop(all_wait(&mut locks, 1000, one_key, false));
        until_alone(&mut locks);
        locks.conn.ok(&["FLUSHALL"]);
    };
    // The first time, permanent tables of the server and the module grow.
    round(true);
    round(false);
    // The memory of a server with the module right after its start.
    let least = Locks::start().info("memory", "used_memory");
    for n in 0..10 {
        round(n % 2 == 0);
    }
    // The tables of the module and of the server stay, sized for the 1,000 concurrent clients: 660 bytes for each. A
    // leak of 28 bytes for each of 12,000 would exceed this, and none of the 35 KB that a waiting client takes can hide
    // here. The server takes a few seconds to free its pool of clients.
    until("the memory is freed", || (locks.info("memory", "used_memory") < least + 1_000_000).then_some(()));
}

#[test]
fn ten_thousand_waiters_for_one_lock_come_and_go() {
    come_and_go(true);
}

#[test]
fn ten_thousand_waiters_for_as_many_locks_come_and_go() {
    come_and_go(false);
}

#[test]
fn ten_thousand_waiters_are_served_in_order() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((mut locks, _, count)) = counted_server() else { return };
    let waiting = all_wait(&mut locks, count, true, true);
    // One more is one too many.
    if count == WAITERS {
        let reply = locks.conn.execute(&["LOCK.ACQUIRE", "k", "EX", "100", "WAIT", "1000"]);
        assert!(reply.error().starts_with("BUSYLOCKS "), "{reply:?}");
    }
    let mut token = locks.conn.lock("k", "token").int();
    for (n, mut conn) in waiting.into_iter().enumerate() {
        locks.conn.send(&["LOCK.RELEASE", "k", &token.to_string()]);
        let Ok(Reply::Int(next)) = conn.try_read() else { panic!("waiter {n} is not the next") };
        assert_eq!(locks.conn.read(), Reply::Int(1));
        assert!(next > token);
        token = next;
    }
    locks.release(token);
}

/// The longest iteration after a flush.
const FLUSH: Duration = Duration::from_millis(20);

#[test]
fn a_flush_serves_ten_thousand_queues_in_pieces() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((mut locks, iterations, count)) = counted_server() else { return };
    let (mut waiting, mut tokens) = (Vec::new(), Vec::new());
    bound::cpu("a flush", FLUSH, || {
        waiting.clear();
        waiting = all_wait(&mut locks, count, false, false);
        iterations.reset();
        locks.conn.ok(&["FLUSHALL"]);
        tokens = waiting.iter_mut().map(|conn| conn.read().int()).collect();
        Some(iterations.longest())
    });
    let mut sorted = tokens.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), count, "each has its own token");
    assert_eq!(locks.conn.int(&["DBSIZE"]), i64::try_from(count).unwrap());
    for (n, token) in tokens.iter().enumerate().step_by(997) {
        assert!(locks.conn.int(&["LOCK.CHECK", &format!("k{n}"), &token.to_string()]) > 0, "k{n}");
    }
}

/// Waits end in time, even if the server may not write and locks are waiting to be handed off: replying to all of them
/// takes less than a second of CPU time.
#[test]
fn waits_that_end_in_a_pause_are_answered_within_a_second() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    bound::cpu("many clients whose waits end", Duration::from_secs(1), || {
        let (mut locks, iterations, count) = counted_server()?;
        let begin = Instant::now();
        locks.conn.int(&["LOCK.ACQUIRE", "k", "EX", "100"]);
        locks.conn.int(&["LOCK.ACQUIRE", "held", "EX", "100"]);
        let mut waiting: Vec<Conn> = (1..count).map(|_| locks.server.conn()).collect();
        // All of them end at the same time, five seconds from now or as soon as all have arrived.
        let end = begin + Duration::from_secs(5).max(3 * begin.elapsed());
        for conn in &mut waiting {
            let left = end.saturating_duration_since(Instant::now()).as_millis().max(1).to_string();
            conn.send(&["LOCK.ACQUIRE", "held", "EX", "100", "WAIT", &left]);
        }
        let mut first = locks.wait_with(&["LOCK.ACQUIRE", "k", "EX", "100", "WAIT", "60000"]);
        locks.in_one_turn(&[&["DEL", "k"], &["CLIENT", "PAUSE", "60000", "WRITE"]]);
        iterations.reset();
        // A one-minute pause is longer than a connection waits for a reply.
        for conn in &mut waiting {
            assert!(conn.read().is_nil());
        }
        let took = iterations.sum();
        locks.conn.ok(&["CLIENT", "UNPAUSE"]);
        first.granted();
        Some(took)
    });
}
