//! `maxclients` is reached: no client can connect. The clients that are connected get locks, in order, whatever ends
//! the grants before them.

use crate::notify::{can_publish, waiting, Subscriber};
use crate::waiting::{Locks, Waiter};
use testkit::{until, Conn, Server};

/// From here on no client can connect, even when others leave.
fn fill(locks: &mut Locks) {
    locks.conn.ok(&["CONFIG", "SET", "maxclients", "1"]);
    assert_full(locks);
}

fn assert_full(locks: &Locks) {
    let reply = Conn::to(locks.server.port()).unwrap().try_read().expect("a refusal");
    assert!(reply.error().starts_with("ERR max number of clients reached"), "{reply:?}");
}

/// The server accepts clients again.
fn empty(locks: &mut Locks) {
    locks.conn.ok(&["CONFIG", "SET", "maxclients", "1000"]);
}

#[test]
fn a_lock_passes_on_when_a_connection_ends_and_none_can_be_opened() {
    let mut locks = Locks::on(Server::with().module_args(&["margin-ms", "0"]).start());
    let mut holder = locks.server.conn();
    let token = holder.int(&["LOCK.ACQUIRE", "k", "EX", "600", "SESSION"]);
    let mut first = locks.wait(&["SESSION"]);
    let gone = locks.wait(&["SESSION", "ID", "7"]);
    let mut killed = locks.wait(&[]);
    let mut last = locks.wait(&[]);
    fill(&mut locks);

    // The holder's connection ends, then that of a waiter, then that of the next holder.
    drop(holder);
    let second = first.granted();
    assert!(second > token);
    assert_eq!(locks.waiters(), 3);
    drop(gone);
    locks.until_waiters(2);
    assert_full(&locks);
    // The client is gone by the time its grant could be sent: the grant is passed on.
    let release = ["LOCK.RELEASE", "k", &second.to_string()];
    let kill = ["CLIENT", "KILL", "ID", &killed.id.clone()];
    locks.in_one_turn(&[&release, &kill]);
    killed.closed();
    let token = last.granted();
    assert_full(&locks);
    locks.assert_holds(token);
    locks.release(token);
    assert_eq!(locks.info("lock", "lock_undelivered_grants"), 1);
    empty(&mut locks);
}

#[test]
fn a_pool_of_waiters_ends_with_its_connections_and_none_can_be_opened() {
    let mut locks = Locks::on(Server::with().module_args(&["margin-ms", "0"]).start());
    let token = locks.hold();
    let mut waiters: Vec<Waiter> = (0..20).map(|_| locks.wait(&["SESSION"])).collect();
    fill(&mut locks);
    // Every other waiter leaves; each of the others gets the lock, and its connection ends with the lock.
    let mut left = Vec::new();
    for (at, waiter) in waiters.drain(..).enumerate() {
        if at % 2 == 0 {
            left.push(waiter);
        }
    }
    locks.until_waiters(10);
    locks.release(token);
    let mut largest = 0;
    for mut waiter in left {
        let token = waiter.granted();
        assert!(token > largest);
        largest = token;
        assert_full(&locks);
    }
    until("the last lock has ended", || (locks.conn.state("k") != "held").then_some(()));
    empty(&mut locks);
}

#[test]
fn attempts_claim_over_connections_that_are_open() {
    const ATTEMPTS: usize = 50;
    let mut locks = Locks::on(Server::with().module_args(&["margin-ms", "0", "claim-ms", "60000"]).start());
    if !can_publish(&mut locks.conn) {
        return;
    }
    let token = locks.hold();
    let mut subscriber = Subscriber::of(&locks.server, "channel");
    let mut asking = locks.server.conn();
    let ids: Vec<String> = (0..ATTEMPTS).map(|number| (100 + number).to_string()).collect();
    for id in &ids {
        let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "60000", "ID", id, "NOTIFY", "channel"];
        assert_eq!(asking.execute(&ask), waiting());
    }
    fill(&mut locks);
    // The connection over which they asked is gone; they claim over another one.
    drop(asking);
    locks.release(token);
    let mut largest = 0;
    for id in &ids {
        subscriber.gets(&format!("granted {id} k"));
        let token = locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", id]);
        assert!(token > largest);
        largest = token;
        assert_full(&locks);
        locks.release(token);
    }
    assert_eq!(locks.info("lock", "lock_claims"), i64::try_from(ATTEMPTS).unwrap());
    assert_eq!((locks.info("lock", "lock_unclaimed"), locks.info("lock", "lock_queued")), (0, 0));
    empty(&mut locks);
}
