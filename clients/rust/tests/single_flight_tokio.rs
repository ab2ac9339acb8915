//! `single_flight` for tokio: rules G1 to G7 of `docs/CLIENT_SPEC.md`, on the server in memory.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![allow(clippy::arithmetic_side_effects)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serverlock::aio::{Held, Locks};
use serverlock::testing::aio::Server;
use serverlock::{Error, Kind};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);

type Got = Result<Vec<u8>, Error>;

/// How many callers of this manager compute, or wait for the value.
fn callers(locks: &Locks) -> usize {
    locks.census().into_iter().find(|(name, _)| *name == "flights").unwrap().1
}

async fn is_free(server: &Server) -> bool {
    server.waiting("report").await; // until everything has settled
    let lock = server.locks().lock("report", LEASE);
    match lock.acquire().await {
        Ok(held) => held.release().await.is_ok(),
        Err(_) => false,
    }
}

/// A caller that computes until the test says what to return.
struct Computing {
    returns: oneshot::Sender<&'static str>,
    task: JoinHandle<Got>,
}

impl Computing {
    async fn begin(locks: &Locks) -> Self {
        let ((returns, ordered), (entered, computes)) = (oneshot::channel(), oneshot::channel());
        let flight = locks.single_flight("report", LEASE).wait(3600 * SECOND);
        let task = tokio::spawn(async move {
            flight
                .run(async |_: &Held| {
                    entered.send(()).unwrap();
                    Ok::<_, Error>(ordered.await.unwrap())
                })
                .await
        });
        computes.await.unwrap();
        Self { returns, task }
    }

    async fn ends(self, value: &'static str) -> Got {
        self.returns.send(value).unwrap();
        self.task.await.unwrap()
    }
}

/// A caller that waits for the value, and would compute its own name.
async fn waits(server: &Server, locks: &Locks, name: &'static str, wait: Duration) -> JoinHandle<Got> {
    let flight = locks.single_flight("report", LEASE).wait(wait);
    let caller = tokio::spawn(async move { flight.run(async |_: &Held| Ok::<_, Error>(name)).await });
    server.waiting("report").await; // it has begun by then
    caller
}

async fn value(caller: JoinHandle<Got>) -> String {
    String::from_utf8(caller.await.unwrap().unwrap()).unwrap()
}

#[tokio::test]
async fn one_computes_and_all_that_wait_get_the_same_bytes() {
    let server = Server::new();
    let (one, two) = (server.locks(), server.locks());
    let computing = Computing::begin(&one).await;
    let mut waiting = Vec::new();
    for _ in 0..5 {
        waiting.push(waits(&server, &one, "one", LEASE).await);
        waiting.push(waits(&server, &two, "two", LEASE).await);
    }
    assert_eq!(server.waiting("report").await, 1, "the callers of a manager share an attempt");
    server.clock().advance(20 * SECOND).await; // the lock is renewed
    assert_eq!(computing.ends("42 pages").await.unwrap(), b"42 pages");
    for caller in waiting {
        assert_eq!(value(caller).await, "42 pages");
    }
    assert_eq!(value(waits(&server, &two, "later", LEASE).await).await, "later", "a later caller computes again");
    assert!(is_free(&server).await && callers(&one) + callers(&two) == 0);
}

#[tokio::test]
async fn each_caller_has_its_own_wait() {
    let server = Server::new();
    let (one, two) = (server.locks(), server.locks());
    let computing = Computing::begin(&two).await;
    let first = waits(&server, &one, "first", 5 * SECOND).await;
    let patient = waits(&server, &one, "patient", 60 * SECOND).await;
    let short = waits(&server, &one, "short", 3 * SECOND).await;
    server.clock().advance(5 * SECOND).await;
    for caller in [short, first] {
        assert_eq!(caller.await.unwrap().unwrap_err().kind(), Kind::Timeout);
    }
    server.until_waiting("report", 1).await; // the attempt of the patient one
    assert_eq!(computing.ends("value").await.unwrap(), b"value");
    assert_eq!(value(patient).await, "value");
    assert!(is_free(&server).await && callers(&one) == 0);
}

#[tokio::test]
async fn a_dropped_caller_that_waits_leaves_nothing_and_the_others_go_on() {
    let server = Server::new();
    let (one, two) = (server.locks(), server.locks());
    let computing = Computing::begin(&two).await;
    let first = waits(&server, &one, "first", LEASE).await;
    let second = waits(&server, &one, "second", LEASE).await;
    let third = waits(&server, &one, "third", LEASE).await;
    second.abort();
    server.until_waiting("report", 1).await;
    first.abort();
    server.until_waiting("report", 1).await;
    assert_eq!(callers(&one), 1);
    assert_eq!(computing.ends("value").await.unwrap(), b"value");
    assert_eq!(value(third).await, "value");
    assert!(is_free(&server).await && callers(&one) == 0);
}

