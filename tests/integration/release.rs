//! What is built for use has none of the faults that broken builds have (cargo feature `broken`).

use crate::support::{module, Server};
use std::fs;

#[test]
fn a_release_has_no_fault_to_choose() {
    let bytes = fs::read(module()).unwrap();
    for trace in ["LOCK_BROKEN", "ReleaseAny", "TokensFromClock"] {
        let is_there = bytes.windows(trace.len()).any(|window| window == trace.as_bytes());
        assert!(!is_there, "{trace} is in {}", module().display());
    }
}

#[test]
fn a_fault_that_is_asked_for_changes_nothing() {
    let server = Server::with().env("LOCK_BROKEN", "ReleaseAny").start();
    let mut conn = server.conn();
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]);
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &(token - 1).to_string()]), 0);
    assert!(!server.log().contains("faults made on purpose"), "{}", server.log());
}
