//! A thousand that wait for one result get it in short iterations, and so do those that are not blocked.

use super::result;
use crate::notify::{can_publish, Subscriber};
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
