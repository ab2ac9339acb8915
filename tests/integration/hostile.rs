//! Clients send arbitrary bytes to any key: the server survives, and a refusal changes nothing, replicates nothing,
//! raises no event and breaks no WATCH.

mod random;
mod storm;

use testkit::{show, Conn, Reply, Server};

/// Every LOCK.* command with valid arguments, on a key of that name.
fn commands(key: &[u8]) -> Vec<Vec<Vec<u8>>> {
    [
        "LOCK.ACQUIRE {key} PX 5000 ID 42 OWNER alice DETAILS",
        "LOCK.ACQUIRE {key} EX 5",
        "LOCK.RECOVER {key} PX 5000 ID 42 OWNER alice",
        "LOCK.EXTEND {key} 1763710000482913 PX 5000",
        "LOCK.RELEASE {key} 1763710000482913",
        "LOCK.CHECK {key} 1763710000482913",
        "LOCK.INFO {key}",
        "LOCK.ACQUIRE {key} EX 5 SHARED",
        "LOCK.ACQUIRE {key} EX 5 LIMIT 3 ID 44",
        "LOCK.ACQUIRE {key} EX 5 WAIT 0 ID 45 NOTIFY c",
        "LOCK.MACQUIRE 2 {key} other EX 5 ID 43",
        "LOCK.MACQUIRE 2 {key} other EX 5 WAIT 0 ID 46 SNOTIFY c",
        "LOCK.CANCEL {key} CHANNEL c",
        "LOCK.MEXTEND 2 {key} other 1763710000482913 PX 5000",
        "LOCK.MRELEASE 2 {key} other 1763710000482913",
        "LOCK.SCAN 0 MATCH {key} COUNT 10 STATE held",
        "LOCK.HELP",
    ]
    .iter()
    .map(|line| line.split(' ').map(|word| if word == "{key}" { key.to_vec() } else { word.into() }).collect())
    .collect()
}

/// Arguments that every command must refuse.
fn hostile_arguments() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = [
        &b""[..],
        b"\0",
        b"\0\0\0\0\0\0\0\0",
        b"7\0",
        b"\xff",
        b"\xff\xfe\x00\xc3\x28",
        b"\xed\xa0\x80",
        b"\r\n",
        b"\r\n$4\r\nevil\r\n",
        b"%s%n%x",
        b"{}",
        b"-1",
        b"-9223372036854775808",
        b"9223372036854775807",
        b"18446744073709551615",
        b"18446744073709551616",
        b"1e308",
        b"NaN",
        b"PX",
        b"DETAILS",
        "\u{202e}名\u{0}".as_bytes(),
    ]
    .map(<[u8]>::to_vec)
    .to_vec();
    all.push(vec![b'9'; 400]);
    for byte in [b'0', b'7', b'a', 0, 0xff] {
        all.push(vec![byte; 1 << 20]);
    }
    all
}

/// Every command with a hostile argument in every position after its name, and one more at the end.
/// Where the hostile argument is the key, the command may be well-formed.
fn hostile_commands(key: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    for hostile in hostile_arguments() {
        for command in commands(key) {
            for position in 1..=command.len() {
                let mut args = command.clone();
                match args.get_mut(position) {
                    Some(arg) => arg.clone_from(&hostile),
                    None => args.push(hostile.clone()),
                }
                all.push(args);
            }
        }
    }
    all
}

/// Keys on which every command of [`commands`] is refused: foreign, held by another client, of every other type.
fn fill(conn: &mut Conn) -> Vec<&'static [u8]> {
    conn.ok(&["SET", "foreign", "not a timestamp"]);
    conn.ok(&["SET", "held", "9999999999.00000017637100004829140000000000000000041 bob"]);
    conn.execute(&["RPUSH", "list", "1763710031"]);
    conn.execute(&["SADD", "set", "1763710031"]);
    conn.execute(&["ZADD", "zset", "1763710031", "1763710031"]);
    conn.execute(&["HSET", "hash", "1763710031", "1763710031"]);
    conn.execute(&["XADD", "stream", "*", "1763710031", "1763710031"]);
    // A hostile key is still a key: with a foreign value on it, a well-formed command is refused too.
    for key in hostile_arguments() {
        conn.ok(&[&b"SET"[..], &key, b"not a timestamp"]);
    }
    vec![b"foreign", b"held", b"list", b"set", b"zset", b"hash", b"stream"]
}

fn run_id(conn: &mut Conn) -> String {
    conn.info("server", "run_id").unwrap()
}

