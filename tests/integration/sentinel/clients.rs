//! The effect of a failover on holders and waiters, under Sentinel.

use crate::notify::{waiting, Subscriber};
use std::io::ErrorKind;
use std::time::{Duration, Instant};
use testkit::sentinel::{until_long, Group, Plan};
use testkit::{until, Conn, Reply};

/// Longer leases, so that a lock outlives the failover: 12 s less the margin of 1 s, max-lag of 1 s, and 2 s.
const PLAN: Plan = Plan { grace_ms: 12_000, lease_ms: 8_000, ..Plan::SAFE.on_request() };

fn acquire(conn: &mut Conn, key: &str, more: &[&str]) -> Reply {
    conn.execute(&[&["LOCK.ACQUIRE", key, "PX", "8000"], more].concat())
}

fn wait_in_queue(group: &Group, server: usize, key: &str) -> Conn {
    let (mut conn, mut look) = (group.conn(server), group.conn(server));
    let ask = |conn: &mut Conn| conn.send(&["LOCK.ACQUIRE", key, "PX", "8000", "WAIT", "60000"]);
    ask(&mut conn);
    until("it waits", || {
        // A replica may have lagged for a moment.
        if !conn.no_reply_within(Duration::from_millis(20)) {
            let reply = conn.read();
            assert!(reply.error().starts_with("NOREPLICAS"), "{reply:?}");
            ask(&mut conn);
        }
        (look.waiters(key) == 1).then_some(())
    });
    conn
}

/// Sends a command until its reply is not NOREPLICAS: the old master has to come back first.
fn when_there_are_replicas(conn: &mut Conn, command: &[&str]) -> Reply {
    until_long("there are replicas", || match conn.execute(command) {
        Reply::Error(text) if text.starts_with("NOREPLICAS") => None,
        reply => Some(reply),
    })
}

#[test]
fn holders_go_on_and_waiters_retry_after_a_failover() {
    let group = Group::start(PLAN);
    let old = group.master().unwrap();
    let mut holder = group.conn(old);
    if holder.is_before_7() {
        eprintln!("skipped: Sentinel 6.2 cannot be made to act quickly: the leases end before the old master is back");
        return;
    }
    let grant = |conn: &mut Conn, key: &str, more: &[&str]| {
        let token = until_long("the grace has ended", || {
            let reply = acquire(conn, key, more);
            matches!(reply, Reply::Int(_)).then(|| reply.int())
        });
        token.to_string()
    };
    let [kept, given, bound] =
        [("kept", &[][..]), ("given", &[]), ("bound", &["SESSION"])].map(|(key, more)| grant(&mut holder, key, more));
    let mut waiter = wait_in_queue(&group, old, "kept");
    // An attempt that waits without a connection.
    grant(&mut holder, "told", &[]);
    let ask = ["LOCK.ACQUIRE", "told", "PX", "8000", "WAIT", "60000", "ID", "77", "NOTIFY", "c"];
    let mut subscriber = Subscriber::on(group.conn(old), "SUBSCRIBE", "c");
    assert_eq!(when_there_are_replicas(&mut holder, &ask), waiting());
    assert_eq!(holder.int(&["WAIT", "2", "5000"]), 2);

    group.ask_for_failover();
    let new = group.until_replaced(old);
    // Waiters on the old master get an error when it is demoted.
    match waiter.try_read() {
        Ok(reply) => assert!(reply.error().starts_with("UNBLOCKED"), "{reply:?}"),
        Err(error) => assert!(matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{error}"),
    }
    // A sentinel closes the connections of an old master: the message arrives before that, or not at all.
    if let Ok(message) = subscriber.conn.try_read() {
        assert_eq!(message.list()[2].text(), "unblocked 77 told");
    }
    let mut conn = group.conn(new);
    let extended = when_there_are_replicas(&mut conn, &["LOCK.EXTEND", "kept", &kept, "PX", "8000"]);
    assert_eq!(extended, Reply::Int(1));
    assert_eq!(when_there_are_replicas(&mut conn, &["LOCK.RELEASE", "given", &given]), Reply::Int(1));
    // The session ended with the master; the lease did not.
    assert!(conn.lock("bound", "session").is_nil());
    assert!(conn.int(&["LOCK.CHECK", "bound", &bound]) > 0);
    drop(holder);
    assert!(group.conn(old).info("lock", "lock_sessions").unwrap() == "0");

    // The attempt is sent again, joins the new queue, and is notified there after the grace.
    let mut subscriber = Subscriber::on(group.conn(new), "SUBSCRIBE", "c");
    assert_eq!(when_there_are_replicas(&mut conn, &ask), waiting());

    // Nobody else is granted a lock for now, but clients may queue.
    let reply = when_there_are_replicas(&mut conn, &["LOCK.ACQUIRE", "given", "PX", "8000"]);
    assert!(reply.error().starts_with("GRACE"), "{reply:?}");
    let mut waiter = wait_in_queue(&group, new, "given");
    let begin = Instant::now();
    let left: u64 = conn.info("lock", "lock_grace_left_ms").unwrap().parse().unwrap();
    assert!(left > 0);
    waiter.read().int();
    assert!(
        begin.elapsed() + Duration::from_millis(20) >= Duration::from_millis(left),
        "{:?} of {left}",
        begin.elapsed()
    );
    subscriber.gets("granted 77 told");
    let claimed = until_long("the claim", || match conn.execute(&ask) {
        Reply::Int(token) => Some(token),
        _ => None,
    });
    assert!(claimed > kept.parse().unwrap());
    // Its lease has expired by now.
    assert!(grant(&mut conn, "kept", &[]) > kept);

    // A master that is killed takes its waiters' connections with it.
    let mut waiter = wait_in_queue(&group, new, "kept");
    let _held = group.hold_restarts();
    group.signal(new, "KILL");
    assert!(waiter.try_read().is_err());
    group.until_replaced(new);
}
