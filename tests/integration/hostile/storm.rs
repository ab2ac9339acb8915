//! Random commands of all kinds at once, on many connections: every command of LOCK.* with good and hostile arguments,
//! alone, pipelined, in transactions and in scripts, in RESP2 and RESP3, among plain commands on the same keys, and
//! among operators' commands (pauses, kills, flushes, reloads, settings). Afterwards the server has not restarted, each
//! command had one reply of a known kind, no client waits, and memory is back to its previous level.
//!
//! On a single connection, without commands that move or forge tokens, each key's tokens grow.
//!
//! `LOCK_COMMANDS` sets the number of commands (20,000 by default; a million takes a few minutes), `LOCK_SEED` the
//! seed. With `--nocapture` it prints the results.

mod commands;

use super::{hostile_arguments, run_id};
use std::collections::{BTreeMap, BTreeSet};
use testkit::dice::Dice;
use testkit::{encoded, env_number, show, until, Conn, Reply, Server};

const SEED: u64 = 0x10C4_2026;
const COMMANDS: usize = 20_000;
const CLIENTS: usize = 8;
const BATCH: usize = 25;
/// Memory that may stay beyond the level after the warm-up, in bytes: bounded tables that were not full then.
const ROOM: i64 = 768 * 1024;

type Command = Vec<Vec<u8>>;

struct Storm {
    server: Server,
    /// The number of connections. With a single one, each key's tokens have to grow.
    width: usize,
    clients: Vec<Conn>,
    dice: Dice,
    hostile: Vec<Vec<u8>>,
    /// The most recent grants in replies: keys and token.
    grants: Vec<(Vec<Vec<u8>>, i64)>,
    /// All granted tokens, by key.
    given: BTreeMap<Vec<u8>, BTreeSet<i64>>,
    /// Connections may have been killed in this round or the previous one.
    kills: [bool; 2],
    sent: usize,
    replies: BTreeMap<String, usize>,
}

impl Storm {
    fn start(seed: u64, width: usize) -> Self {
        let args = ["--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0"];
        let settings = ["margin-ms", "1", "retention-ms", "500", "place-ms", "300", "max-waiters", "200"];
        let more = ["claim-ms", "15", "max-queued", "60"];
        let server = Server::with().args(&args).module_args(&settings).module_args(&more).start();
        // SET, ZADD and the like change locks without an event that the module receives.
        server.allow_silent_changes();
        let clients = (0..width).map(|_| server.conn()).collect();
        let (dice, hostile) = (Dice::new(seed), hostile_arguments());
        let (grants, replies) = (vec![(vec![b"a".to_vec()], 1_763_710_000_482_913)], BTreeMap::new());
        let (given, kills) = (BTreeMap::new(), [false; 2]);
        Storm { server, width, clients, dice, hostile, grants, given, kills, sent: 0, replies }
    }

