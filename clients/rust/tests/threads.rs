//! The blocking form, against a real server: a guard's promises, and cases that the suite for all languages lacks.

#![cfg(feature = "blocking")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![allow(clippy::arithmetic_side_effects)]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serverlock::{Cancel, Connections, Error, Held, Hooks, Kind, Locks, Options, Outcome};
use support::{Server, period, until};

const LEASE: Duration = Duration::from_secs(30);

/// A guard that is dropped releases its lock before the next statement.
#[test]
fn a_dropped_guard_releases_the_lock_at_once() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    let report = locks.lock("report", LEASE);
    for _ in 0..20 {
        let held = report.acquire().unwrap();
        assert_eq!(report.acquire().unwrap_err().kind(), Kind::Refused);
        drop(held);
    }
    assert!(server.is_free("report"));
}

#[test]
fn a_panic_in_the_work_releases_the_lock_and_continues() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    let report = locks.lock("report", LEASE);
    let work = || report.run(|_| -> Result<(), Error> { panic!("the work panics") });
    assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
    assert!(server.is_free("report"));
    report.run(|_| Ok::<_, Error>(())).unwrap(); // the scope of the thread has ended too
}

/// Nobody owns that hold, so it must not be renewed.
#[test]
fn a_hook_that_panics_leaves_no_lock_for_longer_than_its_lease() {
    let server = Server::start();
    let hooks = Hooks::new().granted(|_, _| panic!("the hook panics"));
    let locks = Locks::with_options(server.client(), Options::new().hooks(hooks));
    let report = locks.lock("report", Duration::from_secs(6));
    assert!(catch_unwind(AssertUnwindSafe(|| report.acquire())).is_err());
    assert_eq!(server.info("report", "state"), "held");
    until("its lease has expired", || server.info("report", "state") == "expired");
}

#[test]
fn a_guard_works_in_any_thread_and_a_watch_sees_it_end() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    let held = locks.lock("report", LEASE).acquire().unwrap();
    let watch = held.watch();
    watch.check().unwrap();
    assert!(watch.left() > Duration::from_secs(20) && watch.token() == held.token());
    thread::spawn(move || held.release()).join().unwrap().unwrap();
    assert_eq!(watch.check().unwrap_err().kind(), Kind::Lost);
    assert_eq!(watch.left(), Duration::ZERO);
}

#[test]
fn a_watch_does_not_keep_the_lock() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    let watch = locks.lock("report", LEASE).acquire().unwrap().watch(); // the guard is dropped here
    assert!(server.is_free("report") && watch.check().is_err());
}

/// An application that blocks within its runtime gets a result, not a panic.
#[test]
fn blocking_calls_work_within_a_runtime() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let held = locks.lock("report", LEASE).wait(LEASE).acquire().unwrap();
        held.verify().unwrap();
        held.release().unwrap();
    });
    assert!(server.is_free("report"));
}

#[test]
fn a_cancelled_wait_returns_at_once_and_leaves_nothing() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    let theirs = locks.lock("report", LEASE).acquire().unwrap();
    let cancel = Cancel::new();
    let waiting = {
        let (report, cancel) = (locks.lock("report", LEASE).wait(LEASE), cancel.clone());
        thread::spawn(move || report.acquire_unless(&cancel).map(|_| ()))
    };
    until("it waits", || server.info("report", "waiters") == "1");
    cancel.cancel();
    assert_eq!(waiting.join().unwrap().unwrap_err().kind(), Kind::Cancelled);
    // A wait that continued to its end would be sent again.
    assert!(server.calls("lock.acquire") <= 3, "{}", server.calls("lock.acquire"));
    until("nobody waits", || server.info("report", "waiters") == "0");
    theirs.release().unwrap();
}

#[test]
fn dropped_locks_close_their_connections() {
    let server = Server::start();
    let connections = Connections::new(server.client());
    let locks = Locks::new(connections.clone());
    let held = locks.lock("report", LEASE).acquire().unwrap();
    let two: Vec<_> = (0..2)
        .map(|_| {
            let report = locks.lock("report", LEASE).wait(Duration::from_millis(300));
            thread::spawn(move || report.acquire().map(|_| ()))
        })
        .collect();
    for one in two {
        assert_eq!(one.join().unwrap().unwrap_err().kind(), Kind::Timeout);
    }
    let subscribed = || server.call::<String>(&["CLIENT", "LIST", "TYPE", "pubsub"]).lines().count();
    assert_eq!(subscribed(), 1);
    drop(locks);
    held.check().unwrap(); // the guard keeps them open
    held.release().unwrap();
    until("only the application's are left", || subscribed() == 0 && server.connections() <= 2);
    let pong: String = connections.with(|connection| redis::cmd("PING").query(connection)).unwrap();
    assert_eq!(pong, "PONG");
}

