//! BACKUP of Redis 8.10: what is restored has every lock as it was when the backup was sealed, and each can be extended
//! and released. That also holds on a server without an AOF, which writes one for the backup alone.

use super::{copy_all, Data};
use crate::waiting::Locks;
use std::time::Duration;
use testkit::{content, until, Conn, Reply, Server};

/// The changes last for several server ticks. At each tick the module asks whether it has to replicate.
const ROUNDS: usize = 150;
const SETTINGS: [&str; 2] = ["margin-ms", "0"];

/// Every lock with its value and native expiry.
fn locks(conn: &mut Conn) -> Vec<String> {
    let mut keys: Vec<String> = conn.execute(&["KEYS", "*"]).list().iter().map(Reply::text).collect();
    keys.sort();
    let one = |key: &String| format!("{key} {}", content(conn, key));
    keys.iter().map(one).collect()
}

/// Grants, extensions, releases, hand-offs and a set of holders.
fn change(locks: &mut Locks, round: usize) {
    let key = |kind: &str| format!("{kind}{}", round % 40);
    let grant = |locks: &mut Locks, key: &str| {
        let token = match locks.conn.execute(&["LOCK.ACQUIRE", key, "EX", "600", "ID", "7"]) {
            Reply::Int(token) => token,
            other => panic!("{key}: {other:?}"),
        };
        token.to_string()
    };
    let (kept, passed, set) = (key("kept"), key("passed"), key("set"));
    let token = grant(locks, &kept);
    assert_eq!(locks.conn.int(&["LOCK.EXTEND", &kept, &token, "EX", "900"]), 1);
    if round.is_multiple_of(3) {
        assert_eq!(locks.conn.int(&["LOCK.RELEASE", &kept, &token]), 1);
    }
    let token = locks.conn.until_granted(&["LOCK.ACQUIRE", &passed, "PX", "600000"]).to_string();
    let mut next = locks.server.conn();
    next.send(&["LOCK.ACQUIRE", &passed, "EX", "600", "WAIT", "60000"]);
    locks.conn.until_waiters(&passed, 1);
    assert_eq!(locks.conn.int(&["LOCK.RELEASE", &passed, &token]), 1);
    let token = next.read().int().to_string();
    if round + 40 < ROUNDS {
        assert_eq!(locks.conn.int(&["LOCK.RELEASE", &passed, &token]), 1);
    }
    locks.conn.int(&["LOCK.ACQUIRE", &set, "EX", "600", "LIMIT", "9"]);
}

fn state(conn: &mut Conn) -> String {
    let status = conn.execute(&["BACKUP", "STATUS"]);
    let status = status.list();
    let at = status.iter().position(|field| *field == Reply::Text(b"state".to_vec())).expect("a state");
    status[at + 1].text()
}

#[test]
fn a_restored_backup_has_every_lock_of_the_moment_when_it_was_sealed() {
    for append_only in ["no", "yes"] {
        let data = Data::new();
        let args = ["--appendonly", append_only, "--appendfsync", "always"];
        let mut first = Locks::on(Server::with().args(&args).module_args(&SETTINGS).dir(&data.0).start());
        if let Reply::Error(_) = first.conn.execute(&["BACKUP", "HELP"]) {
            eprintln!("skipped: BACKUP: it needs Redis 8.10");
            return;
        }
        let before = first.conn.int(&["LOCK.ACQUIRE", "before", "EX", "600"]);
        first.conn.ok(&["BACKUP", "START"]);
        until("the snapshot is written", || (state(&mut first.conn) == "incrementing").then_some(()));
        // Otherwise a child that is about to end would stand for the AOF.
        assert!(first.conn.no_reply_within(Duration::from_millis(300)));
        (0..ROUNDS).for_each(|round| change(&mut first, round));
        let sealed = locks(&mut first.conn);
        first.conn.ok(&["BACKUP", "SEAL"]);
        first.conn.int(&["LOCK.ACQUIRE", "after", "EX", "600"]);
        assert_eq!(state(&mut first.conn), "sealed");

        let restored = Data::new();
        copy_all(&data.0.join("backupdir"), &restored.0.join("appendonlydir"));
        let server = Server::with().args(&["--appendonly", "yes"]).module_args(&SETTINGS).dir(&restored.0).start();
        let mut conn = server.conn();
        assert_eq!(locks(&mut conn), sealed, "appendonly {append_only}");
        assert_eq!(conn.int(&["LOCK.EXTEND", "before", &before.to_string(), "EX", "700"]), 1);
        assert_eq!(conn.int(&["LOCK.RELEASE", "before", &before.to_string()]), 1);
        assert!(conn.int(&["LOCK.ACQUIRE", "before", "EX", "600"]) > before, "tokens go on");
    }
}
