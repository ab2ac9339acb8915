//! Disconnected clients do not stall the queue: an attempt from a process that is gone costs a publish, and those from
//! a host that vanished silently cost one `lock.claim-ms` per channel.

use super::{pass, waiting, Queue, Subscriber};
use std::time::Duration;
use testkit::{bound, encoded, server_time_us, until, Conn, Iterations, Server};

/// Many attempts ask for `k`, each on its own channel, which has no subscriber.
fn queue_many(conn: &mut Conn, count: usize, channel: impl Fn(usize) -> String) {
    let numbers: Vec<usize> = (0..count).collect();
    for some in numbers.chunks(500) {
        let mut bytes = Vec::new();
        for n in some {
            let (id, channel) = ((1_000 + n).to_string(), channel(*n));
            let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "600000", "ID", &id, "NOTIFY", &channel];
            bytes.extend(encoded(&ask));
        }
        conn.send_bytes(&bytes);
        for _ in some {
            assert_eq!(conn.read(), waiting());
        }
    }
}

#[test]
fn dead_attempts_delay_a_live_one_below_a_second() {
    type Free = fn(&mut Queue, i64);
    let ways: [Free; 3] = [
        |queue, token| queue.locks.release(token),
        |queue, _| assert_eq!(queue.execute(&["DEL", "k"]).int(), 1),
        |queue, token| {
            let token = token.to_string();
            let replies = queue.locks.in_one_turn(&[&["MULTI"], &["LOCK.RELEASE", "k", &token], &["EXEC"]]);
            assert_eq!(replies[2].list()[0].int(), 1);
        },
    ];
    let delay = |free: Free| {
        let settings = ["margin-ms", "0", "claim-ms", "300"];
        let (server, iterations) = Iterations::start(Server::with().module_args(&settings))?;
        let mut queue = Queue::on(server)?;
        let token = queue.locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", "300000"]);
        queue_many(&mut queue.locks.conn, 10_000, |n| format!("dead-{n}"));
        // A client that has just sent its attempt may not have subscribed yet.
        pass(&mut queue.locks.conn, 320);
        queue.ask("7");
        iterations.reset();
        free(&mut queue, token);
        queue.subscriber.gets("granted 7 k");
        let took = iterations.sum();
        queue.claim("7");
        assert_eq!((queue.info("lock_unheard"), queue.info("lock_unclaimed"), queue.locks.waiters()), (10_000, 0, 0));
        Some(took)
    };
    for free in ways {
        bound::cpu("ten thousand dead attempts", Duration::from_millis(200), || delay(free));
    }
}

#[test]
fn a_vanished_host_costs_one_claim_per_channel() {
    let Some(mut queue) = Queue::with(&["claim-ms", "1000"]) else { return };
    // Connections of dead processes: they stay open and subscribed. After a stall of a third of claim-ms, no channel
    // would be skipped.
    let _gone = ["gone-0", "gone-1"].map(|channel| Subscriber::of(&queue.locks.server, channel));
    let token = queue.locks.hold();
    queue_many(&mut queue.locks.conn, 200, |n| format!("gone-{}", n % 2));
    queue.ask("7");
    let begun = server_time_us(&mut queue.locks.conn);
    queue.locks.release(token);
    queue.subscriber.gets("granted 7 k");
    let took = queue.locks.conn.lock("k", "token").int() - begun;
    queue.claim("7");
    assert!(took >= 2_000_000, "two channels: {took} us");
    assert_eq!((queue.info("lock_unclaimed"), queue.info("lock_unheard")), (2, 198));
}

/// A server that rarely ticks does not stall between two ticks.
#[test]
fn a_slow_tick_changes_nothing() {
    let rare = Server::with().args(&["--hz", "1", "--dynamic-hz", "no"]);
    let Some(mut queue) = Queue::on(rare.module_args(&["margin-ms", "0", "claim-ms", "200"]).start()) else { return };
    let _gone = Subscriber::of(&queue.locks.server, "gone");
    let token = queue.locks.hold();
    queue_many(&mut queue.locks.conn, 5, |_| "gone".into());
    queue.ask("7");
    queue.locks.release(token);
    queue.subscriber.gets("granted 7 k");
    queue.claim("7");
    assert_eq!((queue.info("lock_unclaimed"), queue.info("lock_unheard")), (1, 4));
}

#[test]
fn a_recent_attempt_is_granted_before_it_subscribes() {
    let Some(mut queue) = Queue::with(&["claim-ms", "5000"]) else { return };
    let token = queue.locks.hold();
    queue.ask_with(&["LOCK.ACQUIRE", "k"], "7", &["NOTIFY", "later"]);
    queue.locks.release(token);
    assert_eq!(queue.locks.conn.state("k"), "held");
    assert_eq!(queue.info("lock_unheard"), 0);
    let token = queue.claim("7");
    queue.locks.assert_holds(token);
}

#[test]
fn an_attempt_without_subscriber_keeps_its_turn() {
    let Some(mut queue) = Queue::with(&["claim-ms", "50"]) else { return };
    let token = queue.locks.hold();
    queue.ask_with(&["LOCK.ACQUIRE", "k"], "7", &["NOTIFY", "later"]);
    queue.ask("8");
    queue.ask("9");
    pass(&mut queue.locks.conn, 60);
    queue.locks.release(token);
    queue.subscriber.gets("granted 8 k");
    let token = queue.claim("8");
    assert_eq!((queue.info("lock_unheard"), queue.info("lock_places")), (1, 1));
    // The attempt is back, ahead of the one that arrived after it.
    queue.ask("7");
    queue.locks.release(token);
    queue.takes_its_turn("7");
    queue.takes_its_turn("9");
}

#[test]
fn a_queue_of_dead_attempts_alone_leaves_a_free_lock() {
    let Some(mut queue) = Queue::with(&["claim-ms", "20"]) else { return };
    let token = queue.locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", "300000"]);
    queue_many(&mut queue.locks.conn, 2_000, |n| format!("dead-{n}"));
    pass(&mut queue.locks.conn, 30);
    queue.locks.release(token);
    until("all have left", || (queue.locks.waiters() == 0).then_some(()));
    assert_eq!(queue.execute(&["EXISTS", "k"]).int(), 0);
    queue.locks.hold();
    assert_eq!(queue.info("lock_places"), 2_000);
}
