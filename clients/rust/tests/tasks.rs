//! The tokio form, against a real server: the effects of dropping a future, and locks over their own connection.

#![cfg(feature = "tokio")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![allow(clippy::arithmetic_side_effects)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serverlock::aio::Locks;
use serverlock::{Error, Kind, Options, Outcome};
use support::{Server, period, until};

const LEASE: Duration = Duration::from_secs(30);

/// Like `until`, without holding up other tasks.
async fn eventually(what: &'static str, condition: impl Fn() -> bool + Send + 'static) {
    tokio::task::spawn_blocking(move || until(what, condition)).await.unwrap();
}

fn started() -> Arc<Server> {
    Arc::new(Server::start())
}

#[tokio::test]
async fn dropping_an_attempt_gives_it_up() {
    let server = started();
    let locks = Locks::new(server.client());
    let theirs = locks.lock("report", LEASE).acquire().await.unwrap();
    let report = locks.lock("report", LEASE).wait(LEASE);
    let waiting = tokio::spawn(async move { report.acquire().await.map(|_| ()) });
    let at = Arc::clone(&server);
    eventually("it waits", move || at.info("report", "waiters") == "1").await;
    waiting.abort();
    let at = Arc::clone(&server);
    eventually("nobody waits", move || at.info("report", "waiters") == "0").await;
    // Nobody waits later, either: this was not a pause between two pieces of a wait that continues.
    let asked = server.calls("lock.acquire");
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(server.calls("lock.acquire"), asked);
    theirs.release().await.unwrap();
    assert!(server.is_free("report"));
}

/// The test drops the attempt at each of its steps that awaits something.
#[tokio::test]
async fn dropping_an_attempt_at_any_step_leaves_no_lock() {
    let server = started();
    let locks = Locks::new(server.client());
    for steps in 0..12 {
        let lock = locks.lock(format!("k{steps}"), LEASE);
        let mut attempt = Box::pin(lock.acquire());
        for _ in 0..steps {
            if let Ok(held) = tokio::time::timeout(Duration::from_micros(100), &mut attempt).await {
                held.unwrap().release().await.unwrap();
                break;
            }
        }
        drop(attempt);
    }
    // On the same connection, so all earlier commands have been executed by then.
    locks.lock("last", LEASE).acquire().await.unwrap().release().await.unwrap();
    for steps in 0..12 {
        let (at, key) = (Arc::clone(&server), format!("k{steps}"));
        eventually("it is free", move || at.is_free(&key)).await;
    }
}

#[tokio::test]
async fn dropping_a_release_does_not_stop_it() {
    let server = started();
    let locks = Locks::new(server.client());
    let held = locks.lock("report", LEASE).acquire().await.unwrap();
    let mut release = Box::pin(held.release());
    let _ = tokio::time::timeout(Duration::ZERO, &mut release).await; // the release has begun
    drop(release);
    let at = Arc::clone(&server);
    eventually("it is free", move || at.is_free("report")).await;
    let held = locks.lock("report", LEASE).acquire().await.unwrap();
    drop(held.release()); // the release has not begun
    let at = Arc::clone(&server);
    eventually("it is free", move || at.is_free("report")).await;
}

#[tokio::test]
async fn dropping_a_guard_releases_the_lock() {
    let server = started();
    let locks = Locks::new(server.client());
    drop(locks.lock("report", LEASE).acquire().await.unwrap());
    let at = Arc::clone(&server);
    eventually("it is free", move || at.is_free("report")).await;
}

/// The work is stopped at its next `await`, even if its task was spawned.
#[tokio::test]
async fn a_loss_drops_the_work_and_is_the_error() {
    let server = started();
    let locks = Locks::new(server.client());
    let report = locks.lock("report", Duration::from_millis(600));
    let has_ended = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&has_ended);
    let working = tokio::spawn(async move {
        let work = async |_: &serverlock::aio::Held| {
            std::future::pending::<()>().await;
            ended.store(true, Ordering::SeqCst);
            Ok::<_, Error>(())
        };
        report.run(work).await
    });
    let at = Arc::clone(&server);
    eventually("it is held", move || at.info("report", "state") == "held").await;
    server.call::<()>(&["DEL", "report"]);
    let lost = tokio::time::timeout(Duration::from_secs(60), working).await.unwrap().unwrap().unwrap_err();
    assert!(lost.is_lost(), "{lost}");
    assert!(!has_ended.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_loss_ends_what_awaits_it() {
    let server = started();
    let locks = Locks::new(server.client());
    let held = locks.lock("report", Duration::from_millis(600)).acquire().await.unwrap();
    let watch = held.watch();
    let watching = tokio::spawn(async move { watch.over().await });
    server.call::<()>(&["DEL", "report"]);
    let lost = tokio::time::timeout(Duration::from_secs(60), held.lost()).await.unwrap();
    assert_eq!(lost.kind(), Kind::Lost);
    assert_eq!(watching.await.unwrap().kind(), Kind::Lost);
}

/// The locks' own connection is opened at the first call, shared by all, and opened again after it broke.
#[tokio::test]
async fn locks_share_their_own_connection_and_open_it_again() {
    let server = started();
    let locks = Locks::new(server.client());
    assert_eq!(server.connections(), 0);
    let before = server.accepted();
    let attempts: Vec<_> = (0..50)
        .map(|number| {
            let lock = locks.lock(format!("k{number}"), LEASE);
            tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() })
        })
        .collect();
    for attempt in attempts {
        attempt.await.unwrap();
    }
    assert_eq!(server.connections(), 1);
    assert_eq!(server.accepted(), before + 3); // the locks' connection, and those of the two checks
    server.call::<()>(&["CLIENT", "KILL", "TYPE", "normal"]);
    locks.lock("report", LEASE).acquire().await.unwrap().release().await.unwrap();
}

