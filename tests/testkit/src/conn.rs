//! A raw connection to a server, and queries that many tests use.

use super::{until, Reply, DEADLINE};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The server's clock, in microseconds.
pub fn server_time_us(conn: &mut Conn) -> i64 {
    let reply = conn.execute(&["TIME"]);
    let part = |n: usize| reply.list()[n].text().parse::<i64>().unwrap();
    part(0) * 1_000_000 + part(1)
}

/// A lock's value, or a set's members with their scores, and its native expiry as in `expire_at_ms`.
pub fn content(conn: &mut Conn, key: &str) -> String {
    let is_set = conn.text(&["TYPE", key]) == "zset";
    let command: &[&str] = if is_set { &["ZRANGE", key, "0", "-1", "WITHSCORES"] } else { &["GET", key] };
    let words: Vec<String> = match conn.execute(command) {
        Reply::Nil => Vec::new(),
        Reply::List(members) => members.iter().map(Reply::text).collect(),
        value => vec![value.text()],
    };
    format!("{} until {}", words.join(" "), expire_at_ms(conn, key))
}

/// A key's expiry in Unix milliseconds, on every version; -1: none, -2: there is no such key.
pub fn expire_at_ms(conn: &mut Conn, key: &str) -> i64 {
    if let Reply::Int(at) = conn.execute(&["PEXPIRETIME", key]) {
        return at;
    }
    // Before 7.0: the remaining time, read within one millisecond of the clock.
    until("three answers within a millisecond", || {
        let before = server_time_us(conn) / 1000;
        let left = conn.int(&["PTTL", key]);
        let after = server_time_us(conn) / 1000;
        if left < 0 {
            return Some(left);
        }
        (before == after).then_some(before + left)
    })
}

/// A raw connection.
pub struct Conn {
    pub(super) reader: BufReader<TcpStream>,
}

impl Conn {
    /// A new connection to a port on this machine, for a process that has no [`Server`].
    pub fn to(port: u16) -> std::io::Result<Self> {
        Self::over(TcpStream::connect(("127.0.0.1", port))?)
    }

