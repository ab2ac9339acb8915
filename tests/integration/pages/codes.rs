//! The error codes of docs/COMMANDS.md: the module's commands get the server's own codes and then change nothing; if
//! the page says so, the same command succeeds later.

use std::collections::BTreeMap;
use std::fs;

use super::COMMANDS;
use testkit::{skipped, temp_dir, until, Conn, Reply, Server};

const ACQUIRE: [&str; 6] = ["LOCK.ACQUIRE", "door", "EX", "60", "ID", "4711"];

/// The codes in the tables of the section on errors, and whether they tell the client to send the command again.
fn codes() -> BTreeMap<String, bool> {
    let section = COMMANDS.split("\n## Errors\n").nth(1).expect("a section on errors");
    let section = section.split("Some codes have more than one meaning").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" | "));
    let codes = rows.flat_map(|(codes, rest)| {
        let is_again = rest.starts_with("yes");
        codes.split(',').map(move |code| (code.trim_matches([' ', '`']).to_string(), is_again))
    });
    codes.collect()
}

/// An error's code.
#[track_caller]
fn code(reply: &Reply) -> String {
    reply.error().split(' ').next().unwrap_or_default().to_string()
}

/// A code, and what brings a server into the state that causes it and what ends that state.
type Trouble = (&'static str, fn(&Server, &mut Conn), fn(&Server, &mut Conn));

fn is_busy(conn: &mut Conn) -> bool {
    matches!(conn.execute(&["PING"]), Reply::Error(text) if text.starts_with("BUSY "))
}

const TROUBLES: [Trouble; 3] = [
    (
        "BUSY",
        |server, conn| {
            conn.ok(&["CONFIG", "SET", "lua-time-limit", "1"]);
            drop(server.sent(&["EVAL", "while true do end", "0"]));
            until("a script runs for too long", || is_busy(conn).then_some(()));
        },
        |_, conn| {
            conn.ok(&["SCRIPT", "KILL"]);
            until("it has ended", || (!is_busy(conn)).then_some(()));
        },
    ),
    (
        "MISCONF",
        |_, conn| {
            let folder = temp_dir();
            conn.ok(&["CONFIG", "SET", "save", "3600 1", "dir", folder.to_str().unwrap()]);
            fs::remove_dir_all(&folder).unwrap();
            conn.execute(&["BGSAVE"]);
            let failed = |conn: &mut Conn| conn.info("persistence", "rdb_last_bgsave_status").as_deref() == Some("err");
            until("it could not save", || failed(conn).then_some(()));
        },
        |_, conn| conn.ok(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]),
    ),
    (
        "NOREPLICAS",
        |_, conn| conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "1"]),
        |_, conn| conn.ok(&["CONFIG", "SET", "min-replicas-to-write", "0"]),
    ),
];

#[test]
fn a_retryable_error_changes_nothing_and_a_retry_succeeds() {
    let codes = codes();
    if Server::connected().1.is_before_7() {
        return skipped("the server's own codes", "before 7.0, CONFIG SET takes one setting at a time");
    }
    for (code_word, begin, end) in TROUBLES {
        // So the folder for snapshots can be changed.
        let (server, mut conn) = Server::with().args(&["--enable-protected-configs", "yes"]).connected();
        assert_eq!(codes.get(code_word), Some(&true), "{code_word}");
        let token = conn.int(&["LOCK.ACQUIRE", "held", "EX", "600"]).to_string();
        begin(&server, &mut conn);
        assert_eq!(code(&conn.execute(&ACQUIRE)), code_word);
        assert_eq!(code(&conn.execute(&["LOCK.RELEASE", "held", &token])), code_word);
        end(&server, &mut conn);
        assert_eq!(conn.int(&["EXISTS", "door"]), 0, "{code_word}");
        assert_eq!(conn.int(&["LOCK.RELEASE", "held", &token]), 1, "{code_word}: it was still held");
        conn.int(&ACQUIRE);
    }
}

#[test]
fn a_replica_without_a_master_replies_with_the_documented_code() {
    let (_server, mut conn) = Server::connected();
    conn.ok(&["CONFIG", "SET", "replica-serve-stale-data", "no"]);
    conn.ok(&["REPLICAOF", "127.0.0.1", "1"]);
    let reply = conn.execute(&["LOCK.CHECK", "door", "1"]);
    assert_eq!((code(&reply).as_str(), codes().get("MASTERDOWN")), ("MASTERDOWN", Some(&true)));
    assert_eq!(code(&conn.execute(&ACQUIRE)), "READONLY");
}

#[test]
fn wrong_logins_get_the_documented_codes() {
    let codes = codes();
    let (server, mut conn) = Server::connected();
    conn.ok(&["CONFIG", "SET", "requirepass", "secret"]);
    let mut stranger = server.conn();
    assert_eq!((code(&stranger.execute(&ACQUIRE)).as_str(), codes.get("NOAUTH")), ("NOAUTH", Some(&false)));
    assert_eq!(
        (code(&stranger.execute(&["AUTH", "no"])).as_str(), codes.get("WRONGPASS")),
        ("WRONGPASS", Some(&false))
    );
    conn.ok(&["ACL", "SETUSER", "poor", "on", ">secret", "~other", "+lock.acquire"]);
    stranger.ok(&["AUTH", "poor", "secret"]);
    assert_eq!((code(&stranger.execute(&ACQUIRE)).as_str(), codes.get("NOPERM")), ("NOPERM", Some(&false)));
}

/// The codes of a cluster, MULTI, EVALSHA and a starting server are tested in `cluster::`, `guards::`, `portable::` and
/// `sessions::late`.
#[test]
fn the_page_lists_the_codes_that_lock_clients_know() {
    let codes = codes();
    let spec = include_str!("../../../docs/CLIENT_SPEC.md");
    let table = spec.split("| reply | kind |").nth(1).expect("a table of replies").split("\n\n").next().unwrap();
    let mut named = 0;
    for line in table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| WRONGTYPE")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        for word in cells[0].split(',').map(|word| word.trim_matches([' ', '`'])).filter(|word| !word.contains(' ')) {
            assert_eq!(codes.get(word), Some(&(cells[2].trim_end_matches('|').trim() == "yes")), "{word}: {line}");
            named += 1;
        }
    }
    assert!(named > 15, "{named}");
}
