//! Attempts that wait without a connection, in INFO, LOCK.INFO FULL and LOCK.TOP.

use super::{Queue, Subscriber};
use testkit::{until, Reply};

const FIELDS: [&str; 8] = ["id", "client", "addr", "name", "owner", "waited-ms", "left-ms", "channel"];

#[test]
fn a_queue_shows_both_kinds_of_waiters() {
    let Some(mut queue) = Queue::start() else { return };
    queue.locks.hold();
    queue.ask_with(&["LOCK.ACQUIRE", "k"], "7", &["OWNER", "alice"]);
    let blocked = queue.locks.wait(&["ID", "8", "OWNER", "bob"]);
    queue.ask_with(&["LOCK.MACQUIRE", "2", "l", "k"], "9", &["SNOTIFY", "two words"]);
    let info = queue.execute(&["LOCK.INFO", "k", "FULL"]);
    assert_eq!(info.field("waiters"), Reply::Int(3));
    let rows = info.field("queue");
    for row in rows.list() {
        let names: Vec<String> = row.list().chunks(2).map(|pair| pair[0].text()).collect();
        assert_eq!(names, FIELDS);
    }
    let text = |row: usize, name: &str| rows.list()[row].field(name);
    for (row, id, owner, channel) in [(0, "7", Reply::Text(b"alice".into()), "c"), (2, "9", Reply::Nil, "two words")] {
        assert_eq!((text(row, "id").text(), text(row, "owner")), (id.to_string(), owner));
        assert_eq!(text(row, "channel").text(), channel);
        assert_eq!(["client", "addr", "name"].map(|name| text(row, name)), [Reply::Nil, Reply::Nil, Reply::Nil]);
        assert!((0..10_000).contains(&text(row, "waited-ms").int()));
        assert!((20_000..=30_000).contains(&text(row, "left-ms").int()));
    }
    assert_eq!(text(1, "client").int().to_string(), blocked.id);
    assert!(text(1, "addr").text().starts_with("127.0.0.1:"));
    assert_eq!((text(1, "owner").text(), text(1, "channel")), ("bob".into(), Reply::Nil));
    let top = queue.execute(&["LOCK.TOP"]);
    assert_eq!((top.list().len(), top.list()[0].field("waiters").int()), (1, 3));
}

#[test]
fn the_info_section_counts_what_happens() {
    let Some(mut queue) = Queue::with(&["claim-ms", "600000"]) else { return };
    let names = ["lock_queued", "lock_claims", "lock_unclaimed", "lock_unheard", "lock_waiters", "lock_hand_offs"];
    let numbers = |queue: &mut Queue| names.map(|name| queue.info(name));
    assert_eq!(numbers(&mut queue), [0; 6]);
    let token = queue.locks.hold();
    queue.ask_with(&["LOCK.ACQUIRE", "k"], "1", &["NOTIFY", "nobody"]);
    queue.ask("2");
    queue.ask_with(&["LOCK.ACQUIRE", "k"], "3", &["NOTIFY", "d"]);
    let mut other = Subscriber::of(&queue.locks.server, "d");
    queue.ask_with(&["LOCK.MACQUIRE", "2", "k", "l"], "4", &["NOTIFY", "d"]);
    let blocked = queue.locks.wait(&[]);
    assert_eq!(numbers(&mut queue), [5, 0, 0, 0, 5, 0], "a wait for two keys counts twice");
    assert_eq!(queue.info("lock_blocked"), 1, "lock.max-waiters limits this number");
    super::pass(&mut queue.locks.conn, 5);
    // Only the grant of this release must be claimed soon. The next attempt has a long time to claim its grant.
    let replies = queue.locks.in_one_turn(&[
        &["CONFIG", "SET", "lock.claim-ms", "1"],
        &["LOCK.RELEASE", "k", &token],
        &["CONFIG", "SET", "lock.claim-ms", "600000"],
    ]);
    assert_eq!(replies[1], Reply::Int(1), "{replies:?}");
    queue.subscriber.gets("granted 2 k");
    other.gets("granted 3 k");
    queue.claim("3");
    assert_eq!(numbers(&mut queue), [2, 1, 1, 1, 2, 2]);
    drop(blocked);
    until("it has left", || (queue.info("lock_waiters") == 1).then_some(()));
    // A claim's wait is counted from the first command.
    let spans = queue.locks.conn.info("lock", "lock_wait_percentiles_usec");
    assert!(spans.is_some_and(|spans| spans.starts_with("p50=")), "a wait was recorded");
}

#[test]
fn a_cancelled_grant_that_cannot_be_passed_on_shows_no_lease() {
    let Some(mut queue) = Queue::start() else { return };
    let token = queue.locks.hold();
    let mut caller = queue.locks.server.conn();
    let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000", "ID", "7", "NOTIFY", super::CHANNEL, "SESSION"];
    assert_eq!(caller.execute(&ask), super::waiting());
    queue.locks.release(token);
    queue.subscriber.gets("granted 7 k");
    queue.locks.conn.ok(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    drop(caller);
    until("its place is kept", || (queue.info("lock_places") == 1).then_some(()));
    let shown = ["state", "lease-ms", "free-in-ms"].map(|field| queue.locks.conn.lock("k", field));
    assert_eq!(shown, [Reply::Text(b"held".into()), Reply::Int(0), Reply::Int(0)]);
    queue.locks.conn.ok(&["CLIENT", "UNPAUSE"]);
    until("it has been passed on", || (queue.locks.conn.state("k") == "free").then_some(()));
}

#[test]
fn the_oldest_wait_counts_from_the_first_command() {
    let Some(mut queue) = Queue::start() else { return };
    queue.locks.hold();
    queue.ask("7");
    super::pass(&mut queue.locks.conn, 60);
    queue.ask("7");
    assert!(queue.locks.conn.lock("k", "oldest-wait-ms").int() >= 60);
    let blocked = queue.locks.wait(&["ID", "7"]);
    assert_eq!(queue.locks.waiters(), 1);
    drop(blocked);
}
