//! Thousands of sessions at once, and sessions that never end: the server stays responsive, and gets its memory back.

use crate::replication::words;
use crate::waiting::Locks;
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use testkit::{bound, server_time_us, timestamp_us, until, Conn, Iterations, Options, Reply, Server, DEADLINE};

/// The maximum number of sessions.
const MANY: usize = 10_000;
/// How much more memory than before may be in use: the server's own tables shrink late.
const SLACK: i64 = 3_000_000;
/// The longest iteration of the event loop while many sessions end.
const LONGEST: Duration = Duration::from_millis(5);

/// Raises the connection limit of this process and its servers to the system's maximum. Returns that limit.
pub fn raise_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is valid for the write and for the read.
    #[allow(unsafe_code)]
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
    usize::try_from(limit.rlim_max).unwrap_or(usize::MAX).saturating_sub(2_000).min(MANY)
}

fn options(margin_ms: &str, retention_ms: &str) -> Options {
    let settings = ["margin-ms", margin_ms, "retention-ms", retention_ms, "max-waiters", "10000"];
    Server::with().args(&["--maxclients", "12000"]).module_args(&settings)
}

fn start(margin_ms: &str, retention_ms: &str) -> Locks {
    Locks::on(options(margin_ms, retention_ms).start())
}

/// Sends all commands before it reads the replies.
fn pipeline(conn: &mut Conn, count: usize, command: impl Fn(usize) -> Vec<String>) -> Vec<Reply> {
    let mut replies = Vec::with_capacity(count);
    for from in (0..count).step_by(500) {
        let to = count.min(from + 500);
        let mut bytes = String::new();
        for at in from..to {
            let words = command(at);
            let _ = write!(bytes, "*{}\r\n", words.len());
            for word in words {
                let _ = write!(bytes, "${}\r\n{word}\r\n", word.len());
            }
        }
        conn.send_bytes(bytes.as_bytes());
        replies.extend((from..to).map(|_| conn.read()));
    }
    replies
}

