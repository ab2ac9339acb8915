//! A replica: it refuses to grant, answers questions, and is equal to its master.

use crate::replication::Stream;
use crate::support::{expire_at_ms, until, Options, Reply, Server};

/// A master whose replicas need not wait for others to join before they get their RDB.
fn master() -> Options {
    Server::with().args(&["--repl-diskless-sync-delay", "0"])
}

#[test]
fn a_replica_refuses_to_write_and_answers_questions() {
    let (master, replica) = (master().start(), Server::start());
    replica.replicate(&master);
    let (mut conn, mut read) = (master.conn(), replica.conn());
    let token = conn.int(&["LOCK.ACQUIRE", "a", "EX", "30", "OWNER", "worker-1"]).to_string();
    let value = conn.text(&["GET", "a"]);
    master.wait_offset(&replica);

    let writes: &[&[&str]] = &[
        &["LOCK.ACQUIRE", "a", "EX", "30"],
        &["LOCK.ACQUIRE", "b", "EX", "30"],
        &["LOCK.RECOVER", "a", "EX", "30"],
        &["LOCK.EXTEND", "a", &token, "EX", "30"],
        &["LOCK.RELEASE", "a", &token],
    ];
    for command in writes {
        let reply = read.call(command);
        assert!(reply.error().starts_with("READONLY "), "{command:?}: {reply:?}");
    }
    assert_eq!(read.text(&["GET", "a"]), value);

    let left = read.int(&["LOCK.CHECK", "a", &token]);
    assert!((1..=30_000).contains(&left), "{left}");
    assert_eq!(read.int(&["LOCK.CHECK", "a", "1"]), 0);
    let info = read.call(&["LOCK.INFO", "a"]);
    assert_eq!(info.field("state").text(), "held");
    assert_eq!(info.field("owner").text(), "worker-1");
    assert_eq!(info.field("token").int().to_string(), token);
    // What only the server knows on which clients wait.
    for field in ["session", "waiters", "oldest-wait-ms"] {
        assert!(info.field(field).is_nil(), "{field}: {info:?}");
    }
    assert_eq!(read.call(&["LOCK.INFO", "b"]).field("state").text(), "free");
}

#[test]
fn a_lock_past_its_retention_is_free_on_a_replica_whose_master_is_silent() {
    let (master, replica) = (master().module_args(&["margin-ms", "0", "retention-ms", "200"]).start(), Server::start());
    replica.replicate(&master);
    let (mut conn, mut read) = (master.conn(), replica.conn());
    // So that the master deletes nothing: the replica still has the key, and must not believe it.
    conn.ok(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    let token = conn.int(&["LOCK.ACQUIRE", "a", "PX", "100"]).to_string();
    master.wait_offset(&replica);
    until("the lock is free", || (read.call(&["LOCK.INFO", "a"]).field("state").text() == "free").then_some(()));
    assert_eq!(read.int(&["LOCK.CHECK", "a", &token]), 0);
    assert_eq!(read.int(&["DBSIZE"]), 1, "the key is there, only over");
}

/// A generator of which the same seed gives the same mix again.
struct Mix(u64);

impl Mix {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

#[test]
fn a_replica_is_equal_to_its_master_after_any_mix_of_commands() {
    // The replica has other settings: they must not matter.
    let (master, replica) = (
        master().module_args(&["margin-ms", "0"]).start(),
        Server::with().module_args(&["margin-ms", "7000", "retention-ms", "0"]).start(),
    );
    replica.replicate(&master);
    let mut stream = Stream::of(&master);
    let mut conn = master.conn();
    let seed = u64::from(std::process::id()) * 0x9E37_79B9 + 1;
    let mut mix = Mix(seed);
    let mut tokens = vec!["1".to_string()];
    for _ in 0..1500 {
        let key = format!("k{}", mix.below(6));
        let token = tokens[tokens.len() - 1 - usize::try_from(mix.below(8)).unwrap() % tokens.len()].clone();
        let (short, id) = (mix.below(3).max(1).to_string(), mix.below(4).to_string());
        let command: Vec<&str> = match mix.below(12) {
            0 => vec!["SELECT", if id == "0" { "1" } else { "0" }],
            1 => vec!["SET", &key, "1700000000"],
            2 => vec!["SET", &key, "foreign", "PX", "2"],
            3 => vec!["LOCK.RECOVER", &key, "EX", "100", "OWNER", "r"],
            4 | 5 => vec!["LOCK.EXTEND", &key, &token, "PX", &short],
            6 => vec!["LOCK.RELEASE", &key, &token],
            7 => vec!["EVAL", "return redis.call('LOCK.ACQUIRE', KEYS[1], 'PX', 1)", "1", &key],
            8 => vec!["LOCK.ACQUIRE", &key, "EX", "100", "OWNER", "worker", "ID", &id],
            _ => vec!["LOCK.ACQUIRE", &key, "PX", &short, "ID", &id],
        };
        match conn.call(&command) {
            Reply::Int(token) if token > 1 => tokens.push(token.to_string()),
            Reply::List(details) => tokens.push(details[0].int().to_string()),
            Reply::Error(text) => panic!("seed {seed}: {command:?}: {text}"),
            _ => {}
        }
    }
    assert!(tokens.len() > 50, "the mix granted next to nothing: {}", tokens.len());

    // Some locks end free: nothing after makes up for a DEL that is not replicated.
    conn.ok(&["SELECT", "0"]);
    for key in ["k0", "k1"] {
        conn.call(&["DEL", key]);
        let token = conn.int(&["LOCK.ACQUIRE", key, "EX", "100"]).to_string();
        assert_eq!(conn.int(&["LOCK.RELEASE", key, &token]), 1);
    }

    let sent = stream.take();
    assert!(sent.len() > 100, "the mix wrote next to nothing: {}", sent.len());
    for command in &sent {
        assert!(matches!(command[0].as_str(), "SET" | "DEL" | "UNLINK" | "MULTI" | "EXEC"), "seed {seed}: {command:?}");
    }
    let mut read = replica.conn();
    // Asked again until equal, as a key may end between the two questions.
    until(&format!("equal data sets, seed {seed}"), || {
        let digests = (conn.text(&["DEBUG", "DIGEST"]), read.text(&["DEBUG", "DIGEST"]));
        (digests.0 == digests.1 && digests.0.contains(|c| c != '0')).then_some(())
    });
    // The digest says that a key has an expiry, not which.
    for key in ["k0", "k1", "k2", "k3", "k4", "k5"] {
        assert_eq!(expire_at_ms(&mut conn, key), expire_at_ms(&mut read, key), "{key}, seed {seed}");
    }
}
