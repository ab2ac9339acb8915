//! The clients of a run: each repeats and records the operations of its kind.

pub mod ask;
pub mod classic;
pub mod inspector;
pub mod link;
pub mod locks;
pub mod notified;
pub mod plain;
pub mod script;
pub mod several;

use crate::history::{Action, Inspection, Op, Outcome};
use crate::moment::Moment;
use crate::world::World;
use link::Link;
use testkit::dice::Dice;
use testkit::Reply;

/// How a client of LOCK.* acquires and holds.
#[derive(Clone, Copy)]
pub struct Habits {
    /// The longest lease; others wait for the margin too.
    pub lease_ms: (u64, u64),
    /// The longest hold and the longest pause.
    pub hold_ms: u64,
    pub think_ms: u64,
    /// Whether it uses SESSION now and then.
    pub sessions: bool,
}

/// A client's operations and observations, each with its key.
#[derive(Default)]
pub struct Log {
    pub ops: Vec<(String, Op)>,
    pub inspections: Vec<(String, Inspection)>,
}

impl Log {
    /// The operations that were recorded last, one for each of `of` keys, had been sent this many times before.
    pub fn set_lost(&mut self, of: usize, lost: usize) {
        self.ops.iter_mut().rev().take(of).for_each(|(_, op)| op.lost = lost);
    }
}

/// A client and its log.
pub struct Client<'a> {
    pub world: &'a World,
    pub number: u32,
    pub link: Link<'a>,
    pub dice: Dice,
    pub log: Log,
    /// Which of its channels it uses.
    pub channel: u32,
    /// Whether an attempt that it gave up may still be waiting on this channel.
    pub left_behind: bool,
}

impl<'a> Client<'a> {
    pub fn new(world: &'a World, number: u32, seed: u64) -> Self {
        let dice = Dice::new(seed ^ (u64::from(number) << 40));
        let link = Link::new(world, number);
        Self { world, number, link, dice, log: Log::default(), channel: 0, left_behind: false }
    }

    /// Sends a command and records its outcome.
    pub fn run(&mut self, key: &str, action: Action, command: &[&str]) -> Outcome {
        self.run_all(&[key], action, command)
    }

    /// The same for several keys.
    pub fn run_all(&mut self, keys: &[&str], action: Action, command: &[&str]) -> Outcome {
        let from = self.world.now();
        let reply = self.link.execute(command);
        let outcome = outcome_of_all(action, reply.as_ref(), keys.len());
        self.note_all(keys, action, 0, outcome, (from, from));
        outcome
    }

    /// Records an operation, with the moments at which it was first and last sent.
    pub fn note(&mut self, key: &str, action: Action, outcome: Outcome, (from, sent): (Moment, Moment)) {
        self.note_all(&[key], action, 0, outcome, (from, sent));
    }

    /// The same for several keys, and an ID.
    pub fn note_all(
        &mut self,
        keys: &[&str],
        action: Action,
        id: i64,
        outcome: Outcome,
        (from, sent): (Moment, Moment),
    ) {
        let (client, of, until) = (self.number, keys.len(), self.world.now());
        let op = Op { client, action, of, id, outcome, lost: 0, from, sent, until };
        self.log.ops.extend(keys.iter().map(|key| (key.to_string(), op)));
    }

    /// A lease that fits these habits, in microseconds and as a command's argument.
    pub fn lease(&mut self, habits: Habits) -> (i64, String) {
        let ms = self.dice.between(habits.lease_ms.0, habits.lease_ms.1);
        (i64::try_from(ms * 1_000).unwrap(), ms.to_string())
    }

    pub fn sleep_up_to(&mut self, ms: u64) {
        let time = std::time::Duration::from_millis(self.dice.between(0, ms));
        self.world.sleep(time);
    }
}

/// The outcome that a reply shows.
pub fn outcome(action: Action, reply: Option<&Reply>) -> Outcome {
    match (action, reply) {
        (_, None) => Outcome::Unknown,
        (_, Some(Reply::Error(text))) => Outcome::Error(code(text)),
        (_, Some(Reply::Nil)) | (Action::ClassicTake { .. }, Some(Reply::Int(0))) => Outcome::Refused,
        (Action::Acquire { .. }, Some(Reply::Int(token))) => Outcome::Granted(*token),
        (Action::Recover { .. }, Some(Reply::List(details))) => Outcome::Granted(details[0].int()),
        (Action::ClassicTake { .. }, Some(Reply::Int(1))) | (Action::PlainTake { .. }, Some(Reply::Status(_))) => {
            Outcome::Granted(0)
        }
        (_, Some(Reply::Int(number))) => Outcome::Answer(*number),
        (_, Some(other)) => panic!("{action:?}: {other:?}"),
    }
}

/// The same for several keys: LOCK.MEXTEND replies whether all are held, LOCK.MRELEASE how many were.
pub fn outcome_of_all(action: Action, reply: Option<&Reply>, of: usize) -> Outcome {
    match (action, outcome(action, reply)) {
        (Action::Extend { .. }, Outcome::Answer(0)) if of > 1 => Outcome::Refused,
        (Action::Release { .. }, Outcome::Answer(count)) if of > 1 => match usize::try_from(count) {
            Ok(0) => Outcome::Answer(0),
            Ok(count) if count == of => Outcome::Answer(1),
            _ => Outcome::Part(count),
        },
        (_, outcome) => outcome,
    }
}

/// The error codes that a server may reply with during faults; any other code is a violation.
fn code(text: &str) -> &'static str {
    const CODES: [&str; 20] = [
        "GRACE",
        "NOREPLICAS",
        "DEADLOCK",
        "UNBLOCKED",
        "READONLY",
        "LOADING",
        "OOM",
        "MOVED",
        "ASK",
        "CLUSTERDOWN",
        "TRYAGAIN",
        "BUSYLOCKS",
        "MASTERDOWN",
        "CLOCK",
        "MISCONF",
        "BUSY",
        "NOTBUSY",
        "EXECABORT",
        "WRONGTYPE",
        "ERR server closed",
    ];
    let found = CODES.iter().find(|code| text.starts_with(**code));
    found.unwrap_or_else(|| panic!("an unexpected error: {text}"))
}
