//! The models' fake server behaves like a real one. Both execute the simulator's random steps side by side, and give
//! the same replies, keys and queues, to the microsecond.
//!
//! Like the fake's clocks, the server's clocks stop during a step, and are then set to the next moment at which
//! something is due. So tokens, timestamps, expiries and waits are equal, not just similar.
//!
//!     BESIDE_SEED=7 BESIDE_SECONDS=60 cargo test --test integration beside::fresh_seeds -- --nocapture
//!
//! After a COPY of a set of holders only one of the two is used, and the other is deleted: if both are used, LOCK.* may
//! report late (docs/SEMANTICS.md, Several holders), which the fake does not do.
//!
//! Left out: `Evict`, which needs a full server; `Pause`, since the server then holds commands back and the
//! simulator sends none; `Restart`, `LoseSlot` and `RegainSlots`, which need other servers; `SetGrace`; CLIENT UNBLOCK
//! on servers where the module does not let it end waits; MOVE and RESTORE, which the simulator does not have
//! (`holders::moved::`); OWNER; keys that the server itself expires; servers whose clocks cannot be stopped.

mod clocks;
mod command;
mod made_out;
mod mixes;
mod pretended;
mod real;
mod tally;

/// The simulator's fake server and steps.
#[path = "../../core/tests/model"]
#[allow(clippy::struct_excessive_bools, clippy::redundant_closure_for_method_calls, dead_code, unused_imports)]
mod model {
    pub mod fake;
    #[path = "simulator/steps.rs"]
    pub mod steps;
}

use clocks::Clocks;
use command::{Answers, Command, Received, CONTROL};
use mixes::Mix;
use model::fake::{Mutant, Settings};
use model::steps::{Random, Step, Time, KEYS};
use pretended::Pretended;
use real::Real;
use redis_lock_core::engine::Limits;
use redis_lock_core::lock::retention::Retention;
use redis_lock_core::lock::time::Micros;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tally::Tally;
use testkit::env_number;

/// The number of steps on one server.
const STEPS: usize = 1_000;
/// How many grants the clients remember.
const REMEMBERED: usize = 16;
/// How many steps are printed when the servers differ.
const PRINTED: usize = 25;

/// A grant that a client remembers.
#[derive(Clone)]
struct Known {
    token: u64,
    keys: Vec<u8>,
}

/// The two servers, side by side.
struct Run {
    pretended: Pretended,
    real: Real,
    clocks: Clocks,
    known: VecDeque<Known>,
    /// The keys that each client last asked for; the client waits for them or has its reply.
    asked: Vec<(u64, Vec<u8>)>,
    random: Random,
    tally: Tally,
    /// The report printed when the servers differ.
    context: Context,
}

/// The position of a run, printed on a panic.
struct Context {
    seed: u64,
    mix: Mix,
    steps: VecDeque<String>,
    at: usize,
}

impl Drop for Context {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {} ({:?}), step {}; the last steps, each with its result:", self.seed, self.mix, self.at);
            self.steps.iter().for_each(|step| eprintln!("    {step}"));
        }
    }
}

fn settings(seed: u64) -> Settings {
    let of = |all: &[u64], by: u64| all[usize::try_from(seed / by % all.len() as u64).unwrap()];
    let retention = match of(&[0, 2_000, 60_000, u64::MAX], 2) {
        u64::MAX => Retention::Forever,
        ms => Retention::Ms(ms),
    };
    Settings {
        margin: Micros(of(&[1_000_000, 0, 30_000], 3)),
        retention,
        limits: Limits {
            waiters: if seed % 11 == 10 { 3 } else { 1_000 },
            place: Micros(of(&[10_000_000, 300_000, 0], 5)),
            ..Settings::default().limits
        },
        edges: 10_000,
        grace: None,
        reports_keys: true,
        mutant: Mutant::None,
    }
}

impl Run {
    fn start(mix: Mix, seed: u64) -> Option<Self> {
        let (settings, clocks) = (settings(seed), Clocks::default());
        let real = Real::start(&settings, clocks)?;
        let mut pretended = Pretended::new(settings, clocks);
        pretended.conns = real.conns();
        let context = Context { seed, mix, steps: VecDeque::new(), at: 0 };
        Some(Self {
            pretended,
            real,
            clocks,
            known: VecDeque::new(),
            asked: Vec::new(),
            random: Random::new(seed ^ 0x5eed),
            tally: Tally::default(),
            context,
        })
    }

