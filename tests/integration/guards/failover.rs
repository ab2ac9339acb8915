//! FAILOVER: nothing is granted while it lasts. Afterwards the queue moves on, or the waits end and the lock is on the
//! new master.

use super::{shorten, with_aof, Queue};
use crate::kinds::Kind;
use crate::waiting::{Locks, Waiter};
use testkit::{server_time_us, until, Reply, Server};

/// The replica, once it is a master.
fn promoted(replica: Server) -> Locks {
    let mut new = Locks::on(replica);
    until("the replica is master", || (new.conn.execute(&["ROLE"]).list()[0].text() == "master").then_some(()));
    new
}

/// A master with a replica that is in sync.
fn pair() -> (Locks, Server) {
    let (master, replica) = (with_aof(), Server::with().module_args(&["margin-ms", "0"]).start());
    replica.replicate(&master.server);
    until("the replica is known to be good", || {
        master.server.conn().text(&["INFO", "replication"]).contains("state=online").then_some(())
    });
    (master, replica)
}

#[test]
fn a_failed_failover_grants_nothing_and_the_queue_moves_on() {
    let (mut locks, replica) = pair();
    let token = Kind::Shared.take(&mut locks.conn, &["EX", "60"]);
    let mut queue = Queue::of(&mut locks);
    let timestamp = shorten(&mut locks, Kind::Shared, &token, 600);
    // The replica does not answer: the master is paused while it waits for the replica to catch up.
    replica.signal("STOP");
    locks.conn.ok(&["SET", "more", "1"]);
    let from = server_time_us(&mut locks.conn);
    let port = replica.port().to_string();
    locks.conn.ok(&["FAILOVER", "TO", "127.0.0.1", &port, "TIMEOUT", "1200"]);
    let in_time = from < timestamp;
    let first = queue.0[0].granted();
    replica.signal("CONT");
    assert!(!in_time || first >= from + 1_200_000, "granted {} us after the failover began", first - from);
    queue.serve_after(&mut locks, first);
    assert_eq!(locks.conn.execute(&["ROLE"]).list()[0].text(), "master");
    locks.server.wait_offset(&replica);
    let digest = locks.conn.text(&["DEBUG", "DIGEST"]);
    assert_eq!(replica.conn().text(&["DEBUG", "DIGEST"]), digest);
}

#[test]
fn a_failover_ends_waits_and_moves_the_lock() {
    let (mut locks, replica) = pair();
    locks.hold();
    let value = locks.conn.text(&["GET", "k"]);
    let mut queue = Queue::of(&mut locks);
    let port = replica.port().to_string();
    locks.conn.ok(&["FAILOVER", "TO", "127.0.0.1", &port]);
    queue.0.iter_mut().for_each(Waiter::demoted);
    let mut new = promoted(replica);
    assert_eq!(new.conn.text(&["GET", "k"]), value);
    let mut next = new.wait(&[]);
    assert_eq!(new.conn.int(&["DEL", "k"]), 1);
    next.granted();
    until("the old master follows", || (locks.conn.lock("k", "token") == new.conn.lock("k", "token")).then_some(()));
}

#[test]
fn a_lease_that_ends_in_a_failover_is_granted_once() {
    let (mut locks, replica) = pair();
    let token = locks.hold();
    let mut waiter = locks.wait(&[]);
    shorten(&mut locks, Kind::Alone, &token, 300);
    replica.signal("STOP");
    locks.conn.ok(&["SET", "more", "1"]);
    let port = replica.port().to_string();
    locks.conn.ok(&["FAILOVER", "TO", "127.0.0.1", &port]);
    // Until the lease has ended; the reply to the server's own WAIT command would serve as well.
    let mut ask = locks.server.conn();
    let end = server_time_us(&mut ask) + 500_000;
    until("the lease has ended", || (server_time_us(&mut ask) > end).then_some(()));
    replica.signal("CONT");
    let old = waiter.conn.try_read();
    assert!(!matches!(old, Ok(Reply::Int(_) | Reply::Nil)), "{old:?}");
    let mut new = promoted(replica);
    let token = new.hold();
    assert!(new.conn.execute(&["LOCK.ACQUIRE", "k", "PX", "30000"]).is_nil());
    new.release(token);
}
