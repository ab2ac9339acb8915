//! The connection that was granted a lock, in LOCK.INFO, LOCK.TOP and LOCK.SCAN CLIENT: with and without SESSION, while
//! it is connected.

use super::address;
use crate::notify::Queue;
use crate::waiting::Locks;
use std::collections::BTreeSet;
use testkit::{until, Conn, Reply, Server};

/// A new client, and its number.
fn client(server: &Server) -> (Conn, String) {
    let mut conn = server.conn();
    let id = conn.int(&["CLIENT", "ID"]).to_string();
    (conn, id)
}

/// client and addr of LOCK.INFO.
fn shown(conn: &mut Conn, key: &str) -> (Reply, Reply) {
    let info = conn.execute(&["LOCK.INFO", key]);
    (info.field("client"), info.field("addr"))
}

const NOBODY: (Reply, Reply) = (Reply::Nil, Reply::Nil);

/// The keys that LOCK.SCAN finds for a client.
fn locks_of(conn: &mut Conn, id: &str) -> BTreeSet<String> {
    let (mut cursor, mut found) = ("0".to_string(), BTreeSet::new());
    loop {
        let reply = conn.execute(&["LOCK.SCAN", &cursor, "CLIENT", id, "COUNT", "100"]);
        found.extend(reply.list()[1].list().iter().map(|row| row.field("key").text()));
        cursor = reply.list()[0].text();
        if cursor == "0" {
            return found;
        }
    }
}

fn set<const N: usize>(keys: [&str; N]) -> BTreeSet<String> {
    keys.map(String::from).into()
}

#[test]
fn the_client_of_a_holder_is_shown_while_connected() {
    for options in [&[][..], &["SESSION"], &["ID", "7", "OWNER", "boss"], &["SHARED"], &["LIMIT", "2", "SESSION"]] {
        let mut locks = Locks::start();
        let (mut holder, id) = client(&locks.server);
        holder.int(&[&["LOCK.ACQUIRE", "k", "EX", "60"], options].concat());
        let expected = (Reply::Int(id.parse().unwrap()), Reply::Text(address(&mut locks.conn, &id).into_bytes()));
        assert_eq!(shown(&mut locks.conn, "k"), expected, "{options:?}");
        let waiter = super::wait(&mut locks, "k");
        let top = locks.conn.execute(&["LOCK.TOP"]);
        assert_eq!((top.list()[0].field("client"), top.list()[0].field("addr")), expected, "{options:?}");
        assert_eq!(locks_of(&mut locks.conn, &id), set(["k"]), "{options:?}");
        drop((waiter, holder));
        until("its connection is gone", || (shown(&mut locks.conn, "k") == NOBODY).then_some(()));
        assert_eq!(locks_of(&mut locks.conn, &id), set([]), "{options:?}");
    }
}

#[test]
fn a_handed_off_lock_belongs_to_its_waiter() {
    let mut locks = Locks::start();
    let (mut first, _) = client(&locks.server);
    let token = first.int(&["LOCK.ACQUIRE", "k", "EX", "60"]).to_string();
    let mut next = super::wait(&mut locks, "k");
    assert_eq!(first.int(&["LOCK.RELEASE", "k", &token]), 1);
    next.granted();
    assert_eq!(shown(&mut locks.conn, "k").0.int().to_string(), next.id);
    // The lock is free: no holder is shown.
    locks.conn.int(&["DEL", "k"]);
    assert_eq!(shown(&mut locks.conn, "k"), NOBODY);
}

#[test]
fn a_repeated_grant_belongs_to_the_newer_connection() {
    let mut locks = Locks::start();
    let ask = ["LOCK.ACQUIRE", "k", "EX", "60", "ID", "7"];
    let (mut first, _) = client(&locks.server);
    first.int(&ask);
    // There was another grant in between.
    locks.conn.int(&["LOCK.ACQUIRE", "other", "EX", "60"]);
    let (mut second, id) = client(&locks.server);
    second.int(&ask);
    assert_eq!(shown(&mut locks.conn, "k").0.int().to_string(), id);
    assert_eq!(locks_of(&mut locks.conn, &id), set(["k"]));
}

