//! `single_flight` for threads: rules G1 to G7 of `docs/CLIENT_SPEC.md`, on the server in memory.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![allow(clippy::arithmetic_side_effects)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serverlock::testing::Server;
use serverlock::{Cancel, Error, Held, Hooks, Kind, Locks, Options};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(60);

type Got = Result<Vec<u8>, Error>;

fn until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "not within a minute: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// How many callers of this manager compute, or wait for the value.
fn callers(locks: &Locks) -> usize {
    locks.census().into_iter().find(|(name, _)| *name == "flights").unwrap().1
}

fn is_free(server: &Server) -> bool {
    let locks = server.locks();
    locks.lock("report", LEASE).acquire().and_then(Held::release).is_ok()
}

/// A caller that computes until the test says what to return.
struct Computing {
    returns: Sender<Option<&'static str>>,
    thread: JoinHandle<Got>,
}

impl Computing {
    fn begin(locks: &Locks) -> Self {
        let (returns, orders) = channel::<Option<&'static str>>();
        let (entered, computes) = channel();
        let flight = locks.single_flight("report", LEASE).wait(3600 * SECOND);
        let thread = thread::spawn(move || {
            flight.run(|held| {
                entered.send(held.token()).unwrap();
                orders.recv().unwrap().ok_or_else(failure)
            })
        });
        computes.recv_timeout(PATIENCE).unwrap();
        Self { returns, thread }
    }

    fn ends(self, value: Option<&'static str>) -> Got {
        self.returns.send(value).unwrap();
        self.thread.join().unwrap()
    }
}

/// The error of a `compute` that fails.
fn failure() -> Error {
    let server = Server::new();
    let held = server.locks().lock("work", LEASE).acquire().unwrap();
    server.lose(&held.watch());
    held.check().unwrap_err()
}

/// A caller that waits for the value, and would compute its own name.
fn waits(locks: &Locks, name: &'static str, wait: Duration) -> JoinHandle<Got> {
    let flight = locks.single_flight("report", LEASE).wait(wait);
    let before = callers(locks);
    let caller = thread::spawn(move || flight.run(|_| Ok::<_, Error>(name)));
    until("it has joined the others", || callers(locks) > before);
    caller
}

fn value(caller: JoinHandle<Got>) -> String {
    String::from_utf8(caller.join().unwrap().unwrap()).unwrap()
}

fn kind(caller: JoinHandle<Got>) -> Kind {
    caller.join().unwrap().unwrap_err().kind()
}

#[test]
fn one_computes_and_all_that_wait_get_the_same_bytes() {
    let server = Server::new();
    let (one, two) = (server.locks(), server.locks());
    let computing = Computing::begin(&one);
    let elsewhere = waits(&two, "elsewhere", 3600 * SECOND);
    server.until_waiting("report", 1);
    let others: Vec<_> = (0..3).flat_map(|_| [waits(&one, "other", LEASE), waits(&two, "other", LEASE)]).collect();
    assert_eq!(server.waiting("report"), 1, "the callers of a manager share an attempt");
    server.clock().advance(20 * SECOND); // the lock is renewed
    assert_eq!(computing.ends(Some("42 pages")).unwrap(), b"42 pages");
    assert_eq!(value(elsewhere), "42 pages");
    assert!(others.into_iter().all(|other| value(other) == "42 pages"));
    assert_eq!(value(waits_alone(&two, "later")), "later", "a later caller computes again");
    assert!(is_free(&server) && callers(&one) + callers(&two) == 0);
}

/// A caller that need not wait.
fn waits_alone(locks: &Locks, name: &'static str) -> JoinHandle<Got> {
    let flight = locks.single_flight("report", LEASE);
    thread::spawn(move || flight.run(|_| Ok::<_, Error>(name)))
}

#[test]
fn all_that_becomes_bytes_is_a_value() {
    let locks = Server::new().locks();
    let flight = locks.single_flight("report", LEASE);
    assert_eq!(flight.run(|_| Ok::<_, Error>("text")).unwrap(), b"text");
    assert_eq!(flight.run(|_| Ok::<_, Error>(String::from("text"))).unwrap(), b"text");
    assert_eq!(flight.run(|_| Ok::<_, Error>(&[0, 255][..])).unwrap(), [0, 255]);
    assert_eq!(flight.run(|_| Ok::<_, Error>(Vec::new())).unwrap(), b"");
}

#[test]
fn after_a_failure_the_next_one_computes() {
    let server = Server::new();
    let (one, two) = (server.locks(), server.locks());
    let computing = Computing::begin(&one);
    let elsewhere = waits(&two, "elsewhere", LEASE);
    server.until_waiting("report", 1);
    let follower = waits(&one, "follower", LEASE);
    assert_eq!(computing.ends(None).unwrap_err().key(), "\"work\"", "the caller gets the error of the work");
    assert_eq!(value(elsewhere), "elsewhere");
    let made = value(follower);
    assert!(made == "elsewhere" || made == "follower", "{made}"); // it may come too late for the first
    assert!(is_free(&server) && callers(&one) + callers(&two) == 0);
}