/// The scope of a thread is forgotten when the scope ends.
#[test]
fn a_scope_that_has_ended_keeps_nothing_open() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    let (outer, inner) = (locks.lock("outer", LEASE), locks.lock("inner", LEASE).session());
    outer.run(|_| inner.run(|_| Ok::<_, Error>(()))).unwrap();
    drop((outer, inner, locks));
    until("its connections are closed", || server.connections() == 0);
}

#[test]
fn a_loss_is_reported_once_and_the_guard_fails() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    let reported = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&reported);
    let lock = locks.lock("report", Duration::from_millis(600));
    let held: Held = lock.on_lost(move |_| _ = count.fetch_add(1, Ordering::SeqCst)).acquire().unwrap();
    server.call::<()>(&["DEL", "report"]);
    until("it is reported", || reported.load(Ordering::SeqCst) == 1);
    let lost = held.check().unwrap_err();
    assert!(lost.is_lost() && lost.to_string().starts_with("the lock \"report\": lost: "), "{lost}");
    assert!(held.release().unwrap_err().is_lost());
    assert_eq!(reported.load(Ordering::SeqCst), 1);
}

/// Such a lock may be shared with clients that expect its value to be a number.
#[test]
fn an_owner_that_is_switched_off_is_not_sent() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    let held = locks.lock("report", LEASE).acquire().unwrap();
    assert!(server.info("report", "owner").ends_with(&format!(":{}", std::process::id())));
    held.release().unwrap();
    let _held = locks.lock("report", LEASE).without_owner().acquire().unwrap();
    assert_eq!(server.info("report", "owner"), "");
}

#[test]
fn recovering_a_free_lock_says_that_it_is_free() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    let report = locks.recover("report", LEASE);
    let text = || report.acquire().unwrap_err().to_string();
    assert_eq!(text(), "the lock \"report\": there is nothing to recover: the lock is free");
    let _held = locks.lock("report", LEASE).acquire().unwrap();
    assert_eq!(text(), "the lock \"report\": somebody else has it");
    server.call::<String>(&["ACL", "SETUSER", "default", "-lock.info"]);
    let unknown = locks.recover("other", LEASE).acquire().unwrap_err();
    assert_eq!((unknown.kind(), unknown.to_string().contains("free")), (Kind::Refused, false));
}

#[test]
fn a_reentrant_lock_is_released_with_its_last_guard() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    let report = locks.lock("report", LEASE).reentrant();
    let held = report.acquire().unwrap();
    let again = report.acquire().unwrap();
    assert_eq!(again.token(), held.token());
    again.release().unwrap();
    drop(report.acquire().unwrap());
    assert_eq!(report.run(|inner| Ok::<_, Error>(inner.token())).unwrap(), held.token());
    let other = report.clone();
    assert_eq!(thread::spawn(move || other.acquire().unwrap_err().kind()).join().unwrap(), Kind::Refused);
    assert_eq!(locks.lock("report", LEASE).acquire().unwrap_err().kind(), Kind::Misuse);
    held.check().unwrap();
    let token = held.token();
    held.release().unwrap();
    assert!(server.is_free("report"));
    let newer = report.acquire().unwrap();
    assert!(newer.token() > token);
    let cancel = Cancel::new();
    cancel.cancel();
    assert_eq!(report.acquire_unless(&cancel).unwrap_err().kind(), Kind::Cancelled);
    server.call::<()>(&["DEL", "report"]);
    let lost = report.run(Held::verify).unwrap_err();
    assert!(lost.is_lost(), "{lost}");
    assert!(report.acquire().unwrap().token() > newer.token());
}

/// A panic ends the scope too.
#[test]
fn the_end_of_the_outermost_scope_ends_all_guards_of_a_reentrant_lock() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    let report = locks.lock("report", LEASE).reentrant();
    let mut kept = None;
    let work = |_: &Held| {
        kept = Some(report.acquire()?);
        report.run(|_| Ok::<_, Error>(()))?;
        assert!(!server.is_free("report"));
        panic!("the work panics")
    };
    assert!(catch_unwind(AssertUnwindSafe(|| report.run::<(), Error>(work))).is_err());
    assert!(server.is_free("report"));
    let kept = kept.unwrap();
    assert_eq!(kept.check().unwrap_err().kind(), Kind::Lost);
    let newer = report.acquire().unwrap();
    assert_eq!(kept.release().unwrap_err().kind(), Kind::Misuse);
    newer.release().unwrap();
}

