//! Many clients that wait for many locks at once: they do not delay other clients, their cost is bounded by their
//! names, and an idle server does no work for them.

use crate::holders::most::cost;
use crate::kinds::acquire;
use crate::waiting::{no_reply_within, Locks};
use std::time::Duration;
use testkit::{bound, until, Conn, Iterations, Reply, Server};

/// The names of this many keys, all of the same length.
fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number:05}")).collect()
}

/// A command on all of these.
fn command_of(command: &str, names: &[String], rest: &[&str]) -> Vec<String> {
    let head = [command.to_string(), names.len().to_string()];
    head.into_iter().chain(names.iter().cloned()).chain(rest.iter().map(ToString::to_string)).collect()
}

fn acquire_all(names: &[String], options: &[&str]) -> Vec<String> {
    command_of("LOCK.MACQUIRE", names, options)
}

fn take_all(locks: &mut Locks, names: &[String]) -> String {
    locks.conn.int(&acquire_all(names, &["EX", "600"])).to_string()
}

/// Clients start waiting for all of these keys.
fn wait_for_all(locks: &mut Locks, count: usize, names: &[String]) -> Vec<Conn> {
    let before = locks.info("lock", "lock_waiters");
    let call = acquire_all(names, &["EX", "600", "WAIT", "600000"]);
    let waits = (0..count).map(|n| {
        let mut conn = locks.server.conn();
        conn.send(&call);
        // I/O threads read what clients send at the same time in any order.
        let earlier = before + i64::try_from(n).unwrap();
        until("it is the last", || (locks.info("lock", "lock_waiters") > earlier).then_some(()));
        conn
    });
    waits.collect()
}

/// A server whose iterations are counted.
fn counted() -> Option<(Locks, Iterations)> {
    let (server, iterations) = Iterations::start(Server::with().module_args(&["margin-ms", "0"]))?;
    Some((Locks::on(server), iterations))
}

#[test]
fn a_free_key_of_blocked_wide_waits_goes_to_a_newcomer() {
    let Some((mut locks, iterations)) = counted() else { return };
    let keys = names("k", 100);
    let held = acquire(&mut locks.conn, &[&keys[50], "EX", "600"]);
    let mut waiting = wait_for_all(&mut locks, 200, &keys);
    for round in 0..3 {
        for key in keys.iter().filter(|key| **key != keys[50]) {
            let token = locks.conn.execute(&["LOCK.ACQUIRE", key, "EX", "600"]);
            assert!(matches!(token, Reply::Int(_)), "round {round}, {key}: {token:?}");
            assert_eq!(locks.conn.int(&["LOCK.RELEASE", key, &token.int().to_string()]), 1);
        }
    }
    bound::cpu("an idle server with many waits, for 2 s", Duration::from_millis(100), || {
        iterations.reset();
        assert!(no_reply_within(&mut waiting[0], Duration::from_secs(2)));
        Some(iterations.sum())
    });
    // The waiters get all keys in turn, each in the same command that releases them.
    let mut token = held;
    for (at, conn) in waiting.iter_mut().enumerate() {
        let release: Vec<String> = if at == 0 {
            ["LOCK.RELEASE", &keys[50], &token].map(String::from).into()
        } else {
            command_of("LOCK.MRELEASE", &keys, &[&token])
        };
        assert_eq!(locks.conn.int(&release), if at == 0 { 1 } else { 100 });
        token = conn.read().int().to_string();
    }
    locks.assert_no_missed_wakeups();
}

#[test]
fn a_release_no_waiter_can_use_frees_the_lock() {
    let mut locks = Locks::start();
    acquire(&mut locks.conn, &["b", "EX", "600"]);
    let a = acquire(&mut locks.conn, &["a", "EX", "600"]);
    let _waiting = wait_for_all(&mut locks, 3, &["a", "b"].map(String::from));
    // Both run in one iteration of the event loop, before any timer.
    let replies = locks.in_one_turn(&[&["LOCK.RELEASE", "a", &a], &["LOCK.ACQUIRE", "a", "EX", "600"]]);
    assert_eq!(replies[0], Reply::Int(1));
    assert!(matches!(replies[1], Reply::Int(_)), "{replies:?}");
}

