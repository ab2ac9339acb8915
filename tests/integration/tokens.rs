//! A token that others wrote far ahead of the clock counts for its own key only, and every grant can be checked,
//! extended and released, whatever the token before it.

use crate::kinds::{acquire, acquire_all};
use testkit::{server_time_us, Conn, Server};

const HOUR_US: i64 = 3_600_000_000;

/// 2^53 - 1: a value with this token is not a lock.
const LARGEST: i64 = 9_007_199_254_740_991;

/// Writes a value whose lease ended long ago, or is still running.
fn forge(conn: &mut Conn, key: &str, is_live: bool, token: i64) {
    let timestamp = if is_live { "9999999999" } else { "1763710031" };
    conn.ok(&["SET", key, &format!("{timestamp}.000000{token:016}")]);
}

#[test]
fn a_token_more_than_a_day_ahead_counts_for_its_key_alone() {
    for hours in [1, 23, 25, 24 * 365, 24 * 365 * 9] {
        let (_server, mut conn) = Server::connected();
        let ahead = server_time_us(&mut conn) + hours * HOUR_US;
        forge(&mut conn, "forged", false, ahead);
        assert_eq!(acquire(&mut conn, &["forged", "EX", "30"]), (ahead + 1).to_string());
        let other: i64 = acquire(&mut conn, &["other", "EX", "30"]).parse().unwrap();
        assert_eq!(other > ahead, hours < 24, "{hours} hours: {other}");
        // A release of such a token does not change that.
        assert_eq!(conn.int(&["LOCK.RELEASE", "forged", &(ahead + 1).to_string()]), 1);
        let other: i64 = acquire(&mut conn, &["another", "EX", "30"]).parse().unwrap();
        assert_eq!(other > ahead, hours < 24, "{hours} hours: {other}");
    }
}

#[test]
fn several_forged_tokens_do_not_move_the_others_step_by_step() {
    let (_server, mut conn) = Server::connected();
    let now = server_time_us(&mut conn);
    for step in 1..=10 {
        let key = format!("forged {step}");
        forge(&mut conn, &key, false, now + step * 23 * HOUR_US);
        acquire(&mut conn, &[&key, "EX", "30"]);
    }
    let other: i64 = acquire(&mut conn, &["other", "EX", "30"]).parse().unwrap();
    assert!(other < now + 25 * HOUR_US, "{other}");
}

#[test]
fn several_keys_share_a_token_that_is_ahead_and_no_other_key_does() {
    let (_server, mut conn) = Server::connected();
    let ahead = server_time_us(&mut conn) + 48 * HOUR_US;
    forge(&mut conn, "b", false, ahead);
    let token = acquire_all(&mut conn, &["a", "b", "c"], &["EX", "30"]);
    assert_eq!(token, (ahead + 1).to_string());
    let other: i64 = acquire(&mut conn, &["d", "EX", "30"]).parse().unwrap();
    assert!(other < ahead, "{other}");
    assert_eq!(conn.int(&["LOCK.MRELEASE", "3", "a", "b", "c", &token]), 3);
}

#[test]
fn every_grant_can_be_released_whatever_the_token_before_it() {
    let (_server, mut conn) = Server::connected();
    for below in 1..=3 {
        for kind in [&[][..], &["SHARED"]] {
            let what = format!("{kind:?}, {below} below the largest");
            let args = [&["k", "EX", "30"], kind].concat();
            conn.ok(&["FLUSHALL"]);
            forge(&mut conn, "k", false, LARGEST - below);
            // Each grant follows one that has expired.
            for _ in 0..4 {
                let token = acquire(&mut conn, &args);
                assert_held(&mut conn, &token, &what);
                conn.execute(&["DEL", "k"]);
                forge(&mut conn, "k", false, token.parse().unwrap());
            }
            let token = acquire(&mut conn, &args);
            assert_eq!(conn.int(&["LOCK.RELEASE", "k", &token]), 1, "{what}: {token}");
            assert_eq!(conn.int(&["EXISTS", "k"]), 0, "{what}");
        }
    }
}

#[test]
fn others_can_join_a_holder_whatever_its_token_and_all_of_them_release() {
    let (_server, mut conn) = Server::connected();
    for below in 1..=3 {
        let what = format!("{below} below the largest");
        conn.ok(&["FLUSHALL"]);
        let forged = (LARGEST - below).to_string();
        assert_eq!(conn.int(&["ZADD", "k", "9999999999.5", &forged]), 1);
        let tokens: Vec<String> = (0..4).map(|_| acquire(&mut conn, &["k", "EX", "30", "SHARED"])).collect();
        for token in tokens.iter().chain([&forged]) {
            assert_held(&mut conn, token, &what);
            assert_eq!(conn.int(&["LOCK.RELEASE", "k", token]), 1, "{what}: {token}");
        }
        assert_eq!(conn.int(&["EXISTS", "k"]), 0, "{what}");
    }
}

fn assert_held(conn: &mut Conn, token: &str, what: &str) {
    assert!(conn.int(&["LOCK.CHECK", "k", token]) > 0, "{what}: {token}");
    assert_eq!(conn.int(&["LOCK.EXTEND", "k", token, "EX", "60"]), 1, "{what}: {token}");
}