#[test]
fn a_reentrant_caller_gets_only_the_same_lock_again() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    let both = locks.all_of(["a", "b"], LEASE).reentrant();
    let again = |lock: &serverlock::Lock| lock.acquire().map(|held| held.token()).map_err(|error| error.kind());
    let work = |held: &Held| {
        assert_eq!(again(&locks.all_of(["b", "a"], LEASE).reentrant()), Ok(held.token()));
        for other in [
            locks.lock("a", LEASE).reentrant(),
            locks.shared("a", LEASE).reentrant(),
            locks.all_of(["a", "b", "c"], LEASE).reentrant(),
            locks.all_of(["a", "b"], LEASE),
        ] {
            assert_eq!(again(&other), Err(Kind::Misuse));
        }
        Ok::<_, Error>(())
    };
    both.run(work).unwrap();
    let page = locks.shared("page", LEASE).reentrant();
    let held = page.acquire().unwrap();
    assert_eq!(again(&page), Ok(held.token()));
    assert!(again(&locks.shared("page", LEASE)).unwrap() > held.token(), "readers may have several holds");
    assert_eq!(again(&locks.lock("page", LEASE).reentrant()), Err(Kind::Misuse));
}

#[test]
fn the_locks_of_a_session_share_a_connection_that_closes_with_the_last() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    let session = locks.session();
    let [first, second] = ["a", "b"].map(|key| session.lock(key, 20 * LEASE).acquire().unwrap());
    let id = server.info("a", "session");
    assert_eq!(server.info("b", "session"), id);
    let _alone = locks.lock("c", LEASE).session().acquire().unwrap();
    assert_ne!(server.info("c", "session"), id);
    drop(first);
    second.check().unwrap();
    assert!(server.is_free("a") && server.info("b", "session") == id);
    second.release().unwrap();
    let is_open = || server.call::<String>(&["CLIENT", "LIST"]).contains(&format!("id={id} "));
    until("its connection is closed", || !is_open());
    assert_eq!(sessions_of(&locks), 1);
}

fn sessions_of(locks: &Locks) -> usize {
    locks.census().into_iter().find(|(name, _)| *name == "sessions").unwrap().1
}

/// In a scope the package refuses it. This hold has none, so the server finds the cycle.
#[test]
fn a_session_that_waits_for_itself_is_a_deadlock() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    let session = locks.session();
    let held = session.lock("a", LEASE).acquire().unwrap();
    let error = session.lock("a", LEASE).wait(LEASE).acquire().unwrap_err();
    assert_eq!(error.kind(), Kind::Deadlock, "{error}");
    held.release().unwrap();
}

#[test]
fn a_cancelled_wait_keeps_the_other_locks_of_its_session() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    let theirs = locks.lock("b", LEASE).acquire().unwrap();
    let session = locks.session();
    let held = session.lock("a", LEASE).acquire().unwrap();
    let (id, wanted) = (server.info("a", "session"), session.lock("b", LEASE).wait(LEASE));
    for turn in 0..20 {
        let (lock, cancel) = (wanted.clone(), Cancel::new());
        let given_up = cancel.clone();
        let waiting = thread::spawn(move || lock.acquire_unless(&given_up).map(|_| ()));
        thread::sleep(Duration::from_millis(turn % 5 * 4));
        cancel.cancel();
        assert_eq!(waiting.join().unwrap().unwrap_err().kind(), Kind::Cancelled);
    }
    until("nobody waits", || server.info("b", "waiters") == "0");
    held.check().unwrap();
    assert_eq!(server.info("a", "session"), id);
    theirs.release().unwrap();
    let shares = || {
        let got = wanted.acquire().unwrap();
        let is_shared = server.info("b", "session") == id;
        got.release().unwrap();
        is_shared
    };
    until("the session is free for the next attempt", shares);
    held.release().unwrap();
    until("no session is left", || sessions_of(&locks) == 0);
}

#[test]
fn closing_the_locks_loses_only_sessions_that_wait() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    let _theirs = Locks::new(server.client()).lock("b", LEASE).acquire().unwrap();
    let session = locks.session();
    let [held, idle] = [&session, &locks.session()].map(|it| it.lock(format!("{it:p}"), LEASE).acquire().unwrap());
    let wanted = session.lock("b", LEASE).wait(LEASE);
    let waiting = thread::spawn(move || wanted.acquire().map(|_| ()));
    until("it waits", || server.info("b", "waiters") == "1");
    locks.close();
    assert_eq!(waiting.join().unwrap().unwrap_err().kind(), Kind::Misuse);
    until("it is lost", || held.check().is_err());
    idle.check().unwrap();
    idle.release().unwrap();
    until("nobody waits", || server.info("b", "waiters") == "0");
}

