//! Changes to a lock without an event are found within a second, and when a value's meaning changes, so does what its
//! waiters wait for.

use super::Locks;
use crate::kinds::Row;
use std::time::{Duration, Instant};
use testkit::{bound, server_time_us};

/// Ten times the period of the scan, which covers all locks in 0.9 s.
const SOON: Duration = Duration::from_secs(9);

fn assert_found_soon(value: &str, command: &[&str]) {
    let _row = Row::of((value, command));
    let mut locks = Locks::start();
    locks.server.allow_silent_changes();
    locks.conn.ok(&["SET", "k", value]);
    let mut waiter = locks.wait(&[]);
    waiter.assert_waits();
    let begin = Instant::now();
    let _ = locks.conn.execute(command);
    let granted = waiter.granted();
    bound::wall("an unreported change is found", SOON, begin.elapsed());
    locks.assert_holds(granted);
}

#[test]
fn an_expired_timestamp_over_a_value_is_found() {
    assert_found_soon("foreign", &["SET", "k", "1763710031"]);
    assert_found_soon("99999999999", &["SET", "k", "1763710031"]);
    assert_found_soon("99999999999", &["GETSET", "k", "1763710031"]);
    assert_found_soon("foreign031", &["SETRANGE", "k", "0", "1763710"]);
    assert_found_soon("9999999999", &["DECRBY", "k", "8236289968"]);
}

#[test]
fn an_expiry_on_an_ended_classic_lock_makes_it_foreign() {
    let mut locks = Locks::start();
    let until_us = server_time_us(&mut locks.conn) + 400_000;
    locks.conn.ok(&["SET", "k", &until_us.to_string()]);
    let mut waiter = locks.wait(&[]);
    // If the machine is too slow for this, the key is ours by now and the rest holds trivially.
    if locks.conn.text(&["GET", "k"]) == until_us.to_string() {
        assert_eq!(locks.conn.int(&["PEXPIRE", "k", "800"]), 1);
        if locks.conn.text(&["GET", "k"]) == until_us.to_string() {
            let from = server_time_us(&mut locks.conn);
            let granted = waiter.granted();
            assert!(granted > from + 600_000, "granted {} us after the expiry was set", granted - from);
        }
    }
}

#[test]
fn an_expiry_taken_from_a_foreign_timestamp_makes_it_classic() {
    let mut locks = Locks::start();
    locks.conn.ok(&["SET", "k", "1763710031", "PX", "30000"]);
    let mut waiter = locks.wait(&[]);
    waiter.assert_waits();
    assert_eq!(locks.conn.int(&["PERSIST", "k"]), 1);
    let begin = Instant::now();
    waiter.granted();
    bound::wall("an unreported change is found", SOON, begin.elapsed());
}

#[test]
fn a_key_of_another_type_is_waited_for() {
    let mut locks = Locks::start();
    locks.hold();
    let mut waiter = locks.wait(&[]);
    locks.in_one_turn(&[&["MULTI"], &["DEL", "k"], &["RPUSH", "k", "1"], &["EXEC"]]);
    waiter.assert_waits();
    assert_eq!(locks.conn.text(&["LPOP", "k"]), "1");
    waiter.granted();
}

#[test]
fn an_unreported_extension_is_waited_for() {
    let mut locks = Locks::start();
    locks.conn.ok(&["SET", "k", "foreign", "PX", "100"]);
    let mut waiter = locks.wait(&[]);
    let until_us = server_time_us(&mut locks.conn) + 1_200_000;
    locks.conn.ok(&["SET", "k", &until_us.to_string()]);
    if locks.conn.text(&["GET", "k"]) == until_us.to_string() {
        let granted = waiter.granted();
        assert!(granted >= until_us, "{} us early", until_us - granted);
    }
}
