//! Replies that do not arrive, locks that are taken away, servers that stop, and failover.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::driver::{in_each, in_each_with, Driver, Hold, NOBODY};
use crate::support::relay::{Loss, Relay};
use crate::support::{until, Server};

const LOSSES: [Loss; 2] = [Loss::Closed, Loss::Silent];

#[test]
fn when_the_reply_to_acquire_is_lost_the_same_grant_is_held() {
    in_each_with(&LOSSES, |language, how| {
        let server = Server::start();
        let relay = Relay::to(server.port());
        let hold = Hold { timeout_ms: 4_000, ..Hold::of(language, relay.port()) };
        relay.lose_reply_to("LOCK.ACQUIRE", how);
        let (mut driver, token) = Driver::holding(language, &hold);
        assert!(!relay.has_reply_to_lose(), "no reply was lost");
        let mut conn = server.conn();
        assert_eq!(conn.lock(&hold.key, "token").int(), token.unwrap());
        assert!(conn.text(&["INFO", "lock"]).contains("lock_grants:1\r"));
        driver.leave();
        assert_eq!(conn.state(&hold.key), "free");
    });
}

#[test]
fn what_failed_can_be_had_later_and_what_was_given_back_again() {
    let server = Server::start();
    in_each(|language| {
        let relay = Relay::to(NOBODY);
        let hold = Hold { lease_ms: 3_000, timeout_ms: 500, ..Hold::of(language, relay.port()) };
        let mut driver = Driver::asking(language, &hold);
        driver.error("connection");
        relay.lead_to(server.port());
        driver.hold(&hold);
        let token = driver.held();
        driver.leave();
        driver.hold(&hold);
        assert!(driver.held() > token);
        assert!(driver.is_silent_for(Duration::from_millis(3_500)), "the work was stopped");
        driver.leave();
    });
}

#[test]
fn when_the_reply_to_release_is_lost_that_is_no_error() {
    let server = Server::start();
    in_each_with(&LOSSES, |language, how| {
        let relay = Relay::to(server.port());
        let hold = Hold { timeout_ms: 4_000, ..Hold::of(language, relay.port()) }.variant(how);
        let (mut driver, _) = Driver::holding(language, &hold);
        relay.lose_reply_to("LOCK.RELEASE", how);
        driver.leave();
        assert!(!relay.has_reply_to_lose(), "no reply was lost");
        assert_eq!(server.conn().state(&hold.key), "free");
    });
}

#[test]
fn when_the_reply_to_a_renewal_is_lost_the_work_goes_on() {
    let server = Server::start();
    in_each_with(&LOSSES, |language, how| {
        let relay = Relay::to(server.port());
        let hold = Hold { lease_ms: 8_000, ..Hold::of(language, relay.port()) }.variant(how);
        let (mut driver, _) = Driver::holding(language, &hold);
        relay.lose_reply_to("LOCK.EXTEND", how);
        assert!(driver.is_silent_for(Duration::from_millis(8_500)), "the work was stopped");
        assert!(!relay.has_reply_to_lose(), "no reply was lost");
        driver.leave();
    });
}

#[test]
fn when_the_lock_is_taken_away_the_work_is_stopped_and_its_successor_is_left_alone() {
    let server = Server::start();
    in_each(|language| {
        let hold = Hold { lease_ms: 6_000, ..Hold::of(language, server.port()) };
        let (mut driver, _) = Driver::holding(language, &hold);
        let mut conn = server.conn();
        assert_eq!(conn.int(&["DEL", &hold.key]), 1);
        let token = conn.int(&["LOCK.ACQUIRE", &hold.key, "EX", "60"]);
        assert!(driver.is_stopped_in_time().contains(&hold.key));
        assert_eq!(conn.lock(&hold.key, "token").int(), token);
        driver.ping(&hold);
    });
}

#[test]
fn when_the_server_stands_still_the_work_is_stopped_before_its_lease_is_over() {
    in_each(|language| {
        let server = Server::start();
        let hold = Hold { lease_ms: 6_000, ..Hold::of(language, server.port()) };
        let (mut driver, _) = Driver::holding(language, &hold);
        // It has been renewed once.
        sleep(Duration::from_millis(2_500));
        server.signal("STOP");
        let since = Instant::now();
        let text = driver.is_stopped_in_time();
        assert!(text.contains(&hold.key), "{text}");
        assert!(since.elapsed() > Duration::from_secs(2), "it gives up after {:?}", since.elapsed());
        server.signal("CONT");
    });
}

