//! Fleets that migrate from other locks: each library behaves as docs/MIGRATING.md says.
//!
//! The real libraries are installed on demand; one that cannot be installed is skipped with a message.

mod both;
mod by_hand;
pub mod library;
mod observe;
mod queue;

use std::collections::BTreeMap;
use std::thread;

use library::LIBRARIES;
use observe::{Case, Row};
use testkit::{skipped, Server};

const DOCUMENT: &str = include_str!("../../docs/MIGRATING.md");

/// The rows for the libraries that are run, in the document's table.
fn documented() -> BTreeMap<String, Row> {
    let opening = "| library | writes |";
    let table = DOCUMENT.lines().skip_while(|line| !line.starts_with(opening)).skip(2);
    let rows = table.take_while(|line| line.starts_with('|'));
    rows.map(|line| {
        let cells: Vec<String> = line.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect();
        let [name, writes, state, meets_held, meets_owner, meets_expired, late_release] =
            cells.try_into().expect("seven cells");
        (name, Row { writes, state, meets_held, meets_owner, meets_expired, late_release })
    })
    .collect()
}

#[test]
fn each_library_does_what_its_row_says() {
    let documented = documented();
    let named: Vec<&str> = documented.keys().map(String::as_str).collect();
    let mut run: Vec<&str> = LIBRARIES.iter().map(|library| library.name).collect();
    run.sort_unstable();
    assert_eq!(named, run, "the table has the libraries that are run");

    let (keeps, ends) = (Server::start(), Server::with().module_args(&["retention-ms", "0"]).start());
    let (keeps, ends) = (&keeps, &ends);
    thread::scope(|scope| {
        let cases = LIBRARIES.iter().map(|library| {
            let observed = scope.spawn(move || Case { library, keeps, ends }.observe());
            (library.name, observed)
        });
        // All start before the first is joined.
        let mut failures = Vec::new();
        for (name, observed) in cases.collect::<Vec<_>>() {
            match observed.join() {
                Ok(Ok(row)) if documented[name] == row => {}
                Ok(Ok(row)) => failures.push(format!("{name}: documented {:?}, seen {row:?}", documented[name])),
                Ok(Err(why)) => skipped(name, &why),
                Err(_) => failures.push(format!("{name}: see above")),
            }
        }
        assert!(failures.is_empty(), "{failures:#?}");
    });
}
