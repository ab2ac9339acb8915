//! Every way to free a lock wakes the first in the queue, in the same event-loop iteration: plain, in a transaction and
//! in a script. No other waiter is woken.

use super::{no_reply_within, Locks};
use crate::kinds::{Kind, Row, KINDS};
use std::time::{Duration, Instant};
use testkit::{bound, server_time_us, timestamp_us, until, Reply, Server};

/// Three grants in less time than this cannot come from the scan of all locks every 0.9 s, which would take at least
/// two full periods.
const AT_ONCE: Duration = Duration::from_millis(800);

#[derive(Clone, Copy, Debug)]
enum How {
    Plain,
    Transaction,
    Script,
}

const HOWS: [How; 3] = [How::Plain, How::Transaction, How::Script];

fn run(locks: &mut Locks, how: How, command: &[&str]) -> Reply {
    match how {
        How::Plain => locks.conn.execute(command),
        How::Transaction => {
            locks.conn.ok(&["MULTI"]);
            assert_eq!(locks.conn.text(command), "QUEUED");
            locks.conn.execute(&["EXEC"]).list()[0].clone()
        }
        How::Script => locks.conn.execute(&[&["EVAL", "return redis.call(unpack(ARGV))", "0"], command].concat()),
    }
}

/// Two clients wait for `k`, which attempt 5 holds; `command` frees it, with TOKEN standing for the holder's token.
/// Returns how long the first then waited.
fn time_to_grant(locks: &mut Locks, kind: Kind, how: How, command: &[&str]) -> Duration {
    locks.conn.ok(&["FLUSHALL"]);
    let token = kind.take(&mut locks.conn, &["PX", "30000", "ID", "5"]);
    locks.conn.ok(&["SET", "expired", "1763710031"]);
    let (mut first, mut second) = (locks.wait(&[]), locks.wait(&[]));
    let command: Vec<&str> = command.iter().map(|word| if *word == "TOKEN" { token.as_str() } else { word }).collect();

    let begin = Instant::now();
    let reply = run(locks, how, &command);
    let granted = first.granted();
    let took = begin.elapsed();
    assert!(!matches!(reply, Reply::Error(_) | Reply::Int(0) | Reply::Nil), "{how:?} {command:?}: {reply:?}");
    assert!(granted > token.parse().unwrap(), "{granted} after {token}");
    locks.assert_holds(granted);
    assert_eq!(locks.waiters(), 1, "{how:?} {command:?}");
    locks.release(granted);
    let last = second.granted();
    locks.release(last);
    assert_eq!(locks.conn.int(&["EXISTS", "k"]), 0);
    took
}

/// Valkey 8.1 leaves the client of a MOVE or COPY in the other database when a module gets its keyspace event.
#[test]
fn a_client_stays_in_its_database_while_others_wait() {
    let mut locks = Locks::start();
    locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]);
    let _waits = locks.wait(&[]);
    locks.conn.ok(&["SET", "a", "1"]);
    assert_eq!(locks.conn.int(&["COPY", "a", "b", "DB", "3"]), 1);
    assert_eq!(locks.conn.int(&["MOVE", "a", "3"]), 1);
    assert_eq!(locks.conn.int(&["EXISTS", "k"]), 1, "the client is in another database");
}

fn assert_fast(three_grants: impl FnMut() -> Duration) {
    bound::wall_once("three grants", AT_ONCE, three_grants);
}

/// Commands that free `k`, at once or within 30 ms.
const FREES: [&[&str]; 15] = [
    &["LOCK.RELEASE", "k", "TOKEN"],
    &["LOCK.CANCEL", "k", "5"],
    &["LOCK.EXTEND", "k", "TOKEN", "PX", "30"],
    &["DEL", "k"],
    &["UNLINK", "k"],
    &["GETDEL", "k"],
    &["RENAME", "k", "elsewhere"],
    &["RENAME", "expired", "k"],
    &["COPY", "expired", "k", "REPLACE"],
    &["MOVE", "k", "1"],
    &["SWAPDB", "0", "1"],
    &["FLUSHDB"],
    &["FLUSHALL", "ASYNC"],
    &["PEXPIREAT", "k", "1"],
    &["PEXPIRE", "k", "30"],
];