    /// An open connection.
    pub fn over(stream: TcpStream) -> std::io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        Ok(Conn { reader: BufReader::new(stream) })
    }

    /// Sets how long to wait for a reply, instead of [`DEADLINE`].
    pub fn set_patience(&mut self, time: Duration) {
        self.reader.get_ref().set_read_timeout(Some(time)).unwrap();
    }

    /// Reads and drops everything until the server closes the connection.
    pub fn drain(mut self) {
        let _ = self.reader.get_ref().set_read_timeout(None);
        let _ = std::io::copy(&mut self.reader, &mut std::io::sink());
    }

    /// Sends a command without waiting for its reply; an error when the server is gone.
    pub fn try_send(&mut self, args: &[impl AsRef<[u8]>]) -> std::io::Result<()> {
        self.reader.get_mut().write_all(&encoded(args))
    }

    /// Sends a command without waiting for its reply.
    pub fn send(&mut self, args: &[impl AsRef<[u8]>]) {
        self.send_bytes(&encoded(args));
    }

    /// Sends bytes unchanged.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).expect("the server reads");
    }

    /// Sends bytes unchanged; an error when the server has closed the connection.
    pub fn try_send_bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// Sends a command and returns its reply, parsed.
    pub fn execute(&mut self, args: &[impl AsRef<[u8]>]) -> Reply {
        self.send(args);
        self.read()
    }

    /// Sends a command and returns its reply; an error when the server is gone or does not answer.
    pub fn try_execute(&mut self, args: &[impl AsRef<[u8]>]) -> std::io::Result<Reply> {
        self.try_send(args)?;
        self.try_read()
    }

    /// Like [`Conn::try_execute`], with its own time-out.
    pub fn try_execute_for(&mut self, args: &[impl AsRef<[u8]>], time: Duration) -> std::io::Result<Reply> {
        self.reader.get_ref().set_read_timeout(Some(time))?;
        let reply = self.try_execute(args);
        self.reader.get_ref().set_read_timeout(Some(DEADLINE))?;
        reply
    }

    /// Sends a command and returns the exact bytes of its reply.
    pub fn raw(&mut self, args: &[impl AsRef<[u8]>]) -> Vec<u8> {
        self.try_raw(args).expect("a reply")
    }

    pub(super) fn try_raw(&mut self, args: &[impl AsRef<[u8]>]) -> std::io::Result<Vec<u8>> {
        self.try_send(args)?;
        let mut bytes = Vec::new();
        self.read_into(&mut bytes)?;
        Ok(bytes)
    }

    /// Sends a command that must reply +OK.
    pub fn ok(&mut self, args: &[impl AsRef<[u8]>]) {
        let reply = self.execute(args);
        assert_eq!(reply, Reply::Status("OK".into()));
    }

    /// Sends a command and returns its reply as text.
    pub fn text(&mut self, args: &[impl AsRef<[u8]>]) -> String {
        match self.execute(args) {
            Reply::Other(text) => text,
            other => other.text(),
        }
    }

    /// Sends a command and returns its integer reply.
    pub fn int(&mut self, args: &[impl AsRef<[u8]>]) -> i64 {
        self.execute(args).int()
    }

    /// A field of a section of INFO; `None` if the section does not have it.
    pub fn info(&mut self, section: &str, field: &str) -> Option<String> {
        self.execute(&["INFO", section]).line(field)
    }

    /// Whether the server is Valkey, and its major and minor version.
    pub fn version(&mut self) -> (bool, u32, u32) {
        self.execute(&["INFO", "server"]).version().expect("a version")
    }

    /// Whether this is Redis before 7.0, which has no module settings in CONFIG and no command documentation.
    pub fn is_before_7(&mut self) -> bool {
        self.version() < (false, 7, 0)
    }

    /// Whether keyspace events are on: Valkey 8.1 to 9.1.2 moves the client when they are.
    pub fn has_key_events(&mut self) -> bool {
        has_key_events(self.version())
    }

    /// How many times the server executed a command, according to its statistics.
    pub fn calls(&mut self, command: &str) -> usize {
        // Before 7.0 they use the names of commands as registered.
        let statistics = self.text(&["INFO", "commandstats"]).to_lowercase();
        let line = format!("cmdstat_{command}:calls=");
        let calls = statistics.lines().find_map(|text| text.strip_prefix(&line)?.split(',').next()?.parse().ok());
        calls.unwrap_or(0)
    }

    /// A field of LOCK.INFO.
    pub fn lock(&mut self, key: &str, field: &str) -> Reply {
        self.execute(&["LOCK.INFO", key]).field(field)
    }

    /// Whether a lock is free, held, expired or foreign.
    pub fn state(&mut self, key: &str) -> String {
        self.lock(key, "state").text()
    }

    /// How many clients are waiting for a lock.
    pub fn waiters(&mut self, key: &str) -> i64 {
        self.lock(key, "waiters").int()
    }

    /// Sends a command with WAIT, and returns once `waits` sees it waiting. A short wait may be over before that, but
    /// no reply comes earlier.
    pub fn send_and_wait(&mut self, command: &[&str], mut waits: impl FnMut() -> bool) {
        let time = command.iter().position(|word| *word == "WAIT").and_then(|at| command.get(at + 1)?.parse().ok());
        let time = time.map_or(Duration::MAX, Duration::from_millis);
        let begin = Instant::now();
        self.send(command);
        until("it waits", || {
            if waits() {
                return Some(());
            }
            let is_over = self.has_reply();
            assert!(!is_over || begin.elapsed() >= time, "a reply before its time: {command:?}");
            is_over.then_some(())
        });
    }

    pub fn until_waiters(&mut self, key: &str, count: i64) {
        until(&format!("{count} waiting for {key}"), || (self.waiters(key) == count).then_some(()));
    }

    /// Sends this LOCK.ACQUIRE until it is granted. Returns the token.
    pub fn until_granted(&mut self, acquire: &[&str]) -> i64 {
        until("a grant", || match self.execute(acquire) {
            Reply::Int(token) => Some(token),
            _ => None,
        })
    }

    /// Waits for the next reply.
    pub fn read(&mut self) -> Reply {
        self.try_read().expect("a reply")
    }

    /// Waits for the next reply, and returns its exact bytes.
    pub fn raw_reply(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.read_into(&mut bytes).expect("a reply");
        bytes
    }

    /// Waits for the next reply; an error if the connection closed or timed out.
    pub fn try_read(&mut self) -> std::io::Result<Reply> {
        let mut bytes = Vec::new();
        self.read_into(&mut bytes)
    }

    /// Whether no reply arrives within `time`.
    pub fn no_reply_within(&mut self, time: Duration) -> bool {
        self.reader.get_ref().set_read_timeout(Some(time)).unwrap();
        let timed_out = match self.reader.fill_buf() {
            Ok(_) => false,
            Err(error) => matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
        };
        self.reader.get_ref().set_read_timeout(Some(DEADLINE)).unwrap();
        timed_out
    }

    /// Whether unread bytes have arrived.
    pub fn has_reply(&mut self) -> bool {
        self.reader.get_ref().set_nonblocking(true).unwrap();
        let has = self.reader.fill_buf().is_ok_and(|bytes| !bytes.is_empty());
        self.reader.get_ref().set_nonblocking(false).unwrap();
        has
    }

    /// Reads the RDB, which precedes the replication stream after SYNC or PSYNC.
    #[must_use]
    pub fn after_rdb(mut self) -> Self {
        // Empty lines keep the link alive while the server writes the RDB, which then arrives as `$length` and that
        // many bytes, or as `$EOF:mark`, bytes and the mark.
        let mut line = String::new();
        while line.trim().is_empty() || line.starts_with('+') {
            line.clear();
            self.reader.read_line(&mut line).expect("an answer to SYNC");
        }
        let begin = line.trim().strip_prefix('$').unwrap_or_else(|| panic!("no RDB: {line}"));
        if let Some(mark) = begin.strip_prefix("EOF:") {
            let mut bytes = Vec::new();
            while !bytes.ends_with(mark.as_bytes()) {
                let mut byte = [0];
                self.reader.read_exact(&mut byte).expect("the RDB");
                bytes.extend(byte);
            }
        } else {
            let length: u64 = begin.parse().unwrap_or_else(|_| panic!("not the length of an RDB: {line}"));
            std::io::copy(&mut self.reader.by_ref().take(length), &mut std::io::sink()).unwrap();
        }
        self
    }

    fn read_into(&mut self, raw: &mut Vec<u8>) -> std::io::Result<Reply> {
        let start = raw.len();
        if self.reader.read_until(b'\n', raw)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = String::from_utf8_lossy(&raw[start..]).trim_end().to_string();
        let (kind, rest) = line.split_at(1);
        let count = || rest.parse::<i64>().map_err(std::io::Error::other);
        Ok(match kind {
            "+" => Reply::Status(rest.into()),
            "-" => Reply::Error(rest.into()),
            ":" => Reply::Int(count()?),
            "_" => Reply::Nil,
            "$" | "=" => match count()? {
                -1 => Reply::Nil,
                length => {
                    let length = usize::try_from(length).map_err(std::io::Error::other)?;
                    let from = raw.len();
                    raw.resize(from + length + 2, 0);
                    self.reader.read_exact(&mut raw[from..])?;
                    let bytes = raw[from..from + length].to_vec();
                    // A verbatim string begins with its format, `txt:`.
                    Reply::Text(if kind == "=" { bytes[4..].to_vec() } else { bytes })
                }
            },
            "*" | ">" | "~" => match count()? {
                -1 => Reply::Nil,
                count => Reply::List((0..count).map(|_| self.read_into(raw)).collect::<Result<_, _>>()?),
            },
            "%" => {
                let mut pairs = Vec::new();
                for _ in 0..count()? {
                    pairs.push((self.read_into(raw)?, self.read_into(raw)?));
                }
                Reply::Map(pairs)
            }
            _ => Reply::Other(line),
        })
    }
}

/// Like [`Conn::has_key_events`], for a version.
pub fn has_key_events((is_valkey, major, minor): (bool, u32, u32)) -> bool {
    !is_valkey || !((8, 1)..(9, 2)).contains(&(major, minor))
}

/// A command as sent.
pub fn encoded(args: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        let arg = arg.as_ref();
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}
