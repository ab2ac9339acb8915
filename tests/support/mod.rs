//! Starts real servers with the module and talks to them.
//!
//! A [`Server`] listens on a free port of 127.0.0.1 in a directory of its own and is ended by its
//! process id when dropped; if the test panicked, the tail of its log is printed. [`Conn`] speaks
//! raw RESP, so that a test can look at the very bytes. [`until`] waits with a deadline.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod nets;
pub mod relay;
pub mod watch;

use std::ffi::OsString;
use std::fmt::{Display, Write as _};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long anything may take that has no time of its own.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// The module, built in release mode on first use, so that no test runs against a stale one.
///
/// `LOCK_MODULE` names another file to test instead.
pub fn module() -> &'static Path {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE.get_or_init(|| {
        if let Some(path) = std::env::var_os("LOCK_MODULE") {
            return PathBuf::from(path);
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let status = Command::new(env!("CARGO"))
            .args(["build", "--release", "--lib", "--quiet"])
            .current_dir(root)
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the module does not build");
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
        target.join("release/libredis_lock.so")
    })
}

/// The server binary: `REDIS_SERVER`, or `redis-server` of the PATH.
pub fn server_binary() -> OsString {
    std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

/// Lets tests use DEBUG and MODULE LOAD, on servers that close them by default.
const SWITCHES: &[&str] = &["--enable-debug-command", "yes", "--enable-module-command", "yes"];

/// Whether the server has the [`SWITCHES`]: all but 6.x.
fn knows_command_switches(binary: &OsString) -> bool {
    let output = Command::new(binary).arg("--version").output().expect("the server binary can be run");
    !String::from_utf8_lossy(&output.stdout).contains("v=6.")
}

/// A port of 127.0.0.1 that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// A new empty directory under the system's temporary one.
pub fn temp_dir() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let dir = std::env::temp_dir().join(format!(
        "redis-lock-{}-{}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    ));
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// Waits until `done` gives a value; panics with `what` after [`DEADLINE`].
pub fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(Instant::now() < end, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Writes a script that can be run at once. A process of its own writes it: if this one did, a child that another thread
/// is just starting could have the file open too, and what is open for writing cannot be run.
pub fn write_program(path: &Path, text: &str) {
    let mut writer = Command::new("sh");
    writer.args(["-c", "cat >\"$0\" && chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut writer = writer.spawn().expect("sh runs");
    writer.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success(), "{} cannot be written", path.display());
}

/// Sends a signal by name, for example `KILL`, `STOP`, `CONT`; whether there is such a process.
pub fn signal(pid: impl Display, name: &str) -> bool {
    // The shell's own kill: a bare Debian has no other.
    let script = ["-c", "kill -s \"$0\" \"$1\" 2>&-", name, &pid.to_string()];
    Command::new("sh").args(script).status().is_ok_and(|status| status.success())
}

/// Set when it is dropped: who works until it is set ends also when the test panics, else a scope would wait for ever.
pub struct SetAtEnd<'a>(pub &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The timestamp in a value that the module wrote, in microseconds.
pub fn timestamp_us(value: &str) -> i64 {
    let (seconds, rest) = value.split_once('.').unwrap_or_else(|| panic!("not ours: {value}"));
    assert!(seconds.len() == 10 && rest.len() >= 22, "not ours: {value}");
    format!("{seconds}{}", &rest[..6]).parse().unwrap()
}

/// The time of the server's clock, in microseconds.
pub fn server_time_us(conn: &mut Conn) -> i64 {
    let reply = conn.call(&["TIME"]);
    let part = |n: usize| reply.list()[n].text().parse::<i64>().unwrap();
    part(0) * 1_000_000 + part(1)
}

/// When a key ends, in Unix milliseconds, on every version; -1: never, -2: there is no such key.
pub fn expire_at_ms(conn: &mut Conn, key: &str) -> i64 {
    if let Reply::Int(at) = conn.call(&["PEXPIRETIME", key]) {
        return at;
    }
    // Before 7.0: what is left, asked for within one millisecond of the clock.
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

/// What a server is to be started with.
#[derive(Clone, Default)]
pub struct Options {
    binary: Option<OsString>,
    args: Vec<String>,
    module_args: Vec<String>,
    without_module: bool,
    dir: Option<PathBuf>,
    env: Vec<(String, String)>,
}

impl Options {
    /// Adds command-line arguments of the server, for example `["--appendonly", "yes"]`.
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(ToString::to_string));
        self
    }

    /// Adds arguments of the module, for example `["margin-ms", "0"]`.
    pub fn module_args(mut self, args: &[&str]) -> Self {
        self.module_args.extend(args.iter().map(ToString::to_string));
        self
    }

    /// A plain server, without the module.
    pub fn without_module(mut self) -> Self {
        self.without_module = true;
        self
    }

    /// Another server binary than [`server_binary`].
    pub fn binary(mut self, binary: impl Into<OsString>) -> Self {
        self.binary = Some(binary.into());
        self
    }

    /// An environment variable of the server.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// A directory with data of an earlier server; the caller removes it.
    pub fn dir(mut self, dir: &Path) -> Self {
        self.dir = Some(dir.to_path_buf());
        self
    }

    /// Starts the server and waits until it answers PING.
    pub fn start(self) -> Server {
        self.try_start().unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    /// Starts the server; and a connection to it.
    pub fn connected(self) -> (Server, Conn) {
        let server = self.start();
        let conn = server.conn();
        (server, conn)
    }

    /// Starts the server; its log if it ended instead of answering.
    pub fn try_start(self) -> Result<Server, String> {
        // A port that was free can be taken by another test a moment later.
        for _ in 0..5 {
            match self.try_start_once() {
                Err(log) if log.contains("Address already in use") => {}
                result => return result,
            }
        }
        self.try_start_once()
    }

    fn try_start_once(&self) -> Result<Server, String> {
        // Built before anything is made that would stay behind if it does not build.
        let module = (!self.without_module).then(module);
        let port = free_port();
        let owns_dir = self.dir.is_none();
        let dir = self.dir.clone().unwrap_or_else(temp_dir);
        let log = dir.join(format!("server-{port}.log"));
        let binary = self.binary.clone().unwrap_or_else(server_binary);
        let mut command = Command::new(&binary);
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--daemonize", "no", "--logfile", log.to_str().unwrap()])
            .args(["--dir", dir.to_str().unwrap()])
            .args(if knows_command_switches(&binary) { SWITCHES } else { &[] })
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(module) = module {
            command.arg("--loadmodule").arg(module).args(&self.module_args);
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server binary can be run");
        let watched = watch::watch(child.id(), "KILL");
        let mut server =
            Server { child, port, dir, owns_dir, log, has_silent_changes: AtomicBool::new(false), _watched: watched };
        let end = Instant::now() + DEADLINE;
        loop {
            if let Ok(Some(_)) = server.child.try_wait() {
                return Err(server.log_tail(60));
            }
            if server.answers() {
                return Ok(server);
            }
            assert!(Instant::now() < end, "the server does not answer:\n{}", server.log_tail(60));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A running server; dropped, it is killed by its process id.
pub struct Server {
    child: Child,
    port: u16,
    dir: PathBuf,
    owns_dir: bool,
    log: PathBuf,
    has_silent_changes: AtomicBool,
    _watched: watch::Watched,
}

impl Server {
    /// From here on locks change in ways that the server tells nobody of: the scan of all lines may find that one is free.
    pub fn allow_silent_changes(&self) {
        self.has_silent_changes.store(true, Ordering::Relaxed);
    }

    /// A server with the module, in its default settings.
    pub fn start() -> Self {
        Options::default().start()
    }

    /// The same, and a connection to it.
    pub fn connected() -> (Self, Conn) {
        Options::default().connected()
    }

    /// Options to start one with.
    pub fn with() -> Options {
        Options::default()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn log_tail(&self, lines: usize) -> String {
        let log = self.log();
        let all: Vec<&str> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// A new raw connection, RESP2, with [`DEADLINE`] as its read time-out.
    pub fn conn(&self) -> Conn {
        self.try_conn().expect("the server accepts")
    }

    /// Whether it is this server that answers on its port, and no other test's.
    fn answers(&self) -> bool {
        let Some(mut conn) = self.try_conn() else { return false };
        let mine = format!("process_id:{}\r\n", self.pid());
        let info = conn.try_raw(&["INFO", "server"]).unwrap_or_default();
        info.windows(mine.len()).any(|window| window == mine.as_bytes())
            && conn.try_raw(&["PING"]).is_ok_and(|reply| reply == b"+PONG\r\n")
    }

    fn try_conn(&self) -> Option<Conn> {
        Conn::to(self.port).ok()
    }

    /// The replication stream from here on: each `read` gives one command of it.
    pub fn replication_stream(&self) -> Conn {
        let mut conn = self.conn();
        conn.send(&["SYNC"]);
        // Empty lines keep the link alive while the server writes the RDB, which then comes as
        // `$length` and that many bytes.
        let mut line = String::new();
        while line.trim().is_empty() {
            line.clear();
            conn.reader.read_line(&mut line).expect("an answer to SYNC");
        }
        let length = line.trim().strip_prefix('$').and_then(|length| length.parse().ok());
        let length: u64 = length.unwrap_or_else(|| panic!("not the length of an RDB: {line}"));
        std::io::copy(&mut conn.reader.by_ref().take(length), &mut std::io::sink()).unwrap();
        conn
    }

    /// A connection of the crate redis.
    pub fn client(&self) -> redis::Connection {
        redis::Client::open(format!("redis://127.0.0.1:{}/", self.port))
            .unwrap()
            .get_connection_with_timeout(DEADLINE)
            .unwrap()
    }

    /// Waits for the server to end by itself, after SHUTDOWN for example.
    pub fn wait_end(&mut self) {
        let child = &mut self.child;
        until("the server ends", || child.try_wait().unwrap());
    }

    /// Sends a signal by name, for example `KILL`, `STOP`, `CONT`.
    pub fn signal(&self, name: &str) {
        assert!(signal(self.pid(), name));
    }

    /// Makes this server a replica of `master` and waits until the link is up.
    pub fn replicate(&self, master: &Server) {
        let mut conn = self.conn();
        conn.ok(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
        until("the replica is in sync", || {
            conn.text(&["INFO", "replication"]).contains("master_link_status:up").then_some(())
        });
    }

    /// Waits until `replica` has everything that this server wrote.
    pub fn wait_offset(&self, replica: &Server) {
        let offset = |text: &str, field: &str| -> Option<u64> {
            text.lines().find_map(|line| line.strip_prefix(field)?.trim().parse().ok())
        };
        let (mut here, mut there) = (self.conn(), replica.conn());
        until("the replica has caught up", || {
            let mine = offset(&here.text(&["INFO", "replication"]), "master_repl_offset:")?;
            let theirs = offset(&there.text(&["INFO", "replication"]), "slave_repl_offset:")?;
            (mine == theirs).then_some(())
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of the server on port {}:\n{}", self.port, self.log_tail(40));
        }
        let missed =
            if self.has_silent_changes.load(Ordering::Relaxed) { None } else { nets::missed_wakeups(self.port) };
        // Of `scripts/memcheck.sh`: what was not freed is told by a server that ends itself.
        if std::env::var_os("LOCK_TERM").is_some() {
            signal(self.pid(), "TERM");
            let end = Instant::now() + DEADLINE;
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if self.owns_dir {
            let _ = fs::remove_dir_all(&self.dir);
        }
        if !std::thread::panicking() {
            assert_eq!(
                missed.unwrap_or(0),
                0,
                "wake-ups were missed: only the scan of all lines found that a lock was free"
            );
        }
    }
}

/// A reply, parsed.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Nil,
    Int(i64),
    Text(Vec<u8>),
    Status(String),
    Error(String),
    List(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    Other(String),
}

impl Reply {
    pub fn int(&self) -> i64 {
        match self {
            Reply::Int(n) => *n,
            other => panic!("not an integer: {other:?}"),
        }
    }

    pub fn list(&self) -> &[Reply] {
        match self {
            Reply::List(items) => items,
            other => panic!("not an array: {other:?}"),
        }
    }

    pub fn is_nil(&self) -> bool {
        matches!(self, Reply::Nil)
    }

    /// The error text, code word first; panics if the reply is none.
    pub fn error(&self) -> &str {
        match self {
            Reply::Error(text) => text,
            other => panic!("not an error: {other:?}"),
        }
    }

    pub fn text(&self) -> String {
        match self {
            Reply::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Reply::Status(text) => text.clone(),
            other => panic!("not a string: {other:?}"),
        }
    }

    /// The value of a field of a map, in RESP2 (flat array) or RESP3.
    pub fn field(&self, name: &str) -> Reply {
        let named = |key: &Reply| *key == Reply::Text(name.as_bytes().to_vec()) || *key == Reply::Status(name.into());
        match self {
            Reply::List(items) => items.chunks(2).find(|pair| named(&pair[0])).map(|pair| pair[1].clone()),
            Reply::Map(pairs) => pairs.iter().find(|(key, _)| named(key)).map(|(_, value)| value.clone()),
            other => panic!("not a map: {other:?}"),
        }
        .unwrap_or_else(|| panic!("no field {name}: {self:?}"))
    }
}

/// A raw connection.
pub struct Conn {
    reader: BufReader<TcpStream>,
}

impl Conn {
    /// A new connection to a port of this machine; for a process that has no [`Server`].
    pub fn to(port: u16) -> std::io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        Ok(Conn { reader: BufReader::new(stream) })
    }

    /// How long to wait for a reply instead of [`DEADLINE`].
    pub fn set_patience(&mut self, time: Duration) {
        self.reader.get_ref().set_read_timeout(Some(time)).unwrap();
    }

    /// Sends a command without waiting for its reply; an error when the server is gone.
    pub fn try_send(&mut self, args: &[impl AsRef<[u8]>]) -> std::io::Result<()> {
        self.reader.get_mut().write_all(&encoded(args))
    }

    /// Sends a command without waiting for its reply.
    pub fn send(&mut self, args: &[impl AsRef<[u8]>]) {
        self.send_bytes(&encoded(args));
    }

    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).expect("the server reads");
    }

    /// Sends bytes as they are; an error when the server has closed the connection.
    pub fn try_send_bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// Sends a command and gives its reply, parsed.
    pub fn call(&mut self, args: &[impl AsRef<[u8]>]) -> Reply {
        self.send(args);
        self.read()
    }

    /// Sends a command and gives its reply; an error when the server is gone or does not answer.
    pub fn try_call(&mut self, args: &[impl AsRef<[u8]>]) -> std::io::Result<Reply> {
        self.try_send(args)?;
        self.try_read()
    }

    /// As [`Conn::try_call`], with a time-out of its own.
    pub fn try_call_for(&mut self, args: &[impl AsRef<[u8]>], time: Duration) -> std::io::Result<Reply> {
        self.reader.get_ref().set_read_timeout(Some(time))?;
        let reply = self.try_call(args);
        self.reader.get_ref().set_read_timeout(Some(DEADLINE))?;
        reply
    }

    /// Sends a command and gives the very bytes of its reply.
    pub fn raw(&mut self, args: &[impl AsRef<[u8]>]) -> Vec<u8> {
        self.try_raw(args).expect("a reply")
    }

    fn try_raw(&mut self, args: &[impl AsRef<[u8]>]) -> std::io::Result<Vec<u8>> {
        self.send(args);
        let mut bytes = Vec::new();
        self.read_into(&mut bytes)?;
        Ok(bytes)
    }

    /// Sends a command that must answer +OK.
    pub fn ok(&mut self, args: &[impl AsRef<[u8]>]) {
        let reply = self.call(args);
        assert_eq!(reply, Reply::Status("OK".into()));
    }

    /// Sends a command and gives its reply as text.
    pub fn text(&mut self, args: &[impl AsRef<[u8]>]) -> String {
        match self.call(args) {
            Reply::Other(text) => text,
            other => other.text(),
        }
    }

    /// Sends a command and gives its integer reply.
    pub fn int(&mut self, args: &[impl AsRef<[u8]>]) -> i64 {
        self.call(args).int()
    }

    /// Waits for the next reply.
    pub fn read(&mut self) -> Reply {
        self.try_read().expect("a reply")
    }

    /// Waits for the next reply; an error when the connection ended or the time-out passed.
    pub fn try_read(&mut self) -> std::io::Result<Reply> {
        let mut bytes = Vec::new();
        self.read_into(&mut bytes)
    }

    /// Whether no reply comes within `time`.
    pub fn silent_for(&mut self, time: Duration) -> bool {
        self.reader.get_ref().set_read_timeout(Some(time)).unwrap();
        let silent = match self.reader.fill_buf() {
            Ok(_) => false,
            Err(error) => matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
        };
        self.reader.get_ref().set_read_timeout(Some(DEADLINE)).unwrap();
        silent
    }

    /// Whether something has arrived that was not read.
    pub fn has_reply(&mut self) -> bool {
        self.reader.get_ref().set_nonblocking(true).unwrap();
        let has = self.reader.fill_buf().is_ok_and(|bytes| !bytes.is_empty());
        self.reader.get_ref().set_nonblocking(false).unwrap();
        has
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
                    // A verbatim string opens with its format, `txt:`.
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

/// A command as it is sent.
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

/// Bytes as text for messages: printable ASCII as it is, the rest escaped.
pub fn show(bytes: &[u8]) -> String {
    let mut out = String::new();
    for byte in bytes {
        let _ = write!(out, "{}", byte.escape_ascii());
    }
    out
}
