//! What was in a key before counts for the tokens that come.

use crate::support::{server_time_us, Server};

#[test]
fn tokens_of_a_key_grow_beyond_one_that_was_given_back_after_a_restart_with_a_clock_behind() {
    let server = Server::start();
    let mut conn = server.conn();
    // What the old server wrote, whose clock was an hour ahead.
    let now = server_time_us(&mut conn);
    let token = now + 3_600_000_000;
    let until = now + 60_000_000;
    conn.ok(&["SET", "k", &format!("{}.{:06}{token}", until / 1_000_000, until % 1_000_000)]);
    assert!(conn.int(&["LOCK.CHECK", "k", &token.to_string()]) > 0);
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &token.to_string()]), 1);
    let next = conn.int(&["LOCK.ACQUIRE", "k", "EX", "60"]);
    assert!(next > token, "{next} after {token}");
}
