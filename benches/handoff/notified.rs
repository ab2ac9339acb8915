//! All clients of the hot lock in one process, over one connection, which carries the messages too (RESP3):
//! LOCK.ACQUIRE with NOTIFY, as a library on a multiplexed connection uses it.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Instant;

use super::worker::{await_start, now_us, sleep_until, LEASE_MS};
use crate::measure::argument;

const WAIT_MS: &str = "60000";

/// What a reply answers.
enum Asked {
    Acquire(usize),
    Release,
}

/// A caller and its attempt.
struct Caller {
    id: u64,
    asked: Instant,
    grants: String,
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn send(mut stream: &TcpStream, words: &[&[u8]]) {
    let mut command = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        command.extend(argument(word));
    }
    stream.write_all(&command).unwrap();
}

/// The clients, until the last of them has released the lock.
struct Clients {
    commands: TcpStream,
    key: String,
    channel: String,
    callers: Vec<Caller>,
    attempts: HashMap<u64, usize>,
    replies: VecDeque<Asked>,
    last: u64,
    end: u64,
}

impl Clients {
    fn ask(&mut self, caller: usize) {
        if now_us() >= self.end {
            return;
        }
        self.last += 1;
        self.callers[caller].id = self.last;
        self.callers[caller].asked = Instant::now();
        self.attempts.insert(self.last, caller);
        self.send(caller);
    }

    fn send(&mut self, caller: usize) {
        let id = self.callers[caller].id.to_string();
        let [key, channel] = [&self.key, &self.channel].map(String::as_bytes);
        let words: [&[u8]; 10] = [
            b"LOCK.ACQUIRE",
            key,
            b"PX",
            LEASE_MS.as_bytes(),
            b"WAIT",
            WAIT_MS.as_bytes(),
            b"ID",
            id.as_bytes(),
            b"NOTIFY",
            channel,
        ];
        send(&self.commands, &words);
        self.replies.push_back(Asked::Acquire(caller));
    }

    fn reply(&mut self, line: &str) {
        match self.replies.pop_front().expect("a reply to something") {
            Asked::Acquire(_) if line == "+WAITING" => {}
            Asked::Acquire(caller) => {
                let token = line.strip_prefix(':').unwrap_or_else(|| panic!("not granted: {line}")).to_string();
                let own = &mut self.callers[caller];
                let _ = writeln!(own.grants, "{} {}", now_us(), own.asked.elapsed().as_micros());
                self.attempts.remove(&own.id);
                send(&self.commands, &[b"LOCK.RELEASE", self.key.as_bytes(), token.as_bytes()]);
                self.replies.push_back(Asked::Release);
                self.ask(caller);
            }
            Asked::Release => assert_eq!(line, ":1"),
        }
    }

    fn message(&mut self, text: &str) {
        let Some(rest) = text.strip_prefix("granted ") else { return };
        let id = rest.split(' ').next().and_then(|id| id.parse().ok()).expect("an ID");
        if let Some(caller) = self.attempts.get(&id) {
            self.send(*caller);
        }
    }
}

/// Runs as the client process.
pub fn run(port: u16, key: &str, dir: &Path, clients: usize) {
    let channel = format!("{key}:channel");
    let commands = connect(port);
    let mut lines = BufReader::new(commands.try_clone().unwrap()).lines().map(Result::unwrap);
    send(&commands, &[b"HELLO", b"3"]);
    send(&commands, &[b"SUBSCRIBE", channel.as_bytes()]);
    send(&commands, &[b"ECHO", b"ready"]);
    lines.by_ref().find(|line| line == "ready");
    let (start, end) = await_start(port, key, clients);
    let callers = (0..clients).map(|_| Caller { id: 0, asked: Instant::now(), grants: String::new() }).collect();
    let mut all = Clients {
        commands,
        key: key.to_string(),
        channel,
        callers,
        attempts: HashMap::new(),
        replies: VecDeque::new(),
        last: 0,
        end,
    };
    sleep_until(start);
    (0..clients).for_each(|caller| all.ask(caller));
    while !(all.attempts.is_empty() && all.replies.is_empty()) {
        let line = lines.next().expect("a line from the server");
        if line.starts_with([':', '+', '_', '-']) {
            all.reply(&line);
        } else {
            // Only the last line of a push matters.
            all.message(&line);
        }
    }
    for (number, caller) in all.callers.iter().enumerate() {
        std::fs::write(dir.join(number.to_string()), &caller.grants).unwrap();
    }
}
