//! LOCK.SCAN returns the keys that its caller may read: in transactions and scripts too, for the default user, for
//! users that are changed or deleted, and for commands without a user.

use super::{distinguishes_reading_from_writing, is_denied, user};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use testkit::{encoded, temp_dir, until, Conn, Reply, Server, DEADLINE};

/// The keys in the reply of one step.
fn keys(reply: &Reply) -> BTreeSet<String> {
    reply.list()[1].list().iter().map(|row| row.field("key").text()).collect()
}

fn scan(conn: &mut Conn) -> BTreeSet<String> {
    keys(&conn.execute(&["LOCK.SCAN", "0", "COUNT", "1000"]))
}

fn set(keys: &[&str]) -> BTreeSet<String> {
    keys.iter().map(ToString::to_string).collect()
}

/// A server with three tenants' locks; `None` if LOCK.SCAN cannot check read permissions.
fn with_tenants() -> Option<Server> {
    let server = Server::start();
    distinguishes_reading_from_writing(&server, "the keys of LOCK.SCAN").then(|| {
        fill(&mut server.conn());
        server
    })
}

fn fill(conn: &mut Conn) {
    for key in ["app:a", "other:a", "third:a"] {
        conn.int(&["LOCK.ACQUIRE", key, "EX", "600", "OWNER", "somebody"]);
    }
    conn.int(&["LOCK.ACQUIRE", "other:shared", "EX", "600", "SHARED"]);
    conn.ok(&["SET", "other:foreign", "a secret"]);
}

const HELD: [&str; 4] = ["app:a", "other:a", "other:shared", "third:a"];

#[test]
fn it_returns_only_keys_its_caller_may_read() {
    let Some(server) = with_tenants() else { return };
    assert_eq!(scan(&mut server.conn()), set(&HELD));
    for (rules, expected) in [
        (&["~*", "+lock.scan"][..], &HELD[..]),
        (&["~app:*", "+lock.scan"], &["app:a"]),
        (&["~app:*", "~third:*", "+lock.scan"], &["app:a", "third:a"]),
        (&["%R~app:*", "+lock.scan"], &["app:a"]),
        (&["%W~*", "+lock.scan"], &[]),
        (&["%W~*", "%R~third:*", "+lock.scan"], &["third:a"]),
        (&["resetkeys", "+lock.scan"], &[]),
        (&["~app:*", "+lock.scan", "(%R~third:* +get)"], &["app:a", "third:a"]),
    ] {
        let mut conn = user(&server, rules);
        assert_eq!(scan(&mut conn), set(expected), "{rules:?}");
        let foreign = keys(&conn.execute(&["LOCK.SCAN", "0", "COUNT", "1000", "STATE", "foreign"]));
        assert_eq!(foreign, if rules[0] == "~*" { set(&["other:foreign"]) } else { set(&[]) }, "{rules:?}");
        let mut named = || keys(&conn.execute(&["LOCK.SCAN", "0", "COUNT", "1000", "MATCH", "other:a"]));
        assert_eq!(named().is_empty(), rules[0] != "~*", "{rules:?}");
    }
}

#[test]
fn every_readable_lock_is_found_among_many_others() {
    let Some(server) = with_tenants() else { return };
    let mut admin = server.conn();
    for n in 0..500 {
        admin.int(&["LOCK.ACQUIRE", &format!("other:{n}"), "EX", "600"]);
    }
    let mut expected = set(&["app:a"]);
    for n in 0..20 {
        admin.int(&["LOCK.ACQUIRE", &format!("app:{n}"), "EX", "600"]);
        expected.insert(format!("app:{n}"));
    }
    let mut conn = user(&server, &["~app:*", "+lock.scan"]);
    let (mut cursor, mut found) = ("0".to_string(), BTreeSet::new());
    loop {
        let reply = conn.execute(&["LOCK.SCAN", &cursor, "COUNT", "20"]);
        found.extend(keys(&reply));
        cursor = reply.list()[0].text();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found, expected);
}