/// Panics unless the reply is a refusal: nil, zero, a one-line error, or a description.
fn assert_refused(args: &[Vec<u8>], reply: &Reply) {
    let shown = || args.iter().map(|arg| show(&arg[..arg.len().min(40)])).collect::<Vec<_>>().join(" ");
    match reply {
        Reply::Nil | Reply::Int(0) => {}
        Reply::Error(text) => {
            assert!(text.is_ascii() && text.len() < 200, "{}: {text}", shown());
            assert!(text.starts_with("ERR ") || text.starts_with("WRONGTYPE "), "{}: {text}", shown());
            assert!(!text.contains("evil"), "{}: {text}", shown());
        }
        Reply::List(_) => {
            assert!(matches!(&args[0][..], b"LOCK.INFO" | b"LOCK.HELP" | b"LOCK.SCAN"), "{}: {reply:?}", shown());
        }
        other => panic!("{}: {other:?}", shown()),
    }
}

#[test]
fn hostile_arguments_in_every_position_are_refused_and_nothing_changes() {
    let (_server, mut conn) = Server::connected();
    let keys = fill(&mut conn);
    let (id, digest) = (run_id(&mut conn), conn.text(&["DEBUG", "DIGEST"]));
    for (index, key) in keys.into_iter().enumerate() {
        for args in hostile_commands(key) {
            // The long ones only once: their cost is the transport.
            if index > 0 && args.iter().any(|arg| arg.len() > 1000) {
                continue;
            }
            let reply = conn.execute(&args);
            assert_refused(&args, &reply);
        }
        assert_eq!(conn.text(&["DEBUG", "DIGEST"]), digest, "{}", show(key));
    }
    assert_eq!(run_id(&mut conn), id);
}