#[test]
fn scripts_others_and_expired_locks_show_no_client() {
    let mut locks = Locks::with(&["retention-ms", "-1"]);
    locks.conn.int(&["EVAL", "return redis.call('LOCK.ACQUIRE', KEYS[1], 'EX', 60)", "1", "script"]);
    locks.conn.int(&["LOCK.ACQUIRE", "expired", "PX", "1"]);
    until("it is expired", || (locks.conn.state("expired") == "expired").then_some(()));
    locks.conn.ok(&["SET", "foreign", "x"]);
    for key in ["script", "expired", "foreign", "absent"] {
        assert_eq!(shown(&mut locks.conn, key), NOBODY, "{key}");
    }
    let id = locks.conn.int(&["CLIENT", "ID"]).to_string();
    assert_eq!(locks_of(&mut locks.conn, &id), set([]));
}

/// On Valkey 9.1 the server finds the client that runs a script's commands, which has no connection, and used to crash.
#[test]
fn a_script_inspects_the_locks_that_a_script_acquired() {
    let mut locks = Locks::start();
    let call = "return redis.call(unpack(ARGV))";
    let acquire = "return redis.call('LOCK.ACQUIRE', KEYS[1], 'EX', 60)";
    for key in ["k", "l"] {
        locks.conn.int(&["EVAL", acquire, "1", key]);
    }
    let _waiter = locks.wait_with(&["LOCK.ACQUIRE", "k", "EX", "60", "WAIT", "60000"]);
    let ids: Vec<String> = (0..40).map(|id| id.to_string()).collect();
    let inspections: [&[&str]; 5] =
        [&["LOCK.INFO", "k"], &["LOCK.INFO", "k", "FULL"], &["LOCK.TOP"], &["LOCK.SCAN", "0"], &["LOCK.INFO", "l"]];
    let by_id: Vec<Vec<&str>> = ids.iter().map(|id| vec!["LOCK.SCAN", "0", "CLIENT", id]).collect();
    for words in inspections.into_iter().chain(by_id.iter().map(Vec::as_slice)) {
        for transaction in [false, true] {
            let command = [&["EVAL", call, "1", "k"], words].concat();
            if transaction {
                locks.conn.ok(&["MULTI"]);
            }
            let reply = locks.conn.execute(&command);
            let reply = if transaction { locks.conn.execute(&["EXEC"]).list()[0].clone() } else { reply };
            assert!(matches!(reply, Reply::List(_)), "{words:?}: {reply:?}");
        }
    }
    let both = format!("{acquire}; {call}").replacen("return ", "", 1);
    let info = locks.conn.execute(&["EVAL", &both, "1", "m", "LOCK.INFO", "m"]);
    assert_eq!(info.field("client"), Reply::Nil);
}

#[test]
fn an_attempt_is_a_client_only_once_it_has_claimed() {
    let Some(mut queue) = Queue::with(&["claim-ms", "60000"]) else { return };
    let token = queue.locks.hold();
    queue.ask("7");
    queue.locks.release(token);
    queue.subscriber.gets("granted 7 k");
    assert_eq!(shown(&mut queue.locks.conn, "k"), NOBODY);
    let (mut claims, id) = client(&queue.locks.server);
    claims.int(&["LOCK.ACQUIRE", "k", "EX", "60", "ID", "7"]);
    assert_eq!(shown(&mut queue.locks.conn, "k").0.int().to_string(), id);
}