#[test]
fn waiters_behind_many_parked_ones_are_served() {
    let mut locks = Locks::start();
    let x = acquire(&mut locks.conn, &["x", "EX", "600"]);
    acquire(&mut locks.conn, &["y", "EX", "600"]);
    // Each could have x, but none can have y.
    let both = ["x", "y"].map(String::from);
    let _waiting = wait_for_all(&mut locks, 300, &both);
    let mut behind = locks.wait_with(&["LOCK.ACQUIRE", "x", "EX", "600", "WAIT", "600000"]);
    assert_eq!(locks.conn.int(&["LOCK.RELEASE", "x", &x]), 1);
    let x = behind.granted().to_string();
    assert_eq!(locks.conn.int(&["LOCK.RELEASE", "x", &x]), 1);
    // All of them have found out that they wait for y.
    locks.conn.until_waiters("y", 300);
    acquire(&mut locks.conn, &["x", "EX", "600"]);
    locks.assert_no_missed_wakeups();
}

#[test]
fn a_timeout_ahead_tries_those_parked_behind() {
    let mut locks = Locks::start();
    let a = acquire(&mut locks.conn, &["a", "EX", "600"]);
    let b = acquire(&mut locks.conn, &["b", "EX", "600"]);
    let single = locks.wait_with(&["LOCK.ACQUIRE", "b", "EX", "600", "WAIT", "600000", "ID", "7"]);
    let mut all = wait_for_all(&mut locks, 1, &["a", "b"].map(String::from));
    // Now the wait for both keys is parked at b, behind the single one.
    assert_eq!(locks.conn.int(&["LOCK.RELEASE", "a", &a]), 1);
    locks.conn.ok(&["MULTI"]);
    for command in [&["LOCK.CANCEL", "b", "7"][..], &["LOCK.RELEASE", "b", &b]] {
        assert_eq!(locks.conn.text(command), "QUEUED");
    }
    assert_eq!(locks.conn.execute(&["EXEC"]), Reply::List(vec![Reply::Int(1), Reply::Int(1)]));
    assert!(matches!(all[0].read(), Reply::Int(_)));
    drop(single);
    locks.assert_no_missed_wakeups();
}

#[test]
fn a_waiter_for_a_thousand_keys_frees_its_memory() {
    const WAITERS: usize = 40;
    let mut locks = Locks::start();
    acquire(&mut locks.conn, &["k00500", "EX", "600"]);
    let keys = names("k", 1_024);
    // In the first round, the server's tables grow, and they stay that large.
    drop(wait_for_all(&mut locks, WAITERS, &keys));
    let alone = |locks: &mut Locks| {
        until("all have left", || (locks.info("clients", "connected_clients") == 1).then_some(()));
    };
    alone(&mut locks);
    let empty = locks.info("memory", "used_memory");
    let waiting = wait_for_all(&mut locks, WAITERS, &keys);
    let each = (locks.info("memory", "used_memory") - empty) / i64::try_from(WAITERS).unwrap();
    println!("{each} bytes for each");
    // The server keeps a blocked client (74 kB) and its command's arguments, 40 bytes each; the module keeps 10 bytes
    // for each name. When the waiter was in every queue, that was 700 bytes.
    assert!(each < 200_000, "{each} bytes for each");
    drop(waiting);
    alone(&mut locks);
    until("the memory is freed", || (locks.info("memory", "used_memory") < empty + 500_000).then_some(()));
}

#[test]
fn places_for_several_keys_are_bounded_by_their_names() {
    let mut locks = Locks::with(&["max-waiters", "1000000"]);
    let padding = "x".repeat(250);
    let keys: Vec<String> = names("k", 1_000).into_iter().map(|name| name + &padding).collect();
    acquire(&mut locks.conn, &[&keys[0], "EX", "600"]);
    let before = locks.info("memory", "used_memory");
    for attempt in 1..=640 {
        let id = attempt.to_string();
        assert!(locks.conn.execute(&acquire_all(&keys, &["EX", "600", "ID", &id])).is_nil());
    }
    // 64 MB of names; all of them would take 160 MB.
    assert_eq!(locks.info("lock", "lock_places"), 262);
    let more = locks.info("memory", "used_memory") - before;
    assert!(more < 80_000_000, "{more} bytes for the places");
}