/// Commands that are refused on the keys of [`refusing_keys`]; none may change anything.
const REFUSED: &[&str] = &[
    "LOCK.ACQUIRE held PX 5000",
    "LOCK.ACQUIRE held PX 5000 ID 7 DETAILS",
    "LOCK.ACQUIRE held PX 1 ID 42",
    "LOCK.ACQUIRE foreign PX 5000",
    "LOCK.ACQUIRE list PX 5000",
    "LOCK.ACQUIRE expired PX 0",
    "LOCK.ACQUIRE absent PX 5000 BOGUS",
    "LOCK.RECOVER absent PX 5000",
    "LOCK.RECOVER held PX 5000 ID 42",
    "LOCK.RECOVER foreign PX 5000",
    "LOCK.RECOVER list PX 5000",
    "LOCK.RECOVER expired PX",
    "LOCK.EXTEND absent 7 PX 5000",
    "LOCK.EXTEND held 7 PX 5000",
    "LOCK.EXTEND held 1763710000482913 PX 0",
    "LOCK.EXTEND expired 1763710000482913 PX 5000",
    "LOCK.EXTEND foreign 7 PX 5000",
    "LOCK.EXTEND list 7 PX 5000",
    "LOCK.RELEASE absent 7",
    "LOCK.RELEASE held 7",
    "LOCK.RELEASE expired 7",
    "LOCK.RELEASE foreign 7",
    "LOCK.RELEASE list 7",
    "LOCK.RELEASE held 1763710000482913 7",
    "LOCK.CHECK held 1763710000482913",
    "LOCK.CHECK expired 1763710000482913",
    "LOCK.CHECK absent 7",
    "LOCK.CHECK list 7",
    "LOCK.ACQUIRE held EX 5 SHARED",
    "LOCK.ACQUIRE foreign EX 5 LIMIT 7",
    "LOCK.ACQUIRE full EX 5 LIMIT 2",
    "LOCK.ACQUIRE full EX 5",
    "LOCK.ACQUIRE full EX 5 ID 42",
    "LOCK.RECOVER full EX 5",
    "LOCK.EXTEND full 7 EX 5",
    "LOCK.RELEASE full 7",
    "LOCK.CHECK full 1763710000482913",
    "LOCK.INFO full FULL",
    "LOCK.ACQUIRE zset EX 5 SHARED",
    "LOCK.ACQUIRE zset EX 5",
    "LOCK.RELEASE zset 1763710000482913",
    "LOCK.MACQUIRE 2 absent held EX 5",
    "LOCK.MACQUIRE 2 absent full EX 5",
    "LOCK.MACQUIRE 2 absent zset EX 5",
    "LOCK.MACQUIRE 2 absent absent EX 5",
    "LOCK.MACQUIRE 0 absent EX 5",
    "LOCK.MEXTEND 2 held absent 1763710000482913 EX 5",
    "LOCK.MEXTEND 2 held list 1763710000482913 EX 5",
    "LOCK.MRELEASE 2 held list 1763710000482913",
    "LOCK.MRELEASE 2 absent expired 7",
    "LOCK.ACQUIRE expired EX 5 SHARED LIMIT 2",
    "LOCK.ACQUIRE expired EX 5 LIMIT 0",
    "LOCK.ACQUIRE expired EX 5 LIMIT 18446744073709551617",
    "LOCK.ACQUIRE expired EX 5 SHARED SHARED",
    "LOCK.ACQUIRE overdue EX 5 LIMIT 1000001",
    "LOCK.ACQUIRE full EX 1 SHARED ID 42",
    "LOCK.ACQUIRE zset EX 5 LIMIT 9 WAIT 1000",
    "LOCK.RECOVER overdue EX 5 SHARED",
    "LOCK.RECOVER zset EX 5",
    "LOCK.EXTEND overdue 1763710000482913 EX 5",
    "LOCK.EXTEND zset 1763710000482913 EX 5",
    "LOCK.RELEASE full 1763710000482913 SHARED",
    "LOCK.CANCEL full 7",
    "LOCK.CANCEL overdue 42",
    "LOCK.CANCEL zset 42",
    "LOCK.MACQUIRE 18446744073709551617 absent EX 5",
    "LOCK.MACQUIRE 2 expired expired EX 5",
    "LOCK.MACQUIRE 2 absent expired EX 5 SHARED",
    "LOCK.MACQUIRE 3 absent expired zset EX 5",
    "LOCK.MACQUIRE 3 absent expired zset EX 5 WAIT 1000",
    "LOCK.MACQUIRE 3 list expired absent EX 5 WAIT 1000 ID 9",
    "LOCK.MACQUIRE 2 absent foreign EX 5",
    "LOCK.MEXTEND 2 full zset 1763710000482913 EX 5",
    "LOCK.MEXTEND 2 full held 1763710000482913 EX 0",
    "LOCK.MEXTEND 2 full overdue 1763710000482913 EX 5",
    "LOCK.MEXTEND 2 full full 1763710000482913 EX 5",
    "LOCK.MRELEASE 2 full zset 1763710000482913",
    "LOCK.MRELEASE 2 overdue zset 1763710000482913",
    "LOCK.MRELEASE 2 full full 1763710000482913",
    "LOCK.MRELEASE 3 full overdue 1763710000482913",
    "LOCK.ACQUIRE held PX 5000 WAIT 0 ID 8 NOTIFY c",
    "LOCK.ACQUIRE foreign PX 5000 WAIT 0 ID 8 SNOTIFY c",
    "LOCK.ACQUIRE full PX 5000 WAIT 0 ID 8 LIMIT 2 NOTIFY c",
    "LOCK.ACQUIRE absent PX 5000 NOTIFY c",
    "LOCK.ACQUIRE absent PX 5000 WAIT 9 NOTIFY c",
    "LOCK.ACQUIRE absent PX 5000 WAIT 3600001 ID 8 NOTIFY c",
    "LOCK.ACQUIRE absent PX 5000 WAIT 9 ID 8 NOTIFY c SNOTIFY c",
    "LOCK.ACQUIRE list PX 5000 WAIT 9 ID 8 NOTIFY c",
    "LOCK.MACQUIRE 2 absent held PX 5000 WAIT 0 ID 8 NOTIFY c",
    "LOCK.MACQUIRE 2 absent expired PX 5000 WAIT 9 NOTIFY c",
    "LOCK.MACQUIRE 2 absent zset PX 5000 WAIT 9 ID 8 SNOTIFY c",
    "LOCK.CANCEL held CHANNEL c",
    "LOCK.CANCEL absent CHANNEL c",
    "LOCK.SCAN 0 COUNT 100",
    "LOCK.SCAN 0 COUNT 1001",
    "LOCK.SCAN 0 STATE free",
    "LOCK.SCAN -1 MATCH *",
    "LOCK.SCAN 0 MATCH [*\\ STATE foreign COUNT 1000",
    "LOCK.INFO held",
    "LOCK.INFO expired",
    "LOCK.INFO foreign",
    "LOCK.INFO absent",
    "LOCK.INFO list",
    "LOCK.HELP",
];

const REFUSING_KEYS: &[&str] = &["held", "expired", "foreign", "list", "absent", "full", "overdue", "zset"];

fn refusing_keys(conn: &mut Conn) {
    conn.ok(&["SET", "held", "9999999999.00000017637100004829130000000000000000042"]);
    conn.ok(&["SET", "expired", "1763710031.4829131763710000482913"]);
    conn.ok(&["SET", "foreign", "not a timestamp"]);
    conn.execute(&["RPUSH", "list", "1"]);
    let holder = "17637100004829130000000000000000042";
    conn.int(&["ZADD", "full", "9999999999.5", holder, "9999999998", "1763710000482914 bob"]);
    conn.int(&["ZADD", "overdue", "1763710031.5", holder]);
    conn.int(&["ZADD", "zset", "9999999999.5", holder, "1", "no holder"]);
}

fn refuse_all(conn: &mut Conn) {
    for line in REFUSED {
        let args: Vec<&str> = line.split(' ').collect();
        conn.execute(&args);
    }
}