/// 64 threads share the connections of one caller, and each call gets its own reply.
#[test]
fn many_threads_share_two_connections() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    thread::scope(|scope| {
        for number in 0..64 {
            let lock = locks.lock(format!("k{number}"), LEASE);
            scope.spawn(move || {
                for _ in 0..20 {
                    lock.acquire().unwrap().release().unwrap();
                }
            });
        }
    });
    assert!(server.connections() <= 2, "{}", server.connections());
}

/// After a server restart, kept connections fail: that costs an attempt at most one of its two tries.
#[test]
fn kept_connections_cost_one_try_after_a_restart() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    let (one, two) = (locks.lock("a", LEASE), locks.lock("b", LEASE));
    thread::scope(|scope| {
        for lock in [&one, &two] {
            scope.spawn(move || (0..50).for_each(|_| lock.acquire().unwrap().release().unwrap()));
        }
    });
    server.call::<()>(&["CLIENT", "KILL", "TYPE", "normal"]);
    one.acquire().unwrap().release().unwrap();
}

/// A few threads are enough, however many locks are lost at once, and however long calls over a pool take.
#[test]
fn calls_over_a_pool_and_losses_take_few_threads() {
    let server = Server::start();
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (client, now, at_once) = (server.client(), Arc::clone(&running), Arc::clone(&most));
    let call = move |cmd: &redis::Cmd| {
        at_once.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let reply = client.get_connection().and_then(|mut connection| cmd.query(&mut connection));
        thread::sleep(Duration::from_millis(2));
        now.fetch_sub(1, Ordering::SeqCst);
        reply
    };
    let locks = Locks::with_calls(server.client(), call, Options::new());
    thread::scope(|scope| {
        for number in 0..60 {
            let lock = locks.lock(format!("k{number}"), LEASE);
            scope.spawn(move || lock.acquire().unwrap().release().unwrap());
        }
    });
    assert_eq!(most.load(Ordering::SeqCst), 4);
    assert_eq!(running.load(Ordering::SeqCst), 0);
}

#[test]
fn a_body_runs_once_per_period() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    let nightly = locks.once("nightly", period()).owner("host-7");
    let body = |held: &serverlock::HeldOnce| {
        assert!(!held.recovered() && held.tick() >= 20_000);
        assert_eq!(nightly.run(|_| Ok::<_, Error>(())).unwrap_err().kind(), Kind::Misuse);
        let same = locks.lock("nightly", LEASE).reentrant();
        assert_eq!(same.run(|_| Ok::<_, Error>(())).unwrap_err().kind(), Kind::Misuse);
        assert_eq!(server.info("nightly", "owner"), "host-7");
        held.verify()?;
        Ok::<_, Error>(7)
    };
    assert_eq!(nightly.run(body).unwrap(), Outcome::Ran(7));
    assert!(server.is_kept("nightly"));
    let outcome = nightly.run(|_| Ok::<_, Error>(7)).unwrap();
    assert_eq!((outcome, outcome.code(), outcome.value()), (Outcome::Elsewhere, "elsewhere", None));
}

#[test]
fn a_body_that_panics_or_fails_lets_another_process_run_the_tick() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    let nightly = locks.once("nightly", period());
    let work = || nightly.run(|_| -> Result<(), Error> { panic!("the work panics") });
    assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
    assert!(server.is_free("nightly"));
    let failed: Result<Outcome<()>, Box<dyn std::error::Error>> = nightly.run(|_| Err("the work failed".into()));
    assert_eq!(failed.unwrap_err().to_string(), "the work failed");
    assert!(server.is_free("nightly"));
    assert_eq!(nightly.run(|_| Ok::<_, Error>(())).unwrap(), Outcome::Ran(()));
}

#[test]
fn a_cancelled_call_runs_no_body_and_leaves_no_lock() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    let (nightly, cancel) = (locks.once("nightly", period()), Cancel::new());
    cancel.cancel();
    let work = |_: &serverlock::HeldOnce| -> Result<(), Error> { panic!("the body runs") };
    assert_eq!(nightly.run_unless(&cancel, work).unwrap_err().kind(), Kind::Cancelled);
    assert!(server.is_free("nightly"));
}
