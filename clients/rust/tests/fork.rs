//! A forked child neither renews nor releases its parent's locks, and can take its own.

#![cfg(feature = "blocking")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![allow(clippy::arithmetic_side_effects)]

mod support;

use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fork::{Fork, fork};
use serverlock::{Error, Kind, Locks};
use support::Server;

const LEASE: Duration = Duration::from_secs(30);

/// Runs the work in a child process, and returns its text.
fn in_child(work: impl FnOnce() -> String) -> String {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    match fork().unwrap() {
        Fork::Child => {
            let said = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| "it panicked".into());
            let _ = writer.write_all(said.as_bytes());
            std::process::exit(0);
        }
        Fork::Parent(pid) => {
            drop(writer);
            let (done, heard) = mpsc::channel();
            thread::spawn(move || {
                let mut said = String::new();
                let _ = reader.read_to_string(&mut said);
                let _ = done.send(said);
            });
            let said = heard.recv_timeout(Duration::from_secs(120));
            if said.is_err() {
                let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
            }
            let _ = fork::waitpid(pid);
            said.expect("the child ends in time")
        }
    }
}

fn kind(outcome: Result<impl Sized, Error>) -> String {
    outcome.map_or_else(|error| format!("{:?}", error.kind()), |_| "Ok".into())
}

#[test]
fn a_child_leaves_its_parents_lock_alone() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    for is_session in [false, true] {
        let lock = locks.lock("report", LEASE);
        let lock = if is_session { lock.session() } else { lock };
        let mut held = Some(lock.acquire().unwrap());
        let before = server.calls("lock.release");
        let said = in_child(|| {
            let held = held.take().unwrap();
            let asked = [kind(held.check()), kind(held.extend(LEASE)), kind(held.verify())];
            let fenced = kind(held.fenced::<()>(redis::cmd("SET").arg("report").arg(1)));
            let left = held.left();
            format!("{} {fenced} {} {left:?}", asked.join(" "), kind(held.release()))
        });
        assert_eq!(said, "Lost Lost Lost Lost Lost 0ns");
        let said = in_child(|| {
            drop(held.take());
            "dropped".into()
        });
        assert_eq!(said, "dropped");
        let held = held.unwrap();
        held.check().unwrap();
        held.verify().unwrap();
        assert_eq!((server.calls("lock.extend"), server.calls("lock.release")), (0, before));
        held.release().unwrap();
    }
}

#[test]
fn a_child_uses_its_own_locks_instead_of_its_parents() {
    let server = Server::start();
    let locks = Locks::new(server.client());
    locks.lock("report", LEASE).acquire().unwrap().release().unwrap(); // opens the manager's connection
    let held = locks.lock("held", LEASE).acquire().unwrap();
    let client = server.client();
    let said = in_child(|| {
        let inherited = kind(locks.lock("report", LEASE).acquire());
        let own = Locks::new(client);
        let granted = kind(own.lock("own", LEASE).acquire().and_then(serverlock::Held::release));
        let waited = kind(own.lock("held", LEASE).wait(Duration::from_millis(200)).acquire());
        let renewed = own.lock("renewed", Duration::from_secs(4)).acquire().unwrap();
        thread::sleep(Duration::from_secs(6)); // more than a lease
        format!("{inherited} {granted} {waited} {}", kind(renewed.release()))
    });
    assert_eq!(said, format!("{:?} Ok {:?} Ok", Kind::Misuse, Kind::Timeout));
    held.release().unwrap();
    locks.lock("report", LEASE).acquire().unwrap().release().unwrap();
}
