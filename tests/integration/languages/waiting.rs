//! Waiting in the queue.

use std::time::{Duration, Instant};

use super::driver::{in_each, in_each_and_protocol, Driver, Hold};
use crate::support::{until, Conn, Reply, Server};

/// The first in line.
fn head(conn: &mut Conn, key: &str) -> Option<Reply> {
    conn.call(&["LOCK.INFO", key, "FULL"]).field("queue").list().first().cloned()
}

/// A lock that is held, and a driver that waits for it.
fn driver_that_waits(server: &Server, driver: &mut Driver, hold: &Hold) -> String {
    let mut conn = server.conn();
    let token = conn.int(&["LOCK.ACQUIRE", &hold.key, "EX", "60"]).to_string();
    driver.hold(hold);
    conn.until_waiters(&hold.key, 1);
    token
}

#[test]
fn a_wait_outlasts_the_time_out_of_the_socket_and_keeps_its_place() {
    let server = Server::start();
    in_each_and_protocol(|language, protocol| {
        let port = server.port();
        let hold = Hold { protocol, wait_ms: 60_000, timeout_ms: 1_000, ..Hold::of(language, port) }.variant(protocol);
        let mut driver = Driver::start(language);
        let token = driver_that_waits(&server, &mut driver, &hold);
        let since = Instant::now();
        let mut conn = server.conn();
        // Somebody who comes right behind it.
        let mut rival = server.waiter(&["LOCK.ACQUIRE", &hold.key, "EX", "60", "WAIT", "60000", "OWNER", "rival"]);
        until("it waits for longer than its time-out, at the beginning of a call", || {
            let head = head(&mut conn, &hold.key)?;
            let is_ours = head.field("owner").text() == "driver";
            (since.elapsed() > Duration::from_secs(3) && is_ours && head.field("left-ms").int() > 400).then_some(())
        });
        assert_eq!(conn.int(&["LOCK.RELEASE", &hold.key, &token]), 1);
        assert!(driver.held() > token.parse().ok());
        driver.leave();
        let token = rival.read().int().to_string();
        assert_eq!(rival.int(&["LOCK.RELEASE", &hold.key, &token]), 1);
    });
}

#[test]
fn a_wait_in_vain_is_refused_when_it_is_over() {
    let server = Server::start();
    in_each(|language| {
        let hold = Hold { wait_ms: 2_500, timeout_ms: 1_000, ..Hold::of(language, server.port()) };
        let mut driver = Driver::start(language);
        driver_that_waits(&server, &mut driver, &hold);
        let since = Instant::now();
        driver.error("refused");
        assert!((1_000..20_000).contains(&since.elapsed().as_millis()), "{:?}", since.elapsed());
        assert_eq!(server.conn().waiters(&hold.key), 0);
        driver.ping(&hold);
    });
}

#[test]
fn a_cancelled_wait_leaves_the_line_and_keeps_no_place() {
    in_each(|language| {
        // A place that is kept is there until the end of the test.
        let (server, mut conn) = Server::with().module_args(&["place-ms", "600000"]).connected();
        let hold = Hold { wait_ms: 60_000, timeout_ms: 2_000, ..Hold::of(language, server.port()) };
        let mut driver = Driver::start(language);
        let token = driver_that_waits(&server, &mut driver, &hold);
        let id = head(&mut conn, &hold.key).expect("a waiter").field("id").text();
        driver.say("cancel");
        driver.error("refused");
        until("its attempt was cancelled", || {
            let info = conn.text(&["INFO", "lock"]);
            (info.contains("lock_waiters:0\r") && info.contains("lock_cancels:1\r")).then_some(())
        });
        assert_eq!(conn.int(&["LOCK.CANCEL", &hold.key, &id]), 0, "no place is kept");
        assert_eq!(conn.int(&["LOCK.RELEASE", &hold.key, &token]), 1);
        assert_eq!(conn.state(&hold.key), "free");
        driver.ping(&hold);
        // The same program can go on to lock.
        driver.hold(&hold);
        driver.held();
        driver.leave();
    });
}

#[test]
fn a_wait_that_an_operator_cancels_is_not_taken_up_again() {
    let server = Server::start();
    in_each(|language| {
        let hold = Hold { wait_ms: 60_000, ..Hold::of(language, server.port()) };
        let mut driver = Driver::start(language);
        driver_that_waits(&server, &mut driver, &hold);
        let mut conn = server.conn();
        let id = head(&mut conn, &hold.key).expect("a waiter").field("id").text();
        assert_eq!(conn.int(&["LOCK.CANCEL", &hold.key, &id]), 1);
        driver.error("refused");
        assert_eq!(conn.waiters(&hold.key), 0);
    });
}