#[test]
fn renewal_is_tried_for_as_long_as_it_can_be_in_time() {
    in_each_with(&["then it succeeds", "then it hangs"], |language, end| {
        let (server, mut conn) = Server::connected();
        conn.ok(&["ACL", "SETUSER", "default", "-lock.extend"]);
        let hold = Hold { lease_ms: 8_000, ..Hold::of(language, server.port()) };
        let since = Instant::now();
        let (mut driver, _) = Driver::holding(language, &hold);
        let rest = Duration::from_secs(6).saturating_sub(since.elapsed());
        assert!(driver.is_silent_for(rest), "the work was stopped when three quarters of the lease were over");
        conn.ok(&["ACL", "SETUSER", "default", "+lock.extend"]);
        if end == "then it hangs" {
            server.signal("STOP");
            driver.is_stopped_in_time();
            server.signal("CONT");
        } else {
            assert!(driver.is_silent_for(Duration::from_millis(2_500)), "the work was stopped");
            driver.leave();
        }
    });
}

#[test]
fn a_session_whose_connection_breaks_is_a_lost_lock() {
    // With so long a margin the lock could be extended by another connection, without a session.
    let server = Server::with().module_args(&["margin-ms", "60000"]).start();
    in_each(|language| {
        let hold = Hold { lease_ms: 6_000, session: true, ..Hold::of(language, server.port()) };
        let (mut driver, _) = Driver::holding(language, &hold);
        let mut conn = server.conn();
        let session = conn.lock(&hold.key, "session").int().to_string();
        assert_eq!(conn.int(&["CLIENT", "KILL", "ID", &session]), 1);
        driver.is_stopped_in_time();
    });
}

#[test]
fn after_a_failover_the_holder_holds_and_the_waiter_waits_on() {
    in_each(|language| {
        let diskless = ["--repl-diskless-sync-delay", "0"];
        let mut master = Server::with().args(&diskless).start();
        let replica = Server::with().args(&diskless).start();
        replica.replicate(&master);
        let relay = Relay::to(master.port());
        let hold = Hold { lease_ms: 30_000, wait_ms: 60_000, timeout_ms: 4_000, ..Hold::of(language, relay.port()) };
        let (mut holder, token) = Driver::holding(language, &hold);
        let mut waiter = Driver::asking(language, &hold);
        let waiters = |server: &Server| server.conn().lock(&hold.key, "waiters");
        until("it waits", || (waiters(&master).int() == 1).then_some(()));
        master.wait_offset(&replica);

        // Dead for a while before anybody takes its place.
        master.signal("KILL");
        master.wait_end();
        sleep(Duration::from_millis(700));
        replica.conn().ok(&["REPLICAOF", "NO", "ONE"]);
        relay.lead_to(replica.port());

        until("it waits at the new master", || (waiters(&replica).int() == 1).then_some(()));
        let lock = replica.conn().call(&["LOCK.INFO", &hold.key]);
        assert_eq!(lock.field("token").int(), token.unwrap());
        holder.leave();
        assert!(waiter.held() > token);
        waiter.leave();
    });
}

#[test]
fn a_master_that_became_a_replica_is_left_for_the_new_one() {
    in_each(|language| {
        let diskless = ["--repl-diskless-sync-delay", "0"];
        let (old, new) = (Server::with().args(&diskless).start(), Server::with().args(&diskless).start());
        new.replicate(&old);
        let relay = Relay::to(old.port());
        let hold = Hold { lease_ms: 4_500, ..Hold::of(language, relay.port()) };
        let (mut driver, _) = Driver::holding(language, &hold);
        old.wait_offset(&new);
        new.conn().ok(&["REPLICAOF", "NO", "ONE"]);
        relay.lead_to(new.port());
        // Its connection to the old one stays open, and answers READONLY.
        old.conn().ok(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
        assert!(driver.is_silent_for(Duration::from_secs(5)), "the work was stopped");
        driver.leave();
        assert_eq!(new.conn().state(&hold.key), "free");
    });
}