#[test]
fn whatever_frees_a_lock_wakes_the_first() {
    for kind in KINDS {
        // Without places, so that an ID that was cancelled can be used again at once.
        let mut locks = Locks::with(&["place-ms", "0"]);
        for command in FREES {
            let _row = Row::of((kind, command));
            // GETDEL fails on a set.
            if command[0] != "GETDEL" || matches!(kind, Kind::Alone | Kind::Several) {
                assert_fast(|| HOWS.map(|how| time_to_grant(&mut locks, kind, how, command)).iter().sum());
            }
        }
    }
}

#[test]
fn a_timestamp_wakes_the_first_when_it_passes_and_not_before() {
    let mut locks = Locks::start();
    bound::wall_once("a grant after its predecessor's timestamp", Duration::from_millis(150), || {
        let token = locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", "2000", "OWNER", "alice"]);
        let timestamp = timestamp_us(&locks.conn.text(&["GET", "k"]));
        let (mut first, mut second) = (locks.wait(&["DETAILS"]), locks.wait(&[]));
        let details = first.answer();
        let granted = details.list()[0].int();
        assert!(granted >= timestamp, "{} us early", timestamp - granted);
        assert_eq!(details.list()[2..], [Reply::Int(token), Reply::Text(b"alice".into())]);
        locks.assert_holds(granted);
        assert_eq!(locks.waiters(), 1);
        locks.release(granted);
        let last = second.granted();
        locks.release(last);
        Duration::from_millis(details.list()[1].int().try_into().unwrap())
    });
}

#[test]
fn a_classic_timestamp_that_passes_wakes_the_first() {
    let mut locks = Locks::start();
    let until_us = server_time_us(&mut locks.conn) + 300_000;
    locks.conn.ok(&["SET", "k", &until_us.to_string()]);
    let mut waiter = locks.wait(&[]);
    assert!(waiter.granted() >= until_us);
}

#[test]
fn an_extended_lease_is_waited_for_until_its_new_end() {
    let mut locks = Locks::start();
    let token = locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", "200"]).to_string();
    let mut waiter = locks.wait(&[]);
    if locks.conn.int(&["LOCK.EXTEND", "k", &token, "PX", "500"]) == 0 {
        // A busy machine: the lease has already expired.
        waiter.granted();
        return;
    }
    let timestamp = timestamp_us(&locks.conn.text(&["GET", "k"]));
    assert!(waiter.granted() >= timestamp);
}

#[test]
fn a_foreign_lock_is_waited_for_until_its_native_expiry() {
    let mut locks = Locks::start();
    // Ensures that only the module opens the key: the server does not delete it itself.
    locks.conn.ok(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    assert_fast(|| {
        let mut late = Duration::ZERO;
        for _ in 0..3 {
            locks.conn.ok(&["SET", "k", "foreign", "PX", "100"]);
            let end = Instant::now() + Duration::from_millis(100);
            let granted = locks.wait(&[]).granted();
            late += Instant::now().saturating_duration_since(end);
            locks.release(granted);
        }
        late
    });
}

/// A holder's value whose expiry others shortened, and a value of another type. Only the module opens the key: the
/// server does not delete it itself.
#[test]
fn a_native_expiry_is_waited_for_whatever_the_key_holds() {
    let changes: [&[&[&str]]; 2] =
        [&[&["PEXPIRE", "k", "100"]], &[&["DEL", "k"], &["RPUSH", "k", "a"], &["PEXPIRE", "k", "100"]]];
    for kind in KINDS {
        for change in changes {
            let _row = Row::of((kind, change));
            let mut locks = Locks::start();
            locks.conn.ok(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
            assert_fast(|| {
                let mut late = Duration::ZERO;
                for _ in 0..3 {
                    kind.take(&mut locks.conn, &["PX", "30000"]);
                    let mut waiter = locks.wait(&[]);
                    locks.conn.ok(&["MULTI"]);
                    for command in change {
                        assert_eq!(locks.conn.text(command), "QUEUED");
                    }
                    locks.conn.execute(&["EXEC"]);
                    let end = Instant::now() + Duration::from_millis(100);
                    let granted = waiter.granted();
                    late += Instant::now().saturating_duration_since(end);
                    locks.release(granted);
                    locks.conn.ok(&["FLUSHALL"]);
                }
                late
            });
            assert_eq!(crate::metrics::number(&mut locks.conn, "missed_wakeups"), 0);
        }
    }
}

#[test]
fn a_foreign_lock_without_expiry_is_waited_for() {
    let mut locks = Locks::start();
    locks.conn.ok(&["SET", "k", "foreign"]);
    let mut waiter = locks.wait(&[]);
    waiter.assert_waits();
    assert_eq!(locks.conn.int(&["DEL", "k"]), 1);
    waiter.granted();
}

#[test]
fn a_retention_of_zero_still_wakes_the_first() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let mut locks = Locks::with(&["retention-ms", "0"]);
        let token: i64 = kind.take(&mut locks.conn, &["PX", "400"]).parse().unwrap();
        let mut waiter = locks.wait(&[]);
        assert!(waiter.granted() >= token + 400_000);
    }
}

