//! Users with restricted permissions: the commands, keys and kinds of access that each needs. Everything else is
//! refused with NOPERM, and a refusal changes nothing.

mod databases;
mod documents;
mod scan;

use crate::metadata::has_category;
use crate::metrics::{moved, numbers};
use testkit::{until, Conn, Reply, Server};

const TOKEN: &str = "1763710031482913";

/// Every command that takes a key, and whether it needs to read and to write that key.
fn commands(key: &str) -> Vec<(Vec<&str>, bool, bool)> {
    vec![
        (vec!["LOCK.ACQUIRE", key, "EX", "5"], true, true),
        (vec!["LOCK.RECOVER", key, "EX", "5"], true, true),
        (vec!["LOCK.EXTEND", key, TOKEN, "EX", "5"], false, true),
        (vec!["LOCK.RELEASE", key, TOKEN], false, true),
        (vec!["LOCK.CANCEL", key, "7"], false, true),
        (vec!["LOCK.MACQUIRE", "1", key, "EX", "5"], true, true),
        (vec!["LOCK.MEXTEND", "1", key, TOKEN, "EX", "5"], false, true),
        (vec!["LOCK.MRELEASE", "1", key, TOKEN], false, true),
        (vec!["LOCK.CHECK", key, TOKEN], true, false),
        (vec!["LOCK.INFO", key], true, false),
    ]
}

/// The commands without a key.
const KEYLESS: [&[&str]; 3] = [&["LOCK.TOP"], &["LOCK.SCAN", "0"], &["LOCK.HELP"]];

fn is_denied(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with("NOPERM "))
}

/// Connects as a new user with these rules.
fn user(server: &Server, rules: &[&str]) -> Conn {
    let name = format!("user{}", server.conn().int(&["CLIENT", "ID"]));
    server.conn().ok(&[&["ACL", "SETUSER", &name, "on", "nopass"], rules].concat());
    let mut conn = server.conn();
    conn.ok(&["AUTH", &name, "any"]);
    conn
}

/// Whether the server has separate permissions to read and to write a key (7.0). If not, prints that `what` is skipped.
fn distinguishes_reading_from_writing(server: &Server, what: &str) -> bool {
    let knows = server.conn().execute(&["ACL", "SETUSER", "probe", "%R~x"]) == Reply::Status("OK".into());
    if !knows {
        eprintln!("skipped: {what}: this server has no separate key permissions for reading and writing");
    }
    knows
}

#[test]
fn a_user_restricted_to_some_keys_cannot_lock_others() {
    let server = Server::start();
    let mut admin = server.conn();
    let token = admin.int(&["LOCK.ACQUIRE", "other:a", "EX", "60"]);
    let mut app = user(&server, &["~app:*", "+@all"]);
    let before = (numbers(&mut admin), admin.text(&["GET", "other:a"]));
    for key in ["other:a", "other:free"] {
        for (mut args, ..) in commands(key) {
            assert!(is_denied(&app.execute(&args)), "{args:?}");
            if args[0].ends_with("ACQUIRE") {
                args.extend(["WAIT", "60000", "ID", "7"]);
                assert!(is_denied(&app.execute(&args)), "{args:?}");
            }
        }
    }
    assert_eq!(moved(&mut admin, &before.0), [], "nobody waits, nothing was counted");
    assert_eq!(admin.text(&["GET", "other:a"]), before.1);
    assert_eq!(admin.int(&["EXISTS", "other:free"]), 0);
    assert_eq!(admin.int(&["LOCK.RELEASE", "other:a", &token.to_string()]), 1);

    for (args, ..) in commands("app:a") {
        let reply = app.execute(&args);
        assert!(!matches!(reply, Reply::Error(_)), "{args:?}: {reply:?}");
    }
    for args in KEYLESS {
        app.execute(args).list();
    }
}