#[test]
fn scripts_functions_and_transactions_see_what_their_user_may_read() {
    let Some(server) = with_tenants() else { return };
    let mut admin = server.conn();
    let library = "#!lua name=l\nredis.register_function('scan', function() \
                   return redis.call('LOCK.SCAN', '0', 'COUNT', 1000) end)";
    admin.text(&["FUNCTION", "LOAD", library]);
    let mut conn = user(&server, &["~app:*", "+@all"]);
    let script = "return redis.call('LOCK.SCAN', '0', 'COUNT', 1000)";
    assert_eq!(keys(&conn.execute(&["EVAL", script, "0"])), set(&["app:a"]));
    assert_eq!(keys(&conn.execute(&["FCALL", "scan", "0"])), set(&["app:a"]));
    conn.ok(&["MULTI"]);
    for command in [&["LOCK.SCAN", "0", "COUNT", "1000"][..], &["EVAL", script, "0"]] {
        assert_eq!(conn.text(command), "QUEUED");
    }
    let reply = conn.execute(&["EXEC"]);
    assert_eq!(reply.list().iter().map(keys).collect::<Vec<_>>(), [set(&["app:a"]), set(&["app:a"])]);
    // Another user runs the same scripts.
    assert_eq!(keys(&admin.execute(&["EVAL", script, "0"])), set(&HELD));
    assert_eq!(keys(&admin.execute(&["FCALL", "scan", "0"])), set(&HELD));
}

#[test]
fn the_default_user_is_a_user_like_any_other() {
    let Some(server) = with_tenants() else { return };
    server.conn().ok(&["ACL", "SETUSER", "admin", "on", "nopass", "~*", "+@all"]);
    server.conn().ok(&["ACL", "SETUSER", "default", "resetkeys", "~third:*"]);
    assert_eq!(scan(&mut server.conn()), set(&["third:a"]));
    let mut admin = server.conn();
    admin.ok(&["AUTH", "admin", "any"]);
    assert_eq!(scan(&mut admin), set(&HELD));
}

#[test]
fn changed_permissions_apply_from_the_next_command() {
    let Some(server) = with_tenants() else { return };
    let mut admin = server.conn();
    admin.ok(&["ACL", "SETUSER", "app", "on", "nopass", "~app:*", "+lock.scan"]);
    let mut conn = server.conn();
    conn.ok(&["AUTH", "app", "any"]);
    assert_eq!(scan(&mut conn), set(&["app:a"]));
    admin.ok(&["ACL", "SETUSER", "app", "~third:*"]);
    assert_eq!(scan(&mut conn), set(&["app:a", "third:a"]));
    admin.ok(&["ACL", "SETUSER", "app", "resetkeys"]);
    assert_eq!(scan(&mut conn), set(&[]));
}

#[test]
fn a_deleted_user_reads_nothing_more() {
    let Some(server) = with_tenants() else { return };
    let mut admin = server.conn();
    admin.ok(&["ACL", "SETUSER", "admin", "on", "nopass", "~*", "+@all"]);
    admin.ok(&["ACL", "SETUSER", "default", "resetkeys", "~third:*"]);
    let mut admin = server.conn();
    admin.ok(&["AUTH", "admin", "any"]);
    // Another connection deletes the user between MULTI and EXEC.
    let mut leaver = user_with(&mut admin, &server, "leaver", &["~app:*", "+@all"]);
    leaver.ok(&["MULTI"]);
    assert_eq!(leaver.text(&["LOCK.SCAN", "0"]), "QUEUED");
    assert_eq!(admin.int(&["ACL", "DELUSER", "leaver"]), 1);
    leaver.send(&["EXEC"]);
    assert!(leaver.try_read().is_err(), "its connection is closed");
    // The user deletes itself in the same transaction: the server continues as the default user, and closes the
    // connection.
    let mut leaver = user_with(&mut admin, &server, "leaver", &["~app:*", "+@all"]);
    leaver.ok(&["MULTI"]);
    for command in [&["ACL", "DELUSER", "leaver"][..], &["LOCK.SCAN", "0", "COUNT", "1000"]] {
        assert_eq!(leaver.text(command), "QUEUED");
    }
    leaver.send(&["EXEC"]);
    if let Ok(Reply::List(replies)) = leaver.try_read() {
        assert!(
            matches!(&replies[1], Reply::Error(_)) || keys(&replies[1]).is_subset(&set(&["third:a"])),
            "{replies:?}"
        );
    }
    // A new user with the same name is a different user.
    let mut again = user_with(&mut admin, &server, "leaver", &["~other:*", "+@all"]);
    assert_eq!(scan(&mut again), set(&["other:a", "other:shared"]));
}