#[test]
fn a_lock_taken_again_in_the_same_transaction_wakes_nobody() {
    let mut locks = Locks::start();
    locks.hold();
    let mut waiter = locks.wait(&[]);
    let far = (server_time_us(&mut locks.conn) / 1_000_000 + 1000).to_string();
    locks.in_one_turn(&[&["MULTI"], &["DEL", "k"], &["SETNX", "k", &far], &["EXEC"]]);
    waiter.assert_waits();
    assert_eq!(locks.conn.text(&["GET", "k"]), far);
    assert_eq!(locks.conn.int(&["DEL", "k"]), 1);
    waiter.granted();
}

fn evicting() -> Locks {
    let options = Server::with().args(&["--maxmemory-policy", "allkeys-random"]).module_args(&["margin-ms", "0"]);
    Locks::on(options.start())
}

/// Makes the server evict every key, although that does not free enough memory.
fn evict(locks: &mut Locks) {
    locks.conn.ok(&["CONFIG", "SET", "maxmemory", "1"]);
    until("the lock is evicted", || {
        let _ = locks.conn.execute(&["SET", "filler", "1"]);
        (locks.conn.int(&["DBSIZE"]) == 0).then_some(())
    });
    locks.conn.ok(&["CONFIG", "SET", "maxmemory", "0"]);
}

#[test]
fn an_evicted_lock_is_waited_for_until_its_timestamp() {
    let mut locks = evicting();
    locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", "1500"]);
    let timestamp = timestamp_us(&locks.conn.text(&["GET", "k"]));
    let mut waiter = locks.wait(&[]);
    evict(&mut locks);
    assert!(server_time_us(&mut locks.conn) < timestamp, "the lock was evicted in time");
    assert_eq!(locks.conn.int(&["EXISTS", "k"]), 0);
    assert!(locks.conn.execute(&["LOCK.ACQUIRE", "k", "PX", "1000"]).is_nil(), "a newcomer does not overtake");
    let granted = waiter.granted();
    assert!(granted >= timestamp, "{} us early", timestamp - granted);
}

/// Two clients hold the lock, for three seconds and for a minute: one of the last-seen holders is still live when the
/// first waiter is served, if it is served. Then no more than the limit hold the lock, and nobody holds it exclusively.
#[test]
fn an_evicted_set_stays_taken_by_its_last_holders() {
    for second in [&["LIMIT", "2"][..], &[]] {
        let _row = Row::of(second);
        let mut locks = evicting();
        let short = Kind::Limit.take(&mut locks.conn, &["PX", "3000"]);
        Kind::Limit.take(&mut locks.conn, &["EX", "60"]);
        let mut waiters = [locks.wait(&["LIMIT", "2"]), locks.wait(second)];
        assert!(locks.conn.int(&["LOCK.CHECK", "k", &short]) > 0, "the short lease has not expired yet");
        evict(&mut locks);
        waiters[0].assert_waits();
        if !no_reply_within(&mut waiters[0].conn, Duration::from_secs(5)) {
            let token = waiters[0].granted();
            if second.is_empty() {
                locks.release(token);
            }
        }
        waiters[1].assert_waits();
    }
}
