//! A LOCK.* command from a master or an AOF changes nothing, and an operator can see it. There is no such command
//! unless somebody wrote it by hand or the module has a bug.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use testkit::{encoded, temp_dir, until, Conn, Server};

/// Each command that grants, with a plain one before and after.
const FED: [&[&str]; 5] = [
    &["SET", "before", "1"],
    &["LOCK.ACQUIRE", "lock", "PX", "600000"],
    &["LOCK.ACQUIRE", "shared", "PX", "600000", "SHARED"],
    &["LOCK.MACQUIRE", "2", "one", "other", "PX", "600000"],
    &["SET", "after", "1"],
];
const REFUSED: u64 = 3;

/// Asserts that the server executes the commands before and after it, and logs the refusal.
fn assert_refused(server: &Server, source: &str) {
    let mut conn = server.conn();
    until("the last command has arrived", || (conn.int(&["EXISTS", "after"]) == 1).then_some(()));
    assert_eq!(conn.int(&["EXISTS", "before"]), 1);
    assert_eq!(conn.int(&["EXISTS", "lock", "shared", "one", "other"]), 0, "{}", server.log_tail(20));
    assert_eq!(conn.info("lock", "lock_replicated_refused").unwrap(), REFUSED.to_string());
    let log = server.log();
    for name in ["lock.acquire", "lock.macquire"] {
        let line = format!("refused {name} from {source}");
        assert!(log.lines().any(|text| text.contains(&line)), "no line says '{line}':\n{}", server.log_tail(20));
    }
}

/// The AOF file that commands are appended to.
fn newest_part(dir: &Path) -> PathBuf {
    let parts = fs::read_dir(dir.join("appendonlydir"));
    let part = parts.ok().and_then(|files| {
        files.filter_map(|file| Some(file.ok()?.path())).find(|path| path.to_string_lossy().contains(".incr."))
    });
    part.unwrap_or_else(|| dir.join("appendonly.aof"))
}

#[test]
fn a_lock_command_in_an_aof_is_refused_and_logged() {
    let dir = temp_dir();
    let options = Server::with().dir(&dir).args(&["--appendonly", "yes"]);
    let mut server = options.clone().start();
    server.conn().ok(&["SET", "own", "1"]);
    server.conn().send(&["SHUTDOWN", "NOSAVE"]);
    server.wait_end();
    drop(server);
    let mut part = fs::OpenOptions::new().append(true).open(newest_part(&dir)).unwrap();
    for command in FED {
        part.write_all(&encoded(command)).unwrap();
    }
    drop(part);
    let server = options.start();
    assert_refused(&server, "the AOF");
    let mut conn = server.conn();
    assert!(conn.int(&["LOCK.ACQUIRE", "lock", "PX", "60000"]) > 0, "the server grants as usual after loading");
    drop(server);
    fs::remove_dir_all(&dir).unwrap();
}

/// The RDB of a server without keys.
fn empty_rdb() -> Vec<u8> {
    let server = Server::with().without_module().start();
    server.conn().ok(&["SAVE"]);
    fs::read(server.dir().join("dump.rdb")).unwrap()
}

/// Replies to a replica like a master, up to the end of the full synchronization.
fn synchronize(link: &mut TcpStream, rdb: &[u8]) {
    let mut reader = BufReader::new(link.try_clone().unwrap());
    loop {
        let words = command(&mut reader);
        match words[0].to_uppercase().as_str() {
            "PING" => link.write_all(b"+PONG\r\n").unwrap(),
            "PSYNC" => break,
            _ => link.write_all(b"+OK\r\n").unwrap(),
        }
    }
    write!(link, "+FULLRESYNC {} 0\r\n${}\r\n", "a".repeat(40), rdb.len()).unwrap();
    link.write_all(rdb).unwrap();
}

/// One command from a replica.
fn command(reader: &mut BufReader<TcpStream>) -> Vec<String> {
    let number = |reader: &mut BufReader<TcpStream>| -> usize {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line.trim()[1..].parse().unwrap_or_else(|_| panic!("no length: {line}"))
    };
    let count = number(reader);
    let word = |_| {
        let mut bytes = vec![0; number(reader) + 2];
        reader.read_exact(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap().trim().to_string()
    };
    (0..count).map(word).collect()
}

#[test]
fn a_lock_command_from_a_master_is_refused_and_logged() {
    let rdb = empty_rdb();
    for read_only in ["yes", "no"] {
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let replica = Server::with().args(&["--replica-read-only", read_only]).start();
        replica.conn().ok(&["REPLICAOF", "127.0.0.1", &port.local_addr().unwrap().port().to_string()]);
        let (mut link, _) = port.accept().unwrap();
        synchronize(&mut link, &rdb);
        for command in FED {
            link.write_all(&encoded(command)).unwrap();
        }
        assert_refused(&replica, "the master");
    }
}

#[test]
fn a_server_that_was_fed_nothing_has_refused_nothing() {
    let (server, mut conn): (Server, Conn) = Server::connected();
    conn.int(&["LOCK.ACQUIRE", "lock", "PX", "600000"]);
    assert_eq!(conn.info("lock", "lock_replicated_refused").unwrap(), "0");
    assert!(!server.log().contains("refused lock."));
}
