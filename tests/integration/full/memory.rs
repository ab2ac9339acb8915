//! The server's memory is around `maxmemory` while clients work: with `noeviction` a command gets OOM before it changes
//! anything, and everything else works; with `allkeys-lru` locks are evicted, and a lock still has one holder of those
//! whose grant was not evicted. The counters agree with what the clients saw.

use crate::kinds::{Kind, Row, KINDS};
use crate::waiting::Locks;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use testkit::dice::Dice;
use testkit::{until, Conn, Reply, Server, SetAtEnd};

const CLIENTS: u64 = 4;
/// How many grants, and replies of OOM, a test waits for.
const MANY: i64 = 200;
/// Room for other data, in bytes, and the size of one value.
const ROOM: i64 = 2 << 20;
const VALUE: usize = 16 << 10;

/// What clients saw.
#[derive(Debug, Default)]
struct Seen {
    granted: i64,
    refused: i64,
    out_of_memory: i64,
    extended: i64,
    released: i64,
    /// The grant had been evicted, or its lease had ended.
    gone: i64,
}

impl Seen {
    fn add(&mut self, other: &Self) {
        self.granted += other.granted;
        self.refused += other.refused;
        self.out_of_memory += other.out_of_memory;
        self.extended += other.extended;
        self.released += other.released;
        self.gone += other.gone;
    }
}

fn is_out_of_memory(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with("OOM "))
}

/// A server that is full: no more fits into its memory.
fn full(policy: &str) -> Locks {
    let options = Server::with().args(&["--maxmemory-policy", policy]).module_args(&["margin-ms", "0"]);
    let mut locks = Locks::on(options.start());
    let limit = locks.info("memory", "used_memory") + ROOM;
    locks.conn.ok(&["CONFIG", "SET", "maxmemory", &limit.to_string()]);
    locks
}

/// Adds values until one does not fit.
fn fill(locks: &mut Locks) {
    let value = "x".repeat(VALUE);
    let is_full = |number| is_out_of_memory(&locks.conn.execute(&["SET", &format!("filler:{number}"), &value]));
    assert!((0..10_000).any(is_full));
    // The server frees some buffers by itself; it stays full.
    let limit = locks.info("memory", "used_memory") - ROOM / 2;
    locks.conn.ok(&["CONFIG", "SET", "maxmemory", &limit.to_string()]);
}

/// The counts of all clients so far, and whether the work is over.
#[derive(Default)]
struct Progress {
    granted: AtomicI64,
    out_of_memory: AtomicI64,
    is_over: AtomicBool,
}

/// Takes locks with this lease, in milliseconds, and releases them.
fn work(conn: &mut Conn, dice: &mut Dice, lease: &str, progress: &Progress) -> Seen {
    let mut seen = Seen::default();
    while !progress.is_over.load(Ordering::SeqCst) {
        let key = dice.pick(&["a", "b"]);
        let mut acquire = vec!["LOCK.ACQUIRE", key, "PX", lease];
        if dice.percent(50) {
            acquire.extend(["WAIT", "5000"]);
        }
        let token = match conn.execute(&acquire) {
            Reply::Int(token) => token.to_string(),
            Reply::Nil => {
                seen.refused += 1;
                continue;
            }
            reply => {
                assert!(is_out_of_memory(&reply), "{reply:?}");
                seen.out_of_memory += 1;
                progress.out_of_memory.fetch_add(1, Ordering::SeqCst);
                continue;
            }
        };
        seen.granted += 1;
        progress.granted.fetch_add(1, Ordering::SeqCst);
        if dice.percent(50) {
            seen.extended += conn.int(&["LOCK.EXTEND", key, &token, "PX", lease]);
        }
        match conn.int(&["LOCK.RELEASE", key, &token]) {
            1 => seen.released += 1,
            _ => seen.gone += 1,
        }
    }
    seen
}