/// A stalled server causes one error in time, and a lock that it grants later is released.
#[tokio::test]
async fn a_stalled_server_causes_one_error() {
    let server = started();
    let locks = Locks::with_options(server.client(), Options::new().timeout(Duration::from_millis(200)));
    locks.lock("report", LEASE).acquire().await.unwrap().release().await.unwrap();
    server.call::<()>(&["CLIENT", "PAUSE", "1500", "WRITE"]);
    let error = locks.lock("report", LEASE).acquire().await.unwrap_err();
    assert_eq!(error.kind(), Kind::NoServer, "{error}");
    let at = Arc::clone(&server);
    eventually("it is free", move || at.is_free("report")).await;
}

/// The future of a scope can be sent to another thread.
#[tokio::test]
async fn the_same_lock_within_its_own_scope_is_misuse() {
    let server = started();
    let locks = Locks::new(server.client());
    let report = locks.lock("report", LEASE).wait(LEASE);
    let again = report.clone();
    let work = async move |_: &serverlock::aio::Held| {
        let error = again.acquire().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Misuse, "{error}");
        Ok::<_, Error>(())
    };
    tokio::spawn(async move { report.run(work).await }).await.unwrap().unwrap();
    assert!(server.is_free("report"));
}

/// The test drops the future at each of its steps that awaits something.
#[tokio::test]
async fn a_dropped_wait_keeps_the_other_locks_of_its_session() {
    let server = started();
    let locks = Locks::new(server.client());
    let theirs = locks.lock("b", LEASE).acquire().await.unwrap();
    let session = locks.session();
    let held = session.lock("a", LEASE).acquire().await.unwrap();
    let (id, wanted) = (server.info("a", "session"), session.lock("b", LEASE).wait(LEASE));
    for steps in 0..16 {
        let mut attempt = Box::pin(wanted.acquire());
        for _ in 0..steps {
            assert!(tokio::time::timeout(Duration::from_micros(200), &mut attempt).await.is_err());
        }
    }
    let at = Arc::clone(&server);
    eventually("nobody waits", move || at.info("b", "waiters") == "0").await;
    held.check().unwrap();
    assert_eq!(server.info("a", "session"), id);
    theirs.release().await.unwrap();
    let begun = std::time::Instant::now();
    loop {
        let got = wanted.acquire().await.unwrap();
        let is_shared = server.info("b", "session") == id;
        got.release().await.unwrap();
        if is_shared {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "the session is free for the next attempt");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    held.release().await.unwrap();
    eventually("no session is left", move || locks.census().contains(&("sessions", 0))).await;
}

#[tokio::test]
async fn a_reentrant_lock_is_known_within_its_scope() {
    let server = started();
    let locks = Locks::new(server.client());
    let report = locks.lock("report", LEASE).reentrant();
    let (at, again) = (Arc::clone(&server), report.clone());
    let work = async move |held: &serverlock::aio::Held| {
        let kept = again.acquire().await?;
        assert_eq!(kept.token(), held.token());
        assert_eq!(again.run(async |inner| Ok::<_, Error>(inner.token())).await?, held.token());
        again.acquire().await?.release().await?;
        let other = again.clone();
        assert!(tokio::spawn(async move { other.acquire().await.unwrap_err() }).await.unwrap().is_refused());
        assert!(!at.is_free("report"));
        Ok::<_, Error>(kept)
    };
    let outer = report.clone();
    let kept = tokio::spawn(async move { outer.run(work).await }).await.unwrap().unwrap();
    assert!(server.is_free("report"));
    assert_eq!(kept.release().await.unwrap_err().kind(), Kind::Misuse);
    let held = report.acquire().await.unwrap();
    assert!(report.acquire().await.unwrap_err().is_refused(), "the caller is not known without a scope");
    held.release().await.unwrap();
}

/// Although the caller has acquired it again.
#[tokio::test]
async fn dropping_the_outermost_scope_releases_a_reentrant_lock() {
    let server = started();
    let locks = Locks::new(server.client());
    let report = locks.lock("report", LEASE).reentrant();
    let kept = std::sync::Mutex::new(None);
    let work = async |_: &serverlock::aio::Held| {
        *kept.lock().unwrap() = Some(report.acquire().await?);
        std::future::pending::<Result<(), Error>>().await
    };
    let mut run = Box::pin(report.run(work));
    while kept.lock().unwrap().is_none() {
        assert!(tokio::time::timeout(Duration::from_millis(10), &mut run).await.is_err());
    }
    assert!(!server.is_free("report"));
    drop(run);
    let at = Arc::clone(&server);
    eventually("it is free", move || at.is_free("report")).await;
}

#[tokio::test]
async fn a_body_runs_once_per_period() {
    let server = started();
    let locks = Locks::new(server.client());
    let nightly = locks.once("nightly", period()).owner("host-7");
    let (at, again) = (Arc::clone(&server), nightly.clone());
    let same = locks.lock("nightly", LEASE).reentrant();
    let body = async move |held: &serverlock::aio::HeldOnce| {
        assert!(!held.recovered() && held.tick() >= 20_000);
        assert_eq!(again.run(async |_| Ok::<_, Error>(())).await.unwrap_err().kind(), Kind::Misuse);
        assert_eq!(same.acquire().await.unwrap_err().kind(), Kind::Misuse);
        assert_eq!(at.info("nightly", "owner"), "host-7");
        held.verify().await?;
        Ok::<_, Error>(7)
    };
    let other = nightly.clone();
    let outcome = tokio::spawn(async move { other.run(body).await }).await.unwrap().unwrap();
    assert_eq!(outcome, Outcome::Ran(7));
    assert!(server.is_kept("nightly"));
    let outcome = nightly.run(async |_| Ok::<_, Error>(7)).await.unwrap();
    assert_eq!((outcome, outcome.code(), outcome.value()), (Outcome::Elsewhere, "elsewhere", None));
}

/// The test drops the call at each of its steps that awaits something; its body never ends.
#[tokio::test]
async fn dropping_a_call_before_its_body_has_ended_leaves_no_lock() {
    let server = started();
    let locks = Locks::new(server.client());
    for steps in 0..16 {
        let once = locks.once(format!("k{steps}"), period()).rerun(steps % 2 == 0);
        let mut call = Box::pin(once.run(async |_| std::future::pending::<Result<(), Error>>().await));
        for _ in 0..steps {
            let _ = tokio::time::timeout(Duration::from_micros(100), &mut call).await;
        }
    }
    for steps in 0..16 {
        let (at, key) = (Arc::clone(&server), format!("k{steps}"));
        eventually("it is free", move || at.is_free(&key)).await;
    }
    let once = locks.once("last", period());
    let work = async |_: &serverlock::aio::HeldOnce| std::future::pending::<Result<(), Error>>().await;
    assert!(tokio::time::timeout(Duration::from_secs(3), once.run(work)).await.is_err());
    let at = Arc::clone(&server);
    eventually("it is free", move || at.is_free("last")).await;
}

/// The server answers the last EXTEND after the call was dropped.
#[tokio::test]
async fn dropping_a_call_after_its_body_keeps_the_tick() {
    let server = started();
    let locks = Locks::new(server.client());
    let once = locks.once("nightly", period()).lease(Duration::from_secs(60));
    let (at, ended) = (Arc::clone(&server), Arc::new(AtomicBool::new(false)));
    let has_ended = Arc::clone(&ended);
    let work = async move |_: &serverlock::aio::HeldOnce| {
        at.call::<()>(&["CLIENT", "PAUSE", "3000", "WRITE"]);
        has_ended.store(true, Ordering::SeqCst);
        Ok::<_, Error>(())
    };
    let mut call = Box::pin(once.run(work));
    while !ended.load(Ordering::SeqCst) {
        assert!(tokio::time::timeout(Duration::from_millis(10), &mut call).await.is_err());
    }
    drop(call);
    assert!(!server.is_kept("nightly"));
    let at = Arc::clone(&server);
    eventually("it is kept", move || at.is_kept("nightly")).await;
    assert_eq!(server.calls("lock.release"), 0);
}

#[tokio::test]
async fn a_loss_drops_the_body_of_a_tick_and_is_the_error() {
    let server = started();
    let locks = Locks::new(server.client());
    let once = locks.once("nightly", period()).lease(Duration::from_millis(600));
    let at = Arc::clone(&server);
    let work = async move |_: &serverlock::aio::HeldOnce| {
        at.call::<()>(&["DEL", "nightly"]);
        std::future::pending::<Result<(), Error>>().await
    };
    let lost = tokio::time::timeout(Duration::from_secs(60), once.run(work)).await.unwrap().unwrap_err();
    assert!(lost.is_lost(), "{lost}");
}
