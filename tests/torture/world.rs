//! The state that a run's clients, faults and checks share.

use super::history::{Effect, Event};
use super::moment::{Clock, Moment, Step, Unix, Watch};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;
use testkit::{bound, Conn};

/// Delays longer than this are stalls, in microseconds.
const NOTABLE: i64 = 100_000;

pub struct World {
    pub watch: Watch,
    /// Without the module, clients call portable/lock.lua instead.
    pub has_module: bool,
    /// The servers' ports for clients, with the best guess first, and how many times they changed.
    servers: Mutex<(Vec<u16>, usize)>,
    pub stop: AtomicBool,
    /// Every client has ended: later than `stop`, because their last commands take a while.
    pub is_quiet: AtomicBool,
    steps: Mutex<Vec<Step>>,
    events: Mutex<Vec<Event>>,
    faults: Mutex<BTreeMap<&'static str, usize>>,
    /// How many attempts that waited without a connection had to wait, and claimed their grant.
    pub claims: AtomicUsize,
    /// The longest delay before this process was scheduled, apart from stalls, in microseconds.
    pub latest: AtomicI64,
}

impl World {
    pub fn new(ports: Vec<u16>, has_module: bool) -> Self {
        Self {
            watch: Watch::start(),
            has_module,
            servers: Mutex::new((ports, 0)),
            stop: AtomicBool::new(false),
            is_quiet: AtomicBool::new(false),
            steps: Mutex::default(),
            events: Mutex::default(),
            faults: Mutex::default(),
            claims: AtomicUsize::new(0),
            latest: AtomicI64::new(0),
        }
    }

    pub fn now(&self) -> Moment {
        self.watch.now()
    }

    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// The servers' ports for clients, and how many times they changed.
    pub fn servers(&self) -> (Vec<u16>, usize) {
        self.servers.lock().unwrap().clone()
    }

    /// Announces new ports to clients.
    pub fn announce(&self, ports: Vec<u16>) {
        let mut servers = self.servers.lock().unwrap();
        if servers.0 != ports {
            *servers = (ports, servers.1 + 1);
        }
    }

    /// Sleeps, but not beyond the end.
    pub fn sleep(&self, time: Duration) {
        let until = self.now() + super::moment::micros(time);
        while !self.is_over() && self.now() < until {
            let left = Duration::from_micros(u64::try_from(until - self.now()).unwrap_or(0));
            thread::sleep(left.min(Duration::from_millis(50)));
        }
    }

    /// The servers' wall clock, for clients that read a clock.
    pub fn unix(&self) -> (Moment, Unix) {
        let offset = self.steps.lock().unwrap().last().map_or(0, |step| step.offset);
        let now = self.now();
        (now, self.watch.unix(now) + offset)
    }

    /// Sets the servers' clock by calling `set`.
    pub fn set_clock(&self, offset: i64, set: impl FnOnce()) {
        let mut steps = self.steps.lock().unwrap();
        let from = self.now();
        set();
        let until = self.now();
        steps.push(Step { from, until, offset });
    }

    /// Records that these effects last while `during` runs.
    pub fn with<T>(&self, effects: &[Effect], during: impl FnOnce() -> T) -> T {
        let from = self.now();
        let result = during();
        self.note(effects, from);
        result
    }

    /// Records effects since `from`.
    pub fn note(&self, effects: &[Effect], from: Moment) {
        let until = self.now();
        let mut events = self.events.lock().unwrap();
        events.extend(effects.iter().map(|effect| Event { effect: *effect, from, until }));
    }

    pub fn count_fault(&self, kind: &'static str) {
        *self.faults.lock().unwrap().entry(kind).or_default() += 1;
    }

    pub fn faults(&self) -> BTreeMap<&'static str, usize> {
        self.faults.lock().unwrap().clone()
    }

    pub fn clock(&self) -> Clock {
        Clock { watch: self.watch, steps: self.steps.lock().unwrap().clone() }
    }

    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    /// Records when this process itself could not run: then a server's time cannot be measured.
    pub fn watch_itself(&self) {
        while !self.is_quiet.load(Ordering::SeqCst) {
            let from = self.now();
            thread::sleep(Duration::from_millis(20));
            let late = self.now() - from - 20_000;
            if late > NOTABLE {
                self.note(&[Effect::Stall], from);
            } else {
                self.latest.fetch_max(late, Ordering::SeqCst);
            }
        }
    }

    /// Records when a server stalls on its own, for example on a slow disk. `port` is called each time because a
    /// restarted server has a different one, and a server that is down has none.
    pub fn watch_server(&self, port: impl Fn() -> u16) {
        let mut watched = None;
        while !self.is_quiet.load(Ordering::SeqCst) {
            let current = port();
            let from = self.now();
            if watched.as_ref().is_none_or(|(of, _)| *of != current) {
                watched = Conn::to(current).ok().map(|conn| (current, conn));
            }
            if watched.as_mut().is_some_and(|(_, conn)| conn.try_execute(&["PING"]).is_err()) {
                watched = None;
            }
            if self.now() - from > NOTABLE {
                self.note(&[Effect::Stall], from);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// How much longer a wait may take: a second, or more if threads are scheduled late.
    pub fn overtime(&self) -> i64 {
        bound::assert_is_listed();
        1_000_000 + 10 * self.latest.load(Ordering::SeqCst)
    }
}

/// Ends the run if its thread panics.
pub struct StopOnPanic<'a>(pub &'a World);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU16;
    use testkit::{until, Server, SetAtEnd};

    #[test]
    fn stalls_are_recorded_after_a_restart_and_the_end_too() {
        let server = Server::with().without_module().start();
        let (port, world) = (AtomicU16::new(server.port()), World::new(Vec::new(), false));
        thread::scope(|scope| {
            let _quiet = SetAtEnd(&world.is_quiet);
            scope.spawn(|| world.watch_server(|| port.load(Ordering::SeqCst)));
            drop(server);
            let restarted = Server::with().without_module().start();
            port.store(restarted.port(), Ordering::SeqCst);
            world.stop();
            let from = world.now();
            until("a stall is recorded", || {
                restarted.signal("STOP");
                thread::sleep(Duration::from_micros(2 * NOTABLE.unsigned_abs()));
                restarted.signal("CONT");
                world.events().iter().any(|event| event.effect == Effect::Stall && event.from > from).then_some(())
            });
        });
    }
}
