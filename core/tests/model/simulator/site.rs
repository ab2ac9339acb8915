//! One server in the simulator: its clocks, its event loop, and its knowledge of its replicas.

use super::judge::Now;
use super::steps::{Acquire, Ms};
use crate::fake::{Node, OwnedKeyName, Settings, Stored};
use redis_lock_core::engine::outbox::Answer;
use redis_lock_core::lock::grace;
use redis_lock_core::lock::time::{Micros, MonotonicMicros, UnixMicros};
use std::collections::{HashMap, VecDeque};

/// The time from which true time is counted.
const START: u64 = 1_763_710_000_000_000;
const TICK: u64 = 100_000;
const MILLION: i64 = 1_000_000;
/// The number of ticks after which a replica answers again and its master counts the replicas that do.
const TICKS_OF_A_SECOND: u64 = 10;

/// A replica's answer on its way.
#[derive(Clone, Copy, Debug)]
struct Ack {
    replica: usize,
    arrives: u64,
    offset: u64,
}

/// A write, as it is replicated.
#[derive(Clone, Debug)]
struct Unit {
    at: u64,
    place: OwnedKeyName,
    stored: Option<Stored>,
}

/// How a replica follows its master.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub master: usize,
    /// The writes that it has applied.
    applied: usize,
    /// From this time on, nothing gets through.
    pub cut_at: Option<u64>,
}

/// A server that stalls.
#[derive(Clone, Copy, Debug)]
struct Stopped {
    since: u64,
    until: u64,
    /// Whether its machine is suspended too.
    is_suspended: bool,
}

pub struct Site {
    pub node: Node,
    /// How far its wall clock is ahead.
    ahead: i64,
    /// By how many millionths its wall clock runs fast.
    pub drift: i64,
    /// The latest time that the wall clock showed before it was set.
    pub latest_wall: u64,
    /// How long its machine was suspended.
    asleep: u64,
    next_tick: u64,
    ticks: u64,
    stopped: Option<Stopped>,
    pub paused_until: Option<u64>,
    pub is_dead: bool,
    /// How it follows another server as its replica, if it does.
    pub link: Option<Link>,
    /// Its number among all masters, in order.
    pub reign: u64,
    /// Unread commands, and whether they are for several keys.
    pub backlog: Vec<(u64, Acquire, bool)>,
    /// Answers that leave when the iteration ends.
    pub sent: Vec<(u64, Answer)>,
    /// The writes replicated since all replicas last had the same data as this server.
    units: Vec<Unit>,
    acks: VecDeque<Ack>,
    /// Each replica's answer, and when it was read, by the wall clock.
    answers: HashMap<usize, (u64, u64)>,
}

impl Site {
    pub fn new(settings: Settings, number: usize) -> Self {
        let node = Node::new(settings, UnixMicros(START));
        node.world.borrow_mut().is_mute = !settings.reports_keys;
        node.world.borrow_mut().journal = Some(Vec::new());
        Self {
            node,
            ahead: 0,
            drift: 0,
            latest_wall: 0,
            asleep: 0,
            next_tick: 7_000 * (1 + number as u64),
            ticks: 0,
            stopped: None,
            paused_until: None,
            is_dead: false,
            link: None,
            reign: 0,
            backlog: Vec::new(),
            sent: Vec::new(),
            units: Vec::new(),
            acks: VecDeque::new(),
            answers: HashMap::new(),
        }
    }

    /// Restarts the process with the contents of its keys.
    pub fn restart(&mut self, now: u64) {
        let (settings, keys) = {
            let world = self.node.world.borrow();
            (world.settings, world.keys.clone())
        };
        self.node = Node::new(settings, UnixMicros(self.wall(now)));
        self.node.world.borrow_mut().keys = keys;
        self.node.world.borrow_mut().is_mute = !settings.reports_keys;
        self.node.world.borrow_mut().journal = Some(Vec::new());
        self.set_clocks(now);
        self.node.event(|entry| entry.promoted());
    }

