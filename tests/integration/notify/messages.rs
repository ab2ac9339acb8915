//! Notifications: the content of the messages, byte for byte, and their channels.

use super::{Queue, Subscriber};
use crate::kinds::Row;
use crate::waiting::QUIET;
use testkit::{encoded, Server};

/// A message as received by a subscriber.
fn message(kind: &str, text: &[u8]) -> Vec<u8> {
    let words: [&[u8]; 3] = [b"message", b"c", text];
    let mut bytes = encoded(&words);
    bytes[0] = kind.as_bytes()[0];
    bytes
}

#[test]
fn messages_end_with_the_key_in_both_protocols() {
    let Some(mut queue) = Queue::start() else { return };
    let mut subscriber = queue.locks.server.conn();
    subscriber.execute(&["HELLO", "3"]);
    subscriber.execute(&["SUBSCRIBE", "c"]);
    let keys: [&[u8]; 6] =
        [b"k", b"two words  and more ", b"", b"\0\xff\xfe\r\n$4\r\n", "\u{540d}".as_bytes(), &[b'k'; 4096]];
    for key in keys {
        let mut call = |args: &[&[u8]]| queue.locks.conn.execute(args);
        let token = call(&[b"LOCK.ACQUIRE", key, b"PX", b"30000"]).int().to_string();
        let ask = [b"LOCK.ACQUIRE", key, b"PX", b"30000", b"WAIT", b"30000", b"ID", b"0042", b"NOTIFY", b"c"];
        assert_eq!(call(&ask), super::waiting());
        assert_eq!(call(&[b"LOCK.RELEASE", key, token.as_bytes()]).int(), 1);
        let expected = [&b"granted 42 "[..], key].concat();
        assert_eq!(queue.subscriber.conn.raw_reply(), message("*", &expected));
        assert_eq!(subscriber.raw_reply(), message(">", &expected));
        let mut call = |args: &[&[u8]]| queue.locks.conn.execute(args);
        let token = call(&[b"LOCK.ACQUIRE", key, b"PX", b"30000", b"ID", b"42"]).int().to_string();
        assert_eq!(call(&[b"LOCK.RELEASE", key, token.as_bytes()]).int(), 1);
    }
}

/// The ways to free a lock.
type Free = (&'static str, fn(&mut Queue, &str));

const WAYS: [Free; 10] = [
    ("LOCK.RELEASE", |queue, token| queue.locks.release(token)),
    ("the lease", |queue, token| assert_eq!(queue.execute(&["LOCK.EXTEND", "k", token, "PX", "20"]).int(), 1)),
    ("DEL", |queue, _| assert_eq!(queue.execute(&["DEL", "k"]).int(), 1)),
    ("UNLINK", |queue, _| assert_eq!(queue.execute(&["UNLINK", "k"]).int(), 1)),
    ("RENAME", |queue, _| queue.locks.conn.ok(&["RENAME", "k", "elsewhere"])),
    ("MOVE", |queue, _| assert_eq!(queue.execute(&["MOVE", "k", "1"]).int(), 1)),
    ("FLUSHDB", |queue, _| queue.locks.conn.ok(&["FLUSHDB"])),
    ("FLUSHALL", |queue, _| queue.locks.conn.ok(&["FLUSHALL"])),
    ("SWAPDB", |queue, _| queue.locks.conn.ok(&["SWAPDB", "0", "1"])),
    ("a native expiry", |queue, _| {
        queue.locks.conn.ok(&["SET", "k", "foreign", "PX", "20"]);
    }),
];

#[test]
fn an_attempt_gets_its_turn_however_the_lock_is_freed() {
    for (name, free) in WAYS {
        let _row = Row::of(name);
        let Some(mut queue) = Queue::start() else { return };
        let token = queue.locks.hold();
        queue.ask("7");
        queue.subscriber.gets_nothing();
        free(&mut queue, &token);
        queue.takes_its_turn("7");
        queue.locks.assert_no_missed_wakeups();
    }
}

#[test]
fn an_attempt_gets_its_turn_when_a_session_ends() {
    let Some(mut queue) = Queue::start() else { return };
    let mut holder = queue.locks.server.conn();
    holder.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "SESSION"]);
    queue.ask("7");
    drop(holder);
    queue.takes_its_turn("7");
}

#[test]
fn every_subscriber_gets_the_message() {
    let Some(mut queue) = Queue::start() else { return };
    let mut second = Subscriber::of(&queue.locks.server, "c");
    let mut pattern = Subscriber::on(queue.locks.server.conn(), "PSUBSCRIBE", "*");
    let token = queue.locks.hold();
    queue.ask("7");
    queue.locks.release(token);
    second.gets("granted 7 k");
    pattern.gets("granted 7 k");
    queue.takes_its_turn("7");
}

#[test]
fn a_message_is_not_sent_to_subscribers_of_a_replica() {
    let Some(mut queue) = Queue::start() else { return };
    let replica = Server::start();
    replica.replicate(&queue.locks.server);
    let mut there = Subscriber::of(&replica, "c");
    let token = queue.locks.hold();
    queue.ask("7");
    queue.locks.release(token);
    queue.takes_its_turn("7");
    queue.locks.server.wait_offset(&replica);
    assert!(there.conn.no_reply_within(QUIET));
    // A message from PUBLISH is sent to them, so they are subscribed.
    queue.execute(&["PUBLISH", "c", "hello"]);
    there.gets("hello");
}
