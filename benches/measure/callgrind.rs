//! A server under callgrind: its instructions are counted only while a given piece of work runs.

use super::state::State;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testkit::{server_binary, temp_dir, watch, Conn, Options, Server};

/// The server, and callgrind's output folder.
pub struct Callgrind {
    pub server: Server,
    dumps: usize,
    /// Removed at the end, after the server has gone.
    dir: Dir,
}

struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Callgrind {
    /// Starts a server in the given state under callgrind.
    ///
    /// # Errors
    /// Says why it cannot start: for example, no valgrind on this machine.
    pub fn start(state: State, options: Options) -> Result<Self, String> {
        let options = state.options(options);
        let valgrind = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
        valgrind.map_err(|error| format!("valgrind cannot be run: {error}"))?;
        // Cargo compiles benchmarks as tests, whose servers are killed after ten minutes.
        watch::allow(Duration::from_secs(3_600));
        let dir = Dir(temp_dir());
        let script = dir.0.join("server");
        let text = format!(
            "#!/bin/sh\nexec valgrind --quiet --tool=callgrind --instr-atstart=no --callgrind-out-file='{}/out' '{}' \"$@\"\n",
            dir.0.display(),
            server_binary().display()
        );
        let written =
            fs::write(&script, text).and_then(|()| fs::set_permissions(&script, fs::Permissions::from_mode(0o755)));
        written.map_err(|error| error.to_string())?;
        let server = options.binary(script).try_start();
        let server = server.map_err(|log| format!("the server does not run under valgrind: {log}"))?;
        let mut conn = server.conn();
        // Without its periodic work the server would not notice that the snapshot is complete.
        state.attach_silent_replica(&server);
        if state == State::NoSink {
            until_no_sink_is_found(&mut conn);
        }
        // At this slow speed, the server's periodic work would count for fifty times as much. Servers without this
        // subcommand keep doing it.
        conn.execute(&["DEBUG", "PAUSE-CRON", "1"]);
        Ok(Self { server, dumps: 0, dir })
    }

    /// The server's instructions during `work`.
    ///
    /// # Errors
    /// Names the step that callgrind did not perform.
    pub fn count(&mut self, work: impl FnOnce()) -> Result<f64, String> {
        self.monitor(&["instrumentation", "on"])?;
        work();
        self.monitor(&["instrumentation", "off"])?;
        self.monitor(&["dump"])?;
        self.dumps += 1;
        total(&self.dir.0.join(format!("out.{}", self.dumps)))
    }

    /// Sends valgrind a command during the run.
    fn monitor(&self, command: &[&str]) -> Result<(), String> {
        let mut vgdb = Command::new("vgdb");
        vgdb.arg(format!("--pid={}", self.server.pid())).args(command).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = vgdb.stderr(Stdio::null()).spawn().map_err(|error| format!("vgdb cannot be run: {error}"))?;
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            match child.try_wait().map_err(|error| error.to_string())? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("vgdb {command:?}: {status}")),
                None if Instant::now() < end => std::thread::sleep(Duration::from_millis(2)),
                None => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(format!("vgdb {command:?}: no answer"));
                }
            }
        }
    }
}

/// Takes locks until the module has found, in a tick, that there is no replication sink. Without ticks, that does not
/// change.
fn until_no_sink_is_found(conn: &mut Conn) {
    let unheard = |conn: &mut Conn| conn.info("lock", "lock_unreplicated_writes");
    let before = unheard(conn);
    let end = Instant::now() + Duration::from_secs(20);
    // Before Redis 7.0 every write is replicated.
    while before.is_some() && unheard(conn) == before && Instant::now() < end && !conn.is_before_7() {
        conn.execute(&["LOCK.ACQUIRE", "warm", "PX", "1000"]);
        conn.execute(&["DEL", "warm"]);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The instructions in callgrind's output.
fn total(path: &Path) -> Result<f64, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok());
    total.ok_or_else(|| format!("{}: no totals", path.display()))
}
