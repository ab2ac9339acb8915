//! The server's CPU time for some work.

use super::info;
use std::fs;
use std::time::{Duration, Instant};
use testkit::{Conn, Server};

/// The CPU time of a server, all its threads together.
pub struct ServerCpu {
    pid: u32,
    conn: Conn,
}

impl ServerCpu {
    pub fn of(server: &Server) -> Self {
        Self { pid: server.pid(), conn: server.conn() }
    }

    /// In nanoseconds from the scheduler if available, else from INFO.
    pub fn used(&mut self) -> Duration {
        self.by_scheduler().unwrap_or_else(|| self.by_info())
    }

    /// The source of [`Self::used`].
    pub fn source(&self) -> &'static str {
        if self.by_scheduler().is_some() {
            "schedstat of all threads of the server"
        } else {
            "INFO cpu: used_cpu_user + used_cpu_sys"
        }
    }

    fn by_scheduler(&self) -> Option<Duration> {
        let mut nanos = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.pid)).ok()? {
            // The first of three numbers: time on a CPU.
            let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
            nanos += text.split(' ').next()?.parse::<u64>().ok()?;
        }
        Some(Duration::from_nanos(nanos))
    }

    fn by_info(&mut self) -> Duration {
        let mut seconds = |name| Duration::from_secs_f64(info(&mut self.conn, "cpu", name));
        seconds("used_cpu_user") + seconds("used_cpu_sys")
    }
}

/// The result of one measurement.
#[derive(Clone, Copy)]
pub struct Cost {
    /// The server's CPU time.
    pub cpu: Duration,
    pub wall: Duration,
}

impl Cost {
    /// Runs `work` and returns its cost.
    pub fn of(cpu: &mut ServerCpu, work: impl FnOnce()) -> Self {
        let (cpu_before, start) = (cpu.used(), Instant::now());
        work();
        let wall = start.elapsed();
        Self { cpu: cpu.used().saturating_sub(cpu_before), wall }
    }

    /// Its line in a raw file: operation, contender, round, place, operations, CPU time and wall time.
    pub fn row(&self, operation: &str, contender: &str, round: usize, place: usize, operations: usize) -> String {
        let (place, cpu, wall) = (place + 1, self.cpu.as_nanos(), self.wall.as_nanos());
        format!("\"{operation}\",\"{contender}\",{round},{place},{operations},{cpu},{wall}")
    }

    /// How busy the server was; 1.0 is one core.
    pub fn busy(&self) -> f64 {
        self.cpu.as_secs_f64() / self.wall.as_secs_f64()
    }
}

/// Which of `count` contenders has this place in a round. The first one changes from round to round by `shift`, and the
/// direction changes too.
pub fn turn(place: usize, count: usize, round: usize, shift: usize) -> usize {
    let turn = (place + shift) % count;
    if round.is_multiple_of(2) {
        turn
    } else {
        count - 1 - turn
    }
}
