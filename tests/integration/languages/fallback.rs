//! A server without the module: SET NX PX and scripts, safe beside clients of the module on the same keys.

use std::time::Duration;

use super::driver::{in_each, in_each_and_protocol, in_each_with, Driver, Event, Hold};
use crate::support::relay::{Loss, Relay};
use crate::support::{module, Reply, Server};

fn plain_server() -> Server {
    Server::with().without_module().start()
}

#[test]
fn without_the_module_the_fallback_warns_holds_and_gives_back() {
    let server = plain_server();
    in_each_and_protocol(|language, protocol| {
        let mut conn = server.conn();
        let hold =
            Hold { fallback: true, lease_ms: 3_000, protocol, prefix: "app:", ..Hold::of(language, server.port()) }
                .variant(protocol);
        let key = format!("app:{}", hold.key);
        let mut driver = Driver::asking(language, &hold);
        match driver.next() {
            Event::Held { token: None, warned } => assert!(warned.contains(&key), "'{warned}'"),
            other => panic!("{other:?}"),
        }
        // Clients of the module take it for no timestamp.
        assert!(conn.text(&["GET", &key]).parse::<f64>().is_err());
        let mut other = Driver::asking(language, &hold);
        other.error("refused");
        assert!(driver.is_silent_for(Duration::from_millis(4_500)), "it is not renewed");
        assert!((1..=3_000).contains(&conn.int(&["PTTL", &key])));
        other.hold(&Hold { wait_ms: 60_000, ..hold.clone() });
        driver.leave();
        assert_eq!(other.held(), None);
        other.leave();
        assert_eq!(conn.int(&["EXISTS", &key]), 0);
    });
}

#[test]
fn a_fallback_lock_that_is_taken_away_stops_the_work_and_leaves_the_successor_alone() {
    let server = plain_server();
    in_each(|language| {
        let hold = Hold { fallback: true, lease_ms: 6_000, ..Hold::of(language, server.port()) };
        let (mut driver, _) = Driver::holding(language, &hold);
        let mut conn = server.conn();
        conn.ok(&["SET", &hold.key, "another"]);
        driver.is_stopped_in_time();
        assert_eq!(conn.text(&["GET", &hold.key]), "another");
    });
}

#[test]
fn a_reply_that_is_lost_under_the_fallback_loses_no_lock() {
    let server = plain_server();
    in_each_with(&[Loss::Closed, Loss::Silent], |language, how| {
        let relay = Relay::to(server.port());
        let hold = Hold { fallback: true, timeout_ms: 4_000, ..Hold::of(language, relay.port()) }.variant(how);
        // Of ACQUIRE, then of RELEASE.
        relay.lose_reply_to("EVAL", how);
        let (mut driver, _) = Driver::holding(language, &hold);
        assert!(!relay.has_reply_to_lose(), "no reply was lost");
        relay.lose_reply_to("EVAL", how);
        driver.leave();
        assert!(!relay.has_reply_to_lose(), "no reply was lost");
        assert_eq!(server.conn().int(&["EXISTS", &hold.key]), 0);
    });
}

#[test]
fn a_fallback_lock_is_respected_by_clients_of_the_module() {
    in_each(|language| {
        let server = plain_server();
        let mut conn = server.conn();
        let hold = Hold { fallback: true, ..Hold::of(language, server.port()) };
        let (mut driver, _) = Driver::holding(language, &hold);
        conn.ok(&["MODULE", "LOAD", module().to_str().unwrap()]);
        assert_eq!(conn.call(&["LOCK.ACQUIRE", &hold.key, "EX", "60"]), Reply::Nil);
        assert_eq!(conn.state(&hold.key), "foreign");
        let mut waiter = server.waiter(&["LOCK.ACQUIRE", &hold.key, "EX", "60", "WAIT", "60000"]);
        driver.leave();
        let token = waiter.read().int();
        // From now on it has the module, and a token.
        assert_eq!(conn.int(&["LOCK.RELEASE", &hold.key, &token.to_string()]), 1);
        driver.hold(&hold);
        assert!(driver.held() > Some(token));
        driver.leave();
    });
}

#[test]
fn a_lock_of_the_module_is_respected_by_the_fallback() {
    let server = plain_server();
    // Ours, as a replica without the module has it.
    let ours = "9999999999.0000001763710000482913";
    in_each(|language| {
        let hold = Hold { fallback: true, wait_ms: 500, ..Hold::of(language, server.port()) };
        server.conn().ok(&["SET", &hold.key, ours]);
        let mut driver = Driver::asking(language, &hold);
        driver.error("refused");
        assert_eq!(server.conn().text(&["GET", &hold.key]), ours);
    });
}
