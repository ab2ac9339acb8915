//! Sets that other commands write or change: a set without holders is of the wrong type, waited for and left alone; a
//! set of holders is read again after every change.

use super::members;
use crate::kinds::{acquire, acquire_all, Row};
use crate::waiting::Locks;
use testkit::{Reply, Server};

const MEMBER: &str = "1763710000482913";

/// Scores and members that holders cannot have.
const FOREIGN: [&[&str]; 9] = [
    &["5", "x"],
    &["9999999999", MEMBER, "9999999999", "x"],
    &["-1", MEMBER],
    &["10000000000", MEMBER],
    &["inf", MEMBER],
    &["9999999999", MEMBER, "-inf", "1763710000482914"],
    &["9999999999", ""],
    &["9999999999", "9999999999999999"],
    &["9999999999", MEMBER, "9999999998", "1763710000482913 bob"],
];

#[test]
fn a_foreign_set_is_wrongtype_and_stays() {
    let mut locks = Locks::start();
    let conn = &mut locks.conn;
    for set in FOREIGN {
        let _row = Row::of(set);
        conn.execute(&["DEL", "k"]);
        conn.execute(&[&["ZADD", "k"], set].concat());
        let before = conn.execute(&["DUMP", "k"]);
        for command in [
            "LOCK.ACQUIRE k EX 5",
            "LOCK.ACQUIRE k EX 5 SHARED",
            "LOCK.ACQUIRE k EX 5 LIMIT 100 WAIT 1000",
            "LOCK.RECOVER k EX 5",
            "LOCK.EXTEND k 1763710000482913 EX 5",
            "LOCK.RELEASE k 1763710000482913",
            "LOCK.CHECK k 1763710000482913",
            "LOCK.CANCEL k 5",
            "LOCK.INFO k",
            "LOCK.MACQUIRE 2 j k EX 5",
            "LOCK.MACQUIRE 2 j k EX 5 WAIT 1000",
            "LOCK.MEXTEND 2 j k 1763710000482913 EX 5",
            "LOCK.MRELEASE 2 j k 1763710000482913",
        ] {
            let args: Vec<&str> = command.split(' ').collect();
            assert!(conn.execute(&args).error().starts_with("WRONGTYPE "), "{command}");
        }
        assert_eq!((conn.execute(&["DUMP", "k"]), conn.int(&["EXISTS", "j"])), (before, 0));
        assert_eq!(conn.execute(&["LOCK.SCAN", "0", "COUNT", "100"]).list()[1].list().len(), 0);
    }
    assert_eq!(["lock_waiters", "lock_places"].map(|field| locks.info("lock", field)), [0, 0]);
}

#[test]
fn a_new_foreign_set_is_waited_for_too() {
    for foreign in FOREIGN {
        let _row = Row::of(foreign);
        let mut locks = Locks::start();
        let held = locks.hold();
        let mut all = locks.wait_with(&["LOCK.MACQUIRE", "3", "k", "l", "m", "EX", "60", "WAIT", "60000"]);
        let add = [&["ZADD", "l"], foreign].concat();
        locks.in_one_turn(&[&["MULTI"], &add, &["LOCK.RELEASE", "k", &held], &["EXEC"]]);
        all.assert_waits();
        assert_eq!(locks.conn.int(&["EXISTS", "k", "m"]), 0, "nothing is reserved");
        let both = acquire_all(&mut locks.conn, &["k", "m"], &["EX", "60"]);
        assert_eq!(locks.conn.int(&["LOCK.MRELEASE", "2", "k", "m", &both]), 2);
        assert_eq!(locks.conn.int(&["ZCARD", "l"]), i64::try_from(foreign.len() / 2).unwrap());
        assert_eq!(locks.conn.int(&["DEL", "l"]), 1);
        let token = all.granted().to_string();
        assert_eq!(locks.conn.int(&["LOCK.MRELEASE", "3", "k", "l", "m", &token]), 3);
    }
}

#[test]
fn a_foreign_member_stops_the_queue() {
    let mut locks = Locks::start();
    let held = acquire(&mut locks.conn, &["k", "EX", "60", "SHARED"]);
    let (mut alone, mut shared) = (locks.wait(&[]), locks.wait(&["SHARED"]));
    assert_eq!(locks.conn.int(&["ZADD", "k", "1", "player"]), 1);
    alone.assert_waits();
    shared.assert_waits();
    assert_eq!(locks.conn.int(&["ZREM", "k", "player"]), 1);
    locks.release(&held);
    let token = alone.granted();
    shared.assert_waits();
    locks.release(token);
    shared.granted();
}

#[test]
fn a_set_that_others_changed_or_replaced_is_read_anew() {
    let server = Server::start();
    let mut conn = server.conn();
    let tokens: Vec<String> = (0..500).map(|_| acquire(&mut conn, &["k", "EX", "600", "LIMIT", "500"])).collect();
    let [first, middle, last] = [&tokens[0], &tokens[250], &tokens[499]];
    let dump = conn.execute(&["DUMP", "k"]);
    let Reply::Text(dump) = dump else { panic!("{dump:?}") };
    for gone in [middle, last] {
        assert_eq!(conn.int(&["ZREM", "k", gone]), 1);
        assert_eq!(conn.int(&["LOCK.CHECK", "k", gone]), 0, "the module sees that there are fewer");
    }
    // The same count and the same first member: going by its memory, the module would take this for a set of holders.
    assert_eq!(conn.int(&["ZADD", "k", "9999999999", "player"]), 1);
    assert!(conn.execute(&["LOCK.CHECK", "k", first]).error().starts_with("WRONGTYPE "), "a new last member shows");
    assert_eq!(conn.int(&["ZREM", "k", "player"]), 1);
    assert!(conn.int(&["LOCK.CHECK", "k", first]) > 0);
    let again = acquire(&mut conn, &["k", "EX", "600", "LIMIT", "499"]);
    assert!(again > *last);
    assert_eq!(members(&mut conn, "k").len(), 499);

    assert_eq!(conn.int(&["DEL", "k"]), 1);
    assert_eq!(conn.int(&["LOCK.CHECK", "k", first]), 0);
    acquire(&mut conn, &["k", "EX", "600"]);
    let restore: [&[u8]; 5] = [b"RESTORE", b"k", b"0", &dump, b"REPLACE"];
    assert_eq!(conn.execute(&restore), Reply::Status("OK".into()));
    assert!(conn.int(&["LOCK.CHECK", "k", first]) > 0);
    // A set of the same length replaces it.
    let others: Vec<String> = (0..500).map(|_| acquire(&mut conn, &["other", "EX", "600", "SHARED"])).collect();
    conn.ok(&["RENAME", "other", "k"]);
    for (gone, there) in [(first, &others[0]), (middle, &others[250]), (last, &others[499])] {
        assert_eq!(conn.int(&["LOCK.CHECK", "k", gone]), 0);
        assert!(conn.int(&["LOCK.CHECK", "k", there]) > 0);
        assert_eq!(conn.int(&["LOCK.RELEASE", "k", gone]), 0);
    }
    assert_eq!(conn.int(&["ZCARD", "k"]), 500);
}