/// Waits until memory use is back to `before`, with some slack.
fn until_memory(locks: &mut Locks, before: i64) {
    locks.conn.ok(&["FLUSHALL"]);
    let mut last = 0;
    let end = Instant::now() + DEADLINE;
    while Instant::now() < end {
        last = locks.info("memory", "used_memory") - before;
        if last < SLACK {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{last} bytes more than before");
}

#[test]
fn ten_thousand_sessions_end_at_once() {
    let many = raise_limit();
    bound::cpu("the end of many sessions", LONGEST, || longest_when_all_end(many));
}

/// The longest event-loop iteration after one command ended this many connections with a session.
fn longest_when_all_end(many: usize) -> Option<Duration> {
    let (server, iterations) = Iterations::start(options("100", "60000"))?;
    let mut locks = Locks::on(server);
    locks.conn.ok(&["ACL", "SETUSER", "holder", "on", "nopass", "~*", "+@all"]);
    let before = locks.info("memory", "used_memory");
    let mut holders: Vec<Conn> = (0..many)
        .map(|n| {
            let mut conn = locks.server.conn();
            conn.send(&["AUTH", "holder", "x"]);
            conn.send(&["LOCK.ACQUIRE", &format!("k{n}"), "PX", "600000", "SESSION"]);
            conn
        })
        .collect();
    for conn in &mut holders {
        conn.read();
        assert!(conn.read().int() > 0);
    }
    let mut waiters: Vec<_> = (0..many)
        .step_by(many / 50)
        .map(|n| {
            let key = format!("k{n}");
            (key.clone(), locks.wait_with(&["LOCK.ACQUIRE", &key, "PX", "600000", "WAIT", "60000"]))
        })
        .collect();

    // One command ends them all, so it happens in one iteration.
    let killed = locks.conn.int(&["CLIENT", "KILL", "USER", "holder"]);
    assert_eq!(killed, i64::try_from(many).unwrap());
    let ended = server_time_us(&mut locks.conn);
    iterations.reset();
    until("all locks have ended", || {
        let values = pipeline(&mut locks.conn, many, |n| words(&["GET", &format!("k{n}")]));
        let open = values.iter().filter(|value| timestamp_us(&value.text()) > ended + 100_000);
        // The locks with waiters are held again.
        (open.count() <= waiters.len()).then_some(())
    });
    let longest = iterations.longest();
    for (key, waiter) in &mut waiters {
        let granted = waiter.granted();
        assert!(locks.conn.int(&["LOCK.CHECK", key, &granted.to_string()]) > 0);
    }
    drop((holders, waiters));
    until_memory(&mut locks, before);
    Some(longest)
}

#[test]
fn locks_of_an_ended_connection_have_no_session() {
    let mut locks = start("100", "60000");
    let mut holder = locks.server.conn();
    let id = holder.int(&["CLIENT", "ID"]).to_string();
    let names: Vec<String> = (0..1_000).map(|number| format!("k{number}")).collect();
    let mut call = vec!["LOCK.MACQUIRE", "1000"];
    call.extend(names.iter().map(String::as_str));
    call.extend(["PX", "600000", "SESSION"]);
    let token = holder.int(&call).to_string();

    // Both run in one transaction, so before any of the ends is written.
    locks.conn.ok(&["MULTI"]);
    for command in [&["CLIENT", "KILL", "ID", &id][..], &["LOCK.EXTEND", "k998", &token, "PX", "500000"]] {
        assert_eq!(locks.conn.text(command), "QUEUED");
    }
    for key in &names {
        assert_eq!(locks.conn.text(&["LOCK.INFO", key]), "QUEUED");
    }
    let replies = locks.conn.execute(&["EXEC"]);
    assert_eq!(replies.list()[1].int(), 1);
    assert!(replies.list()[2..].iter().all(|info| info.field("session").is_nil() && info.field("lease-ms").int() > 0));
    until("all but the one that was extended have expired", || {
        let open = names.iter().filter(|key| locks.conn.state(key) == "held").collect::<Vec<_>>();
        (open == ["k998"]).then_some(())
    });
}

#[test]
fn thousands_of_sockets_that_close_at_once_end_their_sessions() {
    let many = raise_limit().min(2_000);
    let mut locks = start("0", "60000");
    let mut holders: Vec<Conn> = (0..many)
        .map(|n| {
            let mut conn = locks.server.conn();
            conn.send(&["LOCK.ACQUIRE", &format!("k{n}"), "PX", "600000", "SESSION"]);
            conn
        })
        .collect();
    for conn in &mut holders {
        assert!(conn.read().int() > 0);
    }
    drop(holders);
    until("all locks have expired", || {
        let values = pipeline(&mut locks.conn, many, |n| words(&["GET", &format!("k{n}")]));
        let now = server_time_us(&mut locks.conn);
        values.iter().all(|value| timestamp_us(&value.text()) <= now).then_some(())
    });
}

#[test]
fn lapsed_sessions_leave_nothing_behind() {
    let mut locks = start("0", "0");
    let mut holder = locks.server.conn();
    let round = |holder: &mut Conn, name: &str, count| {
        let replies =
            pipeline(holder, count, |n| words(&["LOCK.ACQUIRE", &format!("{name}{n}"), "PX", "1", "SESSION"]));
        assert!(replies.iter().all(|reply| reply.int() > 0));
    };
    round(&mut holder, "warm", 2_000);
    locks.conn.ok(&["FLUSHALL"]);
    let before = locks.info("memory", "used_memory");
    round(&mut holder, "k", 100_000);
    until_memory(&mut locks, before);
}

#[test]
fn repeated_acquire_and_release_leave_nothing_behind() {
    let mut locks = start("0", "0");
    let mut holder = locks.server.conn();
    let before = locks.info("memory", "used_memory");
    for _ in 0..20 {
        let taken = pipeline(&mut holder, 500, |n| words(&["LOCK.ACQUIRE", &format!("k{n}"), "EX", "3600", "SESSION"]));
        let released =
            pipeline(&mut holder, 500, |n| words(&["LOCK.RELEASE", &format!("k{n}"), &taken[n].int().to_string()]));
        assert!(released.iter().all(|reply| reply.int() == 1));
    }
    until_memory(&mut locks, before);
}