    pub fn wall(&self, now: u64) -> u64 {
        let drifted = i64::try_from(now).unwrap() * self.drift / MILLION;
        (START + now).saturating_add_signed(self.ahead + drifted)
    }

    /// The true time at which its wall clock shows `wall`.
    fn when(&self, wall: u64) -> u64 {
        let shown = wall.saturating_add_signed(-self.ahead).saturating_sub(START);
        if self.drift == 0 {
            return shown;
        }
        let exact = i128::from(shown) * i128::from(MILLION) / i128::from(MILLION + self.drift);
        // Because of rounding, it may show `wall` a moment later.
        let near = u64::try_from(exact).unwrap();
        (near..near + 3).find(|now| self.wall(*now) >= wall).unwrap_or(near + 3)
    }

    pub fn set_wall(&mut self, now: u64, by: i32) {
        self.latest_wall = self.latest_wall.max(self.wall(now));
        self.ahead += i64::from(by) * 1_000;
    }

    pub const fn monotonic(now: u64) -> u64 {
        1_000_000 + now
    }

    /// Sets the clocks and the knowledge of replicas, as the module should see them.
    pub fn set_clocks(&mut self, now: u64) {
        let wall = self.wall(now);
        let mut world = self.node.world.borrow_mut();
        world.wall = UnixMicros(wall);
        world.monotonic = MonotonicMicros(Self::monotonic(now));
        world.suspended = Micros(self.asleep);
        world.is_paused = self.paused_until.is_some_and(|until| now < until);
        let seconds = |us: u64| i64::try_from(us / 1_000_000).unwrap();
        let answer =
            |(offset, read): &(u64, u64)| grace::Answer { offset: *offset, lag_s: seconds(wall) - seconds(*read) };
        world.replication = Some((self.offset(), self.answers.values().map(answer).collect()));
    }

    pub fn now(&self, now: u64) -> Now {
        let Settings { margin, retention, limits, grace, .. } = self.node.world.borrow().settings;
        Now {
            wall: self.wall(now),
            monotonic: Self::monotonic(now),
            margin: margin.0,
            retention,
            place: limits.place.0,
            claim: limits.claim.0,
            grace: grace.map_or(0, |grace| grace.grace.0),
            keeps_places: limits.waiters >= 100,
            longest_lease: grace.and_then(|grace| grace.longest_lease()).map(|lease| lease.0),
        }
    }

    pub fn is_running(&self, now: u64) -> bool {
        !self.is_dead && self.stopped.is_none_or(|stopped| now >= stopped.until)
    }

    /// Stalls the server.
    pub fn stop(&mut self, now: u64, time: Ms, is_suspended: bool) {
        self.stopped.get_or_insert(Stopped { since: now, until: now + u64::from(time) * 1_000, is_suspended });
    }

    /// Resumes, if it stalled. Returns whether it did.
    pub fn resume(&mut self, now: u64) -> bool {
        let stopped = self.stopped.take();
        if let Some(Stopped { since, is_suspended: true, .. }) = stopped {
            self.asleep += now - since;
        }
        stopped.is_some()
    }

    /// When it next has to do something.
    pub fn next_event(&self, now: u64) -> Option<u64> {
        if self.is_dead {
            return None;
        }
        if let Some(Stopped { until, .. }) = self.stopped {
            return Some(until.max(now));
        }
        let timer = self.node.timer_at().map(|at| self.when(at.0));
        Some(timer.map_or(self.next_tick, |timer| timer.min(self.next_tick)).max(now))
    }

    /// The milliseconds until its timer fires.
    pub fn timer_in_ms(&self) -> Option<u64> {
        let world = self.node.world.borrow();
        world.timer.map(|(_, at_ms)| at_ms.saturating_sub(world.wall.0 / 1_000))
    }

    /// Whether the cron is due; the next one is due in a tenth of a second.
    pub fn is_tick_due(&mut self, now: u64) -> bool {
        let is_due = now >= self.next_tick;
        if is_due {
            self.next_tick = now + TICK;
            self.ticks += 1;
        }
        is_due
    }