fn user_with(admin: &mut Conn, server: &Server, name: &str, rules: &[&str]) -> Conn {
    admin.ok(&[&["ACL", "SETUSER", name, "on", "nopass"], rules].concat());
    let mut conn = server.conn();
    conn.ok(&["AUTH", name, "any"]);
    conn
}

/// A stream of commands that calls LOCK.SCAN in every possible way.
fn stream() -> Vec<u8> {
    let script = "redis.call('LOCK.SCAN', '0') return redis.call('SET', 'scripted', '1')";
    let commands: [&[&str]; 8] = [
        &["SELECT", "0"],
        &["SET", "k", "1"],
        &["LOCK.SCAN", "0"],
        &["EVAL", script, "1", "scripted"],
        &["MULTI"],
        &["LOCK.SCAN", "0"],
        &["SET", "after", "1"],
        &["EXEC"],
    ];
    commands.iter().flat_map(|command| encoded(command)).collect()
}

fn assert_read(conn: &mut Conn) {
    until("the stream has been read to the end", || {
        (conn.execute(&["GET", "after"]) == Reply::Text(b"1".into())).then_some(())
    });
    assert_eq!((conn.text(&["GET", "k"]), conn.text(&["GET", "scripted"])), ("1".into(), "1".into()));
}

/// Replies to a replica as a master without data would, and sends it `stream`.
fn be_master(listener: &TcpListener, stream: &[u8]) -> TcpStream {
    let (mut replica, _) = listener.accept().unwrap();
    replica.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut lines = BufReader::new(replica.try_clone().unwrap()).lines().map(Result::unwrap);
    loop {
        let count: usize = lines.next().unwrap().strip_prefix('*').expect("a command").parse().unwrap();
        // Each word follows a line with its length.
        let words: Vec<_> = (0..count).map(|_| lines.by_ref().nth(1).unwrap()).collect();
        match words[0].as_str() {
            "PING" => replica.write_all(b"+PONG\r\n").unwrap(),
            "PSYNC" | "SYNC" => break,
            _ => replica.write_all(b"+OK\r\n").unwrap(),
        }
    }
    // An empty RDB contains a version, an end marker and no checksum.
    let rdb = b"REDIS0009\xff\0\0\0\0\0\0\0\0";
    replica.write_all(format!("+FULLRESYNC {} 0\r\n${}\r\n", "a".repeat(40), rdb.len()).as_bytes()).unwrap();
    replica.write_all(rdb).unwrap();
    replica.write_all(stream).unwrap();
    replica
}

#[test]
fn a_command_from_the_master_has_no_user() {
    let (_server, mut conn) = Server::connected();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    conn.ok(&["REPLICAOF", "127.0.0.1", &listener.local_addr().unwrap().port().to_string()]);
    let _link = be_master(&listener, &stream());
    assert_read(&mut conn);
}

/// A directory that is removed when dropped.
struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_lock_command_in_an_aof_is_skipped_at_start() {
    let dir = Dir(temp_dir());
    fs::write(dir.0.join("appendonly.aof"), stream()).unwrap();
    let server = Server::with().dir(&dir.0).args(&["--appendonly", "yes"]).start();
    assert_read(&mut server.conn());
}

#[test]
fn the_required_permissions_depend_on_the_server_version() {
    let (server, mut conn) = Server::connected();
    fill(&mut conn);
    let flags: Vec<_> = conn.execute(&["COMMAND", "INFO", "LOCK.SCAN"]).list()[0].list()[2].list().to_vec();
    let for_operators = flags.iter().any(|flag| flag.text() == "admin");
    let mut app = user(&server, &["~app:*", "-@all", "+lock.scan"]);
    let seen = scan(&mut app);
    if distinguishes_reading_from_writing(&server, "LOCK.SCAN for every user") {
        assert!(!for_operators);
        assert_eq!(seen, set(&["app:a"]));
    } else {
        assert!(for_operators);
        assert_eq!(seen, set(&HELD), "this is why docs/OPERATING.md says to revoke LOCK.SCAN");
        let mut without = user(&server, &["~app:*", "+@all", "-lock.scan"]);
        assert!(is_denied(&without.execute(&["LOCK.SCAN", "0"])));
    }
}
