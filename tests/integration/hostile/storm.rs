//! Random commands of all kinds at once, on many connections: every command of LOCK.* with good and
//! hostile arguments, alone, pipelined, in transactions and in scripts, in RESP2 and RESP3, among plain
//! commands on the same keys, and among what operators do (pauses, kills, flushes, reloads, settings).
//! The server is the same one afterwards, each command had its one reply of a known kind, nobody waits,
//! and the memory is what it was.
//!
//! `LOCK_COMMANDS` is how many (20,000 by default; a million takes some minutes), `LOCK_SEED` another
//! seed. With `--nocapture` it tells what came of it.

use super::random::{seed, Random, KEYS, NUMBERS, VALUES};
use super::{hostile_arguments, info, run_id};
use crate::support::{encoded, show, until, Conn, Reply, Server};
use std::collections::BTreeMap;

const COMMANDS: usize = 20_000;
const CLIENTS: usize = 8;
const BATCH: usize = 25;
/// What may stay more than after the warm-up, in bytes: bounded tables that were not full then.
const ROOM: i64 = 768 * 1024;

type Command = Vec<Vec<u8>>;

struct Storm {
    server: Server,
    clients: Vec<Conn>,
    random: Random,
    hostile: Vec<Vec<u8>>,
    /// The last grants that anybody was told of: key and token.
    grants: Vec<(Vec<u8>, i64)>,
    /// Connections may have been killed in this round or the one before.
    kills: [bool; 2],
    sent: usize,
    replies: BTreeMap<String, usize>,
}

impl Storm {
    fn start(seed: u64) -> Self {
        let args = ["--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0"];
        let settings = ["margin-ms", "1", "retention-ms", "500", "place-ms", "300", "max-waiters", "200"];
        let server = Server::with().args(&args).module_args(&settings).start();
        let clients = (0..CLIENTS).map(|_| server.conn()).collect();
        let (random, hostile) = (Random(seed), hostile_arguments());
        let (grants, replies) = (vec![(b"a".to_vec(), 1_763_710_000_482_913)], BTreeMap::new());
        Storm { server, clients, random, hostile, grants, kills: [false; 2], sent: 0, replies }
    }

    fn word(&mut self, from: &[&str]) -> Vec<u8> {
        self.random.pick(from).into()
    }

    /// Mostly a key that is used much; now and then anything.
    fn key(&mut self) -> Vec<u8> {
        match self.random.below(60) {
            0 => self.anything(),
            _ => self.word(KEYS),
        }
    }

    fn anything(&mut self) -> Vec<u8> {
        if self.random.one_in(3) {
            return self.random.bytes();
        }
        let at = self.random.below(self.hostile.len());
        // The long ones cost mostly their transport.
        let long = self.hostile[at].len() > 1_000 && !self.random.one_in(200);
        self.hostile[if long { 0 } else { at }].clone()
    }

    fn number(&mut self) -> Vec<u8> {
        match self.random.below(12) {
            0 => self.word(NUMBERS),
            1 => self.anything(),
            _ => (1 + self.random.below(25)).to_string().into(),
        }
    }

    /// A key and a token, mostly of a late grant.
    fn grant(&mut self) -> [Vec<u8>; 2] {
        let late = self.grants.len() - 1 - self.random.below(self.grants.len().min(12));
        let (key, token) = self.grants[late].clone();
        match self.random.below(10) {
            0 => [self.key(), self.number()],
            1 => [self.key(), token.to_string().into()],
            _ => [key, token.to_string().into()],
        }
    }

