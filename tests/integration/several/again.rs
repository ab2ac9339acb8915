//! An attempt that is sent again: what it is told of its predecessors, and of a lock that it holds in another way.

use super::{acquire, acquire_all};
use crate::support::{until, Conn, Reply, Server};
use crate::waiting::Locks;

/// Two locks, of which alice has let the first expire; the ID 7 takes both. Its token, and that of alice.
fn taken_with_a_predecessor(conn: &mut Conn, keys: [&str; 2]) -> (String, i64) {
    let before = acquire(conn, &["a", "PX", "1", "OWNER", "alice"]);
    until("it has expired", || (conn.call(&["LOCK.INFO", "a"]).field("state").text() == "expired").then_some(()));
    (acquire_all(conn, &keys, &["EX", "60", "ID", "7"]), before.parse().unwrap())
}

fn details_of(conn: &mut Conn, key: &str) -> Vec<Reply> {
    conn.call(&["LOCK.ACQUIRE", key, "EX", "60", "ID", "7", "DETAILS"]).list().to_vec()
}

#[test]
fn each_of_several_locks_has_a_predecessor_of_its_own() {
    for keys in [["a", "b"], ["b", "a"]] {
        let server = Server::with().module_args(&["margin-ms", "0"]).start();
        let mut conn = server.conn();
        let (token, before) = taken_with_a_predecessor(&mut conn, keys);
        for _ in 0..2 {
            let of_b = details_of(&mut conn, "b");
            assert_eq!(of_b[0].int().to_string(), token);
            assert_eq!(of_b[1..], [Reply::Nil, Reply::Nil, Reply::Nil], "{keys:?}: nobody had b");
            let of_a = details_of(&mut conn, "a");
            assert_eq!(of_a[0].int().to_string(), token);
            assert_eq!((of_a[2].int(), of_a[3].text()), (before, "alice".into()), "{keys:?}");
            assert_eq!(acquire_all(&mut conn, &keys, &["EX", "60", "ID", "7"]), token);
        }
    }
}

#[test]
fn so_it_has_after_a_wait() {
    let mut locks = Locks::start();
    let held = acquire(&mut locks.conn, &["b", "EX", "60"]);
    let before = acquire(&mut locks.conn, &["a", "PX", "1", "OWNER", "alice"]);
    let mut waiter = locks.wait_with(&["LOCK.MACQUIRE", "2", "b", "a", "EX", "60", "ID", "7", "WAIT", "60000"]);
    assert_eq!(locks.conn.int(&["LOCK.RELEASE", "b", &held]), 1);
    waiter.granted();
    let of_a = details_of(&mut locks.conn, "a");
    assert_eq!((of_a[2].int().to_string(), of_a[3].text()), (before, "alice".into()));
    assert!(details_of(&mut locks.conn, "b")[3].is_nil());
}

#[test]
fn an_id_that_holds_among_several_is_no_id_of_a_lock_alone_nor_the_other_way_round() {
    let server = Server::start();
    let mut conn = server.conn();
    for share in [&["SHARED"][..], &["LIMIT", "3"]] {
        conn.int(&["DEL", "k", "l"]);
        let call = ["LOCK.ACQUIRE", "k", "EX", "60", "ID", "7"];
        let token = acquire(&mut conn, &[&call[1..], share].concat());
        let before = conn.call(&["DUMP", "k"]);
        let all = ["LOCK.MACQUIRE", "2", "l", "k", "EX", "90", "ID", "7"];
        for alone in [&call[..], &[&call[..], &["WAIT", "60000"]].concat(), &all] {
            assert_eq!(
                conn.call(alone).error(),
                "ERR id holds this lock with SHARED or LIMIT: send it again with one of them, or use a new id",
                "{alone:?}"
            );
        }
        assert_eq!((conn.call(&["DUMP", "k"]), conn.int(&["EXISTS", "l"])), (before, 0), "nothing has changed");
        for again in [&["SHARED"][..], &["LIMIT", "3"]] {
            assert_eq!(acquire(&mut conn, &[&call[1..], again].concat()), token);
        }
        // Another ID is refused as ever, and this one is as good as new when its grant is over.
        assert!(conn.call(&["LOCK.ACQUIRE", "k", "EX", "60", "ID", "8"]).is_nil());
        assert_eq!(conn.int(&["LOCK.RELEASE", "k", &token]), 1);
        assert!(acquire(&mut conn, &call[1..]) > token);
        let before = conn.call(&["GET", "k"]);
        for share in [&["SHARED"][..], &["LIMIT", "3"], &["SHARED", "WAIT", "60000"]] {
            assert_eq!(
                conn.call(&[&call[..], share].concat()).error(),
                "ERR id holds this lock without SHARED and LIMIT: send it again without them, or use a new id",
                "{share:?}"
            );
        }
        assert_eq!(conn.call(&["GET", "k"]), before, "nothing has changed");
    }
}

#[test]
fn an_id_that_waits_may_change_its_mind() {
    let mut locks = Locks::start();
    let held = acquire(&mut locks.conn, &["k", "EX", "60", "SHARED"]);
    let mut alone = locks.wait(&["ID", "7"]);
    let shared = acquire(&mut locks.conn, &["k", "EX", "60", "SHARED", "ID", "7"]);
    assert!(shared > held, "it is first in line, and fits beside the holder");
    assert!(alone.conn.read().error().starts_with("UNBLOCKED "));
}