/// Clients work while another one adds values and removes them, so that memory is full at one moment and not at the
/// next. They end when there were many grants and as many events of another kind.
fn work_around_the_limit(locks: &mut Locks, lease: &str, events: impl Fn(&mut Conn, &Progress) -> i64) -> Seen {
    let (server, progress) = (&locks.server, &Progress::default());
    let mut seen = Seen::default();
    std::thread::scope(|scope| {
        let over = SetAtEnd(&progress.is_over);
        scope.spawn(move || {
            let mut conn = server.conn();
            while !progress.is_over.load(Ordering::SeqCst) {
                // Big values alone may leave room for locks: a big argument counts as memory until it is refused.
                for (size, count) in [(VALUE, 200), (VALUE / 16, 100), (32, 200)] {
                    let value = "x".repeat(size);
                    for number in 0..count {
                        conn.execute(&["SET", &format!("filler:{size}:{number}"), &value]);
                    }
                }
                // With what remains, memory must not be full: the server's allocator takes 20 kB for a big value.
                for number in 50..200 {
                    conn.execute(&["DEL", &format!("filler:{VALUE}:{number}")]);
                }
            }
        });
        let client = |number| {
            let (mut conn, mut dice) = (server.conn(), Dice::new(number));
            scope.spawn(move || work(&mut conn, &mut dice, lease, progress))
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        until("enough has happened", || {
            let granted = progress.granted.load(Ordering::SeqCst);
            (granted >= MANY && events(&mut locks.conn, progress) >= MANY).then_some(())
        });
        drop(over);
        for client in clients {
            seen.add(&client.join().unwrap());
        }
    });
    seen
}

fn assert_sound(locks: &mut Locks, seen: &Seen) {
    println!("{seen:?}");
    let log = locks.server.log();
    assert!(!log.contains("crashed by signal") && !log.contains("panic"), "{log}");
    assert_eq!(locks.info("lock", "lock_grants"), seen.granted);
    assert_eq!(locks.info("lock", "lock_extends"), seen.extended);
    assert_eq!(locks.info("lock", "lock_releases"), seen.released);
    assert!(locks.info("lock", "lock_stale_tokens") + locks.info("lock", "lock_late_releases") >= seen.gone);
    assert_eq!((locks.info("lock", "lock_waiters"), locks.info("lock", "lock_blocked")), (0, 0));
}

#[test]
fn around_the_memory_limit_only_taking_a_lock_fails() {
    let mut locks = full("noeviction");
    let refused = |_: &mut Conn, progress: &Progress| progress.out_of_memory.load(Ordering::SeqCst);
    let seen = work_around_the_limit(&mut locks, "600000", refused);
    assert_eq!((seen.gone, seen.released), (0, seen.granted));
    assert_sound(&mut locks, &seen);
    assert_eq!(locks.conn.int(&["EXISTS", "a", "b"]), 0);
}

#[test]
fn locks_that_are_evicted_under_load_hurt_nobody_else() {
    let mut locks = full("allkeys-lru");
    let idle = locks.conn.int(&["LOCK.ACQUIRE", "idle", "EX", "600"]).to_string();
    let evicted = |conn: &mut Conn, _: &Progress| {
        let is_idle_gone = conn.int(&["EXISTS", "idle"]) == 0;
        let evicted = conn.info("stats", "evicted_keys").unwrap().parse().unwrap();
        if is_idle_gone {
            evicted
        } else {
            0
        }
    };
    // A client that waits for an evicted lock gets it once the lease has ended.
    let seen = work_around_the_limit(&mut locks, "1000", evicted);
    assert_eq!(seen.released + seen.gone, seen.granted);
    assert_sound(&mut locks, &Seen { granted: seen.granted + 1, ..seen });
    // The evicted lock is free: its holder finds that out, and a newcomer gets it.
    assert_eq!(locks.conn.int(&["LOCK.EXTEND", "idle", &idle, "EX", "600"]), 0);
    assert!(locks.conn.int(&["LOCK.ACQUIRE", "idle", "EX", "600"]) > idle.parse().unwrap());
    assert_eq!(locks.conn.int(&["LOCK.RELEASE", "idle", &idle]), 0);
}

/// With other data in memory, not only with a limit of one byte.
#[test]
fn a_full_server_hands_over_to_blocked_waiters_and_refuses_newcomers() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let mut locks = full("noeviction");
        let token = kind.take(&mut locks.conn, &["EX", "600"]);
        let other = (kind == Kind::Limit).then(|| kind.take(&mut locks.conn, &["EX", "600"]));
        // A waiter that does not share, so that it has to wait for each kind.
        let mut first = locks.wait_as(if kind == Kind::Several { kind } else { Kind::Alone }, &[]);
        let mut second = locks.wait_as(kind, &[]);
        fill(&mut locks);
        let before = locks.conn.text(&["DEBUG", "DIGEST"]);
        for command in [&["LOCK.ACQUIRE", "k", "EX", "5", "WAIT", "1000"][..], &["LOCK.ACQUIRE", "new", "EX", "5"]] {
            assert!(is_out_of_memory(&locks.conn.execute(command)), "{command:?}");
        }
        assert_eq!((locks.waiters(), locks.conn.text(&["DEBUG", "DIGEST"])), (2, before));
        kind.release(&mut locks.conn, &token);
        if let Some(other) = other {
            first.assert_waits();
            kind.release(&mut locks.conn, &other);
        }
        let token = first.granted().to_string();
        let alone = if kind == Kind::Several { kind } else { Kind::Alone };
        alone.release(&mut locks.conn, &token);
        let token = second.granted().to_string();
        assert!(is_out_of_memory(&locks.conn.execute(&["LOCK.ACQUIRE", "new", "EX", "5"])));
        kind.release(&mut locks.conn, &token);
        assert_eq!(locks.info("lock", "lock_hand_offs"), 2);
        until("nobody waits", || (locks.info("lock", "lock_waiters") == 0).then_some(()));
    }
}