    /// Sends a batch on one connection: each command has one reply.
    fn batch(&mut self) -> Vec<Command> {
        let mut batch: Vec<Command> = Vec::new();
        while batch.len() < BATCH {
            match self.dice.below(200) {
                _ if self.width == 1 => batch.push(self.lone_command()),
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
                    for _ in 0..self.dice.below(5) {
                        let command = if self.dice.one_in(4) { self.plain_command() } else { self.lock_command() };
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
        for client in 0..self.width {
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
            if self.dice.one_in(100) {
                // It disconnects without reading its replies.
                self.clients[client] = self.server.conn();
                continue;
            }
            if self.read_batch(client, &batch).is_err() {
                self.replace(client);
            }
        }
        if self.dice.one_in(50) {
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

    /// A connection may only be lost for a reason.
    fn replace(&mut self, client: usize) {
        assert!(self.kills.contains(&true), "the server closed a connection:\n{}", self.server.log_tail(30));
        self.clients[client] = self.server.conn();
    }

    /// A client that does not speak the protocol, or stops in the middle of a word.
    fn garbage(&mut self) {
        let mut bytes =
            self.dice.pick(&["*3\r\n$12\r\nLOCK.ACQ", "LOCK.INFO ", "*1\r\n$-5\r\n", ""]).as_bytes().to_vec();
        bytes.extend(self.bytes());
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
                // A single client is refused because of its own command, not because of other clients' commands.
                let known = if self.width == 1 { &known[..2] } else { &known[..] };
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
            ("LOCK.ACQUIRE" | "LOCK.MACQUIRE", Reply::Status(text)) => text == "QUEUED" || text == "WAITING",
            // In a transaction.
            (_, Reply::Status(text)) => text == "QUEUED" || !name.starts_with("LOCK."),
            ("LOCK.ACQUIRE" | "LOCK.MACQUIRE", Reply::Int(token)) => (1..1 << 53).contains(token),
            ("LOCK.ACQUIRE" | "LOCK.RECOVER", Reply::List(details)) => details.len() == 4,
            ("LOCK.EXTEND" | "LOCK.MEXTEND", Reply::Int(n)) => (0..=1).contains(n),
            ("LOCK.CANCEL", Reply::Int(n)) => (0..=if command.len() > 3 { 60 } else { 1 }).contains(n),
            ("LOCK.RELEASE", Reply::Int(n)) => (-1..=1).contains(n),
            ("LOCK.CHECK", Reply::Int(left)) => *left >= 0,
            ("LOCK.INFO", Reply::List(fields)) => [28, 30, 32].contains(&fields.len()),
            ("LOCK.INFO", Reply::Map(fields)) => (14..=16).contains(&fields.len()),
            ("LOCK.MRELEASE", Reply::Int(n)) => (0..=3).contains(n),
            ("LOCK.SCAN", Reply::List(step)) => matches!(&step[..], [Reply::Text(_), Reply::List(_)]),
            (name, _) => !name.starts_with("LOCK."),
        };
        assert!(good, "{}: {reply:?}", shown());
        if let Some((keys, token)) = granted(&name, command, reply) {
            for key in keys.iter().filter(|_| self.width == 1) {
                let tokens = self.given.entry(key.clone()).or_default();
                // The same ID gets the same token again, even an earlier one if there are several holders.
                let is_new = tokens.insert(token);
                assert!(!is_new || tokens.last() == Some(&token), "{}: {token} in {tokens:?}", show(key));
            }
            self.grants.push((keys, token));
        }
        if self.grants.len() > 64 {
            self.grants.drain(..32);
        }
        *self.replies.entry(format!("{name} {kind}")).or_default() += 1;
    }

    /// Disconnects all clients, deletes all keys and resets all settings. Returns the server's memory after that.
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
            conn.execute(&line.split(' ').collect::<Vec<_>>());
        }
        for (section, field, count) in [
            ("lock", "lock_waiters", "0"),
            ("lock", "lock_places", "0"),
            ("lock", "lock_sessions", "0"),
            ("clients", "connected_clients", "1"),
        ] {
            until(field, || (conn.info(section, field)? == count).then_some(()));
        }
        conn.execute(&["MEMORY", "PURGE"]);
        // The server's buffers shrink some time later.
        let mut used = i64::MAX;
        for _ in 0..15 {
            used = used.min(conn.info("memory", "used_memory").unwrap().parse().unwrap());
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        self.clients = (0..self.width).map(|_| self.server.conn()).collect();
        used
    }
}

/// The keys and the token of a grant, if the reply is one.
fn granted(name: &str, command: &Command, reply: &Reply) -> Option<(Vec<Vec<u8>>, i64)> {
    match reply {
        Reply::Int(token) if name == "LOCK.ACQUIRE" => Some((vec![command[1].clone()], *token)),
        Reply::Int(token) if name == "LOCK.MACQUIRE" => {
            let count: usize = String::from_utf8_lossy(&command[1]).parse().unwrap();
            Some((command[2..2 + count].to_vec(), *token))
        }
        Reply::List(details) if name == "LOCK.ACQUIRE" || name == "LOCK.RECOVER" => {
            Some((vec![command[1].clone()], details[0].int()))
        }
        _ => None,
    }
}

/// Events that a run must have seen, or it would prove little.
const WAYS: &[&str] = &[
    "LOCK.ACQUIRE value",
    "LOCK.ACQUIRE nil",
    "LOCK.ACQUIRE ERR",
    "LOCK.ACQUIRE WRONGTYPE",
    "LOCK.RECOVER value",
    "LOCK.RECOVER nil",
    "LOCK.RELEASE 1",
    "LOCK.RELEASE -1",
    "LOCK.RELEASE 0",
    "LOCK.EXTEND 1",
    "LOCK.EXTEND 0",
    "LOCK.CANCEL 1",
    "LOCK.CHECK value",
    "LOCK.INFO value",
    "LOCK.INFO WRONGTYPE",
    "LOCK.TOP value",
    "LOCK.SCAN value",
    "LOCK.SCAN ERR",
    "LOCK.MACQUIRE value",
    "LOCK.MACQUIRE nil",
    "LOCK.MACQUIRE ERR",
    "LOCK.MACQUIRE WRONGTYPE",
    "LOCK.MEXTEND 0",
    "LOCK.MRELEASE 0",
    "LOCK.MRELEASE 1",
];

/// Outcomes that need many connections.
const WAYS_OF_MANY: &[&str] = &["LOCK.ACQUIRE QUEUED", "EVAL value", "EXEC value", "CONFIG OK"];

/// Outcomes that need a module that can publish.
const WAYS_OF_NOTIFIED: &[&str] = &["LOCK.ACQUIRE WAITING", "LOCK.MACQUIRE WAITING"];

/// Outcomes that a long run is sure to see.
const RARE_WAYS: &[&str] =
    &["LOCK.MEXTEND 1", "LOCK.MRELEASE value", "LOCK.MACQUIRE DEADLOCK", "LOCK.MACQUIRE UNBLOCKED"];

impl Storm {
    /// Asserts that the server has not restarted, the run saw these events, and locks still work.
    fn assert_over(&self, id: &str, ways: &[&[&str]]) {
        let mut conn = self.server.conn();
        assert_eq!(run_id(&mut conn), id);
        let log = self.server.log();
        assert!(!log.contains("internal error") && !log.contains("crashed by signal"), "{}", self.server.log_tail(40));
        for way in ways.concat() {
            assert!(self.replies.contains_key(way), "{way} never happened: {:#?}", self.replies);
        }
        let token = conn.int(&["LOCK.ACQUIRE", "after", "PX", "30000"]).to_string();
        assert!(conn.execute(&["LOCK.ACQUIRE", "after", "PX", "30000"]).is_nil());
        assert_eq!(conn.int(&["LOCK.RELEASE", "after", &token]), 1);
    }
}

#[test]
fn random_commands_leak_nothing() {
    let count = env_number("LOCK_COMMANDS").map_or(COMMANDS, |count| usize::try_from(count).unwrap());
    let seed = env_number("LOCK_SEED").unwrap_or(SEED);
    println!("LOCK_SEED={seed} LOCK_COMMANDS={count}");
    let mut storm = Storm::start(seed, CLIENTS);
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
    println!("sent {}, memory {warm} then {end}", storm.sent);
    println!("{:#?}\n{}\n{}", storm.replies, conn.text(&["INFO", "errorstats"]), conn.text(&["INFO", "lock"]));
    let rare = if count >= 10 * COMMANDS { RARE_WAYS } else { &[] };
    let notified = if conn.is_before_7() { &[] } else { WAYS_OF_NOTIFIED };
    storm.assert_over(&id, &[WAYS, WAYS_OF_MANY, notified, rare]);
    assert!(end < warm + ROOM, "{} bytes stay", end - warm);
}

#[test]
fn random_commands_on_one_connection_get_growing_tokens() {
    let seed = env_number("LOCK_SEED").unwrap_or(SEED);
    println!("LOCK_SEED={seed}");
    let mut storm = Storm::start(seed, 1);
    let id = run_id(&mut storm.server.conn());
    while storm.sent < 5 * COMMANDS {
        storm.round();
    }
    storm.assert_over(&id, &[WAYS]);
    assert!(storm.given.values().any(|tokens| tokens.len() > 100), "few grants: {:?}", storm.given);
}