    /// One of the commands of LOCK.*, mostly well-formed.
    fn lock_command(&mut self) -> Command {
        let name: &[u8] = match self.random.below(20) {
            0..=6 => b"LOCK.ACQUIRE",
            7 | 8 => b"LOCK.RECOVER",
            9..=11 => b"LOCK.RELEASE",
            12 | 13 => b"LOCK.EXTEND",
            14 => b"LOCK.CHECK",
            15 => b"LOCK.CANCEL",
            16 | 17 => b"LOCK.INFO",
            18 => b"LOCK.TOP",
            _ => b"LOCK.HELP",
        };
        let mut args = vec![name.to_vec()];
        match name {
            b"LOCK.RELEASE" | b"LOCK.CHECK" | b"LOCK.EXTEND" => args.extend(self.grant()),
            b"LOCK.TOP" | b"LOCK.HELP" => {}
            _ => args.push(self.key()),
        }
        match name {
            b"LOCK.EXTEND" => args.extend([self.word(&["PX", "EX", "px"]), self.number()]),
            b"LOCK.CANCEL" => args.push(self.number()),
            b"LOCK.INFO" if self.random.one_in(2) => args.push(self.word(&["FULL", "full"])),
            b"LOCK.TOP" if self.random.one_in(2) => args.extend([b"COUNT".to_vec(), self.number()]),
            b"LOCK.ACQUIRE" | b"LOCK.RECOVER" => {
                args.extend([self.word(&["PX", "PX", "PX", "px", "EX"]), self.number()]);
                while self.random.one_in(2) {
                    match self.random.below(10) {
                        0..=2 => args.extend([b"ID".to_vec(), (1 + self.random.below(12)).to_string().into()]),
                        3 | 4 => args.extend([b"OWNER".to_vec(), self.word(&["alice", "bob", "a b", "\0"])]),
                        5 => args.push(b"DETAILS".to_vec()),
                        6 => args.push(b"SESSION".to_vec()),
                        _ => args.extend([b"WAIT".to_vec(), self.random.below(30).to_string().into()]),
                    }
                }
            }
            _ => {}
        }
        match self.random.below(40) {
            0 => args.truncate(1 + self.random.below(args.len())),
            1 => args.insert(1 + self.random.below(args.len()), self.anything()),
            2 if args.len() > 1 => {
                let at = 1 + self.random.below(args.len() - 1);
                args[at] = self.anything();
            }
            3 => args[0] = args[0].to_ascii_lowercase(),
            _ => {}
        }
        args
    }

    /// A plain command on the same keys.
    fn plain_command(&mut self) -> Command {
        let (key, value) = (self.key(), self.word(VALUES));
        let short = self.random.below(20).to_string().into_bytes();
        let name = self.word(&["RPUSH", "APPEND", "GETSET", "SETNX"]);
        match self.random.below(14) {
            0 | 1 => vec![b"SET".to_vec(), key, value],
            2 => vec![b"SET".to_vec(), key, value, b"PX".to_vec(), b"3".to_vec()],
            3 => vec![name, key, value],
            4 => vec![self.word(&["RENAME", "COPY", "RENAMENX"]), key, self.key()],
            5 => vec![b"MOVE".to_vec(), key, self.word(&["0", "1"])],
            6 => vec![b"PEXPIRE".to_vec(), key, short],
            7 => vec![b"SETRANGE".to_vec(), key, short, value],
            8 => vec![b"SELECT".to_vec(), self.word(&["0", "0", "0", "1", "77"])],
            9 => vec![self.word(&["INCR", "PERSIST", "GET", "GETDEL"]), key],
            _ => vec![self.word(&["DEL", "UNLINK"]), key],
        }
    }

    /// What an operator does, or a client that misbehaves.
    fn operator_command(&mut self) -> Command {
        let line = self.random.pick(&[
            "CLIENT PAUSE 3 WRITE",
            "CLIENT PAUSE 2 ALL",
            "CLIENT UNPAUSE",
            "CLIENT KILL TYPE normal SKIPME yes",
            "CLIENT UNBLOCK 7 ERROR",
            "CLIENT UNBLOCK 9 TIMEOUT",
            "CLIENT NO-EVICT on",
            "CONFIG SET lock.margin-ms 0",
            "CONFIG SET lock.margin-ms 2",
            "CONFIG SET lock.retention-ms -1",
            "CONFIG SET lock.retention-ms 300",
            "CONFIG SET lock.place-ms 0",
            "CONFIG SET lock.place-ms 200",
            "CONFIG SET lock.max-waiters 3",
            "CONFIG SET lock.max-waiters 200",
            "CONFIG SET lock.max-waiters -7",
            "CONFIG SET maxmemory-policy volatile-lru",
            "CONFIG SET maxmemory-policy allkeys-lru",
            "CONFIG SET maxmemory-policy noeviction",
            "CONFIG SET notify-keyspace-events KEAd",
            "CONFIG SET min-replicas-to-write 1",
            "DEBUG SLEEP 0.002",
            "DEBUG SET-ACTIVE-EXPIRE 0",
            "DEBUG SET-ACTIVE-EXPIRE 1",
            "DEBUG RELOAD",
            "FLUSHDB",
            "FLUSHALL ASYNC",
            "SWAPDB 0 1",
            "HELLO 3",
            "HELLO 2",
            "RESET",
            "QUIT",
            "INFO lock",
            "COMMAND DOCS lock.acquire",
            "MEMORY USAGE a",
        ]);
        if matches!(line, "QUIT") || line.starts_with("CLIENT KILL") {
            self.kills[0] = true;
        }
        line.split(' ').map(Into::into).collect()
    }

