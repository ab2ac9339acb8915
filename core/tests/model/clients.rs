//! The model's clients, and an outsider's knowledge of the grants. This module is written from the contract alone, and
//! shares nothing with the rules that it judges.

use redis_lock_core::lock::record::Id;
use redis_lock_core::lock::time::Micros;
use redis_lock_core::lock::token::Token;

/// LOCK.ACQUIRE.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Command {
    pub conn: u64,
    pub id: Option<Id>,
    pub waits: bool,
    pub session: bool,
    pub lease: Micros,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    Token(Token),
    Nil,
    Unblocked,
    Number(i8),
}

/// How a client locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// LOCK.*
    Lock { waits: bool, has_ids: bool, session: bool },
    /// SETNX, GET and GETSET, with the lock's end in the key.
    Getset,
    /// SET NX PX, compare and delete.
    SetNxPx,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Idle,
    Asking,
    Holding,
    Extending,
    /// It has sent LOCK.RELEASE or LOCK.CANCEL.
    Leaving,
    /// SETNX replied 0.
    Refused,
    /// GET showed that the lock has expired.
    SawExpired,
    Crashed,
}

/// A command from a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Sent {
    Acquire(Command),
    Extend(Token),
    Release(Token),
    Cancel(Id),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    pub phase: Phase,
    /// The number of its earlier connections.
    pub earlier_conns: u8,
    /// The number of this attempt to get the lock.
    pub attempt: u8,
    /// How many more times it may ask.
    pub asks: u8,
    pub token: Option<Token>,
    /// When it sent the command whose reply it awaits: leases are counted from then.
    pub sent_at: u8,
    /// The time until which it believes it holds the lock, by its own clock.
    pub believes_until: u8,
    pub outbox: Option<Sent>,
    pub inbox: Option<Reply>,
}

impl Client {
    pub const fn new(asks: u8) -> Self {
        Self {
            phase: Phase::Idle,
            earlier_conns: 0,
            attempt: 0,
            asks,
            token: None,
            sent_at: 0,
            believes_until: 0,
            outbox: None,
            inbox: None,
        }
    }

    /// The server's number for its connection.
    pub fn conn(&self, who: usize) -> u64 {
        who as u64 * 10 + u64::from(self.earlier_conns) + 1
    }

    /// All of its connections so far.
    pub fn conns(&self, who: usize) -> impl Iterator<Item = u64> {
        let last = self.conn(who);
        last - u64::from(self.earlier_conns)..=last
    }

    /// Closes its connection, losing everything on its way there, and opens another.
    pub fn reconnect(&mut self) {
        self.earlier_conns += 1;
        self.outbox = None;
        self.inbox = None;
    }

    /// Called when the client has given up the lock, or never got it.
    pub fn rest(&mut self) {
        self.phase = Phase::Idle;
        self.token = None;
        self.believes_until = 0;
        self.sent_at = 0;
    }

    /// Reads an answer.
    pub fn read(&mut self, reply: Reply, lease: u8) {
        match (self.phase, reply) {
            (Phase::Asking, Reply::Token(token)) => {
                self.phase = Phase::Holding;
                self.token = Some(token);
                self.believes_until = self.sent_at + lease;
                self.attempt += 1;
            }
            (Phase::Extending, Reply::Number(1)) => {
                self.phase = Phase::Holding;
                self.believes_until = self.sent_at + lease;
            }
            _ => self.rest(),
        }
        self.sent_at = 0;
    }
}
