//! Notifications: the content of the messages, byte for byte, and their channels.

use super::{Line, Listener};
use crate::kinds::Row;
use crate::waiting::QUIET;
use testkit::{encoded, Server};

/// A message as a subscriber gets it.
fn message(kind: &str, text: &[u8]) -> Vec<u8> {
    let words: [&[u8]; 3] = [b"message", b"c", text];
    let mut bytes = encoded(&words);
    bytes[0] = kind.as_bytes()[0];
    bytes
}

#[test]
fn a_message_ends_with_the_bytes_of_the_key_in_both_protocols() {
    let Some(mut line) = Line::start() else { return };
    let mut listener = line.locks.server.conn();
    listener.call(&["HELLO", "3"]);
    listener.call(&["SUBSCRIBE", "c"]);
    let keys: [&[u8]; 6] =
        [b"k", b"two words  and more ", b"", b"\0\xff\xfe\r\n$4\r\n", "\u{540d}".as_bytes(), &[b'k'; 4096]];
    for key in keys {
        let mut call = |args: &[&[u8]]| line.locks.conn.call(args);
        let token = call(&[b"LOCK.ACQUIRE", key, b"PX", b"30000"]).int().to_string();
        let ask = [b"LOCK.ACQUIRE", key, b"PX", b"30000", b"WAIT", b"30000", b"ID", b"0042", b"NOTIFY", b"c"];
        assert_eq!(call(&ask), super::waiting());
        assert_eq!(call(&[b"LOCK.RELEASE", key, token.as_bytes()]).int(), 1);
        let expected = [&b"granted 42 "[..], key].concat();
        assert_eq!(line.told.conn.raw_reply(), message("*", &expected));
        assert_eq!(listener.raw_reply(), message(">", &expected));
        let mut call = |args: &[&[u8]]| line.locks.conn.call(args);
        let token = call(&[b"LOCK.ACQUIRE", key, b"PX", b"30000", b"ID", b"42"]).int().to_string();
        assert_eq!(call(&[b"LOCK.RELEASE", key, token.as_bytes()]).int(), 1);
    }
}

/// The ways a lock is freed.
type Free = (&'static str, fn(&mut Line, &str));

const WAYS: [Free; 10] = [
    ("LOCK.RELEASE", |line, token| line.locks.release(token)),
    ("the lease", |line, token| assert_eq!(line.call(&["LOCK.EXTEND", "k", token, "PX", "20"]).int(), 1)),
    ("DEL", |line, _| assert_eq!(line.call(&["DEL", "k"]).int(), 1)),
    ("UNLINK", |line, _| assert_eq!(line.call(&["UNLINK", "k"]).int(), 1)),
    ("RENAME", |line, _| line.locks.conn.ok(&["RENAME", "k", "elsewhere"])),
    ("MOVE", |line, _| assert_eq!(line.call(&["MOVE", "k", "1"]).int(), 1)),
    ("FLUSHDB", |line, _| line.locks.conn.ok(&["FLUSHDB"])),
    ("FLUSHALL", |line, _| line.locks.conn.ok(&["FLUSHALL"])),
    ("SWAPDB", |line, _| line.locks.conn.ok(&["SWAPDB", "0", "1"])),
    ("a native expiry", |line, _| {
        line.locks.conn.ok(&["SET", "k", "foreign", "PX", "20"]);
    }),
];

#[test]
fn its_turn_comes_however_the_lock_comes_free() {
    for (name, free) in WAYS {
        let _row = Row::of(name);
        let Some(mut line) = Line::start() else { return };
        let token = line.locks.hold();
        line.ask("7");
        line.told.hears_nothing();
        free(&mut line, &token);
        line.takes_its_turn("7");
        line.locks.assert_no_missed_wakeups();
    }
}

#[test]
fn the_end_of_a_session_is_its_turn() {
    let Some(mut line) = Line::start() else { return };
    let mut holder = line.locks.server.conn();
    holder.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "SESSION"]);
    line.ask("7");
    drop(holder);
    line.takes_its_turn("7");
}

#[test]
fn everybody_who_listens_is_told_also_by_a_pattern() {
    let Some(mut line) = Line::start() else { return };
    let mut second = Listener::of(&line.locks.server, "c");
    let mut pattern = Listener::on(line.locks.server.conn(), "PSUBSCRIBE", "*");
    let token = line.locks.hold();
    line.ask("7");
    line.locks.release(token);
    second.hears("granted 7 k");
    pattern.hears("granted 7 k");
    line.takes_its_turn("7");
}

#[test]
fn a_message_is_not_sent_to_subscribers_of_a_replica() {
    let Some(mut line) = Line::start() else { return };
    let replica = Server::start();
    replica.replicate(&line.locks.server);
    let mut there = Listener::of(&replica, "c");
    let token = line.locks.hold();
    line.ask("7");
    line.locks.release(token);
    line.takes_its_turn("7");
    line.locks.server.wait_offset(&replica);
    assert!(there.conn.silent_for(QUIET));
    // PUBLISH is, so they are subscribed.
    line.call(&["PUBLISH", "c", "hello"]);
    there.hears("hello");
}
