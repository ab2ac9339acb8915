//! The history of a run: each client's operations on each key, with their times and outcomes.

use super::moment::Moment;
use std::fmt::{self, Display, Formatter};

/// How many holders a client allows while it holds the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    #[default]
    Alone,
    Shared,
    /// At most this many holders.
    Limit(usize),
}

impl Share {
    pub fn most(self) -> usize {
        match self {
            Self::Alone => 1,
            Self::Shared => usize::MAX,
            Self::Limit(most) => most,
        }
    }
}

/// A client's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// LOCK.ACQUIRE, or LOCK.MACQUIRE; `sent_again`: its first replies were lost.
    Acquire {
        share: Share,
        lease: i64,
        wait: i64,
        session: bool,
        sent_again: bool,
    },
    /// LOCK.RECOVER
    Recover {
        lease: i64,
    },
    Extend {
        token: i64,
        lease: i64,
    },
    Release {
        token: i64,
    },
    Check {
        token: i64,
    },
    /// LOCK.CANCEL of the client's own attempt, which began at that moment and got no reply.
    Cancel {
        attempt: Moment,
    },
    /// SETNX, or GETSET over an expired timestamp, by the client's clock at `read_at`.
    ClassicTake {
        lease: i64,
        read_at: Moment,
        is_getset: bool,
    },
    /// The checked DEL of the classic pattern, by the client that took the lock with the timestamp `end`.
    ClassicDrop {
        end: Moment,
    },
    /// SET NX PX
    PlainTake {
        lease: i64,
    },
    /// Compare and delete.
    PlainDrop,
}

impl Action {
    /// Whether it writes without regard to the key's value: GETSET and DEL of the classic pattern.
    pub fn is_blind(&self) -> bool {
        matches!(self, Self::ClassicTake { is_getset: true, .. } | Self::ClassicDrop { .. })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Granted, with the token of LOCK.*, else 0.
    Granted(i64),
    /// nil: another client has the lock. LOCK.MEXTEND: at least one of the keys is not held, and none has changed.
    Refused,
    /// LOCK.MRELEASE: the number of keys released; which keys is not known.
    Part(i64),
    /// The integer of EXTEND, RELEASE, CHECK, or of a compare and delete.
    Answer(i64),
    /// An error: nothing has changed.
    Error(&'static str),
    /// No reply: it may have been carried out, may still be, or may never be.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
pub struct Op {
    pub client: u32,
    pub action: Action,
    /// The number of its keys: each key's history contains it, with the same client and the same `from`.
    pub of: usize,
    /// The ID with which it was sent, else 0.
    pub id: i64,
    pub outcome: Outcome,
    /// How many times it was sent in vain, before the last time.
    pub lost: usize,
    /// When it was first sent.
    pub from: Moment,
    /// When it was last sent.
    pub sent: Moment,
    /// When the reply arrived, or when none could arrive any longer.
    pub until: Moment,
}

impl Display for Op {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let ms = |at: Moment| format!("{}.{:03}", at / 1_000, at.rem_euclid(1_000));
        write!(out, "{:>12} {:>12} client {:<3} ", ms(self.from), ms(self.until), self.client)?;
        write!(out, "{:?} -> {:?}", self.action, self.outcome)?;
        if self.of > 1 {
            write!(out, ", {} keys", self.of)?;
        }
        Ok(())
    }
}

/// What LOCK.INFO FULL reported about a key.
#[derive(Clone, Debug)]
pub struct Inspection {
    pub from: Moment,
    pub until: Moment,
    /// The IDs of its holders, overdue or not; holders without an ID are left out.
    pub holders: Vec<i64>,
    /// The waiters in order; 0 for one without an ID.
    pub queue: Vec<i64>,
}

/// Which kinds of clients share a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Company {
    /// LOCK.* only.
    Alone,
    /// At most 200 operations of LOCK.* only, so that all their orders can be tried.
    Small,
    /// LOCK.*, and clients of the classic pattern, SET NX PX, or both.
    Mixed,
}

/// Everything that was done with one key.
#[derive(Clone, Debug)]
pub struct KeyHistory {
    pub key: String,
    pub company: Company,
    pub ops: Vec<Op>,
    /// The inspections, in order.
    pub inspections: Vec<Inspection>,
}

impl KeyHistory {
    /// The operations around some moments, as lines.
    pub fn piece(&self, from: Moment, until: Moment) -> String {
        let mut near: Vec<&Op> = self.ops.iter().filter(|op| op.until >= from && op.from <= until).collect();
        near.sort_by_key(|op| op.from);
        let left_out = near.len().saturating_sub(60);
        let mut lines: Vec<String> = near.iter().skip(left_out / 2).take(60).map(ToString::to_string).collect();
        if left_out > 0 {
            lines.push(format!("({left_out} more at both ends)"));
        }
        lines.join("\n")
    }
}

/// An event of the run that affects the promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The server, or its network, stalled, so that nothing could arrive.
    Stall,
    /// The servers may have lost their data about locks, as their settings permit.
    Loss,
    /// Like `Loss`, for the keys that clients without LOCK.* use too.
    LossOfOthers,
    /// The server was restarted.
    Restart,
    /// A key's slot moved to another server, without its waiters.
    Move,
    /// Another server may have taken over, or the same one restarted without its data; a grace covers leases.
    Change,
}

/// An effect and its span.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub effect: Effect,
    pub from: Moment,
    pub until: Moment,
}

/// What the checks know in addition to the operations.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The smallest and the largest `lock.margin-ms` that was in force, in microseconds.
    pub margin: (i64, i64),
    /// `lock.retention-ms` in microseconds, if it never changed.
    pub retention: Option<i64>,
    /// Whether a failover grace may keep a free lock from being granted.
    pub has_grace: bool,
    /// Whether the locks are those of portable/lock.lua: the next holder has to claim a lock that is handed off.
    pub is_script: bool,
    /// How long a command without a reply may still be in flight.
    pub longest_stall: i64,
    /// How much longer a wait without a stall may take: more on a slower machine.
    pub overtime: i64,
    pub events: Vec<Event>,
}

impl Terms {
    /// Whether such an effect overlaps a span.
    pub fn is_in(&self, effect: Effect, from: Moment, until: Moment) -> bool {
        self.events.iter().any(|event| event.effect == effect && event.from < until && event.until > from)
    }

    /// How much of a span was stalled.
    pub fn stalled(&self, from: Moment, until: Moment) -> i64 {
        let mut stalls: Vec<(Moment, Moment)> = self
            .events
            .iter()
            .filter(|event| event.effect == Effect::Stall)
            .map(|event| (event.from.max(from), event.until.min(until)))
            .filter(|(from, until)| from < until)
            .collect();
        stalls.sort_unstable();
        let (mut sum, mut seen) = (0, from);
        for (from, until) in stalls {
            sum += (until - from.max(seen)).max(0);
            seen = seen.max(until);
        }
        sum
    }
}