/// Grants, extends and releases: the change that the watchers of these tests must see.
fn change(conn: &mut Conn) {
    let token = conn.int(&["LOCK.ACQUIRE", "change", "PX", "5000"]).to_string();
    assert_eq!(conn.int(&["LOCK.EXTEND", "change", &token, "PX", "6000"]), 1);
    assert_eq!(conn.int(&["LOCK.RELEASE", "change", &token]), 1);
}

#[test]
fn a_refusal_changes_no_key() {
    let (_server, mut conn) = Server::connected();
    refusing_keys(&mut conn);
    for line in REFUSED {
        let digest = conn.text(&["DEBUG", "DIGEST"]);
        let dirty = conn.info("persistence", "rdb_changes_since_last_save").unwrap();
        conn.execute(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(conn.text(&["DEBUG", "DIGEST"]), digest, "{line}");
        assert_eq!(conn.info("persistence", "rdb_changes_since_last_save").unwrap(), dirty, "{line}");
    }
    for key in REFUSING_KEYS {
        assert!(conn.int(&["PTTL", key]) < 0, "{key} got no native expiry");
    }
}

#[test]
fn a_refusal_replicates_nothing() {
    // The master's own PING to its replicas would move the offset.
    let server =
        Server::with().args(&["--repl-ping-replica-period", "86400", "--repl-diskless-sync-delay", "0"]).start();
    let replica = Server::with().without_module().start();
    let mut conn = server.conn();
    refusing_keys(&mut conn);
    replica.replicate(&server);
    let offset = |conn: &mut Conn| conn.info("replication", "master_repl_offset").unwrap();
    server.wait_offset(&replica);
    let before = offset(&mut conn);
    refuse_all(&mut conn);
    // A hostile key is free on this server: it may be locked.
    let refused =
        hostile_commands(b"foreign").into_iter().filter(|args| args.get(1).is_some_and(|key| key == b"foreign"));
    for args in refused.filter(|args| args.iter().all(|arg| arg.len() < 1000)) {
        conn.execute(&args);
    }
    assert_eq!(offset(&mut conn), before);
    change(&mut conn);
    assert_ne!(offset(&mut conn), before, "the offset shows a change");
    server.wait_offset(&replica);
    assert_eq!(replica.conn().text(&["DEBUG", "DIGEST"]), conn.text(&["DEBUG", "DIGEST"]));
}

#[test]
fn a_refusal_raises_no_keyspace_event() {
    let (server, mut conn) = Server::with().args(&["--notify-keyspace-events", "KEA"]).connected();
    refusing_keys(&mut conn);
    let mut subscriber = server.conn();
    subscriber.execute(&["PSUBSCRIBE", "__key*__:*"]);
    refuse_all(&mut conn);
    conn.ok(&["SET", "sentinel", "1"]);
    let mut next = || subscriber.read().list()[2..].iter().map(Reply::text).collect::<Vec<_>>();
    assert_eq!(next(), ["__keyspace@0__:sentinel", "set"], "the first event after the refusals");
    assert_eq!(next(), ["__keyevent@0__:set", "sentinel"]);
    // Changes do raise events, each once.
    change(&mut conn);
    let granted = ["set", "expire", "lock.acquire"];
    let extended = ["set", "expire", "lock.extend"];
    for event in granted.into_iter().chain(extended).chain(["del", "lock.release"]) {
        assert_eq!(next(), ["__keyspace@0__:change", event]);
        assert_eq!(next(), [&format!("__keyevent@0__:{event}"), "change"]);
    }
}

#[test]
fn a_refusal_breaks_no_watch() {
    let server = Server::start();
    let (mut conn, mut watcher) = (server.conn(), server.conn());
    refusing_keys(&mut conn);
    for line in REFUSED {
        watcher.ok(&[&["WATCH", "change"], REFUSING_KEYS].concat());
        conn.execute(&line.split(' ').collect::<Vec<_>>());
        watcher.ok(&["MULTI"]);
        watcher.execute(&["PING"]);
        assert_eq!(watcher.execute(&["EXEC"]), Reply::List(vec![Reply::Status("PONG".into())]), "{line}");
    }
}

#[test]
fn a_refusal_invalidates_no_client_side_cache() {
    let server = Server::start();
    let (mut conn, mut cache) = (server.conn(), server.conn());
    refusing_keys(&mut conn);
    cache.execute(&["HELLO", "3"]);
    cache.ok(&["CLIENT", "TRACKING", "ON", "BCAST"]);
    refuse_all(&mut conn);
    change(&mut conn);
    // The first invalidation comes from the change.
    let pushed = cache.read();
    assert_eq!(pushed.list()[1], Reply::List(vec![Reply::Text(b"change".into())]), "{pushed:?}");
}
