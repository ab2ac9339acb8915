//! The commands wherever the server can run them: in MULTI, in scripts, on a replica, without memory.

use super::fixture::{now_us, Snapshot};
use crate::support::{Reply, Server};

const WRITE_IF_HELD: &str = "if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) > 0 then \
     redis.call('SET', KEYS[2], ARGV[2]) return 1 end return 0";

#[test]
fn check_in_multi_tells_what_is_left() {
    let (_server, mut conn) = Server::connected();
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]).to_string();
    conn.ok(&["MULTI"]);
    for args in [
        &["LOCK.CHECK", "k", &token][..],
        &["LOCK.CHECK", "k", "7"],
        &["SET", "data", "1"],
        &["LOCK.RELEASE", "k", &token],
    ] {
        assert_eq!(conn.call(args), Reply::Status("QUEUED".into()));
    }
    let replies = conn.call(&["EXEC"]);
    assert!((20_000..=30_000).contains(&replies.list()[0].int()), "{replies:?}");
    assert_eq!(replies.list()[1..], [Reply::Int(0), Reply::Status("OK".into()), Reply::Int(1)]);
}

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
fn check_and_info_are_reads_to_scripts_and_the_others_are_writes() {
    let (_server, mut conn) = Server::connected();
    if matches!(conn.call(&["EVAL_RO", "return 1", "0"]), Reply::Error(_)) {
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
        let reply = conn.call(&["EVAL_RO", &format!("return redis.call({call})"), "1", "k", &token]);
        assert!(reply.error().contains("read-only"), "{call}: {reply:?}");
    }
    assert_eq!(Snapshot::take(&mut conn, "k"), before);
}

#[test]
fn a_script_takes_and_gives_back_locks() {
    let (_server, mut conn) = Server::connected();
    let script = "local token = redis.call('LOCK.ACQUIRE', KEYS[1], 'PX', 30000, 'OWNER', 'script') \
         local again = redis.call('LOCK.ACQUIRE', KEYS[1], 'PX', 30000) \
         local recover = redis.call('LOCK.RECOVER', KEYS[1], 'PX', 30000) \
         local extended = redis.call('LOCK.EXTEND', KEYS[1], token, 'PX', 60000) \
         return {token, again == false, recover == false, extended}";
    let reply = conn.call(&["EVAL", script, "1", "k"]);
    // A Lua true is 1.
    assert_eq!(reply.list()[1..], [Reply::Int(1), Reply::Int(1), Reply::Int(1)]);
    let token = reply.list()[0].int().to_string();
    assert!(conn.int(&["LOCK.CHECK", "k", &token]) > 40_000);
    assert_eq!(conn.int(&["EVAL", "return redis.call('LOCK.RELEASE', KEYS[1], ARGV[1])", "1", "k", &token]), 1);
}

#[test]
fn an_error_in_a_script_keeps_its_code_word() {
    let (_server, mut conn) = Server::connected();
    let script = "return redis.pcall('LOCK.ACQUIRE', KEYS[1], 'PX', 0)";
    assert_eq!(
        conn.call(&["EVAL", script, "1", "k"]).error(),
        "ERR lease is not a whole number between 1 ms and 10 years"
    );
    conn.int(&["RPUSH", "l", "1"]);
    let script = "return redis.pcall('LOCK.CHECK', KEYS[1], 7)";
    assert!(conn.call(&["EVAL", script, "1", "l"]).error().starts_with("WRONGTYPE "));
}

#[test]
fn without_memory_nothing_is_granted_but_holders_keep_working() {
    let (_server, mut conn) = Server::connected();
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]).to_string();
    conn.ok(&["SET", "expired", "1763710031"]);
    conn.ok(&["CONFIG", "SET", "maxmemory", "1"]);
    for args in [&["LOCK.ACQUIRE", "free", "PX", "1000"][..], &["LOCK.RECOVER", "expired", "PX", "1000"]] {
        let reply = conn.call(args);
        assert!(reply.error().starts_with("OOM "), "{args:?}: {reply:?}");
    }
    assert!(conn.int(&["LOCK.CHECK", "k", &token]) > 0);
    assert_eq!(conn.int(&["LOCK.EXTEND", "k", &token, "PX", "60000"]), 1);
    assert_eq!(conn.call(&["LOCK.INFO", "k"]).field("state").text(), "held");
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &token]), 1);
    conn.ok(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(conn.int(&["EXISTS", "free"]), 0);
    assert_eq!(conn.text(&["GET", "expired"]), "1763710031");
}

