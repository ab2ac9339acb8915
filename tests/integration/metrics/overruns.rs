//! `lock_overruns` counts each grant that its holder releases or extends after the lease but within the margin, and
//! nothing else.

use super::{moved, number, numbers};
use testkit::{server_time_us, until, Conn, Server};

/// A server on which the margin outlasts every test.
fn server() -> (Server, Conn) {
    Server::with().module_args(&["margin-ms", "600000"]).connected()
}

/// Takes a lock with a lease of a millisecond, which has ended on return. Returns its token.
pub fn overrun(conn: &mut Conn, take: &[&str]) -> String {
    let token = conn.int(take);
    lease_is_over(conn);
    token.to_string()
}

/// Waits for the end of a lease of a millisecond that began before this call. LOCK.CHECK would reply 0 too early: it
/// rounds down.
fn lease_is_over(conn: &mut Conn) {
    let end = server_time_us(conn) + 1_000;
    until("the lease has ended", || (server_time_us(conn) >= end).then_some(()));
}

/// Asserts how many overruns a command counts, and its reply.
#[track_caller]
fn counts(conn: &mut Conn, command: &[&str], reply: i64, overruns: i64) {
    let before = number(conn, "overruns");
    assert_eq!(conn.int(command), reply, "{command:?}");
    assert_eq!(number(conn, "overruns") - before, overruns, "{command:?}");
}

#[test]
fn only_a_release_past_the_lease_is_an_overrun() {
    let (_server, mut conn) = server();
    let token = overrun(&mut conn, &["LOCK.ACQUIRE", "k", "PX", "1"]);
    let before = numbers(&mut conn);
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &token]), 1);
    let expected = [("overruns".into(), 1), ("releases".into(), 1)];
    assert_eq!(moved(&mut conn, &before), expected);
    let token = conn.int(&["LOCK.ACQUIRE", "k", "EX", "60"]).to_string();
    counts(&mut conn, &["LOCK.RELEASE", "k", &token], 1, 0);
    // The grant has already ended.
    counts(&mut conn, &["LOCK.RELEASE", "k", &token], 0, 0);
}

#[test]
fn an_extension_within_the_margin_is_an_overrun_once() {
    let (_server, mut conn) = server();
    let token = overrun(&mut conn, &["LOCK.ACQUIRE", "k", "PX", "1"]);
    counts(&mut conn, &["LOCK.EXTEND", "k", &token, "EX", "60"], 1, 1);
    counts(&mut conn, &["LOCK.EXTEND", "k", &token, "EX", "60"], 1, 0);
    counts(&mut conn, &["LOCK.RELEASE", "k", &token], 1, 0);
}

#[test]
fn each_of_several_locks_counts() {
    let (_server, mut conn) = server();
    let take = ["LOCK.MACQUIRE", "3", "k", "a", "b", "PX", "1"];
    let token = overrun(&mut conn, &take);
    counts(&mut conn, &["LOCK.MEXTEND", "2", "k", "a", &token, "EX", "60"], 1, 2);
    // Two of them have a lease again, the third does not.
    counts(&mut conn, &["LOCK.MRELEASE", "3", "k", "a", "b", &token], 3, 1);
}

#[test]
fn each_of_several_holders_counts_for_itself() {
    let (_server, mut conn) = server();
    let late = overrun(&mut conn, &["LOCK.ACQUIRE", "k", "PX", "1", "SHARED"]);
    let early = conn.int(&["LOCK.ACQUIRE", "k", "EX", "60", "SHARED"]).to_string();
    counts(&mut conn, &["LOCK.RELEASE", "k", &early], 1, 0);
    counts(&mut conn, &["LOCK.RELEASE", "k", &late], 1, 1);
}

#[test]
fn only_late_holder_actions_are_overruns() {
    let (_server, mut conn) = server();
    let token = overrun(&mut conn, &["LOCK.ACQUIRE", "k", "PX", "1", "ID", "7"]);
    counts(&mut conn, &["LOCK.RELEASE", "k", "1"], 0, 0);
    counts(&mut conn, &["LOCK.EXTEND", "k", "1", "EX", "60"], 0, 0);
    // The same command, sent again after a lost reply: the client did not know that it held the lock.
    counts(&mut conn, &["LOCK.ACQUIRE", "k", "PX", "1", "ID", "7"], token.parse().unwrap(), 0);
    lease_is_over(&mut conn);
    counts(&mut conn, &["LOCK.CANCEL", "k", "7"], 1, 0);
    // After the timestamp it is a late release.
    let (_server, mut conn) = Server::with().module_args(&["margin-ms", "0", "retention-ms", "-1"]).connected();
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "1"]).to_string();
    until("it is expired", || (conn.state("k") == "expired").then_some(()));
    counts(&mut conn, &["LOCK.EXTEND", "k", &token, "EX", "60"], 0, 0);
    counts(&mut conn, &["LOCK.RELEASE", "k", &token], -1, 0);
}

/// Takes a lock with SESSION, and closes its connection: the lease has ended, but not the margin. Returns the token.
fn ended_session(server: &Server, conn: &mut Conn) -> String {
    let mut holder = server.conn();
    let token = holder.int(&["LOCK.ACQUIRE", "k", "EX", "600", "SESSION"]).to_string();
    drop(holder);
    until("the session has ended", || (conn.int(&["LOCK.CHECK", "k", &token]) == 0).then_some(()));
    token
}

#[test]
fn a_lease_that_ended_with_its_session_was_not_overrun() {
    let (server, mut conn) = server();
    let token = ended_session(&server, &mut conn);
    counts(&mut conn, &["LOCK.RELEASE", "k", &token], 1, 0);
    let token = ended_session(&server, &mut conn);
    counts(&mut conn, &["LOCK.EXTEND", "k", &token, "PX", "1"], 1, 0);
    // The extension gives it a new lease, which it overruns.
    lease_is_over(&mut conn);
    counts(&mut conn, &["LOCK.RELEASE", "k", &token], 1, 1);
}

/// The key does not show that the session ended, and this server has no record of it. docs/OPERATING.md says so.
#[test]
fn a_session_end_after_a_failover_is_an_overrun() {
    let ((master, mut conn), (replica, mut promoted)) = (server(), server());
    replica.replicate(&master);
    let token = ended_session(&master, &mut conn);
    master.wait_offset(&replica);
    promoted.ok(&["REPLICAOF", "NO", "ONE"]);
    counts(&mut promoted, &["LOCK.RELEASE", "k", &token], 1, 1);
}
