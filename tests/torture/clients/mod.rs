//! The clients of a run: each does what its kind does, over and over, and writes down what it did.

pub mod classic;
pub mod link;
pub mod locks;
pub mod plain;

use crate::history::{Call, Op, Outcome};
use crate::moment::Moment;
use crate::plan::Dice;
use crate::support::Reply;
use crate::world::World;
use link::Link;

/// A client, and what it did: the key of each operation, and the operation.
pub struct Client<'a> {
    pub world: &'a World,
    pub number: u32,
    pub link: Link<'a>,
    pub dice: Dice,
    pub log: Vec<(String, Op)>,
}

impl<'a> Client<'a> {
    pub fn new(world: &'a World, number: u32, seed: u64) -> Self {
        let dice = Dice::new(seed ^ (u64::from(number) << 40));
        Self { world, number, link: Link::new(world, number), dice, log: Vec::new() }
    }

    /// Sends a command and writes down what came of it.
    pub fn run(&mut self, key: &str, call: Call, command: &[&str]) -> Outcome {
        let from = self.world.now();
        let reply = self.link.call(command);
        let outcome = outcome(call, reply.as_ref());
        self.note(key, call, outcome, (from, from));
        outcome
    }

    /// Writes an operation down that was sent first and last at those moments.
    pub fn note(&mut self, key: &str, call: Call, outcome: Outcome, (from, sent): (Moment, Moment)) {
        let op = Op { client: self.number, call, outcome, from, sent, until: self.world.now() };
        self.log.push((key.to_string(), op));
    }

    pub fn sleep_up_to(&mut self, ms: u64) {
        let time = std::time::Duration::from_millis(self.dice.between(0, ms));
        self.world.sleep(time);
    }
}

/// What a reply means.
pub fn outcome(call: Call, reply: Option<&Reply>) -> Outcome {
    match (call, reply) {
        (_, None) => Outcome::Unknown,
        (_, Some(Reply::Error(text))) => Outcome::Error(code(text)),
        (_, Some(Reply::Nil)) | (Call::ClassicTake { .. }, Some(Reply::Int(0))) => Outcome::Refused,
        (Call::Acquire { .. }, Some(Reply::Int(token))) => Outcome::Granted(*token),
        (Call::Recover { .. }, Some(Reply::List(details))) => Outcome::Granted(details[0].int()),
        (Call::ClassicTake { .. }, Some(Reply::Int(1))) | (Call::PlainTake { .. }, Some(Reply::Status(_))) => {
            Outcome::Granted(0)
        }
        (_, Some(Reply::Int(number))) => Outcome::Answer(*number),
        (_, Some(other)) => panic!("{call:?}: {other:?}"),
    }
}

/// The code words that a server may answer with while things go wrong; anything else is a fault.
fn code(text: &str) -> &'static str {
    const CODES: [&str; 19] = [
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
        "ERR server closed",
    ];
    let found = CODES.iter().find(|code| text.starts_with(**code));
    found.unwrap_or_else(|| panic!("an error that nobody can expect: {text}"))
}
