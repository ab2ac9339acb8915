//! examples/redlock: one lock across five servers is granted while a majority answers and time is left, to one client
//! at a time; otherwise to none, and partial grants are released at once.

use crate::demo::shows;
use redlock_example::{NotLocked, Redlock, Settings};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::relay::{Loss, Relay};
use testkit::{until, Reply, Server};

/// Longer than any test: a lock that becomes free earlier was released.
const LEASE: Duration = Duration::from_secs(60);
/// Longer than a busy machine takes to answer.
const PATIENT: Settings = Settings { timeout: Duration::from_secs(5), attempts: 1, retry_delay: Duration::ZERO };

fn five() -> Vec<Server> {
    (0..5).map(|_| Server::start()).collect()
}

fn redlock(ports: &[u16], settings: Settings) -> Redlock {
    let addresses: Vec<String> = ports.iter().map(|port| format!("redis://127.0.0.1:{port}/")).collect();
    Redlock::new(&addresses, settings).unwrap()
}

fn ports(servers: &[Server]) -> Vec<u16> {
    servers.iter().map(Server::port).collect()
}

fn info(server: &Server, field: &str) -> Reply {
    server.conn().lock("door", field)
}

/// Asserts that neither a grant nor a place in the queue is left.
fn assert_nothing_left(server: &Server) {
    assert_eq!(info(server, "state").text(), "free");
    // A cancelled attempt is barred for a while, which counts as a place. A reserved place would be counted too.
    let mut conn = server.conn();
    let places: usize = conn.info("lock", "lock_places").unwrap().parse().unwrap();
    let cancelled = conn.calls("lock.cancel");
    assert!(places <= cancelled, "{places} places, {cancelled} cancelled");
}

#[test]
fn two_of_five_servers_may_be_dead() {
    let mut servers = five();
    let ports = ports(&servers);
    let (one, other) = (redlock(&ports, PATIENT), redlock(&ports, PATIENT));
    servers.truncate(3);
    let held = one.lock("door", LEASE).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(held.granted(), 3);
    let refused = other.lock("door", LEASE).err().expect("one holds");
    assert_eq!(refused, NotLocked { granted: 0, refused: 3, failed: 2, quorum: 3 });
    assert!(servers.iter().all(|server| info(server, "state").text() == "held"), "the other client left it alone");
    drop(held);
    servers.iter().for_each(assert_nothing_left);
    drop(other.lock("door", LEASE).unwrap_or_else(|error| panic!("{error}")));
    servers.iter().for_each(assert_nothing_left);
}

#[test]
fn three_dead_servers_of_five_grant_nothing() {
    let mut servers = five();
    let redlock = redlock(&ports(&servers), Settings { attempts: 3, ..PATIENT });
    servers.truncate(2);
    let error = redlock.lock("door", LEASE).err().expect("a minority");
    assert_eq!(error, NotLocked { granted: 2, refused: 0, failed: 3, quorum: 3 });
    let text = "not locked: 2 of 3 needed servers granted it in time (0 refused, 3 did not answer)";
    assert_eq!(error.to_string(), text);
    servers.iter().for_each(assert_nothing_left);
}

#[test]
fn a_minority_lock_is_released_and_others_are_left_alone() {
    let servers = five();
    let redlock = redlock(&ports(&servers), PATIENT);
    let theirs: Vec<i64> =
        servers[..3].iter().map(|server| server.conn().int(&["LOCK.ACQUIRE", "door", "EX", "60"])).collect();
    let error = redlock.lock("door", LEASE).err().expect("a minority");
    assert_eq!(error, NotLocked { granted: 2, refused: 3, failed: 0, quorum: 3 });
    for (server, token) in servers.iter().zip(theirs) {
        assert_eq!(info(server, "token").int(), token);
    }
    servers[3..].iter().for_each(assert_nothing_left);
}