#[test]
fn a_replica_reads_locks_and_writes_none() {
    let (_server, mut conn) = Server::connected();
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]).to_string();
    // Of a master that is not there: nothing is loaded, the data stays.
    conn.ok(&["REPLICAOF", "127.0.0.1", "1"]);
    let before = Snapshot::take(&mut conn, "k");
    for args in [
        &["LOCK.ACQUIRE", "free", "PX", "1000"][..],
        &["LOCK.RECOVER", "k", "PX", "1000"],
        &["LOCK.EXTEND", "k", &token, "PX", "1000"],
        &["LOCK.RELEASE", "k", &token],
    ] {
        assert_eq!(conn.call(args).error(), "READONLY You can't write against a read only replica.", "{args:?}");
    }
    assert!(conn.int(&["LOCK.CHECK", "k", &token]) > 0);
    let info = conn.call(&["LOCK.INFO", "k"]);
    assert_eq!(info.field("state").text(), "held");
    for field in ["session", "waiters", "oldest-wait-ms"] {
        assert!(info.field(field).is_nil(), "{field}: {info:?}");
    }
    assert_eq!(Snapshot::take(&mut conn, "k"), before);
    conn.ok(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(conn.call(&["LOCK.INFO", "k"]).field("waiters"), Reply::Int(0));
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
fn a_lock_is_a_string_that_dump_restore_rename_and_copy_carry() {
    let (_server, mut conn) = Server::connected();
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]).to_string();
    assert_eq!(conn.text(&["TYPE", "k"]), "string");
    let Reply::Text(dump) = conn.call(&["DUMP", "k"]) else { panic!("a dump") };
    let expiry = (now_us(&mut conn) / 1000 + 91_000).to_string();
    conn.ok(&[&b"RESTORE"[..], b"restored", expiry.as_bytes(), &dump, b"ABSTTL"]);
    assert_eq!(conn.int(&["COPY", "k", "copied"]), 1);
    conn.ok(&["RENAME", "k", "renamed"]);
    for key in ["restored", "copied", "renamed"] {
        assert!(conn.int(&["LOCK.CHECK", key, &token]) > 0, "{key}");
        assert!(conn.call(&["LOCK.ACQUIRE", key, "PX", "30000"]).is_nil(), "{key}");
    }
    assert_eq!(conn.call(&["LOCK.INFO", "k"]).field("state").text(), "free");
}

#[test]
fn a_lock_is_taken_of_keys_up_to_4096_bytes_and_others_are_read_and_given_back() {
    let (server, mut conn) = Server::connected();
    let (longest, longer) = ("k".repeat(4_096), "k".repeat(4_097));
    let token = conn.int(&["LOCK.ACQUIRE", &longest, "EX", "30"]).to_string();
    let mut waiter = server.conn();
    waiter.send(&["LOCK.ACQUIRE", &longest, "EX", "30", "WAIT", "20000"]);
    assert_eq!(conn.int(&["LOCK.EXTEND", &longest, &token, "EX", "30"]), 1);
    assert_eq!(conn.int(&["LOCK.RELEASE", &longest, &token]), 1);
    assert!(waiter.read().int() > 0);
    assert!(conn.int(&["LOCK.MACQUIRE", "2", "a", &longest[1..], "EX", "30"]) > 0);
    // Of an earlier version, or of a script.
    conn.ok(&["SET", &longer, "9999999999.00000017637100004829130000000000000000007"]);
    let token = "1763710000482913";
    assert!(conn.int(&["LOCK.CHECK", &longer, token]) > 0);
    assert_eq!(conn.call(&["LOCK.INFO", &longer]).field("state").text(), "held");
    assert_eq!(conn.int(&["LOCK.EXTEND", &longer, token, "EX", "30"]), 1);
    assert_eq!(conn.int(&["LOCK.MEXTEND", "1", &longer, token, "EX", "30"]), 1);
    assert_eq!(conn.int(&["LOCK.CANCEL", &longer, "8"]), 0);
    assert_eq!(conn.int(&["LOCK.RELEASE", &longer, token]), 1);
    assert_eq!(conn.int(&["LOCK.MRELEASE", "1", &longer, token]), 0);
}