#[test]
fn each_command_needs_only_the_access_it_uses() {
    let server = Server::start();
    if !distinguishes_reading_from_writing(&server, "access to keys") {
        return;
    }
    let mut admin = server.conn();
    for (pattern, may_read, may_write) in [("%R~k", true, false), ("%W~k", false, true), ("%RW~k", true, true)] {
        let mut conn = user(&server, &[pattern, "+@all"]);
        for (args, reads, writes) in commands("k") {
            admin.ok(&["FLUSHALL"]);
            let before = numbers(&mut admin);
            let reply = conn.execute(&args);
            let allowed = (may_read || !reads) && (may_write || !writes);
            assert_eq!(is_denied(&reply), !allowed, "{pattern} {args:?}: {reply:?}");
            if !allowed {
                assert_eq!(moved(&mut admin, &before), [], "{pattern} {args:?}");
                assert_eq!(admin.int(&["EXISTS", "k"]), 0, "{pattern} {args:?}");
            }
        }
    }
}

#[test]
fn a_single_command_can_be_allowed_or_denied() {
    let server = Server::start();
    let mut only = user(&server, &["~*", "-@all", "+lock.acquire"]);
    only.int(&["LOCK.ACQUIRE", "k", "EX", "60"]);
    assert!(only.execute(&["LOCK.ACQUIRE", "k", "EX", "60", "WAIT", "20"]).is_nil());
    for (args, ..) in commands("k").into_iter().skip(1) {
        assert!(is_denied(&only.execute(&args)), "{args:?}");
    }
    for args in [KEYLESS[0], KEYLESS[1], KEYLESS[2], &["GET", "k"]] {
        assert!(is_denied(&only.execute(args)), "{args:?}");
    }

    let mut without = user(&server, &["~*", "+@all", "-lock.top"]);
    assert!(is_denied(&without.execute(&["LOCK.TOP"])));
    without.execute(&["LOCK.HELP"]).list();
    without.execute(&["LOCK.INFO", "k"]).list();
}

#[test]
fn categories_cover_our_commands_as_they_cover_the_servers_own() {
    let server = Server::start();
    if !has_category(&mut server.conn(), "users with categories") {
        return;
    }
    let all: Vec<_> = commands("k").into_iter().chain(KEYLESS.map(|args| (args.to_vec(), false, false))).collect();
    let allowed = |rules: &[&str]| -> Vec<&str> {
        server.conn().ok(&["FLUSHALL"]);
        let mut conn = user(&server, &[&["~*"], rules].concat());
        all.iter().filter(|(args, ..)| !is_denied(&conn.execute(args))).map(|(args, ..)| args[0]).collect()
    };
    let names: Vec<_> = all.iter().map(|(args, ..)| args[0]).collect();
    assert_eq!(allowed(&["+@lock"]), names);
    assert_eq!(allowed(&["+@lock", "-@dangerous"]), [&names[..10], &["LOCK.SCAN", "LOCK.HELP"]].concat());
    assert_eq!(allowed(&["+@all", "-@lock"]), [""; 0]);
    assert_eq!(allowed(&["+@all", "-@write"]), ["LOCK.CHECK", "LOCK.INFO", "LOCK.TOP", "LOCK.SCAN", "LOCK.HELP"]);
    assert_eq!(allowed(&["+@read"]), ["LOCK.CHECK", "LOCK.INFO", "LOCK.TOP", "LOCK.SCAN"]);
    assert_eq!(allowed(&["+@write"]), names[..8]);
    let blocking = ["LOCK.ACQUIRE", "LOCK.MACQUIRE"];
    let others: Vec<_> = names.iter().copied().filter(|name| !blocking.contains(name)).collect();
    assert_eq!(allowed(&["+@all", "-@blocking"]), others);
    assert_eq!(allowed(&["+@admin"]), ["LOCK.TOP"]);
}

