//! A replica: it refuses to grant, answers reads, and is equal to its master.

use crate::kinds::{acquire, acquire_all};
use crate::replication::Stream;
use testkit::dice::Dice;
use testkit::{expire_at_ms, until, Conn, Options, Reply, Server};

/// A master whose replicas do not have to wait for others to join before they get their RDB.
fn master() -> Options {
    Server::with().args(&["--repl-diskless-sync-delay", "0"])
}

#[test]
fn a_replica_refuses_to_write_and_answers_queries() {
    let (master, replica) = (master().start(), Server::start());
    replica.replicate(&master);
    let (mut conn, mut read) = (master.conn(), replica.conn());
    let token = conn.int(&["LOCK.ACQUIRE", "a", "EX", "30", "OWNER", "worker-1"]).to_string();
    let value = conn.text(&["GET", "a"]);
    master.wait_offset(&replica);

    let writes: &[&[&str]] = &[
        &["LOCK.ACQUIRE", "a", "EX", "30"],
        &["LOCK.ACQUIRE", "b", "EX", "30", "SHARED"],
        &["LOCK.MACQUIRE", "1", "b", "EX", "30"],
        &["LOCK.RECOVER", "a", "EX", "30"],
        &["LOCK.EXTEND", "a", &token, "EX", "30"],
        &["LOCK.RELEASE", "a", &token],
    ];
    for command in writes {
        let reply = read.execute(command);
        assert!(reply.error().starts_with("READONLY "), "{command:?}: {reply:?}");
    }
    assert_eq!(read.text(&["GET", "a"]), value);

    let left = read.int(&["LOCK.CHECK", "a", &token]);
    assert!((1..=30_000).contains(&left), "{left}");
    assert_eq!(read.int(&["LOCK.CHECK", "a", "1"]), 0);
    let info = read.execute(&["LOCK.INFO", "a"]);
    assert_eq!(info.field("state").text(), "held");
    assert_eq!(info.field("owner").text(), "worker-1");
    assert_eq!(info.field("token").int().to_string(), token);
    // State that exists only on the server where clients wait.
    for field in ["session", "waiters", "oldest-wait-ms"] {
        assert!(info.field(field).is_nil(), "{field}: {info:?}");
    }
    assert_eq!(read.state("b"), "free");
}

#[test]
fn a_replica_has_the_same_holders() {
    let (master, replica) = (master().start(), Server::start());
    replica.replicate(&master);
    let (mut conn, mut there) = (master.conn(), replica.conn());
    let tokens: Vec<String> =
        (0..40).map(|_| acquire(&mut conn, &["k", "EX", "60", "SHARED", "OWNER", "me"])).collect();
    conn.int(&["LOCK.EXTEND", "k", &tokens[20], "EX", "300"]);
    conn.int(&["LOCK.RELEASE", "k", &tokens[7]]);
    let all = acquire_all(&mut conn, &["a", "b"], &["EX", "60"]);
    master.wait_offset(&replica);
    let set = ["ZRANGE", "k", "0", "-1", "WITHSCORES"];
    assert_eq!(there.execute(&set), conn.execute(&set));
    assert!(there.int(&["LOCK.CHECK", "k", &tokens[20]]) > 250_000);
    assert_eq!(there.int(&["LOCK.CHECK", "k", &tokens[7]]), 0);
    assert!(there.int(&["LOCK.CHECK", "b", &all]) > 0);
    conn.int(&["LOCK.EXTEND", "k", &tokens[10], "EX", "200"]);
    master.wait_offset(&replica);
    assert!(there.int(&["LOCK.CHECK", "k", &tokens[10]]) > 150_000);
    assert_eq!(there.execute(&["LOCK.INFO", "k", "FULL"]).field("holders").list().len(), 39);
}

/// The module's write commands, according to the server.
fn commands_that_write(conn: &mut Conn) -> Vec<String> {
    let Reply::List(all) = conn.execute(&["COMMAND"]) else { panic!("a list of commands") };
    let ours = all.iter().map(Reply::list).filter(|command| command[0].text().starts_with("lock."));
    let writes = |command: &&[Reply]| command[2].list().iter().any(|flag| flag.text() == "write");
    let mut names: Vec<_> = ours.filter(writes).map(|command| command[0].text()).collect();
    names.sort();
    names
}