    /// Executes a step, and the next one if it arrives before this step's replies have left.
    fn step(&mut self, step: &Step, next: Option<&Step>) {
        self.context.at = self.tally.steps;
        self.tally.steps += 1;
        match step {
            Step::Pass(Time::Turn) => self.settle("a turn"),
            Step::Pass(Time::Us(time)) => self.pass(self.clocks.now + u64::from(*time)),
            Step::Pass(Time::Timer) => {
                let next = self.pretended.next_timer().unwrap_or(self.clocks.now);
                self.pass(next.min(self.clocks.now + 20_000_000));
            }
            Step::SetClock { by, .. } => {
                self.clocks.ahead += i64::from(*by) * 1_000;
                self.set_clocks();
                self.settle(&format!("{step:?}"));
            }
            Step::Stop { time, .. } | Step::Suspend { time, .. } => {
                let time = u64::from(*time) * 1_000;
                self.clocks.now += time;
                if matches!(step, Step::Suspend { .. }) {
                    self.clocks.asleep += time;
                }
                self.set_clocks();
                self.settle(&format!("{step:?}"));
            }
            _ => {
                let Some(command) = self.command(step) else { return };
                let moves = match command {
                    Command::Copy { from, .. } if self.pretended.is_set(from) => Some(Command::Delete { key: from }),
                    _ => None,
                };
                self.execute(command, matches!(next, Some(Step::Lose)));
                if let Some(delete) = moves {
                    self.execute(delete, false);
                }
            }
        }
        self.tally.done += 1;
        self.inspect();
    }

    fn set_clocks(&mut self) {
        self.pretended.set_clocks(self.clocks);
        self.real.set_clocks(self.clocks);
    }

    /// Lets time pass, from one due moment to the next.
    fn pass(&mut self, until: u64) {
        let from = self.clocks.now;
        loop {
            let next = self.pretended.next_event().max(self.clocks.now);
            if next > until {
                break;
            }
            self.clocks.now = next;
            self.set_clocks();
            self.settle(&format!("{} us later", next - from));
        }
        self.clocks.now = until;
        self.set_clocks();
        self.settle(&format!("{} us have passed", until - from));
    }

    fn execute(&mut self, command: Command, loses: bool) {
        if let Command::Acquire { conn, command: acquire, .. } = &command {
            self.asked.retain(|(asks, _)| asks != conn);
            self.asked.push((*conn, acquire.keys.clone()));
        }
        if let Command::Recover { conn, key, .. } = &command {
            self.asked.retain(|(asks, _)| asks != conn);
            self.asked.push((*conn, vec![*key]));
        }
        self.pretended.execute(&command);
        let mut killed = Vec::new();
        if let Command::Kill { conn } = command {
            killed.push(conn);
        }
        let text = format!("{command:?}");
        let mut commands = vec![command];
        // The server may read the two connections' commands in separate iterations.
        let loses = loses && commands[0].is_of_control();
        if let Some(conn) = self.pretended.is_answered_now().filter(|conn| loses && !killed.contains(conn)) {
            let lose = Command::Kill { conn };
            self.pretended.execute(&lose);
            commands.push(lose);
            killed.push(conn);
            self.tally.lost += 1;
        }
        let at_once = self.real.execute(&commands);
        let has_moved = matches!(commands[0], Command::Rename { .. }) && at_once.contains(&(CONTROL, Received::Done));
        self.compare_answers(&text, at_once);
        if let Command::Rename { from, to } = commands[0] {
            if has_moved {
                self.follow(from, to);
            }
        }
        for conn in killed {
            let client = self.real.conns().iter().position(|own| *own == conn).unwrap();
            self.real.reconnect(client);
        }
        self.pretended.conns = self.real.conns();
    }

    /// Tells the clients their locks' new names.
    fn follow(&mut self, from: u8, to: u8) {
        for known in self.known.iter_mut().filter(|known| !known.keys.contains(&to)) {
            known.keys.iter_mut().filter(|key| **key == from).for_each(|key| *key = to);
        }
    }

    fn settle(&mut self, what: &str) {
        self.compare_answers(what, Answers::new());
    }

