//! During a migration, the fleet's middle generation takes both locks, so no generation works at the same time as the
//! next.

use std::process::Command;

use super::library::library;
use super::DOCUMENT;
use testkit::install;
use testkit::program::Program;
use testkit::{skipped, until, Server};

const BOTH: &str = include_str!("../../clients/migrating/both.py");
const LEASE_S: u64 = 60;

#[test]
fn the_document_shows_the_worker_that_is_run() {
    let (_, rest) = BOTH.split_once("# both locks\n").unwrap();
    let (shown, _) = rest.split_once("# end\n").unwrap();
    assert!(DOCUMENT.contains(&format!("```python\n{shown}```\n")), "docs/MIGRATING.md does not show:\n{shown}");
}

#[test]
fn no_generation_of_a_migrating_fleet_works_alongside_the_next() {
    let (server, mut conn) = Server::connected();
    let (mut old, python) = match library("redis-py 8.1.0").start(&server).and_then(|old| Ok((old, install::python()?)))
    {
        Ok(pair) => pair,
        Err(why) => return skipped("redis-py 8.1.0", &why),
    };
    let worker = || {
        let mut command = Command::new(&python);
        command.arg(install::sources().join("migrating/both.py")).arg(server.port().to_string());
        Program::start(&mut command)
    };
    let acquire = ["LOCK.ACQUIRE", "report", "EX", "60"];

    // The first generation works: the second waits for it.
    assert_eq!(old.ask("try", "report:old", LEASE_S), "held");
    let mut both = worker();
    until("it polls", || conn.text(&["INFO", "commandstats"]).contains("cmdstat_set:calls=3").then_some(()));
    assert_eq!(conn.state("report"), "free");
    assert_eq!(old.ask("release", "report:old", LEASE_S), "done");
    assert_eq!(both.hear(), "working");
    // The second works: neither the first nor the third does.
    assert_eq!(old.ask("try", "report:old", LEASE_S), "refused");
    assert!(conn.execute(&acquire).is_nil());
    both.say("end");
    until("it releases both", || (conn.int(&["EXISTS", "report", "report:old"]) == 0).then_some(()));

    // The third works: the second waits, and blocks the first in the meantime.
    let token = conn.int(&acquire).to_string();
    let both = worker();
    conn.until_waiters("report", 1);
    assert_eq!(old.ask("try", "report:old", LEASE_S), "refused");
    assert_eq!(conn.int(&["LOCK.RELEASE", "report", &token]), 1);
    assert_eq!(both.hear(), "working");
    assert_eq!(old.ask("try", "report:old", LEASE_S), "refused");
    assert!(conn.execute(&acquire).is_nil());
}
