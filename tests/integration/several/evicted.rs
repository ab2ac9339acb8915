//! A lock of several holders that was evicted stays taken for those who wait, by all who were last seen: no more than
//! the limit hold it, and nobody alone beside one who lives.

use super::acquire;
use crate::support::{until, Server};
use crate::waiting::{is_silent, Locks, Waiter};
use std::time::Duration;

/// Two hold the lock, for three seconds and for a minute; these wait, and then it is evicted.
fn evicted(waiters: &[&[&str]]) -> (Locks, Vec<Waiter>) {
    let options = Server::with().args(&["--maxmemory-policy", "allkeys-random"]).module_args(&["margin-ms", "0"]);
    let mut locks = Locks::on(options.start());
    let short = acquire(&mut locks.conn, &["k", "PX", "3000", "LIMIT", "2"]);
    acquire(&mut locks.conn, &["k", "EX", "60", "LIMIT", "2"]);
    let mut waiters: Vec<Waiter> = waiters.iter().map(|options| locks.wait(options)).collect();
    assert!(locks.conn.int(&["LOCK.CHECK", "k", &short]) > 0, "in time");
    // Every key is evicted, in vain.
    locks.conn.ok(&["CONFIG", "SET", "maxmemory", "1"]);
    until("the lock is evicted", || {
        let _ = locks.conn.call(&["SET", "filler", "1"]);
        (locks.conn.int(&["DBSIZE"]) == 0).then_some(())
    });
    locks.conn.ok(&["CONFIG", "SET", "maxmemory", "0"]);
    waiters[0].assert_waits();
    (locks, waiters)
}

#[test]
fn no_more_than_the_limit_are_admitted_after_it() {
    let (_locks, mut waiters) = evicted(&[&["LIMIT", "2"], &["LIMIT", "2"]]);
    // One of the two who were last seen lives for a minute: there is one place, if it is given away at all.
    if !is_silent(&mut waiters[0].conn, Duration::from_secs(5)) {
        waiters[0].granted();
    }
    waiters[1].assert_waits();
}

#[test]
fn nobody_is_alone_after_it_beside_one_who_lives() {
    let (mut locks, mut waiters) = evicted(&[&["LIMIT", "2"], &[]]);
    if !is_silent(&mut waiters[0].conn, Duration::from_secs(5)) {
        let token = waiters[0].granted();
        locks.release(token);
    }
    waiters[1].assert_waits();
}
