//! What outlives the server: the lock, its token and its timestamp, in AOF, RDB and DUMP, readable without the module.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::kinds::{acquire, Kind, Row, KINDS};
use crate::replication::{unwrapped, words};
use testkit::{content, expire_at_ms, server_time_us, temp_dir, timestamp_us, until, Conn, Options, Reply, Server};

const RETENTION_MS: i64 = 60_000;

/// A directory that several servers use in turn.
struct Data(PathBuf);

impl Data {
    fn new() -> Self {
        Data(temp_dir())
    }

    fn server(&self) -> Options {
        Server::with().dir(&self.0)
    }

    /// A server with an AOF that contains every change whose reply was sent.
    fn with_aof(&self) -> Options {
        self.server().args(&["--appendonly", "yes", "--appendfsync", "always"])
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The commands in the AOF files with `part` in their names; on 6.2 in its only file.
fn aof(dir: &Path, part: &str) -> Vec<Vec<String>> {
    let files = fs::read_dir(dir.join("appendonlydir")).map_or_else(
        |_| vec![dir.join("appendonly.aof")],
        |files| files.map(|file| file.unwrap().path()).filter(|file| file.to_string_lossy().contains(part)).collect(),
    );
    let content: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let mut lines = content.split("\r\n");
    let mut commands = Vec::new();
    while let Some(head) = lines.next().filter(|head| !head.is_empty()) {
        let count: usize = head.strip_prefix('*').expect("a command").parse().unwrap();
        // Each word follows a line with its length.
        let words = (0..count).map(|_| lines.by_ref().nth(1).unwrap().to_string()).collect();
        commands.push(words);
    }
    unwrapped(commands)
}

/// The SET that must be in the AOF for `key`'s current value.
fn set_of(conn: &mut Conn, key: &str) -> Vec<String> {
    let value = conn.text(&["GET", key]);
    let pxat = (timestamp_us(&value) + 999).div_euclid(1000) + RETENTION_MS;
    words(&["SET", key, &value, "PXAT", &pxat.to_string()])
}

/// Waits until the lease and the margin of `key` have ended.
fn until_expired(conn: &mut Conn, key: &str) {
    until("the lock has expired", || (conn.state(key) == "expired").then_some(()));
}

#[test]
fn the_aof_holds_set_and_del_and_no_refusal() {
    let data = Data::new();
    let server = data.with_aof().start();
    let mut conn = server.conn();
    let token = acquire(&mut conn, &["a", "EX", "30", "OWNER", "worker-1"]);
    let granted = set_of(&mut conn, "a");
    assert!(conn.execute(&["LOCK.ACQUIRE", "a", "EX", "60"]).is_nil());
    assert!(conn.execute(&["LOCK.RECOVER", "a", "EX", "60"]).is_nil());
    assert_eq!(conn.int(&["LOCK.EXTEND", "a", &token, "EX", "60"]), 1);
    let extended = set_of(&mut conn, "a");
    assert_eq!(conn.int(&["LOCK.RELEASE", "a", "1"]), 0);
    assert_eq!(conn.int(&["LOCK.RELEASE", "a", &token]), 1);
    assert_eq!(conn.int(&["LOCK.RELEASE", "a", &token]), 0);
    conn.ok(&["SET", "a", "1700000000"]);
    conn.execute(&["LOCK.RECOVER", "a", "EX", "30"]).list();
    let recovered = set_of(&mut conn, "a");
    assert_eq!(
        aof(&data.0, ".incr."),
        [
            words(&["SELECT", "0"]),
            granted,
            extended,
            words(&["DEL", "a"]),
            words(&["SET", "a", "1700000000"]),
            recovered
        ]
    );
}

/// Waits until the AOF has been rewritten.
fn rewrite(conn: &mut Conn) {
    conn.execute(&["BGREWRITEAOF"]);
    until("the AOF is rewritten", || {
        let info = conn.text(&["INFO", "persistence"]);
        let done = ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0", "aof_last_bgrewrite_status:ok"];
        done.iter().all(|line| info.contains(line)).then_some(())
    });
}

#[test]
fn a_rewritten_aof_has_the_lock_as_a_string() {
    let data = Data::new();
    let server = data.with_aof().args(&["--aof-use-rdb-preamble", "no"]).start();
    let mut conn = server.conn();
    let token = acquire(&mut conn, &["a", "EX", "300", "OWNER", "worker-1"]);
    assert_eq!(conn.int(&["LOCK.EXTEND", "a", &token, "EX", "600"]), 1);
    let [_, _, value, _, pxat] = <[String; 5]>::try_from(set_of(&mut conn, "a")).unwrap();
    rewrite(&mut conn);
    let rewritten = aof(&data.0, ".base.");
    assert!(rewritten.contains(&words(&["SET", "a", &value])), "{rewritten:?}");
    assert!(rewritten.contains(&words(&["PEXPIREAT", "a", &pxat])), "{rewritten:?}");
}

/// The contents of the keys of all kinds; each kind has its own database.
fn contents(conn: &mut Conn) -> Vec<String> {
    let mut all = Vec::new();
    for (db, kind) in KINDS.iter().enumerate() {
        conn.ok(&["SELECT", &db.to_string()]);
        all.extend(kind.keys().iter().map(|key| content(conn, key)));
    }
    all
}

/// Takes locks of all kinds, and some that end soon; ends the server as a crash would, and checks the locks on the next
/// server.
fn still_held_after_a_restart(options: &Options, before_the_end: impl Fn(&mut Conn)) {
    let options = options.clone().module_args(&["margin-ms", "0"]);
    let server = options.clone().start();
    let mut conn = server.conn();
    let mut held = Vec::new();
    for (db, kind) in KINDS.into_iter().enumerate() {
        conn.ok(&["SELECT", &db.to_string()]);
        let brief = acquire(&mut conn, &["brief", "PX", "300", "OWNER", "first"]);
        let token = kind.take(&mut conn, &["EX", "300", "ID", "42", "OWNER", "worker-1"]);
        let short = (kind == Kind::Limit).then(|| kind.take(&mut conn, &["PX", "300", "OWNER", "bob"]));
        held.push((db, kind, token, brief, short));
    }
    let before = contents(&mut conn);
    before_the_end(&mut conn);
    server.signal("KILL");
    drop(server);

    let server = options.start();
    let mut conn = server.conn();
    assert_eq!(contents(&mut conn), before);
    for (db, kind, token, brief, short) in held {
        let _row = Row::of(kind);
        conn.ok(&["SELECT", &db.to_string()]);
        let info = conn.execute(&["LOCK.INFO", "k"]);
        assert_eq!((info.field("state").text(), info.field("owner").text()), ("held".into(), "worker-1".into()));
        assert!(conn.execute(&["LOCK.ACQUIRE", "k", "EX", "300"]).is_nil());
        assert!(conn.int(&["LOCK.CHECK", "k", &token]) > 0);
        assert_eq!(kind.take(&mut conn, &["EX", "300", "ID", "42"]), token, "the same attempt");
        // The limit applies until the other lease has expired.
        if let Some(short) = short {
            let details = until("its place is free", || match conn.execute(&kind.acquire(&["EX", "60", "DETAILS"])) {
                Reply::Nil => None,
                details => Some(details),
            });
            assert_eq!(details.list()[2..], [Reply::Int(short.parse().unwrap()), Reply::Text(b"bob".to_vec())]);
            assert!(conn.execute(&kind.acquire(&["EX", "60"])).is_nil(), "two hold it again");
            kind.release(&mut conn, &details.list()[0].int().to_string());
        }
        assert_eq!(conn.int(&kind.command("EXTEND", &[&token, "EX", "600"])), 1);
        kind.release(&mut conn, &token);
        let next = kind.take(&mut conn, &["EX", "300"]);
        assert!(next > token, "{next} after {token}");
        // A lock that expired while no server was running is recovered afterwards.
        until_expired(&mut conn, "brief");
        let details = conn.execute(&["LOCK.RECOVER", "brief", "EX", "30"]);
        let end = brief.parse::<i64>().unwrap() + 300_000;
        let overdue_ms = (server_time_us(&mut conn) - end) / 1000;
        assert!((0..=overdue_ms).contains(&details.list()[1].int()), "{details:?}");
        assert_eq!(details.list()[2..], [Reply::Int(brief.parse().unwrap()), Reply::Text(b"first".to_vec())]);
        assert_eq!(conn.int(&["LOCK.RELEASE", "brief", &brief]), 0);
    }
}

#[test]
fn locks_survive_a_restart_from_the_aof() {
    still_held_after_a_restart(&Data::new().with_aof(), |_| {});
}

#[test]
fn locks_survive_a_restart_from_a_rewritten_aof() {
    for preamble in ["yes", "no"] {
        let _row = Row::of(("aof-use-rdb-preamble", preamble));
        let data = Data::new();
        let options = data.with_aof().args(&["--aof-use-rdb-preamble", preamble]);
        still_held_after_a_restart(&options, |conn| {
            rewrite(conn);
            // The AOF is appended to after the rewrite.
            let token = acquire(conn, &["after", "EX", "60", "SHARED"]);
            assert_eq!(conn.int(&["LOCK.RELEASE", "after", &token]), 1);
        });
    }
}

#[test]
fn locks_survive_a_restart_from_the_rdb() {
    still_held_after_a_restart(&Data::new().server(), |conn| conn.ok(&["SAVE"]));
}

#[test]
fn a_retention_can_end_while_the_server_is_down() {
    for aof in [true, false] {
        let data = Data::new();
        let options = if aof { data.with_aof() } else { data.server() };
        let options = options.module_args(&["margin-ms", "0", "retention-ms", "0"]);
        let server = options.clone().start();
        let mut conn = server.conn();
        let token = acquire(&mut conn, &["a", "PX", "1000"]);
        let timestamp = timestamp_us(&conn.text(&["GET", "a"]));
        if !aof {
            conn.ok(&["SAVE"]);
        }
        drop(server);
        // Letting this time pass is the point of the test, and there is no server to ask.
        sleep(Duration::from_millis(1100));

        let server = options.start();
        let mut conn = server.conn();
        assert!(server_time_us(&mut conn) > timestamp);
        assert_eq!(conn.state("a"), "free");
        assert!(conn.execute(&["LOCK.RECOVER", "a", "EX", "30"]).is_nil());
        let details = conn.execute(&["LOCK.ACQUIRE", "a", "EX", "30", "DETAILS"]);
        assert!(details.list()[0].int() > token.parse().unwrap());
        assert!(details.list()[1..].iter().all(Reply::is_nil), "{details:?}");
    }
}

#[test]
fn a_lock_can_be_dumped_restored_copied_and_renamed() {
    let server = Server::start();
    let mut conn = server.conn();
    let token = acquire(&mut conn, &["a", "EX", "30", "OWNER", "worker-1"]);
    let (value, expiry) = (conn.text(&["GET", "a"]), expire_at_ms(&mut conn, "a").to_string());
    let Reply::Text(dump) = conn.execute(&["DUMP", "a"]) else { panic!("no dump") };
    assert_eq!(conn.int(&["DEL", "a"]), 1);
    conn.ok(&[b"RESTORE", &b"a"[..], expiry.as_bytes(), &dump, b"ABSTTL"]);
    conn.ok(&[b"RESTORE", &b"for-ever"[..], b"0", &dump]);
    assert_eq!(conn.int(&["COPY", "a", "copied"]), 1);
    assert_eq!(conn.int(&["COPY", "a", "moved"]), 1);
    conn.ok(&["RENAME", "moved", "renamed"]);
    for key in ["a", "for-ever", "copied", "renamed"] {
        assert_eq!(conn.text(&["GET", key]), value);
        assert!(conn.execute(&["LOCK.ACQUIRE", key, "EX", "30"]).is_nil());
        assert_eq!(conn.int(&["LOCK.RELEASE", key, &token]), 1);
    }
}

#[test]
fn the_data_is_readable_without_the_module() {
    for aof in [true, false] {
        let data = Data::new();
        let options = if aof { data.with_aof() } else { data.server() };
        let server = options.clone().start();
        let mut conn = server.conn();
        acquire(&mut conn, &["a", "EX", "300", "ID", "42", "OWNER", "worker-1"]);
        conn.ok(&["SET", "b", "1700000000"]);
        conn.execute(&["LOCK.RECOVER", "b", "EX", "300"]).list();
        let gone = acquire(&mut conn, &["gone", "EX", "300"]);
        assert_eq!(conn.int(&["LOCK.RELEASE", "gone", &gone]), 1);
        let shared = acquire(&mut conn, &["shared", "EX", "600", "SHARED", "OWNER", "alice"]);
        acquire(&mut conn, &["shared", "EX", "300", "SHARED", "ID", "9"]);
        let locks = |conn: &mut Conn| ["a", "b", "shared"].map(|key| content(conn, key));
        let before = locks(&mut conn);
        if !aof {
            conn.ok(&["SAVE"]);
        }
        drop(server);

        let plain = options.clone().without_module().start();
        let mut conn = plain.conn();
        assert_eq!(locks(&mut conn), before);
        assert_eq!(conn.int(&["DBSIZE"]), 3);
        assert!(conn.execute(&["SET", "a", "other", "NX", "PX", "1000"]).is_nil());
        // Without an owner, the value is one decimal number for any reader.
        let value = conn.text(&["GET", "b"]);
        let until_s: f64 = value.parse().unwrap();
        #[allow(clippy::cast_precision_loss)]
        let now_s = server_time_us(&mut conn) as f64 / 1e6;
        assert!((290.0..=301.0).contains(&(until_s - now_s)), "{value}");
        drop(plain);
        // Once the module is loaded again, it uses the kept state.
        let server = options.start();
        let mut conn = server.conn();
        assert_eq!(locks(&mut conn), before);
        assert_eq!(conn.int(&["LOCK.RELEASE", "shared", &shared]), 1);
    }
}

#[test]
fn tokens_grow_past_the_key_after_a_restart() {
    let data = Data::new();
    let options = data.with_aof().module_args(&["margin-ms", "0"]);
    let server = options.clone().start();
    let mut conn = server.conn();
    // A grant from a server whose clock was an hour ahead.
    let ahead = server_time_us(&mut conn) + 3_600_000_000;
    conn.ok(&["SET", "a", &format!("1700000000.000000{ahead}")]);
    let first = acquire(&mut conn, &["a", "PX", "1"]);
    assert_eq!(first, (ahead + 1).to_string());
    // The server remembers that token for every key.
    assert_eq!(acquire(&mut conn, &["b", "EX", "30"]), (ahead + 2).to_string());
    drop(server);

    let server = options.start();
    let mut conn = server.conn();
    until_expired(&mut conn, "a");
    assert_eq!(acquire(&mut conn, &["a", "EX", "30"]), (ahead + 2).to_string());
    // The same holds for a lock that is released before it is taken again.
    let later = ahead + 3_600_000_000;
    conn.ok(&["SET", "c", &format!("{}.000000{later}", later / 1_000_000)]);
    assert_eq!(conn.int(&["LOCK.RELEASE", "c", &later.to_string()]), 1);
    assert_eq!(acquire(&mut conn, &["c", "EX", "30"]), (later + 1).to_string());
}

#[test]
fn a_lock_vanishes_exactly_when_its_retention_ends() {
    let server = Server::with().module_args(&["margin-ms", "100", "retention-ms", "700"]).start();
    let mut conn = server.conn();
    acquire(&mut conn, &["a", "PX", "100"]);
    let timestamp = timestamp_us(&conn.text(&["GET", "a"]));
    // Each state ends on time: a later observation must be the next state.
    let mut seen = Vec::new();
    until("the lock is gone", || {
        let before = server_time_us(&mut conn);
        let state = conn.state("a");
        let after = server_time_us(&mut conn);
        let end = timestamp + 700_000;
        match state.as_str() {
            "held" => assert!(before < timestamp),
            "expired" => assert!(after >= timestamp && before <= end + 2_000),
            _ => assert!(state == "free" && after >= end),
        }
        if seen.last() != Some(&state) {
            seen.push(state.clone());
        }
        (state == "free").then_some(())
    });
    assert_eq!(seen, ["held", "expired", "free"]);
    assert_eq!(conn.int(&["EXISTS", "a"]), 0);
}
