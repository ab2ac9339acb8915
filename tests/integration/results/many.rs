//! A thousand that wait for one result get it in short iterations, and so do those that are not blocked.

use super::result;
use crate::notify::{can_publish, waiting, Queue, Subscriber, CHANNEL};
use std::time::Duration;
use testkit::{bound, encoded, until, Conn, Iterations, Reply, Server};

const MANY: usize = 1_000;
const LONGEST: Duration = Duration::from_millis(5);

/// Releases `k` with a value of this size while a thousand clients wait for it. Returns how long the longest iteration
/// took.
fn shared_with_a_thousand(bytes: usize) -> Option<Duration> {
    let (server, iterations) = Iterations::start(Server::with())?;
    let mut conn = server.conn();
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "600000"]).to_string();
    let mut waiters: Vec<Conn> = (0..MANY).map(|_| server.conn()).collect();
    for waiter in &mut waiters {
        waiter.send(&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "600000", "RESULT"]);
    }
    conn.until_waiters("k", i64::try_from(MANY).unwrap());
    let value = vec![b'x'; bytes];
    let release: [&[u8]; 5] = [b"LOCK.RELEASE", b"k", token.as_bytes(), b"RESULT", &value];
    iterations.reset();
    assert_eq!(conn.execute(&release), Reply::Int(1));
    for waiter in &mut waiters {
        assert_eq!(waiter.read(), result(&value));
    }
    Some(iterations.longest())
}

#[test]
fn a_thousand_clients_get_100_bytes_in_short_iterations() {
    bound::cpu("a result of 100 bytes for 1,000 clients", LONGEST, || shared_with_a_thousand(100));
}

#[test]
fn a_thousand_clients_get_64_kb_in_short_iterations() {
    bound::cpu("a result of 64 kB for 1,000 clients", LONGEST, || shared_with_a_thousand(65_536));
}

#[test]
fn a_hundred_thousand_attempts_on_channels_get_a_result_in_short_iterations() {
    const ATTEMPTS: usize = 100_000;
    bound::cpu("a result for 100,000 attempts on a channel", LONGEST, || {
        let (server, iterations) = Iterations::start(Server::with().module_args(&["claim-ms", "600000"]))?;
        let mut conn = server.conn();
        if !can_publish(&mut conn) {
            return None;
        }
        let mut subscriber = Subscriber::of(&server, "c");
        let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "600000"]).to_string();
        let acquire = |id: usize| {
            let id = id.to_string();
            encoded(&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "600000", "RESULT", "ID", &id, "NOTIFY", "c"])
        };
        for from in (1..=ATTEMPTS).step_by(1_000) {
            let piece: Vec<u8> = (from..from + 1_000).flat_map(acquire).collect();
            conn.send_bytes(&piece);
            for _ in 0..1_000 {
                assert_eq!(conn.read(), Reply::Status("WAITING".into()));
            }
        }
        iterations.reset();
        assert_eq!(conn.execute(&["LOCK.RELEASE", "k", &token, "RESULT", "42"]), Reply::Int(1));
        for id in 1..=ATTEMPTS {
            assert_eq!(subscriber.next(), format!("result {id} k"));
        }
        let longest = iterations.longest();
        conn.send_bytes(&acquire(ATTEMPTS));
        assert_eq!(conn.read(), result("42"));
        until("all have left", || (conn.info("lock", "lock_queued").as_deref() == Some("0")).then_some(()));
        Some(longest)
    });
}

/// A release removes the first 256 at once. The others are removed later, but have left just the same.
#[test]
fn those_that_are_removed_later_get_their_result_whatever_comes_first() {
    let Some(mut queue) = Queue::with(&["claim-ms", "600000"]) else { return };
    let token = queue.locks.hold();
    let ids: Vec<String> = (1..=MANY).map(|id| id.to_string()).collect();
    let acquire = |id| ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "600000", "RESULT", "ID", id, "NOTIFY", CHANNEL];
    for id in &ids {
        assert_eq!(queue.execute(&acquire(id)), waiting());
    }
    let mut blocked: Vec<Conn> = (0..MANY).map(|_| queue.locks.server.conn()).collect();
    for (waiter, id) in blocked.iter_mut().zip(MANY + 1..) {
        let id = id.to_string();
        waiter.send(&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "600000", "RESULT", "ID", &id]);
    }
    queue.locks.until_waiters(2 * i64::try_from(MANY).unwrap());
    let (notified, last) = (&ids[MANY - 1], (2 * MANY).to_string());
    let replies = queue.locks.in_one_turn(&[
        &["LOCK.RELEASE", "k", &token, "RESULT", "42"],
        &["LOCK.CANCEL", "k", notified],
        &acquire(notified),
        &["LOCK.CANCEL", "k", &last],
        &["LOCK.ACQUIRE", "k", "PX", "30000", "ID", &last],
        &["LOCK.CANCEL", "k", "CHANNEL", CHANNEL],
    ]);
    assert_eq!(replies[..4], [Reply::Int(1), Reply::Int(0), result("42"), Reply::Int(0)]);
    assert!(replies[4].is_nil(), "its ID was cancelled: {:?}", replies[4]);
    for waiter in &mut blocked {
        assert_eq!(waiter.read(), result("42"));
    }
    let mut messages: Vec<String> = ids.iter().map(|_| queue.subscriber.next()).collect();
    let mut expected: Vec<String> = ids.iter().map(|id| format!("result {id} k")).collect();
    messages.sort();
    expected.sort();
    assert_eq!(messages, expected);
    assert_eq!(queue.info("lock_results"), 2 * i64::try_from(MANY).unwrap());
}
