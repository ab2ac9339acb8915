//! Clients that send every LOCK.* command that writes, plain, in transactions and in scripts, as fast as the server
//! answers. Replies are not judged: the servers' data is compared afterwards.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;
use testkit::dice::Dice;
use testkit::{encoded, Conn, Reply};

/// How many commands are sent at once.
const BATCH: usize = 24;
/// How many tokens a client remembers.
const TOKENS: usize = 200;

/// Where the clients work, and until when.
pub struct Load {
    /// The master's port, which a failover changes.
    pub port: AtomicU16,
    pub stop: AtomicBool,
}

struct Client {
    dice: Dice,
    /// Keys and tokens that were granted.
    granted: VecDeque<(Vec<String>, String)>,
}

/// Works until it has to stop; reconnects if the server is gone.
pub fn work(load: &Load, seed: u64) {
    let mut client = Client { dice: Dice::new(seed), granted: VecDeque::new() };
    while !load.stop.load(Ordering::Relaxed) {
        let port = load.port.load(Ordering::Relaxed);
        let Ok(mut conn) = Conn::to(port) else {
            std::thread::sleep(Duration::from_millis(2));
            continue;
        };
        conn.set_patience(Duration::from_secs(5));
        // A connection ends now and then, and with it the locks of its session.
        for _ in 0..client.dice.between(5, 60) {
            let is_over = load.stop.load(Ordering::Relaxed) || load.port.load(Ordering::Relaxed) != port;
            if is_over || client.batch(&mut conn).is_err() {
                break;
            }
        }
    }
}

impl Client {
    fn batch(&mut self, conn: &mut Conn) -> std::io::Result<()> {
        let commands: Vec<Vec<String>> = (0..BATCH).flat_map(|_| self.step()).collect();
        let bytes: Vec<u8> = commands.iter().flat_map(|command| encoded(command)).collect();
        conn.try_send_bytes(&bytes)?;
        for command in &commands {
            let reply = conn.try_read()?;
            self.remember(command, &reply);
        }
        Ok(())
    }

    fn remember(&mut self, command: &[String], reply: &Reply) {
        let Reply::Int(token) = reply else { return };
        let keys = match command[0].as_str() {
            "LOCK.ACQUIRE" => vec![command[1].clone()],
            "LOCK.MACQUIRE" => command[2..].iter().take_while(|word| *word != "PX").cloned().collect(),
            "EVAL" | "FCALL" => vec![command[3].clone()],
            _ => return,
        };
        if *token > 1 {
            self.granted.push_back((keys, token.to_string()));
            if self.granted.len() > TOKENS {
                self.granted.pop_front();
            }
        }
    }

    /// One command, or a transaction.
    fn step(&mut self) -> Vec<Vec<String>> {
        match self.dice.below(20) {
            0 => {
                let mut commands = vec![words(&["MULTI"])];
                commands.extend((0..self.dice.between(1, 4)).map(|_| self.lock()));
                commands.push(words(&["EXEC"]));
                commands
            }
            1 => {
                let key = self.key();
                let script = "local token = redis.call('LOCK.ACQUIRE', KEYS[1], 'PX', ARGV[1])
                    redis.call('SET', KEYS[2], ARGV[1])
                    return token";
                let lease = self.dice.between(1, 60_000).to_string();
                vec![words(&["EVAL", script, "2", &key, "plain:script", &lease])]
            }
            2 => {
                let (key, lease) = (self.key(), self.dice.between(1, 60_000).to_string());
                vec![words(&["FCALL", "take", "1", &key, &lease])]
            }
            5 => vec![words(&["SELECT", self.dice.pick(&["0", "0", "1"])])],
            3 => {
                let key = if self.dice.percent(50) { self.key() } else { self.several() };
                vec![words(&["DEL", &key])]
            }
            4 => vec![words(&["SET", &format!("plain:{}", self.dice.below(20)), &self.dice.next().to_string()])],
            _ => vec![self.lock()],
        }
    }

    fn key(&mut self) -> String {
        format!("lock:{}", self.dice.below(40))
    }

    fn several(&mut self) -> String {
        format!("several:{}", self.dice.below(8))
    }

    fn keys(&mut self) -> Vec<String> {
        let first = self.dice.below(40);
        (0..self.dice.between(1, 5)).map(|at| format!("lock:{}", (first + at) % 40)).collect()
    }

    /// A LOCK.* command that writes.
    fn lock(&mut self) -> Vec<String> {
        // Many leases end at once, so that locks are taken over and recovered.
        let lease = if self.dice.percent(40) { self.dice.between(1, 20) } else { self.dice.between(1_000, 60_000) };
        let lease = lease.to_string();
        let (key, several, id) = (self.key(), self.several(), self.dice.below(30).to_string());
        let mut command = match self.dice.below(16) {
            0..=2 => words(&["LOCK.ACQUIRE", &key, "PX", &lease, "OWNER", "someone"]),
            3 => words(&["LOCK.ACQUIRE", &key, "PX", &lease, "ID", &id]),
            4 => words(&["LOCK.ACQUIRE", &key, "PX", &lease, "SESSION"]),
            5 => words(&["LOCK.ACQUIRE", &several, "PX", &lease, "SHARED"]),
            6 => words(&["LOCK.ACQUIRE", &several, "PX", &lease, "LIMIT", "5"]),
            7 => {
                let keys = self.keys();
                let mut command = words(&["LOCK.MACQUIRE", &keys.len().to_string()]);
                command.extend(keys);
                command.extend(words(&["PX", &lease]));
                command
            }
            8 => words(&["LOCK.RECOVER", &key, "PX", &lease]),
            9 => words(&["LOCK.CANCEL", &key, &id]),
            end => return self.after(end, &lease),
        };
        if command[0].ends_with("ACQUIRE") && self.dice.percent(3) {
            command.extend(words(&["WAIT", "2"]));
        }
        command
    }

    /// A command for an earlier grant.
    fn after(&mut self, kind: u64, lease: &str) -> Vec<String> {
        let (keys, token) = match self.granted.len() {
            0 => (vec![self.key()], "1".to_string()),
            count => {
                let at = self.dice.index(count);
                if kind < 14 { self.granted.remove(at) } else { self.granted.get(at).cloned() }.unwrap()
            }
        };
        let (several, extends) = (keys.len() > 1 || self.dice.percent(20), kind >= 14);
        let name = match (extends, several) {
            (true, true) => "LOCK.MEXTEND",
            (true, false) => "LOCK.EXTEND",
            (false, true) => "LOCK.MRELEASE",
            (false, false) => "LOCK.RELEASE",
        };
        let mut command = words(&[name]);
        if several {
            command.push(keys.len().to_string());
        }
        command.extend(keys);
        command.push(token);
        if extends {
            command.extend(words(&["PX", lease]));
        }
        command
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}