#[test]
fn an_unanswered_grant_is_released_when_the_server_returns() {
    let servers = five();
    let redlock = redlock(&ports(&servers), Settings { timeout: Duration::from_secs(1), ..PATIENT });
    // Connects the client to all servers.
    drop(redlock.lock("door", LEASE).unwrap_or_else(|error| panic!("{error}")));
    for server in &servers[..3] {
        server.signal("STOP");
    }
    let error = redlock.lock("door", LEASE).err().expect("a minority");
    assert_eq!(error, NotLocked { granted: 2, refused: 0, failed: 3, quorum: 3 });
    servers[3..].iter().for_each(assert_nothing_left);
    for server in &servers[..3] {
        server.signal("CONT");
    }
    for server in &servers[..3] {
        until("it got the lock", || server.conn().text(&["INFO", "lock"]).contains("lock_grants:2\r").then_some(()));
        until("the lock was released", || (info(server, "state").text() == "free").then_some(()));
    }
}

#[test]
fn a_lost_reply_is_repeated_for_the_same_id() {
    let mut servers = five();
    let mut ports = ports(&servers);
    let relay = Relay::to(ports[0]);
    relay.lose_reply_to("LOCK.ACQUIRE", Loss::Closed);
    ports[0] = relay.port();
    // Two servers are dead, so this one is needed.
    servers.truncate(3);
    let held = redlock(&ports, PATIENT);
    let held = held.lock("door", LEASE).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(held.granted(), 3);
    assert_eq!(servers[0].conn().calls("lock.acquire"), 2);
    assert_eq!(info(&servers[0], "id"), info(&servers[1], "id"));
    drop(held);
    servers.iter().for_each(assert_nothing_left);
}

#[test]
fn validity_is_the_lease_less_delay_and_drift() {
    let servers = five();
    // Less one percent and two milliseconds.
    let most = LEASE.mul_f64(0.99).saturating_sub(Duration::from_millis(2));
    let timeout = Duration::from_millis(400);
    let redlock = redlock(&ports(&servers), Settings { timeout, ..PATIENT });
    let since = Instant::now();
    let held = redlock.lock("door", LEASE).unwrap_or_else(|error| panic!("{error}"));
    let left = held.validity();
    let took = since.elapsed();
    assert!(left <= most, "{left:?}");
    assert!(left + took >= most, "{left:?} after {took:?}");
    drop(held);

    // A server that does not answer costs its time-out.
    servers[0].signal("STOP");
    let held = redlock.lock("door", LEASE).unwrap_or_else(|error| panic!("{error}"));
    assert!(held.validity() + timeout <= most, "{:?}", held.validity());
    assert_eq!(held.granted(), 4);
    drop(held);
    // With such a short lease no time is left, although most servers granted the lock.
    let error = redlock.lock("door", timeout).err().expect("no time is left");
    assert_eq!(error, NotLocked { granted: 4, refused: 0, failed: 1, quorum: 3 });
    servers[1..].iter().for_each(assert_nothing_left);
    servers[0].signal("CONT");
}

#[test]
fn racing_clients_never_hold_it_together() {
    let servers = five();
    let ports = ports(&servers);
    let (inside, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let settings = Settings { attempts: 10, retry_delay: Duration::from_millis(3), ..PATIENT };
    let end = Instant::now() + Duration::from_secs(20);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let redlock = redlock(&ports, settings);
                while taken.load(Ordering::SeqCst) < 100 && Instant::now() < end {
                    let Ok(held) = redlock.lock("door", LEASE) else { continue };
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two clients hold the lock");
                    thread::sleep(Duration::from_micros(500));
                    assert!(held.validity() > Duration::ZERO);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    taken.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert!(taken.into_inner() >= 20, "the clients make progress");
    servers.iter().for_each(assert_nothing_left);
}

#[test]
fn the_example_runs_and_prints_what_is_true() {
    shows("redlock", &["one client has the lock on 5 servers", "5 refused", "on 3 servers", "3 did not answer"]);
}
