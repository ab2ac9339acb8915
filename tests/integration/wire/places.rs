//! The commands in scripts, in every database, and on keys of any length.

use super::fixture::Snapshot;
use testkit::{Reply, Server};

const WRITE_IF_HELD: &str = "if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) > 0 then \
     redis.call('SET', KEYS[2], ARGV[2]) return 1 end return 0";

#[test]
fn a_script_writes_only_while_the_lock_is_held() {
    let (_server, mut conn) = Server::connected();
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]).to_string();
    assert_eq!(conn.int(&["EVAL", WRITE_IF_HELD, "2", "k", "data", &token, "fresh"]), 1);
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &token]), 1);
    assert_eq!(conn.int(&["EVAL", WRITE_IF_HELD, "2", "k", "data", &token, "stale"]), 0);
    assert_eq!(conn.text(&["GET", "data"]), "fresh");
}

#[test]
fn only_check_and_info_count_as_reads_in_scripts() {
    let (_server, mut conn) = Server::connected();
    if matches!(conn.execute(&["EVAL_RO", "return 1", "0"]), Reply::Error(_)) {
        eprintln!("skipped: reads in scripts: this server has no EVAL_RO");
        return;
    }
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]).to_string();
    let left = conn.int(&["EVAL_RO", "return redis.call('LOCK.CHECK', KEYS[1], ARGV[1])", "1", "k", &token]);
    assert!((20_000..=30_000).contains(&left), "{left}");
    let state = conn.text(&["EVAL_RO", "return redis.call('LOCK.INFO', KEYS[1])[2]", "1", "k"]);
    assert_eq!(state, "held");
    let before = Snapshot::take(&mut conn, "k");
    for call in [
        "'LOCK.ACQUIRE', KEYS[1], 'PX', 1000",
        "'LOCK.RECOVER', KEYS[1], 'PX', 1000",
        "'LOCK.RELEASE', KEYS[1], ARGV[1]",
        "'LOCK.EXTEND', KEYS[1], ARGV[1], 'PX', 1000",
    ] {
        let reply = conn.execute(&["EVAL_RO", &format!("return redis.call({call})"), "1", "k", &token]);
        assert!(reply.error().contains("read-only"), "{call}: {reply:?}");
    }
    assert_eq!(Snapshot::take(&mut conn, "k"), before);
}

#[test]
fn an_error_in_a_script_keeps_its_error_code() {
    let (_server, mut conn) = Server::connected();
    let script = "return redis.pcall('LOCK.ACQUIRE', KEYS[1], 'PX', 0)";
    assert_eq!(
        conn.execute(&["EVAL", script, "1", "k"]).error(),
        "ERR lease is not a whole number between 1 ms and 10 years"
    );
    conn.int(&["RPUSH", "l", "1"]);
    let script = "return redis.pcall('LOCK.CHECK', KEYS[1], 7)";
    assert!(conn.execute(&["EVAL", script, "1", "l"]).error().starts_with("WRONGTYPE "));
}

#[test]
fn a_lock_lives_in_its_database() {
    let server = Server::start();
    let (mut zero, mut one) = (server.conn(), server.conn());
    one.ok(&["SELECT", "1"]);
    let first = zero.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]);
    let second = one.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]);
    assert!(second > first, "the tokens of a server grow in all databases");
    assert_eq!(one.int(&["LOCK.RELEASE", "k", &first.to_string()]), 0);
    assert_eq!(zero.int(&["LOCK.RELEASE", "k", &first.to_string()]), 1);
    assert!(one.int(&["LOCK.CHECK", "k", &second.to_string()]) > 0);
}

#[test]
fn keys_over_4096_bytes_are_only_read_and_released() {
    let (server, mut conn) = Server::connected();
    let (longest, longer) = ("k".repeat(4_096), "k".repeat(4_097));
    let token = conn.int(&["LOCK.ACQUIRE", &longest, "EX", "30"]).to_string();
    let mut waiter = server.conn();
    waiter.send(&["LOCK.ACQUIRE", &longest, "EX", "30", "WAIT", "20000"]);
    assert_eq!(conn.int(&["LOCK.EXTEND", &longest, &token, "EX", "30"]), 1);
    assert_eq!(conn.int(&["LOCK.RELEASE", &longest, &token]), 1);
    assert!(waiter.read().int() > 0);
    assert!(conn.int(&["LOCK.MACQUIRE", "2", "a", &longest[1..], "EX", "30"]) > 0);
    // From an earlier version, or from a script.
    conn.ok(&["SET", &longer, "9999999999.00000017637100004829130000000000000000007"]);
    let token = "1763710000482913";
    assert!(conn.int(&["LOCK.CHECK", &longer, token]) > 0);
    assert_eq!(conn.state(&longer), "held");
    assert_eq!(conn.int(&["LOCK.EXTEND", &longer, token, "EX", "30"]), 1);
    assert_eq!(conn.int(&["LOCK.MEXTEND", "1", &longer, token, "EX", "30"]), 1);
    assert_eq!(conn.execute(&["LOCK.CANCEL", &longer, "8"]).error(), "ERR key is longer than 4096 bytes");
    assert_eq!(conn.int(&["LOCK.RELEASE", &longer, token]), 1);
    assert_eq!(conn.int(&["LOCK.MRELEASE", "1", &longer, token]), 0);
}