#[test]
fn scripts_and_transactions_have_their_users_permissions() {
    let server = Server::start();
    let mut app = user(&server, &["~app:*", "+@all", "-lock.release"]);
    let call = |key: &str, args: &str| format!("return redis.call('LOCK.{args}')").replace("KEY", key);
    app.execute(&["EVAL", &call("app:a", "ACQUIRE','KEY','EX','60"), "0"]).int();
    for (key, args) in [("other:a", "ACQUIRE','KEY','EX','60"), ("app:a", "RELEASE','KEY','1")] {
        let reply = app.execute(&["EVAL", &call(key, args), "0"]);
        // The error text in a script differs between versions.
        let denies = ["ermission", "can't access", "can't run"].iter().any(|text| reply.error().contains(text));
        assert!(denies, "{key} {args}: {reply:?}");
    }
    app.ok(&["MULTI"]);
    assert!(is_denied(&app.execute(&["LOCK.ACQUIRE", "other:a", "EX", "60"])));
    assert!(app.execute(&["EXEC"]).error().starts_with("EXECABORT "));
    assert_eq!(server.conn().int(&["EXISTS", "other:a"]), 0);
}

#[test]
fn deleting_a_user_ends_its_waits_and_sessions() {
    let server = Server::with().module_args(&["margin-ms", "0"]).start();
    let mut admin = server.conn();
    admin.int(&["LOCK.ACQUIRE", "k", "EX", "60"]);
    admin.ok(&["ACL", "SETUSER", "leaver", "on", "nopass", "~*", "+@all"]);
    let [mut waiter, mut holder] = [server.conn(), server.conn()];
    for conn in [&mut waiter, &mut holder] {
        conn.ok(&["AUTH", "leaver", "any"]);
    }
    holder.int(&["LOCK.ACQUIRE", "session", "EX", "60", "SESSION"]);
    waiter.send(&["LOCK.ACQUIRE", "k", "EX", "60", "WAIT", "60000"]);
    until("it waits", || (numbers(&mut admin)["waiters"] == 1).then_some(()));
    assert_eq!(admin.int(&["ACL", "DELUSER", "leaver"]), 1);
    until("nobody waits", || (numbers(&mut admin)["waiters"] == 0).then_some(()));
    until("the session has ended", || (numbers(&mut admin)["sessions_ended"] == 1).then_some(()));
    assert_eq!(admin.execute(&["LOCK.RECOVER", "session", "EX", "5"]).list().len(), 4);
    assert!(waiter.try_read().is_err(), "its connection is closed");
}

#[test]
fn acl_dryrun_works_for_our_commands() {
    let (_server, mut conn) = Server::connected();
    conn.ok(&["ACL", "SETUSER", "app", "on", "nopass", "~app:*", "-@all", "+lock.acquire"]);
    let mut dry_run = |args: &[&str]| conn.execute(&[&["ACL", "DRYRUN", "app"], args].concat());
    let reply = dry_run(&["LOCK.ACQUIRE", "app:a", "EX", "5"]);
    if matches!(&reply, Reply::Error(text) if text.to_lowercase().contains("unknown subcommand")) {
        eprintln!("skipped: this server has no ACL DRYRUN");
        return;
    }
    assert_eq!(reply, Reply::Status("OK".into()));
    assert!(dry_run(&["LOCK.ACQUIRE", "other:a", "EX", "5"]).text().contains("other:a"));
    assert!(dry_run(&["LOCK.RELEASE", "app:a", "1"]).text().contains("lock.release"));
    assert_eq!(conn.int(&["EXISTS", "app:a"]), 0);
}

#[test]
fn a_denial_is_in_the_acl_log() {
    let server = Server::start();
    let mut app = user(&server, &["~app:*", "-@all", "+lock.acquire"]);
    assert!(is_denied(&app.execute(&["LOCK.ACQUIRE", "other:a", "EX", "5"])));
    assert!(is_denied(&app.execute(&["LOCK.TOP"])));
    let log = server.conn().execute(&["ACL", "LOG"]);
    let entries: Vec<_> =
        log.list().iter().map(|entry| (entry.field("reason").text(), entry.field("object").text())).collect();
    let expected = [("command", "lock.top"), ("key", "other:a")].map(|(a, b)| (a.to_string(), b.to_string()));
    let lower: Vec<_> = entries.into_iter().map(|(reason, object)| (reason, object.to_lowercase())).collect();
    assert_eq!(lower, expected);
}
