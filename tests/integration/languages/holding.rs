//! Taking a lock, holding it, and releasing it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::driver::{in_each, Driver, Hold};
use crate::support::{until, Server};

#[test]
fn a_free_lock_is_held_with_a_token_that_grows_and_given_back() {
    let server = Server::start();
    in_each(|language| {
        let mut conn = server.conn();
        let mut driver = Driver::start(language);
        let mut last = 0;
        for protocol in language.protocols {
            let hold = Hold { protocol: *protocol, prefix: "app:", ..Hold::of(language, server.port()) };
            let key = format!("app:{}", hold.key);
            driver.hold(&hold);
            let token = driver.held().expect("a token");
            let lock = conn.call(&["LOCK.INFO", &key]);
            assert_eq!((lock.field("state").text(), lock.field("token").int()), ("held".into(), token));
            assert_eq!(lock.field("owner").text(), "driver");
            assert!(!lock.field("id").is_nil(), "without an ID nothing can be sent again");
            assert!(token > last);
            last = token;
            driver.leave();
            assert_eq!(conn.state(&key), "free");
        }
    });
}

#[test]
fn a_lock_that_somebody_has_is_refused_at_once() {
    let server = Server::start();
    in_each(|language| {
        let hold = Hold::of(language, server.port());
        let mut conn = server.conn();
        let token = conn.int(&["LOCK.ACQUIRE", &hold.key, "EX", "60"]);
        let mut driver = Driver::asking(language, &hold);
        assert!(driver.error("refused").contains(&hold.key));
        driver.ping(&hold);
        let lock = conn.call(&["LOCK.INFO", &hold.key]);
        assert_eq!((lock.field("token").int(), lock.field("waiters").int()), (token, 0));
    });
}

#[test]
fn a_lock_is_held_for_longer_than_its_lease() {
    let server = Server::with().module_args(&["margin-ms", "0"]).start();
    in_each(|language| {
        let hold = Hold { lease_ms: 3_000, ..Hold::of(language, server.port()) };
        let (mut driver, token) = Driver::holding(language, &hold);
        let mut conn = server.conn();
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end {
            let lock = conn.call(&["LOCK.INFO", &hold.key]);
            assert_eq!((lock.field("state").text(), lock.field("token").int()), ("held".into(), token.unwrap()));
            sleep(Duration::from_millis(50));
        }
        driver.leave();
        assert_eq!(conn.state(&hold.key), "free");
    });
}

#[test]
fn work_that_fails_gives_the_lock_back_and_its_own_error_comes_out() {
    let server = Server::start();
    in_each(|language| {
        let hold = Hold::of(language, server.port());
        let (mut driver, _) = Driver::holding(language, &hold);
        driver.say("fail");
        assert!(driver.error("work").contains("the work failed"));
        assert_eq!(server.conn().state(&hold.key), "free");
    });
}

#[test]
fn no_connection_stays_behind() {
    in_each(|language| {
        let (server, mut conn) = Server::connected();
        let mut clients = || conn.text(&["CLIENT", "LIST"]).lines().filter(|line| line.contains("addr=")).count();
        let hold = Hold { wait_ms: 10_000, timeout_ms: 2_000, ..Hold::of(language, server.port()) };
        let mut driver = Driver::start(language);
        driver.ping(&hold);
        let before = clients();
        for _ in 0..3 {
            driver.hold(&hold);
            driver.held();
            driver.leave();
        }
        // Others close their end; the server sees it a moment later.
        until("all connections of the lock have ended", || (clients() == before).then_some(()));
        let token = server.conn().int(&["LOCK.ACQUIRE", &hold.key, "EX", "60"]);
        driver.hold(&hold);
        server.conn().until_waiters(&hold.key, 1);
        driver.say("cancel");
        driver.error("refused");
        driver.ping(&hold);
        until("the connection that waited has ended", || (clients() == before).then_some(()));
        assert_eq!(server.conn().lock(&hold.key, "token").int(), token);
    });
}

/// How long after a worker was killed somebody who waits gets its lock.
fn freed_after(session: bool, lease_ms: u64) -> Vec<Duration> {
    let server = Server::with().module_args(&["margin-ms", "200"]).start();
    let times = std::sync::Mutex::new(Vec::new());
    in_each(|language| {
        let hold = Hold { lease_ms, session, ..Hold::of(language, server.port()) };
        let (mut driver, token) = Driver::holding(language, &hold);
        let mut successor = server.sent(&["LOCK.ACQUIRE", &hold.key, "EX", "60", "WAIT", "60000", "DETAILS"]);
        driver.kill();
        let since = Instant::now();
        let details = successor.read();
        times.lock().unwrap().push(since.elapsed());
        // The successor learns that the lock was never given back.
        assert_eq!(details.list()[2].int(), token.unwrap());
    });
    times.into_inner().unwrap()
}

#[test]
fn the_lock_of_a_killed_worker_is_free_when_its_lease_is_over() {
    for time in freed_after(false, 3_000) {
        // Renewed at a third of the lease at the latest.
        assert!(time >= Duration::from_millis(1_900), "after {time:?}, while the worker may still work");
    }
}

#[test]
fn the_lock_of_a_killed_worker_with_a_session_is_free_at_once() {
    for time in freed_after(true, 60_000) {
        assert!(time < Duration::from_secs(15), "after {time:?}");
    }
}
