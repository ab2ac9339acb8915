//! What belongs to others stays theirs: whoever gives several locks back, waits for several, or whose session ends.

use super::{acquire, acquire_all};
use crate::support::{server_time_us, until, Conn, Server};

#[test]
fn what_another_holds_is_not_released_with_several() {
    let server = Server::start();
    let mut conn = server.conn();
    let own = acquire_all(&mut conn, &["a", "b"], &["EX", "60"]);
    let other = acquire(&mut conn, &["c", "EX", "60"]);
    let shared = acquire(&mut conn, &["d", "EX", "60", "SHARED"]);
    assert_eq!(conn.int(&["LOCK.MRELEASE", "4", "a", "b", "c", "d", &other]), 1);
    assert_eq!(conn.int(&["LOCK.MRELEASE", "4", "d", "c", "b", "a", &own]), 2);
    assert!(conn.int(&["LOCK.CHECK", "d", &shared]) > 0);
    assert_eq!(conn.int(&["DBSIZE"]), 1);
}

#[test]
fn a_session_that_ends_ends_its_own_of_several_holders() {
    let server = Server::with().module_args(&["margin-ms", "0"]).start();
    let mut control = server.conn();
    let before = acquire(&mut control, &["k", "EX", "60", "SHARED"]);
    let mut dying = server.conn();
    let own = acquire(&mut dying, &["k", "EX", "60", "SHARED", "SESSION"]);
    let after = acquire(&mut control, &["k", "EX", "60", "SHARED"]);
    drop(dying);
    until("its own has ended", || (control.int(&["LOCK.CHECK", "k", &own]) == 0).then_some(()));
    for other in [before, after] {
        assert!(control.int(&["LOCK.CHECK", "k", &other]) > 0);
    }
}

#[test]
fn overdue_holders_count_neither_for_nor_against_a_place() {
    let server = Server::with().module_args(&["margin-ms", "0"]).start();
    let mut conn = server.conn();
    for lease in ["1", "1", "60000", "60000"] {
        acquire(&mut conn, &["k", "PX", lease, "SHARED"]);
    }
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(conn.call(&["LOCK.ACQUIRE", "k", "EX", "60", "LIMIT", "2"]).is_nil());
    acquire(&mut conn, &["k", "EX", "60", "LIMIT", "3"]);
    assert!(conn.call(&["LOCK.ACQUIRE", "k", "EX", "60", "LIMIT", "3"]).is_nil());
}

/// How long after a moment of the server a grant was.
fn after(token: i64, moment: i64) -> i64 {
    token - moment
}

#[test]
fn whichever_of_several_locks_comes_free_last_they_are_granted_in_that_turn_of_the_loop() {
    const ROUNDS: usize = 15;
    let server = Server::start();
    let mut control = server.conn();
    let mut waiter = server.conn();
    let mut waits = |last: &str, round: usize| {
        let names = ["a", "b", "c"].map(|name| format!("{name}-{last}-{round}"));
        let keys = names.each_ref().map(String::as_str);
        let held = keys.map(|key| acquire(&mut control, &[key, "EX", "60"]));
        waiter.send(&[&["LOCK.MACQUIRE", "3"], &keys[..], &["EX", "60", "WAIT", "60000"]].concat());
        until("it waits", || (waiters(&mut control, keys[0]) == 1).then_some(()));
        let is_last = |key: &&str| key.starts_with(last);
        let released = |control: &mut Conn, is: bool| {
            for (key, token) in keys.iter().zip(&held).filter(|(key, _)| is_last(key) == is) {
                assert_eq!(control.int(&["LOCK.RELEASE", key, token]), 1);
            }
        };
        released(&mut control, false);
        let before = server_time_us(&mut control);
        released(&mut control, true);
        after(waiter.read().int(), before)
    };
    for last in ["a", "b", "c"] {
        let mut delays: Vec<i64> = (0..ROUNDS).map(|round| waits(last, round)).collect();
        delays.sort_unstable();
        // A token is the time of its grant; a look at all lines would come within 900 ms. A busy machine may delay some.
        assert!(delays[ROUNDS / 2] < 100_000, "{last}: {delays:?}");
    }
}

fn waiters(conn: &mut Conn, key: &str) -> i64 {
    conn.call(&["LOCK.INFO", key]).field("waiters").int()
}