#[test]
fn a_panic_releases_the_lock_and_the_next_one_computes() {
    let server = Server::new();
    let locks = server.locks();
    let (panics, go) = channel::<()>();
    let flight = locks.single_flight("report", LEASE);
    let (entered, computes) = channel();
    let panicking = thread::spawn(move || {
        let run = || {
            flight.run(|_| -> Result<Vec<u8>, Error> {
                entered.send(()).unwrap();
                go.recv().unwrap();
                std::panic::resume_unwind(Box::new("a panic"))
            })
        };
        catch_unwind(AssertUnwindSafe(run)).is_err()
    });
    computes.recv_timeout(PATIENCE).unwrap();
    let follower = waits(&locks, "follower", LEASE);
    panics.send(()).unwrap();
    assert!(panicking.join().unwrap());
    assert_eq!(value(follower), "follower");
    assert!(is_free(&server) && callers(&locks) == 0);
}

#[test]
fn each_caller_has_its_own_wait() {
    let server = Server::new();
    let (one, two) = (server.locks(), server.locks());
    let computing = Computing::begin(&two);
    let first = waits(&one, "first", 5 * SECOND);
    server.until_waiting("report", 1);
    let (patient, short) = (waits(&one, "patient", 60 * SECOND), waits(&one, "short", 3 * SECOND));
    server.clock().advance(3 * SECOND);
    assert_eq!(kind(short), Kind::Timeout);
    server.clock().advance(2 * SECOND);
    assert_eq!(kind(first), Kind::Timeout);
    server.until_waiting("report", 1); // the attempt of the patient one
    server.clock().advance(54 * SECOND);
    assert_eq!(server.waiting("report"), 1, "it has waited for 59 seconds");
    server.clock().advance(SECOND);
    let error = patient.join().unwrap().unwrap_err();
    assert_eq!((error.kind(), error.key()), (Kind::Timeout, "\"report\""));
    assert_eq!(computing.ends(Some("late")).unwrap(), b"late");
    assert!(is_free(&server) && callers(&one) == 0);
}

#[test]
fn a_cancelled_caller_affects_no_other() {
    let server = Server::new();
    let (one, two) = (server.locks(), server.locks());
    let computing = Computing::begin(&two);
    let cancels = [Cancel::new(), Cancel::new()];
    let cancelled = cancels.clone().map(|cancel| {
        let flight = one.single_flight("report", LEASE);
        let (before, one) = (callers(&one), &one);
        let caller = thread::spawn(move || flight.run_unless(&cancel, |_| Ok::<_, Error>("cancelled")));
        until("it has joined", || callers(one) > before);
        caller
    });
    let other = waits(&one, "other", LEASE);
    let [first, second] = cancelled;
    cancels[1].cancel();
    assert_eq!(kind(second), Kind::Cancelled);
    cancels[0].cancel();
    assert_eq!(kind(first), Kind::Cancelled);
    server.until_waiting("report", 1);
    assert_eq!(computing.ends(Some("value")).unwrap(), b"value");
    assert_eq!(value(other), "value");
    assert!(is_free(&server) && callers(&one) == 0);
}

#[test]
fn other_errors_go_to_all_callers_of_the_attempt() {
    let server = Server::new();
    let (one, two) = (server.locks(), server.locks());
    let computing = Computing::begin(&two);
    let waiting: Vec<_> = (0..3).map(|_| waits(&one, "refused", LEASE)).collect();
    server.until_waiting("report", 1);
    server.refuse("report");
    assert!(waiting.into_iter().all(|caller| kind(caller) == Kind::Unavailable));
    server.allow("report");
    let waiting: Vec<_> = (0..3).map(|_| waits(&one, "closed", LEASE)).collect();
    server.until_waiting("report", 1);
    one.close();
    assert!(waiting.into_iter().all(|caller| kind(caller) == Kind::Misuse));
    assert_eq!(kind(waits_alone(&one, "closed")), Kind::Misuse);
    let follower = waits(&two, "follower", LEASE);
    two.close();
    assert_eq!(kind(follower), Kind::Misuse, "nobody waits for a closed manager");
    assert_eq!(computing.ends(Some("value")).unwrap(), b"value");
}

