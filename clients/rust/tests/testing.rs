//! `serverlock::testing` for threads: rules M1 to M6 of `docs/CLIENT_SPEC.md`.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![allow(clippy::arithmetic_side_effects, clippy::unchecked_time_subtraction)]

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, SystemTime};

use serverlock::testing::Server;
use serverlock::{Error, Hooks, Kind, Locks, Options, Outcome};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(60);

/// What has happened on other threads.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    fn add(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Other threads may still be about to add something.
    fn until(&self, expected: &[&str]) {
        let begun = std::time::Instant::now();
        while self.all() != expected {
            assert!(begun.elapsed() < PATIENCE, "{:?}, not {expected:?}", self.all());
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A thread waits for the lock of a process of its own, and releases it at once.
fn wait_in_thread(server: &Server, seen: &Seen, name: &str, locks: Locks, wait: Duration) {
    let (seen, name, before) = (seen.clone(), name.to_owned(), server.waiting("report"));
    thread::spawn(move || {
        match locks.lock("report", LEASE).wait(wait).run(|_| {
            seen.add(name.as_str());
            Ok::<_, Error>(())
        }) {
            Ok(()) => {}
            Err(error) => seen.add(format!("{name} {}", error.code())),
        }
    });
    server.until_waiting("report", before + 1);
}

#[test]
fn several_managers_behave_like_several_processes() {
    let server = Server::new();
    let (one, two) = (server.locks(), server.locks());
    let held = one.lock("report", LEASE).acquire().unwrap();
    assert_eq!(two.lock("report", LEASE).acquire().unwrap_err().kind(), Kind::Refused);
    let elsewhere = Server::new().locks().lock("report", LEASE).acquire().unwrap();
    elsewhere.release().unwrap();
    let before = held.token();
    held.release().unwrap();
    let next = two.lock("report", LEASE).acquire().unwrap();
    assert!(next.token() > before);
    one.close();
    assert_eq!(one.lock("other", LEASE).acquire().unwrap_err().kind(), Kind::Misuse);
    next.check().unwrap();
}

#[test]
fn scopes_hooks_and_arguments_are_those_of_production() {
    let (server, seen) = (Server::new(), Seen::default());
    let [granted, released] = [seen.clone(), seen.clone()];
    let hooks = Hooks::new()
        .granted(move |key, _| granted.add(format!("granted {key}")))
        .released(move |key, held, in_time| released.add(format!("released {key} {held:?} {in_time}")));
    let locks = server.locks_with_options(Options::new().hooks(hooks));
    let report = locks.lock("report", LEASE);
    let error = report.run(|_| report.acquire().map(|_| ())).unwrap_err();
    assert_eq!(error.kind(), Kind::Misuse);
    assert_eq!(locks.lock("report", Duration::ZERO).acquire().unwrap_err().kind(), Kind::Argument);
    assert_eq!(seen.all(), ["granted \"report\"", "released \"report\" 0ns true"]);
}

#[test]
fn attempts_get_the_lock_in_order_of_arrival() {
    let (server, seen) = (Server::new(), Seen::default());
    let (ours, theirs) = (server.locks(), server.locks());
    let held = ours.lock("report", LEASE).acquire().unwrap();
    for (name, locks) in [("1", &theirs), ("2", &ours), ("3", &theirs), ("4", &server.locks())] {
        wait_in_thread(&server, &seen, name, locks.clone(), 3600 * SECOND);
    }
    server.clock().advance(600 * SECOND); // renewals, and many copies of the attempts
    assert_eq!(seen.all(), Vec::<String>::new());
    held.release().unwrap();
    seen.until(&["1", "2", "3", "4"]);
}

#[test]
fn time_stands_still_until_it_is_moved() {
    let server = Server::new();
    let held = server.locks().lock("report", LEASE).acquire().unwrap();
    assert_eq!(held.left(), 27 * SECOND);
    let before = server.clock().now();
    assert_eq!(before, SystemTime::UNIX_EPOCH + Duration::from_secs(946_684_800));
    server.clock().advance(SECOND);
    assert_eq!(held.left(), 26 * SECOND);
    assert_eq!(server.clock().now(), before + SECOND);
    server.clock().advance(9 * SECOND);
    assert_eq!(held.left(), 27 * SECOND, "a third of the lease has passed, and it was renewed");
}

#[test]
fn a_wait_ends_when_its_time_has_passed() {
    let (server, seen) = (Server::new(), Seen::default());
    let locks = server.locks();
    let held = locks.lock("report", LEASE).acquire().unwrap();
    for seconds in [7, 3, 5] {
        wait_in_thread(&server, &seen, &seconds.to_string(), server.locks(), seconds * SECOND);
    }
    server.clock().advance(3 * SECOND - Duration::from_millis(1));
    assert_eq!(server.waiting("report"), 3);
    server.clock().advance(Duration::from_millis(1));
    assert_eq!(server.waiting("report"), 2);
    seen.until(&["3 timeout"]);
    server.clock().advance(2 * SECOND);
    seen.until(&["3 timeout", "5 timeout"]);
    server.clock().advance(60 * SECOND);
    seen.until(&["3 timeout", "5 timeout", "7 timeout"]);
    held.check().unwrap();
}

#[test]
fn a_lock_is_renewed_for_max_hold_at_most() {
    let (server, seen) = (Server::new(), Seen::default());
    let (locks, lost) = (server.locks(), seen.clone());
    let held = locks.lock("report", LEASE).acquire().unwrap();
    let bounded = locks.lock("bounded", LEASE).max_hold(60 * SECOND);
    let bounded = bounded.on_lost(move |error| lost.add(error.code())).acquire().unwrap();
    server.clock().advance(60 * SECOND);
    bounded.check().unwrap();
    server.clock().advance(24 * 3600 * SECOND);
    assert_eq!(seen.all(), ["lost"]);
    held.check().unwrap();
    assert_eq!(bounded.release().unwrap_err().kind(), Kind::Lost);
    let predecessor = locks.recover("bounded", LEASE).acquire().unwrap_err();
    assert!(predecessor.to_string().contains("the lock is free"), "its release cleaned up: {predecessor}");
}

#[test]
fn an_expired_lease_passes_the_lock_on() {
    let (server, seen) = (Server::new(), Seen::default());
    let lost = seen.clone();
    let alice = server.locks().lock("report", LEASE).owner("alice").on_lost(move |_| lost.add("lost"));
    let held = alice.acquire().unwrap();
    let (locks, (sender, next)) = (server.locks(), mpsc::channel());
    thread::spawn(move || sender.send(locks.lock("report", LEASE).wait(60 * SECOND).details().acquire()));
    server.until_waiting("report", 1);
    server.expire("report");
    let next = next.recv_timeout(PATIENCE).unwrap().unwrap();
    let before = next.predecessor().unwrap();
    assert_eq!((before.token, before.owner.as_deref()), (held.token(), Some("alice")));
    held.check().unwrap();
    server.clock().advance(LEASE / 3);
    assert_eq!(seen.all(), ["lost"]);
    assert_eq!(held.release().unwrap_err().kind(), Kind::Lost);
    next.release().unwrap();
}

#[test]
fn only_an_expired_lock_can_be_recovered() {
    let server = Server::new();
    let repair = server.locks().recover("report", LEASE);
    assert!(repair.acquire().unwrap_err().to_string().contains("the lock is free"));
    let held = server.locks().lock("report", LEASE).acquire().unwrap();
    assert_eq!(repair.acquire().unwrap_err().kind(), Kind::Refused);
    server.expire("report");
    let repaired = repair.acquire().unwrap();
    assert_eq!(repaired.predecessor().unwrap().token, held.token());
    assert_eq!(held.verify().unwrap_err().kind(), Kind::Lost);
}

#[test]
fn a_lost_hold_is_reported_at_once_and_its_key_is_free() {
    let (server, seen) = (Server::new(), Seen::default());
    let (locks, lost) = (server.locks(), seen.clone());
    let both = locks.all_of(["a", "b"], LEASE).on_lost(move |_| lost.add("lost"));
    let held = both.acquire().unwrap();
    server.lose(&held.watch());
    assert_eq!(seen.all(), ["lost"]);
    assert!(held.check().unwrap_err().is_lost());
    let next = both.acquire().unwrap();
    assert!(held.release().unwrap_err().is_lost());
    next.check().unwrap();
    let scope = locks.lock("report", LEASE).run(|held| {
        server.lose(&held.watch());
        held.check()
    });
    assert!(scope.unwrap_err().is_lost());
}

#[test]
fn a_refused_key_fails_until_it_is_allowed() {
    let (server, seen) = (Server::new(), Seen::default());
    let locks = server.locks();
    let held = locks.lock("report", LEASE).acquire().unwrap();
    wait_in_thread(&server, &seen, "waiter", server.locks(), 3600 * SECOND);
    server.refuse("report");
    seen.until(&["waiter unavailable"]);
    assert_eq!(held.extend(LEASE).unwrap_err().kind(), Kind::Unavailable);
    let all = locks.all_of(["other", "report"], LEASE).wait(60 * SECOND);
    assert_eq!(all.acquire().unwrap_err().kind(), Kind::Unavailable);
    held.check().unwrap();
    server.clock().advance(LEASE + SECOND);
    assert_eq!(held.check().unwrap_err().kind(), Kind::Lost, "it could not be renewed");
    server.allow("report");
    all.acquire().unwrap().release().unwrap();
}

#[test]
fn what_the_server_lacks_is_unavailable() {
    let server = Server::new();
    let locks = server.locks();
    let held = locks.lock("report", LEASE).acquire().unwrap();
    let fenced = held.fenced::<()>(redis::cmd("SET").arg("report:last").arg("done"));
    assert_eq!(fenced.unwrap_err().kind(), Kind::Unavailable);
    for lock in [locks.lock("other", LEASE).replicas(1, SECOND), locks.lock("other", LEASE).fsync(SECOND)] {
        assert_eq!(lock.acquire().unwrap_err().kind(), Kind::Unavailable);
    }
    locks.lock("other", LEASE).acquire().unwrap().release().unwrap();
}

#[test]
fn sessions_ticks_and_leaders_work() {
    let (server, seen) = (Server::new(), Seen::default());
    let (locks, other) = (server.locks(), server.locks());
    let session = locks.session();
    let (from, to) = (session.lock("from", LEASE).acquire().unwrap(), session.lock("to", LEASE).acquire().unwrap());
    from.release().unwrap();
    to.verify().unwrap();

    let day = 24 * 3600 * SECOND;
    let (nightly, elsewhere) = (locks.once("nightly", day), other.once("nightly", day));
    assert_eq!(nightly.run(|held| Ok::<_, Error>(held.tick())).unwrap(), Outcome::Ran(10_957));
    assert_eq!(elsewhere.run(|_| Ok::<_, Error>(0)).unwrap(), Outcome::Elsewhere);
    server.clock().advance(day);
    assert_eq!(elsewhere.run(|held| Ok::<_, Error>(held.tick())).unwrap(), Outcome::Ran(10_958));

    let leaders = ["one", "two"].map(|name| {
        let (leader, elected) = (server.locks().leader("chief", LEASE), seen.clone());
        let (campaign, before) = (leader.clone(), server.waiting("chief"));
        thread::spawn(move || {
            campaign.run(|term| {
                elected.add(name);
                campaign.wait(term);
            })
        });
        if name == "one" {
            seen.until(&["one"]);
        } else {
            server.until_waiting("chief", before + 1);
        }
        leader
    });
    leaders[0].stop();
    seen.until(&["one", "two"]);
    server.clock().advance(3600 * SECOND);
    assert!(leaders[1].token().is_some());
    leaders[1].stop();
}

#[test]
fn a_cancelled_attempt_leaves_nothing() {
    let (server, seen) = (Server::new(), Seen::default());
    let held = server.locks().lock("report", LEASE).acquire().unwrap();
    let (cancel, given_up) = (serverlock::Cancel::new(), seen.clone());
    let (waiter, canceled) = (server.locks().lock("report", LEASE).wait(60 * SECOND), cancel.clone());
    thread::spawn(move || given_up.add(waiter.acquire_unless(&canceled).unwrap_err().code()));
    server.until_waiting("report", 1);
    cancel.cancel();
    server.until_waiting("report", 0);
    seen.until(&["cancelled"]);
    held.release().unwrap();
}