    pub const fn is_second_over(&self) -> bool {
        self.ticks.is_multiple_of(TICKS_OF_A_SECOND)
    }

    /// Replicates a write.
    pub fn replicate(&mut self, now: u64, place: OwnedKeyName, stored: Option<Stored>) {
        self.units.push(Unit { at: now, place, stored });
    }

    /// Lets the master ping its replicas, which increases its offset.
    pub fn ping(&mut self, now: u64) {
        self.replicate(now, (0, b"ping".to_vec()), None);
    }

    pub fn offset(&self) -> u64 {
        self.units.len() as u64
    }

    /// Updates a replica's keys with everything that has got through until now. Returns its offset.
    pub fn catch_up(&self, replica: &mut Self, now: u64, lag: u64) -> u64 {
        let Some(link) = &mut replica.link else { return 0 };
        let until = link.cut_at.unwrap_or(now).min(now);
        let mut world = replica.node.world.borrow_mut();
        while let Some(unit) = self.units.get(link.applied).filter(|unit| unit.at + lag <= until) {
            match unit.stored.clone() {
                Some(stored) => world.keys.insert(unit.place.clone(), stored),
                None => world.keys.remove(&unit.place),
            };
            link.applied += 1;
        }
        link.applied as u64
    }

    /// Notes that a replica has answered.
    pub fn expect_ack(&mut self, replica: usize, arrives: u64, offset: u64) {
        self.acks.push_back(Ack { replica, arrives, offset });
    }

    /// Reads the answers that have arrived.
    pub fn read_acks(&mut self, now: u64) {
        let wall = self.wall(now);
        while self.acks.front().is_some_and(|ack| ack.arrives <= now) {
            let Some(ack) = self.acks.pop_front() else { break };
            self.answers.insert(ack.replica, (ack.offset, wall));
        }
    }

    /// Counts good replicas, as a server does every second.
    pub fn count_good_replicas(&mut self) {
        let is_short = !self.is_followed(i64::MIN);
        self.node.world.borrow_mut().is_short_of_replicas = is_short;
    }

    /// Whether enough replicas have answered recently; a server counts answers from the future too.
    pub fn is_followed(&self, least: i64) -> bool {
        let world = self.node.world.borrow();
        let Some(grace) = world.settings.grace else { return true };
        let most = i64::try_from(grace.max_lag.0 / 1_000_000).unwrap();
        let answers = world.replication.iter().flat_map(|(_, answers)| answers);
        let good = answers.filter(|answer| (least..=most).contains(&answer.lag_s)).count() as u64;
        good >= grace.wanted
    }

    /// Makes it a replica of this master from now on, with all of the master's data.
    pub fn follow(&mut self, master: usize, of: &Self) {
        let keys = of.node.world.borrow().keys.clone();
        {
            let mut world = self.node.world.borrow_mut();
            world.keys = keys;
            world.is_replica = true;
            world.is_short_of_replicas = false;
        }
        self.link = Some(Link { master, applied: of.units.len(), cut_at: None });
        self.units.clear();
        self.acks.clear();
        self.answers.clear();
        self.paused_until = None;
    }

    /// Makes it a master from `now` on.
    pub fn lead(&mut self, reign: u64, now: u64) {
        self.link = None;
        self.reign = reign;
        self.units.clear();
        self.acks.clear();
        self.answers.clear();
        self.node.world.borrow_mut().is_replica = false;
        self.set_clocks(now);
        self.node.event(|entry| entry.promoted());
    }

    /// Sets how many replicas the server requires, as its operator does.
    pub fn want(&self, wanted: u64) {
        if let Some(grace) = &mut self.node.world.borrow_mut().settings.grace {
            grace.wanted = wanted;
        }
    }

    /// Adds a new replica, which has just acknowledged its initial data.
    pub fn add_replica(&mut self, replica: usize, now: u64) {
        self.answers.insert(replica, (self.offset(), self.wall(now)));
    }
}