#[test]
fn asking_within_compute_is_a_misuse() {
    let server = Server::new();
    let locks = server.locks();
    let flight = locks.single_flight("report", LEASE);
    let within = |held: &Held| {
        let again = flight.run(|_| Ok::<_, Error>("again")).unwrap_err();
        let plain = locks.lock("report", LEASE).reentrant().acquire().unwrap_err();
        server.lose(&held.watch());
        let after_loss = flight.run(|_| Ok::<_, Error>("after the loss")).unwrap_err();
        assert_eq!([again.kind(), plain.kind(), after_loss.kind()], [Kind::Misuse; 3]);
        let other = locks.single_flight("other", LEASE).run(|_| Ok::<_, Error>("other"))?;
        Ok::<_, Error>(other)
    };
    assert_eq!(flight.run(within).unwrap(), b"other", "a value needs no lock");
    let in_scope = locks.lock("report", LEASE).run(|_| flight.run(|_| Ok::<_, Error>("in a scope")));
    assert_eq!(in_scope.unwrap_err().kind(), Kind::Misuse);
    assert!(is_free(&server) && callers(&locks) == 0);
}

#[test]
fn bad_arguments_are_named() {
    let locks = Server::new().locks();
    let flight = || locks.single_flight("report", LEASE);
    for (text, bad) in [
        ("wait is 0ns", flight().wait(Duration::ZERO)),
        ("lease is 0ns", locks.single_flight("report", Duration::ZERO)),
        ("owner is", flight().owner("two words")),
        ("a key is longer", locks.single_flight("k".repeat(4097), LEASE)),
    ] {
        let error = bad.run(|_| Ok::<_, Error>("")).unwrap_err();
        assert!(error.kind() == Kind::Argument && error.to_string().contains(text), "{error}");
    }
    assert_eq!(flight().wait(Duration::MAX).run(|_| Ok::<_, Error>("no limit")).unwrap(), b"no limit");
}

#[test]
fn a_value_that_is_too_long_is_not_passed_to_other_processes() {
    for (size, expected) in [(65_536, 1), (65_537, 2)] {
        let server = Server::new();
        let (one, two) = (server.locks(), server.locks());
        let computed = Arc::new(AtomicUsize::new(0));
        let (entered, computes) = channel();
        let (go, waits): (Sender<()>, Receiver<()>) = channel();
        let (count, flight) = (Arc::clone(&computed), one.single_flight("report", LEASE));
        let holder = thread::spawn(move || {
            flight.run(|_| {
                entered.send(()).unwrap();
                waits.recv().unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                Ok::<_, Error>(vec![7; size])
            })
        });
        computes.recv_timeout(PATIENCE).unwrap();
        let (count, flight) = (Arc::clone(&computed), two.single_flight("report", LEASE));
        let waiter = thread::spawn(move || {
            flight.run(|_| {
                count.fetch_add(1, Ordering::SeqCst);
                Ok::<_, Error>(vec![7; size])
            })
        });
        server.until_waiting("report", 1);
        go.send(()).unwrap();
        for caller in [holder, waiter] {
            assert_eq!(caller.join().unwrap().unwrap(), vec![7; size]);
        }
        assert_eq!(computed.load(Ordering::SeqCst), expected, "{size} bytes");
        assert!(is_free(&server));
    }
}

#[test]
fn a_loss_is_reported_and_the_holder_dies_with_its_lease() {
    let server = Server::new();
    let (one, two) = (server.locks(), server.locks());
    let lost = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&lost);
    let flight = one.single_flight("report", LEASE).max_hold(SECOND);
    let flight = flight.on_lost(move |error| seen.lock().unwrap().push(error.code()));
    let holder = flight.run(|held| {
        let next = waits(&two, "next", 3600 * SECOND);
        server.until_waiting("report", 1);
        server.clock().advance(31 * SECOND); // the lease ends, and the margin
        assert_eq!(value(next), "next");
        held.check()?;
        Ok::<_, Error>("not reached")
    });
    assert_eq!(holder.unwrap_err().kind(), Kind::Lost);
    assert_eq!(*lost.lock().unwrap(), ["lost"]);
    assert!(is_free(&server));
}

#[test]
fn a_result_calls_no_hook() {
    let server = Server::new();
    let called = Arc::new(Mutex::new(Vec::new()));
    let add = |name: &'static str| {
        let called = Arc::clone(&called);
        move |key: &str| called.lock().unwrap().push(format!("{name} {key}"))
    };
    let (granted, refused, released) = (add("granted"), add("refused"), add("released"));
    let hooks = Hooks::new()
        .granted(move |key, _| granted(key))
        .refused(move |key, _, _| refused(key))
        .released(move |key, _, _| released(key));
    let (one, two) = (server.locks(), server.locks_with_options(Options::new().hooks(hooks)));
    let computing = Computing::begin(&one);
    let waiter = waits(&two, "waiter", LEASE);
    server.until_waiting("report", 1);
    assert_eq!(computing.ends(Some("value")).unwrap(), b"value");
    assert_eq!(value(waiter), "value");
    assert!(called.lock().unwrap().is_empty(), "{called:?}");
    assert_eq!(value(waits_alone(&two, "later")), "later");
    assert_eq!(*called.lock().unwrap(), ["granted \"report\"", "released \"report\""]);
}
