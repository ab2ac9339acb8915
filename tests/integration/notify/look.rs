//! What INFO, LOCK.INFO FULL and LOCK.TOP show of attempts that wait without a connection.

use super::{Line, Listener};
use testkit::{until, Reply};

const FIELDS: [&str; 8] = ["id", "client", "addr", "name", "owner", "waited-ms", "left-ms", "channel"];

#[test]
fn a_queue_shows_both_kinds_of_waiters_with_all_fields_in_order() {
    let Some(mut line) = Line::start() else { return };
    line.locks.hold();
    line.ask_with(&["LOCK.ACQUIRE", "k"], "7", &["OWNER", "alice"]);
    let blocked = line.locks.wait(&["ID", "8", "OWNER", "bob"]);
    line.ask_with(&["LOCK.MACQUIRE", "2", "l", "k"], "9", &["SNOTIFY", "two words"]);
    let info = line.call(&["LOCK.INFO", "k", "FULL"]);
    assert_eq!(info.field("waiters"), Reply::Int(3));
    let queue = info.field("queue");
    for row in queue.list() {
        let names: Vec<String> = row.list().chunks(2).map(|pair| pair[0].text()).collect();
        assert_eq!(names, FIELDS);
    }
    let text = |row: usize, name: &str| queue.list()[row].field(name);
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
    let top = line.call(&["LOCK.TOP"]);
    assert_eq!((top.list().len(), top.list()[0].field("waiters").int()), (1, 3));
}

#[test]
fn the_section_of_info_counts_what_happens() {
    let Some(mut line) = Line::with(&["claim-ms", "80"]) else { return };
    let names = ["lock_queued", "lock_claims", "lock_unclaimed", "lock_unheard", "lock_waiters", "lock_hand_offs"];
    let numbers = |line: &mut Line| names.map(|name| line.info(name));
    assert_eq!(numbers(&mut line), [0; 6]);
    let token = line.locks.hold();
    line.ask_with(&["LOCK.ACQUIRE", "k"], "1", &["NOTIFY", "nobody"]);
    super::pass(&mut line.locks.conn, 90);
    line.ask("2");
    line.ask_with(&["LOCK.ACQUIRE", "k"], "3", &["NOTIFY", "d"]);
    let mut other = Listener::of(&line.locks.server, "d");
    line.ask_with(&["LOCK.MACQUIRE", "2", "k", "l"], "4", &["NOTIFY", "d"]);
    let blocked = line.locks.wait(&[]);
    assert_eq!(numbers(&mut line), [5, 0, 0, 0, 5, 0], "a wait for two keys counts twice");
    assert_eq!(line.info("lock_blocked"), 1, "what lock.max-waiters bounds");
    line.locks.release(token);
    line.told.hears("granted 2 k");
    other.hears("granted 3 k");
    line.claim("3");
    assert_eq!(numbers(&mut line), [2, 1, 1, 1, 2, 2]);
    drop(blocked);
    until("it has left", || (line.info("lock_waiters") == 1).then_some(()));
    // The wait of a claim counts from the first command.
    let spans = line.locks.conn.info("lock", "lock_wait_percentiles_usec");
    assert!(spans.is_some_and(|spans| spans.starts_with("p50=")), "a wait was recorded");
}

#[test]
fn a_grant_that_is_given_up_and_cannot_pass_on_yet_shows_no_lease() {
    let Some(mut line) = Line::start() else { return };
    let token = line.locks.hold();
    let mut caller = line.locks.server.conn();
    let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000", "ID", "7", "NOTIFY", super::CHANNEL, "SESSION"];
    assert_eq!(caller.call(&ask), super::waiting());
    line.locks.release(token);
    line.told.hears("granted 7 k");
    line.locks.conn.ok(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    drop(caller);
    until("its place is kept", || (line.info("lock_places") == 1).then_some(()));
    let shown = ["state", "lease-ms", "free-in-ms"].map(|field| line.locks.conn.lock("k", field));
    assert_eq!(shown, [Reply::Text(b"held".into()), Reply::Int(0), Reply::Int(0)]);
    line.locks.conn.ok(&["CLIENT", "UNPAUSE"]);
    until("it has passed on", || (line.locks.conn.state("k") == "free").then_some(()));
}

#[test]
fn the_oldest_wait_is_that_of_the_first_call() {
    let Some(mut line) = Line::start() else { return };
    line.locks.hold();
    line.ask("7");
    super::pass(&mut line.locks.conn, 60);
    line.ask("7");
    assert!(line.locks.conn.lock("k", "oldest-wait-ms").int() >= 60);
    let blocked = line.locks.wait(&["ID", "7"]);
    assert_eq!(line.locks.waiters(), 1);
    drop(blocked);
}