#[tokio::test]
async fn a_dropped_compute_releases_the_lock_and_the_next_one_computes() {
    let server = Server::new();
    let (one, two) = (server.locks(), server.locks());
    let computing = Computing::begin(&one).await;
    let follower = waits(&server, &one, "follower", LEASE).await;
    computing.task.abort();
    assert_eq!(value(follower).await, "follower");
    let computing = Computing::begin(&one).await;
    let elsewhere = waits(&server, &two, "elsewhere", LEASE).await;
    computing.task.abort();
    assert_eq!(value(elsewhere).await, "elsewhere");
    assert!(is_free(&server).await && callers(&one) + callers(&two) == 0);
}

#[tokio::test]
async fn a_panic_releases_the_lock_and_the_next_one_computes() {
    let server = Server::new();
    let locks = server.locks();
    let flight = locks.single_flight("report", LEASE);
    let (panics, go) = oneshot::channel::<()>();
    let panicking = tokio::spawn(async move {
        let compute = async |_: &Held| -> Got {
            go.await.unwrap();
            std::panic::resume_unwind(Box::new("a panic"))
        };
        flight.run(compute).await
    });
    let follower = waits(&server, &locks, "follower", LEASE).await;
    panics.send(()).unwrap();
    assert!(panicking.await.unwrap_err().is_panic());
    assert_eq!(value(follower).await, "follower");
    assert!(is_free(&server).await && callers(&locks) == 0);
}

#[tokio::test]
async fn a_loss_drops_compute() {
    let server = Server::new();
    let locks = server.locks();
    let lost = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&lost);
    let flight = locks.single_flight("report", LEASE).on_lost(move |error| seen.lock().unwrap().push(error.code()));
    let awaits = flight.run(async |held: &Held| {
        server.lose(&held.watch()).await;
        std::future::pending::<Got>().await
    });
    assert_eq!(awaits.await.unwrap_err().kind(), Kind::Lost);
    assert!(is_free(&server).await && callers(&locks) == 0);
    assert_eq!(*lost.lock().unwrap(), ["lost"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_needs_no_lock() {
    let threads = serverlock::testing::Server::new();
    let locks = threads.aio().locks();
    let compute = async |held: &Held| {
        threads.lose(&held.watch()); // `compute` is not dropped, because it does not await anything
        held.check().unwrap_err();
        Ok::<_, Error>("value")
    };
    assert_eq!(locks.single_flight("report", LEASE).run(compute).await.unwrap(), b"value");
    assert_eq!(callers(&locks), 0);
}

#[tokio::test]
async fn asking_within_compute_is_a_misuse() {
    let server = Server::new();
    let locks = server.locks();
    let flight = locks.single_flight("report", LEASE);
    let within = async |_: &Held| {
        let again = flight.run(async |_: &Held| Ok::<_, Error>("again")).await.unwrap_err();
        let plain = locks.lock("report", LEASE).reentrant().run(async |_| Ok::<_, Error>(())).await.unwrap_err();
        assert_eq!([again.kind(), plain.kind()], [Kind::Misuse; 2]);
        locks.single_flight("other", LEASE).run(async |_: &Held| Ok::<_, Error>("other")).await
    };
    assert_eq!(flight.run(within).await.unwrap(), b"other");
    assert!(is_free(&server).await && callers(&locks) == 0);
}

#[tokio::test]
async fn a_thousand_callers_dropped_at_any_moment_leave_nothing() {
    let server = Server::new();
    let (one, two) = (server.locks(), server.locks());
    let (computed, keys) = (Arc::new(AtomicUsize::new(0)), ["report", "page", "feed"]);
    let mut calls: Vec<JoinHandle<Got>> = Vec::new();
    for number in 0..1000_usize {
        let locks = if number % 2 == 0 { &one } else { &two };
        let (flight, computed) = (locks.single_flight(keys[number % 3], LEASE), Arc::clone(&computed));
        let call = tokio::spawn(async move {
            let compute = async |_: &Held| {
                computed.fetch_add(1, Ordering::SeqCst);
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                Ok::<_, Error>("value")
            };
            flight.run(compute).await
        });
        for _ in 0..number % 5 {
            tokio::task::yield_now().await;
        }
        if number % 7 > 3 {
            calls.swap_remove(number * 31 % calls.len()).abort();
        }
        calls.push(call);
    }
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), b"value");
    }
    server.waiting("report").await;
    for key in keys {
        let free = server.locks().lock(key, LEASE).acquire().await;
        assert!(free.is_ok(), "{free:?}");
    }
    assert!(computed.load(Ordering::SeqCst) < 900, "most share a value");
    assert_eq!(callers(&one) + callers(&two), 0);
}