#[test]
fn one_id_for_too_many_attempts_is_refused() {
    let mut locks = Locks::start();
    acquire(&mut locks.conn, &["held", "EX", "600"]);
    for number in 0..70 {
        let own = format!("own{number}");
        let all = [own.as_str(), "held"];
        // An attempt with the same ID replaces an earlier one with which it shares a key.
        assert!(locks.conn.execute(&[&["LOCK.MACQUIRE", "2"], &all[..], &["EX", "9", "ID", "7"]].concat()).is_nil());
    }
    assert_eq!(locks.info("lock", "lock_places"), 1);
    let pairs = names("h", 140);
    let held = take_all(&mut locks, &pairs);
    let mut waiting: Vec<Conn> = Vec::new();
    let mut refused = 0;
    for pair in pairs.chunks(2) {
        let mut conn = locks.server.conn();
        let call = acquire_all(pair, &["EX", "600", "WAIT", "600000", "ID", "8"]);
        let before = locks.info("lock", "lock_waiters");
        conn.send(&call);
        until("it waits or is refused", || {
            (locks.info("lock", "lock_waiters") > before || !conn.no_reply_within(Duration::from_millis(1)))
                .then_some(())
        });
        if locks.info("lock", "lock_waiters") == before {
            assert!(conn.read().error().starts_with("BUSYLOCKS 64 waits for several keys"));
            refused += 1;
        } else {
            waiting.push(conn);
        }
    }
    assert_eq!((waiting.len(), refused), (64, 6));
    assert_eq!(locks.conn.int(&command_of("LOCK.MRELEASE", &pairs, &[&held])), 140);
    for conn in &mut waiting {
        conn.read().int();
    }
}

/// Many attempts with the same ID, each for the maximum number of keys: the cost of one more is bounded.
#[test]
fn one_id_for_many_attempts_costs_less_than_5_ms() {
    const KEYS: usize = 1_024;
    let Some((mut locks, iterations)) = counted() else { return };
    let held = names("h", 70);
    take_all(&mut locks, &held);
    let own = |number: usize| {
        let padding = "x".repeat(100);
        let mut keys: Vec<String> = (1..KEYS).map(|key| format!("{padding}{number}_{key}")).collect();
        keys.push(held[number].clone());
        keys
    };
    let options = ["EX", "600", "WAIT", "600000", "ID", "7"];
    let mut waiting: Vec<Conn> = (0..64).map(|_| locks.server.conn()).collect();
    for (number, conn) in waiting.iter_mut().enumerate() {
        conn.send(&acquire_all(&own(number), &options));
    }
    until("all wait", || (locks.info("lock", "lock_waiters") == 64).then_some(()));
    bound::cpu("one more attempt", Duration::from_millis(5), || {
        let (reply, cost) = cost(&iterations, &mut locks.conn, &acquire_all(&own(69), &options));
        assert!(reply.error().starts_with("BUSYLOCKS "), "{reply:?}");
        Some(cost)
    });
    bound::cpu("a cancel", Duration::from_millis(1), || {
        let (reply, cost) = cost(&iterations, &mut locks.conn, &["LOCK.CANCEL", "nobody's", "7"]);
        assert_eq!(reply, Reply::Int(0));
        Some(cost)
    });
}

#[test]
fn the_maximum_number_of_keys_is_one_grant() {
    let mut locks = Locks::start();
    let all = names("k", 1_025);
    let (keys, more) = (&all[..1_024], &all[..]);
    let take = acquire_all(keys, &["EX", "600", "ID", "7"]);
    let token = locks.conn.int(&take).to_string();
    assert_eq!(locks.conn.int(&["DBSIZE"]), 1_024);
    assert_eq!(locks.conn.int(&take).to_string(), token);
    let extend = command_of("LOCK.MEXTEND", keys, &[&token, "EX", "700"]);
    assert_eq!(locks.conn.int(&extend), 1);
    // One more key is too many; a duplicate in the last position is found.
    let reply = locks.conn.execute(&acquire_all(more, &["EX", "5"]));
    assert!(reply.error().starts_with("ERR numkeys "), "{reply:?}");
    let mut twice = command_of("LOCK.MRELEASE", keys, &[&token]);
    twice[1_025] = keys[5].clone();
    assert_eq!(locks.conn.execute(&twice).error(), "ERR key 1024 is the same as key 6");
    // Once one key has been released, all of them are refused.
    assert_eq!(locks.conn.int(&["LOCK.RELEASE", &keys[1_000], &token]), 1);
    assert_eq!(locks.conn.int(&extend), 0);
    assert_eq!(locks.conn.int(&command_of("LOCK.MRELEASE", keys, &[&token])), 1_023);
    assert_eq!(locks.conn.int(&["DBSIZE"]), 0);
}
