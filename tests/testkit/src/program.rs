//! A program that a test runs beside the servers and exchanges lines with.

use super::{signal, DEADLINE};
use std::fmt::Display;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How long a line may take, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(2 * DEADLINE.as_secs());

/// A running program. Dropping it kills it and, if the test has failed, prints what it wrote to stderr.
pub struct Program {
    child: Child,
    stdin: ChildStdin,
    said: Receiver<String>,
    complaints: Arc<Mutex<String>>,
}

impl Program {
    pub fn start(command: &mut Command) -> Self {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, said) = channel();
        // Both threads end with the process.
        thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let (mut stderr, complaints) = (child.stderr.take().unwrap(), Arc::new(Mutex::new(String::new())));
        let collected = Arc::clone(&complaints);
        thread::spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok(length @ 1..) = stderr.read(&mut buffer) {
                collected.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        });
        Self { child, stdin, said, complaints }
    }

    /// Sends the program a line.
    pub fn say(&mut self, line: impl Display) {
        writeln!(self.stdin, "{line}").expect("the program reads");
    }

    /// The next line of its output.
    pub fn hear(&self) -> String {
        self.said.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("the program prints nothing: {error}"))
    }

    /// Sends a line, and returns the answer.
    pub fn ask(&mut self, line: impl Display) -> String {
        self.say(line);
        self.hear()
    }

    /// Whether it keeps running and prints nothing for this long.
    pub fn no_line_within(&self, time: Duration) -> bool {
        match self.said.recv_timeout(time) {
            Ok(_) => false,
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => panic!("the program has ended"),
        }
    }

    /// Whether it has ended on its own.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal by name, for example `STOP`, `CONT`.
    pub fn signal(&self, name: &str) {
        assert!(signal(self.child.id(), name));
    }

    /// Kills it without giving it a chance to clean up.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("--- {}", self.complaints.lock().unwrap());
        }
    }
}

/// Waits until a process ends; a process that takes longer is killed, and has no status.
pub fn end_within(child: &mut Child, time: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        if let Some(status) = child.try_wait().expect("a child of this process") {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}