#[test]
fn a_writable_replica_leaves_the_locks_to_its_master_too() {
    let (master, replica) = (master().start(), Server::with().args(&["--replica-read-only", "no"]).start());
    replica.replicate(&master);
    let (mut conn, mut read) = (master.conn(), replica.conn());
    let token = conn.int(&["LOCK.ACQUIRE", "a", "EX", "30", "ID", "7"]).to_string();
    conn.ok(&["SET", "expired", "1500000000"]);
    master.wait_offset(&replica);
    read.ok(&["SET", "its-own", "1"]);
    let digest = read.text(&["DEBUG", "DIGEST"]);
    let writes: [&[&str]; 8] = [
        &["lock.acquire", "free", "EX", "30", "WAIT", "10000"],
        &["lock.cancel", "a", "7"],
        &["lock.extend", "a", &token, "EX", "30"],
        &["lock.macquire", "2", "free", "other", "EX", "30", "WAIT", "10000"],
        &["lock.mextend", "1", "a", &token, "EX", "30"],
        &["lock.mrelease", "1", "a", &token],
        &["lock.recover", "expired", "EX", "30"],
        &["lock.release", "a", &token],
    ];
    let named: Vec<_> = writes.iter().map(|command| command[0].to_string()).collect();
    assert_eq!(named, commands_that_write(&mut read), "each command that writes is tried");
    let text = "READONLY this server is a replica: locks change only on its master";
    for command in writes {
        assert_eq!(read.execute(command).error(), text, "{command:?}");
        // In a transaction, in a script, and when only the keys are queried.
        read.ok(&["MULTI"]);
        assert_eq!(read.execute(command), Reply::Status("QUEUED".into()));
        assert_eq!(read.execute(&["EXEC"]).list()[0].error(), text, "{command:?}");
        let script = format!("return redis.pcall('{}')", command.join("','"));
        let reply = read.execute(&["EVAL", &script, "0"]);
        assert!(reply.error().contains("READONLY this server is a replica"), "{command:?}: {reply:?}");
        let keys = read.execute(&[&["COMMAND", "GETKEYS"], command].concat());
        assert!(!keys.list().is_empty(), "{command:?}: {keys:?}");
    }
    assert_eq!(read.text(&["DEBUG", "DIGEST"]), digest, "nothing has changed");
    assert!(read.int(&["LOCK.CHECK", "a", &token]) > 0);
    assert_eq!(read.state("a"), "held");
    assert_eq!(read.execute(&["LOCK.TOP"]), Reply::List(vec![]));
    assert!(matches!(read.execute(&["LOCK.SCAN", "0"]), Reply::List(_)));
    assert!(matches!(read.execute(&["LOCK.HELP"]), Reply::List(_)));

    // The master's changes reach the replica, and once it is a master it grants locks.
    assert_eq!(conn.int(&["LOCK.RELEASE", "a", &token]), 1);
    until("the release arrives", || (read.state("a") == "free").then_some(()));
    read.ok(&["REPLICAOF", "NO", "ONE"]);
    read.int(&["LOCK.ACQUIRE", "a", "EX", "30"]);
    read.ok(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_eq!(read.execute(&["LOCK.ACQUIRE", "b", "EX", "30"]).error(), text, "it is a replica again");
}

#[test]
fn a_server_that_starts_as_a_writable_replica_grants_nothing() {
    let args = ["--replica-read-only", "no", "--replicaof", "127.0.0.1", "1"];
    let server = Server::with().args(&args).start();
    let mut conn = server.conn();
    assert!(conn.execute(&["LOCK.ACQUIRE", "a", "EX", "30"]).error().starts_with("READONLY this server is a replica"));
    assert_eq!(conn.int(&["DBSIZE"]), 0);
}

#[test]
fn a_replica_frees_a_lock_past_its_retention() {
    let (master, replica) = (master().module_args(&["margin-ms", "0", "retention-ms", "200"]).start(), Server::start());
    replica.replicate(&master);
    let (mut conn, mut read) = (master.conn(), replica.conn());
    // Keeps the master from deleting the key: the replica still has the key, and must not trust it.
    conn.ok(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    let token = conn.int(&["LOCK.ACQUIRE", "a", "PX", "100"]).to_string();
    master.wait_offset(&replica);
    until("the lock is free", || (read.state("a") == "free").then_some(()));
    assert_eq!(read.int(&["LOCK.CHECK", "a", &token]), 0);
    assert_eq!(read.int(&["DBSIZE"]), 1, "the key is still there, although its retention has ended");
}

#[test]
fn a_replica_equals_its_master_after_any_commands() {
    // The replica has different settings, which must not matter.
    let (master, replica) = (
        master().module_args(&["margin-ms", "0"]).start(),
        Server::with().module_args(&["margin-ms", "7000", "retention-ms", "0"]).start(),
    );
    replica.replicate(&master);
    let mut stream = Stream::of(&master);
    let mut conn = master.conn();
    let seed = u64::from(std::process::id()) * 0x9E37_79B9 + 1;
    let mut mix = Dice::new(seed);
    let mut tokens = vec!["1".to_string()];
    for _ in 0..1500 {
        let key = format!("k{}", mix.index(6));
        let token = tokens[tokens.len() - 1 - mix.index(8) % tokens.len()].clone();
        let (short, id) = (mix.index(3).max(1).to_string(), mix.index(4).to_string());
        let command: Vec<&str> = match mix.index(17) {
            0 => vec!["SELECT", if id == "0" { "1" } else { "0" }],
            1 => vec!["SET", &key, "1700000000"],
            2 => vec!["SET", &key, "foreign", "PX", "2"],
            3 => vec!["LOCK.RECOVER", &key, "EX", "100", "OWNER", "r"],
            4 | 5 => vec!["LOCK.EXTEND", &key, &token, "PX", &short],
            6 => vec!["LOCK.RELEASE", &key, &token],
            7 => vec!["EVAL", "return redis.call('LOCK.ACQUIRE', KEYS[1], 'PX', 1)", "1", &key],
            8 => vec!["LOCK.ACQUIRE", &key, "EX", "100", "OWNER", "worker", "ID", &id],
            9 | 10 => vec!["LOCK.ACQUIRE", &key, "PX", if id == "0" { "60000" } else { &short }, "SHARED"],
            11 | 12 => vec!["LOCK.ACQUIRE", &key, "PX", &short, "LIMIT", "3", "OWNER", "some"],
            13 => vec!["LOCK.MACQUIRE", "2", &key, "k6", "PX", &short],
            14 => vec!["LOCK.MRELEASE", "2", &key, "k6", &token],
            _ => vec!["LOCK.ACQUIRE", &key, "PX", &short, "ID", &id],
        };
        match conn.execute(&command) {
            Reply::Int(token) if token > 1 => tokens.push(token.to_string()),
            Reply::List(details) => tokens.push(details[0].int().to_string()),
            Reply::Error(text) => panic!("seed {seed}: {command:?}: {text}"),
            _ => {}
        }
    }
    assert!(tokens.len() > 50, "the mix granted next to nothing: {}", tokens.len());

    // Some locks are free at the end, so no later change can hide a DEL that was not replicated.
    conn.ok(&["SELECT", "0"]);
    for key in ["k0", "k1"] {
        conn.execute(&["DEL", key]);
        let token = conn.int(&["LOCK.ACQUIRE", key, "EX", "100"]).to_string();
        assert_eq!(conn.int(&["LOCK.RELEASE", key, &token]), 1);
    }
    // In another lock one of two holders has released, so nothing can hide a missing ZREM either.
    conn.execute(&["DEL", "k2"]);
    let first = acquire(&mut conn, &["k2", "EX", "100", "SHARED"]);
    acquire(&mut conn, &["k2", "EX", "200", "SHARED"]);
    assert_eq!(conn.int(&["LOCK.RELEASE", "k2", &first]), 1);

    let sent = stream.take();
    assert!(sent.len() > 100, "the mix wrote next to nothing: {}", sent.len());
    for command in &sent {
        let effects = ["SET", "DEL", "UNLINK", "ZADD", "ZREM", "PEXPIREAT", "MULTI", "EXEC"];
        assert!(effects.contains(&command[0].as_str()), "seed {seed}: {command:?}");
    }
    let mut read = replica.conn();
    // Retries until equal, as a key may expire between the two reads.
    until(&format!("equal data sets, seed {seed}"), || {
        let digests = (conn.text(&["DEBUG", "DIGEST"]), read.text(&["DEBUG", "DIGEST"]));
        (digests.0 == digests.1 && digests.0.contains(|c| c != '0')).then_some(())
    });
    // The digest shows that a key has an expiry, not which one.
    for key in ["k0", "k1", "k2", "k3", "k4", "k5", "k6"] {
        assert_eq!(expire_at_ms(&mut conn, key), expire_at_ms(&mut read, key), "{key}, seed {seed}");
    }
}