#[test]
fn each_of_several_holders_has_its_own_client() {
    let mut locks = Locks::start();
    let (mut first, one) = client(&locks.server);
    let (mut second, two) = client(&locks.server);
    let token = first.int(&["LOCK.ACQUIRE", "k", "EX", "30", "SHARED", "OWNER", "first"]);
    second.int(&["LOCK.ACQUIRE", "k", "EX", "60", "SHARED", "SESSION"]);
    let holders = locks.conn.execute(&["LOCK.INFO", "k", "FULL"]).field("holders");
    let ids: Vec<String> = holders.list().iter().map(|holder| holder.field("client").int().to_string()).collect();
    assert_eq!(ids, [one.clone(), two]);
    // A row shows that client's grant, not the one that ends last.
    let row = locks.conn.execute(&["LOCK.SCAN", "0", "CLIENT", &one]).list()[1].list()[0].clone();
    assert_eq!((row.field("token").int(), row.field("owner").text()), (token, "first".into()));
    assert_eq!(row.field("holders").int(), 2);
}

#[test]
fn a_large_set_is_found_by_sessions_and_last_end() {
    let mut locks = Locks::start();
    let (mut session, one) = client(&locks.server);
    let (mut plain, two) = client(&locks.server);
    session.int(&["LOCK.ACQUIRE", "k", "EX", "30", "SHARED", "SESSION"]);
    plain.int(&["LOCK.ACQUIRE", "k", "EX", "30", "SHARED"]);
    for _ in 0..100 {
        locks.conn.int(&["LOCK.ACQUIRE", "k", "EX", "60", "SHARED"]);
    }
    let own = locks.conn.int(&["CLIENT", "ID"]).to_string();
    let found = [&one, &two, &own].map(|id| locks_of(&mut locks.conn, id).len());
    assert_eq!(found, [1, 0, 1]);
}

#[test]
fn only_the_last_ten_thousand_grants_without_session_are_remembered() {
    let mut locks = Locks::start();
    let (mut holder, id) = client(&locks.server);
    holder.int(&["LOCK.ACQUIRE", "session", "EX", "60", "SESSION"]);
    holder.int(&["LOCK.ACQUIRE", "plain", "EX", "60"]);
    let script = "for n = 1, 9999 do redis.call('LOCK.ACQUIRE', KEYS[1] .. n, 'EX', 60) end";
    locks.conn.execute(&["EVAL", script, "1", "many"]);
    assert_eq!(locks_of(&mut holder, &id), set(["plain", "session"]));
    locks.conn.int(&["LOCK.ACQUIRE", "one more", "EX", "60"]);
    assert_eq!(locks_of(&mut holder, &id), set(["session"]));
    assert_eq!(shown(&mut holder, "session").0.int().to_string(), id);
}

#[test]
fn a_scan_for_a_client_finds_only_its_locks() {
    let mut locks = Locks::start();
    let (mut holder, id) = client(&locks.server);
    for n in 0..300 {
        let conn = if n % 3 == 0 { &mut holder } else { &mut locks.conn };
        conn.int(&["LOCK.ACQUIRE", &format!("k{n}"), "EX", "60"]);
    }
    let expected: BTreeSet<String> = (0..100).map(|n| format!("k{}", 3 * n)).collect();
    assert_eq!(locks_of(&mut locks.conn, &id), expected);
    for unknown in ["0", "999999", "18446744073709551615"] {
        let reply = locks.conn.execute(&["LOCK.SCAN", "0", "CLIENT", unknown]);
        assert_eq!((reply.list()[0].text(), reply.list()[1].list().len()), ("0".into(), 0), "{unknown}");
    }
}

#[test]
fn a_server_that_was_demoted_knows_no_client() {
    let mut locks = Locks::start();
    locks.conn.int(&["LOCK.ACQUIRE", "k", "EX", "60"]);
    let (_, before) = shown(&mut locks.conn, "k");
    assert_ne!(before, Reply::Nil);
    locks.conn.ok(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_eq!(shown(&mut locks.conn, "k"), NOBODY);
}
