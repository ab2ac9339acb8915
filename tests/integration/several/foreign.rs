//! What others put where several locks are waited for: it is waited for until it goes, and nothing of it changes.

use super::{acquire, acquire_all};
use crate::support::Reply;
use crate::waiting::Locks;

/// Sets that are none of holders: with a foreign member, with a score that is no timestamp, of another's only.
const FOREIGN: [&[&str]; 3] = [
    &["9999999999", "1763710000482913", "5", "worker-7"],
    &["9999999999", "1763710000482913", "-inf", "1763710000482914"],
    &["17", "player"],
];

const ALL: &[&str] = &["LOCK.MACQUIRE", "3", "k", "l", "m", "EX", "60", "WAIT", "60000"];

#[test]
fn a_set_of_others_that_comes_while_several_locks_are_waited_for_is_waited_for() {
    for foreign in FOREIGN {
        let mut locks = Locks::start();
        let held = locks.hold();
        let mut all = locks.wait_with(ALL);
        let add = [&["ZADD", "l"], foreign].concat();
        locks.in_one_turn(&[&["MULTI"], &add, &["LOCK.RELEASE", "k", &held], &["EXEC"]]);
        all.assert_waits();
        assert_eq!(locks.conn.int(&["EXISTS", "k", "m"]), 0, "nothing is reserved");
        assert!(locks.conn.call(&["LOCK.MACQUIRE", "1", "l", "EX", "5"]).error().starts_with("WRONGTYPE "));
        // One more who waits for the others alone has them.
        let both = acquire_all(&mut locks.conn, &["k", "m"], &["EX", "60"]);
        assert_eq!(locks.conn.int(&["LOCK.MRELEASE", "2", "k", "m", &both]), 2);
        assert_eq!(locks.conn.int(&["ZCARD", "l"]), i64::try_from(foreign.len() / 2).unwrap());
        assert_eq!(locks.conn.int(&["DEL", "l"]), 1);
        let token = all.granted().to_string();
        assert_eq!(locks.conn.int(&["LOCK.MRELEASE", "3", "k", "l", "m", &token]), 3);
    }
}

#[test]
fn several_locks_one_of_which_is_a_set_of_others_are_refused_at_once_with_or_without_a_wait() {
    for foreign in FOREIGN {
        let mut locks = Locks::start();
        locks.conn.int(&[&["ZADD", "m"], foreign].concat());
        locks.hold();
        for call in [ALL, &ALL[..7]] {
            assert!(locks.conn.call(call).error().starts_with("WRONGTYPE "), "{call:?}");
        }
        assert_eq!(locks.info("lock", "lock_waiters"), 0);
        assert_eq!(locks.info("lock", "lock_places"), 0);
        assert_eq!(locks.conn.int(&["EXISTS", "l"]), 0);
    }
}

#[test]
fn a_member_of_others_among_the_holders_stops_the_line_until_it_goes() {
    let mut locks = Locks::start();
    let held = acquire(&mut locks.conn, &["k", "EX", "60", "SHARED"]);
    let mut alone = locks.wait(&[]);
    let mut shared = locks.wait(&["SHARED"]);
    assert_eq!(locks.conn.int(&["ZADD", "k", "1", "player"]), 1);
    let before = locks.conn.call(&["DUMP", "k"]);
    for call in [&["LOCK.RELEASE", "k", &held][..], &["LOCK.CHECK", "k", &held], &["LOCK.INFO", "k"]] {
        assert!(locks.conn.call(call).error().starts_with("WRONGTYPE "), "{call:?}");
    }
    alone.assert_waits();
    shared.assert_waits();
    assert_eq!(locks.conn.call(&["DUMP", "k"]), before);
    assert_eq!(locks.conn.int(&["ZREM", "k", "player"]), 1);
    assert_eq!(locks.conn.int(&["LOCK.RELEASE", "k", &held]), 1);
    let token = alone.granted();
    shared.assert_waits();
    locks.release(token);
    shared.granted();
}

#[test]
fn a_set_of_others_that_is_full_of_members_is_told_apart_too() {
    let mut locks = Locks::start();
    let tokens: Vec<String> = (0..500).map(|_| acquire(&mut locks.conn, &["k", "EX", "60", "SHARED"])).collect();
    // As many as before, and the same first and last: what was kept would say it is ours.
    let (first, middle) = (&tokens[0], &tokens[250]);
    locks.in_one_turn(&[&["MULTI"], &["ZREM", "k", middle], &["EXEC"]]);
    assert_eq!(locks.conn.int(&["LOCK.CHECK", "k", middle]), 0, "fewer are seen");
    assert_eq!(locks.conn.int(&["ZADD", "k", "9999999999", "player"]), 1);
    assert!(locks.conn.call(&["LOCK.CHECK", "k", first]).error().starts_with("WRONGTYPE "), "another last is seen");
    assert_eq!(locks.conn.int(&["ZREM", "k", "player"]), 1);
    assert!(locks.conn.int(&["LOCK.CHECK", "k", first]) > 0);
    let dump = locks.conn.call(&["LOCK.INFO", "k", "FULL"]).field("holders");
    assert!(matches!(dump, Reply::List(holders) if holders.len() == 499));
}