    /// A batch of one connection: each command has one reply.
    fn batch(&mut self) -> Vec<Command> {
        let mut batch: Vec<Command> = Vec::new();
        while batch.len() < BATCH {
            match self.random.below(200) {
                0 | 1 => {
                    let command = self.operator_command();
                    let is_short_of_replicas = command.contains(&b"min-replicas-to-write".to_vec());
                    batch.push(command);
                    if is_short_of_replicas {
                        batch.extend([self.lock_command(), self.lock_command(), self.plain_command()]);
                        batch.push("CONFIG SET min-replicas-to-write 0".split(' ').map(Into::into).collect());
                    }
                }
                2..=4 => {
                    batch.push(vec![b"MULTI".to_vec()]);
                    for _ in 0..self.random.below(5) {
                        let command = if self.random.one_in(4) { self.plain_command() } else { self.lock_command() };
                        batch.push(command);
                    }
                    batch.push(vec![self.word(&["EXEC", "EXEC", "EXEC", "DISCARD"])]);
                }
                5..=12 => {
                    let script =
                        ["return redis.pcall(unpack(ARGV))", "redis.setresp(3) return redis.pcall(unpack(ARGV))"];
                    let mut args = vec![b"EVAL".to_vec(), self.word(&script), b"1".to_vec(), self.key()];
                    args.extend(self.lock_command());
                    batch.push(args);
                }
                13..=50 => batch.push(self.plain_command()),
                _ => batch.push(self.lock_command()),
            }
        }
        batch
    }

    /// Every connection sends a batch; then all replies are read.
    fn round(&mut self) {
        self.kills = [false, self.kills[0]];
        let mut batches = Vec::new();
        for client in 0..CLIENTS {
            let batch = self.batch();
            let mut bytes = Vec::new();
            for command in &batch {
                bytes.extend(encoded(command));
            }
            bytes.extend(encoded(&[b"ECHO".to_vec(), client.to_string().into()]));
            self.sent += batch.len();
            if self.clients[client].try_send_bytes(&bytes).is_err() {
                self.replace(client);
            }
            batches.push(batch);
        }
        for (client, batch) in batches.into_iter().enumerate() {
            if self.random.one_in(100) {
                // It leaves without its replies.
                self.clients[client] = self.server.conn();
                continue;
            }
            if self.read_batch(client, &batch).is_err() {
                self.replace(client);
            }
        }
        if self.random.one_in(50) {
            self.garbage();
        }
    }

    fn read_batch(&mut self, client: usize, batch: &[Command]) -> std::io::Result<()> {
        for command in batch {
            let reply = self.clients[client].try_read()?;
            self.check(command, &reply);
        }
        let echo = self.clients[client].try_read()?;
        assert_eq!(echo, Reply::Text(client.to_string().into()), "each command has one reply");
        Ok(())
    }

    /// A connection was lost, which has to have a reason.
    fn replace(&mut self, client: usize) {
        assert!(self.kills.contains(&true), "the server closed a connection:\n{}", self.server.log_tail(30));
        self.clients[client] = self.server.conn();
    }

    /// Somebody who does not speak the protocol, or stops in the middle of a word.
    fn garbage(&mut self) {
        let mut bytes =
            self.random.pick(&["*3\r\n$12\r\nLOCK.ACQ", "LOCK.INFO ", "*1\r\n$-5\r\n", ""]).as_bytes().to_vec();
        bytes.extend(self.random.bytes());
        let _ = self.server.conn().try_send_bytes(&bytes);
    }

    fn check(&mut self, command: &Command, reply: &Reply) {
        let name = String::from_utf8_lossy(&command[0]).to_ascii_uppercase();
        let shown = || command.iter().map(|arg| show(&arg[..arg.len().min(60)])).collect::<Vec<_>>().join(" ");
        let kind = match reply {
            Reply::Error(text) => {
                let code = text.split(' ').next().unwrap_or_default();
                assert!(!text.contains("internal"), "{}: {text}", shown());
                let known = ["ERR", "WRONGTYPE", "BUSYLOCKS", "DEADLOCK", "UNBLOCKED", "NOREPLICAS"];
                assert!(!name.starts_with("LOCK.") || known.contains(&code), "{}: {text}", shown());
                code.to_string()
            }
            Reply::Nil => "nil".into(),
            Reply::Int(n @ -1..=1) => n.to_string(),
            Reply::Status(text) => text.clone(),
            _ => "value".into(),
        };
        let good = match (name.as_str(), reply) {
            (_, Reply::Error(_) | Reply::Nil) | ("LOCK.TOP" | "LOCK.HELP", Reply::List(_)) => true,
            // In a transaction.
            (_, Reply::Status(text)) => text == "QUEUED" || !name.starts_with("LOCK."),
            ("LOCK.ACQUIRE", Reply::Int(token)) => (1..1 << 53).contains(token),
            ("LOCK.ACQUIRE" | "LOCK.RECOVER", Reply::List(details)) => details.len() == 4,
            ("LOCK.EXTEND" | "LOCK.CANCEL", Reply::Int(n)) => (0..=1).contains(n),
            ("LOCK.RELEASE", Reply::Int(n)) => (-1..=1).contains(n),
            ("LOCK.CHECK", Reply::Int(left)) => *left >= 0,
            ("LOCK.INFO", Reply::List(fields)) => fields.len() == 24 || fields.len() == 26,
            ("LOCK.INFO", Reply::Map(fields)) => fields.len() == 12 || fields.len() == 13,
            (name, _) => !name.starts_with("LOCK."),
        };
        assert!(good, "{}: {reply:?}", shown());
        match reply {
            Reply::Int(token) if name == "LOCK.ACQUIRE" => self.grants.push((command[1].clone(), *token)),
            Reply::List(details) if name == "LOCK.RECOVER" => self.grants.push((command[1].clone(), details[0].int())),
            _ => {}
        }
        if self.grants.len() > 64 {
            self.grants.drain(..32);
        }
        *self.replies.entry(format!("{name} {kind}")).or_default() += 1;
    }