    /// Lets both servers settle, and compares the replies that they sent.
    fn compare_answers(&mut self, what: &str, at_once: Answers) {
        let iterations = self.pretended.settle();
        let expected = self.pretended.answers();
        // Each command finishes before the next one is read.
        self.real.settle(iterations + 2);
        let mut found = self.real.answers();
        found.extend(at_once);
        found.sort();
        if !what.ends_with("later") || !expected.is_empty() || found != expected {
            let line = format!("{}: at {} us: {what}: {expected:?}", self.context.at, self.clocks.now);
            self.context.steps.push_back(line);
        }
        while self.context.steps.len() > PRINTED {
            self.context.steps.pop_front();
        }
        assert_eq!(found, expected, "the server (left) replies differently from the fake (right)");
        for (conn, answer) in &expected {
            self.count(*conn, answer, what);
        }
    }

    fn count(&mut self, conn: u64, answer: &Received, what: &str) {
        let token = match answer {
            Received::Details(token, ..) => *token,
            Received::Number(token) if *token > 1_000_000_000 && conn != CONTROL => u64::try_from(*token).unwrap(),
            Received::Error(_) => {
                self.tally.errors += 1;
                return;
            }
            Received::Nil if !what.contains(&format!("conn: {conn},")) => {
                self.tally.time_outs += 1;
                return;
            }
            _ => return,
        };
        self.tally.grants += 1;
        if !what.contains(&format!("conn: {conn},")) {
            self.tally.hand_offs += 1;
        }
        let keys = self.asked.iter().find(|(asked, _)| *asked == conn).map(|(_, keys)| keys.clone()).unwrap();
        self.known.retain(|known| known.token != token);
        self.known.push_back(Known { token, keys });
        if self.known.len() > REMEMBERED {
            self.known.pop_front();
        }
    }

    /// Compares the keys and their queues, in order. A read deletes a key whose native expiry has passed, so keys are
    /// not compared after every step; nor are holders and queues, which would change the module's memory of a key.
    fn inspect(&mut self) {
        for key in 0..KEYS {
            if self.pretended.is_past_expiry(key) && self.random.below(4) == 0 {
                self.tally.expired += 1;
                self.execute(Command::Notice { key }, false);
            }
        }
        let full = self.random.below(if self.context.mix == Mix::ManyClients { 8 } else { 2 }) == 0;
        for key in 0..KEYS {
            if !self.pretended.is_past_expiry(key) {
                let (found, expected) = (self.real.inspect(key, full), self.pretended.inspect(key, full));
                assert_eq!(
                    found,
                    expected,
                    "key {} differs between the server (left) and the fake (right)",
                    char::from(b'a' + key)
                );
            }
        }
    }
}

/// Runs a seed; `None` if no server can run it.
fn run(mix: Mix, seed: u64) -> Option<Tally> {
    let mut run = Run::start(mix, seed)?;
    let steps = mix.steps(seed, STEPS);
    for (at, step) in steps.iter().enumerate() {
        run.step(step, steps.get(at + 1));
    }
    Some(run.tally)
}

#[test]
fn random_steps_agree_on_the_fake_and_a_server() {
    let mut sum = Tally::default();
    for seed in 0..4 {
        let mix = if seed % 2 == 0 { Mix::Calm } else { Mix::Rough };
        let Some(tally) = run(mix, seed) else { return };
        sum += tally;
    }
    println!("{sum:?}");
    let Tally { grants, hand_offs, time_outs, errors, expired, .. } = sum;
    for (count, least) in [(grants, 400), (hand_offs, 60), (time_outs, 80), (errors, 20), (expired, 80)] {
        assert!(count >= least, "{sum:?}");
    }
}

#[test]
fn queues_of_renamed_locks_agree() {
    let mut sum = Tally::default();
    for seed in 0..4 {
        let Some(tally) = run(Mix::ManyClients, seed) else { return };
        sum += tally;
    }
    println!("{sum:?}");
    assert!(sum.grants >= 800 && sum.hand_offs >= 40, "{sum:?}");
}

#[test]
fn fresh_seeds_agree() {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    let first = env_number("BESIDE_SEED").unwrap_or_else(|| u64::try_from(clock % 1_000_000_000).unwrap());
    println!("from seed {first}");
    let end = Instant::now() + Duration::from_secs(env_number("BESIDE_SECONDS").unwrap_or(0));
    let mut sum = Tally::default();
    for seed in first.. {
        let Some(tally) = run(Mix::of(seed), seed) else { return };
        sum += tally;
        // At least one of each kind.
        if seed >= first + 2 && Instant::now() >= end {
            break;
        }
    }
    println!("{sum:?}");
}
