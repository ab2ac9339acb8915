//! Several keys where rights and slots are looked at: COMMAND GETKEYS, ACL, clusters.

use crate::cluster::in_memory;
use crate::support::{until, Reply, Server};
use std::collections::BTreeSet;

const CALLS: [&[&str]; 3] = [
    &["LOCK.MACQUIRE", "2", "app:a", "app:b", "EX", "60"],
    &["LOCK.MEXTEND", "2", "app:a", "app:b", "1", "EX", "60"],
    &["LOCK.MRELEASE", "2", "app:a", "app:b", "1"],
];

#[test]
fn the_server_finds_all_keys() {
    let server = Server::start();
    let mut conn = server.conn();
    for call in CALLS {
        let keys = conn.call(&[&["COMMAND", "GETKEYS"], call].concat());
        assert_eq!(keys.list().iter().map(Reply::text).collect::<Vec<_>>(), ["app:a", "app:b"], "{call:?}");
    }
    for wrong in ["0", "-1", "5", "1025", "99999999999999999999", "x"] {
        let call = ["COMMAND", "GETKEYS", "LOCK.MRELEASE", wrong, "a", "b", "1"];
        assert!(conn.call(&call).error().starts_with("ERR "), "{wrong}");
    }
}

#[test]
fn a_user_without_rights_to_one_of_the_keys_is_refused_all() {
    let server = Server::start();
    let mut admin = server.conn();
    admin.ok(&["ACL", "SETUSER", "app", "on", "nopass", "~app:*", "+@all"]);
    let mut conn = server.conn();
    conn.ok(&["AUTH", "app", "any"]);
    for call in CALLS {
        assert!(!matches!(conn.call(call), Reply::Error(_)), "{call:?}");
        for at in [2, 3] {
            let mut other = call.to_vec();
            other[at] = "other";
            assert!(conn.call(&other).error().starts_with("NOPERM "), "{other:?}");
        }
    }
    assert_eq!(admin.int(&["EXISTS", "other"]), 0);
    // What is no number of keys is refused by the command itself.
    assert!(conn.call(&["LOCK.MACQUIRE", "9", "app:a", "EX", "60"]).error().contains("numkeys"));
}

#[test]
fn the_server_knows_what_is_done_to_each_key() {
    let server = Server::start();
    let mut conn = server.conn();
    for (call, flags) in CALLS.iter().zip([&["RW", "access", "update"][..], &["RW", "update"], &["RW", "delete"]]) {
        let reply = conn.call(&[&["COMMAND", "GETKEYSANDFLAGS"], *call].concat());
        if matches!(&reply, Reply::Error(text) if text.to_lowercase().contains("unknown subcommand")) {
            eprintln!("skipped: this server has no COMMAND GETKEYSANDFLAGS");
            return;
        }
        let texts = |list: &Reply| list.list().iter().map(Reply::text).collect::<BTreeSet<_>>();
        let found: Vec<_> = reply.list().iter().map(|key| (key.list()[0].text(), texts(&key.list()[1]))).collect();
        let flags: BTreeSet<String> = flags.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["app:a", "app:b"].map(|key| (key.into(), flags.clone())), "{call:?}");
    }
}

#[test]
fn each_key_needs_the_access_that_is_made_of_it() {
    let server = Server::start();
    let mut admin = server.conn();
    if admin.call(&["ACL", "SETUSER", "mixed", "on", "nopass", "%RW~app:a", "%W~app:b", "%R~app:c", "+@all"])
        != Reply::Status("OK".into())
    {
        eprintln!("skipped: this server has no key permissions for reading or writing alone");
        return;
    }
    let mut conn = server.conn();
    conn.ok(&["AUTH", "mixed", "any"]);
    // MACQUIRE reads and writes all of them, the others write.
    let [take, extend, release] = CALLS;
    assert!(conn.call(take).error().starts_with("NOPERM "));
    assert_eq!(conn.int(extend), 0);
    assert_eq!(conn.int(release), 0);
    for call in CALLS {
        let mut other = call.to_vec();
        other[3] = "app:c";
        assert!(conn.call(&other).error().starts_with("NOPERM "), "{other:?}");
        // Also where the number of keys is written in another way, and in a transaction.
        other[1] = "02";
        assert!(conn.call(&other).error().starts_with("NOPERM "), "{other:?}");
        conn.ok(&["MULTI"]);
        assert!(conn.call(&other).error().starts_with("NOPERM "), "{other:?}");
        assert!(conn.call(&["EXEC"]).error().starts_with("EXECABORT "));
    }
    assert_eq!(admin.int(&["DBSIZE"]), 0);
    assert!(conn.call(&["LOCK.MACQUIRE", "1", "app:a", "EX", "5", "ID", "app"]).error().starts_with("ERR id "));
    conn.int(&["LOCK.MACQUIRE", "1", "app:a", "EX", "5", "OWNER", "app:b"]);
}

#[test]
fn keys_of_a_cluster_share_a_slot() {
    let cluster = in_memory();
    let node = cluster.master_of("{s}a");
    let mut conn = node.conn();
    let token = conn.int(&["LOCK.MACQUIRE", "2", "{s}a", "{s}b", "PX", "60000"]).to_string();
    let elsewhere = cluster.a_key_for_each_master("several");
    for call in [
        &["LOCK.MACQUIRE", "2", "{s}a", &elsewhere[0], "PX", "5"][..],
        &["LOCK.MEXTEND", "2", &elsewhere[1], "{s}a", &token, "PX", "5"],
        &["LOCK.MRELEASE", "2", "{s}a", &elsewhere[2], &token],
    ] {
        assert!(conn.call(call).error().starts_with("CROSSSLOT "), "{call:?}");
    }
    let mut waiter = node.conn();
    waiter.send(&["LOCK.MACQUIRE", "2", "{s}b", "{s}c", "PX", "60000", "WAIT", "60000"]);
    until("it waits", || (conn.call(&["LOCK.INFO", "{s}b"]).field("waiters").int() == 1).then_some(()));
    let mut other = cluster.other_master("{s}a").conn();
    assert!(other.call(&["LOCK.MRELEASE", "2", "{s}a", "{s}b", &token]).error().starts_with("MOVED "));
    assert_eq!(conn.int(&["LOCK.MRELEASE", "2", "{s}a", "{s}b", &token]), 2);
    let token = waiter.read().int().to_string();
    assert_eq!(conn.int(&["LOCK.MRELEASE", "2", "{s}c", "{s}b", &token]), 2);
    let token = conn.int(&["LOCK.ACQUIRE", "{s}a", "PX", "60000", "SHARED"]).to_string();
    assert_eq!(conn.int(&["LOCK.RELEASE", "{s}a", &token]), 1);
}