    /// Everybody leaves, everything is deleted and set back: the memory that the server uses then.
    fn quiet(&mut self) -> i64 {
        self.clients.clear();
        let mut conn = self.server.conn();
        for line in [
            "CLIENT UNPAUSE",
            "CONFIG SET min-replicas-to-write 0",
            "CONFIG SET maxmemory-policy noeviction",
            "DEBUG SET-ACTIVE-EXPIRE 1",
            "FLUSHALL SYNC",
            "SCRIPT FLUSH SYNC",
        ] {
            conn.call(&line.split(' ').collect::<Vec<_>>());
        }
        for field in ["lock_waiters:", "lock_places:", "lock_sessions:"] {
            until(&format!("{field} 0"), || (info(&mut conn, "lock", field) == "0").then_some(()));
        }
        until("the others have gone", || (info(&mut conn, "clients", "connected_clients:") == "1").then_some(()));
        conn.call(&["MEMORY", "PURGE"]);
        // Buffers of the server shrink some time later.
        let mut used = i64::MAX;
        for _ in 0..15 {
            used = used.min(info(&mut conn, "memory", "used_memory:").parse().unwrap());
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        self.clients = (0..CLIENTS).map(|_| self.server.conn()).collect();
        used
    }
}

/// Ways that a run must have taken, or it would prove little.
const WAYS: &[&str] = &[
    "LOCK.ACQUIRE value",
    "LOCK.ACQUIRE nil",
    "LOCK.ACQUIRE ERR",
    "LOCK.ACQUIRE WRONGTYPE",
    "LOCK.ACQUIRE QUEUED",
    "LOCK.RECOVER value",
    "LOCK.RELEASE 1",
    "LOCK.RELEASE -1",
    "LOCK.RELEASE 0",
    "LOCK.EXTEND 1",
    "LOCK.CANCEL 1",
    "LOCK.INFO value",
    "LOCK.TOP value",
    "EVAL value",
    "EXEC value",
    "CONFIG OK",
];

#[test]
fn random_commands_of_all_kinds_leave_the_same_server_and_no_memory() {
    let count = std::env::var("LOCK_COMMANDS").map_or(COMMANDS, |text| text.parse().expect("a number"));
    let seed = seed();
    println!("LOCK_SEED={seed} LOCK_COMMANDS={count}");
    let mut storm = Storm::start(seed);
    let id = run_id(&mut storm.server.conn());
    while storm.sent < count / 4 {
        storm.round();
    }
    let warm = storm.quiet();
    while storm.sent < count {
        storm.round();
    }
    let end = storm.quiet();
    let mut conn = storm.server.conn();
    assert_eq!(run_id(&mut conn), id);
    let log = storm.server.log();
    assert!(!log.contains("internal error") && !log.contains("crashed by signal"), "{}", storm.server.log_tail(40));
    println!("sent {}, memory {warm} then {end}", storm.sent);
    println!("{:#?}\n{}\n{}", storm.replies, conn.text(&["INFO", "errorstats"]), conn.text(&["INFO", "lock"]));
    for way in WAYS {
        assert!(storm.replies.contains_key(*way), "{way} never happened: {:#?}", storm.replies);
    }
    assert!(end < warm + ROOM, "{} bytes stay", end - warm);
    let token = conn.int(&["LOCK.ACQUIRE", "after", "PX", "30000"]).to_string();
    assert_eq!(conn.int(&["LOCK.RELEASE", "after", &token]), 1);
}
