//! The dead do not stall the line: attempts of processes that are gone cost a publish each, those of a host that
//! vanished without a word one `lock.claim-ms` for each channel.

use super::{pass, waiting, Line, Listener};
use std::time::Duration;
use testkit::{bound, encoded, server_time_us, until, Conn, Iterations, Server};

/// Many ask for `k`, each attempt on its own channel, which has no subscriber.
fn crowd(conn: &mut Conn, count: usize, channel: impl Fn(usize) -> String) {
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
fn ten_thousand_attempts_of_killed_processes_delay_a_live_one_by_less_than_a_second() {
    type Free = fn(&mut Line, i64);
    let ways: [Free; 3] = [
        |line, token| line.locks.release(token),
        |line, _| assert_eq!(line.call(&["DEL", "k"]).int(), 1),
        |line, token| {
            let token = token.to_string();
            let replies = line.locks.in_one_turn(&[&["MULTI"], &["LOCK.RELEASE", "k", &token], &["EXEC"]]);
            assert_eq!(replies[2].list()[0].int(), 1);
        },
    ];
    let delay = |free: Free| {
        let settings = ["margin-ms", "0", "claim-ms", "300"];
        let (server, iterations) = Iterations::start(Server::with().module_args(&settings))?;
        let mut line = Line::on(server)?;
        let token = line.locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", "300000"]);
        crowd(&mut line.locks.conn, 10_000, |n| format!("dead-{n}"));
        // Those that were sent a moment ago may not listen yet.
        pass(&mut line.locks.conn, 320);
        line.ask("7");
        iterations.reset();
        free(&mut line, token);
        line.told.hears("granted 7 k");
        let took = iterations.sum();
        line.claim("7");
        assert_eq!((line.info("lock_unheard"), line.info("lock_unclaimed"), line.locks.waiters()), (10_000, 0, 0));
        Some(took)
    };
    for free in ways {
        bound::cpu("ten thousand dead attempts", Duration::from_millis(200), || delay(free));
    }
}

#[test]
fn a_host_that_vanished_delays_the_line_by_one_claim_for_each_of_its_channels() {
    let Some(mut line) = Line::with(&["claim-ms", "200"]) else { return };
    // Connections that stay open and listen, of processes that are no more.
    let _gone = ["gone-0", "gone-1"].map(|channel| Listener::of(&line.locks.server, channel));
    let token = line.locks.hold();
    crowd(&mut line.locks.conn, 200, |n| format!("gone-{}", n % 2));
    line.ask("7");
    let begun = server_time_us(&mut line.locks.conn);
    line.locks.release(token);
    line.told.hears("granted 7 k");
    let took = line.locks.conn.lock("k", "token").int() - begun;
    line.claim("7");
    assert!(took >= 400_000, "two channels: {took} us");
    assert_eq!((line.info("lock_unclaimed"), line.info("lock_unheard")), (2, 198));
}

/// A server that ticks rarely does not stand still between two ticks.
#[test]
fn so_it_does_where_the_server_ticks_once_in_a_second() {
    let rare = Server::with().args(&["--hz", "1", "--dynamic-hz", "no"]);
    let Some(mut line) = Line::on(rare.module_args(&["margin-ms", "0", "claim-ms", "200"]).start()) else { return };
    let _gone = Listener::of(&line.locks.server, "gone");
    let token = line.locks.hold();
    crowd(&mut line.locks.conn, 5, |_| "gone".into());
    line.ask("7");
    line.locks.release(token);
    line.told.hears("granted 7 k");
    line.claim("7");
    assert_eq!((line.info("lock_unclaimed"), line.info("lock_unheard")), (1, 4));
}

#[test]
fn one_that_was_sent_a_moment_ago_is_granted_although_nobody_listens_yet() {
    let Some(mut line) = Line::with(&["claim-ms", "5000"]) else { return };
    let token = line.locks.hold();
    line.ask_with(&["LOCK.ACQUIRE", "k"], "7", &["NOTIFY", "later"]);
    line.locks.release(token);
    assert_eq!(line.locks.conn.state("k"), "held");
    assert_eq!(line.info("lock_unheard"), 0);
    let token = line.claim("7");
    line.locks.assert_holds(token);
}

#[test]
fn one_that_is_not_heard_keeps_its_place() {
    let Some(mut line) = Line::with(&["claim-ms", "50"]) else { return };
    let token = line.locks.hold();
    line.ask_with(&["LOCK.ACQUIRE", "k"], "7", &["NOTIFY", "later"]);
    line.ask("8");
    line.ask("9");
    pass(&mut line.locks.conn, 60);
    line.locks.release(token);
    line.told.hears("granted 8 k");
    let token = line.claim("8");
    assert_eq!((line.info("lock_unheard"), line.info("lock_places")), (1, 1));
    // It is back, ahead of the one that came after it.
    line.ask("7");
    line.locks.release(token);
    line.takes_its_turn("7");
    line.takes_its_turn("9");
}

#[test]
fn a_line_of_the_dead_alone_leaves_a_free_lock() {
    let Some(mut line) = Line::with(&["claim-ms", "20"]) else { return };
    let token = line.locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", "300000"]);
    crowd(&mut line.locks.conn, 2_000, |n| format!("dead-{n}"));
    pass(&mut line.locks.conn, 30);
    line.locks.release(token);
    until("all have left", || (line.locks.waiters() == 0).then_some(()));
    assert_eq!(line.call(&["EXISTS", "k"]).int(), 0);
    line.locks.hold();
    assert_eq!(line.info("lock_places"), 2_000);
}
