//! Starts real servers with the module and talks to them.
//!
//! A [`Server`] listens on a free port on 127.0.0.1, runs in its own directory, and is killed by its process id when
//! dropped; if the test panicked, the tail of its log is printed. [`Conn`] speaks raw RESP, so that a test can inspect
//! the exact bytes. [`until`] waits with a deadline.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::arithmetic_side_effects, missing_docs)]
#![allow(clippy::should_implement_trait, reason = "`Dice::next` has no end")]
#![allow(clippy::must_use_candidate, clippy::return_self_not_must_use, reason = "a test sees what it leaves unused")]
#![allow(clippy::missing_panics_doc, clippy::missing_errors_doc, reason = "a test ends when anything goes wrong")]

pub mod bound;
pub mod clock;
pub mod cluster;
mod conn;
pub mod dice;
pub mod disk;
pub mod install;
mod iterations;
pub mod program;
pub mod relay;
mod reply;
pub mod sentinel;
mod server;
pub mod watch;

pub use conn::{content, encoded, expire_at_ms, server_time_us, Conn};
pub use iterations::Iterations;
pub use reply::{show, Reply};
pub use server::{allocates_with_libc, Options, Server};

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// The default time-out. Most leases in the tests are longer, so a lock that ends with its lease is not mistaken for
/// one that ended as it should.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// The time-out for thousands of locks or keys at once, which take a busy machine over a minute.
pub const CROWD_DEADLINE: Duration = Duration::from_secs(240);

/// The project's folder.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("this crate is in tests/testkit")
}

/// The folder in which cargo builds.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The module, built in release mode on first use, so that no test runs against a stale one.
///
/// `LOCK_MODULE` names another file to test instead.
pub fn module() -> &'static Path {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE.get_or_init(|| {
        if let Some(path) = std::env::var_os("LOCK_MODULE") {
            return PathBuf::from(path);
        }
        let status = Command::new(env!("CARGO"))
            .args(["build", "--release", "--lib", "--quiet"])
            .current_dir(root())
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the module does not build");
        target().join("release/libredis_lock.so")
    })
}

/// The text of one of the project's files.
pub fn project_file(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

/// Reports that something is skipped, and why. It bypasses the test runner's capture, which hides the output of a
/// passing test.
pub fn skipped(name: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {name}: {why}");
}

/// A C source in this folder as a shared object that a server loads; `None` without a C compiler.
///
/// `SERVER_CC` names the compiler for a server with another C library.
pub fn shared_object(name: &str) -> Option<&'static Path> {
    let compiler = std::env::var("SERVER_CC").unwrap_or_else(|_| "cc".into());
    compiled(name, &compiler, &["-std=gnu11", "-shared", "-fPIC", "-O2"])
}

/// A C source in this folder, compiled on first use by each process; `None` without this C compiler.
pub fn compiled(name: &str, compiler: &str, options: &[&str]) -> Option<&'static Path> {
    static COMPILED: Mutex<BTreeMap<String, Option<&'static Path>>> = Mutex::new(BTreeMap::new());
    let compile = || {
        let dir = target().join("tmp");
        fs::create_dir_all(&dir).ok()?;
        let source = root().join(format!("tests/testkit/src/{name}.c"));
        let made = dir.join(format!("{name}-{}.so", std::process::id()));
        let status = Command::new(compiler).args(options).arg("-o").arg(&made).arg(source).status().ok()?;
        assert!(status.success(), "{name}.c does not compile");
        Some(&*Box::leak(made.into_boxed_path()))
    };
    *COMPILED.lock().unwrap().entry(name.into()).or_insert_with(compile)
}

/// A number that the user can set when starting the tests.
pub fn env_number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// The server binary: `REDIS_SERVER`, or `redis-server` from the PATH.
pub fn server_binary() -> OsString {
    std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

/// More arguments for every server with [`server_binary`], for example `--io-threads 2`: `REDIS_SERVER_ARGS`. The
/// scripts that start several servers read them too.
pub fn server_args() -> Vec<String> {
    let text = std::env::var("REDIS_SERVER_ARGS").unwrap_or_default();
    text.split_whitespace().map(Into::into).collect()
}

/// A port on 127.0.0.1 that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// The first of six ports that were free a moment ago, as were their cluster bus ports: all below the range that the
/// system assigns to programs that ask for any port.
pub fn six_free_ports() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
    loop {
        let at = NEXT.fetch_add(1, Ordering::Relaxed) + (std::process::id() % 1000) as u16;
        let first = 12_000 + (at % 1000) * 6;
        if (first..first + 6).all(|port| is_free(port) && is_free(port + 10_000)) {
            return first;
        }
    }
}

/// A new empty directory under the system's temporary directory.
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

/// Waits until `done` returns a value; panics with `what` after [`DEADLINE`].
pub fn until<T>(what: &str, done: impl FnMut() -> Option<T>) -> T {
    until_within(DEADLINE, what, done)
}

/// Like [`until`], for things that take longer.
pub fn until_within<T>(time: Duration, what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + time;
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(Instant::now() < end, "not within {time:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Writes a script that can be run at once. A separate process writes it: otherwise a child that another thread is just
/// starting could still have the file open, and a file that is open for writing cannot be run.
pub fn write_program(path: &Path, text: &str) {
    let mut writer = Command::new("sh");
    writer.args(["-c", "cat >\"$0\" && chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut writer = writer.spawn().expect("sh runs");
    writer.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success(), "{} cannot be written", path.display());
}

/// Sends a signal by name, for example `KILL`, `STOP`, `CONT`. Returns whether there is such a process.
pub fn signal(pid: impl Display, name: &str) -> bool {
    // This is the shell's own kill, because a bare Debian has no other.
    let script = ["-c", "kill -s \"$0\" \"$1\" 2>&-", name, &pid.to_string()];
    Command::new("sh").args(script).status().is_ok_and(|status| status.success())
}

/// Sets the flag when dropped: threads that work until it is set end even if the test panics. Otherwise a scope would
/// wait forever.
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
