//! A test's server: how it starts, what tests can do with it, and how it ends.

use super::conn::has_key_events;
use super::program::end_within;
use super::{free_port, module, server_args, server_binary, signal, temp_dir, until, watch, Conn, DEADLINE};
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Lets tests use DEBUG and MODULE LOAD on servers that disable them by default.
const SWITCHES: &[&str] = &["--enable-debug-command", "yes", "--enable-module-command", "yes"];

/// The line in which the server reports its version and its allocator.
fn version_line(binary: &OsString) -> String {
    let output = Command::new(binary).arg("--version").output().expect("the server binary can be run");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether the server has the [`SWITCHES`]: all but 6.x.
fn knows_command_switches(binary: &OsString) -> bool {
    !version_line(binary).contains("v=6.")
}

/// Whether the server uses the C library's allocator, which may be slow to return memory.
pub fn allocates_with_libc() -> bool {
    version_line(&server_binary()).contains("malloc=libc")
}

/// The options of a server.
#[derive(Clone, Default)]
pub struct Options {
    binary: Option<OsString>,
    args: Vec<String>,
    module_args: Vec<String>,
    without_module: bool,
    dir: Option<PathBuf>,
    config: Option<PathBuf>,
    env: Vec<(String, String)>,
    preloaded: Vec<PathBuf>,
}

impl Options {
    /// Adds command-line arguments for the server, for example `["--appendonly", "yes"]`.
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(ToString::to_string));
        self
    }

    /// Adds arguments for the module, for example `["margin-ms", "0"]`.
    pub fn module_args(mut self, args: &[&str]) -> Self {
        self.module_args.extend(args.iter().map(ToString::to_string));
        self
    }

    /// A plain server, without the module.
    pub fn without_module(mut self) -> Self {
        self.without_module = true;
        self
    }

    /// A server binary other than [`server_binary`].
    pub fn binary(mut self, binary: impl Into<OsString>) -> Self {
        self.binary = Some(binary.into());
        self
    }

    /// An environment variable for the server.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// A shared library that the server loads before all others.
    pub fn preload(mut self, library: &Path) -> Self {
        self.preloaded.push(library.into());
        self
    }

    /// A directory with an earlier server's data; the caller removes it.
    pub fn dir(mut self, dir: &Path) -> Self {
        self.dir = Some(dir.to_path_buf());
        self
    }

    /// A configuration file, which the other arguments override; the server starts in its folder.
    pub fn config(mut self, file: &Path) -> Self {
        self.config = Some(file.to_path_buf());
        self
    }

    /// Starts the server and waits until it answers PING.
    pub fn start(self) -> Server {
        self.try_start().unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    /// Starts the server and connects to it.
    pub fn connected(self) -> (Server, Conn) {
        let server = self.start();
        let conn = server.conn();
        (server, conn)
    }

    /// Starts the server; returns its log if it exits instead of answering.
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
        // The module is built before anything is created that would be left behind if the build fails.
        let module = (!self.without_module).then(module);
        let port = free_port();
        let owns_dir = self.dir.is_none();
        let dir = self.dir.clone().unwrap_or_else(temp_dir);
        let log = dir.join(format!("server-{port}.log"));
        let binary = self.binary.clone().unwrap_or_else(server_binary);
        let mut command = Command::new(fs::canonicalize(&binary).map_or(binary.clone(), Into::into));
        if let Some(config) = &self.config {
            command.arg(config).current_dir(config.parent().unwrap());
        }
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--daemonize", "no", "--logfile", log.to_str().unwrap()])
            .args(["--dir", dir.to_str().unwrap()])
            .args(if knows_command_switches(&binary) { SWITCHES } else { &[] })
            .args(if self.binary.is_none() { server_args() } else { Vec::new() })
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        if !self.preloaded.is_empty() {
            command.env("LD_PRELOAD", env::join_paths(&self.preloaded).unwrap());
        }
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

/// A running server. Dropping it kills it by its process id.
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
    /// From here on locks may change without an event, so the scan of all queues may find a free lock.
    pub fn allow_silent_changes(&self) {
        self.has_silent_changes.store(true, Ordering::Relaxed);
    }

    /// A server with the module and default settings.
    pub fn start() -> Self {
        Options::default().start()
    }

    /// Like [`Server::start`], with a connection to it.
    pub fn connected() -> (Self, Conn) {
        Options::default().connected()
    }

    /// Options for starting one.
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

    /// Whether this server answers on its port, and not another test's.
    fn answers(&self) -> bool {
        let Some(mut conn) = self.try_conn() else { return false };
        let mine = format!("process_id:{}\r\n", self.pid());
        let info = conn.try_raw(&["INFO", "server"]).unwrap_or_default();
        info.windows(mine.len()).any(|window| window == mine.as_bytes())
            && conn.try_raw(&["PING"]).is_ok_and(|reply| reply == b"+PONG\r\n")
    }

    /// A new connection that has sent a command but not read the reply.
    pub fn sent(&self, command: &[&str]) -> Conn {
        let mut conn = self.conn();
        conn.send(command);
        conn
    }

    /// A new connection that queues with this LOCK.ACQUIRE.
    pub fn waiter(&self, acquire: &[&str]) -> Conn {
        let mut watcher = self.conn();
        let before = watcher.waiters(acquire[1]);
        let mut waiter = self.conn();
        waiter.send_and_wait(acquire, || watcher.waiters(acquire[1]) == before + 1);
        waiter
    }

    /// The number of grants that only the scan of all queues found. `None` if the server does not answer, or if
    /// keyspace events are off: Valkey 8.1 to 9.1.2.
    fn missed_wakeups(&self) -> Option<u64> {
        let mut conn = self.try_conn()?;
        // A server that is busy, stopped or asks for a password does not report it.
        conn.set_patience(Duration::from_millis(500));
        let is_reported = has_key_events(conn.try_execute(&["INFO", "server"]).ok()?.version()?);
        let missed = conn.try_execute(&["INFO", "lock"]).ok()?.line("lock_missed_wakeups")?;
        missed.parse().ok().filter(|_| is_reported)
    }

    fn try_conn(&self) -> Option<Conn> {
        Conn::to(self.port).ok()
    }

    /// The replication stream from here on: each `read` returns one of its commands.
    pub fn replication_stream(&self) -> Conn {
        self.sent(&["SYNC"]).after_rdb()
    }

    /// Waits for the server to exit, for example after SHUTDOWN.
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
        until("the replica is in sync", || (conn.info("replication", "master_link_status")? == "up").then_some(()));
    }

    /// Waits until `replica` has received everything that this server wrote.
    pub fn wait_offset(&self, replica: &Server) {
        let (mut here, mut there) = (self.conn(), replica.conn());
        until("the replica has caught up", || {
            let mine = here.info("replication", "master_repl_offset")?;
            (mine == there.info("replication", "slave_repl_offset")?).then_some(())
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of the server on port {}:\n{}", self.port, self.log_tail(40));
        }
        // The port of a server that has ended may belong to another test's server by now.
        let runs = matches!(self.child.try_wait(), Ok(None));
        let is_judged = runs && !self.has_silent_changes.load(Ordering::Relaxed);
        let missed = if is_judged { self.missed_wakeups() } else { None };
        // For `scripts/memcheck.sh`: only a server that exits on its own reports leaks.
        if env::var_os("LOCK_TERM").is_some() {
            signal(self.pid(), "TERM");
            end_within(&mut self.child, DEADLINE);
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
                "wake-ups were missed: only the scan of all queues found that a lock was free"
            );
        }
    }
}
