//! `serverlock::testing` for tokio: rules M1 to M6 of `docs/CLIENT_SPEC.md`.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![allow(clippy::arithmetic_side_effects, clippy::unchecked_time_subtraction)]

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use serverlock::testing::aio::Server;
use serverlock::{Error, Kind};
use tokio::task::JoinHandle;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);

type Seen = Arc<Mutex<Vec<String>>>;

/// A process of its own waits for the lock, and releases it at once.
fn wait_in_task(server: &Server, seen: &Seen, name: &str, wait: Duration) -> JoinHandle<()> {
    let (locks, seen, name) = (server.locks(), Arc::clone(seen), name.to_owned());
    tokio::spawn(async move {
        let report = locks.lock("report", LEASE).wait(wait);
        let code = match report.run(async |_| Ok::<_, Error>(())).await {
            Ok(()) => "ran",
            Err(error) => error.code(),
        };
        seen.lock().unwrap().push(format!("{name} {code}"));
    })
}

async fn waits_end_in_their_order(server: Server) {
    let seen = Seen::default();
    let held = server.locks().lock("report", LEASE).acquire().await.unwrap();
    let mut tasks = Vec::new();
    for (number, seconds) in [7_u32, 600, 3].into_iter().enumerate() {
        tasks.push(wait_in_task(&server, &seen, &seconds.to_string(), seconds * SECOND));
        server.until_waiting("report", number + 1).await;
    }
    server.clock().advance(3 * SECOND - Duration::from_millis(1)).await;
    assert_eq!(*seen.lock().unwrap(), Vec::<String>::new());
    for (count, span) in [(1, Duration::from_millis(1)), (2, 60 * SECOND)] {
        server.clock().advance(span).await;
        assert_eq!(server.waiting("report").await, 3 - count);
        while seen.lock().unwrap().len() < count {
            tokio::task::yield_now().await; // a task on another thread may take longer
        }
    }
    held.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*seen.lock().unwrap(), ["3 timeout", "7 timeout", "600 ran"]);
}

#[tokio::test]
async fn waits_end_in_their_order_on_one_thread() {
    waits_end_in_their_order(Server::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_end_in_their_order_on_several_threads() {
    waits_end_in_their_order(Server::new()).await;
}

/// tokio's own clock is a different one.
#[tokio::test(start_paused = true)]
async fn waits_end_in_their_order_while_the_time_of_tokio_is_paused() {
    waits_end_in_their_order(Server::new()).await;
}

#[tokio::test]
async fn locks_are_renewed_as_the_clock_moves() {
    let (server, seen) = (Server::new(), Seen::default());
    let (locks, lost) = (server.locks(), Arc::clone(&seen));
    let held = locks.lock("report", LEASE).acquire().await.unwrap();
    let bounded = locks.lock("bounded", LEASE).max_hold(60 * SECOND);
    let bounded = bounded.on_lost(move |error| lost.lock().unwrap().push(error.code().into())).acquire().await.unwrap();
    server.clock().advance(24 * 3600 * SECOND).await;
    held.check().unwrap();
    assert_eq!(held.left(), 27 * SECOND);
    assert_eq!(*seen.lock().unwrap(), ["lost"]);
    assert_eq!(bounded.release().await.unwrap_err().kind(), Kind::Lost);
}

#[tokio::test]
async fn an_expired_lease_passes_the_lock_on() {
    let server = Server::new();
    let held = server.locks().lock("report", LEASE).owner("alice").acquire().await.unwrap();
    let next = server.locks().lock("report", LEASE).wait(60 * SECOND).details();
    let next = tokio::spawn(async move { next.acquire().await });
    assert_eq!(server.waiting("report").await, 1);
    server.expire("report").await;
    let next = next.await.unwrap().unwrap();
    assert_eq!(next.predecessor().unwrap().owner.as_deref(), Some("alice"));
    held.check().unwrap();
    server.clock().advance(LEASE / 3).await;
    assert_eq!(held.release().await.unwrap_err().kind(), Kind::Lost);
    next.release().await.unwrap();
}

#[tokio::test]
async fn work_is_dropped_when_its_lock_is_lost() {
    let server = Server::new();
    let report = server.locks().lock("report", LEASE);
    let outcome = report
        .run(async |held| {
            server.lose(&held.watch()).await;
            std::future::pending::<Result<(), Error>>().await
        })
        .await;
    assert_eq!(outcome.unwrap_err().kind(), Kind::Lost);
    report.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_refused_key_fails_until_it_is_allowed() {
    let (server, seen) = (Server::new(), Seen::default());
    let held = server.locks().lock("report", LEASE).acquire().await.unwrap();
    let waiter = wait_in_task(&server, &seen, "waiter", 3600 * SECOND);
    assert_eq!(server.waiting("report").await, 1);
    server.refuse("report").await;
    waiter.await.unwrap();
    assert_eq!(*seen.lock().unwrap(), ["waiter unavailable"]);
    held.release().await.unwrap();
    let session = server.locks().session().lock("report", LEASE).wait(SECOND);
    assert_eq!(session.acquire().await.unwrap_err().kind(), Kind::Unavailable);
    server.allow("report");
    session.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_dropped_attempt_leaves_nothing() {
    let server = Server::new();
    let held = server.locks().lock("report", LEASE).acquire().await.unwrap();
    for lock in [server.locks().lock("report", LEASE), server.locks().session().lock("report", LEASE)] {
        let waiter = tokio::spawn(async move { lock.wait(60 * SECOND).acquire().await.map(|_| ()) });
        assert_eq!(server.waiting("report").await, 1);
        waiter.abort();
        assert_eq!(server.waiting("report").await, 0);
    }
    held.release().await.unwrap();
}

/// Nobody polls the attempt while the test moves the clock.
#[tokio::test]
async fn an_attempt_that_is_not_polled_does_not_stop_the_clock() {
    let server = Server::new();
    let held = server.locks().lock("report", LEASE).acquire().await.unwrap();
    let waiter = server.locks().lock("report", LEASE).wait(60 * SECOND);
    let mut waits = pin!(waiter.acquire());
    poll_fn(|context| Poll::Ready(waits.as_mut().poll(context).is_pending())).await;
    server.clock().advance(59 * SECOND).await;
    held.check().unwrap();
    server.clock().advance(SECOND).await;
    assert!(waits.await.unwrap_err().is_timeout());
}

#[tokio::test]
async fn leaders_are_observed() {
    let server = Server::new();
    let (leader, looker) = (server.locks().leader("chief", LEASE).owner("one"), server.locks().leader("chief", LEASE));
    let mut looks = looker.observe();
    assert_eq!(looks.next().await, Some(None));
    let campaign = leader.clone();
    let running = tokio::spawn(async move { campaign.run(async |term| term.over().await).await });
    let next = tokio::spawn(async move { looks.next().await });
    server.clock().advance(LEASE / 3).await;
    let seen = next.await.unwrap().unwrap().unwrap();
    assert_eq!((Some(seen.token), seen.owner.as_deref()), (leader.token(), Some("one")));
    leader.stop();
    running.await.unwrap().unwrap();
}
